#!/usr/bin/env python3
"""Two processes, started by each launcher that this machine has, train to the bytes of one; and end with a checkpoint by
SIGTERM to the launcher, or by SIGUSR1 to srun, which kills its processes when it gets the other.

  tests/scripts/launchers.py build/dev/bin/lora [--stand_in build/dev/tests/ascend/stand_in] [--launcher NAME …]

On processors mpirun, and srun where SLURM runs (with PMIx, as Debian's has it); with --stand_in on NPUs, which libraries
stand for, also torchrun and `lora launch`. A program that is built with another MPI is given with that one's mpirun:
`--mpirun mpirun.mpich`. What is missing is said; 77 where nothing was there to be tried, 1 where something failed.
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
    """By name: whether it is for NPUs, the words that start two processes, and what is needed for that."""
    of_open_mpi = pathlib.Path(args.mpirun).name == "mpirun"
    own_mpi = [args.mpirun, *(["--allow-run-as-root", "--oversubscribe"] if of_open_mpi else []), "-n", "2"]
    lora = str(args.program.resolve())
    yield "mpirun", False, [*own_mpi, lora], args.mpirun
    yield "srun", False, ["srun", "--mpi=pmix", "-n", "2", lora], "sinfo"
    if args.stand_in:
        yield "mpirun", True, [*own_mpi, lora], args.mpirun
        yield "srun", True, ["srun", "--mpi=pmix", "-n", "2", lora], "sinfo"
        yield "torchrun", True, ["torchrun", "--no-python", "--nproc_per_node", "2", lora], "torchrun"
        yield "lora launch", True, [lora, "launch", "--nproc_per_node", "2"], lora


def is_there(command):
    return shutil.which(command) is not None and (command != "sinfo" or subprocess.run(
        [command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)


class Trial:
    def __init__(self, args, folder):
        self.folder = folder
        attack.write_inputs(folder / "inputs", args.program)
        rng = random.Random(1)
        with open(folder / "data.jsonl", "w") as file:
            for _ in range(24):
                ids = [rng.randrange(250) for _ in range(rng.randrange(4, 24))]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        self.environment = dict(os.environ)
        if args.stand_in:
            self.environment.update(LORA_ASCEND_LIBRARIES=str(args.stand_in.resolve()), STAND_IN_DEVICES="2")

    def words(self, on_npus, name, processes, steps):
        return ["train", f"--model_name_or_path={self.folder / 'inputs' / 'model'}", f"--dataset={self.folder / 'data.jsonl'}",
                f"--output_dir={self.folder / name}", f"--device={'ascend' if on_npus else 'cpu'}", "--dtype=float32",
                "--threads=1", "--step_units=2", f"--gradient_accumulation_steps={2 // processes}", "--logging_steps=1",
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

    def end_by_signal(self, command, words, name):
        """Sends a signal to the launcher after a few steps. Whether all is over in time, with the only checkpoint."""
        with subprocess.Popen([*command, *words], env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            log = self.folder / name / "trainer_log.jsonl"
            for _ in range(600):
                if process.poll() is not None or (log.exists() and log.read_text().count("\n") > 3):
                    break
                time.sleep(0.1)
            began = process.poll() is None and log.exists()
            process.send_signal(signal.SIGUSR1 if command[0] == "srun" else signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        # A launcher that was killed, or has killed its processes too early, leaves them or no checkpoint behind.
        left = subprocess.run(["pkill", "-KILL", "-f", str(self.folder / name)]).returncode == 0
        return began and not left and len([*(self.folder / name / "checkpoints").glob("checkpoint-*")]) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--stand_in", type=pathlib.Path)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--launcher", action="append", help="only this; again for several")
    args = parser.parse_args()
    program = [str(args.program.resolve())]
    tried = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(args, pathlib.Path(folder))
        for on_npus, name in [(False, "alone"), *([(True, "alone on an NPU")] if args.stand_in else [])]:
            said, fine = trial.run(program, trial.words(on_npus, name, 1, 12))
            if not fine:
                sys.exit(f"one process fails: {said}")
        for number, (launcher, on_npus, command, needs) in enumerate(launchers(args)):
            if args.launcher and launcher not in args.launcher:
                continue
            title = f"{launcher}, {'NPUs' if on_npus else 'processors'}"
            if not is_there(needs):
                print(f"{title}: not here")
                continue
            tried += 1
            name, stopped = f"run {number}", f"stopped {number}"
            said, fine = trial.run(command, trial.words(on_npus, name, 2, 12))
            same = fine and trial.result(name) == trial.result("alone on an NPU" if on_npus else "alone") is not None
            ends = trial.end_by_signal(command, trial.words(on_npus, stopped, 2, 1000000), stopped)
            print(f"{title}: {'the bytes of one process' if same else 'OTHER BYTES, or none'}; "
                  f"{'ended by a signal with a checkpoint' if ends else 'A SIGNAL LEFT NO CHECKPOINT'}", flush=True)
            if not fine:
                print(said)
            failed += not (same and ends)
    print(f"{tried - failed} of {tried} launchers do")
    sys.exit(1 if failed else 0 if tried else 77)


if __name__ == "__main__":
    main()
