#!/usr/bin/env python3
"""Opens a report in headless Chromium, light and dark, on a phone and on a desk, and saves pictures to look at.

  tests/scripts/look_at_report.py RUN/report.html --out FOLDER [--chromium chromium]

Fails where the page is wider than the screen, 400 and 1,400 pixels, or where Chromium says anything on its console. Chromium is Debian's
package of that name; no other check of the project needs it.
"""
import argparse
import html
import os
import pathlib
import re
import subprocess
import sys

SIZES = {"phone": (400, 2400), "desk": (1400, 1400)}
FRAME = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title></title>
<body style="margin:0"><iframe srcdoc="{page}" style="width:{width}px;height:{height}px;border:0"
onload="document.title = 'width ' + contentDocument.scrollingElement.scrollWidth"></iframe></body>"""


def open_page(args, page, size, dark, more):
    words = [args.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
             f"--window-size={size[0]},{size[1]}", *(["--force-dark-mode"] if dark else []), *more, page.resolve().as_uri()]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", default="chromium")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    page, failures = args.page, 0
    for name, size in SIZES.items():
        # Chromium opens no window below 500 pixels, so that the page is in a frame, which tells how wide it would be.
        frame = args.out / "frame.html"
        frame.write_text(FRAME.format(page=html.escape(page.read_text(encoding="utf-8")), width=size[0], height=size[1]),
                         encoding="utf-8")
        for dark in (False, True):
            picture = args.out / f"{name}-{'dark' if dark else 'light'}.png"
            said = open_page(args, frame, size, dark, [f"--screenshot={picture.resolve()}"]).stderr
            console = [line for line in said.splitlines() if "CONSOLE" in line]
            print(f"{picture}: {'; '.join(console) or 'nothing on the console'}")
            failures += bool(console) or not picture.exists()
        found = re.search(r"<title>width (\d+)</title>", open_page(args, frame, size, False, ["--dump-dom"]).stdout)
        frame.unlink()
        width = int(found.group(1)) if found else None
        print(f"{name}: {size[0]} pixels, of which the page takes {width}")
        failures += width is None or width > size[0]
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
