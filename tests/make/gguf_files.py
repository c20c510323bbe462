#!/usr/bin/env python3
"""Writes tests/fixtures/export: what the files of `lora export` must be, byte for byte, by the gguf package.

    python tests/make/gguf_files.py [--write FOLDER]      needs gguf and numpy; FOLDER gets the files themselves

    NAME/tokenizer.json …     the files that a model folder of golden/NAME lacks for being talked to
    smollm3/                  a whole model: four layers, of which the last has no rotary embedding, in float16
    mistral/ phi3/ …          whole models whose tokenizer.json merges characters, as published ones do
    sums.json                 the FNV-1a hash of each model's file for every outtype, and of each adapter's; versions

The layout of keys is lora's own, values and tensors follow llama.cpp's convert_hf_to_gguf.py and convert_lora_to_gguf.py.
"""
import argparse
import importlib.metadata
import json
import math
import pathlib
import platform
import struct
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
OUTPUT = FIXTURES / "export"
TYPES = {"f32": (Type.F32, 0), "f16": (Type.F16, 1), "q8_0": (Type.Q8_0, 7), "bf16": (Type.BF16, 32)}
QWEN2_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_REGEX = QWEN2_REGEX.replace(r"\p{N}|", r"\p{N}{1,3}|")
MARK = "\u2581"


def turns(begin, end):
    """A template of turns between two marks."""
    return ("{% for message in messages %}{{'" + begin + "' + message['role'] + '\\n' + message['content'] + '" + end + "' + '\\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '" + begin + "assistant\\n' }}{% endif %}")


CHATML = turns("<|im_start|>", "<|im_end|>")


# Reading


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + place for place in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16, "F64": np.float64}[entry["dtype"]])
        tensors[name] = (entry["dtype"], values.reshape(entry["shape"]))
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        assert values.dtype == np.float16
        header[name] = {"dtype": "F16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# Fixtures


def alphabet():
    """The byte-level tokens of white space and printable ASCII."""
    return ["\u0120", "\u010a", *(chr(b) for b in range(33, 127))]


def added_token(id, content, special, rstrip=False):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": rstrip, "normalized": False, "special": special}


def tokenizer_json(pre_tokenizers, nfc=False, ignore_merges=False, bos=None):
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("i", "n"), ("\u0120", "a"), ("a", "n"), ("an", "d"), ("0", "0")]
    tokens = alphabet() + [a + b for a, b in merges]
    contents = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<tool_call>"]
    added = [added_token(len(tokens) + i, content, special=i < 3) for i, content in enumerate(contents)]
    ids = {token["content"]: token["id"] for token in added}
    parts = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    frame = {"type": "TemplateProcessing", "single": parts, "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}}} if bos else None
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"} if nfc else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers}, "post_processor": frame,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [list(pair) for pair in merges]}}


def merges_of(scores, has_newer_order):
    """transformers' generate_merges: before version 4.45 pieces of one score stayed in order, since then the longest parts come first."""
    ids = {token: i for i, token in enumerate(scores)}
    merges = [(score, token[:i], token[i:]) for token, score in scores.items() for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])) if has_newer_order else m[0], reverse=True)
    return [[left, right] for _, left, right in merges]


