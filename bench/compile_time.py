#!/usr/bin/env python3
"""How long the project takes to compile.

  bench/compile_time.py [--parse_only | --example_only] [--runs N] [--cmake_option=-DX=Y ...]

Builds README's example in a project of its own, with lora::lora (header-only) and with lora::compiled, and the program
lora with the preset release, each from nothing, in a temporary folder, on one core without a compiler cache; then parses
(-fsyntax-only, the program's flags) the umbrella header, and the third-party headers that it reaches.
Times are CPU seconds of the compiler and linker, which say more than the clock on a busy machine; the clock is printed
beside, and the memory of the largest process.
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


EXAMPLE = f"""cmake_minimum_required(VERSION 3.24)
project(app LANGUAGES CXX)
add_subdirectory("{ROOT}" lora)
foreach(library lora compiled)
  add_executable(app_${{library}} "{ROOT}/examples/fine_tune.cpp")
  target_link_libraries(app_${{library}} PRIVATE lora::${{library}})
endforeach()
"""


def timed(words, **more):
    """(CPU seconds, seconds) of a command."""
    cpu = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before, begin = cpu(), time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, CCACHE_DISABLE="1"), **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}")
    return cpu() - before, time.perf_counter() - begin


def build_in_a_child(build, target):
    """What a build of a target takes, in words; in a process of its own, whose children's memory is theirs alone."""
    words = [sys.executable, __file__, "--build", build, "--target", target]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def build_example():
    with tempfile.TemporaryDirectory(prefix="compile-time-") as folder:
        with open(os.path.join(folder, "CMakeLists.txt"), "w") as file:
            file.write(EXAMPLE)
        build = os.path.join(folder, "build")
        timed(["cmake", "-G", "Ninja", "-S", folder, "-B", build, "-DCMAKE_BUILD_TYPE=Release"])
        print("README's example, lora::lora:", build_in_a_child(build, "app_lora"))
        print("what lora::compiled compiles once:", build_in_a_child(build, "lora_compiled"))
        print("README's example, lora::compiled:", build_in_a_child(build, "app_compiled"))


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
    parser.add_argument("--example_only", action="store_true")
    parser.add_argument("--build", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=3, help="of each parse; the fastest counts")
    parser.add_argument("--cmake_option", action="append", default=[])
    args = parser.parse_args()
    if args.build:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        cpu, clock = timed(["cmake", "--build", args.build, "--target", args.target, "-j", "1"])
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{cpu:.1f} s CPU, {clock:.1f} s by the clock, {memory:.2f} GiB")
        return 0
    if not args.parse_only:
        build_example()
    if args.example_only:
        return 0
    with tempfile.TemporaryDirectory(prefix="compile-time-") as build:
        timed(["cmake", "--preset", "release", "-B", build] + args.cmake_option, cwd=ROOT)
        if not args.parse_only:
            print("the program lora, release:", build_in_a_child(build, "lora_program"))
        flags = program_flags(build)
        umbrella, source = parse_seconds(flags, build, args.runs, ["lora/lora.hpp"])
        others = third_party_headers(flags, build, source)
        needed, _ = parse_seconds(flags, build, args.runs, others)
        print(f"lora/lora.hpp: {umbrella:.2f} s CPU; {', '.join(others)}: {needed:.2f} s; "
              f"difference {umbrella - needed:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
