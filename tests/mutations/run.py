#!/usr/bin/env python3
"""Breaks one line at a time, as the patches of this folder say, and expects the tests to fail.

The first line of a patch names the test sources of which one must notice:   Caught-by: kernel/norm_test [...]
Each of them is a program of its own: it is compiled alone, with the broken header found before the real one, linked
with what a build folder has, and run. What lora::compiled has compiled once is taken from there, as far as it knows
nothing of the broken header. Where definitions (*.ipp) are broken that lora::compiled compiles once, their source is
compiled in place of the test's. For tests/program it is the program that is compiled from what is broken. Nothing else
is built, and neither the tree nor the build folder is changed.

  tests/mutations/run.py                    all patches
  tests/mutations/run.py --continue         the same, without those caught since nothing that they rest on has changed
  tests/mutations/run.py --sample N         N of them, spread over the list
  tests/mutations/run.py --newest N         N of them, of the headers that changed last, one each
  tests/mutations/run.py NAME [NAME ...]    these
  tests/mutations/run.py --jobs N ...       N of them at a time, with about 1.5 GiB each
  tests/mutations/run.py --check            compiles nothing: whether every patch applies to the tree as it is
  tests/mutations/run.py --self-test        compiles nothing: whether a second run in the same work folder is refused
"""
import argparse
import concurrent.futures
import copy
import fcntl
import functools
import hashlib
import itertools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
from check_floors import includes  # noqa: E402  found by the line above

PROGRAM = pathlib.Path("examples", "lora")
COMPILED_ONCE = {}  # the source of lora::compiled by the definitions that it includes
for source in sorted((ROOT / "cmake" / "compiled").glob("*.cpp")):
    for included in re.findall(r'^#include "(lora/\S+\.ipp)"', source.read_text(), re.MULTILINE):
        COMPILED_ONCE["include/" + included] = source
# Parts of what is compiled once, by the sources of their definitions, each behind those that it calls.
PARTS = {"base": {"base"}, "kernels": {"row_product"}, "models": {"models"}, "runs": {"runs"}}
assert {source.stem for source in COMPILED_ONCE.values()} == set().union(*PARTS.values())
KERNELS = ("include/lora/cpu/kernels.hpp", "tests/support/proof_kernels.hpp")  # declare what the build folder has of them
NPU_KERNELS = "include/lora/ascend/kernels.hpp"  # by a definition of its own


def run(command, folder=ROOT, **keywords):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **keywords)


def lay_instantiate(overlay):
    """Templates are instantiated in the test itself, from the broken headers, rather than taken from the build folder."""
    name = pathlib.Path("include", "lora", "instantiate.hpp")
    lines = [line for line in (ROOT / name).read_text().splitlines() if line.startswith("#include")]
    (overlay / name).parent.mkdir(parents=True, exist_ok=True)
    (overlay / name).write_text("\n".join(["#pragma once", *lines, ""]))


@functools.cache
def reached(names):
    """Files under the root from which these are made: themselves, and what they include."""
    seen, left = set(), [*names]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        left += [f"{folder}/{other}" for _, quote, other in includes(ROOT / name) for folder in ("include", "tests")
                 if quote == '"' and (ROOT / folder / other).exists()
                 and not (other.endswith(".ipp") and name.endswith(".hpp"))]
    return seen


def compiled_once():
    """The parts: their names, their definitions, and what they are made from."""
    for part, sources in PARTS.items():
        own = tuple(name for name, source in COMPILED_ONCE.items() if source.stem in sources)
        yield part, own, reached(own + KERNELS + (NPU_KERNELS,) if part == "kernels" else own)


