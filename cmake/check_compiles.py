#!/usr/bin/env python3
"""Whether that compiles which nothing else compiles by itself: each header alone, and the benchmarks.

A header is compiled as lora::compiled has it, with declarations only, and so are its definitions (*.ipp). The flags are
those that a configured build folder gives users of the library. What the headers include of other libraries is parsed
once for all: cmake/check_includes.py sees whether each includes what it uses of the standard library.

Headers that include each other are compiled in one go, a row of them, each behind those that it includes anyway, by itself
or by others: what it would not compile without, it has. One that fails in a row is compiled alone.

  cmake/check_compiles.py BUILD_FOLDER [--jobs N] [FILE ...]     e.g. build/clang include/lora/io/formats/json.hpp
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
                 if entry["file"].endswith("/compiled/ascend_models.cpp"))
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


def included_by(files):
    """What each file includes of the library, by itself and by others; not a header its own definitions."""
    known, found = set(files), {}

    def of(path):
        if path not in found:
            found[path] = set()
            for _, _, name in includes(path):
                other = INCLUDE / name
                if other in known and not (other.suffix == ".ipp" and path.suffix == ".hpp"):
                    found[path] |= {other} | of(other)
        return found[path]

    return {path: of(path) for path in files}


def rows_of(files):
    """As few rows as hold all files, of which each file includes those before it; a file that costs much is no row's last.

    A matching of each file with one that comes behind it: by augmenting paths, from the heaviest file on, which leaves
    unmatched, and last in a row, what is lightest together.
    """
    sys.setrecursionlimit(10000)
    includes_of = included_by(files)
    lines = {path: len(path.read_text().splitlines()) for path in files}
    weight = {path: lines[path] + sum(lines[other] for other in includes_of[path]) for path in files}
    behind = {path: sorted((other for other in files if path in includes_of[other]), key=weight.get) for path in files}
    before = {}

    def match(path, seen):
        for other in behind[path]:
            if other not in seen:
                seen.add(other)
                if other not in before or match(before[other], seen):
                    before[other] = path
                    return True
        return False

    for path in sorted(files, key=weight.get, reverse=True):
        match(path, set())
    rows = []
    for last in set(files) - set(before.values()):
        row = [last]
        while row[0] in before:
            row.insert(0, before[row[0]])
        rows.append(row)
    return sorted(rows, key=lambda row: -weight[row[-1]])


def errors_of(row, command):
    """What the compiler says of files that are included in turn; nothing if they compile."""
    text = "".join(f'#include "{one.relative_to(INCLUDE) if INCLUDE in one.parents else one}"\n' for one in row)
    found = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return found.stdout if found.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_intermixed_args()
    headers = sorted(INCLUDE.rglob("*.[hi]pp"))
    benchmarks = sorted((ROOT / "bench").glob("*.cpp"))
    rows = [[path.resolve()] for path in options.files] or rows_of(headers) + [[path] for path in benchmarks]
    command = command_of(options.folder)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        command += parsed_once(command, folder)
        doubtful = [row for row, errors in zip(rows, pool.map(lambda row: errors_of(row, command), rows)) if errors]
        files = [path for row in doubtful for path in row]
        results = list(pool.map(lambda path: errors_of([path], command), files))
    for path, errors in zip(files, results):
        if errors:
            print(f"{path.relative_to(ROOT)} does not compile alone:\n{errors}")
    bad = sum(1 for errors in results if errors)
    if doubtful and not bad:
        print("compiles alone, but not in a row:", *(", ".join(path.name for path in row) for row in doubtful))
    total = sum(len(row) for row in rows)
    print(f"{total - bad} of {total} headers, definitions and benchmarks compile alone")
    sys.exit(1 if doubtful else 0)


if __name__ == "__main__":
    main()
