#!/usr/bin/env python3
"""Makes the Debian package of a build, and looks at what it has: the files, what it says of itself, and whether the program runs.
The tarball has the same files.

  tests/package/debian.py BUILD CPACK VERSION WORK [--without-program]

Without dpkg's programs it says so and exits 77, which ctest calls skipped.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def output_of(words, **keywords):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


def expected_files(package, program):
    """The files of the Debian package; `package`: the folder of the package for CMake."""
    yield from (f"usr/include/{path.relative_to(ROOT / 'include').as_posix()}" for path in (ROOT / "include").rglob("*.[hi]pp"))
    yield "usr/share/doc/lora/LICENSE"
    for name in ("lora-config.cmake", "lora-config-version.cmake", "lora-targets.cmake", "FindArrowParquet.cmake",
                 "FindLibCsv.cmake", "FindSentencePiece.cmake", "FindYamlCpp.cmake", "FindZstd.cmake", "lora-build-type.cmake",
                 "lora-compiled.cmake"):
        yield f"{package}/{name}"
    yield from (f"{package}/compiled/{path.name}" for path in (ROOT / "cmake" / "compiled").iterdir())
    if program:
        yield "usr/bin/lora"
        yield "usr/share/man/man1/lora.1"
        yield "usr/share/bash-completion/completions/lora"


def main():
    parser = argparse.ArgumentParser()
    for name in ("build", "cpack", "version", "work"):
        parser.add_argument(name)
    parser.add_argument("--without-program", action="store_true")
    options = parser.parse_args()
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "file"):
        if shutil.which(tool) is None:
            print(f"skipped: the Debian package is not made, for want of {tool}")
            return 77
    work = pathlib.Path(options.work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    output_of([options.cpack, "--config", pathlib.Path(options.build, "CPackConfig.cmake"), "-G", "DEB;TGZ", "-B", work])
    (package,) = work.glob("*.deb")
    (tarball,) = work.glob("*.tar.gz")
    failures = []

    fields = output_of(["dpkg-deb", "-f", package])
    architecture = output_of(["dpkg", "--print-architecture"]).strip()
    if package.name != f"lora_{options.version}_{architecture}.deb":
        failures.append(f"the package is called {package.name}")
    for field in ("Package: lora\n", f"Version: {options.version}\n", f"Architecture: {architecture}\n"):
        if field not in fields:
            failures.append(f"the package does not say '{field.strip()}':\n{fields}")
    depends = next((line for line in fields.splitlines() if line.startswith("Depends: ")), "")
    for library in [] if options.without_program else ["libc6", "libstdc++6", "libsentencepiece0"]:
        if library not in depends:
            failures.append(f"the package does not depend on {library}: {depends}")

    unpacked = work / "unpacked"
    output_of(["dpkg-deb", "-x", package, unpacked])
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if not path.is_dir()}
    # Where it is, the build decides.
    place = next((name for name in files if name.endswith("/cmake/lora/lora-config.cmake")), "/").rpartition("/")[0]
    expected = set(expected_files(place, not options.without_program))
    failures += [f"the package has no {name}" for name in sorted(expected - files)]
    failures += [f"the package has {name}, which nobody expects there" for name in sorted(files - expected)]
    with tarfile.open(tarball) as tar:
        below = {name.partition("/")[2] for name in (member.name for member in tar if not member.isdir())}
    if below != {name.removeprefix("usr/") for name in files}:
        failures.append(f"{tarball.name} has other files than the package: {sorted(below ^ {name.removeprefix('usr/') for name in files})}")
    for path in unpacked.rglob("*"):
        name, mode = path.relative_to(unpacked).as_posix(), path.stat().st_mode & 0o777
        if mode != (0o755 if path.is_dir() or name == "usr/bin/lora" else 0o644):
            failures.append(f"{name} has the mode {mode:o}")

    if not options.without_program and not failures:
        lora = unpacked / "usr" / "bin" / "lora"
        if output_of([lora, "--version"]) != f"lora {options.version}\n":
            failures.append(f"the program says '{output_of([lora, '--version'])}'")
        for page, flag in (("man/man1/lora.1", "--man-page"), ("bash-completion/completions/lora", "--bash-completion")):
            if (unpacked / "usr" / "share" / page).read_text(encoding="utf-8") != output_of([lora, flag]):
                failures.append(f"{page} is not what the program prints with {flag}")
        output_of([lora, "train", "--model_name_or_path", ROOT / "tests" / "fixtures" / "chat", "--dataset",
                   ROOT / "examples" / "data" / "topology_test.json", "--max_steps", "1", "--output_dir", work / "run"])
        if not (work / "run" / "final_model" / "adapter_model.safetensors").is_file():
            failures.append("a training with the unpacked program left no adapter")
    refused = subprocess.run([ROOT / "cmake" / "make_release.sh", "--nonsense"], stderr=subprocess.PIPE, text=True)
    if (refused.returncode, refused.stderr) != (2, "make_release: unknown option --nonsense; see --help\n"):
        failures.append(f"make_release.sh --nonsense ends with {refused.returncode} and says '{refused.stderr}'")
    shutil.rmtree(work)
    return "\n".join(failures) if failures else 0


if __name__ == "__main__":
    os.umask(0o022)  # of which cpack makes the modes of folders, as make_release.sh has it
    sys.exit(main())