def characters(name):
    """A tokenizer.json as it is made of a sentencepiece model, and the score of each token in a GGUF file."""
    gemma, newer = name.startswith("gemma"), name == "gemma3_text"
    runs = [MARK * count for count in (2, 3, 4)]
    byte_tokens = ["\t" if name == "gemma2" and byte == 9 else f"<0x{byte:02X}>" for byte in range(256)]
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<2mass>", "<unused0>", "<start_of_turn>", "<end_of_turn>", "\n\n"] if gemma else ["<unk>", "<s>", "</s>"]
    merged = [MARK + "t", "he", "in", MARK + "a", "an", MARK + "the", "and", MARK + "in", MARK + "an", MARK + "and", "the", "th", "00"]
    single = [MARK, *"abcdefghijklmnopqrstuvwxyz0123456789,.'<>/|_[]"]
    unscored = dict.fromkeys([*first, *byte_tokens], 0.0)
    # The runs of Gemma are user-defined, of one score that is the highest; Llama's have one that is the lowest.
    scores = {token: -float(i) for i, token in enumerate([*merged, *single])}
    scores = unscored | dict.fromkeys(runs, 1.0) | scores if gemma else unscored | scores | dict.fromkeys(runs, -1e9)
    added = [added_token(i, token, special=i < 4 or "turn" in token) for i, token in enumerate(first)]
    if gemma:
        added += [added_token(list(scores).index(run), run, special=False) for run in runs]
        added += [added_token(len(scores), "<image_soft_token>", special=True)] if newer else []
    if name == "phi3":
        added[2] |= {"rstrip": True, "special": False}
        ends = ["<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"]
        added += [added_token(len(scores) + i, token, special=True, rstrip=i > 0) for i, token in enumerate(ends)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, replace]}
    bos = {"mistral": "<s>", "phi3": None}.get(name, "<bos>")
    text = {"Sequence": {"id": "A", "type_id": 0}}
    parts = [{"SpecialToken": {"id": bos, "type_id": 0}}, text] if bos else [text]
    decoders = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    json_file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": replace if gemma else prepend,
                 "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False} if gemma else None,
                 "post_processor": {"type": "TemplateProcessing", "single": parts, "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
                                    "special_tokens": {bos: {"id": bos, "ids": [first.index(bos)], "tokens": [bos]}} if bos else {}},
                 "decoder": {"type": "Sequence", "decoders": decoders if gemma else [*decoders, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                 "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": {token: i for i, token in enumerate(scores)},
                           "merges": merges_of(scores, newer)}}
    # What is merged first is first: of runs of one score the shortest or, in the newer order, the longest; then what merges make
    # of others; then what nothing makes.
    runs = runs[::-1] if newer else runs
    order = [*runs, *merged, *single] if gemma else [*merged, *runs, *single]
    return json_file, {token: -float(i) for i, token in enumerate(order)}


def words(regex):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return [split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]


DIGITS = [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
TOKENIZERS = {"qwen2": ("qwen2", tokenizer_json(words(QWEN2_REGEX), nfc=True)), "qwen3": ("qwen2", tokenizer_json(words(QWEN2_REGEX), nfc=True)),
              "llama": ("llama-bpe", tokenizer_json(words(LLAMA3_REGEX), ignore_merges=True, bos="<|endoftext|>")),
              "smollm3": ("smollm", tokenizer_json(DIGITS))}

CHARACTERS = {name: characters(name) for name in ("mistral", "phi3", "gemma2", "gemma3_text")}
# bos, eos, what pads, another end of answers, and the template
TOKENS_OF = {"mistral": ("<s>", "</s>", "</s>", None, turns("[INST] ", " [/INST]")),
             "phi3": ("<s>", "<|endoftext|>", "<|endoftext|>", "<|end|>", turns("<|user|>", "<|end|>"))}
TOKENS_OF |= dict.fromkeys(("gemma2", "gemma3_text"), ("<bos>", "<eos>", "<pad>", "<end_of_turn>", turns("<start_of_turn>", "<end_of_turn>")))
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.25, 1.5, 1.75] * 2, "long_factor": [1.0, 2.0, 4.0, 8.0] * 2,
            "original_max_position_embeddings": 256}
