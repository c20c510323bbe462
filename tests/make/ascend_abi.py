#!/usr/bin/env python3
"""Writes what the project calls of the vendor's C interface, out of a table of all that its headers declare.

  ascend_abi.py FUNCTIONS.tsv TYPES.json > tests/fixtures/ascend_abi.tsv

FUNCTIONS.tsv has a line for each function of CANN's public headers: name, header, result, then a column a parameter, its
type and name. Kept are the functions that include/lora/ascend/runtime/runtime.hpp loads, both functions of each operator in
include/lora/ascend/runtime/operators.hpp that the table has, and what the stand-in has (tests/ascend/stand_in/vendor*.h); of the
parameters the types alone. TYPES.json has the headers' enumerations (by name or, without one, by header) and structures:
of both, what the stand-in has.
"""
import json
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
ROOT = TOP / "include/lora/ascend"


def main():
    called = set(re.findall(r'f\("(acl\w+)"', (ROOT / "runtime/runtime.hpp").read_text()))
    for name in re.findall(r"\{\"(\w+)\",\s*\"", (ROOT / "runtime/operators.hpp").read_text()):
        called |= {f"aclnn{name}GetWorkspaceSize", f"aclnn{name}"}
    stand_in = "".join(path.read_text() for path in sorted((TOP / "tests/ascend/stand_in").glob("vendor*.h")))
    called |= set(re.findall(r"\b((?:acl|Hccl)\w+)\(", stand_in))
    for line in open(sys.argv[1], encoding="utf-8"):
        name, *rest = line.rstrip("\n").split("\t")
        if name not in called:
            continue
        _, result, *parameters = rest
        types = [re.sub(r"\s*\b\w+$", "", parameter).strip() for parameter in parameters]
        print("\t".join([name, result, *types]))
    types = json.load(open(sys.argv[2], encoding="utf-8"))
    known = {name: value for values in types["enums"].values() for name, value in values.items()}
    for name in sorted(set(re.findall(r"\b((?:ACL|HCCL)_\w+) = ", stand_in)) & set(known)):
        print(f"{name}\t{known[name]}")
    for name in sorted(types["structs"]):
        if re.search(rf"^}} {name.removesuffix('Def')};|^typedef struct {name} ", stand_in, re.M):
            print(f"sizeof {name.removesuffix('Def')}\t{types['structs'][name]['size']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
