#!/usr/bin/env python3
"""Attacks the program with damaged files: every kind of file that a stranger may have made, against every command.

    tests/scripts/attack.py build/dev/bin/lora                        2000 cases
    tests/scripts/attack.py PROGRAM --cases 20000 --seed 7
    tests/scripts/attack.py PROGRAM --seed 7 --case 1234              one of them again, its folder kept

Each case takes sound inputs, damages one file (bits, bytes and pieces of it; numbers, types and keys of its JSON; or what
it is: a link to a device, a pipe, a folder) and runs a command on them. Whatever the file holds, the program must end by
itself, in time, with 0, 1 or 2; say what is wrong in one line of printable text; leave its inputs as they were and
nothing half-written; and where it succeeds its results must be finite numbers. A case is a function of the seed and its
number. The folder of a failed case is kept and its command printed.
"""

import argparse
import copy
import concurrent.futures
import gzip
import hashlib
import json
import math
import os
import random
import re
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "fixtures"
MIB = 1 << 20

# ---- Sound inputs -----------------------------------------------------------------------------------------------------

VOCABULARY, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 272, 16, 32, 2, 4, 2, 4
TURN_MARKERS = ["<|im_start|>", "<|im_end|>"]
TOOL_MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
PROJECTIONS = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (FFN, HIDDEN),
    "mlp.up_proj": (FFN, HIDDEN),
    "mlp.down_proj": (HIDDEN, FFN),
}


def zstandard(data):
    """A frame of raw blocks, without a library. RFC 8878, section 3.1.1."""
    blocks = b"".join(struct.pack("<I", (i + 5 >= len(data)) | min(5, len(data) - i) << 3)[:3] + data[i:i + 5]
                      for i in range(0, len(data), 5))
    return b"\x28\xb5\x2f\xfd" + bytes([0xa0]) + struct.pack("<I", len(data)) + blocks