CONFIGS = {"mistral": {"num_hidden_layers": 2, "sliding_window": None, "rope_parameters": PLAIN},
           "phi3": {"num_hidden_layers": 2, "sliding_window": None, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE},
           "gemma2": {"num_hidden_layers": 3, "sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 7.0,
                      "rope_parameters": PLAIN, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
           "gemma3_text": {"num_hidden_layers": 7, "sliding_window": 8, "layer_types": [*["sliding_attention"] * 5, "full_attention", "sliding_attention"],
                           "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000000.0}, "sliding_attention": PLAIN}}}
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}


def write_character_model(name):
    folder = OUTPUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, _ = CHARACTERS[name]
    bos, eos, pad, end, template = TOKENS_OF[name]
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    gemma = name.startswith("gemma")
    decoder = {str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in tokenizer["added_tokens"]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "added_tokens_decoder": decoder, "bos_token": bos, "eos_token": eos, "pad_token": pad, "unk_token": "<unk>", "chat_template": template,
        "tokenizer_class": "GemmaTokenizer" if gemma else "LlamaTokenizer", "clean_up_tokenization_spaces": False}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids[token] for token in (eos, end) if token]}))
    size = 352  # more than there are tokens, but for Gemma 3, whose last one has no row, as in its smallest model
    if name == "gemma3_text":
        size = len(tokenizer["model"]["vocab"])
    config = {"model_type": name, "vocab_size": size, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
              "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": gemma,
              "bos_token_id": ids[bos], "eos_token_id": ids[eos], "pad_token_id": ids[pad], "dtype": "float16", **CONFIGS[name]}
    if gemma:
        config |= {"query_pre_attn_scalar": 16, "hidden_activation": "gelu_pytorch_tanh"}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    random = np.random.default_rng(len(name))
    shapes = {"model.embed_tokens": (size, 32)}
    for layer in range(config["num_hidden_layers"]):
        attention = {"qkv_proj": (64, 32)} if name == "phi3" else {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32)}
        mlp = {"gate_up_proj": (64, 32)} if name == "phi3" else {"gate_proj": (32, 32), "up_proj": (32, 32)}
        norms = ["input_layernorm", "post_attention_layernorm"] + (["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else [])
        norms += ["self_attn.q_norm", "self_attn.k_norm"] if name == "gemma3_text" else []
        parts = {norm: (16,) if norm.endswith(("q_norm", "k_norm")) else (32,) for norm in norms}
        parts |= {"self_attn." + part: shape for part, shape in (attention | {"o_proj": (32, 32)}).items()}
        parts |= {"mlp." + part: shape for part, shape in (mlp | {"down_proj": (32, 32)}).items()}
        shapes |= {f"model.layers.{layer}.{part}": shape for part, shape in parts.items()}
    shapes |= {"model.norm": (32,)} if gemma else {"model.norm": (32,), "lm_head": (size, 32)}
    # A wide head, so that few choices are close; of Gemma it is the embedding, beside which the layers must count.
    head = 0.4 if gemma else 1.0
    widths = {own: 0.1 if len(shape) == 1 else head if own in ("model.embed_tokens", "lm_head") else 0.2 for own, shape in shapes.items()}
    numbers = {own + ".weight": random.normal(0 if gemma or len(shape) > 1 else 1, widths[own], shape).astype(np.float16)
               for own, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", numbers)


def write_folders():
    for name in CHARACTERS:
        write_character_model(name)
    for name, (_, tokenizer) in TOKENIZERS.items():
        folder = OUTPUT / name
        folder.mkdir(parents=True, exist_ok=True)
        config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML,
                  "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        if name == "llama":
            config["bos_token"] = "<|endoftext|>"
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]]}))
    config = json.loads((FIXTURES / "golden/smollm3/config.json").read_text())
    config |= {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "dtype": "float16", "intermediate_size": 64}
    del config["layer_types"]
    (OUTPUT / "smollm3/config.json").write_text(json.dumps(config, indent=1))
    random = np.random.default_rng(7)
    shapes = {"model.embed_tokens": (256, 32)}
    for layer in range(4):
        own = f"model.layers.{layer}."
        shapes |= {own + "input_layernorm": (32,), own + "self_attn.q_proj": (32, 32), own + "self_attn.k_proj": (16, 32),
                   own + "self_attn.v_proj": (16, 32), own + "self_attn.o_proj": (32, 32), own + "post_attention_layernorm": (32,),
                   own + "mlp.gate_proj": (64, 32), own + "mlp.up_proj": (64, 32), own + "mlp.down_proj": (32, 64)}
    shapes["model.norm"] = (32,)
    numbers = {name + ".weight": (random.normal(1, 0.1, shape) if len(shape) == 1 else random.normal(0, 0.15, shape)).astype(np.float16)
               for name, shape in shapes.items()}
    write_safetensors(OUTPUT / "smollm3/model.safetensors", numbers)


# Export