def lay_kept(folder, broken):
    """Headers for a source that takes from the build folder what is compiled once without the broken ones: no definitions.

    A part behind one that is compiled again is so too: it would bring along what it calls, unbroken.
    """
    def lay(name, text):
        path = folder / "include" / pathlib.Path(*pathlib.Path(name).parts[1:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    shutil.rmtree(folder, ignore_errors=True)
    for part, own, made_from in compiled_once():
        if made_from & set(broken):
            return
        for name in own:
            lay(name, "#pragma once\n")
        for name in KERNELS if part == "kernels" else ():
            lay(name, (ROOT / name).read_text().replace("#ifdef LORA_COMPILED\n", "#if 1\n"))


def alone(words, kept):
    """A compile command of a source that takes nothing of the library as compiled already, but for what is kept."""
    keeps = "-DLORA_COMPILED=1" in words
    keeps_kernels = keeps and (kept / KERNELS[0]).exists()
    dropped = "-DLORA_COMPILED=" if keeps_kernels else "-DLORA_COMPILED"  # else that of NPUs' kernels as well
    words = [word for word in words if not word.startswith(dropped)]
    return [words[0], f"-I{kept / 'include'}", *words[1:]] if keeps else words


class Failure(Exception):
    """What is wrong with a patch, rather than with the tests."""


class Patch:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        text = path.read_text()
        self.tests = text.splitlines()[0].removeprefix("Caught-by:").split()
        self.headers = re.findall(rf"^\+\+\+ b/((?:include|{PROGRAM})/\S+)", text, re.MULTILINE)
        self.breaks_definitions = all(header in COMPILED_ONCE for header in self.headers)  # and nothing else
        self.breaks_program = any(PROGRAM in pathlib.Path(header).parents for header in self.headers)
        self.tests_program = any(test.startswith("program/") for test in self.tests)
        for test in self.tests:
            if not (ROOT / "tests" / f"{test}.cpp").exists():
                sys.exit(f"mutations: {path.name} names {test}, which is no source under tests/")
        if not self.tests or not self.headers:
            sys.exit(f"mutations: {path.name} names no test or breaks no header")
        if self.breaks_program and any(not test.startswith("program/") for test in self.tests):
            sys.exit(f"mutations: {path.name} breaks the program, which only the tests under program/ run")

    def fingerprint(self):
        files = [self.path, *(ROOT / h for h in self.headers), *(ROOT / "tests" / f"{t}.cpp" for t in self.tests)]
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

    def lay(self, overlay):
        """Puts the broken headers where the compiler looks first."""
        shutil.rmtree(overlay, ignore_errors=True)
        if self.breaks_program:
            shutil.copytree(ROOT / PROGRAM, overlay / PROGRAM)
        for header in self.headers:
            (overlay / header).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / header, overlay / header)
        applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-i", self.path], overlay)
        if applied.returncode != 0:
            raise Failure(f"does not apply any more:\n{applied.stdout}")
        # Where the program or definitions alone are broken, the rest may use what is compiled already.
        if not self.breaks_definitions and any(header.startswith("include/") for header in self.headers):
            lay_instantiate(overlay)
            lay_kept(overlay.with_name("kept"), self.headers)
            if self.tests_program:
                shutil.copytree(ROOT / PROGRAM, overlay / PROGRAM, dirs_exist_ok=True)

    def check(self):
        """Why the patch does not apply, or nothing."""
        tried = run(["patch", "-p1", "--dry-run", "--force", "-i", self.path])
        return "" if tried.returncode == 0 else tried.stdout


class Build:
    """A configured build folder, from which compile and link commands are taken."""

    def __init__(self, folder):
        self.folder = folder
        if not (folder / "build.ninja").exists():
            sys.exit(f"mutations: {folder} is no build folder of Ninja's; cmake --preset dev makes one")
        self.commands = {}
        self.tests = {}  # objects of tests that are compiled already

    def ensure(self, with_program, folders, jobs):
        """What every test is linked with, the program where it is tested, and what tests on NPUs are run with."""
        targets = ["test_main", "lora_compiled", *(["lora_program"] if with_program else [])]
        # Tests of these folders open libraries that stand for the vendor's, or are linked with them.
        if folders & {"ascend", "kernel", "nn", "program", "tensor"}:
            targets += [f"stand_in_{name}" for name in ("ascendcl", "nnopbase", "opapi", "hccl", "split",
                                                         "old_runtime", "without_driver")]
        if "ascend" in folders:
            targets.append("lora_compiled_ascend")
        built = run(["cmake", "--build", self.folder, "-j", str(jobs), "--target", *targets])
        if built.returncode != 0:
            sys.exit("mutations: what tests are linked with does not build:\n" + built.stdout[-3000:])
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        self.commands = {entry["file"]: entry["command"] for entry in commands}

    def unbroken(self, test, work):
        """A program with this test as it is: the build folder's own, if it is up to date."""
        name = f"test_{test.split('/')[0]}"
        if "no work to do" in run(["ninja", "-n", name], self.folder).stdout:
            return self.folder / "tests" / name
        overlay, program = work / "nothing", work / "unbroken_test"
        overlay.mkdir(parents=True, exist_ok=True)
        compiled = self.compile(test, overlay, program)
        if compiled.returncode != 0:
            raise Failure(f"its test {test} does not compile without it either:\n" + compiled.stdout[-3000:])
        return program

    def compile(self, test, overlay, program, definitions=()):
        """Compiles and links a test; `definitions`: those that are broken, if nothing else is."""
        source, folder = str(ROOT / "tests" / f"{test}.cpp"), test.split("/")[0]
        # Tests of a folder are compiled together, with one command, unless the build folder is told otherwise.
        compiled_as = next(name for name in self.commands if name == source or f"/test_{folder}.dir/Unity/" in name)
        words = [source if word == compiled_as else word for word in shlex.split(self.commands[compiled_as])]
        if folder == "program" and (definitions or (overlay / PROGRAM).exists()):
            compiled = self.compile_program(overlay, definitions)
            if compiled.returncode != 0:
                return compiled
            words = [f'-DLORA_PROGRAM="{overlay / "lora"}"' if w.startswith("-DLORA_PROGRAM=") else w for w in words]
            objects = [str(overlay / "test.o")]
            compiled = self.compile_as(words, objects[0], program.parent / "nothing")
            return compiled if compiled.returncode != 0 else self.link(folder, objects, program)
        if definitions and "-DLORA_COMPILED=1" in words:
            replaced, compiled = self.compile_definitions(overlay, definitions)
            if compiled.returncode != 0:
                return compiled
            # Only what is linked with it differs from one patch to the next.
            if test not in self.tests:
                self.tests[test] = str(program.parent / f"{test.replace('/', '_')}.o")
                compiled = self.compile_as(words, self.tests[test], program.parent / "nothing")
                if compiled.returncode != 0:
                    return compiled
            return self.link(folder, [*replaced, self.tests[test]], program)
        if (overlay / "include").exists():
            words = alone(words, overlay.with_name("kept"))
        compiled = self.compile_as(words, str(overlay / "test.o"), overlay)
        return compiled if compiled.returncode != 0 else self.link(folder, [str(overlay / "test.o")], program)

    def compile_definitions(self, overlay, definitions):
        """The objects of the sources that compile these definitions once, and what the compiler said last."""
        objects = []
        for path in sorted({str(COMPILED_ONCE[header]) for header in definitions}):
            objects.append(str(overlay / f"{pathlib.Path(path).stem}.o"))
            compiled = self.compile_as(shlex.split(self.commands[path]), objects[-1], overlay)
            if compiled.returncode != 0:
                break
        return objects, compiled

    def compile_as(self, words, output, overlay):
        """Compiles by a command of the build folder, with the overlay's headers first."""
        words = [*words]
        words[words.index("-o") + 1] = output
        return run([words[0], f"-I{overlay / 'include'}", *words[1:], "-w", "-g0"], self.folder)

    def link(self, folder, objects, program):
        """Links a folder's tests with these objects in place of its own."""
        link = run(["ninja", "-t", "commands", f"test_{folder}"], self.folder, check=True).stdout.splitlines()[-1]
        words = shlex.split(next(part for part in link.split(" && ") if f"-o tests/test_{folder} " in part))
        own = [word for word in words if f"/test_{folder}.dir/" in word]
        begin = words.index(own[0])
        words[begin:begin + 1] = objects
        words = [str(program) if word == f"tests/test_{folder}" else word for word in words if word not in own]
        return run(words, self.folder)

    def compile_program(self, overlay, definitions):
        """The program as overlay/lora: its sources from there, all in one, or, if nothing else is broken, definitions."""
        if definitions:
            objects, compiled = self.compile_definitions(overlay, definitions)
        else:
            objects, compiled = self.compile_program_sources(overlay)
        if compiled.returncode != 0:
            return compiled
        link = run(["ninja", "-t", "commands", "lora_program"], self.folder, check=True).stdout.splitlines()[-1]
        words = shlex.split(next(part for part in link.split(" && ") if " -o bin/lora " in part))
        words[words.index("-o") + 1] = str(overlay / "lora")
        own = [word for word in words if "/lora_program.dir/" in word]
        replaced = [] if definitions else [f"/{pathlib.Path(name).stem}." for name in objects]
        begin = words.index(own[0])
        words[begin:begin] = objects
        return run([word for word in words if word not in own or not any(stem in word for stem in replaced)], self.folder)

    def compile_program_sources(self, overlay):
        """The objects of the program's sources, but for those compiled apart that are not broken, and what was said last."""
        source = next(name for name in self.commands if "/lora_program.dir/Unity/" in name)
        together = pathlib.Path(source).read_text()
        sources = sorted((overlay / PROGRAM).glob("*.cpp"))
        unity = overlay / "unity_0_cxx.cpp"
        unity.write_text("".join(f'#include "{name}"\n' for name in sources if f"/{name.name}\"" in together))
        broken = [name for name in (overlay / PROGRAM).iterdir()
                  if name.read_bytes() != (ROOT / PROGRAM / name.name).read_bytes()]
        any_header = (overlay / "include").exists() or any(name.suffix == ".hpp" for name in broken)
        apart = [name for name in sources if f"/{name.name}\"" not in together and (any_header or name in broken)]
        objects = []
        for one, as_one in [(unity, source), *((name, str(ROOT / PROGRAM / name.name)) for name in apart)]:
            objects.append(str(overlay / f"{one.stem}.o"))
            words = [str(one) if word == as_one else word for word in shlex.split(self.commands[as_one])]
            # What it instantiates of the library is compiled already, unless that is broken too.
            words = alone(words, overlay.with_name("kept")) if (overlay / "include").exists() else words
            compiled = self.compile_as(words, objects[-1], overlay)
            if compiled.returncode != 0:
                break
        return objects, compiled


def passes(program, test, limit):
    """Whether the tests of one source pass; a program that never ends fails."""
    folder, name = test.split("/")
    try:
        return run([program, "--abort-after=1", f"--source-file=*/{folder}/{name}.cpp"], timeout=limit).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def is_caught(patch, build, work, limit, unbroken):
    overlay, program = work / "overlay", work / "broken_test"
    patch.lay(overlay)
    for test in patch.tests:
        compiled = build.compile(test, overlay, program, patch.headers if patch.breaks_definitions else ())
        if compiled.returncode != 0:
            raise Failure("does not compile, which is no mutation:\n" + compiled.stdout[-3000:])
        if passes(program, test, limit):
            continue
        if test not in unbroken:
            unbroken[test] = passes(build.unbroken(test, work), test, limit)
        if not unbroken[test]:
            raise Failure(f"{test} fails without it too")
        return True
    return False


class Trials:
    """Tries patches, several at a time: each thread has a folder of its own, and what it has compiled there."""

    def __init__(self, build, options):
        self.build, self.options = build, options
        self.own = threading.local()
        self.folders = itertools.count()
        self.pool = concurrent.futures.ThreadPoolExecutor(options.jobs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown(cancel_futures=True)

    def of(self, patches):
        """(patch, whether it is caught or the Failure, seconds) of each, as they end."""
        for trial in concurrent.futures.as_completed([self.pool.submit(self.one, patch) for patch in patches]):
            yield trial.result()

    def one(self, patch):
        if not hasattr(self.own, "work"):
            self.own.work = self.options.work.resolve() / str(next(self.folders))
            self.own.work.mkdir(exist_ok=True)
            self.own.build, self.own.unbroken = copy.copy(self.build), {}
            self.own.build.tests = {}
        begin = time.monotonic()
        try:
            found = is_caught(patch, self.own.build, self.own.work, self.options.limit, self.own.unbroken)
        except Failure as failure:
            found = failure
        return patch, found, time.monotonic() - begin


def newest(patches, count):
    """So many patches, each of another header, of those that commits have changed last; without history, as a sample."""
    log = run(["git", "log", "-200", "--name-only", "--format="])
    order = {name: place for place, name in reversed(list(enumerate(log.stdout.split("\n"))))}
    chosen = {}
    for patch in sorted(patches, key=lambda one: (min(order.get(h, sys.maxsize) for h in one.headers), one.name)):
        chosen.setdefault(patch.headers[0], patch)
    return list(chosen.values())[:count]


def without_library(patches, build):
    """Those of headers that the build folder compiles nothing of, for want of a library."""
    commands = build / "compile_commands.json"
    flags = commands.read_text() if commands.exists() else ""
    wanted = {"include/lora/io/parquet.": "LORA_WITH_PARQUET"}
    return [patch for patch in patches for place, flag in wanted.items()
            if flag not in flags and any(header.startswith(place) for header in patch.headers)]


def check_all(patches):
    stale = [(patch.name, why) for patch in patches if (why := patch.check())]
    for name, why in stale:
        print(f"NO PATCH {name} does not apply any more:\n{why}")
    print(f"{len(patches) - len(stale)} of {len(patches)} patches apply")
    sys.exit(1 if stale else 0)


def lock(work):
    """Keeps other runs out of a work folder until this one ends, however it ends: they would share overlay and programs."""
    work.mkdir(parents=True, exist_ok=True)
    held = (work / "lock").open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"mutations: another run is using {work}; wait for it, or give another --work")
    return held


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder, "work")
        held = lock(work)
        try:
            lock(work)
        except SystemExit as refusal:
            held.close()
            lock(work).close()
            print(f"refused: {refusal}")
            return
    sys.exit("mutations: a second run in the same work folder was not refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--newest", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true", dest="tests_itself")
    parser.add_argument("--continue", dest="goes_on", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutations")
    parser.add_argument("--limit", type=int, default=600, help="seconds that the tests of one source may take")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at a time")
    options = parser.parse_args()
    if options.tests_itself:
        return self_test()

    patches = [Patch(path) for path in sorted(HERE.rglob("*.patch"), key=lambda path: path.stem)]
    unknown = set(options.names) - {patch.name for patch in patches}
    if unknown:
        sys.exit(f"mutations: no such patch: {', '.join(sorted(unknown))}")
    if options.names:
        patches = [patch for patch in patches if patch.name in options.names]
    if options.sample:
        patches = patches[:: max(1, len(patches) // options.sample)][: options.sample]

    if not options.check:
        lacking = without_library(patches, options.build)
        if lacking:
            print(f"{len(lacking)} patches are left out, since the build lacks a library that their headers need")
            patches = [patch for patch in patches if patch not in lacking]
    if options.newest:
        patches = newest(patches, options.newest)

    if options.check:
        check_all(patches)
    held = lock(options.work)  # as long as this lives
    record = options.work / "caught.json"
    caught = json.loads(record.read_text()) if record.exists() and options.goes_on else {}
    left = [patch for patch in patches if caught.get(patch.name) != patch.fingerprint()]
    if len(left) < len(patches):
        print(f"{len(patches) - len(left)} patches were caught before", flush=True)
    build = Build(options.build.resolve())
    folders = {test.split("/")[0] for patch in left for test in patch.tests}
    build.ensure(any(patch.tests_program for patch in left), folders, options.jobs)
    survivors, stale, numbers = [], [], iter(range(1, len(left) + 1))
    with Trials(build, options) as trials:
        for patch, found, seconds in trials.of(left):
            begin = f"{next(numbers):3}/{len(left)}"
            if isinstance(found, Failure):
                print(f"{begin} NO PATCH {patch.name} {found}", flush=True)
                stale.append(patch.name)
                continue
            print(f"{begin} {'caught  ' if found else 'SURVIVED'} {patch.name} by {' '.join(patch.tests)} ({seconds:.0f} s)",
                  flush=True)
            if found:
                caught[patch.name] = patch.fingerprint()
                record.write_text(json.dumps(caught, indent=1) + "\n")
            else:
                survivors.append(patch.name)
    print(f"{len(patches) - len(survivors) - len(stale)} of {len(patches)} patches are caught"
          + (": not " + ", ".join(survivors + stale) if survivors or stale else ""))
    sys.exit(1 if survivors or stale else 0)


if __name__ == "__main__":
    main()
