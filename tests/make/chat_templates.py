#!/usr/bin/env python3
"""Renders random conversations with transformers, for tests/data/chat_template_test.cpp to compare with.

  chat_templates.py TOKENIZERS [OUT]

The texts are those of tests/fixtures/templates: the Jinja texts as the models carry them, white space aside, NAME.jinja for
each name of the table in include/lora/data/chat/chat_template_table.hpp; a second revision of a text is NAME_v2.jinja.
TOKENIZERS is a folder with NAME/tokenizer.json for smollm2, qwen2_5 and qwen3. OUT is tests/fixtures/templates. Needs
transformers and tokenizers. The table's hashes are printed.

  chat_templates.py --header

writes those texts into include/lora/data/chat/chat_template_texts.hpp, and needs nothing.

Written, packed by zlib: conversations.jsonl, with the options of each, and NAME.jsonl, a line for each conversation:
length and hash of the rendering, the answers' bytes, for the first ones the text itself. tools.jsonl and NAME.tools.jsonl are
the same for conversations in which an assistant calls tools. NAME.labels.jsonl, a line for
each as well, without thoughts where enable_thinking is false: how many tokens the whole rendering has, CRC-32 of their ids and of the bytes at which they begin (int32
each), and first and past-the-last token of each labeled run. versions.json: what this ran with.

An answer begins after its turn's header, or after what a generation prompt puts behind the header where the turn starts
with that; it ends with the token that ends its turn. Where the rendering of a part of the
conversation is a beginning of the whole, the answer is also what follows the rendering of the turns before with a
generation prompt; the two must agree.
"""
import datetime
import json
import os
import platform
import random
import re
import struct
import sys
import zlib

if sys.argv[1:] != ["--header"]:
    import jinja2
    import tokenizers
    import transformers
    from transformers.utils.chat_template_utils import render_jinja_template

COUNT, CALLING, SHOWN = 500, 200, 8
DATES = {"llama3_1": "%d %b %Y", "llama3_2": "%d %b %Y", "smollm3": "%d %B %Y"}
THINKING = ("qwen3", "qwen3_v2", "qwen3_thinking_2507")
PLAIN = ("alpaca", "none")  # this project's own texts, without markers
CALLS = ("qwen2_5", "qwen2_5_base", "qwen3_instruct_2507") + THINKING
EMPTY = "<think>\n\n</think>\n\n"
TOKENIZERS = {"smollm2": "smollm2", "qwen2_5": "qwen2_5", "qwen3": "qwen3", "qwen3_instruct_2507": "qwen3", "qwen3_thinking_2507": "qwen3"}
BEGIN, END = "\ue000", "\ue001"  # beside the template's own special tokens; a content may hold their text, but not these

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


def value(rng, depth=0):
    """A value of an argument, or a part of a tool's description."""
    kind = rng.random()
    if depth < 3 and kind < 0.2:
        return {rng.choice(WORDS) + str(i): value(rng, depth + 1) for i in range(rng.randint(0, 3))}
    if depth < 3 and kind < 0.35:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind < 0.5:
        return rng.choice((0, 1, -7, 2**31, 2**63 - 1, -2**63, rng.randint(-999, 999)))
    if kind < 0.7:
        return rng.choice((0.0, -0.0, 1.0, 0.1, 1e-4, 1e-5, 1.5e-7, 123456.0, 1e15, 1e16, 12345678901234567.0, -2.5e-22, 1e-300, 9e18,
                           5e-324, rng.random(), rng.uniform(-1e6, 1e6)))
    if kind < 0.8:
        return rng.choice((True, False, None))
    return words(rng) + rng.choice(("", "\"quoted\"", "back\\slash", "<b>&'x'</b>", "\u0001\u001f\u007f\b\f\r\t"))


def call(rng):
    arguments = {f"arg_{i}": value(rng, 1) for i in range(rng.randint(0, 3))}
    text = rng.random() < 0.2
    function = {"name": f"tool_{rng.randint(0, 4)}", "arguments": json.dumps(arguments) if text else arguments}
    return {"type": "function", "function": function} if rng.random() < 0.6 else function


