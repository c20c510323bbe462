#!/usr/bin/env python3
"""Applies each patch of this folder to a copy of the project and expects the tests to fail.

Each patch breaks one line; its first line names the test programs that must notice:   Caught-by: LABEL [LABEL ...]
The copy and its build folder are kept between patches, so that only what includes the broken header is built again.

  tests/mutations/run.py                    all patches
  tests/mutations/run.py --sample N         every so-many-th patch, N in all
  tests/mutations/run.py NAME [NAME ...]    these
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(command, folder, **keywords):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutations")
    options = parser.parse_args()

    patches = sorted(HERE.glob("*.patch"))
    if options.names:
        patches = [patch for patch in patches if patch.stem in options.names]
    if options.sample:
        patches = patches[:: max(1, len(patches) // options.sample)][: options.sample]
    if not patches:
        sys.exit("mutations: no such patch")

    copy, build = options.work / "copy", options.work / "build"
    shutil.rmtree(copy, ignore_errors=True)
    files = run(["git", "ls-files", "-z"], ROOT, check=True).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    configured = run(["cmake", "-S", copy, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1",
                      "-DLORA_BUILD_EXAMPLES=OFF", "-DLORA_BUILD_BENCH=OFF"], ROOT)
    if configured.returncode != 0:
        sys.exit(configured.stdout)

    labels = sorted({label for patch in patches for label in labels_of(patch)})
    if not passes(build, labels):
        sys.exit("mutations: the tests fail without any patch")
    survivors = []
    for patch in patches:
        applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-i", patch], copy)
        if applied.returncode != 0:
            sys.exit(f"mutations: {patch.name} does not apply any more:\n{applied.stdout}")
        caught = not passes(build, labels_of(patch))
        print(("caught    " if caught else "SURVIVED  ") + patch.stem, flush=True)
        if not caught:
            survivors.append(patch.stem)
        run(["patch", "-p1", "-R", "--no-backup-if-mismatch", "-i", patch], copy, check=True)
    print(f"{len(patches) - len(survivors)} of {len(patches)} patches are caught")
    sys.exit(1 if survivors else 0)


def labels_of(patch):
    return patch.read_text().splitlines()[0].removeprefix("Caught-by:").split()


def passes(build, labels):
    """True if the test programs of these labels build and pass. A patch that does not compile is no mutation."""
    targets = [f"test_{label}" for label in labels]
    built = run(["cmake", "--build", build, "-j", "2", "--target", *targets], ROOT)
    if built.returncode != 0:
        sys.exit(f"mutations: {', '.join(targets)} do not build:\n" + built.stdout[-3000:])
    return all(run([build / "tests" / target, "--abort-after=1"], ROOT).returncode == 0 for target in targets)


if __name__ == "__main__":
    main()
