#!/usr/bin/env python3
"""Kills a random process of a training, again and again, and compares the end with an undisturbed run of one process.

    tests/scripts/soak.py build/release/bin/lora                        20 runs of 500 steps by 4 processes (MPI)
    tests/scripts/soak.py PROGRAM --runs 2 --steps 60 --ranks 3
    tests/scripts/soak.py PROGRAM --ranks 1 --kind all --steps 60       one process, every kind of run
    tests/scripts/soak.py PROGRAM --stand_in build/dev/tests/ascend/stand_in    NPUs of the stand-in, by lora launch
    tests/scripts/soak.py PROGRAM --mca btl tcp,self                    words of mpirun

Each run is started in a loop, as a batch system would, with resume_from_checkpoint auto; after a random time a random one of
its processes gets KILL, TERM, INT or USR1, up to --kills times a run. Every start must end by itself, with every process; the
end must have final_model, the last checkpoint and the log's numbers of one process that nobody has disturbed.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attack


# What each kind of run has beside the keys of all. {inputs} and {data}: folders.
LORA = ["--lora_dropout=0.1"]
STAGES = [{"name": "some", "until_step": 15, "trainable": ["layers\\.1\\.", "embed"]},
          {"name": "easy first", "learning_rate": 1e-3, "gradient_checkpointing": True, "use_curriculum": True}]
LESSONS = [{"until": 0.5, "mix": {"easy": 0.75, "hard": 0.25}}, {"until": 1, "mix": {"hard": 1}}]
KINDS = {
    "adapter": LORA,
    "evaluated": [*LORA, "--eval_dataset={data}/held_back.jsonl", "--eval_steps=7", "--eval_on_start",
                  "--load_best_model_at_end", "--early_stopping_patience=100"],
    "ended early": [*LORA, "--eval_dataset={data}/held_back.jsonl", "--eval_steps=5", "--load_best_model_at_end",
                    "--early_stopping_patience=2", "--early_stopping_threshold=0.5"],
    "answers scored": [*LORA, "--eval_dataset={inputs}/alpaca.json", "--eval_steps=10", "--eval_predict",
                       "--template=chatml", "--max_new_tokens=4"],
    "float16, noise, rsLoRA, LoRA+": [*LORA, "--dtype=float16", "--neftune_noise_alpha=5", "--use_rslora",
                                      "--loraplus_lr_ratio=4"],
    "bfloat16, recomputed": [*LORA, "--dtype=bfloat16", "--gradient_checkpointing"],
    "modules to save": ["--additional_target=embed_tokens,lm_head"],
    "from an adapter": ["--adapter_name_or_path={inputs}/adapter"],
    "GGUF": [*LORA, "--model_name_or_path={inputs}/bytes.gguf"],
    "texts": [*LORA, "--dataset={data}/lines.jsonl"],
    "mixed": [*LORA, "--dataset={data}/data.jsonl,{data}/held_back.jsonl", "--mix_strategy=interleave_over"],
    "curriculum": [*LORA, "--use_curriculum", "--curriculum_field=difficulty",
                   "--curriculum_stages=" + json.dumps(LESSONS)],
    "in full, in stages": ["--finetuning_type=full", "--max_shard_size=8KB", "--curriculum_field=difficulty",
                           "--curriculum_stages=" + json.dumps(LESSONS),
                           "--stages=" + json.dumps(STAGES)],
    "from scratch": ["--finetuning_type=full", "--train_from_scratch"],
}


def processes_of(folder):
    """Processes whose command line names the run's folder, but launchers, by their number."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [b"train"] and b"--output_dir=" + str(folder).encode() in words:
            found.append(int(entry))
    return sorted(found)


def last_step(folder):
    """Of the checkpoints; 0 if there is none."""
    return max((int(path.name.split("-")[1]) for path in (folder / "checkpoints").glob("checkpoint-*")), default=0)


def lasting(folder):
    """What depends neither on the time nor on who wrote it; of checkpoints the last, for a stop writes one of its own."""
    files = {}
    steps = last_step(folder)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name.startswith(("final_model/", f"checkpoints/checkpoint-{steps}/")) and path.name != "README.md":
            files[name] = path.read_bytes()
    numbers = []
    for line in (folder / "trainer_log.jsonl").read_text().splitlines():
        record = json.loads(line)
        for field in ("tokens_per_second", "elapsed_seconds", "peak_memory_gib"):
            record.pop(field, None)
        numbers.append(record)
    files["numbers of the log"] = numbers
    return files


