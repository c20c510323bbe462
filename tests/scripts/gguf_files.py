#!/usr/bin/env python3
"""Writes tests/fixtures/export: what the files of `lora export` must be, byte for byte, by the gguf package.

    python tests/scripts/gguf_files.py [--write FOLDER]      needs gguf and numpy; FOLDER gets the files themselves

    NAME/tokenizer.json …     the files that a model folder of golden/NAME lacks for being talked to
    smollm3/                  a whole model: four layers, of which the last has no rotary embedding, in float16
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
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


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


def tokenizer_json(pre_tokenizers, nfc=False, ignore_merges=False, bos=None):
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("i", "n"), ("\u0120", "a"), ("a", "n"), ("an", "d"), ("0", "0")]
    tokens = alphabet() + [a + b for a, b in merges]
    contents = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<tool_call>"]
    added = [{"id": len(tokens) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": i < 3} for i, content in enumerate(contents)]
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


def words(regex):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return [split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]


DIGITS = [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
TOKENIZERS = {"qwen2": ("qwen2", tokenizer_json(words(QWEN2_REGEX), nfc=True)), "qwen3": ("qwen2", tokenizer_json(words(QWEN2_REGEX), nfc=True)),
              "llama": ("llama-bpe", tokenizer_json(words(LLAMA3_REGEX), ignore_merges=True, bos="<|endoftext|>")),
              "smollm3": ("smollm", tokenizer_json(DIGITS))}


def write_folders():
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


def gguf_name(name):
    for own, theirs in (("model.embed_tokens.", "token_embd."), ("model.norm.", "output_norm."), ("lm_head.", "output."), ("model.layers.", "blk."),
                        ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_proj", "attn_q"),
                        ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                        ("post_attention_layernorm", "ffn_norm"), ("input_layernorm", "attn_norm"), ("mlp.gate_proj", "ffn_gate"),
                        ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
        name = name.replace(own, theirs)
    return name


def model_order(config):
    """The tensors' names in the order of the model."""
    names = ["model.embed_tokens.weight"]
    for layer in range(config["num_hidden_layers"]):
        parts = ["input_layernorm", *(f"self_attn.{p}" for p in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
                 "post_attention_layernorm", *(f"mlp.{p}" for p in ("gate_proj", "up_proj", "down_proj"))]
        names += [f"model.layers.{layer}.{part}.{end}" for part in parts for end in ("weight", "bias")]
    return [*names, "model.norm.weight", "lm_head.weight"]


def heads_of(name, config):
    if config["model_type"] not in ("llama", "smollm3"):
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
    return token.startswith("<|") and token.endswith("|>")


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
    weights = OUTPUT / name if name == "smollm3" else FIXTURES / "golden" / name
    config = json.loads((weights / "config.json").read_text())
    tensors = read_safetensors(weights / "model.safetensors")
    kind, file_type = TYPES[outtype]
    rope = config.get("rope_parameters") or config["rope_scaling"] | {"rope_theta": config["rope_theta"]}
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer = gguf.GGUFWriter(path, config["model_type"])
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
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(32.0)
        writer.add_rope_scaling_yarn_beta_slow(1.0)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, name, config["vocab_size"])
    if rope["rope_type"] == "llama3":
        add_tensor(writer, "rope_freqs.weight", rope_factors(rope, rope["rope_theta"], width), Type.F32)
    for own in model_order(config):
        if own not in tensors:
            continue
        values = tensors[own][1]
        heads = heads_of(own, config)
        add_tensor(writer, gguf_name(own), permute(values, heads) if heads else values, kind)
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

        for name in TOKENIZERS:
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
