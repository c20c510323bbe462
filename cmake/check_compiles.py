#!/usr/bin/env python3
"""Whether that compiles which nothing else compiles by itself: each header alone, and the benchmarks.

A header is compiled as lora::compiled has it, with declarations only; behind it come its own definitions (*.ipp). The
flags are those that a configured build folder gives users of the library. What the headers include of other libraries is
parsed once for all: cmake/check_includes.py sees whether each includes what it uses of the standard library.

  cmake/check_compiles.py BUILD_FOLDER [--jobs N] [FILE ...]     e.g. build/clang include/lora/io/json.hpp
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from check_floors import includes

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"


def command_of(folder):
    """How a source that uses lora::compiled_ascend is compiled, but for its name and its object."""
    entries = json.loads((folder / "compile_commands.json").read_text())
    words = next(shlex.split(entry["command"]) for entry in entries
                 if entry["file"].endswith("/compiled/ascend_half.cpp"))
    return words[:words.index("-o")] + mpi_folders()


def mpi_folders():
    """Where mpi.h lies, as options of the compiler; nothing where MPI is not installed."""
    try:
        found = subprocess.run(["mpicxx", "--showme:incdirs"], stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [word for folder in found.stdout.split() for word in ("-isystem", folder)]


def parsed_once(command, folder):
    """Options by which the compiler finds what headers include of other libraries parsed already, in a file in `folder`."""
    names = {name for path in INCLUDE.rglob("*.[hi]pp") for _, quote, name in includes(path) if quote == "<"}
    header = pathlib.Path(folder) / "parsed_once.hpp"
    header.write_text("".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in sorted(names)))
    result = header.with_suffix(".pch")
    subprocess.run([*command, "-fpch-instantiate-templates", "-x", "c++-header", str(header), "-o", str(result)], check=True)
    return ["-include-pch", str(result)]


def errors_of(path, command):
    """What the compiler says of a file; nothing if it compiles."""
    included = [path]
    if INCLUDE in path.parents:
        included += [other for other in [path.with_suffix(".ipp")] if other.exists()]
    text = "".join(f'#include "{one.relative_to(INCLUDE) if INCLUDE in one.parents else one}"\n' for one in included)
    found = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return found.stdout if found.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_intermixed_args()
    files = [path.resolve() for path in options.files]
    if not files:
        files = sorted(INCLUDE.rglob("*.hpp")) + sorted((ROOT / "bench").glob("*.cpp"))
    command = command_of(options.folder)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        command += parsed_once(command, folder)
        results = list(pool.map(lambda path: errors_of(path, command), files))
    for path, errors in zip(files, results):
        if errors:
            print(f"{path.relative_to(ROOT)} does not compile alone:\n{errors}")
    bad = sum(1 for errors in results if errors)
    print(f"{len(files) - bad} of {len(files)} headers and benchmarks compile alone")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
