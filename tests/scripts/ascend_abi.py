#!/usr/bin/env python3
"""Writes what the project calls of the vendor's C interface, out of a table of all that its headers declare.

  ascend_abi.py FUNCTIONS.tsv > tests/fixtures/ascend_abi.tsv

FUNCTIONS.tsv has a line for each function of CANN's public headers: name, header, result, then a column a parameter, its
type and name. Kept are the functions that include/lora/ascend/runtime.hpp loads and both functions of each operator in
include/lora/ascend/operators.hpp that the table has; of the parameters the types alone.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent / "include/lora/ascend"


def main():
    called = set(re.findall(r'f\("(acl\w+)"', (ROOT / "runtime.hpp").read_text()))
    for name in re.findall(r"\{\"(\w+)\",\s*\"", (ROOT / "operators.hpp").read_text()):
        called |= {f"aclnn{name}GetWorkspaceSize", f"aclnn{name}"}
    for line in open(sys.argv[1], encoding="utf-8"):
        name, *rest = line.rstrip("\n").split("\t")
        if name not in called:
            continue
        _, result, *parameters = rest
        types = [re.sub(r"\s*\b\w+$", "", parameter).strip() for parameter in parameters]
        print("\t".join([name, result, *types]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