def tool(rng, number):
    function = {"name": f"tool_{number}", "description": words(rng),
                "parameters": {"type": "object", "properties": {f"arg_{i}": {"type": rng.choice(("string", "number")),
                                                                            "description": words(rng), "default": value(rng, 2)}
                                                                for i in range(rng.randint(0, 3))}, "required": []}}
    return {"type": "function", "function": function} if rng.random() < 0.8 else function


def tool_conversation(rng):
    turns = [{"role": "system", "content": words(rng) if rng.random() < 0.9 else ""}] if rng.random() < 0.5 else []
    for _ in range(rng.randint(1, 3)):
        turns.append({"role": "user", "content": words(rng)})
        while rng.random() < 0.6:
            caller = answer(rng) if rng.random() < 0.5 else {"role": "assistant", "content": rng.choice(("", "", "\n"))}
            caller["tool_calls"] = [call(rng) for _ in range(rng.randint(1, 3))]
            turns.append(caller)
            turns += [{"role": "tool", "content": json.dumps(value(rng))} for _ in caller["tool_calls"]]
        turns.append(answer(rng))
        if rng.random() < 0.2:
            turns[-1]["tool_calls"] = [call(rng)]
    prompt = rng.random() < 0.2
    if prompt:
        turns.pop()
    return {"tools": [tool(rng, i) for i in range(rng.choice((0, 1, 1, 2, 5)))], "messages": turns,
            "add_generation_prompt": prompt, "enable_thinking": rng.random() < 0.7, "date": "2026-01-01"}


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def significant_text(text):
    """As include/lora/data/chat/chat_text.hpp has it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    result, at, behind = "", 0, "start"
    while True:
        tag = re.compile(r"\{([%{#])([-+]?)").search(text, at)
        between = text[at:tag.start() if tag else len(text)]
        begins_line = behind == "start"
        if behind == "-":
            between = between.lstrip()
        elif behind in "%#" and between.startswith("\n"):
            between, begins_line = between[1:], True
        if not tag:
            return result + between
        kind, sign = tag.groups()
        if sign == "-":
            between = between.rstrip()
        elif sign == "" and kind != "{":
            line = between.rfind("\n") + 1
            if (line > 0 or begins_line) and not between[line:].strip():
                between = between[:line]
        result += between
        closing = "}}" if kind == "{" else kind + "}"
        part = "." if kind == "#" else r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\s+|."
        inside, at = "", tag.end()
        while not text.startswith((closing, "-" + closing), at):
            piece = re.compile(part, re.S).match(text, at)
            inside += " " if piece[0].isspace() else piece[0]
            at = piece.end()
        behind = "-" if text[at] == "-" else kind
        at += len(closing) + (text[at] == "-")
        if kind != "#":
            result += f"{{{kind} {inside.strip()} {closing}"


def render(text, name, record, messages, prompt, thinking):
    day = datetime.date.fromisoformat(record["date"])
    written = day.strftime(DATES.get(name, "%Y"))
    text = text.replace('strftime_now("%d %B %Y")', "date_string")  # SmolLM3 takes no date from outside
    rendered, _ = render_jinja_template([messages], tools=record.get("tools"), chat_template=text, add_generation_prompt=prompt,
                                        bos_token="<|begin_of_text|>", eos_token="</s>", enable_thinking=thinking, date_string=written)
    return rendered[0]


def refused(name, messages):
    """What the template would drop in silence is an error of the project."""
    if name in PLAIN and any(m["role"] == "tool" for m in messages):
        return True
    return name in ("smollm3", "alpaca") and any(m["role"] == "system" for m in messages[1:])


def prefix_answers(text, name, record, whole):
    """Bytes of each answer; None where an earlier turn is not rendered as it was before the later ones came."""
    spans, messages = [], record["messages"]
    end_token = "<|eot_id|>" if name.startswith("llama") else "<|im_end|>"
    end = 0
    for i, turn in enumerate(messages):
        if turn["role"] != "assistant":
            continue
        prompt = render(text, name, record, messages[:i], True, record["enable_thinking"])
        if not whole.startswith(prompt):  # what stands before a later turn, or was thought about
            prompt = prompt.removesuffix(EMPTY).removesuffix("<think>\n")
        if not whole.startswith(prompt) or len(prompt) < end:
            return None
        # A content may hold the token's text: the turn ends where the next rendering of a prefix says so.
        upto = render(text, name, record, messages[:i + 1], False, record["enable_thinking"])
        end = len(upto.rstrip("\n")) if whole.startswith(upto) else whole.index(end_token, len(prompt)) + len(end_token)
        if not whole[:end].endswith(end_token):
            return None
        spans.append([len(prompt.encode()), len(whole[:end].encode())])
    return spans


def plain_answers(text, name, record, whole):
    """Bytes of each answer of a template without markers, by marks around what its text writes of one."""
    content = "message['content'] + eos_token"
    assert text.count(content) == 1
    marked = render(text.replace(content, f"'{BEGIN}' + {content} + '{END}'"), name, record, record["messages"],
                    record["add_generation_prompt"], record["enable_thinking"])
    assert marked.replace(BEGIN, "").replace(END, "") == whole
    spans, at = [], 0
    for part in marked.split(BEGIN)[1:]:
        at = at or len(marked[:marked.index(BEGIN)].encode())
        answer, _, rest = part.partition(END)
        spans.append([at, at + len(answer.encode())])
        at += len((answer + rest).encode())
    return spans


def answers(text, name, record, whole):
    """Bytes of each answer, by marks beside the special tokens that the template itself writes."""
    if name in PLAIN:
        return plain_answers(text, name, record, whole)
    is_llama = name.startswith("llama")
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n" if is_llama else "<|im_start|>assistant\n"
    first, last = ("<|start_header_id|>", "<|eot_id|>") if is_llama else ("<|im_start|>", "<|im_end|>")
    marked_text = text.replace(first, BEGIN + first).replace(last, last + END)
    rendered = lambda *what: render(marked_text, name, record, *what)
    marked = rendered(record["messages"], record["add_generation_prompt"], record["enable_thinking"])
    assert marked.replace(BEGIN, "").replace(END, "") == whole
    prompt = rendered(record["messages"][:1], True, record["enable_thinking"])
    opening = prompt[prompt.rindex(BEGIN) + 1:].removeprefix(header)
    spans, at = [], 0
    for part in marked.split(BEGIN):
        turn, ends, _ = part.partition(END)
        if turn.startswith(header) and ends:
            answer = turn[len(header):]
            begin = len(header) + (len(opening) if answer.startswith(opening) else 0)
            spans.append([at + len(turn[:begin].encode()), at + len(turn.encode())])
        at += len(part.replace(END, "").encode())
    assert len(spans) == sum(m["role"] == "assistant" for m in record["messages"])
    assert prefix_answers(text, name, record, whole) in (None, spans)
    return spans


def learned(name, record):
    """A model that is not to think learns no thoughts."""
    if name != "qwen3" or record["enable_thinking"]:
        return record
    turns = [dict(turn) for turn in record["messages"]]
    for turn in turns:
        if turn["role"] == "assistant":
            if turn.get("reasoning_content") is None and "</think>" in turn["content"]:
                turn["content"] = turn["content"].split("</think>")[-1].lstrip("\n")
            turn["reasoning_content"] = ""
    return dict(record, messages=turns)


def labeled_runs(begins, spans):
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


def crc(numbers):
    return zlib.crc32(struct.pack(f"<{len(numbers)}i", *numbers))


def label_line(tokenizer, whole, spans):
    encoding = tokenizer.encode(whole, add_special_tokens=False)
    begins = [len(whole[:begin].encode()) for begin, _ in encoding.offsets]
    return {"tokens": len(encoding.ids), "ids": crc(encoding.ids), "places": crc(begins),
            "labeled": labeled_runs(begins, spans)}


def readable(name, record):
    """What a template knows: most have no reasoning apart from the content."""
    if name in THINKING:
        return record
    return dict(record, messages=[{k: m[k] for k in m if k != "reasoning_content"} for m in record["messages"]])


def rendering(text, name, record, number):
    whole = render(text, name, record, record["messages"], record["add_generation_prompt"], record["enable_thinking"])
    line = {"bytes": len(whole.encode()), "hash": f"{fnv(whole.encode()):016x}",
            "answers": answers(text, name, record, whole)}
    return dict(line, text=whole) if number < SHOWN else line


def write_header(folder):
    with open(os.path.join(folder, "..", "..", "..", "include", "lora", "data", "chat_template_texts.hpp"), "w",
              encoding="utf-8") as header:
        header.write("""#pragma once

