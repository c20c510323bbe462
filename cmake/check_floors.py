#!/usr/bin/env python3
"""Proves the floors of include/lora (docs/design.md, "Floors") and that third-party headers stay in their rooms.

A header includes only lower floors or its own folder, and of a folder with rooms its own room and those before it; the
doors on top may include everything, and nothing includes them. A header's definitions may stand in a file of the same name that ends in .ipp: the two include each other, nothing
else includes the second, but one source of cmake/compiled. What stands in a namespace `detail` is used by its own
folder, tests and benchmarks alone. The page names every header beside its folder (a backend's families are kernel/'s).
Prints a line for each offence and exits 1 if there is one. `--self-test` checks the checker.
"""
import argparse
import pathlib
import re
import sys
import tempfile

FLOORS = {
    "core": 0,
    "tensor": 1,
    "io": 2, "kernel": 2, "comm": 2,
    "cpu": 3, "ascend": 3, "nn": 3, "tokenizer": 3, "jinja": 3,
    "model": 4, "data": 4, "optim": 4,
    "settings": 5, "decode": 5,
    "inputs": 6, "run": 6, "report": 6,
    "train": 7,
    "doctor": 8, "evaluation": 8, "forecast": 8,
}  # fmt: skip
# The rooms of a folder that has some, lowest first. What stands beside them is above all of them.
ROOMS = {
    "io": ["files", "formats"],
    "cpu": ["runtime", "vectors", "kernels"],
    "ascend": ["runtime", "kernels"],
    "model": ["description", "weights", "decoder", "export"],
    "data": ["chat", "records", "sampling", "batches"],
}  # fmt: skip
BACKENDS = {"cpu", "ascend"}
DOORS = {"trainer.hpp", "basic_trainer.hpp", "lora.hpp", "instantiate.hpp"}

# An include that matches the pattern is allowed only in a file whose path (from the root) matches the place.
THIRD_PARTIES = [
    (r"Eigen/|unsupported/Eigen", r"include/lora/cpu/"),
    (r"(oneapi/)?dnnl", r"include/lora/cpu/"),
    (r"nlohmann/", r"include/lora/io/formats/json\.hpp$"),
    (r"sentencepiece", r"include/lora/tokenizer/sentencepiece\.hpp$"),
    (r"(zlib|zstd|zstd_errors)\.h$", r"include/lora/io/formats/unpack\.hpp$|tests/"),
    (r"csv\.h$", r"include/lora/io/formats/csv\.ipp$"),
    (r"(arrow|parquet)/", r"include/lora/io/formats/parquet\.ipp$"),
    (r"yaml-cpp/", r"include/lora/io/formats/yaml\.ipp$"),
    (r"mpi\.h$", r"include/lora/comm/mpi"),
    (r"(acl|aclnn|aclnnop|hccl)/", r"include/lora/ascend/acl"),
    (r"CLI/", r"examples/"),
    (r"doctest/", r"tests/"),
    (r"benchmark/", r"bench/"),
]