def permute(values, heads):
    """LlamaModel.permute"""
    return values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def rope_factors(rope, theta, width):
    plain = [theta ** (-2.0 * i / width) for i in range(width // 2)]
    factors = []
    for frequency in plain:
        length = 2 * math.pi / frequency
        low, high = (rope["original_max_position_embeddings"] / rope[name] for name in ("low_freq_factor", "high_freq_factor"))
        smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        f = frequency
        if length > low:
            f = frequency / rope["factor"]
        elif length >= high:
            f = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
        factors.append(np.float32(frequency) / np.float32(f))
    return np.array(factors, np.float32)


def gguf_name(name, gemma=False):
    for own, theirs in (("model.embed_tokens.", "token_embd."), ("model.norm.", "output_norm."), ("lm_head.", "output."), ("model.layers.", "blk."),
                        ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_proj", "attn_q"),
                        ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"), ("self_attn.qkv_proj", "attn_qkv"),
                        ("self_attn.o_proj", "attn_output"), ("post_attention_layernorm", "post_attention_norm" if gemma else "ffn_norm"),
                        ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm"),
                        ("input_layernorm", "attn_norm"), ("mlp.gate_proj", "ffn_gate"), ("mlp.gate_up_proj", "ffn_up"), ("mlp.up_proj", "ffn_up"),
                        ("mlp.down_proj", "ffn_down")):
        name = name.replace(own, theirs)
    return name


def model_order(config):
    """The tensors' names in the order of the model."""
    names = ["model.embed_tokens.weight"]
    for layer in range(config["num_hidden_layers"]):
        parts = ["input_layernorm", *(f"self_attn.{p}" for p in ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "q_norm", "k_norm")),
                 "post_attention_layernorm", "pre_feedforward_layernorm", *(f"mlp.{p}" for p in ("gate_proj", "up_proj", "gate_up_proj", "down_proj")),
                 "post_feedforward_layernorm"]
        names += [f"model.layers.{layer}.{part}.{end}" for part in parts for end in ("weight", "bias")]
    return [*names, "model.norm.weight", "lm_head.weight"]


def heads_of(name, config):
    if config["model_type"] not in ("llama", "smollm3", "mistral"):
        return 0
    return config["num_attention_heads"] if ".q_proj" in name else config["num_key_value_heads"] if ".k_proj" in name else 0


def add_tensor(writer, name, values, kind):
    values = np.ascontiguousarray(values.astype(np.float32))
    if values.ndim == 1:
        kind = Type.F32
    if kind == Type.Q8_0 and values.shape[-1] % 32:
        kind = Type.F16
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def looks_special(token):
    return (token.startswith("<|") and token.endswith("|>")) or (token.startswith("<unused") and token.endswith(">")) or token == "<2mass>"


def add_characters(writer, name, size):
    tokenizer, scores = CHARACTERS[name]
    tokens, types, numbers = [f"[PAD{i}]" for i in range(size)], [5] * size, [-10000.0] * size
    for token, i in tokenizer["model"]["vocab"].items():
        is_byte = token == "\t" or (token.startswith("<0x") and token.endswith(">"))
        tokens[i], types[i], numbers[i] = "<0x09>" if token == "\t" else token, 6 if is_byte else 1, scores.get(token, 0.0)
    for token in tokenizer["added_tokens"]:
        i, content = token["id"], token["content"]
        if content == "<unk>":
            types[i] = 2
        elif MARK not in content and i < size:
            tokens[i], numbers[i] = content, -1000.0
            types[i] = 3 if token["special"] or looks_special(content) else 4
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    bos, eos, pad, end, template = TOKENS_OF[name]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_scores(numbers)
    writer.add_add_space_prefix(not name.startswith("gemma"))
    writer.add_unk_token_id(ids["<unk>"])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(ids[bos])
    writer.add_eos_token_id(ids[eos])
    writer.add_pad_token_id(ids[pad])
    writer.add_add_bos_token(name != "phi3")
    writer.add_add_eos_token(False)
    if end:
        writer.add_eot_token_id(ids[end])
    writer.add_chat_template(template)


def add_tokenizer(writer, name, size):
    pre, tokenizer = TOKENIZERS[name]
    tokens, types = [f"[PAD{i}]" for i in range(size)], [5] * size
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, 1
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]] = token["content"]
        types[token["id"]] = 3 if token["special"] or looks_special(token["content"]) else 4
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if name == "llama":
        writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(name == "llama")
    writer.add_add_eos_token(False)
    writer.add_eot_token_id(ids["<|endoftext|>"])
    writer.add_chat_template(CHATML)


