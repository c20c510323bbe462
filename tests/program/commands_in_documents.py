#!/usr/bin/env python3
"""Runs the command blocks of README.md, README.zh.md, CONTRIBUTING.md and docs/ as a reader would, with bash, one after the other.

Each block (```sh) runs in a scratch folder of its own that has what pages call by name: models, data, adapters. `lora` there is the
program, of which a bare "…" is what the page leaves out: a model, data, a folder for the results that may hold those of another
command of the block, and, lest it take long, two steps.
A block fails with its first command that fails. What cannot be run is in NOT_RUN with the reason; an entry whose block is gone is an
error, and so is a block that does not say what it is, or that has commands and says that it is something else.

  tests/program/commands_in_documents.py PROGRAM STAND_IN [--without-mpi] [--without-yaml] [--only TEXT]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
LANGUAGES = {"sh", "text", "json", "cpp", "cmake"}
COMMAND = re.compile(r"\s*(\S*/)?(lora (?!COMMAND)|(cmake|ctest|mpirun|torchrun|docker|git|curl|pip|python3) )|\s*(cmake|tests|examples|bench)/\S+\.(sh|py)\b")

# A page, what its block begins with, and why it is not run.
NOT_RUN = [
    ("README.md", "examples/demo.sh", "installs packages as root, fetches a model and runs every test"),
    ("README.zh.md", "examples/demo.sh", "installs packages as root, fetches a model and runs every test"),
    ("README.md", "cmake --preset release &&", "builds the program, as the tests were; tests/package installs it"),
    ("README.md", "cmake -B build", "builds a reader's project; tests/package builds one"),
    ("README.md", "NODE_RANK=0", "wants two machines"),
    ("README.zh.md", "NODE_RANK=0", "wants two machines"),
    ("README.md", "git lfs install", "fetches a model from a network"),
    ("README.md", "for file in", "fetches a model from a network"),
    ("docs/quick_start.md", "cmake/install_dependencies.sh", "installs packages as root and builds the program"),
    ("docs/install.md", "cmake --preset release", "builds the program, as the tests were; tests/package installs it"),
    ("docs/install.md", "cmake/install_dependencies.sh --parquet", "installs a package as root, fetches Arrow from a network, and builds the program"),
    ("docs/install.md", "cmake/install_dependencies.sh --package", "builds the program and installs as root; tests/package makes the package"),
    ("docs/install.md", "cmake/make_release.sh", "builds the program, of what is committed"),
    ("docs/quick_start.md", "git lfs install", "fetches a model from a network"),
    ("docs/performance.md", "cmake --preset release", "builds the benchmarks, which want another library"),
    ("docs/ascend.md", "source /usr/local/Ascend", "wants the vendor's toolkit"),
    ("docs/ascend.md", "torchrun", "wants PyTorch"),
    ("docs/ascend.md", "docker run", "wants an NPU, its driver and an image"),
    ("docs/ascend_first_hour.md", "npu-smi info", "wants an NPU and its driver"),
    ("docs/ascend_first_hour.md", "lora doctor --device ascend --full", "tries every kernel for minutes; tests/ascend does"),
    ("docs/doctor.md", "lora doctor --device ascend --full", "tries every kernel for minutes; tests/program/doctor_test.cpp does"),
    ("docs/ascend_stand_in.md", "cmake/install_dependencies.sh", "fetches a cross-compiler and builds for another processor"),
    ("docs/ascend_stand_in.md", "cp -r tests/fixtures/stories", "wants that build"),
    ("CONTRIBUTING.md", "tests/run.sh data", "runs the tests, of which this is one"),
    ("CONTRIBUTING.md", "cmake --preset dev", "builds and runs tests, of which this is one"),
    ("CONTRIBUTING.md", "cmake/check_format.sh", "changes the sources; the checks are tests themselves"),
    ("CONTRIBUTING.md", "tests/mutations/run.py", "compiles for minutes; CI does it"),
]

# The command `lora` of the scratch folders.
LORA = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if "…" in words:
    given = [word.split("=")[0] for word in words]
    at = words.index("…")
    words[at:at + 1] = [
        word for key, value in {elided} if key not in given and not (key == "--model_name_or_path" and "--model_preset" in given)
        for word in (key, value)]
if words[:1] == ["plan"]:  # what does not fit this machine is an answer as well, with status 1
    done = subprocess.run([{program}, *words], stdout=subprocess.PIPE)
    sys.exit(0 if done.returncode == 1 and done.stdout else done.returncode)
os.execv({program}, ["lora", *words])
"""
ELIDED = [("--model_name_or_path", "MODEL"), ("--dataset", "DATA.jsonl"), ("--output_dir", "OUT"), ("--max_steps", "2"),
          ("--overwrite_output_dir", "true")]


