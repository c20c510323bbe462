#!/usr/bin/env python3
"""Renders random conversations with transformers, for tests/data/chat_template_test.cpp to compare with.

  chat_templates.py TEMPLATES TOKENIZERS [OUT]

TEMPLATES is a folder of Jinja texts as the models carry them, NAME.jinja for each name of the table in
include/lora/data/chat_template.hpp; a second revision of a text is NAME_v2.jinja. TOKENIZERS is a folder with
NAME/tokenizer.json for smollm2, qwen2_5 and qwen3. OUT is tests/data/templates. Needs transformers and tokenizers. The
table's hashes are printed.

Written, packed by zlib: conversations.jsonl, with the options of each, and NAME.jsonl, a line for each conversation:
length and hash of the rendering, the answers' bytes, for the first ones the text itself. An answer begins where the
text ends that the template gives for the turns before with a generation prompt, or after an empty think block.
NAME.labels.jsonl: for conversations that end with an answer the token ids up to its end, and first and past-the-last
token of each labelled run.
"""
import datetime
import json
import os
import random
import sys
import zlib

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

COUNT, SHOWN = 500, 8
DATES = {"llama3_1": "%d %b %Y", "llama3_2": "%d %b %Y", "smollm3": "%d %B %Y"}
THINKING = ("qwen3", "qwen3_v2", "qwen3_thinking_2507")
EMPTY = "<think>\n\n</think>\n\n"

WORDS = ("the a link route of packet delay why does it node x = y + 1; print(\"hi\") 你好 世界 émigré naïve 😀 🚀 Ünïcödé "
         "\t<|im_start|> <tool_response> </tool_response> {\"a\": [1, 2]} don't 3.14 \\n /think").split(" ")
ENDS = ["", "", "", "\n", "\n\n", " ", "  \n", "\u00a0", "\u3000", "\x1f", "\u2028 "]


def words(rng, low=1, high=9):
    return rng.choice(ENDS) + " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high))) + rng.choice(ENDS)


def answer(rng):
    turn = {"role": "assistant", "content": words(rng) if rng.random() < 0.95 else ""}
    kind = rng.random()
    if kind < 0.2:
        turn["content"] = "<think>\n" + words(rng) + rng.choice(("\n", "", "\n\n")) + "</think>" + turn["content"]
    elif kind < 0.25:
        turn["content"] = "<think>\n\n</think>\n\n" + turn["content"]
    elif kind < 0.3:
        turn["content"] = words(rng) + "</think>" + words(rng) + "</think>\n" + turn["content"]
    elif kind < 0.4:
        turn["reasoning_content"] = words(rng)
    elif kind < 0.43:
        turn["reasoning_content"] = ""
    return turn


def conversation(rng):
    turns = []
    if rng.random() < 0.45:
        extra = rng.choice(("", "", "", "/no_think", "/think", "/system_override", "/system_override /no_think"))
        turns.append({"role": "system", "content": words(rng) + extra + rng.choice(ENDS)})
    for _ in range(rng.randint(1, 4)):
        user = words(rng)
        if rng.random() < 0.06:
            user = "<tool_response>" + user + "</tool_response>"
        turns.append({"role": "user", "content": user})
        while rng.random() < 0.12:
            turns.append(answer(rng))
            turns += [{"role": "tool", "content": words(rng)} for _ in range(rng.randint(1, 2))]
        turns.append(answer(rng))
    if rng.random() < 0.05:
        turns.insert(rng.randint(1, len(turns)), {"role": "system", "content": words(rng)})
    prompt = rng.random() < 0.3
    if prompt or rng.random() < 0.05:
        turns.pop()
    return {"messages": turns, "add_generation_prompt": prompt, "enable_thinking": rng.random() < 0.7,
            "date": f"{rng.randint(1999, 2031)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"}


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def render(text, name, record, messages, prompt, thinking):
    day = datetime.date.fromisoformat(record["date"])
    written = day.strftime(DATES.get(name, "%Y"))
    text = text.replace('strftime_now("%d %B %Y")', "date_string")  # SmolLM3 takes no date from outside
    rendered, _ = render_jinja_template([messages], chat_template=text, add_generation_prompt=prompt,
                                        bos_token="<|begin_of_text|>", enable_thinking=thinking, date_string=written)
    return rendered[0]


