#!/usr/bin/env python3
"""Two processes, started by each launcher that this machine has, train to the bytes of one; and in the middle of a step of seconds
they end with a checkpoint by a signal to the launcher: SIGINT and SIGTERM to `lora launch`, SIGTERM to torchrun, SIGUSR1 to
mpirun and srun, which kill their processes within seconds when they get another.

  tests/scripts/launchers.py build/dev/bin/lora [--stand_in build/dev/tests/ascend/stand_in] [--launcher NAME …]

On processors mpirun, `lora launch`, and srun where SLURM runs (with PMIx, as Debian's has it); with --stand_in on NPUs, which
libraries stand for, also torchrun. A program that is built with another MPI is given with that one's mpirun:
`--mpirun mpirun.mpich`. --short has mpirun, srun and `lora launch` start processes on processors alone, and one signal end them.
What is missing is said; 77 where nothing was there to be tried, 1 where something failed.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import attack


def launchers(args):
    """By name: whether it is for NPUs, the words that start two processes, the signals that end these with a checkpoint, and what
    is needed for it."""
    of_open_mpi = pathlib.Path(args.mpirun).name == "mpirun"
    own_mpi = [args.mpirun, *(["--allow-run-as-root", "--oversubscribe"] if of_open_mpi else []), "-n", "2"]
    lora = str(args.program.resolve())
    own_launch, both, passed_on = [lora, "launch", "--nproc_per_node", "2"], (signal.SIGINT, signal.SIGTERM), (signal.SIGUSR1,)
    for on_npus in (False, True) if args.stand_in else (False,):
        yield "mpirun", on_npus, [*own_mpi, lora], passed_on, args.mpirun
        yield "srun", on_npus, ["srun", "--mpi=pmix", "-n", "2", lora], passed_on, "sinfo"
        yield "lora launch", on_npus, own_launch, both, args.mpirun
    if args.stand_in:
        yield "lora launch at an address", True, [*own_launch, "--master_addr", "127.0.0.1"], both, lora
        yield "torchrun", True, ["torchrun", "--no-python", "--nproc_per_node", "2", lora], (signal.SIGTERM,), "torchrun"


def is_there(command):
    return shutil.which(command) is not None and (command != "sinfo" or subprocess.run(
        [command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)


class Trial:
    def __init__(self, args, folder):
        self.folder, self.program = folder, str(args.program.resolve())
        attack.write_inputs(folder / "inputs", args.program)
        self.rng = random.Random(1)
        self.write_records("data", 24, 4, 24)
        self.environment = dict(os.environ)
        if pathlib.Path(args.mpirun).name != "mpirun" and is_there(args.mpirun):  # launch finds it by that name
            (folder / "bin").mkdir()
            (folder / "bin" / "mpirun").symlink_to(shutil.which(args.mpirun))
            self.environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        if args.stand_in:
            self.environment.update(LORA_ASCEND_LIBRARIES=str(args.stand_in.resolve()), STAND_IN_DEVICES="2")

    def write_records(self, name, count, shortest, longest):
        with open(self.folder / f"{name}.jsonl", "w") as file:
            for _ in range(count):
                ids = [self.rng.randrange(250) for _ in range(self.rng.randrange(shortest, longest))]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")

    def words(self, on_npus, name, processes, steps, batches=2, data="data"):
        """`batches`: of a step, of all processes."""
        return ["train", f"--model_name_or_path={self.folder / 'inputs' / 'model'}", f"--dataset={self.folder / data}.jsonl",
                f"--output_dir={self.folder / name}", f"--device={'ascend' if on_npus else 'cpu'}", "--dtype=float32",
                "--threads=1", "--step_units=2", f"--gradient_accumulation_steps={batches // processes}", "--logging_steps=1",
                "--per_device_train_batch_size=1", f"--max_steps={steps}", "--save_steps=0"]

    def run(self, command, words):
        """What it says, and whether it ended well."""
        try:
            done = subprocess.run([*command, *words], env=self.environment, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "it has not ended in 300 s", False
        return done.stderr, done.returncode == 0

    def result(self, name):
        file = self.folder / name / "final_model" / "adapter_model.safetensors"
        return file.read_bytes() if file.exists() else None

    def slow_steps(self, on_npus, seconds):
        """The words of two processes' steps of some `seconds`, which a launcher that kills its own has not the patience for."""
        data = "slow on an NPU" if on_npus else "slow"
        self.write_records(data, 20, 1000, 1001)
        said, fine = self.run([self.program], self.words(on_npus, data, 1, 2, 20, data))
        if not fine:
            sys.exit(f"one process fails: {said}")
        log = (self.folder / data / "trainer_log.jsonl").read_text().splitlines()
        batches = 2 * max(1, int(seconds * json.loads(log[-1])["tokens_per_second"] / 1000))
        self.write_records(data, batches, 1000, 1001)
        return lambda name: self.words(on_npus, name, 2, 1000000, batches, data)

    def end_by_signal(self, command, words, name, number):
        """Sends a signal to the launcher in the second step. All is over in time then, with the only checkpoint and the signal's exit
        code; else what was wrong, and what was said."""
        errors = self.folder / f"{name}.errors"
        with open(errors, "w") as to, subprocess.Popen([*command, *words], env=self.environment, stdout=subprocess.DEVNULL,
                                                       stderr=to) as process:
            log = self.folder / name / "trainer_log.jsonl"
            for _ in range(3000):
                if process.poll() is not None or (log.exists() and log.read_text().count("\n") > 0):
                    break
                time.sleep(0.1)
            began = process.poll() is None and log.exists()
            process.send_signal(number)
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
        # A launcher that was killed, or has killed its processes too early, leaves them or no checkpoint behind.
        left = subprocess.run(["pkill", "-KILL", "-f", str(self.folder / name)]).returncode == 0
        checkpoints = len([*(self.folder / name / "checkpoints").glob("checkpoint-*")])
        wrong = [what for what, is_so in {
            "it ended before": not began, "it left processes behind": left, f"{checkpoints} checkpoints": checkpoints != 1,
            f"exit code {process.returncode}": "launch" in command and process.returncode != 128 + number}.items() if is_so]
        return f"{', '.join(wrong)}:\n{errors.read_text()[-2000:]}" if wrong else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--stand_in", type=pathlib.Path)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--launcher", action="append", help="only this; again for several")
    parser.add_argument("--short", action="store_true", help="each launcher on one device, ended by one signal")
    args = parser.parse_args()
    program = [str(args.program.resolve())]
    tried = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(args, pathlib.Path(folder))
        for on_npus, name in [(False, "alone"), *([(True, "alone on an NPU")] if args.stand_in else [])]:
            said, fine = trial.run(program, trial.words(on_npus, name, 1, 12))
            if not fine:
                sys.exit(f"one process fails: {said}")
        slow = {}
        for number, (launcher, on_npus, command, signals, needs) in enumerate(launchers(args)):
            if args.launcher and launcher not in args.launcher:
                continue
            if args.short:
                if on_npus and launcher in ("mpirun", "srun", "lora launch"):
                    continue
                signals = signals[-1:]
            title = f"{launcher}, {'NPUs' if on_npus else 'processors'}"
            if not is_there(needs):
                print(f"skipped: {title}: not here")
                continue
            tried += 1
            if on_npus not in slow:
                slow[on_npus] = trial.slow_steps(on_npus, 3 if args.short else 5)
            name = f"run {number}"
            said, fine = trial.run(command, trial.words(on_npus, name, 2, 12))
            same = fine and trial.result(name) == trial.result("alone on an NPU" if on_npus else "alone") is not None
            stops = {one: f"stopped {number} by {one.name}" for one in signals}
            ends = {one.name: trial.end_by_signal(command, slow[on_npus](stopped), stopped, one) for one, stopped in stops.items()}
            wrong = [one for one, why in ends.items() if why]
            print(f"{title}: {'the bytes of one process' if same else 'OTHER BYTES, or none'}; "
                  + (f"{', '.join(wrong)} LEFT NO CHECKPOINT, or another exit code" if wrong else
                     f"ended with a checkpoint by {' and '.join(one.name for one in signals)}"), flush=True)
            for why in [None if fine else said, *ends.values()]:
                if why:
                    print(why)
            failed += not same or bool(wrong)
    print(f"{tried - failed} of {tried} launchers do")
    sys.exit(1 if failed else 0 if tried else 77)


if __name__ == "__main__":
    main()