def model_tensors(vocabulary, qk_norm=True):
    """Names and shapes of a tiny model."""
    tensors = {"model.embed_tokens.weight": (vocabulary, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, shape in PROJECTIONS.items():
            tensors[prefix + name + ".weight"] = shape
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[prefix + name + ".weight"] = (HIDDEN,)
        if qk_norm:
            for name in ("q_norm", "k_norm"):
                tensors[prefix + "self_attn." + name + ".weight"] = (HEAD_DIM,)
    tensors["lm_head.weight"] = (vocabulary, HIDDEN)
    return tensors


def floats(rng, shape):
    count = math.prod(shape)
    if len(shape) == 1:
        return struct.pack(f"<{count}f", *[1 + 0.1 * rng.uniform(-1, 1) for _ in range(count)])
    return struct.pack(f"<{count}f", *[rng.uniform(-0.2, 0.2) for _ in range(count)])


def safetensors(tensors):
    """The bytes of a file with these tensors: name -> (shape, bytes), all float32."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values())


def byte_letters():
    """The letters by which byte-level vocabularies write the 256 bytes."""
    letters, more = [], 256
    for byte in range(256):
        plain = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        letters.append(chr(byte) if plain else chr(more))
        more += not plain
    return letters


def tokenizer_json():
    letters = byte_letters()
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab.update({"th": 256, "the": 257})
    added = [{"id": 258 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": text in TURN_MARKERS} for i, text in enumerate(TURN_MARKERS + TOOL_MARKERS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"}, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": ["t h", "th e"]}}


def config_json(vocabulary, **more):
    return {"model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": HIDDEN, "intermediate_size": FFN,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False, "eos_token_id": [259], "bos_token_id": 258, "torch_dtype": "float32",
            "rope_theta": 10000.0, **more}


def gguf(tokenizer):
    """A GGUF file: qwen3 with a byte-level vocabulary, or llama with one of scored pieces."""
    rng = random.Random("gguf")
    pieces = tokenizer == "llama"
    arch = "llama" if pieces else "qwen3"

    def text(value):
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    def item(kind, value):
        return {"u32": lambda: struct.pack("<I", value), "i32": lambda: struct.pack("<i", value),
                "f32": lambda: struct.pack("<f", value), "str": lambda: text(value)}[kind]()

    numbers = {"u32": 4, "i32": 5, "f32": 6, "str": 8}
    pairs = []

    def add(key, kind, value):
        if isinstance(value, list):
            body = struct.pack("<IIQ", 9, numbers[kind], len(value)) + b"".join(item(kind, v) for v in value)
        else:
            body = struct.pack("<I", numbers[kind]) + item(kind, value)
        pairs.append(text(key) + body)

    if pieces:
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", "t", "h", "e", "the"]
        tokens += TURN_MARKERS
        kinds = [2, 3, 3] + [6] * 256 + [1] * 5 + [3] * 2
    else:
        tokens = byte_letters() + ["th", "the", *TURN_MARKERS]
        kinds = [1] * 258 + [3] * 2
    add("general.architecture", "str", arch)
    for key, value in {"embedding_length": HIDDEN, "feed_forward_length": FFN, "block_count": LAYERS,
                       "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
                       "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
                       "context_length": 2048}.items():
        add(f"{arch}.{key}", "u32", value)
    add(f"{arch}.attention.layer_norm_rms_epsilon", "f32", 1e-6)
    add(f"{arch}.rope.freq_base", "f32", 10000.0)
    add("tokenizer.ggml.model", "str", "llama" if pieces else "gpt2")
    if not pieces:
        add("tokenizer.ggml.pre", "str", "qwen2")
        add("tokenizer.ggml.merges", "str", ["t h", "th e"])
    else:
        add("tokenizer.ggml.scores", "f32", [-float(i) for i in range(len(tokens))])
    add("tokenizer.ggml.tokens", "str", tokens)
    add("tokenizer.ggml.token_type", "i32", kinds)
    add("tokenizer.ggml.eos_token_id", "u32", 2 if pieces else 259)

    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    table, data = b"", b""
    for name, shape in model_tensors(len(tokens), qk_norm=not pieces).items():
        for old, new in names.items():
            name = name.replace(old + ".", new + ".")
        name = name.replace("model.layers.", "blk.")
        values = floats(rng, shape)
        kind = 0
        if name.endswith("ffn_down.weight"):  # one of them in blocks of 32
            kind = 8
            numbers_of = struct.unpack(f"<{len(values) // 4}f", values)
            values = b""
            for begin in range(0, len(numbers_of), 32):
                block = numbers_of[begin:begin + 32]
                scale = max(abs(v) for v in block) / 127
                values += struct.pack("<e32b", scale, *[round(v / scale) for v in block])
        table += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        table += struct.pack("<IQ", kind, len(data))
        data += values + bytes(-len(values) % 32)
    count = len(model_tensors(len(tokens), qk_norm=not pieces))
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) + table
    return head + bytes(-len(head) % 32) + data


def write_inputs(folder, program):
    """All sound inputs, under `folder`."""
    rng = random.Random("inputs")

    def put(path, content):
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, (dict, list)):
            content = json.dumps(content, indent=1)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def tensors(shapes):
        return {name: (shape, floats(rng, shape)) for name, shape in shapes.items()}

    put("model/config.json", config_json(VOCABULARY))
    weights = tensors(model_tensors(VOCABULARY))
    put("model/model.safetensors", safetensors(weights))
    put("model/tokenizer.json", tokenizer_json())
    put("model/tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": {"content": "<|im_end|>"},
        "add_bos_token": False,
        "added_tokens_decoder": {"266": {"content": "<tool>", "special": True, "normalized": False}}})
    put("model/generation_config.json", {"eos_token_id": [259], "temperature": 0.5})
    put("model/chat_template.jinja", "{{ messages }}")

    # The same in shards, with rotary settings of the older spelling.
    shutil.copytree(folder / "model", folder / "shards")
    (folder / "shards/model.safetensors").unlink()
    put("shards/config.json", config_json(VOCABULARY, rope_scaling={
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}))
    names = list(weights)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for part, held in parts.items():
        put(f"shards/{part}", safetensors({name: weights[name] for name in held}))
    put("shards/model.safetensors.index.json", {
        "metadata": {"total_size": sum(len(data) for _, data in weights.values())},
        "weight_map": {name: part for part, held in parts.items() for name in held}})

    pieces = (DATA / "tokenizers/pieces_unigram.model").read_bytes()
    put("pieces/tokenizer.model", pieces)
    put("pieces/tokenizer_config.json", {"add_bos_token": True, "chat_template": "x",
                                         "additional_special_tokens": TURN_MARKERS + TOOL_MARKERS})
    put("pieces/config.json", config_json(1024, eos_token_id=2, bos_token_id=1))
    put("pieces/model.safetensors", safetensors(tensors(model_tensors(1024))))
    put("bytes.gguf", gguf("gpt2"))
    put("pieces.gguf", gguf("llama"))

    put("adapter/adapter_config.json", {
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "lora_dropout": 0.0, "bias": "none", "task_type": "CAUSAL_LM",
        "target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 3}, "alpha_pattern": {"q_proj": 2.5}})
    shapes = {}
    for layer in range(LAYERS):
        for name, rank in (("self_attn.q_proj", 2), ("mlp.down_proj", 3)):
            out, width = PROJECTIONS[name]
            prefix = f"base_model.model.model.layers.{layer}.{name}.lora_"
            shapes[prefix + "A.weight"], shapes[prefix + "B.weight"] = (rank, width), (out, rank)
    put("adapter/adapter_model.safetensors", safetensors(tensors(shapes)))

    put("alpaca.json", [{"instruction": f"What is {i}?", "input": "the \u00e9t\u00e9" if i % 2 else "",
                         "output": f"The answer {i}."} for i in range(4)])
    put("messages.jsonl", "".join(json.dumps({"messages": [
        {"role": "system", "content": "Short."}, {"role": "user", "content": f"the {i}"},
        {"role": "assistant", "content": "the end"}]}) + "\n" for i in range(4)))
    put("sharegpt.json", [{"conversations": [{"from": "human", "value": "the"}, {"from": "gpt", "value": "end"}]}] * 3)
    put("text.txt", "the first line\n\nthe second \u4e2d line\n")
    put("text.jsonl", '{"text": "the first"}\n{"text": "the second"}\n')
    put("tokens.jsonl", "".join(json.dumps({"input_ids": list(range(i, i + 9)), "labels": [-100] * 3 + list(range(6))}) +
                                "\n" for i in range(6)))
    function = {"name": "look", "arguments": {"at": [1.5, "\u00e9"], "n": None}}
    put("calls.jsonl", "".join(json.dumps({
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"at": {"type": "array"}}}}],
        "messages": [{"role": "user", "content": f"the {i}"},
                     {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]},
                     {"role": "tool", "content": "seen"}, {"role": "assistant", "content": "the end"}]}) + "\n"
        for i in range(3)))
    put("table.csv", "".join(f'"What is ""{i}""?",the end,{i % 2},\n' if i else "prompt,completion,weight,system\n"
                             for i in range(5)))
    turns = json.dumps([{"role": "user", "content": "the, or"}, {"role": "assistant", "content": "the end"}])
    put("turns.tsv", "messages\ttools\r\n" + ('"' + turns.replace('"', '""') + '"\t[]\r\n') * 3)
    put("text.csv.gz", gzip.compress(b"text;level\n\"the\nfirst\";1\nthe second;2\n", mtime=0))
    put("packed.jsonl.gz", gzip.compress((folder / "messages.jsonl").read_bytes(), mtime=0))
    put("text.txt.zst", zstandard((folder / "text.txt").read_bytes()))
    put("run.json", {"lora_rank": 2, "lora_alpha": 4, "lora_target": ["q_proj", "v_proj"], "learning_rate": 1e-3,
                     "cutoff_len": 64, "warmup_ratio": 0.5, "lr_scheduler_type": "cosine", "seed": 3, "shuffle": True,
                     "val_size": 0, "save_total_limit": 1, "weight_decay": 0.1, "max_grad_norm": 1.0,
                     "gradient_accumulation_steps": 2, "text_column": "text", "logging_steps": 1})
    command = [program, *COMMANDS["train"](Inputs(folder)), "--output_dir", str(folder / "run")]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


# ---- Commands ---------------------------------------------------------------------------------------------------------

class Inputs:
    """Where a case's inputs lie."""

    def __init__(self, folder, model="model", adapter=None, data="alpaca.json", config=None):
        self.folder, self.model, self.adapter, self.data, self.config = folder, model, adapter, data, config

    def base(self, command):
        words = [command, "--model_name_or_path", str(self.folder / self.model)]
        if command != "tokenize":
            words += ["--threads", "1"]
            if self.adapter:
                words += ["--adapter_name_or_path", str(self.folder / self.adapter)]
        if self.config:
            words += ["--config", str(self.folder / self.config)]
        return words


def with_template(words, inputs=None):
    """`inputs`: whose data the command reads. Texts and tokens go through no template, and the key is refused there."""
    is_plain = inputs and inputs.data.split(".")[0] in ("text", "tokens")
    return words if is_plain else words + ["--template", "qwen3" if inputs and inputs.data == "calls.jsonl" else "chatml"]


def cutoff(inputs):
    """What stands before the first answer of a conversation with tools is long."""
    return ["--cutoff_len", "2048" if inputs.data == "calls.jsonl" else "64"]


def train(inputs):
    words = with_template(inputs.base("train"), inputs) + ["--dataset", str(inputs.folder / inputs.data),
                                                           "--max_steps", "2", "--save_steps", "1"]
    if inputs.adapter or inputs.config:
        return words  # which say the rest
    return words + ["--lora_rank", "2", "--logging_steps", "1", *cutoff(inputs)]


COMMANDS = {
    "train": train,
    "resume": lambda i: train(i) + ["--resume_from_checkpoint", "auto"],
    "eval": lambda i: with_template(i.base("eval"), i) + ["--dataset", str(i.folder / i.data), *cutoff(i)],
    "generate": lambda i: with_template(i.base("generate")) + ["--prompt", "the \u00e9", "--max_new_tokens", "4"],
    "answer": lambda i: with_template(i.base("generate"), i) + ["--dataset", str(i.folder / i.data),
                                                                "--max_new_tokens", "3", "--stop", "zz"],
    "merge": lambda i: i.base("merge") + ([] if i.adapter else ["--adapter_name_or_path", str(i.folder / "adapter")]),
    "tokenize": lambda i: i.base("tokenize") + ["--text", "the \u00e9t\u00e9 <|im_end|> \u4e2d"],
    "tokenize_file": lambda i: with_template(i.base("tokenize"), i) + ["--file", str(i.folder / i.data)],
    "preview": lambda i: with_template(i.base("train"), i) + ["--dataset", str(i.folder / i.data), "--preview", "2",
                                                              "--output_dir", "none"],
}

MODEL_COMMANDS = ["eval", "generate", "merge", "train", "tokenize", "answer"]
TEXT_COMMANDS = ["generate", "tokenize", "tokenize_file", "eval", "preview"]
DATA_COMMANDS = ["train", "eval", "answer", "tokenize_file", "preview"]

# What is damaged: (name, the file, how the inputs are used, the commands), each as often as it stands here.
TARGETS = (
    [("config", "model/config.json", {}, MODEL_COMMANDS)] * 4 +
    [("safetensors", "model/model.safetensors", {}, MODEL_COMMANDS)] * 4 +
    [("config", "shards/config.json", {"model": "shards"}, MODEL_COMMANDS)] * 2 +
    [("index", "shards/model.safetensors.index.json", {"model": "shards"}, ["eval", "merge", "generate"])] * 2 +
    [("shard", "shards/model-00002-of-00002.safetensors", {"model": "shards"}, ["eval", "merge"])] +
    [("tokenizer.json", "model/tokenizer.json", {}, TEXT_COMMANDS)] * 4 +
    [("tokenizer.model", "pieces/tokenizer.model", {"model": "pieces"}, TEXT_COMMANDS)] * 4 +
    [("tokenizer_config", "model/tokenizer_config.json", {}, TEXT_COMMANDS)] * 2 +
    [("tokenizer_config", "pieces/tokenizer_config.json", {"model": "pieces"}, TEXT_COMMANDS)] +
    [("generation_config", "model/generation_config.json", {}, ["generate", "merge", "answer"])] +
    [("chat_template", "model/chat_template.jinja", {}, TEXT_COMMANDS)] +
    [("gguf", "bytes.gguf", {"model": "bytes.gguf"}, MODEL_COMMANDS)] * 4 +
    [("gguf", "pieces.gguf", {"model": "pieces.gguf"}, MODEL_COMMANDS)] * 4 +
    [("data", name, {"data": name}, DATA_COMMANDS)
     for name in ("alpaca.json", "messages.jsonl", "sharegpt.json", "text.txt", "text.jsonl", "tokens.jsonl",
                  "calls.jsonl", "calls.jsonl", "packed.jsonl.gz", "text.txt.zst", "table.csv", "table.csv", "turns.tsv", "text.csv.gz")] +
    [("adapter_config", "adapter/adapter_config.json", {"adapter": "adapter"},
      ["eval", "generate", "merge", "train"])] * 3 +
    [("adapter", "adapter/adapter_model.safetensors", {"adapter": "adapter"}, ["eval", "generate", "merge", "train"])] * 2 +
    [("run config", "run.json", {"config": "run.json"}, ["train", "eval", "generate"])] * 3 +
    [("checkpoint", f"run/checkpoints/checkpoint-1/{name}", {}, ["resume"])
     for name in ("trainer_state.json", "adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors")] +
    [("log", "run/trainer_log.jsonl", {}, ["resume"])])

# Keys whose large values are work that was asked for.
COSTLY = {"lora_rank", "cutoff_len", "gradient_accumulation_steps", "max_new_tokens", "threads", "num_train_epochs"}

# ---- Damage -----------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 2, 3, 255, 65536, 2**31 - 1, 2**31, -2**31, 2**53, 2**63 - 1, 2**64, -2**63, 0.5, -0.0, 1e-320, 1e38,
           3e38, 1e39, 1e308, -1e308]
VALUES = [None, True, False, "", "x", "\x1b[2J\u009b31m\u202e", "a" * 70000, "\ud800", "../../etc/passwd", [], {}, [[]],
          [None], ["x"], [1, 2, 3], {"a": 1}, {"content": 1}]


def damage_bytes(rng, content):
    """Bits, bytes and pieces; what is at the beginning of a file more often than the rest."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not content:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
        at = rng.randrange(min(len(content), 1024) if rng.random() < 0.5 else len(content))
        length = rng.choice([1, 2, 4, 8, 64, 1000])
        kind = rng.randrange(10)
        if kind == 0:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[at] = rng.randrange(256)
        elif kind == 2:
            del content[at:at + length]
        elif kind == 3:
            other = rng.randrange(len(content))
            content[at:at] = content[other:other + length]
        elif kind == 4:
            del content[at:]
        elif kind == 5:
            content[at:at + length] = bytes(min(length, len(content) - at))
        elif kind == 6:
            word = rng.choice([struct.pack("<I", rng.choice([0, 2**31, 2**32 - 1, 2**24, 7])),
                               struct.pack("<Q", rng.choice([0, 2**63, 2**64 - 1, 2**40, 2**32])),
                               struct.pack("<f", rng.choice([math.nan, math.inf, -math.inf, 3e38, 1e-40]))])
            content[at:at + len(word)] = word
        elif kind == 7:
            content[at:at] = bytes(rng.randrange(256) for _ in range(length))
        elif kind == 8:
            content[at:at] = rng.choice([b"\x00", b"\xff", b"\xed\xa0\x80", b"\r", b"\n", b"\x1b]0;x\x07", b'"', b"{", b"}"])
        else:
            content += rng.choice([b"\x00", b"\n\n", b"{}", bytes(1000), b"\xef\xbb\xbf"])
    return bytes(content)


def damage_table(rng, content):
    """What makes rows and cells, put anywhere or taken away; a row or a cell of another."""
    lines = content.splitlines(keepends=True)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(lines))
        line, place = lines[at], rng.randrange(len(lines[at]) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            lines[at] = line[:place] + rng.choice([b'"', b'""', b",", b"\t", b";", b"\n", b"\r", b"\r\n"]) + line[place:]
        elif kind == 1:
            lines[at] = line.replace(rng.choice([b'"', b",", b"\t", b"\n", b"\r"]), b"", rng.choice([1, -1]))
        elif kind == 2:
            lines[at] = lines[rng.randrange(len(lines))]
        elif kind == 3:
            lines[at] = line * rng.choice([0, 2, 50])
        else:
            word = rng.choice([b"messages", b"input_ids", b"chosen", b"label", b"[]", b"[1]", b"null", b"-1", b"1e400"])
            lines[at] = line[:place] + word + line[place + len(word):]
        if not any(lines):
            return b""
        lines = [line for line in lines if line]
    return b"".join(lines)


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], path + (index,))


def damage_json(rng, value, costly=()):
    """One to three places of a JSON value changed, as text."""
    twin = None
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        all_places = list(places(value))
        path = rng.choice(all_places[:40] if rng.random() < 0.5 else all_places)
        if not path:
            if rng.random() < 0.7:
                continue
            return json.dumps(rng.choice(VALUES + NUMBERS))
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        key, kind = path[-1], rng.randrange(10)
        if kind < 4:
            small = any(step in costly for step in path)
            holder[key] = rng.choice([0, -1, 0.5, 1] if small else NUMBERS)
        elif kind < 7:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 7:
            del holder[key]
        elif isinstance(holder, list):
            holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(rng.choice([1, 2, 1000]))]
        elif kind == 8:
            holder[rng.choice(["", "x", "\x1b[31m" + key, key + " ", "a" * 70000])] = holder.pop(key)
        else:
            twin = key
    text = json.dumps(value, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)
    if twin is not None:
        text = text.replace(json.dumps(twin) + ":", json.dumps(twin) + ": 1, " + json.dumps(twin) + ":", 1)
    if rng.random() < 0.05:
        text = rng.choice([text + text, text[:-1], "[" * 5000 + text, text.replace(":", ": NaN,", 1)])
    return text


def damage_special(rng, kind, path):
    """Something that is no regular file, or an odd one. Of data all is read, however long it takes."""
    path.unlink()
    zeros = 1 << 20 if kind == "data" else 1 << 32
    what = rng.randrange(7)
    if what == 0:
        path.symlink_to("/dev/zero")
    elif what == 1:
        os.mkfifo(path)
    elif what == 2:
        path.symlink_to("nowhere")
    elif what == 3:
        path.symlink_to(path.name)
    elif what == 4:
        path.mkdir()
    elif what == 5:
        path.write_bytes(b"")
    else:
        with open(path, "wb") as file:
            file.truncate(zeros)
    return ["a device", "a pipe", "a link to nothing", "a link to itself", "a folder", "empty", "zeros"][what]


def damage_safetensors_header(rng, content):
    size = struct.unpack("<Q", content[:8])[0]
    text = damage_json(rng, json.loads(content[8:8 + size])).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + content[8 + size:]


def damage(rng, kind, path):
    """Damages a file in place; returns in words how."""
    if rng.random() < 0.03:
        return damage_special(rng, kind, path)
    content = path.read_bytes()
    suffix = path.suffix
    if suffix == ".json" and rng.random() < 0.75:
        text = damage_json(rng, json.loads(content), COSTLY if kind == "run config" else ())
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return "JSON"
    if suffix == ".jsonl" and rng.random() < 0.75:
        lines = content.splitlines()
        at = rng.randrange(len(lines))
        lines[at] = damage_json(rng, json.loads(lines[at])).encode("utf-8", "surrogatepass")
        path.write_bytes(b"\n".join(lines))
        return f"JSON of line {at + 1}"
    if suffix in (".csv", ".tsv") and rng.random() < 0.75:
        path.write_bytes(damage_table(rng, content))
        return "rows"
    if suffix == ".safetensors" and rng.random() < 0.4:
        path.write_bytes(damage_safetensors_header(rng, content))
        return "header"
    path.write_bytes(damage_bytes(rng, content))
    return "bytes"


# ---- Judgment --------------------------------------------------------------------------------------------------------

TOKENIZER_FILES = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja",
                   "special_tokens_map.json"}
OWN_NAMES = {
    "eval": re.compile(r"evaluation_results\.json|evaluation_report\.md|"
                       r"tensorboard/evaluation/events\.out\.tfevents\.lora"),
    "merge": re.compile(r"config\.json|generation_config\.json|model[-0-9of]*\.safetensors(\.index\.json)?|"
                        r"lora_merge\.json|" + "|".join(map(re.escape, sorted(TOKENIZER_FILES)))),
}
UNFINISHED = re.compile(r"\.lora-(partial|writing|replaced|removing)$|\.(tmp|temp)|~$|^\.")
PRINTABLE = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]*")


def refuse_constant(name):
    raise ValueError(f"{name} in JSON")


def finite(value):
    if isinstance(value, dict):
        return all(finite(item) for item in value.values())
    if isinstance(value, list):
        return all(finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


def finite_tensors(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    for name, entry in json.loads(content[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        raw = content[begin:end]
        if entry["dtype"] == "F32":
            numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
        elif entry["dtype"] == "F16":
            numbers = struct.unpack(f"<{len(raw) // 2}e", raw)
        elif entry["dtype"] == "BF16":
            numbers = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
        else:
            continue
        if not all(map(math.isfinite, numbers)):
            return f"{path.name}: the tensor {name} holds numbers that are not finite"
    return None


def fingerprint(folder):
    """What every name below a folder is; of regular files what they hold."""
    facts = {}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(root) / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and path.stat().st_size < 64 * MIB:
                facts[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                facts[str(path.relative_to(folder))] = stat.S_IFMT(mode)
    return facts


def judge(command, status, output, errors, out):
    """What is wrong with how a command ended, or None."""
    if status not in (0, 1, 2):
        return f"status {status}"
    try:
        text = errors.decode()
    except UnicodeDecodeError:
        return "standard error is no UTF-8"
    if not PRINTABLE.fullmatch(text):
        return "standard error holds control characters"
    lines = text.splitlines()
    if max(map(len, lines), default=0) > 5000:
        return "a line of standard error is longer than 5000 characters"
    complaints = [line for line in lines if line.startswith("error: ")]
    if len(complaints) != (status != 0) or (status != 0 and lines[-1] != complaints[0]):
        return "not one error line at the end" if status else "an error line, but status 0"
    left = {str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir()} if out.is_dir() else set()
    beside = {path.name for path in out.parent.iterdir()}
    for name in left | beside:
        if any(UNFINISHED.search(part) for part in Path(name).parts):
            return f"{name} is left"
    if command in OWN_NAMES:
        if status != 0 and left:
            return f"{sorted(left)} are left"
        strange = [name for name in left if not OWN_NAMES[command].fullmatch(name)]
        if strange:
            return f"{strange} are none of its files"
    if status != 0:
        return None
    if command.startswith("tokenize"):
        for line in output.decode().splitlines():
            if not all(isinstance(token, int) for token in json.loads(line)):
                return "not arrays of ids on standard output"
    if command in ("train", "resume"):
        names = ["training_metrics.json", "final_model/adapter_model.safetensors"]
        if not (out / names[1]).exists():
            return "no final_model"
    # Of a run that went on, its checkpoints are what was damaged.
    for path in [out / name for name in left if command != "resume" or not name.startswith("checkpoints")]:
        if path.suffix == ".json":
            if not finite(json.loads(path.read_text(), parse_constant=refuse_constant)):
                return f"{path.name} holds numbers that are not finite"
        if path.suffix == ".safetensors":
            wrong = finite_tensors(path)
            if wrong:
                return wrong
    if command == "eval":
        results = json.loads((out / "evaluation_results.json").read_text())
        if not all(isinstance(results[name], float) for name in ("loss", "perplexity")):
            return "evaluation_results.json has a loss that is no number"
    return None


class Attack:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.sound = folder / "sound"
        write_inputs(self.sound, options.program)
        self.expect_sound()

    def expect_sound(self):
        """Damage goes deep only where sound inputs pass: every command must end with 0 on them."""
        done = set()
        for _, _, use, commands in TARGETS:
            for command in commands:
                words = [self.options.program, *COMMANDS[command](Inputs(self.sound, **use))]
                if command == "resume" or str(words) in done:
                    continue
                done.add(str(words))
                out = self.folder / f"sound-{len(done)}"
                if command in ("train", "eval", "merge"):
                    words += ["--output_dir", str(out)]
                ended = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, cwd=self.folder)
                if ended.returncode != 0:
                    sys.exit(f"sound inputs fail: {' '.join(map(quoted, words))}\n{ended.stderr.decode(errors='replace')}")
                if out.is_dir():
                    shutil.rmtree(out)

    def run(self, number):
        """One case; returns the sentence that says what is wrong and the command, or None."""
        rng = random.Random(f"{self.options.seed}:{number}")
        kind, file, use, commands = rng.choice(TARGETS)
        if self.options.kind and kind != self.options.kind:
            return None
        command = rng.choice(commands)
        case = self.folder / f"case-{number}"
        inputs = case / "in"
        inputs.mkdir(parents=True)
        self.copy_inputs(inputs, file, use)
        out = case / "out"
        if command == "resume":
            (inputs / "run").rename(out)
            file = "../out/" + file.split("/", 1)[1]
        how = damage(rng, kind, inputs / file)
        words = [self.options.program, *COMMANDS[command](Inputs(inputs, **use))]
        if command in ("train", "resume", "eval", "merge"):
            words += ["--output_dir", str(out)]
        before = fingerprint(inputs)
        wrong = self.execute(command, words, case, out)
        if wrong is None and fingerprint(inputs) != before:
            wrong = "its inputs have changed"
        if wrong is None and self.options.case is None:
            shutil.rmtree(case)
            return None
        if wrong is None:
            wrong = "nothing is wrong"
        return f"case {number}: {kind} {file} ({how}), {command}: {wrong}\n  in {case}\n  {' '.join(map(quoted, words))}"

    def copy_inputs(self, target, file, use):
        wanted = {use.get("model", "model"), use.get("data", "alpaca.json"), file.split("/")[0]}
        wanted.add("adapter")
        wanted.update(value for value in (use.get("adapter"), use.get("config")) if value)
        for name in wanted:
            source = self.sound / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)

    def execute(self, command, words, case, out):
        with open(case / "stdout", "wb") as output, open(case / "stderr", "wb") as errors:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=case)
            timer = threading.Timer(self.options.seconds, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            late = not timer.is_alive()
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        if late:
            return f"it ran longer than {self.options.seconds} s"
        if usage.ru_maxrss > self.options.memory * 1024:
            return f"it took {usage.ru_maxrss // 1024} MiB"
        try:
            return judge(command, process.returncode, (case / "stdout").read_bytes(), (case / "stderr").read_bytes(), out)
        except (ValueError, KeyError, UnicodeDecodeError, OSError) as error:
            return f"its results cannot be read: {error!r}"


def quoted(word):
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--kind", help="only cases of this kind: " + ", ".join(sorted({t[0] for t in TARGETS})))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=30, help="for one case")
    parser.add_argument("--memory", type=int, default=1024, help="MiB that one case may take")
    options = parser.parse_args()
    options.program = str(Path(options.program).resolve())
    os.environ["OMP_WAIT_POLICY"] = "passive"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="lora-attack-", dir=parent))
    attack = Attack(options, folder)
    numbers = range(options.first, options.first + options.cases) if options.case is None else [options.case]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for wrong in pool.map(attack.run, numbers):
            if wrong is None:
                continue
            print(wrong, flush=True)
            failures += options.case is None
    print(f"{len(numbers)} cases, {failures} failed (seed {options.seed})")
    if failures == 0 and options.case is None:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
