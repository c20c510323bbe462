#!/usr/bin/env python3
"""Writes tests/fixtures/csv/rows.json: tables as text, and the rows that Python's csv module reads in them.

    tests/make/csv_rows.py            writes the file
    tests/make/csv_rows.py --check    says whether it is what this writes

Of each case the text, what separates its cells, and the rows, or null where the module refuses the text in its strict
mode: a quote that is never closed, or text behind a closing one. Blank lines are no rows.
"""

import argparse
import csv
import io
import json
import random
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "fixtures" / "csv" / "rows.json"

WRITTEN = [
    "", "\n", "a", "a,b", "a,b\n", "a,b\r\nc,d\r\n", "a,b\rc,d\r", "a\n\nb\n", "\r\n\r\na\r\n", "a,\n,b\n", ",\n", ",,",
    '""', '"",""\n', '"a"', '"a,b"', '"a\nb",c\n', '"a\r\nb"\r\n', '"a""b"', '""""', '""""""', '"a"",""b"', 'a"b', 'a""b',
    'a"b"c,"d"', ' "a"', ' a , b ', '" a "', '"a"b', '"a" ', '"a"\n"', '"', '"a', 'a,"b\nc', '"a""', 'a,"', "a\tb", "a;b",
    "\u00fc,\u4e2d\u6587\n", '"\u4e2d\n\u6587"', "a,b\n\"", "a\n\"b\"\"\n\",c",
]  # fmt: skip


def rows_of(text, separator):
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row]
    except csv.Error:
        return None


def cases():
    for text in WRITTEN:
        for separator in ",;\t":
            yield text, separator
    rng = random.Random(5)
    for number in range(1500):
        separator = ",;\t"[number % 3]
        pieces = ["a", "b", "\u00e9", '"', '"', '""', separator, separator, "\n", "\r", "\r\n", ",", ";"]
        yield "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 16))), separator


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    lines = [json.dumps({"text": text, "separator": separator, "rows": rows_of(text, separator)})
             for text, separator in cases()]
    content = "[\n" + ",\n".join(lines) + "\n]\n"
    if parser.parse_args().check:
        return 0 if OUT.read_text(encoding="utf-8") == content else f"{OUT} is not what this writes"
    OUT.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
