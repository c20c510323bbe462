#!/usr/bin/env python3
"""Writes docs/scale.md's tables: what `lora plan` says of large models on several NPUs.

  bench/scale_tables.py [--lora build/release/bin/lora] [--device_type ascend910b3]

Prints Markdown: memory of a rank, what it sends in a step, seconds of a step and tokens/s, for each model, number of NPUs
and way to share out; then how the time of a step of eight micro-batches follows the
number of NPUs: seconds, share between ranks, speed beside one NPU. Needs no model, no NPU, and Python's standard
library alone.
"""
import argparse
import json
import subprocess

GIB = 2**30
LORA = "--lora_rank 64 --lora_alpha 128 --cutoff_len 2048 --per_device_train_batch_size 1"
CHECKPOINTED = " --gradient_checkpointing"
FULL = "--finetuning_type full --cutoff_len 2048 --per_device_train_batch_size 1" + CHECKPOINTED

# Name, model, keys, (NPUs of a node, nodes), zero_stage and offload.
MEMORY = [
    ("7B LoRA", "qwen2.5-7b", LORA, [((1, 1), 0, ""), ((4, 1), 0, ""), ((4, 1), 2, ""), ((4, 1), 3, ""), ((8, 1), 0, ""),
                                     ((8, 2), 0, "")]),
    ("14B LoRA", "qwen2.5-14b", LORA, [((1, 1), 0, ""), ((4, 1), 0, ""), ((4, 1), 3, ""), ((8, 1), 0, ""), ((8, 1), 2, ""),
                                       ((8, 1), 3, ""), ((8, 2), 0, "")]),
    ("32B LoRA", "qwen2.5-32b", LORA, [((1, 1), 0, "params"), ((4, 1), 3, ""), ((8, 1), 3, ""), ((8, 2), 3, ""),
                                       ((8, 2), 3, "all")]),
    ("32B LoRA, checkpointed", "qwen2.5-32b", LORA + CHECKPOINTED, [((8, 1), 3, ""), ((8, 2), 3, ""), ((8, 2), 3, "all")]),
    ("7B in full, checkpointed", "qwen2.5-7b", FULL,
     [((1, 1), 0, "all"), ((4, 1), 3, "optimizer"), ((4, 1), 3, "all"), ((8, 1), 1, "optimizer"), ((8, 1), 2, ""),
      ((8, 1), 2, "optimizer"), ((8, 1), 3, ""), ((8, 1), 3, "optimizer"), ((8, 1), 3, "all"), ((8, 2), 3, "")]),
    ("14B in full, checkpointed", "qwen2.5-14b", FULL,
     [((8, 1), 3, "optimizer"), ((8, 1), 3, "all"), ((8, 2), 3, ""), ((8, 2), 3, "optimizer")]),
    ("32B in full, checkpointed", "qwen2.5-32b", FULL, [((8, 2), 3, "optimizer"), ((8, 2), 3, "all")]),
]
# GB of an NPU that users of other systems report, by model, number of NPUs and zero_stage.
REPORTED = {("7B LoRA", 1, 0): 28, ("7B LoRA", 4, 0): 22, ("7B LoRA", 4, 2): 28, ("7B LoRA", 4, 3): 22, ("14B LoRA", 1, 0): 45,
            ("14B LoRA", 8, 0): 51, ("14B LoRA", 8, 2): 49, ("14B LoRA", 8, 3): 31, ("32B LoRA", 16, 3, "all"): 50}
TIME = [
    ("7B LoRA, 4 x 512 tokens", "qwen2.5-7b",
     "--lora_rank 64 --cutoff_len 512 --per_device_train_batch_size 4", 0),
    ("14B LoRA, 2,048 tokens", "qwen2.5-14b", LORA, 0),
    ("32B LoRA, checkpointed, 4 x 2,048 tokens", "qwen2.5-32b",
     "--lora_rank 64 --cutoff_len 2048 --per_device_train_batch_size 4" + CHECKPOINTED, 3),
]
NPUS = [(1, 1), (4, 1), (8, 1), (8, 2), (8, 8)]


def plan(args, model, keys, npus, zero_stage, offload):
    """The forecast, or None where it is refused."""
    command = [args.lora, "plan", "--model_preset", model, "--device_type", args.device_type, *keys.split(),
               "--devices", str(npus[0]), "--nodes", str(npus[1]), "--zero_stage", str(zero_stage), "--json"]
    if offload:
        command += ["--offload", offload]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def name_of(npus):
    return f"{npus[0]}" if npus[1] == 1 else f"{npus[1]} x {npus[0]}"


def memory_table(args):
    print("| | NPUs | zero_stage, offload | GiB: weights · trained · saved · all | others | host GiB | sent GiB "
          "| s a step · tokens/s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, model, keys, ways in MEMORY:
        for npus, zero_stage, offload in ways:
            told = plan(args, model, keys, npus, zero_stage, offload)
            device, host = told["ranks"][0]["device_gib"], told["ranks"][0]["host_gib"]["total"] * npus[0]
            sent = sum(one["bytes_per_step"] for one in told["communication"]) / GIB
            step = told["step"]
            fits = "" if told["fits"] else " (does not fit)"
            others = REPORTED.get((name, npus[0] * npus[1], zero_stage, *([offload] if offload else [])))
            print(f"| {name} | {name_of(npus)} | {zero_stage}{', ' + offload if offload else ''} | "
                  f"{device['weights']:.1f} · {device['trained']:.1f} · {device['saved']:.1f} · "
                  f"{device['total']:.1f}{fits} | {f'{others / 1.0737:.0f}' if others else ''} | {f'{host:.0f}' if host else '–'} | {f'{sent:.2f}' if sent else '–'} | "
                  f"{step['seconds']:.2f} · {step['tokens_per_second']:,.0f} |")


def time_table(args):
    print("| NPUs | " + " | ".join(name for name, *_ in TIME) + " |")
    print("|---" * (1 + len(TIME)) + "|")
    first = {}
    for npus in NPUS:
        cells = []
        for name, model, keys, zero_stage in TIME:
            if npus == (1, 1) and zero_stage == 3:
                cells.append("–")
                continue
            step = plan(args, model, keys, npus, zero_stage, "")["step"]
            speed = step["tokens_per_second"]
            base = first.setdefault(name, speed / (npus[0] * npus[1]))
            cells.append(f"{step['seconds']:.2f} s · {100 * step['communication_seconds'] / step['seconds']:.0f} % · "
                         f"{speed / base:.1f} x")
        print(f"| {name_of(npus)} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--device_type", default="ascend910b3")
    args = parser.parse_args()
    memory_table(args)
    print()
    time_table(args)


if __name__ == "__main__":
    main()
