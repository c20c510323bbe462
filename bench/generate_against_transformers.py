#!/usr/bin/env python3
"""Answers the same records greedily with `lora generate` and with transformers, in turn, and compares them.

  bench/generate_against_transformers.py MODEL_FOLDER RECORDS.json [--lora build/release/bin/lora] [--count 64]
      [--max_new_tokens 128] [--batch 8] [--dtype float32] [--threads N] [--rounds 1]

RECORDS is a JSON array of {"instruction", "input"?, "output"}, or JSON lines of {"question", "answer"}. Needs torch and
transformers. transformers answers in padded batches with its cache; what is timed of it is `model.generate` alone, of
lora the whole process, with reading the model. Prints per round the seconds and the answers that are the same text.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def read_records(path, count):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    questions = []
    for record in records[:count]:
        extra = "\n" + record["input"] if record.get("input") else ""
        questions.append(record["question"] if "question" in record else record["instruction"] + extra)
    return questions


def ours(args, folder, questions):
    data, out = os.path.join(folder, "records.jsonl"), os.path.join(folder, "answers.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for question in questions:
            file.write(json.dumps({"messages": [{"role": "user", "content": question}]}) + "\n")
    words = [args.lora, "generate", "--model_name_or_path", args.model, "--dataset", data, "--output_file", out,
             "--dtype", args.dtype, "--max_new_tokens", str(args.max_new_tokens), "--temperature", "0"]
    if args.threads:
        words += ["--threads", str(args.threads)]
    begin = time.perf_counter()
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    with open(out, encoding="utf-8") as file:
        return seconds, [json.loads(line)["predict"] for line in file]


def other(args, model, tokenizer, questions):
    import torch
    prompts = [tokenizer.apply_chat_template([{"role": "user", "content": q}], tokenize=False,
                                             add_generation_prompt=True) for q in questions]
    answers, seconds, tokens = [], 0.0, 0
    for at in range(0, len(prompts), args.batch):
        batch = tokenizer(prompts[at:at + args.batch], return_tensors="pt", padding=True, add_special_tokens=False)
        begin = time.perf_counter()
        with torch.no_grad():
            out = model.generate(**batch, do_sample=False, max_new_tokens=args.max_new_tokens, num_beams=1,
                                 temperature=None, top_p=None, top_k=None)
        seconds += time.perf_counter() - begin
        new = out[:, batch["input_ids"].shape[1]:]
        tokens += int((new != tokenizer.pad_token_id).sum())
        answers += tokenizer.batch_decode(new, skip_special_tokens=True)
    return seconds, answers, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("model")
    parser.add_argument("records")
    parser.add_argument("--lora", default=os.path.join(root, "build/release/bin/lora"))
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--max_new_tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    if args.threads:
        torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    questions = read_records(args.records, args.count)
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="generate-") as folder:
            our_seconds, our_answers = ours(args, folder, questions)
        seconds, answers, tokens = other(args, model, tokenizer, questions)
        same = sum(a.strip() == b.strip() for a, b in zip(our_answers, answers))
        print(f"{len(questions)} records, {args.dtype}: lora {our_seconds:.1f} s, transformers {seconds:.1f} s "
              f"({tokens / seconds:.0f} tokens/s), {seconds / our_seconds:.2f} times; {same} answers the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
