#!/usr/bin/env python3
"""Whether every loop marked LORA_SIMD under INCLUDE/lora/cpu and INCLUDE/lora/ascend has vector code.

  check.py INCLUDE COMPILER ARGUMENTS... SOURCE

Compiles SOURCE, which must instantiate all these loops, with g++'s report of what it vectorized. A loop passes if it is
reported as vectorized at least once, and never as one that couldn't be.
"""
import glob
import os
import re
import subprocess
import sys

REPORT = re.compile(r"/(lora/(?:cpu|ascend)/(?:\w+/)*\w+\.hpp):(\d+):\d+: (optimized: loop vectorized|missed: couldn't vectorize loop)")


def marked_loops(path):
    """(first line, last line) of each: to the end of its statement, since g++ may name any line of the body."""
    with open(path) as file:
        lines = file.read().splitlines()
    for mark in (i for i, line in enumerate(lines) if line.strip() == "LORA_SIMD"):
        end, open_brackets = mark, 0
        while True:
            end += 1
            code = lines[end].split("//")[0].rstrip()
            open_brackets += sum(code.count(c) for c in "({") - sum(code.count(c) for c in ")}")
            if open_brackets == 0 and code.endswith((";", "}")):
                break
        yield mark + 2, end + 1


def main(include, compiler, *arguments):
    done = subprocess.run([compiler, *arguments, "-I" + include, "-fopt-info-vec-optimized-missed", "-c", "-o",
                           os.devnull], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    reports = [(name, int(line), what.startswith("optimized")) for name, line, what in REPORT.findall(done.stderr)]
    loops = failures = 0
    for path in sorted(path for folder in ("cpu", "ascend") for path in
                        glob.glob(os.path.join(include, f"lora/{folder}/**/*.hpp"), recursive=True)):
        name = os.path.relpath(path, include)
        for first, last in marked_loops(path):
            loops += 1
            said = [good for header, line, good in reports if header == name and first <= line <= last]
            if not said or not all(said):
                failures += 1
                print(f"{name}:{first}: " + (f"{said.count(False)} of {len(said)} instantiations have no vector code"
                                             if said else "not instantiated by the source, or not reported"))
    print(f"{loops} marked loops, {failures} of them without vector code")
    sys.exit(failures > 0 or loops == 0)


main(*sys.argv[1:])
