#!/usr/bin/env python3
"""Writes a GGUF file of a published shape with random weights, for measurements that no download should stand in the way of.

  bench/random_gguf.py OUTPUT.gguf --tokenizer ANY.gguf [--shape qwen2.5-7b] [--type q4_k_m] [--seed 1]

Blocks are drawn as they are stored, some 0.02 large, so that a model of 7B is written in a minute and in little memory.
q4_k_m is llama.cpp's mixture: Q6_K for the head and for the values' and down projections of half of the layers, else Q4_K.
The vocabulary is the tokenizer's, filled up with unused tokens to the shape's. Needs gguf and numpy.
"""
import argparse

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

# layers, hidden, of the MLP, heads, key heads, vocabulary, the base of rotary angles, whether the head is the embedding
SHAPES = {
    "smollm2-135m": ("llama", 30, 576, 1536, 9, 3, 49152, 100000.0, True),
    "qwen2.5-0.5b": ("qwen2", 24, 896, 4864, 14, 2, 151936, 1e6, True),
    "llama-3.2-1b": ("llama", 16, 2048, 8192, 32, 8, 128256, 500000.0, True),
    "qwen2.5-7b": ("qwen2", 28, 3584, 18944, 28, 4, 152064, 1e6, False),
}
PLAIN = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0, "q4_1": Type.Q4_1}
SIZE = 0.02  # of a weight, about


def halves(count, value):
    return numpy.full((count, 1), value, numpy.float16).view(numpy.uint8)


def random_rows(random, kind, rows, cols):
    """Stored bytes of a matrix."""
    if kind == Type.F32:
        return random.standard_normal((rows, cols), numpy.float32) * numpy.float32(SIZE)
    if kind in (Type.F16, Type.BF16):
        values = random.standard_normal((rows, cols), numpy.float32) * numpy.float32(SIZE)
        return values.astype(numpy.float16) if kind == Type.F16 else (values.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = rows * cols // elements
    blocks = random.integers(0, 256, (count, size), numpy.uint8)
    if kind == Type.Q8_0:
        blocks[:, 0:2] = halves(count, SIZE / 74)
    elif kind == Type.Q4_0:
        blocks[:, 0:2] = halves(count, SIZE / 4.6)
    elif kind == Type.Q4_1:
        blocks[:, 0:2], blocks[:, 2:4] = halves(count, SIZE / 4.6), halves(count, -7.5 * SIZE / 4.6)
    elif kind == Type.Q4_K:  # every part's scale and minimum 32 of 63
        blocks[:, 0:2], blocks[:, 2:4] = halves(count, SIZE / 4.6 / 32), halves(count, 7.5 * SIZE / 4.6 / 32)
        blocks[:, 4:12], blocks[:, 12:16] = 0x20 | 0x80, 0x00
    elif kind == Type.Q6_K:
        blocks[:, 192:208], blocks[:, 208:210] = 16, halves(count, SIZE / 18.5 / 16)
    return blocks.reshape(rows, -1)


def type_of(name, layer, layers, scheme):
    if scheme != "q4_k_m":
        return PLAIN[scheme]
    more = layer is not None and (layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2)
    if name == "output" or (more and name in ("attn_v", "ffn_down")):
        return Type.Q6_K
    return Type.Q4_K


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--tokenizer", required=True, metavar="ANY.gguf")
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-7b")
    parser.add_argument("--type", choices=[*PLAIN, "q4_k_m"], default="q4_k_m")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    architecture, layers, hidden, mlp, heads, key_heads, vocabulary, theta, tied = SHAPES[args.shape]
    if args.type == "q4_k_m" and (hidden % 256 or mlp % 256):
        parser.error(f"rows of {args.shape} are no whole blocks of 256")
    random = numpy.random.default_rng(args.seed)
    writer = gguf.GGUFWriter(args.output, architecture, use_temp_file=True)
    writer.add_block_count(layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(theta)
    writer.add_vocab_size(vocabulary)
    if architecture == "llama":
        writer.add_rope_dimension_count(hidden // heads)
    for name, field in gguf.GGUFReader(args.tokenizer).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value, kind = field.contents(), field.types[0]
        if name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            if len(value) > vocabulary:
                parser.error(f"{args.tokenizer} has {len(value)} tokens, {args.shape} {vocabulary}")
            missing = range(len(value), vocabulary)
            value += [f"[PAD{i}]" for i in missing] if name.endswith("tokens") else [int(gguf.TokenType.UNUSED)] * len(missing)
        writer.add_key_value(name, value, kind, field.types[1] if kind == gguf.GGUFValueType.ARRAY else None)

    def matrix(name, rows, cols, layer=None):
        kind = type_of(name, layer, layers, args.type)
        place = name if layer is None else f"blk.{layer}.{name}"
        writer.add_tensor(f"{place}.weight", random_rows(random, kind, rows, cols), raw_dtype=kind)

    def vector(name, size, value=1.0):
        writer.add_tensor(name, numpy.full(size, value, numpy.float32))

    keys = hidden // heads * key_heads
    matrix("token_embd", vocabulary, hidden)
    for layer in range(layers):
        vector(f"blk.{layer}.attn_norm.weight", hidden)
        for name, rows, cols in (("attn_q", hidden, hidden), ("attn_k", keys, hidden), ("attn_v", keys, hidden)):
            matrix(name, rows, cols, layer)
            if architecture == "qwen2":
                vector(f"blk.{layer}.{name}.bias", rows, 0.0)
        matrix("attn_output", hidden, hidden, layer)
        vector(f"blk.{layer}.ffn_norm.weight", hidden)
        for name, rows, cols in (("ffn_gate", mlp, hidden), ("ffn_up", mlp, hidden), ("ffn_down", hidden, mlp)):
            matrix(name, rows, cols, layer)
    vector("output_norm.weight", hidden)
    if not tied:
        matrix("output", vocabulary, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
