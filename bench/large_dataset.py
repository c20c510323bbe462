#!/usr/bin/env python3
"""Trains on a data set that is far larger than memory should need, and on its first records, and compares the peaks.

  bench/large_dataset.py MODEL RECORDS.jsonl [--gb 10] [--kind records|texts] [--format jsonl|csv|parquet] [--folder FOLDER]
                         [--lora PROGRAM] [-- more keys of train]

The records of RECORDS.jsonl are repeated, each time with another number in front of the question, up to so many
gigabytes (10^9 bytes) of text; of kind texts they are joined to documents of 200 KB, which are cut into blocks of cutoff_len.
Of format csv and parquet (not compressed; needs Python's pyarrow) they are rows of question and answer, or of text.
Prints the peak memory of both runs as training_metrics.json has it, and how long each took to start.
"""
import argparse
import csv
import itertools
import json
import os
import subprocess
import tempfile
import time
import sys


def text_of(record):
    return " ".join(str(value) for value in record.values() if isinstance(value, str))


def batches(records, kind):
    """Without end: the records once more, each time others, or a document of them."""
    for turn in itertools.count(1):
        if kind == "records":
            yield [{"question": f"{turn}. {record['question']}", "answer": record["answer"]} for record in records]
            continue
        document, length = [f"Part {turn}."], 0
        for i in range(len(records)):
            document.append(text_of(records[(turn * 7919 + i) % len(records)]))
            length += len(document[-1])
            if length > 200_000:
                break
        yield [{"text": "\n".join(document)}]


class Lines:
    """A JSON object a line."""

    def __init__(self, path, columns):
        self.file = open(path, "w", encoding="utf-8")

    def add(self, batch):
        self.file.write("".join(json.dumps(record) + "\n" for record in batch))

    def close(self):
        self.file.close()


class Table(Lines):
    def __init__(self, path, columns):
        self.file, self.columns = open(path, "w", encoding="utf-8", newline=""), columns
        csv.writer(self.file).writerow(columns)

    def add(self, batch):
        csv.writer(self.file).writerows([row[name] for name in self.columns] for row in batch)


class Parquet:
    """Uncompressed, in groups of rows of 64 MB."""

    def __init__(self, path, columns):
        import pyarrow
        import pyarrow.parquet
        schema = pyarrow.schema([(name, pyarrow.string()) for name in columns])
        self.writer = pyarrow.parquet.ParquetWriter(path, schema, compression="NONE", use_dictionary=False)
        self.table, self.rows, self.bytes = lambda rows: pyarrow.Table.from_pylist(rows, schema), [], 0

    def add(self, batch):
        self.rows += batch
        self.bytes += sum(len(value) for row in batch for value in row.values())
        if self.bytes > 64e6:
            self.write_group()

    def write_group(self):
        self.writer.write_table(self.table(self.rows))
        self.rows, self.bytes = [], 0

    def close(self):
        self.write_group()
        self.writer.close()


WRITERS = {"jsonl": Lines, "csv": Table, "parquet": Parquet}


def write(path, records, most, kind, form):
    """Of some `most` bytes of text; returns the number of records and the file's bytes."""
    writer = WRITERS[form](path, ["question", "answer"] if kind == "records" else ["text"])
    count = size = 0
    for batch in batches(records, kind):
        writer.add(batch)
        count += len(batch)
        size += sum(len(value.encode()) for row in batch for value in row.values())
        if size >= most:
            break
    writer.close()
    return count, os.path.getsize(path)


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
    parser.add_argument("--format", choices=["jsonl", "csv", "parquet"], default="jsonl")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for the data set")
    parser.add_argument("--lora", default=os.path.join(root, "build/release/bin/lora"))
    words = sys.argv[1:]
    own, keys = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    args = parser.parse_args(own)
    with open(args.records) as file:
        records = [json.loads(line) for line in file]

    with tempfile.TemporaryDirectory(prefix="large-dataset-", dir=args.folder) as folder:
        small, large = (os.path.join(folder, f"{name}.{args.format}") for name in ("small", "large"))
        write(small, records, 1, args.kind, args.format)
        lines, size = write(large, records, args.gb * 1e9, args.kind, args.format)
        before, _ = run(args, small, os.path.join(folder, "a"), keys)
        after, started = run(args, large, os.path.join(folder, "b"), keys)
    print(f"{size / 1e9:.1f} GB, {lines:,} records: peak {after:.3f} GiB, of its first records alone "
          f"{before:.3f} GiB: {1024 * (after - before):.0f} MiB more; the first step was done after {started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
