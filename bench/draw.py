#!/usr/bin/env python3
"""Draws what bench/against_peft.py measured: bench/draw.py against_peft.json OUT.svg

Bars of tokens per second and of peak memory, two per run, readable on light and dark pages.
"""
import json
import statistics
import sys
from xml.sax.saxutils import escape

LABELS, BARS, GAP = 330, 230, 90
BAR, ROW, TOP = 14, 48, 62
OURS, OTHER, TEXT = "#2f81f7", "#9a9fa6", "#808890"


def middle(results, side, key):
    values = [result[side][key] for result in results if side in result]
    return statistics.median(values) if values else None


def draw(rounds):
    rows = [[r for results in rounds for r in results if r["row"] == row["row"]] for row in rounds[0]]
    width, height = LABELS + 2 * (BARS + GAP), TOP + ROW * len(rows) + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" role="img">',
           "<title>Tokens per second and peak memory: lora and PyTorch + PEFT</title>"]

    def text(x, y, words, size=12, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{TEXT}" font-size="{size}"{weight}>{escape(words)}</text>')

    for x, color, name in ((0, OURS, "lora"), (70, OTHER, "PyTorch + PEFT")):
        out.append(f'<rect x="{x}" y="8" width="12" height="12" rx="2" fill="{color}"/>')
        text(x + 18, 19, name)
    panels = [("tokens per second", "tokens_per_second", "{:.0f}"), ("peak memory, GiB", "peak_memory_gib", "{:.2f}")]
    for number, (title, key, form) in enumerate(panels):
        left = LABELS + number * (BARS + GAP)
        text(left, 46, title, 13, True)
        shown = [[middle(row, side, key) for side in ("lora", "peft")] for row in rows]
        largest = max(value for pair in shown for value in pair if value is not None)
        for i, pair in enumerate(shown):
            for k, (value, color) in enumerate(zip(pair, (OURS, OTHER))):
                y = TOP + i * ROW + k * (BAR + 3)
                if value is None:
                    text(left, y + BAR - 3, "–")
                    continue
                length = BARS * value / largest
                out.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{color}"/>')
                text(left + length + 6, y + BAR - 3, form.format(value))
    for i, row in enumerate(rows):
        name, _, rest = row[0]["run"].partition(", ")
        text(0, TOP + i * ROW + 12, name, 12, True)
        text(0, TOP + i * ROW + 28, rest, 11)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(sys.argv[1]) as file:
        rounds = json.load(file)["rounds"]
    with open(sys.argv[2], "w") as file:
        file.write(draw(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