def refused(name, messages):
    """What the template would drop in silence is an error of the project."""
    return name == "smollm3" and any(m["role"] == "system" for m in messages[1:])


def answers(text, name, record, whole):
    """Bytes of each answer; None where an earlier turn is not rendered as it was before the later ones came."""
    spans, messages = [], record["messages"]
    end_token = "<|eot_id|>" if name.startswith("llama") else "<|im_end|>"
    end = 0
    for i, turn in enumerate(messages):
        if turn["role"] != "assistant":
            continue
        prompt = render(text, name, record, messages[:i], True, False)
        if not whole.startswith(prompt):
            prompt = render(text, name, record, messages[:i], True, record["enable_thinking"])
        if not whole.startswith(prompt):
            prompt = prompt.removesuffix("<think>\n")
        if not whole.startswith(prompt) or len(prompt) < end:
            return None
        if prompt.endswith("<think>\n") and whole.startswith(EMPTY, len(prompt) - len("<think>\n")):
            prompt += EMPTY[len("<think>\n"):]
        # A content may hold the token's text: the turn ends where the next rendering of a prefix says so.
        upto = render(text, name, record, messages[:i + 1], False, record["enable_thinking"])
        end = len(upto.rstrip("\n")) if whole.startswith(upto) else whole.index(end_token, len(prompt)) + len(end_token)
        if not whole[:end].endswith(end_token):
            return None
        spans.append([len(prompt.encode()), len(whole[:end].encode())])
    return spans


def labelled_runs(begins, spans):
    """Runs of tokens that begin inside an answer."""
    runs = []
    for begin, end in spans:
        inside = [i for i, at in enumerate(begins) if begin <= at < end]
        runs.append([inside[0], inside[-1] + 1])
    return runs


def write(folder, name, lines):
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    with open(os.path.join(folder, name + ".z"), "wb") as file:
        file.write(zlib.compress(text.encode(), 9))


def main():
    folder, tokenizer_folder = sys.argv[1:3]
    out = sys.argv[3] if len(sys.argv) > 3 else os.path.join(os.path.dirname(__file__), "..", "data", "templates")
    rng = random.Random(5)
    records = [conversation(rng) for _ in range(COUNT)]
    write(out, "conversations.jsonl", records)
    print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
    for path in sorted(os.listdir(folder)):
        name = path[:-len(".jinja")]
        text = open(os.path.join(folder, path), encoding="utf-8").read()
        tokenizer_file = os.path.join(tokenizer_folder, name, "tokenizer.json")
        tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file) if os.path.exists(tokenizer_file) else None
        renderings, labels = [], []
        for i, record in enumerate(records):
            if name not in THINKING:  # the other templates know no reasoning apart from the content
                record = dict(record, messages=[{k: m[k] for k in ("role", "content")} for m in record["messages"]])
            if refused(name, record["messages"]):
                renderings.append({"refused": True})
                continue
            whole = render(text, name, record, record["messages"], record["add_generation_prompt"],
                           record["enable_thinking"])
            line = {"bytes": len(whole.encode()), "hash": f"{fnv(whole.encode()):016x}"}
            spans = answers(text, name, record, whole)
            if spans is not None:
                line["answers"] = spans
            if i < SHOWN:
                line["text"] = whole
            renderings.append(line)
            if tokenizer and spans and record["messages"][-1]["role"] == "assistant":
                encoding = tokenizer.encode(whole, add_special_tokens=False)
                begins = [len(whole[:begin].encode()) for begin, _ in encoding.offsets]
                runs = labelled_runs(begins, spans)
                labels.append({"conversation": i, "ids": encoding.ids[:runs[-1][1]], "labelled": runs})
        write(out, name + ".jsonl", renderings)
        if labels:
            write(out, name + ".labels.jsonl", labels)
        normalised = " ".join(text.split()).encode()
        compared = sum("answers" in line for line in renderings)
        print(f"{{0x{fnv(normalised):016X}u, {len(normalised)}, \"{name}\"}}  answers of {compared}, ids of {len(labels)}")


if __name__ == "__main__":
    main()
