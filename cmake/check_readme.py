#!/usr/bin/env python3
"""Fails unless the code that README.md shows after <!-- FILE --> is that file, from its first include on."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
blocks = re.findall(r"<!-- (\S+) -->\n```cpp\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
if not blocks:
    sys.exit("README.md: no example is marked with <!-- FILE -->")
for name, shown in blocks:
    text = (root / name).read_text()
    if text[text.index("#include"):] != shown:
        sys.exit(f"README.md: its example is not {name}")
