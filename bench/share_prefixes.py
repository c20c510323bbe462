#!/usr/bin/env python3
"""How much faster training is where records begin alike, with share_prefixes.

  bench/share_prefixes.py MODEL [--lora build/release/bin/lora] [--common 1200] [--own 60,150] [--together 8]
      [--steps 4] [--rounds 2] [--threads 2]

Records of random tokens, as if of a tool-calling data set: --common tokens that all have (a list of tools), then between
--own of a conversation, of which the last half is learnt; --together of them are a micro-batch and a step. Both ways are
run in turn; a line has tokens per second of the steps after the second, peak memory, and the ratio beside its bound by
rows: how many times fewer of them are computed. MODEL: a model's folder.
"""
import argparse
import json
import os
import random
import subprocess
import tempfile


def write_records(path, args, vocabulary):
    draw = random.Random(1)
    ids = lambda count: [draw.randrange(vocabulary) for _ in range(count)]
    common, (least, most) = ids(args.common), map(int, args.own.split(","))
    with open(path, "w") as file:
        for _ in range(args.together * args.steps):
            own = ids(draw.randint(least, most))
            learnt = len(own) // 2
            labels = [-100] * (args.common + len(own) - learnt) + own[len(own) - learnt:]
            file.write(json.dumps({"input_ids": common + own, "labels": labels}) + "\n")


def run(args, folder, shares):
    out = os.path.join(folder, f"shares_{shares}")
    subprocess.run([args.lora, "train", "--model_name_or_path", args.model, "--dataset", f"{folder}/records.jsonl",
                    "--output_dir", out, "--per_device_train_batch_size", str(args.together),
                    "--gradient_accumulation_steps", "1", "--num_train_epochs", "1", "--logging_steps", "1",
                    "--save_steps", "0", "--threads", str(args.threads), "--overwrite_output_dir", "true",
                    "--share_prefixes", "true" if shares else "false"], check=True, capture_output=True)
    with open(os.path.join(out, "training_metrics.json")) as file:
        metrics = json.load(file)
    with open(os.path.join(out, "trainer_log.jsonl")) as file:
        steps = [line for line in map(json.loads, file) if "tokens" in line]
    computed = sum(step.get("computed_tokens", step["tokens"]) for step in steps)
    return {"speed": metrics["tokens_per_second"], "memory": metrics["peak_memory_gib"],
            "loss": steps[-1]["loss"], "fewer": sum(step["tokens"] for step in steps) / computed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--common", type=int, default=1200)
    parser.add_argument("--own", default="60,150")
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with open(os.path.join(args.model, "config.json")) as file:
        vocabulary = json.load(file)["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        write_records(f"{folder}/records.jsonl", args, vocabulary)
        for _ in range(args.rounds):
            apart, shared = run(args, folder, False), run(args, folder, True)
            print(f"tokens/s {apart['speed']:.0f} and {shared['speed']:.0f}, {shared['speed'] / apart['speed']:.2f} times; "
                  f"rows {shared['fewer']:.2f} times fewer; GiB {apart['memory']:.2f} and {shared['memory']:.2f}; "
                  f"last loss {apart['loss']:.6f} and {shared['loss']:.6f}", flush=True)


if __name__ == "__main__":
    main()
