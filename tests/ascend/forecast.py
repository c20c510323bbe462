#!/usr/bin/env python3
"""Forecasts steps of LoRA on one Ascend 910B from what ascend_steps counts: no NPU is needed, and none was asked.

  tests/ascend/forecast.py BUILD_FOLDER        prints the tables of docs/ascend_forecast.md

An operator takes the longer of its FLOPs at a share of the stated peak and its bytes at a share of the stated bandwidth;
operators run one after the other. Layers that are streamed come beside them, at the stated rate of the host's link; the
longer of both counts. Launches are made ahead of the NPU and count where they take longer than all else.
"""
import json
import subprocess
import sys

CARDS = {"910B3": 294.9e12, "910B1": 363.7e12}  # computed peaks in bfloat16, FLOP/s
CUBE = 0.7  # of the peak, what large products reach
MEMORY = 0.8 * 1.6e12  # bytes/s
LINK = 20e9  # bytes/s from the host, of PCIe 4.0 x16
LAUNCH = 15e-6  # s on the host

RUNS = [
    ("7B, 2,048 tokens", "--shape 7b"),
    ("7B, 4 × 2,048 tokens", "--shape 7b --sequences 4"),
    ("14B, 2,048 tokens", "--shape 14b"),
    ("14B, 2 × 2,048 tokens", "--shape 14b --sequences 2"),
    ("14B, 8 × 2,048, recompute", "--shape 14b --sequences 8 --recompute"),
    ("32B, 2,048 tokens, offload params", "--shape 32b --offload params --keep"),
    ("32B, 2,048, recompute, offload params", "--shape 32b --recompute --offload params --keep"),
    ("32B, 4 × 2,048, recompute, offload params", "--shape 32b --sequences 4 --recompute --offload params --keep"),
    ("32B, 8 × 2,048, recompute, offload params", "--shape 32b --sequences 8 --recompute --offload params --keep"),
    ("32B of Q8_0, 2,048, recompute", "--shape 32b --stored q8_0 --recompute"),
    ("32B of Q8_0, 4 × 2,048, recompute", "--shape 32b --stored q8_0 --sequences 4 --recompute"),
]

TOKENS = [
    ("7B", "--rank 0"),
    ("7B and an adapter of rank 64", ""),
    ("7B and an adapter, 8 sequences", "--sequences 8"),
    ("7B of Q8_0", "--rank 0 --stored q8_0"),
    ("14B", "--rank 0 --shape 14b"),
]


def counted(build, options):
    program = [f"{build}/tests/ascend/ascend_steps", *options.split(), "--operators"]
    return json.loads(subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout)


def seconds(run, peak):
    each = run["operators"].values()
    work = sum(max(one["flops"] / (CUBE * peak), one["bytes"] / MEMORY) for one in each)
    return work, max(work, run["bytes_to_device"] / LINK, run["launches"] * LAUNCH)


def main():
    print("| LoRA of rank 64 on seven targets, bfloat16 | memory GiB: weights · trained · saved · all | launches | TFLOP |"
          " from the host | " + " | ".join(f"{card}: s a step · tokens/s" for card in CARDS) + " |")
    print("|---" * (5 + len(CARDS)) + "|")
    for name, options in RUNS:
        run = counted(sys.argv[1], options)
        memory = run["memory_gib"]
        parts = " · ".join(f"{memory[part]:.1f}" for part in ("weights", "trained", "saved_for_backward", "all"))
        times = []
        for peak in CARDS.values():
            work, step = seconds(run, peak)
            bound = "" if step == work else " (link)" if step == run["bytes_to_device"] / LINK else " (launches)"
            times.append(f"{step:.2f}{bound} · {run['tokens'] / step:,.0f}")
        print(f"| {name} | {parts} | {run['launches']:,} | {run['flops'] / 1e12:,.0f} |"
              f" {run['bytes_to_device'] / 1e9:.1f} GB | " + " | ".join(times) + " |")
    print("\n| a token | launches | waits | copies to the NPU · back | bytes to the NPU · back | operators' GB |"
          " ms of launches · of operators, 910B3 |")
    print("|---" * 7 + "|")
    for name, options in TOKENS:
        run = counted(sys.argv[1], "--decode " + options)
        work = seconds(run, CARDS["910B3"])[0]
        print(f"| {name} | {run['launches']:,} | {run['waits']} | {run['copies_to_device']} · {run['copies_to_host']} |"
              f" {run['bytes_to_device']:,} · {run['bytes_to_host']:,} | {run['operator_bytes'] / 1e9:.1f} |"
              f" {1e3 * LAUNCH * run['launches']:.0f} · {1e3 * work:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
