#!/usr/bin/env python3
"""Fails unless the code that the documents show is code that is compiled and tested.

After <!-- FILE --> stands that file, from its first include on; after <!-- FILE#PART --> what stands in it between the
lines "// [PART]" and "// [end]", without the indentation of the first.
"""
import pathlib
import re
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parent.parent


def code_of(name):
    name, _, part = name.partition("#")
    text = (root / name).read_text()
    if not part:
        return text[text.index("#include"):]
    found = re.search(rf"^ *// \[{re.escape(part)}\]\n(.*?)^ *// \[end\]$", text, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(found.group(1)) if found else None


wrong = []
for document in ("README.md", "docs/library.md"):
    text = (root / document).read_text()
    blocks = re.findall(r"<!-- (\S+) -->\n```cpp\n(.*?)```", text, re.DOTALL)
    wrong += [f"{document}: its code is not {name}'s" for name, shown in blocks if code_of(name) != shown]
    if len(blocks) < text.count("```cpp"):
        wrong.append(f"{document}: code without a mark <!-- FILE --> or <!-- FILE#PART -->")
    if not blocks:
        wrong.append(f"{document}: no code is marked")
sys.exit("\n".join(wrong) if wrong else 0)