def export_model(name, outtype, path):
    weights = OUTPUT / name if (OUTPUT / name / "config.json").exists() else FIXTURES / "golden" / name
    gemma = name.startswith("gemma")
    config = json.loads((weights / "config.json").read_text())
    tensors = read_safetensors(weights / "model.safetensors")
    kind, file_type = TYPES[outtype]
    rope = config.get("rope_parameters") or config["rope_scaling"] | {"rope_theta": config["rope_theta"]}
    window_rope = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    arch = ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if gemma or name == "phi3":
        writer.add_sliding_window(config["sliding_window"] or 0)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(rope["rope_theta"])
    if window_rope:
        writer.add_float32(f"{arch}.rope.freq_base_swa", window_rope["rope_theta"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(config["max_position_embeddings"] / original) / math.log(original)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(32.0)
        writer.add_rope_scaling_yarn_beta_slow(1.0)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    (add_characters if name in CHARACTERS else add_tokenizer)(writer, name, config["vocab_size"])
    if rope["rope_type"] == "longrope":
        for length in ("long", "short"):
            add_tensor(writer, f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32), Type.F32)
    if rope["rope_type"] == "llama3":
        add_tensor(writer, "rope_freqs.weight", rope_factors(rope, rope["rope_theta"], width), Type.F32)
    for own in model_order(config):
        if own not in tensors:
            continue
        values = tensors[own][1].astype(np.float32) + (1 if gemma and "norm" in own else 0)
        heads = heads_of(own, config)
        add_tensor(writer, gguf_name(own, gemma), permute(values, heads) if heads else values, kind)
    finish(writer)


def export_adapter(folder, model, outtype, path):
    config = json.loads((FIXTURES / "golden" / model / "config.json").read_text())
    adapter = json.loads((folder / "adapter_config.json").read_text())
    tensors = read_safetensors(folder / "adapter_model.safetensors")

    def pattern(entries, module, otherwise):
        return next((value for end, value in entries.items() if module == end or module.endswith("." + end)), otherwise)

    alpha = None
    factors = []
    for own in model_order(config):
        module, end = own.rsplit(".", 1)
        prefix = "base_model.model." + module
        if end != "weight" or prefix + ".lora_A.weight" not in tensors:
            continue
        rank = pattern(adapter["rank_pattern"] or {}, module, adapter["r"])
        scale = pattern(adapter["alpha_pattern"] or {}, module, adapter["lora_alpha"]) / (math.sqrt(rank) if adapter["use_rslora"] else rank)
        alpha = alpha or scale * rank
        for letter, own_scale in (("A", 1), ("B", scale * rank / alpha)):
            dtype, values = tensors[f"{prefix}.lora_{letter}.weight"]
            values = (values.astype(np.float64) * own_scale).astype(np.float32)
            heads = heads_of(own, config) if letter == "B" else 0
            factors.append((f"{gguf_name(own)}.lora_{letter.lower()}", permute(values, heads) if heads else values, dtype))
    kind = {"F32": Type.F32, "F16": Type.F16, "BF16": Type.BF16}[factors[0][2]] if outtype == "auto" else TYPES[outtype][0]
    writer = gguf.GGUFWriter(path, config["model_type"])
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_name(folder.name)
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, values, _ in factors:
        add_tensor(writer, name, values, kind)
    finish(writer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=pathlib.Path, help="a folder for the files themselves")
    options = parser.parse_args()
    write_folders()
    sums = {"models": {}, "adapters": {}, "versions": {"gguf": importlib.metadata.version("gguf"), "numpy": np.__version__, "python": platform.python_version()}}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.write or pathlib.Path(temporary)
        folder.mkdir(exist_ok=True)

        def sum_of(path):
            sum = 0xCBF29CE484222325
            for byte in path.read_bytes():
                sum = (sum ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
            return f"{sum:016x}"

        for name in (*TOKENIZERS, *CHARACTERS):
            for outtype in TYPES:
                path = folder / f"{name}-{outtype}.gguf"
                export_model(name, outtype, path)
                sums["models"].setdefault(name, {})[outtype] = sum_of(path)
        adapters = [(f"golden/{name}/adapter", name) for name in ("qwen2", "qwen3", "llama")]
        adapters += [(f"adapters/{name}", "llama") for name in ("all", "rslora", "patterns", "bfloat16", "layers")]
        for place, model in adapters:
            for outtype in ("auto", "f16", "q8_0"):
                path = folder / f"{place.replace('/', '_')}-{outtype}.gguf"
                export_adapter(FIXTURES / place, model, outtype, path)
                sums["adapters"].setdefault(place, {"model": model})[outtype] = sum_of(path)
    (OUTPUT / "sums.json").write_text(json.dumps(sums, indent=1) + "\n")


main()
