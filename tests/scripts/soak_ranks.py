#!/usr/bin/env python3
"""Kills a random process of several that train together, again and again, and compares the end with an undisturbed run.

    tests/scripts/soak_ranks.py build/release/bin/lora                        20 runs of 500 steps by 4 processes (MPI)
    tests/scripts/soak_ranks.py PROGRAM --runs 2 --steps 60 --ranks 3
    tests/scripts/soak_ranks.py PROGRAM --stand_in build/dev/tests/ascend/stand_in    NPUs of the stand-in, by lora launch
    tests/scripts/soak_ranks.py PROGRAM --mca btl tcp,self                    words of mpirun

Each run is started in a loop, as a batch system would, with resume_from_checkpoint auto; after a random time a random one of
its processes gets KILL, TERM, INT or USR1, up to --kills times a run. Every start must end by itself, with every process; the
end must have the adapter, the last checkpoint and the log's numbers of one process that nobody has disturbed.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attack


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


def lasting(folder, steps):
    """What depends neither on the time nor on who wrote it; of checkpoints the last, for a stop writes one of its own."""
    files = {}
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
        self.seconds = 0
        attack.write_inputs(folder / "inputs", args.program)
        rng = random.Random(args.seed)
        with open(folder / "data.jsonl", "w") as file:
            for _ in range(60):
                ids = [rng.randrange(250) for _ in range(rng.randrange(4, 24))]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        if args.stand_in:
            self.environment.update(LORA_ASCEND_LIBRARIES=str(args.stand_in.resolve()), STAND_IN_DEVICES="8")

    def words(self, ranks, out):
        units = self.args.ranks * (2 if self.args.zero_stage > 1 else 1)  # a micro-batch each, where gradients leave with it
        return ["train", f"--model_name_or_path={self.folder / 'inputs' / 'model'}",
                f"--dataset={self.folder / 'data.jsonl'}", f"--output_dir={out}", "--dtype=float32", "--threads=1",
                f"--device={'ascend' if self.args.stand_in else 'cpu'}", f"--step_units={units}",
                "--per_device_train_batch_size=1", f"--gradient_accumulation_steps={2 * self.args.ranks // ranks}",
                f"--max_steps={self.args.steps}", "--save_steps=10", "--logging_steps=5", "--lora_dropout=0.1",
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
        return subprocess.Popen(launcher + program + self.words(ranks, out), stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, env=self.environment, start_new_session=True)

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
                os.killpg(process.pid, signal.SIGKILL)
                for one in processes_of(out):
                    os.kill(one, signal.SIGKILL)
                return kills, f"it did not end within {self.args.patience} s"
            time.sleep(0.1)
            if left := processes_of(out):
                return kills, f"processes are left: {left}"
            if process.returncode == 0:
                return kills, None
            if not disturbed:
                return kills, f"it failed undisturbed, with {process.returncode}:\n{errors[-2000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5, help="of each run, at most")
    parser.add_argument("--patience", type=float, default=120, help="seconds within which a start must end")
    parser.add_argument("--zero_stage", type=int, default=1)
    parser.add_argument("--stand_in", type=Path, help="a folder of libraries: NPUs instead of processors")
    parser.add_argument("--mca", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failed = disturbed = 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        soak = Soak(args, folder)
        whole = soak.start(1, folder / "alone")
        _, errors = whole.communicate()
        if whole.returncode != 0:
            sys.exit(f"one process failed:\n{errors[-2000:]}")
        expected = lasting(folder / "alone", args.steps)
        begin = time.monotonic()
        kills, problem = soak.one_run(None, folder / "undisturbed")
        soak.seconds = time.monotonic() - begin  # within which others are disturbed
        if problem is None and lasting(folder / "undisturbed", args.steps) != expected:
            problem = "undisturbed it differs from one process"
        if problem is not None:
            sys.exit(problem)
        for number in range(args.runs):
            out = folder / f"run-{number}"
            kills, problem = soak.one_run(random.Random(f"{args.seed} {number}"), out)
            disturbed += kills
            if problem is None:
                found = lasting(out, args.steps)
                wrong = [key for key in sorted({*found, *expected}) if found.get(key) != expected.get(key)]
                problem = f"it differs from one process in {', '.join(wrong)}" if wrong else None
            if problem is not None:
                failed += 1
                print(f"run {number}, disturbed {kills} times: {problem}", flush=True)
            elif sys.stdout.isatty():
                print(f"run {number}: disturbed {kills} times, the same bytes", flush=True)
    print(f"{args.runs - failed} of {args.runs} runs of {args.steps} steps by {args.ranks} processes, disturbed {disturbed} "
          f"times, end with the bytes of one")
    if disturbed == 0:
        print("no process was disturbed: more --steps or --runs are needed")
    return 1 if failed or disturbed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
