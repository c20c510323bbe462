#!/usr/bin/env python3
"""How long the project takes to compile.

  bench/compile_time.py [--parse_only] [--runs N] [--cmake_option=-DX=Y ...]

Builds the program lora with the preset release from nothing, in a temporary folder, on one core without a compiler
cache; then parses (-fsyntax-only, the program's flags) the umbrella header, and the third-party headers that it reaches.
Times are CPU seconds of the compiler and linker, which say more than the clock on a busy machine; the clock is printed
beside.
"""
import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THIRD_PARTY = re.compile(r"Eigen/|nlohmann/|oneapi/|dnnl|sentencepiece")


def timed(words, **more):
    """(CPU seconds, seconds) of a command."""
    cpu = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before, begin = cpu(), time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, CCACHE_DISABLE="1"), **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}")
    return cpu() - before, time.perf_counter() - begin


def program_flags(build):
    """Compiler and flags of the program's main, without input and output."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        entry = next(e for e in json.load(file) if "lora_program.dir" in e["file"] + e["command"])
    words = shlex.split(entry["command"])
    if os.path.basename(words[0]) == "ccache":
        words = words[1:]
    kept, skip = [], False
    for word in words:
        if skip or word in ("-c", entry["file"]):
            skip = False
        elif word == "-o":
            skip = True
        else:
            kept.append(word)
    return kept


def third_party_headers(flags, folder, source):
    """What the project's headers under `source` include in angle brackets from other projects."""
    done = subprocess.run(flags + ["-M", source], stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    ours = {path for path in done.stdout.replace("\\\n", " ").split() if "/include/lora/" in path}
    names = set()
    for path in ours:
        with open(path) as file:
            names |= set(re.findall(r"^\s*#\s*include <([^>]+)>", file.read(), re.M))
    return sorted(name for name in names if THIRD_PARTY.search(name))


def parse_seconds(flags, folder, runs, includes):
    source = os.path.join(folder, "parse.cpp")
    with open(source, "w") as file:
        file.writelines(f"#include <{name}>\n" for name in includes)
    return min(timed(flags + ["-fsyntax-only", source], cwd=folder)[0] for _ in range(runs)), source


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parse_only", action="store_true")
    parser.add_argument("--runs", type=int, default=3, help="of each parse; the fastest counts")
    parser.add_argument("--cmake_option", action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compile-time-") as build:
        timed(["cmake", "--preset", "release", "-B", build] + args.cmake_option, cwd=ROOT)
        if not args.parse_only:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            cpu, clock = timed(["cmake", "--build", build, "--target", "lora_program", "-j", "1"])
            print(f"the program lora, release, one core: {cpu:.1f} s CPU, {clock:.1f} s by the clock")
        flags = program_flags(build)
        umbrella, source = parse_seconds(flags, build, args.runs, ["lora/lora.hpp"])
        others = third_party_headers(flags, build, source)
        needed, _ = parse_seconds(flags, build, args.runs, others)
        print(f"lora/lora.hpp: {umbrella:.2f} s CPU; {', '.join(others)}: {needed:.2f} s; "
              f"difference {umbrella - needed:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
