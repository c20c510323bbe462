#!/usr/bin/env python3
"""Compares what `lora plan` says with what `lora train` takes, on this machine.

  bench/plan_against_runs.py [--lora build/release/bin/lora] [--steps 5] [--rows NAMES] [--work DIR]
  bench/plan_against_runs.py --rows '135M LoRA x 100' --ranks 1,2,4 --zero_stage 0,1,2,3 [--memory_alone]

Each row is a training, by each number of processes (lora launch, by MPI) with each zero_stage; models have random weights,
records random tokens. Prints the forecast of memory and of a step's seconds beside the peak (VmHWM, mapped weights
included, of the process that has most) and the median of the steps behind the first two; and of several processes the
bytes that one sends in a step, forecast and counted. Exits 1 where memory is off by more than 5 %, the time by more than
25 % (unless --memory_alone), or a byte is.
Needs Python's standard library alone.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys

import against_peft as peft

ROWS = {
    "135M LoRA f32": dict(shape="SmolLM2-135M", length=250, batch=8, keys="--dtype float32"),
    "135M LoRA bf16": dict(shape="SmolLM2-135M", length=250, batch=8, keys="--dtype bfloat16"),
    "135M LoRA r64, dropout, f32": dict(shape="SmolLM2-135M", length=250, batch=8,
                                        keys="--dtype float32 --lora_rank 64 --lora_dropout 0.1"),
    "135M LoRA on q and v, f32": dict(shape="SmolLM2-135M", length=250, batch=8,
                                      keys="--dtype float32 --lora_target q_proj,v_proj"),
    "135M LoRA, 2 × 1,024, checkpointing, f32": dict(shape="SmolLM2-135M", length=1024, batch=2,
                                                     keys="--dtype float32 --gradient_checkpointing"),
    "135M LoRA, 4,096 tokens, bf16": dict(shape="SmolLM2-135M", length=4096, batch=1, keys="--dtype bfloat16"),
    "135M LoRA x 100 tokens, f32": dict(shape="SmolLM2-135M", length=100, batch=2, keys="--dtype float32"),
    "135M in full x 100 tokens, f32": dict(shape="SmolLM2-135M", length=100, batch=2,
                                           keys="--dtype float32 --finetuning_type full"),
    "135M in full, f32": dict(shape="SmolLM2-135M", length=250, batch=8, keys="--dtype float32 --finetuning_type full"),
    "135M in full, bf16": dict(shape="SmolLM2-135M", length=250, batch=8,
                               keys="--dtype bfloat16 --finetuning_type full"),
    "135M in full, micro-batches of 500, f32": dict(
        shape="SmolLM2-135M", length=250, batch=8,
        keys="--dtype float32 --finetuning_type full --max_tokens_per_micro_batch 500"),
    "0.5B LoRA, 512 tokens, f32": dict(shape="Qwen2.5-0.5B", length=512, batch=1, keys="--dtype float32"),
    "0.5B LoRA, 2 × 512 tokens, bf16": dict(shape="Qwen2.5-0.5B", length=512, batch=2, keys="--dtype bfloat16"),
    "0.5B LoRA, 2,048 tokens, checkpointing, bf16": dict(shape="Qwen2.5-0.5B", length=2048, batch=1,
                                                         keys="--dtype bfloat16 --gradient_checkpointing"),
}


def trained(args, keys, ranks, steps):
    """training_metrics.json of a run, and its lines of the log that have a loss."""
    out = os.path.join(args.work, "run")
    shutil.rmtree(out, ignore_errors=True)
    start = [args.lora, "launch", "--nproc_per_node", str(ranks), "train"] if ranks > 1 else [args.lora, "train"]
    peft.command([*start, *keys, "--max_steps", str(steps), "--output_dir", out, "--logging_steps", "1",
                  "--save_steps", "0"])
    with open(os.path.join(out, "training_metrics.json")) as file:
        metrics = json.load(file)
    return metrics, [line for line in peft.read_lines(os.path.join(out, "trainer_log.jsonl")) if "loss" in line]


def run_row(args, row, ranks, zero_stage):
    shape = peft.SHAPES[row["shape"]]
    model, data = os.path.join(args.work, row["shape"]), os.path.join(args.work, "data.jsonl")
    peft.make_model(model, shape)
    rng = random.Random(3)
    with open(data, "w") as file:
        for _ in range(args.steps * row["batch"] * ranks):
            ids = [rng.randrange(shape["vocab_size"]) for _ in range(row["length"])]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    keys = ["--model_name_or_path", model, "--dataset", data, "--cutoff_len", "1000000", "--per_device_train_batch_size",
            str(row["batch"]), "--gradient_accumulation_steps", "1", "--zero_stage", str(zero_stage), *row["keys"].split()]
    # A forecast that does not fit exits with 1.
    plan = json.loads(subprocess.run([args.lora, "plan", *keys, "--devices", str(ranks), "--json"],
                                     stdout=subprocess.PIPE).stdout)
    metrics, steps = trained(args, keys, ranks, args.steps)
    of_ranks = metrics.get("ranks", [metrics])
    row = {"memory": (plan["ranks"][0]["device_gib"]["total"], max(rank["peak_memory_gib"] for rank in of_ranks)),
           "seconds": (plan["step"]["seconds"],
                       statistics.median(line["tokens"] / line["tokens_per_second"] for line in steps[peft.NOT_TIMED:])),
           "sent": None}
    if ranks > 1:  # the steps by which one run is longer than another
        fewer = trained(args, keys, ranks, 1)[0]["ranks"]
        sent = max((a["sent_bytes"] - b["sent_bytes"]) / (args.steps - 1) for a, b in zip(of_ranks, fewer))
        row["sent"] = sum(one["bytes_per_step"] for one in plan["communication"]), sent
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", default="", help="those whose names hold one of these, comma-separated")
    parser.add_argument("--ranks", default="1", help="numbers of processes, comma-separated")
    parser.add_argument("--zero_stage", default="0", help="comma-separated; a single process has 0 alone")
    parser.add_argument("--memory_alone", action="store_true", help="on a busy machine: the time decides nothing")
    parser.add_argument("--work", default="build/plan_against_runs")
    args = parser.parse_args()
    if args.steps <= peft.NOT_TIMED:
        parser.error(f"at least {peft.NOT_TIMED + 1} steps")
    os.makedirs(args.work, exist_ok=True)
    print("| run | processes, zero_stage | GiB: plan | peak | ratio | s a step: plan | measured | ratio | bytes sent a step: "
          "plan | counted |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    off = 0
    for name, row in ROWS.items():
        if args.rows and not any(part in name for part in args.rows.split(",")):
            continue
        for ranks in map(int, args.ranks.split(",")):
            for zero_stage in map(int, args.zero_stage.split(",")):
                if ranks == 1 and zero_stage > 0:
                    continue
                figures = run_row(args, row, ranks, zero_stage)
                (planned, peak), (expected, seconds) = figures["memory"], figures["seconds"]
                sent = figures["sent"]
                print(f"| {name} | {ranks}, {zero_stage} | {planned:.3f} | {peak:.3f} | {planned / peak:.3f} | "
                      f"{expected:.2f} | {seconds:.2f} | {expected / seconds:.3f} | "
                      + (f"{sent[0]:,.0f} | {sent[1]:,.0f} |" if sent else "– | – |"), flush=True)
                off += abs(planned / peak - 1) > 0.05 or (sent is not None and sent[0] != sent[1])
                off += not args.memory_alone and abs(expected / seconds - 1) > 0.25
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