// Generated by tests/make/chat_templates.py from tests/fixtures/templates. Do not edit.
// clang-format off

#include <string_view>

// The chat templates as Jinja texts: as models publish them, and for alpaca and none as this project writes them.
namespace lora::data::detail {
""")
        for path in sorted(path for path in os.listdir(folder) if path.endswith(".jinja")):
            name = path[:-len(".jinja")]
            text = open(os.path.join(folder, path), encoding="utf-8", newline="").read()
            if not name.endswith("_v2"):
                header.write(f'\ninline constexpr std::string_view {name}_text = R"jinja({text})jinja";\n')
        header.write("\n}  // namespace lora::data::detail\n")


def main():
    folder = os.path.join(os.path.dirname(__file__), "..", "fixtures", "templates")
    if sys.argv[1:] == ["--header"]:
        return write_header(folder)
    tokenizer_folder = sys.argv[1]
    out = sys.argv[2] if len(sys.argv) > 2 else folder
    rng = random.Random(5)
    records = [conversation(rng) for _ in range(COUNT)]
    write(out, "conversations.jsonl", records)
    calling = [tool_conversation(rng) for _ in range(CALLING)]
    write(out, "tools.jsonl", calling)
    versions = {"python": platform.python_version(), "jinja2": jinja2.__version__,
                "transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    for path in sorted(path for path in os.listdir(folder) if path.endswith(".jinja")):
        name = path[:-len(".jinja")]
        text = open(os.path.join(folder, path), encoding="utf-8").read()
        tokenizer = None
        if name in TOKENIZERS:
            tokenizer = tokenizers.Tokenizer.from_file(os.path.join(tokenizer_folder, TOKENIZERS[name], "tokenizer.json"))
        renderings, labels, anew = [], [], 0
        if name in CALLS:
            write(out, name + ".tools.jsonl", [rendering(text, name, readable(name, record), i)
                                               for i, record in enumerate(calling)])
        for i, record in enumerate(records):
            record = readable(name, record)
            if refused(name, record["messages"]):
                renderings.append({"refused": True})
                continue
            whole = render(text, name, record, record["messages"], record["add_generation_prompt"],
                           record["enable_thinking"])
            spans = answers(text, name, record, whole)
            anew += prefix_answers(text, name, record, whole) is None
            renderings.append(rendering(text, name, record, i))
            if tokenizer:
                record = learned(name, record)
                whole = render(text, name, record, record["messages"], record["add_generation_prompt"],
                               record["enable_thinking"])
                labels.append(label_line(tokenizer, whole, answers(text, name, record, whole)))
        write(out, name + ".jsonl", renderings)
        if labels:
            write(out, name + ".labels.jsonl", labels)
        significant = significant_text(text).encode()
        print(f"{{0x{fnv(significant):016X}u, {len(significant)}, \"{name}\"}}  an earlier turn rendered anew: {anew}, "
              f"ids of {len(labels)}")
    with open(os.path.join(out, "versions.json"), "w", encoding="utf-8") as file:
        json.dump(versions, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
