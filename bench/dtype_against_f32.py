#!/usr/bin/env python3
"""Runs `lora train` twice, in float32 and in another type, and compares the loss curves.

  bench/dtype_against_f32.py MODEL DATASET [--dtype float16] [--steps N] [--lora PROGRAM] [--out FILE.json]
                             [-- more keys of train]

Prints the worst and the mean relative difference of a step's loss, and of the mean over the last tenth of the steps.
Both runs start from the same seed, so that they see the same records in the same order. Steps that float16 skipped,
since their gradient overflowed, count with their loss.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def losses(args, dtype, folder):
    out = os.path.join(folder, dtype)
    words = [args.lora, "train", "--model_name_or_path", args.model, "--dataset", args.dataset, "--output_dir", out,
             "--dtype", dtype, "--max_steps", str(args.steps), "--logging_steps", "1"] + args.keys
    subprocess.run(words, check=True)
    with open(os.path.join(out, "trainer_log.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("model")
    parser.add_argument("dataset")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lora", default=os.path.join(root, "build/release/bin/lora"))
    parser.add_argument("--out", help="a JSON file for both curves")
    words = sys.argv[1:]
    own, keys = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    args = parser.parse_args(own)
    args.keys = keys

    with tempfile.TemporaryDirectory(prefix="dtype-against-f32-") as folder:
        exact, narrow = (losses(args, dtype, folder) for dtype in ("float32", args.dtype))
    if exact.keys() != narrow.keys():
        raise SystemExit("the two runs logged different steps")
    steps = sorted(exact)
    apart = [abs(narrow[s] - exact[s]) / abs(exact[s]) for s in steps]
    tail = steps[-max(1, len(steps) // 10):]
    means = [sum(curve[s] for s in tail) / len(tail) for curve in (exact, narrow)]
    result = dict(steps=len(steps), worst=max(apart), mean=sum(apart) / len(apart),
                  last_tenth=abs(means[1] - means[0]) / abs(means[0]), float32_last_tenth=means[0],
                  narrow_last_tenth=means[1])
    print(f"{result['steps']} steps: worst relative difference {result['worst']:.2e} (step "
          f"{steps[apart.index(result['worst'])]}), mean {result['mean']:.2e}; mean loss of the last {len(tail)} steps "
          f"{means[0]:.5f} in float32, {means[1]:.5f} in {args.dtype} ({100 * result['last_tenth']:.2f} % apart)")
    if args.out:
        with open(args.out, "w") as file:
            json.dump(dict(result, float32=[exact[s] for s in steps], **{args.dtype: [narrow[s] for s in steps]}), file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
