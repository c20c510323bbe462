#!/usr/bin/env python3
"""Compares what `lora plan` says with what `lora train` takes, on this machine.

  bench/plan_against_runs.py [--lora build/release/bin/lora] [--steps 5] [--rows NAMES] [--ranks N] [--zero_stage S] [--work DIR]

Each row is a training; models have random weights, records random tokens. Prints the forecast of memory and of a step's
seconds beside the peak (VmHWM, mapped weights included; of several processes, started by mpirun, that of the largest) and
the median of the steps behind the first two. Exits 1 where memory is off by more than 10 % or the time by more than 25 %.
Needs Python's standard library alone.
"""
import argparse
import json
import os
import random
import shutil
import statistics
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


def run_row(args, row):
    shape = peft.SHAPES[row["shape"]]
    model, data = os.path.join(args.work, row["shape"]), os.path.join(args.work, "data.jsonl")
    peft.make_model(model, shape)
    rng = random.Random(3)
    with open(data, "w") as file:
        for _ in range(args.steps * row["batch"] * args.ranks):
            ids = [rng.randrange(shape["vocab_size"]) for _ in range(row["length"])]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    keys = ["--model_name_or_path", model, "--dataset", data, "--cutoff_len", "1000000", "--per_device_train_batch_size",
            str(row["batch"]), "--gradient_accumulation_steps", "1", "--max_steps", str(args.steps), *row["keys"].split()]
    keys += ["--zero_stage", str(args.zero_stage)]
    plan = json.loads(peft.command([args.lora, "plan", *keys, "--devices", str(args.ranks), "--json"]))
    start = ["mpirun", "--oversubscribe", "-n", str(args.ranks)] if args.ranks > 1 else []
    if start and os.geteuid() == 0:
        start.append("--allow-run-as-root")
    out = os.path.join(args.work, "run")
    shutil.rmtree(out, ignore_errors=True)
    peft.command([*start, args.lora, "train", *keys, "--output_dir", out, "--logging_steps", "1"])
    steps = [line for line in peft.read_lines(os.path.join(out, "trainer_log.jsonl")) if "loss" in line]
    with open(os.path.join(out, "training_metrics.json")) as file:
        metrics = json.load(file)
    peak = max(rank["peak_memory_gib"] for rank in metrics.get("ranks", [metrics]))
    seconds = statistics.median(line["tokens"] / line["tokens_per_second"] for line in steps[peft.NOT_TIMED:])
    return plan["ranks"][0]["device_gib"]["total"], peak, plan["step"]["seconds"], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", default="", help="those whose names hold one of these, comma-separated")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--zero_stage", type=int, default=0)
    parser.add_argument("--work", default="build/plan_against_runs")
    args = parser.parse_args()
    if args.steps <= peft.NOT_TIMED:
        parser.error(f"at least {peft.NOT_TIMED + 1} steps")
    os.makedirs(args.work, exist_ok=True)
    print("| run | GiB: plan | peak | ratio | s a step: plan | measured | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    off = 0
    for name, row in ROWS.items():
        if args.rows and not any(part in name for part in args.rows.split(",")):
            continue
        forecast, peak, planned, seconds = run_row(args, row)
        print(f"| {name} | {forecast:.2f} | {peak:.2f} | {forecast / peak:.3f} | {planned:.2f} | {seconds:.2f} | "
              f"{planned / seconds:.3f} |", flush=True)
        off += abs(forecast / peak - 1) > 0.1 or abs(planned / seconds - 1) > 0.25
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