class Soak:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.kind = KINDS["adapter"]
        self.seconds = 0
        self.running, self.out = None, None
        attack.write_inputs(folder / "inputs", args.program)
        rng = random.Random(args.seed)
        for name, records in {"data": 60, "held_back": 9}.items():
            with open(folder / f"{name}.jsonl", "w") as file:
                for _ in range(records):
                    ids = [rng.randrange(250) for _ in range(rng.randrange(4, 24))]
                    record = {"input_ids": ids, "labels": ids, "difficulty": rng.choice(["easy", "hard"])}
                    file.write(json.dumps(record) + "\n")
        with open(folder / "lines.jsonl", "w") as file:
            for _ in range(40):
                file.write(json.dumps({"text": "".join(rng.choice("the end ") for _ in range(30))}) + "\n")
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        if args.stand_in:
            self.environment.update(LORA_ASCEND_LIBRARIES=str(args.stand_in.resolve()), STAND_IN_DEVICES="8")

    def words(self, ranks, out):
        units = self.args.ranks * (2 if self.args.zero_stage > 1 else 1)  # a micro-batch each, where gradients leave with it
        keys = {"--model_name_or_path": self.folder / "inputs" / "model", "--dataset": self.folder / "data.jsonl",
                "--dtype": "float32"}
        given = [word.replace("{inputs}", str(self.folder / "inputs")).replace("{data}", str(self.folder)) for word in self.kind]
        keys = [f"{key}={value}" for key, value in keys.items() if not any(word.startswith(key + "=") for word in given)]
        return ["train", *keys, *given, f"--output_dir={out}", "--threads=1", "--cutoff_len=64",
                f"--device={'ascend' if self.args.stand_in else 'cpu'}", f"--step_units={units}",
                "--per_device_train_batch_size=1", f"--gradient_accumulation_steps={2 * self.args.ranks // ranks}",
                f"--max_steps={self.args.steps}", "--save_steps=10", "--logging_steps=5",
                f"--zero_stage={0 if ranks == 1 else self.args.zero_stage}", "--save_total_limit=3",
                "--resume_from_checkpoint=auto"]

    def start(self, ranks, out):
        launcher = []
        program = [str(self.args.program.resolve())]
        if ranks > 1 and self.args.stand_in:
            program += ["launch", f"--nproc_per_node={ranks}", "--master_addr=127.0.0.1",
                        f"--master_port={20000 + os.getpid() % 12000}"]
        elif ranks > 1:
            launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism",
                        "none"] + [word for pair in self.args.mca for word in ["--mca", *pair]] + ["-n", str(ranks)]
        self.out = out
        self.running = subprocess.Popen(launcher + program + self.words(ranks, out), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, env=self.environment, start_new_session=True)
        return self.running

    def end(self):
        """Ends what runs, if anything: a launcher and its processes have a session of their own."""
        if self.running is not None and self.running.poll() is None:
            os.killpg(self.running.pid, signal.SIGKILL)
            for one in processes_of(self.out):
                os.kill(one, signal.SIGKILL)

    def one_run(self, rng, out):
        """Returns how often it was disturbed, and what was wrong, if anything. Without random numbers it is not disturbed."""
        kills = 0
        while True:
            process = self.start(self.args.ranks, out)
            disturbed = False
            if rng is not None and kills < self.args.kills:
                time.sleep(rng.uniform(0.1, 0.7) * self.seconds)
                there = processes_of(out)
                if there and process.poll() is None:
                    number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
                    try:
                        os.kill(rng.choice(there), number)
                        kills += 1
                        disturbed = True
                    except ProcessLookupError:
                        pass
            try:
                _, errors = process.communicate(timeout=self.args.patience)
            except subprocess.TimeoutExpired:
                self.end()
                return kills, f"it did not end within {self.args.patience} s"
            time.sleep(0.1)
            if left := processes_of(out):
                return kills, f"processes are left: {left}"
            if process.returncode == 0:
                return kills, None
            if not disturbed:
                return kills, f"it failed undisturbed, with {process.returncode}:\n{errors[-2000:]}"


def soak_kind(args, soak, kind):
    """Whether every run ended right, and some were disturbed."""
    soak.kind = KINDS[kind]
    folder = soak.folder / re.sub(r"\W+", "_", kind)
    whole = soak.start(1, folder / "alone")
    _, errors = whole.communicate()
    if whole.returncode != 0:
        sys.exit(f"{kind}: one process failed:\n{errors[-2000:]}")
    if (last_step(folder / "alone") < args.steps) != (kind == "ended early"):
        sys.exit(f"{kind}: one process ended with step {last_step(folder / 'alone')}")
    expected = lasting(folder / "alone")
    begin = time.monotonic()
    _, problem = soak.one_run(None, folder / "undisturbed")
    soak.seconds = time.monotonic() - begin  # within which others are disturbed
    if problem is None and lasting(folder / "undisturbed") != expected:
        problem = "undisturbed it differs from one process"
    if problem is not None:
        sys.exit(f"{kind}: {problem}")
    failed = disturbed = number = 0
    while number < args.runs or (disturbed == 0 and number < args.runs + 10):  # a short run may end before it is disturbed
        out = folder / f"run-{number}"
        kills, problem = soak.one_run(random.Random(f"{args.seed} {kind} {number}"), out)
        number += 1
        disturbed += kills
        if problem is None:
            found = lasting(out)
            wrong = [key for key in sorted({*found, *expected}) if found.get(key) != expected.get(key)]
            problem = f"it differs from one process in {', '.join(wrong)}" if wrong else None
        if problem is not None:
            failed += 1
            print(f"{kind}: run {number}, disturbed {kills} times: {problem}", flush=True)
        elif sys.stdout.isatty():
            print(f"{kind}: run {number}: disturbed {kills} times, the same bytes", flush=True)
    print(f"{kind}: {number - failed} of {number} runs of {args.steps} steps, {args.ranks} at a time, disturbed {disturbed} "
          f"times, end with the bytes of one undisturbed process", flush=True)
    if disturbed == 0:
        print(f"{kind}: no process was disturbed: more --steps or --runs are needed")
    return failed == 0 and disturbed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--kind", choices=["all", *KINDS], default="adapter")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=4, help="processes")
    parser.add_argument("--kills", type=int, default=5, help="of each run, at most")
    parser.add_argument("--patience", type=float, default=120, help="seconds within which a start must end")
    parser.add_argument("--zero_stage", type=int, default=1)
    parser.add_argument("--stand_in", type=Path, help="a folder of libraries: NPUs instead of processors")
    parser.add_argument("--mca", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soak = Soak(args, Path(name))
        try:
            right = [soak_kind(args, soak, kind) for kind in (KINDS if args.kind == "all" else [args.kind])]
        finally:
            soak.end()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
