#!/usr/bin/env python3
"""Times `lora` with one thread and with a team, while other programs keep processors busy.

  bench/busy_neighbors.py [--lora build/release/bin/lora] [--model MODEL] [--threads N] [--neighbors 0,1,2]
      [--rounds K] [--work DIR] [--set NAME=VALUE] [--only train,tiny,generate]

Three kinds of work: `train`, a few steps of SmolLM2-135M's shape; `tiny`, many steps of a model so small that threads
mostly wait for one another; `generate`, an answer token by token. A neighbor is a process that computes without end.
Without --model, the file that examples/demo.sh fetched generates, else random weights do.

Each work runs with one thread, with a team of N (all processors unless given), and with the team under --set, by default
the OpenMP runtime's own waiting (GOMP_SPINCOUNT=300000), one after the other in each round, so that what changes on the
machine meets all alike. Prints medians of wall seconds, with processor seconds in brackets, and what the team's time is
of one thread's. Exits with 1 where, with at least as many neighbors as processors, that is more than 1.3.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from against_peft import SHAPES, make_model, random_examples

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 1.3

TINY = dict(SHAPES["SmolLM2-135M"], hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=512)


def make_text_model(folder):
    """Random weights with a tokenizer of single bytes."""
    data = os.path.join(ROOT, "tests/fixtures")
    make_model(folder, dict(SHAPES["SmolLM2-135M"], vocab_size=252, eos_token_id=0))
    shutil.copy(os.path.join(data, "tokenizers/smollm2.json"), os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump(dict(eos_token="<|endoftext|>"), file)
    return folder


def write_data(path, shape, length, count):
    with open(path, "w") as file:
        for example in random_examples(dict(length=length), shape, count):
            file.write(json.dumps(example) + "\n")
    return path


def works(args):
    """name -> words of its command."""
    big, tiny = (os.path.join(args.work, name) for name in ("big", "tiny"))
    make_model(big, SHAPES["SmolLM2-135M"])
    make_model(tiny, TINY)
    fetched = os.path.join(ROOT, "build/demo/SmolLM2-135M-Instruct.Q4_1.gguf")
    talks = args.model or (fetched if os.path.exists(fetched) else make_text_model(os.path.join(args.work, "talks")))

    def train(model, data, steps, batch):
        return ["train", "--model_name_or_path", model, "--dataset", data, "--output_dir",
                os.path.join(args.work, "run"), "--overwrite_output_dir", "--max_steps", str(steps), "--logging_steps",
                str(steps), "--per_device_train_batch_size", str(batch), "--gradient_accumulation_steps", "1",
                "--save_steps", "0"]

    return dict(
        train=train(big, write_data(os.path.join(args.work, "big.jsonl"), SHAPES["SmolLM2-135M"], 200, 16), 3, 4),
        tiny=train(tiny, write_data(os.path.join(args.work, "tiny.jsonl"), TINY, 24, 64), 600, 4),
        generate=["generate", "--model_name_or_path", talks, "--template", "none", "--max_new_tokens", "64",
                  "--prompt", "Once upon a time there was a network of ten nodes, and"])


def run(args, words, threads, setting=None):
    """Wall and processor seconds."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    if setting:
        name, _, value = setting.partition("=")
        environment[name] = value
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen([args.lora, *words, "--threads", str(threads)], stdout=subprocess.DEVNULL,
                                   stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"{' '.join(process.args)}\nfailed with {process.returncode}:\n"
                             f"{errors.read().decode()[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--lora", default=os.path.join(ROOT, "build/release/bin/lora"))
    parser.add_argument("--model", help="what generates: a folder or a .gguf file")
    parser.add_argument("--threads", type=int, default=processors)
    parser.add_argument("--neighbors", default=",".join(str(n) for n in range(processors + 1)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", help="a folder that keeps the models")
    parser.add_argument("--set", default="GOMP_SPINCOUNT=300000", dest="setting")
    parser.add_argument("--only", default="train,tiny,generate")
    args = parser.parse_args()

    missed = []
    with tempfile.TemporaryDirectory(prefix="busy-neighbors-") as folder:
        args.work = args.work or folder
        os.makedirs(args.work, exist_ok=True)
        commands = {name: words for name, words in works(args).items() if name in args.only.split(",")}
        print(f"{processors} processors, load {os.getloadavg()[0]:.1f} before; medians of {args.rounds}, wall seconds "
              f"(processor seconds)")
        print(f"| work | neighbors | 1 thread | {args.threads} threads | of one | under {args.setting} |")
        print("|---|---|---|---|---|---|", flush=True)
        for count in [int(n) for n in args.neighbors.split(",")]:
            neighbors = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
            try:
                for name, words in commands.items():
                    taken = [[], [], []]
                    for _ in range(args.rounds):
                        for way, (threads, setting) in enumerate([(1, None), (args.threads, None),
                                                                  (args.threads, args.setting)]):
                            taken[way].append(run(args, words, threads, setting))
                    medians = [[statistics.median(times) for times in zip(*way)] for way in taken]
                    ratio = medians[1][0] / medians[0][0]
                    cells = [f"{wall:.2f} ({processor:.2f})" for wall, processor in medians]
                    print(f"| {name} | {count} | {cells[0]} | {cells[1]} | {ratio:.2f} | {cells[2]} |", flush=True)
                    if count >= processors and ratio > LIMIT:
                        missed.append(f"{name} beside {count}: {ratio:.2f}")
            finally:
                for neighbor in neighbors:
                    neighbor.kill()
                    neighbor.wait()
    if missed:
        raise SystemExit(f"above {LIMIT}: " + ", ".join(missed))


if __name__ == "__main__":
    main()
