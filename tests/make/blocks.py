#!/usr/bin/env python3
"""Writes tests/fixtures/blocks.gguf: blocks of each quantized type, and the numbers that the `gguf` library makes of them.

    python tests/make/blocks.py

Tensors: TYPE, two rows of blocks, and TYPE.values, the same as F32. Any bits are a block as long as its half precision
numbers are finite, so most are drawn at random; the first eight blocks have extreme scales and minima, of the whole and
of its parts. Metadata: what this ran with.
"""
import pathlib
import platform
from importlib.metadata import version as version_of

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/blocks.gguf"
HALVES = [0.01, -3.7e-5, 65504, -65504, 2.0**-24, 0.0, -0.0, 1.5]  # the second and the fifth are subnormal
PARTS = [None, 0x00, 0xFF, None, 0x80, 0x7F, None, None]  # None: at random
# Where a block has its scale, its minimum and the bytes with its parts' scales and minima.
PLACES = {
    Type.Q8_0: (0, None, None),
    Type.Q4_0: (0, None, None),
    Type.Q4_1: (0, 2, None),
    Type.Q5_0: (0, None, None),
    Type.Q5_1: (0, 2, None),
    Type.Q4_K: (0, 2, slice(4, 16)),
    Type.Q5_K: (0, 2, slice(4, 16)),
    Type.Q6_K: (208, None, slice(192, 208)),
}  # fmt: skip


def random_blocks(kind, count, random):
    scale, minimum, parts = PLACES[kind]
    blocks = random.randint(0, 256, (count, gguf.GGML_QUANT_SIZES[kind][1])).astype(numpy.uint8)
    if kind == Type.Q8_0:  # each of its quanta
        blocks[:, 2:] = numpy.arange(32 * count).reshape(count, 32) % 256
    for i, block in enumerate(blocks):
        for place, shift in ((scale, 0), (minimum, 3)):
            if place is not None:
                half = numpy.float16(HALVES[(i + shift) % 8] if i < 8 else random.uniform(-1, 1))
                block[place : place + 2] = numpy.frombuffer(half.tobytes(), numpy.uint8)
        if parts is not None and i < 8 and PARTS[i] is not None:
            block[parts] = PARTS[i]
    return blocks


def main():
    random = numpy.random.RandomState(1)
    writer = gguf.GGUFWriter(OUTPUT, "blocks")
    for name, version in (("python", platform.python_version()), ("numpy", numpy.__version__), ("gguf", version_of("gguf"))):
        writer.add_string(f"made_with.{name}", version)
    for kind in PLACES:
        rows = random_blocks(kind, 32 if gguf.GGML_QUANT_SIZES[kind][0] == 32 else 12, random)
        rows = rows.reshape(2, -1)
        values = gguf.dequantize(rows, kind)
        assert values.dtype == numpy.float32 and numpy.isfinite(values).all()
        writer.add_tensor(kind.name, rows, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
