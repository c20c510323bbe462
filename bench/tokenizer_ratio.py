#!/usr/bin/env python3
"""Our tokenizer's speed over the `tokenizers` library's, both on one thread, in one run.

  bench/tokenizer_ratio.py FOLDER [--text FILE] [--rounds N] [--program build/release/bin/bench_tokenizer]

FOLDER holds tokenizer.json; the interpreter must have tokenizers. The text is cut into parts of 1000 characters; both
sides encode all parts, one after the other, in turn for so many rounds, and the best round of each counts. The default
text is the project's own documents, sources and data set. First the ids of the whole text are compared, by way of
`lora tokenize` beside the benchmark program.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def default_text():
    text = ""
    for pattern in ("docs/*.md", "README.md", "include/lora/**/*.hpp", "examples/data/*.json"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            with open(path, encoding="utf-8") as file:
                text += file.read()
    return text


def seconds_of(work, times=3):
    best = 1e30
    for _ in range(times):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def ours(program, folder, path):
    """Seconds for all parts, and to load, as the benchmark program says."""
    words = [program, folder, path, "--benchmark_filter=^(load|encode/texts_of_1000/1_threads)", "--benchmark_format=json"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    times = {entry["name"].split("/min_time")[0]: entry["real_time"] * 1e-3  # milliseconds
             for entry in json.loads(done.stdout)["benchmarks"]}
    return times["encode/texts_of_1000/1_threads"], times["load"]


def compare_ids(program, folder, text, tokenizer):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "text.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"text": text}) + "\n")
        done = subprocess.run([program, "tokenize", "--model_name_or_path", folder, "--file", path], check=True,
                              stdout=subprocess.PIPE, text=True)
    if json.loads(done.stdout) != tokenizer.encode(text, add_special_tokens=False).ids:
        raise SystemExit("the ids differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bin/bench_tokenizer"))
    args = parser.parse_args()
    import tokenizers

    tokenizer_file = os.path.join(args.folder, "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file)
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            text = file.read()
    else:
        text = default_text()
    parts = [text[at:at + 1000] for at in range(0, len(text), 1000)]
    compare_ids(os.path.join(os.path.dirname(args.program), "lora"), args.folder, text, tokenizer)
    size = len(text.encode()) * 1e-6
    best = {"lora": 1e30, "tokenizers": 1e30}
    load = {"lora": 1e30, "tokenizers": 1e30}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write(text)
        file.flush()
        for _ in range(args.rounds):
            encode_seconds, load_seconds = ours(args.program, args.folder, file.name)
            best["lora"], load["lora"] = min(best["lora"], encode_seconds), min(load["lora"], load_seconds)
            best["tokenizers"] = min(best["tokenizers"], seconds_of(
                lambda: [tokenizer.encode(part, add_special_tokens=False) for part in parts]))
            load["tokenizers"] = min(load["tokenizers"],
                                     seconds_of(lambda: tokenizers.Tokenizer.from_file(tokenizer_file), 1))
    for side in best:
        print(f"{side:12} {size / best[side]:6.2f} MB/s   loading {1e3 * load[side]:6.1f} ms")
    print(f"ratio of speed {best['tokenizers'] / best['lora']:.2f}, of loading {load['tokenizers'] / load['lora']:.2f} "
          f"(tokenizers {tokenizers.__version__})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