def blocks(page):
    """The blocks of a page: the line that each begins at, its language and its text."""
    begin = language = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"( *)```(\w*)$", line)
        if not fence:
            if line.lstrip().startswith("```"):
                sys.exit(f"{page}:{number}: a fence is ``` and a word, or nothing; this one is '{line}'")
            if begin:
                lines.append(line[indent:])
        elif begin:
            yield begin, language, "\n".join(lines) + "\n"
            begin = None
        else:
            begin, language, indent, lines = number, fence[2], len(fence[1]), []


def pages():
    return [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def call(words, **keywords):
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **keywords)


def must(words, **keywords):
    done = call(words, **keywords)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed ({done.returncode}):\n{done.stdout}")


def lay_model(folder, program, layers):
    """A small random model, with a tokenizer whose pre-tokenizer has a name in GGUF files: FOLDER without, MODEL with weights."""
    blank = folder / "FOLDER"
    shutil.copytree(FIXTURES / "chat", blank, ignore=shutil.ignore_patterns("model.safetensors", "turns.json"))
    config = json.loads((blank / "config.json").read_text())
    config.update(num_hidden_layers=layers, layer_types=["full_attention"] * layers)
    (blank / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((blank / "tokenizer.json").read_text(encoding="utf-8"))
    qwen2 = json.loads((FIXTURES / "export" / "qwen2" / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer.update({part: qwen2[part] for part in ("normalizer", "pre_tokenizer")})
    (blank / "tokenizer.json").write_text(json.dumps(tokenizer))
    must([program, "train", "--model_name_or_path", blank, "--dataset", ROOT / "examples" / "data" / "topology_test.json",
          "--max_samples", "1", "--max_steps", "1", "--output_dir", folder / "whole", "--finetuning_type", "full", "--train_from_scratch"])
    (folder / "whole" / "final_model").rename(folder / "MODEL")
    shutil.rmtree(folder / "whole")


def prepare(folder, program):
    """What pages call by name."""
    lay_model(folder, program, 2)
    shutil.copytree(folder / "MODEL", folder / "Qwen2.5-0.5B-Instruct")
    some = [{"instruction": f"Link {one}-{two}?", "output": f"{one} and {two}", "difficulty": kind}
            for kind in ("explain", "reasoning", "topology") for one, two in ("ab", "bc", "cd", "de")]
    lines = "".join(json.dumps(record) + "\n" for record in some)
    for name in ("DATA", "my", "train", "test", "general", "mine"):
        (folder / f"{name}.jsonl").write_text(lines)
        (folder / f"{name}.json").write_text(json.dumps(some))
    (folder / "texts.txt").write_text("\n\n".join(record["output"] for record in some))
    must([program, "train", "--model_name_or_path", "MODEL", "--dataset", "my.jsonl", "--max_steps", "1", "--output_dir", "out"],
         cwd=folder)
    shutil.copytree(folder / "out", folder / "OUT")
    (folder / "run.json").write_text(json.dumps({"model_name_or_path": "MODEL", "dataset": ["my.jsonl"], "output_dir": "again"}))
    demo = folder / "build" / "demo"
    demo.mkdir(parents=True)
    shutil.copytree(folder / "out", demo / "run")
    must([program, "export", "--model_name_or_path", "MODEL", "--output_file", demo / "SmolLM2-135M-Instruct.Q4_1.gguf"], cwd=folder)
    (folder / "examples").symlink_to(ROOT / "examples")


def environment(bin_folder, stand_in):
    """The stand-in is for the vendor's libraries of NPUs; without it there are none, whatever this machine has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LORA_", "OMPI_"))}
    # Pages speak of eight NPUs. mpirun starts nothing as root, nor more processes than there are processors, unless it is told to.
    return {**kept, "PATH": f"{bin_folder}:{kept['PATH']}", "LORA_ASCEND_LIBRARIES": str(stand_in),
            "STAND_IN_DEVICES": "8", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("stand_in", type=os.path.abspath)
    parser.add_argument("--without-mpi", action="store_true")
    parser.add_argument("--without-yaml", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if os.environ.get("LORA_TEST_SHORT"):
        print("left out: command blocks of documents are not run")
        return 0
    failures = []
    left_over = list(NOT_RUN)
    ran = 0
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        ready = top / "ready"
        ready.mkdir()
        prepare(ready, options.program)
        deep = top / "deep"
        deep.mkdir()
        lay_model(deep, options.program, 24)
        bin_folder = top / "bin"
        bin_folder.mkdir()
        lora = bin_folder / "lora"
        lora.write_text(LORA.format(python=sys.executable, elided=repr(ELIDED), program=repr(options.program)))
        lora.chmod(0o755)
        for page in pages():
            name = page.relative_to(ROOT).as_posix()
            for line, language, text in blocks(page):
                place = f"{name}:{line}"
                if language not in LANGUAGES:
                    failures.append(f"{place}: the block says '{language}'; expected one of {', '.join(sorted(LANGUAGES))}")
                if language != "sh":
                    command = next(filter(COMMAND.match, text.splitlines()), None) if language in ("text", "json", "") else None
                    if command:
                        failures.append(f"{place}: a block of commands says '{language}' and not sh: {command}")
                    continue
                known = [entry for entry in left_over if entry[0] == name and text.startswith(entry[1])]
                if known:
                    left_over.remove(known[0])
                    checked = call(["bash", "-n", "-c", text])
                    if checked.returncode != 0:
                        failures.append(f"{place}: bash does not understand\n{text}{checked.stdout}")
                    continue
                if options.only not in place + text:
                    continue
                if options.without_mpi and re.search("mpirun|lora launch", text):
                    print(f"skipped: {place}, for want of MPI")
                    continue
                if options.without_yaml and re.search(r"\.ya?ml\b", text):
                    print(f"skipped: {place}, for want of yaml-cpp")
                    continue
                scratch = top / "scratch"
                shutil.copytree(ready, scratch, symlinks=True)
                if re.search(r"two_stage|layers\\", text):  # which name layers of a model that has 24
                    shutil.copytree(deep / "MODEL", scratch / "MODEL", dirs_exist_ok=True)
                for output in re.findall(r"--output_dir (\S+)", text) + (["OUT"] if "…" in text else []):
                    shutil.rmtree(scratch / output, ignore_errors=True)
                (scratch / "build" / "release" / "bin").mkdir(parents=True)
                (scratch / "build" / "release" / "bin" / "lora").symlink_to(lora)
                begin = time.monotonic()
                libraries = options.stand_in if "--device ascend" in text else scratch / "none"
                done = call(["bash", "-euo", "pipefail", "-c", text], cwd=scratch, env=environment(bin_folder, libraries))
                ran += 1
                print(f"{place}: {time.monotonic() - begin:.1f} s", flush=True)
                if done.returncode != 0:
                    failures.append(f"{place}: exit {done.returncode} of\n{text}{done.stdout[-3000:]}")
                shutil.rmtree(scratch)
    failures += [f"{page}: no block begins with '{beginning}', which NOT_RUN names" for page, beginning, _ in left_over]
    print(f"{ran} blocks were run, {len(NOT_RUN)} are named as not to be run")
    return "\n".join(failures) if failures else 0


if __name__ == "__main__":
    sys.exit(main())
