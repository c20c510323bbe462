#!/usr/bin/env python3
"""Trains on a data set that is far larger than memory should need, and on its first records, and compares the peaks.

  bench/large_dataset.py MODEL RECORDS.jsonl [--gb 10] [--kind records|texts] [--folder FOLDER] [--lora PROGRAM]
                         [-- more keys of train]

The records of RECORDS.jsonl are repeated, each time with another number in front of the question, up to so many
gigabytes (10^9 bytes); of kind texts they are joined to documents of 200 KB, which are cut into blocks of cutoff_len.
Prints the peak memory of both runs as training_metrics.json has it, and how long each took to start.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
import sys


def text_of(record):
    return " ".join(str(value) for value in record.values() if isinstance(value, str))


def write(path, records, most, kind):
    """Returns the number of lines."""
    lines, size, turn = 0, 0, 0
    with open(path, "w") as file:
        while size < most:
            turn += 1
            if kind == "texts":
                document, length = [f"Part {turn}."], 0
                for i in range(len(records)):
                    document.append(text_of(records[(turn * 7919 + i) % len(records)]))
                    length += len(document[-1])
                    if length > 200_000:
                        break
                batch = [json.dumps({"text": "\n".join(document)})]
            else:
                batch = [json.dumps({**record, "question": f"{turn}. {record['question']}"}) for record in records]
            text = "\n".join(batch) + "\n"
            file.write(text)
            size += len(text)
            lines += len(batch)
    return lines, size


def run(args, data, out, keys):
    begin = time.monotonic()
    process = subprocess.Popen([args.lora, "train", "--model_name_or_path", args.model, "--dataset", data,
                                "--output_dir", out, "--max_steps", "5", "--logging_steps", "1",
                                "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1"] + keys,
                               stderr=subprocess.PIPE, text=True)
    started = None
    for line in process.stderr:
        if started is None and "step 1/" in line:
            started = time.monotonic() - begin
    if process.wait() != 0:
        raise SystemExit(f"lora train ended with {process.returncode}")
    with open(os.path.join(out, "training_metrics.json")) as file:
        return json.load(file)["peak_memory_gib"], started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("model")
    parser.add_argument("records", help="JSON lines with question and answer")
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--kind", choices=["records", "texts"], default="records")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for the data set")
    parser.add_argument("--lora", default=os.path.join(root, "build/release/bin/lora"))
    words = sys.argv[1:]
    own, keys = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    args = parser.parse_args(own)
    with open(args.records) as file:
        records = [json.loads(line) for line in file]

    with tempfile.TemporaryDirectory(prefix="large-dataset-", dir=args.folder) as folder:
        small, large = (os.path.join(folder, name) for name in ("small.jsonl", "large.jsonl"))
        write(small, records, 1, args.kind)
        lines, size = write(large, records, args.gb * 1e9, args.kind)
        before, _ = run(args, small, os.path.join(folder, "a"), keys)
        after, started = run(args, large, os.path.join(folder, "b"), keys)
    print(f"{size / 1e9:.1f} GB, {lines:,} records: peak {after:.3f} GiB, of its first records alone "
          f"{before:.3f} GiB: {1024 * (after - before):.0f} MiB more; the first step was done after {started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