DETAIL = re.compile(r"\b(" + "|".join(FLOORS) + r")::detail::(\w+)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def offences(root):
    headers = sorted((root / "include" / "lora").rglob("*.[hi]pp"))
    if not headers:
        yield f"{root}: no headers under include/lora"
    graph = {}
    for path in headers:
        place = path.relative_to(root).as_posix()
        inside = path.relative_to(root / "include" / "lora").as_posix()
        folder = inside.split("/")[0] if "/" in inside else None
        if folder is None and inside not in DOORS:
            yield f"{place}: a header on top is a door, and the doors are {', '.join(sorted(DOORS))}"
        if folder is not None and folder not in FLOORS:
            yield f"{place}: {folder}/ is on no floor"
            continue
        if folder is not None and room_of(inside) is None:
            yield f"{place}: {folder}/ has the rooms {', '.join(ROOMS.get(folder, [])) or 'none'}"
            continue
        if not any(line.strip() == "#pragma once" for line in path.read_text(encoding="utf-8").splitlines()):
            yield f"{place}: no '#pragma once'"
        node = inside.replace(".ipp", ".hpp")  # a header and its definitions are one
        if inside.endswith(".ipp") and not includes_each_other(path):
            yield f"{place}: it and {path.stem}.hpp include each other"
        graph.setdefault(node, [])
        for number, quote, name in includes(path):
            where = f"{place}:{number}"
            if quote == '"' and not name.startswith("lora/"):
                yield f'{where}: include "lora/...", not "{name}"'
            if not name.startswith("lora/"):
                continue
            target = name[len("lora/"):]
            if not (root / "include" / "lora" / target).is_file():
                yield f"{where}: {name} does not exist"
                continue
            if target.endswith(".ipp") or (inside.endswith(".ipp") and target == node):
                if target.replace(".ipp", ".hpp") != node:
                    yield f"{where}: {name} belongs to its header alone"
                continue
            graph[node].append(target)
            if "/" not in target:
                if folder is not None:
                    yield f"{where}: {name} is a door; nothing includes a door"
                continue
            other = target.split("/")[0]
            if other == folder and None not in (room_of(inside), room_of(target)) and room_of(target) > room_of(inside):
                yield f"{where}: {name} is in a room above that of {inside}"
            if folder is None or other == folder or other not in FLOORS:
                continue
            if FLOORS[other] >= FLOORS[folder]:
                side = "on the same floor as" if FLOORS[other] == FLOORS[folder] else "above"
                yield f"{where}: {name} is {side} {folder}/"
    yield from cycles(graph)
    yield from compiled_once(root)
    yield from details(root)
    yield from unnamed(root)
    for area in ("include", "examples", "tests", "bench"):
        for path in sorted((root / area).rglob("*.[hci]pp")):
            place = path.relative_to(root).as_posix()
            for number, _, name in includes(path):
                for pattern, home in THIRD_PARTIES:
                    if re.match(pattern, name) and not re.match(home, place) and not allowed(place, pattern):
                        yield f"{place}:{number}: <{name}> belongs only in {home}"


def room_of(inside):
    """The place of a header's room among those of its folder, or None if there is no such room."""
    folder, *between, _ = inside.split("/")
    rooms = ROOMS.get(folder, [])
    if not between:
        return len(rooms)
    return rooms.index(between[0]) if len(between) == 1 and between[0] in rooms else None


def includes_each_other(definitions):
    header = definitions.with_suffix(".hpp")
    name = "lora/" + definitions.as_posix().rsplit("include/lora/", 1)[1]
    return (header.is_file() and any(found == name for _, _, found in includes(header))
            and any(found == name.replace(".ipp", ".hpp") for _, _, found in includes(definitions)))


def compiled_once(root):
    """Every file of definitions is in one source of what lora::compiled compiles."""
    named = {}
    for source in sorted((root / "cmake" / "compiled").glob("*.cpp")):
        for number, _, name in includes(source):
            if name.endswith(".ipp"):
                place = f"{source.relative_to(root).as_posix()}:{number}"
                if name in named:
                    yield f"{place}: {name} is compiled in {named[name]} too"
                named[name] = place
    for path in sorted((root / "include" / "lora").rglob("*.ipp")):
        name = path.relative_to(root / "include").as_posix()
        if name not in named:
            yield f"include/{name}: no source of cmake/compiled includes it"


def details(root):
    """Uses of another folder's `detail`, by headers and by the programs that show the library."""
    for area in ("include/lora", "examples"):
        for path in sorted((root / area).rglob("*.[hci]pp")):
            inside = path.relative_to(root / area)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for folder, name in DETAIL.findall(line.split("//")[0]):
                    if area == "examples" or inside.parts[0] != folder:
                        yield f"{path.relative_to(root).as_posix()}:{number}: {folder}::detail::{name} is {folder}/'s own"


def unnamed(root):
    """Headers that docs/design_headers.md doesn't name."""
    page = (root / "docs" / "design_headers.md").read_text(encoding="utf-8")
    named, folder = {}, None
    for line in page.partition("include/lora/\n")[2].partition("```")[0].splitlines():
        begin, room = re.match(r"  (\w+)/ +\d", line), re.match(r"    (\w+)/ ", line)
        if begin:
            folder = begin.group(1)
        elif room and folder:
            folder = f"{folder.split('/')[0]}/{room.group(1)}"
        elif not line.startswith("   "):
            folder = None
        named.setdefault(folder, set()).update(re.findall(r"\w+", line))
    for path in sorted((root / "include" / "lora").glob("*/**/*.hpp")):
        inside = path.relative_to(root / "include" / "lora")
        folder = "/".join(inside.parts[:-1])
        names = named.get(folder, set()) | (named["kernel"] if inside.parts[0] in BACKENDS else set())
        if path.stem not in names:
            yield f"docs/design_headers.md: the list does not name {inside.as_posix()}"


def allowed(place, pattern):
    """Tests may use a third-party header as an independent oracle, except in the programs that show the library."""
    return place.startswith("tests/") and not pattern.startswith("CLI")


def cycles(graph):
    done = set()
    for start in graph:
        stack = [(start, iter(graph[start]))]
        path = [start]
        while stack:
            node, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                done.add(node)
                stack.pop()
                path.pop()
            elif step in path:
                yield "cycle: " + " -> ".join(path[path.index(step):] + [step])
            elif step not in done:
                path.append(step)
                stack.append((step, iter(graph.get(step, []))))


def self_test():
    good = {
        "core/a.hpp": "",
        "tensor/b.hpp": "#include <lora/core/a.hpp>\n",
        "cpu/c.hpp": "#include <Eigen/Core>\n#include <lora/tensor/b.hpp>\n",
        "nn/d.hpp": "#include <lora/tensor/b.hpp>\nint e = nn::detail::f();  // not io::detail::g()\n",
        "tokenizer/t.hpp": "#include <lora/core/a.hpp>\n",
        "inputs/i.hpp": "#include <lora/tokenizer/t.hpp>\n",
        "run/r.hpp": "#include <lora/nn/d.hpp>\n",
        "io/files/f.hpp": "#include <lora/core/a.hpp>\n",
        "io/formats/o.hpp": "#include <lora/io/files/f.hpp>\n",
        "io/all.hpp": "#include <lora/io/formats/o.hpp>\n",
        "train/z.hpp": "#include <lora/inputs/i.hpp>\n#include <lora/run/r.hpp>\n",
        "lora.hpp": "#include <lora/nn/d.hpp>\n#include <lora/cpu/c.hpp>\n",
        "run/s.hpp": "#ifndef LORA_COMPILED\n#  include <lora/run/s.ipp>\n#endif\n",
        "run/s.ipp": "#include <lora/run/s.hpp>\n",
        "../../cmake/compiled/runs.cpp": "#include <lora/run/s.ipp>\n",
    }
    page = "include/lora/\n" + "".join(
        f"  {folder}/  0  a all b c d g i r s t x y z\n" + "".join(f"    {room}/  f gguf json o\n" for room in ROOMS.get(folder, []))
        for folder in FLOORS
    )
    bad = [
        ("core/a.hpp", "#include <lora/tensor/b.hpp>\n", "is above core/"),
        ("nn/d.hpp", "#include <lora/cpu/c.hpp>\n", "on the same floor as nn/"),
        ("nn/d.hpp", "#include <lora/lora.hpp>\n", "is a door"),
        ("io/x.hpp", "#include <lora/tokenizer/t.hpp>\n", "is above io/"),
        ("run/x.hpp", "#include <lora/inputs/i.hpp>\n", "on the same floor as run/"),
        ("settings/x.hpp", "#include <lora/inputs/i.hpp>\n", "is above settings/"),
        ("nn/d.hpp", '#include "d.hpp"\n', "not \"d.hpp\""),
        ("nn/d.hpp", "#include <lora/nn/none.hpp>\n", "does not exist"),
        ("nn/d.hpp", "#include <lora/nn/d.hpp>\n", "cycle: nn/d.hpp -> nn/d.hpp"),
        ("nn/d.hpp", "#  include <Eigen/Dense>\n", "belongs only in include/lora/cpu/"),
        ("io/formats/gguf.hpp", "#include <nlohmann/json.hpp>\n", "belongs only in include/lora/io/formats/json"),
        ("core/a.hpp", "#include <dnnl.hpp>\n", "belongs only in include/lora/cpu/"),
        ("io/formats/json.hpp", "#include <sentencepiece_processor.h>\n", "belongs only in include/lora/tokenizer/sentencepiece"),
        ("comm/communicator.hpp", "#include <mpi.h>\n", "belongs only in include/lora/comm/mpi"),
        ("train/x.hpp", "#include <CLI/CLI.hpp>\n", "belongs only in examples/"),
        ("train/x.hpp", "int y = io::detail::z();\n", "io::detail::z is io/'s own"),
        ("run/x.ipp", "#include <lora/run/r.hpp>\n", "run/x.ipp: it and x.hpp include each other"),
        ("run/r.ipp", "#include <lora/run/r.hpp>\n", "run/r.ipp: no source of cmake/compiled includes it"),
        ("run/x.hpp", "#include <lora/run/s.ipp>\n", "belongs to its header alone"),
        ("run/s.ipp", "#include <lora/run/s.hpp>\n#include <lora/train/z.hpp>\n", "is above run/"),
        ("../../cmake/compiled/more.cpp", "#include <lora/run/s.ipp>\n", "is compiled in"),
        ("attic/x.hpp", "", "is on no floor"),
        ("io/cellar/x.hpp", "", "io/ has the rooms files, formats"),
        ("run/cellar/x.hpp", "", "run/ has the rooms none"),
        ("io/files/f.hpp", "#include <lora/io/formats/o.hpp>\n", "is in a room above that of io/files/f.hpp"),
        ("io/formats/o.hpp", "#include <lora/io/all.hpp>\n", "is in a room above that of io/formats/o.hpp"),
        ("more.hpp", "", "a header on top is a door"),
        ("io/forgotten.hpp", "", "does not name io/forgotten.hpp"),
        ("io/files/gone.hpp", "", "does not name io/files/gone.hpp"),
    ]

    def check(files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs" / "design_headers.md").write_text(page + "```\n", encoding="utf-8")
            for name, text in files.items():
                path = root / "include" / "lora" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("#pragma once\n" + text, encoding="utf-8")
            return list(offences(root))

    failures = [f"clean tree: {line}" for line in check(good)]
    for name, text, phrase in bad:
        found = check({**good, name: text})
        if not any(phrase in line for line in found):
            failures.append(f"{name} with {text!r}: expected '{phrase}', got {found}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checker on made-up trees")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = self_test() if arguments.self_test else list(offences(root))
    for line in found:
        print(line)
    if found:
        print(f"floors: {len(found)} offence(s)")
        return 1
    print("floors: all includes go down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
