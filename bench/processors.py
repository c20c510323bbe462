#!/usr/bin/env python3
"""Tells what products of a training step lose where oneDNN may not use all of this processor's instructions.

  bench/processors.py [--bench build/release/bin/bench_lora_products] [--isa DEFAULT,AVX2,SSE41] [--filter REGEX]
      [--rounds K]

Runs the benchmark with DNNL_MAX_CPU_ISA set to each of the names in turn, K rounds of all, and prints the median
GFLOP/s of each product and what it is of the first name's. Only oneDNN is held: loops of this project stay what the
build allows, so that low-rank gradients by tiles lose nothing here. DEFAULT holds nothing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCTS = r"^frozen/f32/0.5B_(q|gate|down)/|^low_rank_(forward|backward)/f32/0.5B_(q|gate)/r(16|64)/"


def measure(bench, isa, products):
    """name -> GFLOP/s"""
    environment = dict(os.environ, DNNL_MAX_CPU_ISA=isa)
    command = [bench, "--benchmark_format=json", f"--benchmark_filter={products}"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"processors: {bench} ended with {done.returncode}")
    runs = json.loads(done.stdout)["benchmarks"]
    if not runs:
        sys.exit(f"processors: no product matches {products}")
    return {run["name"].removesuffix("/min_time:0.200/real_time"): run["GFLOP/s"] for run in runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=os.path.join(ROOT, "build/release/bin/bench_lora_products"))
    parser.add_argument("--isa", default="DEFAULT,AVX2,SSE41")
    parser.add_argument("--filter", default=PRODUCTS)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    isas = args.isa.split(",")
    found = {isa: [] for isa in isas}
    for _ in range(args.rounds):
        for isa in isas:
            found[isa].append(measure(args.bench, isa, args.filter))
    print("| product | " + " | ".join(f"{isa} GFLOP/s" + (" | share" if i else "") for i, isa in enumerate(isas)) + " |")
    print("|---" * (2 * len(isas)) + "|")
    for name in found[isas[0]][0]:
        medians = [statistics.median(run[name] for run in found[isa]) for isa in isas]
        cells = [f"{medians[0]:.0f}"] + [f"{each:.0f} | {each / medians[0]:.2f}" for each in medians[1:]]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
