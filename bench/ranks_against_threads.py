#!/usr/bin/env python3
"""Compares processes of one thread each with one process of as many threads, on the same steps and processors.

  bench/ranks_against_threads.py [--lora build/release/bin/lora] [--model FOLDER_OR_GGUF] [--ranks 2] [--rounds 5]
      [--steps 8] [--batch 8] [--length 200] [--keys '--dtype float32'] [--work DIR]

LoRA of SmolLM2-135M's shape, with random weights unless --model names some, on sequences of random lengths around
--length. Rounds take turns: one process, then several by `lora launch`, on --batch sequences a step each. Prints per
round the tokens per second of the steps behind the first two and their ratio, several to one, then the medians, and of
the processes the share of the time that they waited for each other. Needs Python's standard library alone.
"""
import argparse
import json
import os
import random
import shutil
import statistics

import against_peft as peft


def tokens_per_second(args, model, data, ranks):
    """Of the steps behind the first two, and the share of a run that a process waited for others."""
    out = os.path.join(args.work, "run")
    shutil.rmtree(out, ignore_errors=True)
    start = [args.lora, "launch", "--nproc_per_node", str(ranks), "train"] if ranks > 1 else [args.lora, "train"]
    peft.command([*start, "--model_name_or_path", model, "--dataset", data, "--output_dir", out, "--cutoff_len", "1000000",
                  "--threads", str(args.ranks // ranks), "--step_units", str(args.ranks),
                  "--per_device_train_batch_size", str(args.batch // ranks), "--gradient_accumulation_steps", "1",
                  "--max_steps", str(args.steps), "--save_steps", "0", "--logging_steps", "1", *args.keys.split()])
    steps = [line for line in peft.read_lines(os.path.join(out, "trainer_log.jsonl")) if "loss" in line][peft.NOT_TIMED:]
    with open(os.path.join(out, "training_metrics.json")) as file:
        metrics = json.load(file)
    waited = max((rank["communication_seconds"] for rank in metrics.get("ranks", [])), default=0)
    seconds = sum(line["tokens"] / line["tokens_per_second"] for line in steps)
    return sum(line["tokens"] for line in steps) / seconds, waited / metrics["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--keys", default="--dtype float32")
    parser.add_argument("--work", default="build/ranks_against_threads")
    args = parser.parse_args()
    if args.batch % args.ranks or args.steps <= peft.NOT_TIMED:
        parser.error(f"a batch that {args.ranks} processes share evenly, and at least {peft.NOT_TIMED + 1} steps")
    os.makedirs(args.work, exist_ok=True)
    shape = peft.SHAPES["SmolLM2-135M"]
    model, data = args.model or os.path.join(args.work, "model"), os.path.join(args.work, "data.jsonl")
    if not args.model:
        peft.make_model(model, shape)
    rng = random.Random(3)
    with open(data, "w") as file:
        for _ in range(args.steps * args.batch):
            ids = [rng.randrange(shape["vocab_size"]) for _ in range(rng.randrange(args.length // 2, 3 * args.length // 2))]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    found = []
    for number in range(args.rounds):
        one, _ = tokens_per_second(args, model, data, 1)
        several, waited = tokens_per_second(args, model, data, args.ranks)
        found.append((one, several, several / one, waited))
        print(f"round {number}: 1 x {args.ranks} threads {one:.0f} tokens/s, {args.ranks} x 1 thread {several:.0f}, ratio "
              f"{several / one:.3f}, waited {100 * waited:.1f} %", flush=True)
    one, several, ratio, waited = (statistics.median(column) for column in zip(*found))
    print(f"median: {one:.0f} and {several:.0f} tokens/s, ratio {ratio:.3f}, waited {100 * waited:.1f} %")


if __name__ == "__main__":
    main()
