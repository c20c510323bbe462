#!/usr/bin/env python3
"""Writes tests/fixtures/stories: a small random model, a tokenizer, a text, the first 20 steps in which transformers
trains the model on the text, in float64, and before it the perplexity of two data sets by its sliding window.

  tests/make/text_steps.py        needs: pip install torch transformers peft safetensors

The text is of examples/data/make_stories.py, with some lines longer than a sequence. A line is tokenized alone and ends
with the end-of-text token; a longer one is cut into blocks, each of which begins with the last token of the one before.
Sequences come in the order of the file, 8 a step; the weights that decay are those that transformers' Trainer chooses.
"""
import os
import shutil
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLE = os.path.join(os.path.dirname(TESTS), "examples", "data")
sys.path.insert(0, EXAMPLE)
from golden import load, perplexity, train, versions, write_json  # noqa: E402
from make_stories import stories  # noqa: E402

CUTOFF = 160
TRAINING = dict(steps=20, accumulation=1, micro_batch=8, learning_rate=3e-3, warmup_steps=4, schedule="cosine",
                weight_decay=0.1, max_grad_norm=1.3, beta1=0.9, beta2=0.95, epsilon=1e-8)


def blocks_of(ids):
    """Their labels are the tokens that a block adds."""
    blocks, at = [dict(input_ids=ids[:CUTOFF], labels=ids[:CUTOFF])], CUTOFF
    while at < len(ids):
        fresh = ids[at:at + CUTOFF - 1]
        blocks.append(dict(input_ids=[ids[at - 1]] + fresh, labels=[-100] + fresh))
        at += len(fresh)
    return blocks


def main():
    out = os.path.join(TESTS, "fixtures", "stories")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(EXAMPLE, "stories_model", name), out)
    torch.manual_seed(11)
    config = transformers.AutoConfig.for_model(
        "qwen3", vocab_size=640, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=0, pad_token_id=0)
    AutoModelForCausalLM.from_config(config).save_pretrained(out)
    os.remove(os.path.join(out, "generation_config.json"))
    tokenizer = AutoTokenizer.from_pretrained(out)

    lines = stories(5, 100000)
    for place in range(0, len(lines), 9):  # longer than one and two sequences
        lines[place:place + 2] = [" ".join(lines[place:place + 2])]
    sequences, used = [], 0
    for line in lines:
        if len(sequences) >= TRAINING["steps"] * TRAINING["micro_batch"]:
            break
        sequences += blocks_of(tokenizer(line)["input_ids"] + [tokenizer.eos_token_id])
        used += 1
    with open(os.path.join(out, "text.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.write("\n".join(lines[:used]) + "\n")

    model, _ = load(out)
    text = [dict(input_ids=ids, labels=ids) for ids in
            (tokenizer(line)["input_ids"] + [tokenizer.eos_token_id] for line in lines[:12])]
    prompted = [dict(input_ids=ids, labels=[-100] * (7 * i % 40) + ids[7 * i % 40:])
                for i, ids in enumerate(tokenizer(line)["input_ids"] for line in stories(6, 8000))]
    with torch.no_grad():
        both = {name: perplexity(model, data, 64) for name, data in
                (("text", text), ("prompted", prompted), ("all", text + prompted))}
    write_json(os.path.join(out, "perplexity.json"), dict(text_lines=len(text), prompted=prompted, results=both))
    steps = train(model, sequences, TRAINING)
    long_lines = sum(len(tokenizer(line)["input_ids"]) >= CUTOFF for line in lines[:used])
    write_json(os.path.join(out, "steps.json"), dict(
        versions=versions(), cutoff_len=CUTOFF, training=TRAINING, long_lines=long_lines, steps=steps))
    print(f"{used} lines, {long_lines} long, {len(sequences)} sequences, loss {steps[0]['loss']:.4f} -> "
          f"{steps[-1]['loss']:.4f}, gradient norms {[round(s['grad_norm'], 2) for s in steps]}")


if __name__ == "__main__":
    main()
