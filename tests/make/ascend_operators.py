#!/usr/bin/env python3
"""Makes tests/fixtures/ascend_operators: what PyTorch computes where a program calls an operator of the Ascend library.

    python tests/make/ascend_operators.py [--out FOLDER]      needs torch, numpy, safetensors

For each family of operators OUT holds <family>.json with its calls and <family>.safetensors with their numbers.
<family>.json is {"cases": [...], "operators": {...}}. A case is a call: its name, the operator, and the arguments in
the order of the C function: null, a number, a truth value, a text, or an object with one of
    "ints"    an aclIntArray
    "scalar"  an aclScalar of "dtype"
    "list"    an aclTensorList of tensors
    "same"    the memory of the argument with this number, by another object
    "shape"   an aclTensor of "dtype". If "strides", "offset" and "storage" (all in elements) are missing, it is
              contiguous. "in": the tensor of the file with its numbers before the call, in row-major order whatever
              the strides are ("triu": ones above the diagonal, too many for a file); without it the operator must not
              read it. "want": the tensor with its numbers afterward, to the bit or, with "tolerance", to within that
              much and one unit in the last place. Dimensions of 1 in the file are to be expanded; tensors of more
              than 4 dimensions are stored as one. BOOL is stored as U8.

"operators" says of each operator what it refuses ("refuses": arguments and what they are in place of those of its first
case; "contiguous": arguments that must be contiguous) and what it accepts where others refuse. The test tries its first
case with every object argument as null ("optional": may be so), and every tensor misaligned, as STRING ("any_dtype"),
as INT32 instead of a float or FLOAT instead of an integer ("any_kind"), as another float or integer ("any_size"), and
with one more element in its last dimension ("any_shape").

The numbers: inputs are rounded to the dtype of the argument. The reference takes these and computes in float64 (in
integers for integers); its result is rounded once to the dtype of the output. A tolerance is one unit in the last place
of the output, since a result near a tie may be rounded the other way, plus the rounding of float32 sums: the number of
operations on the way to an element, times 2^-24, times the largest sum of absolute values of the terms.

Where the library is not PyTorch, the case says what the library's documents say: AdamW is told the number of completed
steps; softmax statistics are repeated eight times, those of packed sequences heads first in each; 1 in an attention mask means masked out; a dropout mask has one bit
per element, lowest bit of a byte first, 1 means keep; the probability of a dropout mask is that of a zero; the
gradient of an RMSNorm weight is always float32; lengths of packed sequences are cumulative ends.
"""
import argparse
import json
import math
import os
import struct
import zlib

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
NAMES = {F32: "FLOAT", F16: "FLOAT16", BF16: "BF16", F64: "DOUBLE", I64: "INT64", I32: "INT32", I16: "INT16",
         I8: "INT8", U8: "UINT8", BOOL: "BOOL"}
NUMBERS = {
    "FLOAT": 0, "FLOAT16": 1, "INT8": 2, "INT32": 3, "UINT8": 4, "INT16": 6, "INT64": 9, "DOUBLE": 11, "BOOL": 12,
    "BF16": 27, "INT4": 29
}
ULP = {F32: 2.0 ** -23, BF16: 2.0 ** -7, F16: 2.0 ** -10, F64: 2.0 ** -52}
SMALLEST = {F16: 2.0 ** -24}  # of the others it is too small to matter
EPS = 2.0 ** -24
TOKENS_MAX = 2 ** 31 - 1

families = {}  # family → {"cases": [...], "operators": {...}, "tensors": {...}}
family = None
generator = torch.Generator()


def rounded(values, dtype):
    """float64 → dtype, rounded once: through float32, torch would round twice."""
    if dtype in (F64, F32) or values.dtype != F64:
        return values.to(dtype)
    if not dtype.is_floating_point:
        return values.to(dtype)
    exact = values.numpy()
    with numpy.errstate(over="ignore", invalid="ignore"):
        near = exact.astype(numpy.float32)
        inexact = numpy.isfinite(exact) & (near.astype(numpy.float64) != exact)
        toward_zero = numpy.where(numpy.abs(near.astype(numpy.float64)) > numpy.abs(exact),
                                  numpy.nextafter(near, numpy.float32(0)), near)
        odd = (toward_zero.view(numpy.uint32) | numpy.uint32(1)).view(numpy.float32)
    return torch.from_numpy(numpy.where(inexact, odd, near)).to(dtype)


def seed(text):
    generator.manual_seed(zlib.crc32(text.encode()))


def randn(*shape, dtype=F32):
    return rounded(torch.randn(shape, generator=generator, dtype=F64), dtype)


def rand(*shape, dtype=F32):
    """Uniform, away from 0 by a little."""
    return rounded(torch.rand(shape, generator=generator, dtype=F64) + 0.01, dtype)


def randint(low, high, *shape, dtype=I64):
    return torch.randint(low, high, shape, generator=generator, dtype=I64).to(dtype)


def coin(*shape, p=0.5):
    return torch.rand(shape, generator=generator, dtype=F64) < p


def f32(number):
    """The double that a float parameter becomes."""
    return struct.unpack("f", struct.pack("f", number))[0]


def largest(values):
    values = values.double()
    values = values[torch.isfinite(values)]
    return float(values.abs().max()) if values.numel() else 0.0


def tolerance(dtype, operations, size):
    """Of an output of this dtype whose elements took so many float32 operations on terms whose absolute values sum up
    to no more than `size`."""
    if not dtype.is_floating_point:
        return None
    return operations * EPS * size + SMALLEST.get(dtype, 0.0)


class View:
    """Where the elements of a tensor lie: `order`: its dimensions from the outermost in memory to the innermost; `pad`:
    unused elements after each run of the innermost; `expand`: dimensions of stride 0."""

    def __init__(self, shape, order=None, pad=0, offset=0, expand=()):
        self.offset = offset
        strides, run = [0] * len(shape), 1
        for place, dim in enumerate(reversed(order or range(len(shape)))):
            if dim in expand:
                continue
            strides[dim] = run
            run = run * shape[dim] + (pad if place == 0 else 0)
        self.strides, self.storage = strides, offset + run


def stored(values, tensors):
    """The name of a tensor with these values in the file, which has each once."""
    values = values.to(U8) if values.dtype == BOOL else values
    for dim in range(values.dim()):
        if values.stride(dim) == 0 and values.shape[dim] > 1:
            values = values.narrow(dim, 0, 1)
    values = values.contiguous().clone()
    values = values.flatten() if values.dim() > 4 else values  # as many dimensions as the test's reader has
    raw = values.flatten().view(U8).numpy().tobytes() if values.numel() else b""
    known = tensors.setdefault((values.dtype, tuple(values.shape), raw), (str(len(tensors)), values))
    return known[0]


class Tensor:
    def __init__(self, dtype, shape, before=None, want=None, tolerance=None, view=None, fill=None):
        self.dtype, self.shape, self.before, self.want = dtype, list(shape), before, want
        self.tolerance, self.view, self.fill = tolerance, view, fill

    def described(self, key, tensors):
        text = {"shape": self.shape, "dtype": NAMES[self.dtype]}
        if self.view:
            view = self.view
            text |= {"strides": view.strides, "offset": view.offset, "storage": view.storage}
        for name, values in (("in", self.before), ("want", self.want)):
            if values is not None:
                assert list(values.shape) == self.shape, (key, values.shape, self.shape)
                text[name] = stored(values, tensors)
        if self.fill:
            text["in"] = self.fill
        if self.want is not None and self.tolerance is not None:
            text["tolerance"] = float(f"{self.tolerance:.2e}")
        return text


def view_of(values, view):
    if view is None or isinstance(view, View):
        return view
    options = dict(view)
    return View(list(values.shape), **options)


TRANSPOSED = "transposed"


def made_view(values, view):
    if view == TRANSPOSED:
        order = list(range(values.dim()))
        order[-1], order[-2] = order[-2], order[-1]
        return View(list(values.shape), order=order)
    return view_of(values, view)


def X(values, view=None, dtype=None):
    """An input."""
    return Tensor(dtype or values.dtype, values.shape, before=values, view=made_view(values, view))


def Y(want, dtype=None, operations=0, size=0.0, view=None, before=None, extra=0.0):
    """An output; with `before` it is an input too. Without `operations` it must be exact. `extra`: more absolute
    tolerance."""
    dtype = dtype or want.dtype
    want = rounded(want, dtype) if want.dtype == F64 and dtype != F64 else want.to(dtype)
    allowed = tolerance(dtype, operations, size) if operations else None
    return Tensor(dtype, want.shape, before=before, want=want, tolerance=None if allowed is None else allowed + extra,
                  view=made_view(want, view))


def unread(shape, dtype):
    """An output that must be there but whose content does not matter."""
    return Tensor(dtype, shape)


class Ints:
    def __init__(self, *values):
        self.values = list(values)


class Scalar:
    def __init__(self, value, dtype=F32):
        self.value, self.dtype = value, dtype


class Same:
    """The memory of another argument."""

    def __init__(self, argument):
        self.argument = argument


class Call:
    """The next calls: their random numbers are a function of their name."""

    def __init__(self, name):
        assert family is not None
        self.name = name
        seed(name)

    def __call__(self, op, *arguments):
        book = families[family]
        assert all(case["name"] != self.name for case in book["cases"]), self.name
        described = [self.described(f"{self.name}:{i}", argument, book["tensors"])
                     for i, argument in enumerate(arguments)]
        book["cases"].append({"name": self.name, "op": "aclnn" + op, "args": described})
        book["operators"].setdefault("aclnn" + op, {})

    def described(self, key, argument, tensors):
        if isinstance(argument, Tensor):
            return argument.described(key, tensors)
        if isinstance(argument, list):
            return {"list": [tensor.described(f"{key}.{i}", tensors) for i, tensor in enumerate(argument)]}
        if isinstance(argument, Ints):
            return {"ints": argument.values}
        if isinstance(argument, Scalar):
            return {"scalar": argument.value, "dtype": NAMES[argument.dtype]}
        if isinstance(argument, Same):
            return {"same": argument.argument}
        assert argument is None or isinstance(argument, (bool, int, float, str)), argument
        return argument


def begin(name):
    global family
    family = name
    families[name] = {"cases": [], "operators": {}, "tensors": {}}


def accepts(ops, **arguments):
    """What these operators take where others refuse: optional=[...], any_dtype=[...], any_shape=[...] and so on."""
    for op in ops.split():
        for book in families.values():
            if "aclnn" + op in book["operators"]:
                book["operators"]["aclnn" + op].update(arguments)


def nameof(dtype):
    return {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64", I64: "i64", I32: "i32", I16: "i16", I8: "i8", U8: "u8",
            BOOL: "bool"}[dtype]


# Matmul

def matmul_error(a, b, dtype, scale=1.0):
    """Operations and size for a @ b."""
    return dict(operations=a.shape[-1] + 2, size=abs(scale) * largest(a.double().abs() @ b.double().abs()), dtype=dtype)


def matmuls():
    begin("matmul")
    for dtype in (F32, F16, BF16):
        c = Call(f"Mm/{nameof(dtype)}")
        a, b = randn(5, 7, dtype=dtype), randn(7, 3, dtype=dtype)
        c("Mm", X(a), X(b), Y(a.double() @ b.double(), **matmul_error(a, b, dtype)), 0)

        c = Call(f"Mm/{nameof(dtype)}, the second transposed")
        a, b = randn(3, 9, dtype=dtype), randn(9, 5, dtype=dtype)
        c("Mm", X(a), X(b, TRANSPOSED), Y(a.double() @ b.double(), **matmul_error(a, b, dtype)), 0)

        c = Call(f"Mm/{nameof(dtype)}, the first transposed, rows with gaps")
        a, b = randn(4, 6, dtype=dtype), randn(6, 5, dtype=dtype)
        c("Mm", X(a, TRANSPOSED), X(b, dict(pad=3, offset=16)), Y(a.double() @ b.double(), **matmul_error(a, b, dtype)),
          0)

    for name, (m, k, n) in (("a row times a column", (1, 11, 1)), ("a long sum", (2, 259, 3)), ("a wide one", (2, 3, 67))):
        c = Call(f"Mm/{name}")
        a, b = randn(m, k), randn(k, n)
        c("Mm", X(a), X(b), Y(a.double() @ b.double(), **matmul_error(a, b, F32)), 0)

    for name, left, right in (("vectors", (6,), (6,)), ("a vector and a matrix", (5,),
                                                        (5, 3)), ("a matrix and a vector", (4, 5), (5,)),
                              ("matrices", (4, 5), (5, 3)), ("a batch and a matrix", (2, 3, 5),
                                                             (5, 4)), ("broadcast batches", (2, 1, 3, 4), (3, 4, 2)),
                              ("a matrix and a batch", (3, 4), (2, 4, 5)), ("six dimensions", (2, 1, 1, 2, 2, 3),
                                                                            (1, 2, 1, 2, 3, 2))):
        c = Call(f"Matmul/{name}")
        a, b = randn(*left), randn(*right)
        c("Matmul", X(a), X(b), Y(a.double() @ b.double(), **matmul_error(a, b, F32)), 0)
    c = Call("Matmul/bf16, a weight used as its transpose")
    a, b = randn(2, 3, 8, dtype=BF16), randn(8, 5, dtype=BF16)
    c("Matmul", X(a), X(b, TRANSPOSED), Y(a.double() @ b.double(), **matmul_error(a, b, BF16)), 0)

    for dtype in (F32, BF16):
        c = Call(f"BatchMatMul/{nameof(dtype)}")
        a, b = randn(3, 4, 5, dtype=dtype), randn(3, 5, 2, dtype=dtype)
        c("BatchMatMul", X(a), X(b), Y(a.double() @ b.double(), **matmul_error(a, b, dtype)), 0)
    c = Call("BatchMatMul/a batch of one, transposed")
    a, b = randn(3, 4, 5, dtype=F16), randn(1, 5, 6, dtype=F16)
    c("BatchMatMul", X(a, TRANSPOSED), X(b, TRANSPOSED), Y(a.double() @ b.double(), **matmul_error(a, b, F16)), 0)

    def addmm(base, a, b, beta, alpha):
        want = beta * base.double() + alpha * (a.double() @ b.double())
        error = matmul_error(a, b, base.dtype, alpha)
        size = error["size"]
        error |= dict(operations=error["operations"] + 3, size=size + abs(beta) * largest(base))
        # The product may be rounded to the dtype before the sum is formed.
        if base.dtype != F32:
            error |= dict(extra=ULP[base.dtype] / 2 * size)
        return want, error

    for dtype in (F32, F16, BF16):
        c = Call(f"Addmm/{nameof(dtype)}, a bias for all rows")
        base, a, b = randn(5, dtype=dtype), randn(3, 7, dtype=dtype), randn(7, 5, dtype=dtype)
        want, error = addmm(base, a, b, 0.5, 1.5)
        c("Addmm", X(base), X(a), X(b, TRANSPOSED), Scalar(0.5), Scalar(1.5), Y(want, **error), 0)
        c = Call(f"InplaceAddmm/{nameof(dtype)}")
        base, a, b = randn(4, 5, dtype=dtype), randn(4, 3, dtype=dtype), randn(3, 5, dtype=dtype)
        want, error = addmm(base, a, b, 1.0, 0.25)
        c("InplaceAddmm", Y(want, before=base, **error), X(a), X(b, TRANSPOSED), Scalar(1.0), Scalar(0.25), 0)
    c = Call("InplaceAddmm/beta 0")
    base, a, b = randn(4, 5), randn(4, 3), randn(3, 5)
    want, error = addmm(base, a, b, 0.0, 1.0)
    c("InplaceAddmm", Y(want, before=base, **error), X(a), X(b), Scalar(0.0), Scalar(1.0), 0)
    c = Call("Addmm/a matrix, rows of it transposed in memory")
    base, a, b = randn(3, 5), randn(3, 2), randn(2, 5)
    want, error = addmm(base, a, b, -1.0, 2.0)
    c("Addmm", X(base, TRANSPOSED), X(a, TRANSPOSED), X(b), Scalar(-1.0), Scalar(2.0), Y(want, **error), 0)

    for dtype in (F32, BF16):
        c = Call(f"Baddbmm/{nameof(dtype)}")
        base, a, b = randn(2, 3, 5, dtype=dtype), randn(2, 3, 4, dtype=dtype), randn(2, 4, 5, dtype=dtype)
        want, error = addmm(base, a, b, 0.5, 2.0)
        c("Baddbmm", X(base), X(a), X(b, TRANSPOSED), Scalar(0.5), Scalar(2.0), Y(want, **error), 0)
        c = Call(f"InplaceBaddbmm/{nameof(dtype)}")
        base, a, b = randn(2, 3, 4, dtype=dtype), randn(2, 3, 5, dtype=dtype), randn(2, 5, 4, dtype=dtype)
        want, error = addmm(base, a, b, 1.0, -0.5)
        c("InplaceBaddbmm", Y(want, before=base, **error), X(a), X(b), Scalar(1.0), Scalar(-0.5), 0)

    for flags in ((0, 0), (1, 0), (0, 1), (1, 1)):
        c = Call(f"Gemm/transposed {flags[0]} {flags[1]}")
        a, b, base = randn(3, 6), randn(6, 4), randn(3, 4)
        want, error = addmm(base, a, b, -0.5, 1.25)
        c("Gemm", X(a.t().contiguous() if flags[0] else a), X(b.t().contiguous() if flags[1] else b), X(base), 1.25,
          -0.5, *flags, Y(want, **error), 0)

    quantized_matmuls()


def packed_nibbles(values):
    """int4 values, eight in an int32, the first in the lowest bits."""
    v = values.reshape(*values.shape[:-1], -1, 8).to(I64) & 15
    word = sum(v[..., i] << (4 * i) for i in range(8))
    return torch.where(word >= 2 ** 31, word - 2 ** 32, word).to(I32)


def quantized_matmuls():

    def call(name, op, dtype, m, k, n, group=0, offset=False, bias=False, per_tensor=False, transposed=False,
             int4=False):
        c = Call(f"{op}/{name}")
        x = randn(m, k, dtype=dtype)
        weight = randint(-8, 8, k, n, dtype=I8) if int4 else randint(-128, 128, k, n, dtype=I8)
        rows = -(-k // group) if group else 1
        shape = (1,) if per_tensor else (rows, n) if group else (n,)
        scale, shift = rounded(rand(*shape, dtype=F64) * 0.05, dtype), rounded(randint(-5, 6, *shape).double(), dtype)
        spread = lambda t: t.double().repeat_interleave(group, 0)[:k] if group else t.double()
        b = (weight.double() + (spread(shift) if offset else 0.0)) * spread(scale)
        added = randn(n, dtype=F32 if dtype == BF16 else dtype)
        want = x.double() @ b + (added.double() if bias else 0.0)
        size = largest(x.double().abs() @ b.abs()) + largest(added)
        # The weight may be rounded to the dtype of x once it is dequantized.
        w = X(packed_nibbles(weight)) if int4 else X(weight, TRANSPOSED if transposed else None)
        c(op, X(x), w, X(scale), X(shift) if offset else None, None, None, X(added) if bias else None, group,
          *([0] if op.endswith("V3") else []), Y(want, dtype, operations=k + 4, size=size, extra=ULP[dtype] * size))

    call("f16, a scale for each column", "WeightQuantBatchMatmulV2", F16, 3, 6, 5)
    call("f16, one scale, offset and bias", "WeightQuantBatchMatmulV2", F16, 3, 6, 5, offset=True, bias=True,
         per_tensor=True)
    call("bf16, columns, offset, bias", "WeightQuantBatchMatmulV2", BF16, 2, 9, 4, offset=True, bias=True)
    call("bf16, transposed", "WeightQuantBatchMatmulV2", BF16, 2, 9, 4, transposed=True)
    call("bf16, groups of 32, the last one short", "WeightQuantBatchMatmulV2", BF16, 2, 70, 3, group=32, offset=True)
    call("bf16, int4", "WeightQuantBatchMatmulV2", BF16, 2, 6, 16, int4=True, offset=True)
    call("f16, a scale for each column", "WeightQuantBatchMatmulV3", F16, 2, 5, 3, offset=True)

    c = Call("ConvertWeightToINT4Pack/eight in a word")
    values = randint(-8, 8, 3, 16, dtype=I32)
    c("ConvertWeightToINT4Pack", X(values), Y(packed_nibbles(values)))


# Element-wise

def binary(op, name, a, b, alpha=None, dtype=None, views=(None, None, None), f=None):
    """out = f(a, b), of the dtype that they promote to."""
    c = Call(f"{op}/{name}")
    a, b = a(), b()
    dtype = dtype or torch.promote_types(a.dtype, b.dtype)
    exact = not dtype.is_floating_point
    up = (lambda t: t.to(I64)) if exact else (lambda t: t.double())
    want = f(up(a), up(b), alpha.value if alpha else 1)
    scale = largest(up(a)) + abs(alpha.value if alpha else 1) * largest(up(b))
    size = max(scale, largest(want))
    c(op, X(a, views[0]), X(b, views[1]), *([alpha] if alpha else []),
      Y(want, dtype, operations=0 if exact else 3, size=size, view=views[2]))


def inplace(op, name, a, b, alpha=None, view=None, other=None, f=None):
    c = Call(f"{op}/{name}")
    a, b = a(), b()
    exact = not a.dtype.is_floating_point
    up = (lambda t: t.to(I64)) if exact else (lambda t: t.double())
    want = f(up(a), up(b), alpha.value if alpha else 1)
    size = max(largest(a) + abs(alpha.value if alpha else 1) * largest(b), largest(want))
    c(op, Y(want, a.dtype, operations=0 if exact else 3, size=size, before=a, view=view), X(b, other),
      *([alpha] if alpha else []))


def scalar(op, name, a, other, alpha=None, f=None, dtype=None, place=None, view=None):
    """out = f(a, scalar), or in place."""
    c = Call(f"{op}/{name}")
    a = a()
    dtype = dtype or a.dtype
    exact = not dtype.is_floating_point
    number = other.value if exact or other.dtype != F32 else f32(other.value)
    factor = alpha.value if alpha else 1
    want = f(a.to(I64) if exact else a.double(), number, factor)
    size = max(largest(a) + abs(factor * number), largest(want))
    error = dict(operations=0 if exact else 3, size=size)
    rest = [other] + ([alpha] if alpha else [])
    if place:
        c(op, Y(want, dtype, before=a, view=view, **error), *rest)
    else:
        c(op, X(a, view), *rest, Y(want, dtype, **error))


def unary(op, name, a, f, dtype=None, view=None, place=False, operations=4):
    c = Call(f"{op}/{name}")
    a = a()
    dtype = dtype or a.dtype
    exact = not dtype.is_floating_point
    want = f(a if exact else a.double())
    # A function is good to some units in the last place of float32 wherever it is evaluated.
    error = dict(operations=0 if exact or not operations else operations, size=largest(want))
    if place:
        c(op, Y(want, dtype, before=a, view=view, **error))
    else:
        c(op, X(a, view), Y(want, dtype, **error))


def elementwise():
    begin("elementwise")
    add = lambda a, b, alpha: a + alpha * b
    sub = lambda a, b, alpha: a - alpha * b
    mul = lambda a, b, _: a * b
    div = lambda a, b, _: a / b
    for op, f in (("Add", add), ("Sub", sub)):
        for dtype in (F32, F16, BF16):
            binary(op, nameof(dtype), lambda: randn(3, 5, dtype=dtype), lambda: randn(3, 5, dtype=dtype), Scalar(1.0),
                   f=f)
        binary(op, "broadcast", lambda: randn(4, 1, 3), lambda: randn(5, 1), Scalar(-0.75), f=f)
        binary(op, "f32 and bf16", lambda: randn(2, 7), lambda: randn(2, 7, dtype=BF16), Scalar(2.5), f=f)
        binary(op, "f16 and bf16", lambda: randn(2, 7, dtype=F16), lambda: randn(7, dtype=BF16), Scalar(1.0), f=f)
        binary(op, "bf16 and i32", lambda: randn(2, 7, dtype=BF16), lambda: randint(-9, 9, 2, 7, dtype=I32),
               Scalar(1.0), f=f)
        binary(op, "i32", lambda: randint(-9, 9, 3, 4, dtype=I32), lambda: randint(-9, 9, 3, 4, dtype=I32),
               Scalar(3, I32), f=f)
        binary(op, "i64 and i32", lambda: randint(-9, 9, 3, 4) << 40, lambda: randint(-9, 9, 4, dtype=I32),
               Scalar(1, I64), f=f)
        binary(op, "views", lambda: randn(4, 6), lambda: randn(4, 6), Scalar(1.0), f=f,
               views=(TRANSPOSED, dict(pad=2, offset=8), dict(pad=3)))
        binary(op, "no dimensions", lambda: randn(), lambda: randn(), Scalar(1.0), f=f)
        inplace("Inplace" + op, "f32", lambda: randn(3, 5), lambda: randn(3, 5), Scalar(0.5), f=f)
        inplace("Inplace" + op, "bf16, a row", lambda: randn(3, 5, dtype=BF16), lambda: randn(5, dtype=BF16),
                Scalar(-2.0), f=f)
        inplace("Inplace" + op, "f32 and bf16", lambda: randn(3, 5), lambda: randn(3, 5, dtype=BF16), Scalar(1.0), f=f)
        inplace("Inplace" + op, "bf16 and f32", lambda: randn(3, 5, dtype=BF16), lambda: randn(3, 5), Scalar(1.0), f=f)
        inplace("Inplace" + op, "views", lambda: randn(3, 5), lambda: randn(3, 5), Scalar(1.0), f=f, view=dict(pad=3),
                other=TRANSPOSED)
        scalar(op + "s", "f32", lambda: randn(3, 5), Scalar(0.375), Scalar(2.0), f=f)
        scalar(op + "s", "bf16, transposed", lambda: randn(3, 5, dtype=BF16), Scalar(0.1), Scalar(1.0), f=f,
               view=TRANSPOSED)
        scalar(op + "s", "i32", lambda: randint(-9, 9, 3, 5, dtype=I32), Scalar(4, I32), Scalar(2, I32), f=f)
        scalar("Inplace" + op + "s", "f32", lambda: randn(3, 5), Scalar(-1.5), Scalar(1.0), f=f, place=True)
        scalar("Inplace" + op + "s", "f16, with gaps", lambda: randn(3, 5, dtype=F16), Scalar(0.3), Scalar(1.0), f=f,
               place=True, view=dict(pad=3))
    for op, f in (("Add", add), ("Sub", sub), ("Mul", mul), ("Div", div)):
        c = Call(f"{op}/the result in place of an operand")
        a, b = randn(3, 5), rand(3, 5)
        want = f(a.double(), b.double(), 1)
        c(op, Y(want, F32, operations=3, size=largest(want) + 4, before=a), X(b),
          *([Scalar(1.0)] if op in ("Add", "Sub") else []), Same(0))
    c = Call("Mul/a square")
    a = randn(3, 5)
    c("Mul", X(a), Same(0), Y(a.double() ** 2, F32, operations=3, size=9.0))
    c = Call("Add/nothing")
    c("Add", X(torch.zeros(0, 3)), X(torch.zeros(0, 3)), Scalar(1.0), Y(torch.zeros(0, 3)))
    for dtype in (F32, F16, BF16):
        binary("Mul", nameof(dtype), lambda: randn(3, 5, dtype=dtype), lambda: randn(3, 5, dtype=dtype), f=mul)
        binary("Div", nameof(dtype), lambda: randn(3, 5, dtype=dtype), lambda: rand(3, 5, dtype=dtype), f=div)
    binary("Mul", "broadcast, transposed", lambda: randn(2, 4, 3), lambda: randn(4, 1), f=mul,
           views=(TRANSPOSED, None, None))
    binary("Mul", "stride 0", lambda: randn(4, 3), lambda: randn(1, 3).repeat(4, 1), f=mul,
           views=(None, dict(expand=[0]), None))
    binary("Mul", "i32", lambda: randint(-9, 9, 3, 4, dtype=I32), lambda: randint(-9, 9, 3, 4, dtype=I32), f=mul)
    binary("Mul", "f32 and bf16", lambda: randn(3, 4), lambda: randn(3, 4, dtype=BF16), f=mul)
    inplace("InplaceMul", "f32, a column", lambda: randn(3, 5), lambda: randn(3, 1), f=mul)
    inplace("InplaceMul", "bf16 and f32", lambda: randn(3, 5, dtype=BF16), lambda: randn(1), f=mul)
    inplace("InplaceMul", "views", lambda: randn(4, 3), lambda: randn(4, 3), f=mul, view=TRANSPOSED, other=dict(pad=1))
    for dtype in (F32, F16, BF16):
        scalar("Muls", nameof(dtype), lambda: randn(3, 5, dtype=dtype), Scalar(-0.7), f=mul)
        scalar("InplaceMuls", nameof(dtype), lambda: randn(3, 5, dtype=dtype), Scalar(0.3), f=mul, place=True)
        scalar("Divs", nameof(dtype), lambda: randn(3, 5, dtype=dtype), Scalar(3.0), f=div)
    scalar("Muls", "i32", lambda: randint(-9, 9, 7, dtype=I32), Scalar(-3, I64), f=mul)
    scalar("InplaceMuls", "with gaps", lambda: randn(3, 5), Scalar(0.3), f=mul, place=True, view=dict(pad=3, offset=8))
    scalar("Divs", "i32 gives f32", lambda: randint(-9, 9, 7, dtype=I32), Scalar(4, I32), f=div, dtype=F32)
    binary("Div", "a row", lambda: randn(3, 4), lambda: rand(4), f=div, views=(TRANSPOSED, None, None))
    binary("Div", "i32 gives f32", lambda: randint(-9, 9, 3, 4, dtype=I32), lambda: randint(1, 9, 4, dtype=I32), f=div,
           dtype=F32)
    inplace("InplaceDiv", "f32", lambda: randn(3, 5), lambda: rand(3, 1), f=div, view=dict(pad=3))
    inplace("InplaceDiv", "bf16", lambda: randn(3, 5, dtype=BF16), lambda: rand(5, dtype=BF16), f=div)
    scalar("InplaceDivs", "f32", lambda: randn(3, 5), Scalar(7.0), f=div, place=True)
    c = Call("Div/by zero")
    a, b = torch.tensor([1.0, -1.0, 0.0, math.inf]), torch.tensor([0.0, 0.0, 0.0, 2.0])
    c("Div", X(a), X(b), Y(a / b))

    special = torch.tensor([0.0, -0.0, 1.0, -200.0, 200.0, math.inf, -math.inf, math.nan])
    for op, f in (("Exp", torch.exp), ("Sqrt", torch.sqrt), ("Rsqrt", torch.rsqrt)):
        source = (lambda dtype: randn(3, 5, dtype=dtype)) if op == "Exp" else (lambda dtype: rand(3, 5, dtype=dtype))
        for dtype in (F32, F16, BF16):
            unary(op, nameof(dtype), lambda: source(dtype), f)
        unary(op, "transposed", lambda: source(F32), f, view=TRANSPOSED)
        unary("Inplace" + op, "with gaps", lambda: source(F32), f, view=dict(pad=3), place=True)
        unary("Inplace" + op, "bf16", lambda: source(BF16), f, place=True)
        c = Call(f"{op}/special values")
        c(op, X(special), Y(f(special.double()), F32, operations=4, size=1.0))
    unary("Neg", "f32, transposed", lambda: randn(3, 5), torch.neg, view=TRANSPOSED, operations=0)
    unary("Neg", "bf16", lambda: randn(3, 5, dtype=BF16), torch.neg, operations=0)
    unary("Neg", "i32", lambda: randint(-9, 9, 3, 5, dtype=I32), torch.neg)
    unary("InplaceNeg", "f16", lambda: randn(3, 5, dtype=F16), torch.neg, place=True, view=dict(pad=3), operations=0)
    unary("Abs", "f32", lambda: randn(3, 5), torch.abs, view=TRANSPOSED, operations=0)
    unary("Abs", "i32", lambda: randint(-9, 9, 3, 5, dtype=I32), torch.abs)
    for op, f in (("Log", torch.log), ("Reciprocal", torch.reciprocal), ("Sigmoid", torch.sigmoid), ("Tanh",
                                                                                                     torch.tanh)):
        for dtype in (F32, F16, BF16):
            unary(op, nameof(dtype), lambda: rand(3, 5, dtype=dtype), f, view=TRANSPOSED)
        if op in ("Log", "Reciprocal"):
            unary("Inplace" + op, "f32", lambda: rand(3, 5), f, place=True)
        c = Call(f"{op}/special values")
        c(op, X(special), Y(f(special.double()), F32, operations=4, size=1.0))
    for op, f in (("Maximum", torch.maximum), ("Minimum", torch.minimum)):
        for dtype in (F32, BF16, I32):
            c = Call(f"{op}/{nameof(dtype)}")
            a, b = randint(-9, 9, 3, 5).to(dtype), randint(-9, 9, 5).to(dtype)
            c(op, X(a, TRANSPOSED), X(b), Y(f(a, b)))
    for exponent in (2.0, 0.5, -1.0, 3.0, 0.0):
        scalar("PowTensorScalar", f"f32 to the {exponent:g}", lambda: rand(3, 5), Scalar(exponent),
               f=lambda a, e, _: a ** e)
    scalar("PowTensorScalar", "bf16", lambda: rand(3, 5, dtype=BF16), Scalar(1.5), f=lambda a, e, _: a ** e)
    scalar("PowTensorScalar", "negative numbers, transposed", lambda: randn(3, 5), Scalar(2.0),
           f=lambda a, e, _: a ** e, view=TRANSPOSED)
    scalar("InplacePowTensorScalar", "f32", lambda: rand(3, 5), Scalar(-0.5), f=lambda a, e, _: a ** e, place=True)
    for dtype in (F32, F16):
        c = Call(f"PowScalarTensor/{nameof(dtype)}")
        e = randn(3, 5, dtype=dtype)
        want = f32(0.9) ** e.double()
        c("PowScalarTensor", Scalar(0.9), X(e), Y(want, dtype, operations=6, size=largest(want)))

    for name, low, high in (("both", -0.5, 0.75), ("low", -0.25, None), ("high", None, 0.125)):
        c = Call(f"Clamp/{name}")
        a = randn(3, 5)
        c("Clamp", X(a),
          Scalar(low) if low is not None else None,
          Scalar(high) if high is not None else None, Y(a.clamp(low, high)))
    c = Call("Clamp/bf16, transposed, with a NaN")
    a = randn(3, 5, dtype=BF16)
    a[1, 2] = math.nan
    c("Clamp", X(a, TRANSPOSED), Scalar(-0.5), Scalar(0.5), Y(a.clamp(-0.5, 0.5)))
    c = Call("Clamp/i32")
    a = randint(-9, 9, 3, 5, dtype=I32)
    c("Clamp", X(a), Scalar(-3, I32), Scalar(4, I32), Y(a.clamp(-3, 4)))

    for op, f in (("Addcmul", lambda s, a, b, v: s + v * a * b), ("Addcdiv", lambda s, a, b, v: s + v * a / b)):
        for dtype in (F32, F16, BF16):
            c = Call(f"{op}/{nameof(dtype)}, broadcast")
            s, a, b = randn(3, 5, dtype=dtype), randn(5, dtype=dtype), rand(3, 1, dtype=dtype)
            want = f(s.double(), a.double(), b.double(), -0.5)
            size = largest(s) + largest(f(0.0 * s.double(), a.double(), b.double(), 0.5))
            c(op, X(s), X(a), X(b), Scalar(-0.5), Y(want, dtype, operations=4, size=size, extra=ULP[dtype] * size))
            c = Call(f"Inplace{op}/{nameof(dtype)}")
            s, a, b = randn(3, 5, dtype=dtype), randn(3, 5, dtype=dtype), rand(3, 5, dtype=dtype)
            want = f(s.double(), a.double(), b.double(), 0.25)
            size = largest(s) + largest(f(0.0 * s.double(), a.double(), b.double(), 0.25))
            c("Inplace" + op,
              Y(want, dtype, operations=4, size=size, before=s, view=dict(pad=3), extra=ULP[dtype] * size),
              X(a, TRANSPOSED), X(b), Scalar(0.25))
    for dtype in (F32, BF16):
        for weight in (0.1, 0.9):
            c = Call(f"Lerps/{nameof(dtype)}, {weight}")
            a, b = randn(3, 5, dtype=dtype), randn(3, 5, dtype=dtype)
            want = torch.lerp(a.double(), b.double(), f32(weight))
            c("Lerps", X(a), X(b, TRANSPOSED), Scalar(weight), Y(want, dtype, operations=4,
                                                                 size=largest(a) + largest(b)))
        c = Call(f"InplaceLerps/{nameof(dtype)}")
        a, b = randn(3, 5, dtype=dtype), randn(3, 5, dtype=dtype)
        want = torch.lerp(a.double(), b.double(), f32(0.3))
        c("InplaceLerps", Y(want, dtype, operations=4, size=largest(a) + largest(b), before=a), X(b), Scalar(0.3))
    logic()


def logic():
    values = torch.tensor([[0.0, -0.0, 1.0, math.inf], [-math.inf, math.nan, 1e30, -2.5]])
    for dtype in (F32, F16, BF16):
        c = Call(f"IsFinite/{nameof(dtype)}")
        c("IsFinite", X(values.to(dtype)), Y(values.to(dtype).isfinite()))
        c = Call(f"IsInf/{nameof(dtype)}")
        c("IsInf", X(values.to(dtype), TRANSPOSED), Y(values.to(dtype).isinf()))
    c = Call("IsFinite/i32")
    c("IsFinite", X(randint(-9, 9, 5, dtype=I32)), Y(torch.ones(5, dtype=BOOL)))

    c = Call("LogicalNot/bool")
    a = coin(3, 5)
    c("LogicalNot", X(a, TRANSPOSED), Y(~a))
    c = Call("LogicalNot/f32")
    a = torch.tensor([0.0, -0.0, 2.0, math.nan])
    c("LogicalNot", X(a), Y(a.logical_not()))
    c = Call("InplaceLogicalNot/bool")
    a = coin(3, 5)
    c("InplaceLogicalNot", Y(~a, before=a, view=dict(pad=5)))
    for op, f in (("EqScalar", torch.eq), ("NeScalar", torch.ne), ("GtScalar", torch.gt), ("LtScalar", torch.lt)):
        for dtype in (F32, BF16, I32, I64):
            c = Call(f"{op}/{nameof(dtype)}")
            a = randint(-2, 3, 3, 5).to(dtype)
            c(op, X(a, TRANSPOSED), Scalar(1, dtype if dtype != BF16 else F32), Y(f(a, 1)))
        c = Call(f"{op}/NaN")
        a = torch.tensor([math.nan, 1.0, math.inf])
        c(op, X(a), Scalar(1.0), Y(f(a, 1.0)))
    for dtype in (F32, I64):
        c = Call(f"EqTensor/{nameof(dtype)}")
        a, b = randint(-2, 3, 3, 5).to(dtype), randint(-2, 3, 5).to(dtype)
        c("EqTensor", X(a, TRANSPOSED), X(b), Y(a == b))
    for op, f in (("LogicalAnd", torch.logical_and), ("LogicalOr", torch.logical_or)):
        c = Call(f"{op}/bool")
        a, b = coin(3, 5), coin(3, 1)
        c(op, X(a, TRANSPOSED), X(b), Y(f(a, b)))
        c = Call(f"{op}/f32")
        a, b = torch.tensor([0.0, 2.0, 0.0, math.nan]), torch.tensor([0.0, 0.0, -1.0, 1.0])
        c(op, X(a), X(b), Y(f(a, b)))
    c = Call("InplaceEqScalar/f32")
    a = randint(-2, 3, 3, 5).to(F32)
    c("InplaceEqScalar", Y((a == 1).to(F32), before=a), Scalar(1.0))
    for dtype in (F32, BF16, I64):
        c = Call(f"SWhere/{nameof(dtype)}, broadcast")
        choice, a, b = coin(4, 1), randint(-9, 9, 4, 3).to(dtype), randint(-9, 9, 3).to(dtype)
        c("SWhere", X(choice), X(a, TRANSPOSED), X(b), Y(torch.where(choice, a, b)))
        c = Call(f"InplaceMaskedFillScalar/{nameof(dtype)}")
        a, mask = randint(-9, 9, 4, 3).to(dtype), coin(4, 1)
        c("InplaceMaskedFillScalar", Y(a.masked_fill(mask, -7), before=a, view=dict(pad=5)), X(mask),
          Scalar(-7, dtype if dtype != BF16 else F32))
    c = Call("SWhere/u8 as a condition")
    choice, a, b = coin(4, 3).to(U8), randn(4, 3), randn(4, 3)
    c("SWhere", X(choice), X(a), X(b), Y(torch.where(choice.bool(), a, b)))
    c = Call("InplaceMaskedFillScalar/minus infinity")
    a, mask = randn(2, 3, 4), coin(3, 4)
    c("InplaceMaskedFillScalar", Y(a.masked_fill(mask, -math.inf), before=a), X(mask, TRANSPOSED), Scalar("-inf"))


# Copies and fills

def copies():
    begin("copies")
    ties = torch.tensor([[1.0, 1.00390625, 1.01171875, -1.00390625, 65504.0, 65519.0],
                         [65520.0, 1e-8, 3.0e-8, 1e38, 3.4e38, -2.5]])
    for name, values, dtype in (("f32 to bf16, ties", ties, BF16), ("f32 to f16, ties and overflow", ties, F16),
                                ("bf16 to f32", randn(3, 5, dtype=BF16), F32), ("f16 to f32", ties[:, :4].to(F16), F32),
                                ("f16 to bf16", ties[:, :4].to(F16), BF16), ("f64 to f32", ties.double() / 3, F32),
                                ("f32 to f32", ties, F32), ("i64 to f32", torch.tensor([2 ** 24 + 1, -5, 2 ** 40 + 1]),
                                                            F32), ("i32 to i64",
                                                                   torch.tensor([2 ** 31 - 1, -5], dtype=I32), I64),
                                ("i64 to i32", torch.tensor([7, -5, 2 ** 31 - 1]),
                                 I32), ("i32 to bool", torch.tensor([0, 2, -1], dtype=I32),
                                        BOOL), ("f32 to bool", torch.tensor([0.0, -0.0, 0.3, math.nan]),
                                                BOOL), ("bool to f32", torch.tensor([True, False, True]),
                                                        F32), ("u8 to bf16", torch.tensor([0, 3, 255], dtype=U8),
                                                               BF16), ("i8 to f16", torch.tensor([0, 3, -128],
                                                                                                 dtype=I8), F16)):
        c = Call(f"Cast/{name}")
        c("Cast", X(values), NUMBERS[NAMES[dtype]],
          Y(values, dtype) if values.dtype != F64 else Y(values.double(), dtype))
    c = Call("Cast/f32 to i32 toward zero, NaN to 0")
    c("Cast", X(torch.tensor([1.75, -1.75, 0.5, -0.5, 2e9, math.nan])), NUMBERS["INT32"],
      Y(torch.tensor([1, -1, 0, 0, 2000000000, 0], dtype=I32)))
    c = Call("Cast/views")
    a = randn(4, 3)
    c("Cast", X(a, TRANSPOSED), NUMBERS["BF16"], Y(a.double(), BF16, view=dict(pad=5)))
    c = Call("Cast/nothing")
    c("Cast", X(torch.zeros(0)), NUMBERS["BF16"], Y(torch.zeros(0, dtype=BF16)))

    def copy(name, target, source, view=None, other=None, dtype=None):
        c = Call(f"InplaceCopy/{name}")
        source = source()
        dtype = dtype or source.dtype
        want = rounded(source.double(), dtype) if dtype.is_floating_point else source.to(dtype)
        c("InplaceCopy", Y(want.expand(target).clone(), view=view), X(source, other))

    copy("f32", (3, 5), lambda: randn(3, 5))
    copy("transposed to contiguous", (4, 7), lambda: randn(4, 7), other=TRANSPOSED)
    copy("contiguous to transposed", (4, 7), lambda: randn(4, 7, dtype=BF16), view=TRANSPOSED)
    copy("with gaps on both sides", (4, 7), lambda: randn(4, 7, dtype=BF16), view=dict(pad=3, offset=16),
         other=dict(pad=1, offset=32))
    copy("a row for all", (3, 5), lambda: randn(5))
    copy("a column for all, cast", (3, 5), lambda: randn(3, 1), dtype=BF16, view=TRANSPOSED)
    copy("a number for all", (3, 5), lambda: randn(), dtype=F16)
    copy("five dimensions permuted", (2, 3, 2, 1, 4), lambda: randn(2, 3, 2, 1, 4), other=dict(order=[3, 1, 4, 0, 2]))
    copy("eight dimensions", (1, 2, 1, 2, 1, 2, 1, 2), lambda: randn(1, 2, 1, 2, 1, 2, 1, 2),
         other=dict(order=[7, 6, 5, 4, 3, 2, 1, 0]))
    copy("stride 0", (4, 3), lambda: randn(1, 3).repeat(4, 1), other=dict(expand=[0]))
    copy("bf16 to f32", (3, 5), lambda: randn(3, 5, dtype=BF16), dtype=F32)
    copy("i64 to i32", (7,), lambda: randint(-99, 99, 7), dtype=I32)
    copy("bool to u8", (7,), lambda: coin(7), dtype=U8)
    copy("i32 to f32", (7,), lambda: randint(-99, 99, 7, dtype=I32), dtype=F32)

    for dtype in (F32, BF16, I64, U8, BOOL):
        c = Call(f"InplaceZero/{nameof(dtype)}")
        c("InplaceZero", Y(torch.zeros(3, 5, dtype=dtype), view=dict(pad=3)))
        c = Call(f"InplaceOne/{nameof(dtype)}")
        c("InplaceOne", Y(torch.ones(3, 5, dtype=dtype), view=dict(pad=3)))
        c = Call(f"InplaceFillScalar/{nameof(dtype)}")
        c("InplaceFillScalar", Y(torch.full((3, 5), 1 if dtype == BOOL else 7, dtype=dtype), view=TRANSPOSED),
          Scalar(1 if dtype == BOOL else 7, F32))
    c = Call("InplaceFillScalar/rounded")
    c("InplaceFillScalar", Y(rounded(torch.full((5,), f32(0.1), dtype=F64), BF16)), Scalar(0.1))
    c = Call("InplaceFillTensor/of one element")
    value = randn(1)
    c("InplaceFillTensor", Y(value.expand(3, 5).clone(), view=dict(pad=1)), X(value))
    c = Call("InplaceFillTensor/no dimensions, cast")
    value = randn()
    c("InplaceFillTensor", Y(rounded(value.double(), BF16).expand(3, 5).clone()), X(value))

    c = Call("Permute/three dimensions")
    a = randn(2, 3, 4)
    c("Permute", X(a), Ints(2, 0, 1), Y(a.permute(2, 0, 1).clone()))
    c = Call("Permute/negative, of a view")
    a = randn(2, 3, 4, dtype=BF16)
    c("Permute", X(a, TRANSPOSED), Ints(0, -1, -2), Y(a.permute(0, 2, 1).clone()))
    for dim in (0, 1, -1):
        c = Call(f"Cat/along {dim}")
        shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
        for i, size in enumerate((1, 3, 2)):
            shapes[i][dim] = size
        parts = [randn(*shape, dtype=F16) for shape in shapes]
        c("Cat", [X(part, TRANSPOSED if i == 1 else None) for i, part in enumerate(parts)], dim,
          Y(torch.cat(parts, dim)))
    c = Call("Cat/one, i64")
    a = randint(-9, 9, 5)
    c("Cat", [X(a)], 0, Y(a.clone()))
    for name, dim, start, end, step in (("rows", 0, 1, 4, 1), ("every second column", 1, 1, 6, 2),
                                        ("to the end", -1, 2, 2 ** 31 - 1, 1), ("counted from the end", 1, -4, -1, 1)):
        c = Call(f"Slice/{name}")
        a = randn(5, 6)
        size = a.shape[dim]
        at = slice(start, min(end, size), step)
        want = a[at] if dim == 0 else a[:, at]
        c("Slice", X(a, TRANSPOSED if dim else None), dim, start, end, step, Y(want.clone()))
    for dim in (0, -1):
        c = Call(f"SplitWithSize/along {dim}")
        a = randn(6, 6, dtype=BF16)
        c("SplitWithSize", X(a, TRANSPOSED), Ints(1, 3, 2), dim, [Y(part.clone()) for part in a.split([1, 3, 2], dim)])
    c = Call("Expand/new dimensions")
    a = randn(3, 1)
    c("Expand", X(a), Ints(2, 3, 4), Y(a.expand(2, 3, 4).clone()))
    c = Call("Expand/minus one")
    a = randint(-9, 9, 1, 3, dtype=I32)
    c("Expand", X(a), Ints(4, -1), Y(a.expand(4, -1).clone()))
    c = Call("Repeat/more dimensions")
    a = randn(2, 3)
    c("Repeat", X(a, TRANSPOSED), Ints(2, 1, 3), Y(a.repeat(2, 1, 3)))
    for op, f in (("Tril", torch.tril), ("Triu", torch.triu)):
        for diagonal in (0, 1, -2, 9):
            c = Call(f"{op}/diagonal {diagonal}")
            a = randn(2, 4, 5)
            c(op, X(a), diagonal, Y(f(a, diagonal)))
        c = Call(f"{op}/u8")
        a = torch.ones(5, 4, dtype=U8)
        c(op, X(a, TRANSPOSED), 1, Y(f(a, 1)))
        c = Call(f"Inplace{op}/bf16")
        a = randn(4, 4, dtype=BF16)
        c("Inplace" + op, Y(f(a, -1), before=a, view=dict(pad=3)), -1)
    for name, start, end, step, dtype in (("f32", 0.5, 4.0, 0.75, F32), ("i32", 2, 17, 3, I32), ("i64, downward", 9, -3,
                                                                                                 -2, I64)):
        c = Call(f"Arange/{name}")
        want = torch.arange(start, end, step, dtype=F64 if dtype == F32 else dtype)
        c("Arange", Scalar(start, dtype), Scalar(end, dtype), Scalar(step, dtype),
          Y(want, dtype, operations=3 if dtype == F32 else 0, size=largest(want)))


# Reductions

def reductions():
    begin("reduce")

    def over(a, dims):
        return math.prod(a.shape[d] for d in dims) if dims else a.numel()

    for name, dims, keep, dtype, out in (("all", (), False, F32, F32), ("all, kept", (), True, F32, F32),
                                         ("the last", (-1,), False, F32, F32), ("first and last", (0, 2), True, F32,
                                                                                F32), ("bf16 to f32", (1,), False, BF16,
                                                                                       F32),
                                         ("bf16", (1, 2), False, BF16, BF16), ("f16", (0,), True, F16, F16)):
        for op in ("ReduceSum", "Mean", "MeanV2"):
            if op == "MeanV2" and dtype != out:
                continue
            c = Call(f"{op}/{name}")
            a = randn(3, 4, 5, dtype=dtype)
            f = a.double().sum if op == "ReduceSum" else a.double().mean
            want = f(dim=dims or None, keepdim=keep)
            count = over(a, dims)
            size = largest(a.double().abs().sum(dim=dims or None)) / (1 if op == "ReduceSum" else count)
            c(op, X(a, TRANSPOSED if dtype == F32 else None), Ints(*dims), keep,
              False if op == "MeanV2" else NUMBERS[NAMES[out]], Y(want, out, operations=count + 1, size=size))
    c = Call("ReduceSum/i32 to i64")
    a = randint(2 ** 30, 2 ** 31 - 1, 3, 4, dtype=I32)
    c("ReduceSum", X(a), Ints(1), False, NUMBERS["INT64"], Y(a.sum(1)))
    c = Call("ReduceSum/bool to i64")
    a = coin(3, 4)
    c("ReduceSum", X(a), Ints(), False, NUMBERS["INT64"], Y(a.sum()))
    c = Call("MeanV2/nothing to do")
    a = randn(3, 4)
    c("MeanV2", X(a), Ints(), True, True, Y(a))

    for p in (2.0, 1.0, 0.0, math.inf, -math.inf, 3.0):
        for name, dims, keep in (("all", (), False), ("the last, kept", (-1,), True)):
            for op in ("Norm", "LinalgVectorNorm"):
                c = Call(f"{op}/{p:g}, {name}")
                a = randn(3, 4, 5)
                want = torch.linalg.vector_norm(a.double(), p, dim=dims or None, keepdim=keep)
                power = p if math.isfinite(p) else str(p)
                more = [NUMBERS["FLOAT"]] if op == "LinalgVectorNorm" else []
                c(op, X(a, TRANSPOSED), Scalar(power), Ints(*dims), keep, *more,
                  Y(want, F32, operations=over(a, dims) + 8, size=largest(want)))
    for dtype in (F16, BF16):
        c = Call(f"Norm/{nameof(dtype)}")
        a = randn(3, 4, dtype=dtype)
        want = torch.linalg.vector_norm(a.double(), 2.0, dim=1)
        c("Norm", X(a), Scalar(2.0), Ints(1), False, Y(want, dtype, operations=8, size=largest(want)))
        c = Call(f"LinalgVectorNorm/{nameof(dtype)} to f32")
        a = randn(3, 4, dtype=dtype)
        want = torch.linalg.vector_norm(a.double(), 2.0, dim=1)
        c("LinalgVectorNorm", X(a), Scalar(2.0), Ints(1), False, NUMBERS["FLOAT"],
          Y(want, F32, operations=12, size=largest(want)))

    for dtype in (F32, BF16, I32):
        c = Call(f"Amax/{nameof(dtype)}")
        a = randn(3, 4, 5, dtype=dtype) if dtype.is_floating_point else randint(-99, 99, 3, 4, 5, dtype=dtype)
        c("Amax", X(a, TRANSPOSED), Ints(0, -1), True, Y(a.amax((0, 2), True)))
        c = Call(f"Amin/{nameof(dtype)}")
        c("Amin", X(a), Ints(1), False, Y(a.amin(1)))
        c = Call(f"MaxDim/{nameof(dtype)}")
        a = randn(3, 7, dtype=dtype) if dtype.is_floating_point else randint(-99, 99, 3, 7, dtype=dtype)
        values, indices = a.max(1)
        c("MaxDim", X(a, TRANSPOSED), 1, False, Y(values), Y(indices))
    c = Call("Amax/all of it")
    a = randn(3, 4)
    c("Amax", X(a), Ints(), False, Y(a.amax()))
    c = Call("Amax/NaN wins")
    a = torch.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, -math.inf]])
    c("Amax", X(a), Ints(1), False, Y(a.amax(1)))
    c = Call("MaxDim/kept, down the columns")
    a = randn(4, 3)
    values, indices = a.max(0, keepdim=True)
    c("MaxDim", X(a), -2, True, Y(values), Y(indices))
    for dtype in (F32, F16, BF16):
        c = Call(f"LogSumExp/{nameof(dtype)}")
        a = randn(3, 4, 5, dtype=dtype)
        want = a.double().logsumexp((1, 2), keepdim=True)
        c("LogSumExp", X(a, TRANSPOSED), Ints(1, 2), True, Y(want, dtype, operations=30, size=largest(want) + 1))
    c = Call("LogSumExp/large numbers")
    a = torch.tensor([[800.0, 801.0, -900.0], [-math.inf, -5.0, -6.0]])
    want = a.double().logsumexp(1)
    c("LogSumExp", X(a), Ints(1), False, Y(want, F32, operations=8, size=largest(want)))

    for name, dim, keep in (("rows", 1, False), ("columns, kept", 0, True)):
        for dtype in (F32, BF16):
            c = Call(f"ArgMax/{nameof(dtype)}, {name}")
            a = randn(4, 7, dtype=dtype)
            c("ArgMax", X(a, TRANSPOSED), dim, keep, Y(a.argmax(dim, keep)))
    c = Call("ArgMax/the first of equals")
    a = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    c("ArgMax", X(a), -1, False, Y(torch.tensor([1, 0])))
    for op, f in (("All", torch.all), ("Any", torch.any)):
        for name, dims, keep in (("all", (), False), ("the last", (1,), False), ("the first, kept", (0,), True)):
            c = Call(f"{op}/{name}")
            a = coin(3, 5, p=0.8 if op == "All" else 0.2)
            c(op, X(a, TRANSPOSED), Ints(*dims), keep, Y(f(a, dim=dims or None, keepdim=keep)))
        c = Call(f"{op}/f32")
        a = torch.tensor([[0.0, 1.0, math.nan], [0.5, 2.0, -1.0], [0.0, -0.0, 0.0]])
        c(op, X(a), Ints(1), False, Y(f(a, dim=1)))


# Index

def indices_():
    begin("index")
    for dtype, index in ((F32, I64), (BF16, I32), (F16, I64)):
        c = Call(f"Embedding/{nameof(dtype)}, {nameof(index)}")
        table, ids = randn(7, 5, dtype=dtype), randint(0, 7, 2, 3, dtype=index)
        c("Embedding", X(table), X(ids), Y(table[ids.long()]))
    c = Call("Embedding/a view of a table")
    table, ids = randn(7, 5), randint(0, 7, 4)
    c("Embedding", X(table, dict(pad=3)), X(ids), Y(table[ids]))

    for name, dtype, padding, scaled in (("f32", F32, -1, False), ("bf16, scaled by frequency", BF16, -1, True),
                                         ("with padding", F32, 2, False)):
        c = Call(f"EmbeddingDenseBackward/{name}")
        grad, ids = randn(2, 6, 3, dtype=dtype), randint(0, 4, 2, 6, dtype=I32 if padding == 2 else I64)
        want = torch.ops.aten.embedding_dense_backward(grad.double(), ids.long(), 5, padding, scaled)
        size = largest(torch.ops.aten.embedding_dense_backward(grad.double().abs(), ids.long(), 5, padding, False))
        c("EmbeddingDenseBackward", X(grad), X(ids), 5, padding, scaled, Y(want, dtype, operations=14, size=size))

    for dim, dtype in ((0, F32), (1, BF16), (-1, I32)):
        c = Call(f"IndexSelect/along {dim}, {nameof(dtype)}")
        a, ids = randint(-99, 99, 4, 5, 3).to(dtype), randint(0, 3, 6, dtype=I64 if dim else I32)
        c("IndexSelect", X(a, TRANSPOSED), dim, X(ids), Y(a.index_select(dim, ids.long())))
        c = Call(f"GatherV2/along {dim}, {nameof(dtype)}")
        a, ids = randint(-99, 99, 4, 5, 3).to(dtype), randint(0, 3, 2, 3, dtype=I64 if dim else I32)
        want = a.index_select(dim, ids.long().flatten())
        place = dim % 3
        c("GatherV2", X(a, TRANSPOSED), dim, X(ids), Y(want.reshape(*a.shape[:place], 2, 3, *a.shape[place + 1:])))
        c = Call(f"Gather/along {dim}, {nameof(dtype)}")
        a, ids = randint(-99, 99, 4, 5, 3).to(dtype), randint(0, 3, 3, 4, 2, dtype=I64)
        c("Gather", X(a, TRANSPOSED), dim, X(ids), Y(a.gather(dim, ids)))
    c = Call("Gather/i32 indices, a view of them")
    a, ids = randn(4, 7), randint(0, 7, 4, 2, dtype=I32)
    c("Gather", X(a), 1, X(ids, TRANSPOSED), Y(a.gather(1, ids.long())))

    for dtype in (F32, BF16, I32):
        c = Call(f"IndexAdd/{nameof(dtype)}")
        a, source = randint(-9, 9, 4, 5).to(dtype), randint(-9, 9, 6, 5).to(dtype)
        if dtype.is_floating_point:
            a, source = randn(4, 5, dtype=dtype), randn(6, 5, dtype=dtype)
        ids = randint(0, 4, 6, dtype=I32 if dtype == BF16 else I64)
        up = a.double() if dtype.is_floating_point else a.long()
        want = up.index_add(0, ids.long(), source.to(up.dtype), alpha=2)
        size = largest(a.double().abs().index_add(0, ids.long(), source.double().abs(), alpha=2))
        # Sums of repeated indices may be stored in the dtype after each term.
        c(
            "IndexAdd", X(a, TRANSPOSED), 0, X(ids), X(source), Scalar(2, dtype if dtype != BF16 else F32),
            Y(want, dtype, operations=8 if dtype.is_floating_point else 0, size=size,
              extra=6 * ULP[dtype] * size if dtype == BF16 else 0.0))
        c = Call(f"ScatterAdd/{nameof(dtype)}")
        a = randn(4, 5, dtype=dtype) if dtype.is_floating_point else randint(-9, 9, 4, 5, dtype=dtype)
        ids = randint(0, 5, 3, 6)
        source = randn(4, 6, dtype=dtype) if dtype.is_floating_point else randint(-9, 9, 4, 6, dtype=dtype)
        up = a.double() if dtype.is_floating_point else a.long()
        want = up.scatter_add(1, ids, source.to(up.dtype))
        size = largest(a.double().abs().scatter_add(1, ids, source.double().abs()))
        c(
            "ScatterAdd", X(a), 1, X(ids), X(source),
            Y(want, dtype, operations=8 if dtype.is_floating_point else 0, size=size,
              extra=6 * ULP[dtype] * size if dtype == BF16 else 0.0))

    for dtype in (F32, BF16, I64):
        c = Call(f"IndexCopy/{nameof(dtype)}")
        a, ids, source = randint(-9, 9, 4, 5).to(dtype), torch.tensor([3, 0, 1]), randint(-9, 9, 4, 3).to(dtype)
        c("IndexCopy", X(a), 1, X(ids), X(source, TRANSPOSED), Y(a.index_copy(1, ids, source)))
        c = Call(f"InplaceIndexCopy/{nameof(dtype)}")
        a, ids, source = randint(-9, 9, 4, 5).to(dtype), torch.tensor([2, 0]), randint(-9, 9, 2, 5).to(dtype)
        c("InplaceIndexCopy", Y(a.index_copy(0, ids, source), before=a, view=dict(pad=3)), 0, X(ids), X(source))

    modes = {0: None, 1: "sum", 2: "prod"}
    for reduce, how in modes.items():
        def scattered(a, dim, ids, source):
            up = a.double() if a.dtype.is_floating_point else a.long()
            source = source.to(up.dtype)
            if how is None:
                return up.scatter(dim, ids, source), largest(up) + largest(source)
            return up.scatter_reduce(dim, ids, source,
                                     how), largest(up.abs().scatter_reduce(dim, ids, source.abs(), how))

        for dtype in (F32, BF16):
            # Without a reduction no place may be written twice: whose value stays is not defined.
            c = Call(f"Scatter/{how}, {nameof(dtype)}")
            a, source = randn(4, 5, dtype=dtype), randn(4, 5, dtype=dtype)
            ids = torch.stack([torch.randperm(5, generator=generator)[:3] for _ in range(4)])
            want, size = scattered(a, 1, ids, source[:, :3])
            c("Scatter", X(a, TRANSPOSED), 1, X(ids), X(source), reduce,
              Y(want, dtype, operations=4 if how else 0, size=size))
            c = Call(f"InplaceScatter/{how}, {nameof(dtype)}")
            a, source = randn(4, 5, dtype=dtype), randn(2, 5, dtype=dtype)
            ids = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(5)]).t().contiguous()
            want, size = scattered(a, 0, ids, source)
            c("InplaceScatter", Y(want, dtype, operations=4 if how else 0, size=size, before=a, view=dict(pad=3)), 0,
              X(ids), X(source), reduce)
            for op in ("ScatterValue", "InplaceScatterValue"):
                c = Call(f"{op}/{how}, {nameof(dtype)}")
                a, ids = randn(4, 5,
                               dtype=dtype), torch.stack([torch.randperm(5, generator=generator)[:3] for _ in range(4)])
                want, size = scattered(a, 1, ids, torch.full((4, 3), -1.5, dtype=F64))
                error = dict(operations=4 if how else 0, size=size)
                if op == "ScatterValue":
                    c(op, X(a), -1, X(ids), Scalar(-1.5), reduce, Y(want, dtype, **error))
                else:
                    c(op, Y(want, dtype, before=a, **error), -1, X(ids), Scalar(-1.5), reduce)
    c = Call("Scatter/sum of repeated indices")
    a, ids, source = torch.zeros(2, 3), torch.tensor([[1, 1, 1], [0, 2, 0]]), randn(2, 3)
    want = a.double().scatter_reduce(1, ids, source.double(), "sum")
    c("Scatter", X(a), 1, X(ids), X(source), 1, Y(want, F32, operations=4, size=largest(source) * 3))

    for axis in (-2, -1):
        for dtype, index in ((F32, I64), (BF16, I32)):
            c = Call(f"InplaceScatterUpdate/axis {axis}, {nameof(dtype)}")
            a, ids = randn(3, 2, 5, 6, dtype=dtype), torch.tensor([4, 0, 2], dtype=index)
            updates = randn(*((3, 2, 1, 6) if axis == -2 else (3, 2, 5, 1)), dtype=dtype)
            want = a.clone()
            for i, at in enumerate(ids.tolist()):
                want[i].narrow(axis, at, 1).copy_(updates[i])
            c("InplaceScatterUpdate", Y(want, before=a), X(ids), X(updates), axis)
    c = Call("ScatterNdUpdate/rows")
    a, ids, updates = randn(5, 3), torch.tensor([[4], [0], [2]]), randn(3, 3)
    want = a.clone()
    want[ids[:, 0]] = updates
    c("ScatterNdUpdate", Y(want, before=a), X(ids), X(updates))
    c = Call("ScatterNdUpdate/elements, bf16")
    a, ids, updates = randn(5, 3, dtype=BF16), torch.tensor([[[4, 0], [0, 2]], [[3, 1], [1, 1]]],
                                                            dtype=I32), randn(2, 2, dtype=BF16)
    want = a.clone()
    want[ids[..., 0].long(), ids[..., 1].long()] = updates
    c("ScatterNdUpdate", Y(want, before=a), X(ids), X(updates))

    for accumulate in (False, True):
        for dtype in (F32, I32):
            c = Call(f"IndexPutImpl/rows, {nameof(dtype)}, {'added' if accumulate else 'replaced'}")
            a, ids, values = randint(
                -9, 9, 5,
                3).to(dtype), torch.tensor([4, 0, 4]) if accumulate else torch.tensor([4, 0, 2]), randint(-9, 9, 3,
                                                                                                          3).to(dtype)
            c("IndexPutImpl", Y(a.index_put((ids,), values, accumulate), before=a), [X(ids)], X(values), accumulate,
              False)
        c = Call(f"IndexPutImpl/elements, {'added' if accumulate else 'replaced'}")
        a, rows, columns, values = randn(5, 3), torch.tensor([[4], [0]]), torch.tensor([2, 0, 1]), randn(2, 3)
        want = a.double().index_put((rows, columns), values.double(), accumulate)
        c("IndexPutImpl", Y(want, F32, operations=3 if accumulate else 0, size=6.0, before=a),
          [X(rows), X(columns)], X(values), accumulate, True)
    c = Call("IndexPutImpl/a row for all")
    a, ids, values = randn(5, 3), torch.tensor([4, 0, 2]), randn(3)
    c("IndexPutImpl", Y(a.index_put((ids,), values), before=a), [X(ids)], X(values), False, False)
    for dim, dtype in ((0, F32), (-1, BF16), (1, I64)):
        c = Call(f"InplaceIndexFillTensor/along {dim}")
        a = randint(-9, 9, 4, 5).to(dtype)
        c("InplaceIndexFillTensor", Y(a.index_fill(dim, torch.tensor([2, 0]), 5), before=a, view=dict(pad=3)), dim,
          Ints(2, 0), Scalar(5, F32 if dtype != I64 else I64))


# Foreach

def foreach():
    begin("foreach")
    shapes = [(3, 5), (7,), (2, 1, 3), (1,)]
    for dtype in (F32, F16, BF16):
        def lists(*sources):
            return [[source(*shape, dtype=dtype) for shape in shapes] for source in sources]

        number = Scalar(-0.5, F16 if dtype == F16 else F32)
        each = lambda f, *xs: [f(*(x.double() for x in row)) for row in zip(*xs)]

        def outs(wants, operations=4, extra=0.0):
            return [
                Y(want, dtype, operations=operations, size=largest(want) + extra,
                  extra=ULP[dtype] * extra if extra else 0.0) for want in wants
            ]

        c = Call(f"ForeachMulScalarV2/{nameof(dtype)}")
        (x,) = lists(randn)
        c("ForeachMulScalarV2", [X(t) for t in x], number, outs(each(lambda a: a * -0.5, x)))
        c = Call(f"ForeachAddScalarV2/{nameof(dtype)}")
        (x,) = lists(randn)
        c("ForeachAddScalarV2", [X(t) for t in x], number, outs(each(lambda a: a - 0.5, x), extra=1.0))
        c = Call(f"ForeachMulList/{nameof(dtype)}")
        x, y = lists(randn, randn)
        c("ForeachMulList", [X(t) for t in x], [X(t) for t in y], outs(each(lambda a, b: a * b, x, y)))
        c = Call(f"ForeachAddListV2/{nameof(dtype)}")
        x, y = lists(randn, randn)
        c("ForeachAddListV2", [X(t) for t in x], [X(t) for t in y], number,
          outs(each(lambda a, b: a - 0.5 * b, x, y), extra=2.0))
        for op, f in (("Addcdiv", lambda a, b, c: a - 0.5 * b / c), ("Addcmul", lambda a, b, c: a - 0.5 * b * c)):
            c = Call(f"Foreach{op}ScalarV2/{nameof(dtype)}")
            x, y, z = lists(randn, randn, rand)
            wants = each(f, x, y, z)
            c(f"Foreach{op}ScalarV2", *([X(t) for t in values] for values in (x, y, z)), number,
              outs(wants, extra=max(map(largest, wants))))
        for op in ("List", "ScalarList"):
            c = Call(f"ForeachAddcdiv{op}/{nameof(dtype)}")
            x, y, z = lists(randn, randn, rand)
            factors = randn(len(shapes), dtype=F16 if dtype == F16 else F32)
            wants = [a.double() + f.double() * b.double() / d.double() for a, b, d, f in zip(x, y, z, factors)]
            c(f"ForeachAddcdiv{op}", *([X(t) for t in values] for values in (x, y, z)), X(factors),
              outs(wants, extra=max(map(largest, wants))))
        c = Call(f"ForeachSqrt/{nameof(dtype)}")
        (x,) = lists(rand)
        c("ForeachSqrt", [X(t) for t in x], outs(each(torch.sqrt, x)))
        for p in (1.0, 2.0):
            c = Call(f"ForeachNorm/{nameof(dtype)}, {p:g}")
            (x,) = lists(randn)
            wants = [torch.linalg.vector_norm(t.double(), p).reshape(1) for t in x]
            c("ForeachNorm", [X(t) for t in x], Scalar(p), outs(wants, operations=24))
        c = Call(f"ForeachCopy/{nameof(dtype)}")
        (x,) = lists(randn)
        c("ForeachCopy", [X(t) for t in x], [Y(t.clone()) for t in x])
        c = Call(f"ForeachZeroInplace/{nameof(dtype)}")
        (x,) = lists(randn)
        c("ForeachZeroInplace", [Y(torch.zeros_like(t), before=t) for t in x])
        for name, spoil, inverse in (("finite", None, 0.25), ("infinite", math.inf, 0.5), ("NaN", math.nan, 2.0)):
            c = Call(f"ForeachNonFiniteCheckAndUnscale/{nameof(dtype)}, {name}")
            (x,) = lists(randn)
            if spoil is not None:
                x[2][1, 0, 1] = spoil
            found = torch.tensor([1.0 if spoil is not None else 0.0])
            wants = each(lambda a: a * inverse, x)
            c("ForeachNonFiniteCheckAndUnscale",
              [Y(w, dtype, operations=1, size=largest(w), before=t) for w, t in zip(wants, x)],
              Y(found, before=torch.zeros(1)), X(torch.tensor([inverse])))
    c = Call("ForeachMulScalarV2/in place")
    x = [randn(*shape) for shape in shapes]
    c("ForeachMulScalarV2", [Y(t.double() * 3, F32, operations=1, size=largest(t) * 3, before=t) for t in x],
      Scalar(3.0), Same(0))
    c = Call("ForeachAddListV2/i32")
    x, y = [randint(-9, 9, *shape, dtype=I32) for shape in shapes
           ], [randint(-9, 9, *shape, dtype=I32) for shape in shapes]
    c("ForeachAddListV2", [X(t) for t in x], [X(t) for t in y], Scalar(2, I32), [Y(a + 2 * b) for a, b in zip(x, y)])


# Optimizer

def adamw(p, g, m, v, steps, lr, beta1, beta2, decay, eps, amsgrad=False, maximize=False, largest_v=None):
    """torch.optim.AdamW in float64 after `steps` completed steps."""
    parameter = torch.nn.Parameter(p.double().clone())
    optimizer = torch.optim.AdamW([parameter], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay,
                                  amsgrad=amsgrad, maximize=maximize, foreach=False)
    state = {
        "step": torch.tensor(float(steps), dtype=F64), "exp_avg": m.double().clone(), "exp_avg_sq": v.double().clone()
    }
    if amsgrad:
        state["max_exp_avg_sq"] = largest_v.double().clone()
    optimizer.state[parameter] = state
    parameter.grad = g.double().clone()
    optimizer.step()
    state = optimizer.state[parameter]
    return parameter.detach(), state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq")


def optimizers():
    begin("optimizer")

    def states(dtype, grad_dtype, *shape):
        return randn(*shape, dtype=dtype), randn(*shape, dtype=grad_dtype), rounded(
            randn(*shape, dtype=F64) * 0.1, dtype), rounded(rand(*shape, dtype=F64) * 0.1, dtype)

    def errors(p, m, v, steps, lr, beta2, decay):
        """1 - beta2^t loses most of its bits to cancellation while t is small."""
        t = steps + 1
        relative = 8 * EPS / (1 - beta2 ** t)
        update = lr * 40.0
        return (dict(operations=6, size=largest(p),
                     extra=update * relative), dict(operations=4,
                                                    size=largest(m) + 4.0), dict(operations=6, size=largest(v) + 8.0))

    for name, dtype, grad_dtype, step_dtype, steps, maximize, amsgrad in (("f32, the first step", F32, F32, I64, 0,
                                                                           False, False),
                                                                          ("f32, the fifth, step is f32", F32, F32, F32,
                                                                           4, False, False), ("f32, upward", F32, F32,
                                                                                              I64, 2, True, False),
                                                                          ("f32, a maximum of v", F32, F32, I64, 2,
                                                                           False, True), ("bf16", BF16, BF16, I64, 1,
                                                                                          False, False),
                                                                          ("f16", F16, F16, F32, 1, False, False)):
        c = Call(f"ApplyAdamWV2/{name}")
        p, g, m, v = states(dtype, grad_dtype, 3, 5)
        top = rounded(rand(3, 5, dtype=F64) * 0.1, dtype)
        lr, beta1, beta2, decay, eps = (f32(x) for x in (0.01, 0.9, 0.99, 0.1, 1e-6))
        wp, wm, wv, wt = adamw(p, g, m, v, steps, lr, beta1, beta2, decay, eps, amsgrad, maximize, top)
        ep, em, ev = errors(p, m, v, steps, lr, beta2, decay)
        c("ApplyAdamWV2", Y(wp, dtype, before=p, **ep), Y(wm, dtype, before=m, **em), Y(wv, dtype, before=v, **ev),
          Y(wt, dtype, before=top, **ev) if amsgrad else None, X(g), X(torch.tensor([steps]).to(step_dtype)), 0.01, 0.9,
          0.99, 0.1, 1e-6, amsgrad, maximize)

    for name, dtype, options, scale, found in (("f32", F32, {}, None, None), ("bf16", BF16, {}, None, None),
                                               ("scaled", F32, {}, 8.0, 0.0), ("skipped", F32, {}, 8.0, 1.0),
                                               ("a maximum of v, upward", F32, dict(amsgrad=True,
                                                                                    maximize=True), None, None)):
        c = Call(f"FusedAdamw/{name}")
        shapes, steps = [(3, 5), (7,)], [3, 0]
        sets = [states(dtype, dtype, *shape) for shape in shapes]
        tops = [rounded(rand(*shape, dtype=F64) * 0.1, dtype) for shape in shapes]
        hyper = dict(lr=0.01, beta1=0.9, beta2=0.99, decay=0.1, eps=1e-6)
        lists = [[], [], [], [], [], []]
        for (p, g, m, v), top, done in zip(sets, tops, steps):
            unscaled = g.double() / (scale or 1.0)
            wp, wm, wv, wt = (p.double(), m.double(), v.double(),
                              None) if found else adamw(p, unscaled, m, v, done, **hyper, **options, largest_v=top)
            ep, em, ev = errors(p, m, v, done, 0.01, 0.99, 0.1)
            for place, tensor in enumerate(
                (Y(wp, dtype, before=p, **ep), X(g), Y(wm, dtype, before=m, **em), Y(wv, dtype, before=v, **ev),
                 Y(wt, dtype, before=top, **ev) if options else None, X(torch.tensor([float(done)])))):
                lists[place].append(tensor)
        c("FusedAdamw", *lists[:4], lists[4] if options else [], lists[5],
          X(torch.tensor([scale])) if scale else None,
          X(torch.tensor([found])) if scale else None, 0.01, 0.9, 0.99, 0.1, 1e-6, options.get("amsgrad", False),
          options.get("maximize", False))


# Norms and activations

def norms():
    begin("norm")

    def statistics(x, count):
        dims = tuple(range(x.dim() - count, x.dim()))
        return dims, lambda eps: torch.rsqrt(x.double().square().mean(dims, keepdim=True) + eps)

    for name, shape, count, dtype, gamma_dtype in (("f32", (3, 7), 1, F32, F32), ("bf16", (2, 3, 8), 1, BF16, BF16),
                                                   ("f16", (5, 6), 1, F16, F16), ("bf16, f32 gamma", (3, 8), 1, BF16,
                                                                                  F32), ("two dimensions", (3, 2, 5), 2,
                                                                                         F32, F32), ("one row", (1, 9),
                                                                                                     1, F32, F32)):
        c = Call(f"RmsNorm/{name}")
        x, gamma = randn(*shape, dtype=dtype), randn(*shape[len(shape) - count:], dtype=gamma_dtype)
        dims, rstd = statistics(x, count)
        rstd = rstd(1e-5)
        normal = x.double() * rstd
        want = normal * gamma.double()
        n = gamma.numel()
        # Where gamma is of another dtype than y, the product may be formed of x rounded to it.
        c(
            "RmsNorm", X(x, TRANSPOSED if name == "f32" else None), X(gamma), 1e-5,
            Y(want, dtype, operations=n + 6, size=largest(want),
              extra=ULP[dtype] * largest(want) if dtype != F32 else 0.0),
            Y(rstd, F32, operations=n + 6, size=largest(rstd)))

        c = Call(f"RmsNormGrad/{name}")
        x, dy, gamma = randn(*shape, dtype=dtype), randn(*shape,
                                                         dtype=dtype), randn(*shape[len(shape) - count:],
                                                                             dtype=gamma_dtype)
        dims, rstd = statistics(x, count)
        rstd = rounded(rstd(1e-5), F32)
        a, g, r = x.double(), dy.double() * gamma.double(), rstd.double()
        dx = r * (g - a * r * r * (g * a).mean(dims, keepdim=True))
        lead = tuple(range(x.dim() - count))
        dgamma = (dy.double() * a * r).sum(lead)
        size = largest(r * (g.abs() + a.abs() * r * r * (g * a).abs().mean(dims, keepdim=True)))
        c("RmsNormGrad", X(dy), X(x), X(rstd), X(gamma), Y(dx, dtype, operations=2 * n + 8, size=size),
          Y(dgamma, F32, operations=math.prod(shape) // n + 6, size=largest((dy.double() * a * r).abs().sum(lead))))

    for dtype in (F32, F16, BF16):
        c = Call(f"AddRmsNorm/{nameof(dtype)}")
        a, b, gamma = randn(3, 7, dtype=dtype), randn(3, 7, dtype=dtype), randn(7, dtype=dtype)
        x = a.double() + b.double()
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        want = x * rstd * gamma.double()
        # The sum may be rounded to the dtype before it is normalized.
        loose = ULP[dtype] if dtype != F32 else 0.0
        c("AddRmsNorm", X(a), X(b), X(gamma), 1e-6,
          Y(want, dtype, operations=16, size=largest(want), extra=2 * loose * largest(want)),
          Y(rstd, F32, operations=16, size=largest(rstd), extra=loose * largest(rstd)),
          Y(x, dtype, operations=1, size=largest(a) + largest(b)))

    for op, shape, dim in (("last", (3, 8), -1), ("middle", (2, 6, 3), 1), ("first", (4, 5), 0)):
        for dtype in (F32, F16, BF16):
            c = Call(f"SwiGlu/{op}, {nameof(dtype)}")
            x = randn(*shape, dtype=dtype)
            gate, up = x.double().chunk(2, dim)
            want = F.silu(gate) * up
            c("SwiGlu", X(x), dim, Y(want, dtype, operations=8, size=largest(want)))
            c = Call(f"SwiGluGrad/{op}, {nameof(dtype)}")
            x = randn(*shape, dtype=dtype)
            leaf = x.double().requires_grad_()
            gate, up = leaf.chunk(2, dim)
            y = F.silu(gate) * up
            dy = randn(*y.shape, dtype=dtype)
            (want,) = torch.autograd.grad(y, leaf, dy.double())
            c("SwiGluGrad", X(dy), X(x, TRANSPOSED if dtype == F32 and op == "last" else None), dim,
              Y(want, dtype, operations=12, size=largest(want) + 1.0))
    for op, shape, dim, form, left in (("last, tanh, left", (3, 8), -1, "tanh", True),
                                       ("middle, erf, right", (2, 6, 3), 1, "none", False)):
        for dtype in (F32, F16, BF16):
            c = Call(f"GeGluV3/{op}, {nameof(dtype)}")
            x = randn(*shape, dtype=dtype)
            gate, up = x.double().chunk(2, dim) if left else reversed(x.double().chunk(2, dim))
            kept = F.gelu(gate, approximate=form)
            c("GeGluV3", X(x), dim, int(form == "tanh"), left,
              Y(kept * up, dtype, operations=12, size=largest(kept * up)),
              Y(kept, dtype, operations=10, size=largest(kept)))
            c = Call(f"GeGluV3Backward/{op}, {nameof(dtype)}")
            leaf = x.double().requires_grad_()
            gate, up = leaf.chunk(2, dim) if left else reversed(leaf.chunk(2, dim))
            y = F.gelu(gate, approximate=form) * up
            dy = randn(*y.shape, dtype=dtype)
            (want,) = torch.autograd.grad(y, leaf, dy.double())
            given = kept.to(dtype)
            c("GeGluV3Backward", X(dy), X(x), X(given), dim, int(form == "tanh"), left,
              Y(want, dtype, operations=14, size=largest(want) + 1.0,
                extra=2 * ULP[dtype] * largest(dy.double()) * largest(kept)))
    for dtype in (F32, F16, BF16):
        c = Call(f"Silu/{nameof(dtype)}")
        x = randn(3, 7, dtype=dtype) * 4
        want = F.silu(x.double())
        c("Silu", X(x, TRANSPOSED), Y(want, dtype, operations=6, size=largest(want)))
        c = Call(f"SiluBackward/{nameof(dtype)}")
        x, dy = randn(3, 7, dtype=dtype) * 4, randn(3, 7, dtype=dtype)
        leaf = x.double().requires_grad_()
        (want,) = torch.autograd.grad(F.silu(leaf), leaf, dy.double())
        c("SiluBackward", X(dy), X(x), Y(want, dtype, operations=10, size=largest(want) + largest(dy)))
    c = Call("Silu/far out")
    x = torch.tensor([-200.0, -90.0, -0.0, 90.0, 200.0])
    c("Silu", X(x), Y(F.silu(x.double()), F32, operations=6, size=1e-10))

    for dim in (-1, 0, 1):
        for dtype in (F32, F16, BF16):
            for op, forward in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)):
                c = Call(f"{op}/along {dim}, {nameof(dtype)}")
                x = randn(3, 4, 5, dtype=dtype) * 3
                want = forward(x.double(), dim)
                c(op, X(x, TRANSPOSED), dim, Y(want, dtype, operations=12, size=largest(want)))
                c = Call(f"{op}Backward/along {dim}, {nameof(dtype)}")
                leaf = (randn(3, 4, 5, dtype=dtype).double() * 3).requires_grad_()
                y = rounded(forward(leaf.detach(), dim), dtype)
                dy = randn(3, 4, 5, dtype=dtype)
                # From the output as it is stored.
                o, g = y.double(), dy.double()
                want = o * (
                    g - (o * g).sum(dim, keepdim=True)) if op == "Softmax" else g - o.exp() * g.sum(dim, keepdim=True)
                size = largest(g.abs() + g.abs().sum(dim, keepdim=True))
                c(op + "Backward", X(dy), X(y), dim, Y(want, dtype, operations=12, size=size))
    c = Call("Softmax/minus infinity and large numbers")
    x = torch.tensor([[0.0, -math.inf, 1.0], [3e38, 3e38, -3e38]])
    c("Softmax", X(x), 1, Y(F.softmax(x.double(), 1), F32, operations=8, size=1.0))


# Losses

def losses():
    begin("loss")
    for name, dtype, reduction, target_dtype, weighted, ignored in (("mean", F32, "mean", I64, False,
                                                                     True), ("sum, i32", F32, "sum", I32, False, False),
                                                                    ("none", F32, "none", I64, False, True),
                                                                    ("mean, bf16", BF16, "mean", I64, False, True),
                                                                    ("mean, f16", F16, "mean", I64, False,
                                                                     False), ("mean, weighted", F32, "mean", I64, True,
                                                                              True), ("none, weighted, bf16", BF16,
                                                                                      "none", I64, True, False)):
        c = Call(f"CrossEntropyLoss/{name}")
        x, target = randn(5, 7, dtype=dtype) * 2, randint(0, 7, 5, dtype=target_dtype)
        weight = rand(7) if weighted else None
        if ignored:
            target[3] = -100
        logp = F.log_softmax(x.double(), -1)
        up = weight.double() if weighted else None
        loss = F.nll_loss(logp, target.long(), up, ignore_index=-100, reduction=reduction)
        size = largest(logp) * (5 if reduction == "sum" else 1) * (largest(weight)
                                                                   if weighted and reduction == "none" else 1)
        loss = loss.reshape(-1) if reduction == "none" else loss.reshape(1)
        c("CrossEntropyLoss", X(x), X(target),
          X(weight) if weighted else None, reduction, -100, 0.0, 0.0, False, Y(loss, dtype, operations=24, size=size),
          Y(logp, dtype, operations=14, size=largest(logp)), unread([1], dtype),
          unread([5], F32 if dtype == F32 else dtype))

        c = Call(f"CrossEntropyLossGrad/{name}")
        x, target = randn(5, 7, dtype=dtype) * 2, randint(0, 7, 5)
        if ignored:
            target[3] = -100
        logp = rounded(F.log_softmax(x.double(), -1), dtype)
        out = 5 if reduction == "none" else 1
        dy = randn(out, dtype=dtype)
        w = torch.where(target == -100, 0.0, (up if weighted else torch.ones(7, dtype=F64))[target.clamp(0)])
        scale = dy.double() * w / (w.sum() if reduction == "mean" else 1.0)
        want = scale[:, None] * (logp.double().exp() - F.one_hot(target.clamp(0), 7))
        c("CrossEntropyLossGrad", X(dy if reduction == "none" else dy.reshape([])), X(logp), X(target),
          X(weight) if weighted else None, None, None, reduction, -100, 0.0, 0.0,
          Y(want, dtype, operations=14, size=largest(scale) * 2))
    c = Call("CrossEntropyLoss/smoothed labels")
    x, target = randn(5, 7), randint(0, 7, 5)
    logp = F.log_softmax(x.double(), -1)
    loss = F.cross_entropy(x.double(), target, label_smoothing=0.125)
    c("CrossEntropyLoss", X(x), X(target), None, "mean", -100, 0.125, 0.0, False,
      Y(loss.reshape(1), F32, operations=24, size=largest(logp)), Y(logp, F32, operations=14, size=largest(logp)),
      unread([1], F32), unread([5], F32))

    for reduction, name in enumerate(("none", "mean", "sum")):
        for dtype in (F32, BF16):
            c = Call(f"NLLLoss/{name}, {nameof(dtype)}")
            logp, target, weight = rounded(F.log_softmax(randn(5, 7, dtype=F64), -1),
                                           dtype), randint(0, 7, 5), rand(7, dtype=dtype)
            target[1] = -100
            used = torch.where(target == -100, 0.0, weight.double()[target.clamp(0)])
            loss = F.nll_loss(logp.double(), target, weight.double(), ignore_index=-100, reduction=name)
            total = used.sum()
            size = largest(logp) * (largest(weight) * (5 if name == "sum" else 1) if name != "mean" else 1)
            c("NLLLoss", X(logp), X(target), X(weight), reduction, -100,
              Y(loss.reshape(-1) if name == "none" else loss, dtype, operations=14, size=size),
              Y(total, dtype, operations=6, size=float(total)) if name != "none" else unread([], dtype))

            c = Call(f"NLLLossBackward/{name}, {nameof(dtype)}")
            logp, target, weight = rounded(F.log_softmax(randn(5, 7, dtype=F64), -1),
                                           dtype), randint(0, 7, 5, dtype=I32), rand(7, dtype=dtype)
            target[2] = -100
            used = torch.where(target == -100, 0.0, weight.double()[target.long().clamp(0)])
            total = rounded(used.sum(), dtype)
            dy = randn(*((5,) if name == "none" else ()), dtype=dtype)
            want = torch.zeros(5, 7, dtype=F64)
            value = -used * dy.double() / (total.double() if name == "mean" else 1.0)
            want[torch.arange(5), target.long().clamp(0)] = value
            c("NLLLossBackward", X(dy), X(logp), X(target), X(weight), reduction, -100, X(total),
              Y(want, dtype, operations=6, size=largest(value)))


# Rotary

def turned(x, mode):
    if mode == 0:
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)
    return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)


def rotaries():
    begin("rotary")
    layouts = {
        "BNSD": ((2, 3, 5, 6), ((1, 1, 5, 6), (2, 1, 5, 6), (2, 3, 5, 6))),
        "BSND": ((2, 5, 3, 6), ((1, 5, 1, 6), (2, 5, 1, 6))), "SBND": ((5, 2, 3, 6), ((5, 1, 1, 6), (5, 2, 1, 6)))
    }
    for layout, (shape, tables) in layouts.items():
        for number, table in enumerate(tables):
            for mode in (0, 1):
                if mode == 1 and number > 0:
                    continue
                dtype = (F32, BF16, F16)[number]
                kind = "half" if mode == 0 else "interleaved"
                name = f"{layout}, {kind}, {'x'.join(map(str, table))}, {nameof(dtype)}"
                c = Call(f"RotaryPositionEmbedding/{name}")
                x, cos, sin = randn(*shape, dtype=dtype), randn(*table, dtype=dtype), randn(*table, dtype=dtype)
                want = x.double() * cos.double() + turned(x.double(), mode) * sin.double()
                size = largest((x.double() * cos.double()).abs() + (turned(x.double(), mode) * sin.double()).abs())
                c("RotaryPositionEmbedding", X(x), X(cos), X(sin), mode, Y(want, dtype, operations=4, size=size))

                for with_x in (False, True) if number == 0 else (True,):
                    c = Call(f"RotaryPositionEmbeddingGrad/{name}{', with x' if with_x else ''}")
                    x, cos, sin, dy = randn(*shape, dtype=dtype), randn(*table, dtype=dtype), randn(
                        *table, dtype=dtype), randn(*shape, dtype=dtype)
                    leaves = [t.double().requires_grad_() for t in (x, cos, sin)]
                    y = leaves[0] * leaves[1] + turned(leaves[0], mode) * leaves[2]
                    dx, dcos, dsin = torch.autograd.grad(y, leaves, dy.double())
                    count = math.prod(shape) // math.prod(table)
                    big = lambda t: dict(operations=count + 4, size=largest(t) + count)
                    c("RotaryPositionEmbeddingGrad", X(dy), X(cos), X(sin),
                      X(x) if with_x else None, mode, Y(dx, dtype, operations=4, size=2 * largest(dx)),
                      Y(dcos, dtype, **big(dcos)) if with_x else unread(table, dtype),
                      Y(dsin, dtype, **big(dsin)) if with_x else unread(table, dtype))

    for op, extra in (("ApplyRotaryPosEmb", []), ("ApplyRotaryPosEmbV2", ["half"])):
        for dtype in (BF16,) if extra else (F16,):
            c = Call(f"{op}/{nameof(dtype)}")
            q, k = randn(1, 2, 2, 128, dtype=dtype), randn(1, 2, 1, 128, dtype=dtype)
            cos, sin = randn(1, 2, 1, 128, dtype=dtype), randn(1, 2, 1, 128, dtype=dtype)
            wants = [t.double() * cos.double() + turned(t.double(), 0) * sin.double() for t in (q, k)]
            size = max(map(largest, wants))
            # The two products may be rounded before they are added.
            error = dict(operations=4, size=size, extra=2 * ULP[dtype] * size)
            c(op, Y(wants[0], dtype, before=q, **error), Y(wants[1], dtype, before=k, **error), X(cos), X(sin), 1,
              *extra)


# Attention

def packed_bits(keep):
    """One bit per element, lowest bit of a byte first; whole blocks of 128 bits."""
    bits = torch.zeros(-(-keep.numel() // 128) * 128, dtype=I32)
    bits[:keep.numel()] = keep.flatten().to(I32)
    return (bits.reshape(-1, 8) << torch.arange(8, dtype=I32)).sum(1).to(U8)


class Attention:
    """Attention of one batch item in float64: q [N, S, D], k and v [M, T, D]."""

    def __init__(self, q, k, v, scale, masked=None, keep=None, keep_prob=1.0):
        self.leaves = [t.double().requires_grad_() for t in (q, k, v)]
        q, k, v = self.leaves
        group = q.shape[0] // k.shape[0]
        wide_k, wide_v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = scale * (q @ wide_k.transpose(1, 2))
        if masked is not None:
            scores = scores.masked_fill(masked, -math.inf)
        self.max = scores.max(-1, keepdim=True).values.detach()
        weights = torch.exp(scores - self.max)
        self.sum = weights.sum(-1, keepdim=True).detach()
        p = weights / self.sum if q.shape[1] * k.shape[1] else weights
        p = weights / weights.sum(-1, keepdim=True)
        dropped = p if keep is None else p * keep / keep_prob
        self.out = dropped @ wide_v
        # Sizes of what is summed up, for the tolerances.
        n, t, d = q.shape[0], k.shape[1], q.shape[2]
        with torch.no_grad():
            score_error = EPS * (d + 2) * largest(abs(scale) * (q.abs() @ wide_k.abs().transpose(1, 2))) + 4 * EPS
            self.relative = 2 * score_error + EPS * (t + 8)
            self.size = largest(dropped @ wide_v.abs()) if t else 0.0
            self.score_error, self.group = score_error, group
            self.p, self.dropped, self.wide_k, self.wide_v, self.scale = p, dropped, wide_k, wide_v, scale
            self.factor = 1.0 if keep is None else keep / keep_prob

    def gradients(self, dout, ulp):
        grads = torch.autograd.grad(self.out, self.leaves, dout.double())
        with torch.no_grad():
            q = self.leaves[0].abs()
            dp = (dout.double().abs() @ self.wide_v.abs().transpose(1, 2)) * self.factor
            ds = self.p * (dp + (self.p * dp).sum(-1, keepdim=True))
            # The output of the forward pass that the gradient reads was rounded.
            from_out = self.p * (dout.double().abs() * self.out.abs()).sum(-1, keepdim=True) * ulp / 2
            n, d, t = q.shape[0], q.shape[2], self.p.shape[2]
            relative = 4 * self.relative + EPS * 4 * (d + t + self.p.shape[1] * self.group)
            add = lambda m: m.reshape(-1, self.group, *m.shape[1:]).sum(1)
            sizes = [largest(abs(self.scale) * (w @ self.wide_k.abs())) for w in (ds, from_out)]
            errors = [relative * sizes[0] + sizes[1]]
            sizes = [largest(add(abs(self.scale) * (w.transpose(1, 2) @ q))) for w in (ds, from_out)]
            errors.append(relative * sizes[0] + sizes[1])
            errors.append(relative * largest(add(self.dropped.transpose(1, 2) @ dout.double().abs())))
        return grads, errors


def to_layout(x, layout):
    """[B, N, S, D] → layout."""
    b, n, s, d = x.shape
    return {"BNSD": lambda: x, "BSND": lambda: x.transpose(1, 2), "BSH": lambda: x.transpose(1, 2).reshape(b, s, n * d),
            "SBH": lambda: x.permute(2, 0, 1, 3).reshape(s, b, n * d)}[layout]().contiguous()


def eightfold(x):
    return x.expand(*x.shape[:-1], 8)


def within(want, dtype, error):
    """An output with this absolute error before it is rounded."""
    return Y(want, dtype, operations=1, size=0.0, extra=error)


TRIANGLE = "triangle"


def attentions():
    begin("attention")
    plain = dict(b=2, n=2, m=2, s=5, t=5, d=6, layout="BNSD", dtype=F32, mask=None, mode=0, keep_prob=1.0,
                 pre=TOKENS_MAX, next=TOKENS_MAX)
    variants = {
        "BNSD": {},
        "BSH": dict(layout="BSH"),
        "SBH": dict(layout="SBH"),
        "BSND": dict(layout="BSND"),
        "grouped heads": dict(n=6, m=2, layout="BSND"),
        "one head for all": dict(n=4, m=1, layout="BSH"),
        "more keys": dict(s=3, t=7),
        "narrower values": dict(width=4, layout="BSND"),
        "bf16": dict(dtype=BF16, d=16, layout="BSH", n=4, b=1),
        "f16": dict(dtype=F16, d=16, b=1),
        "mask [S,T]": dict(mask="st"),
        "mask [1,1,S,T]": dict(mask="11st"),
        "mask [B,1,S,T]": dict(mask="b1st"),
        "mask [B,N,S,T], u8": dict(mask="bnst", dtype=BF16),
        "all of the mask": dict(mask="st", mode=1),
        "causal": dict(mode=2, mask=TRIANGLE),
        "causal, grouped, bf16": dict(mode=2, mask=TRIANGLE, n=4, layout="BSH", dtype=BF16, d=8, s=9, t=9, b=1),
        "causal to the lower right": dict(mode=3, mask=TRIANGLE, s=3, t=7),
        "causal to the lower right, square": dict(mode=3, mask=TRIANGLE, b=1),
        "a band": dict(mode=4, mask=TRIANGLE, s=7, t=7, pre=2, next=1, b=1),
        "a long one": dict(mode=2, mask=TRIANGLE, s=70, t=70, d=4, n=2, m=1, b=1),
        "dropout": dict(keep_prob=0.75),
        "dropout and a mask": dict(keep_prob=0.5, mask="st", layout="BSND", n=4),
    }
    for name, changes in variants.items():
        v = dict(plain, **changes)
        b, n, m, s, t, d, dtype, layout = (v[key] for key in ("b", "n", "m", "s", "t", "d", "dtype", "layout"))
        width = v.get("width", d)  # of the values
        c = Call(f"FlashAttentionScore/{name}")
        q, k, w = randn(b, n, s, d, dtype=dtype), randn(b, m, t, d, dtype=dtype), randn(b, m, t, width, dtype=dtype)
        dout = randn(b, n, s, width, dtype=dtype)
        i, j = torch.arange(s)[:, None], torch.arange(t)[None, :]
        mask, given = None, None
        if v["mask"] == TRIANGLE:
            given = Tensor(U8 if "bf16" in name else BOOL, [2048, 2048], fill="triu")
            mask = {2: j > i, 3: j > i + t - s, 4: (j < i + t - s - v["pre"]) | (j > i + t - s + v["next"])}[v["mode"]]
        elif v["mask"]:
            shape = [{"s": s, "t": t, "b": b, "n": n, "1": 1}[letter] for letter in v["mask"]]
            mask = coin(*shape, p=0.4)
            mask[..., 2] = False
            given = X(mask.to(U8) if "u8" in name else mask)
        spread = None if mask is None else mask.expand(b, n, s, t) if mask.dim() == 4 else mask[None, None].expand(
            b, n, s, t)
        keep = coin(b, n, s, t, p=v["keep_prob"]) if v["keep_prob"] < 1 else None
        scale = d ** -0.5
        items = [
            Attention(q[x], k[x], w[x], scale, None if spread is None else spread[x],
                      None if keep is None else keep[x].double(), v["keep_prob"])
            for x in range(b)
        ]
        out = torch.stack([item.out.detach() for item in items])
        top, total = torch.stack([item.max for item in items]), torch.stack([item.sum for item in items])
        error = max(item.relative * item.size for item in items)
        score_error = max(item.score_error for item in items)
        drop = X(packed_bits(keep)) if keep is not None else None
        settings = (scale, v["keep_prob"], v["pre"], v["next"], n, layout, 0, v["mode"])
        qkv = [X(to_layout(x, layout)) for x in (q, k, w)]
        statistics = (eightfold(top), eightfold(total))
        bounds = [item.gradients(dout[x], ULP[dtype]) for x, item in enumerate(items)]
        wants = [torch.stack([grads[place] for grads, _ in bounds]) for place in range(3)]
        errors = [max(each[place] for _, each in bounds) for place in range(3)]
        c("FlashAttentionScore", *qkv, None, drop, None, given, None, *settings,
          within(statistics[0], F32, score_error),
          within(statistics[1], F32, (2 * score_error + t * EPS) * largest(total)), unread([0], dtype),
          within(to_layout(out, layout), dtype, error))
        c.name = f"FlashAttentionScoreGrad/{name}"
        c("FlashAttentionScoreGrad", *qkv, X(to_layout(dout, layout)), None, drop, None, given,
          X(rounded(statistics[0], F32)), X(rounded(statistics[1], F32)), None,
          X(to_layout(rounded(out, dtype), layout)), None, *settings,
          *(within(to_layout(want, layout), dtype, bound) for want, bound in zip(wants, errors)), unread([0], dtype))
    packed_attentions()
    one_token_attentions()
    attention_updates()


def packed_attentions():
    plain = dict(n=2, m=2, d=6, q=(3, 4), k=(3, 4), dtype=F32, mode=0, mask=None, keep_prob=1.0)
    variants = {
        "two sequences": {}, "grouped heads, bf16, causal":
            dict(n=4, m=2, d=16, dtype=BF16, mode=2, mask=TRIANGLE, q=(5, 1, 2), k=(5, 1, 2)),
        "causal to the lower right":
            dict(mode=3, mask=TRIANGLE, q=(2, 1, 3), k=(4, 1, 3)), "one of them empty":
                dict(q=(3, 0, 2), k=(3, 0, 2), mode=2, mask=TRIANGLE), "more keys":
                    dict(q=(1, 2), k=(4, 3)), "dropout":
                        dict(keep_prob=0.5, q=(3, 4), k=(2, 5)), "f16":
                            dict(dtype=F16, d=8)
    }
    for name, changes in variants.items():
        v = dict(plain, **changes)
        n, m, d, dtype = v["n"], v["m"], v["d"], v["dtype"]
        rows, columns = sum(v["q"]), sum(v["k"])
        c = Call(f"FlashAttentionVarLenScore/{name}")
        q, k, w, dout = randn(rows, n, d,
                              dtype=dtype), randn(columns, m, d,
                                                  dtype=dtype), randn(columns, m, d,
                                                                      dtype=dtype), randn(rows, n, d, dtype=dtype)
        given = Tensor(BOOL, [2048, 2048], fill="triu") if v["mask"] else None
        keeps = [coin(n, s, t, p=v["keep_prob"]) for s, t in zip(v["q"], v["k"])]
        drop = X(packed_bits(torch.cat([keep.flatten() for keep in keeps]))) if v["keep_prob"] < 1 else None
        scale = d ** -0.5
        parts, at, to = [], 0, 0
        for s, t, keep in zip(v["q"], v["k"], keeps):
            if s:
                i, j = torch.arange(s)[:, None], torch.arange(t)[None, :]
                mask = {0: None, 2: j > i, 3: j > i + t - s}[v["mode"]]
                item = Attention(q[at:at + s].transpose(0, 1), k[to:to + t].transpose(0, 1),
                                 w[to:to + t].transpose(0, 1), scale, mask,
                                 keep.double() if drop else None, v["keep_prob"])
                grads, errors = item.gradients(dout[at:at + s].transpose(0, 1), ULP[dtype])
                parts.append((item, [grad.transpose(0, 1) for grad in grads], errors))
            at, to = at + s, to + t
        out = torch.cat([item.out.detach().transpose(0, 1) for item, _, _ in parts])
        # Each sequence's lie as [N, S, 1], whatever the shape says.
        top, total = (
            torch.cat([getattr(item, which).flatten() for item, _, _ in parts]).reshape(rows, n, 1)
            for which in ("max", "sum"))
        statistics = (eightfold(top), eightfold(total))
        score_error = max(item.score_error for item, _, _ in parts)
        ends = [Ints(*numpy.cumsum(v[key]).tolist()) for key in ("q", "k")]
        settings = (scale, v["keep_prob"], TOKENS_MAX, TOKENS_MAX, n, "TND", 0, v["mode"])
        c("FlashAttentionVarLenScore", X(q), X(k), X(w), None, drop, None, given, None, *ends, *settings,
          within(statistics[0], F32, score_error),
          within(statistics[1], F32, (2 * score_error + max(v["k"]) * EPS) * largest(total)), unread([0], dtype),
          within(out, dtype, max(item.relative * item.size for item, _, _ in parts)))
        c.name = f"FlashAttentionUnpaddingScoreGrad/{name}"
        wants = [torch.cat([grads[place] for _, grads, _ in parts]) for place in range(3)]
        bounds = [max(errors[place] for _, _, errors in parts) for place in range(3)]
        c("FlashAttentionUnpaddingScoreGrad", X(q), X(k), X(w), X(dout), None, drop, None, given,
          X(rounded(statistics[0], F32)), X(rounded(statistics[1], F32)), None, X(rounded(out, dtype)), None, *ends,
          *settings, *(within(want, dtype, bound) for want, bound in zip(wants, bounds)), unread([0], dtype))


def one_token_attentions():
    """A query of one token for each item of the batch."""
    for name, dtype, layout, n, m, lengths in (("BNSD, f16", F16, "BNSD", 2, 2, None),
                                               ("BSH, grouped, lengths", BF16, "BSH", 4, 2, (3, 7)),
                                               ("BSND, one head for all", F16, "BSND", 2, 1, None)):
        c = Call(f"IncreFlashAttentionV4/{name}")
        b, t, d = 2, 7, 16
        q, k, w = randn(b, n, 1, d, dtype=dtype), randn(b, m, t, d, dtype=dtype), randn(b, m, t, d, dtype=dtype)
        mask = torch.zeros(b, 1, t, dtype=BOOL)
        if lengths:
            for item, length in enumerate(lengths):
                mask[item, :, length:] = True
        items = [Attention(q[x], k[x], w[x], d ** -0.5, mask[x][None].expand(n, 1, t)) for x in range(b)]
        out = torch.stack([item.out.detach() for item in items])
        error = max(item.relative * item.size for item in items)
        c("IncreFlashAttentionV4", X(to_layout(q, layout)), [X(to_layout(k, layout))], [X(to_layout(w, layout))], None,
          None,
          Ints(*lengths) if lengths else None, *[None] * 9, n, d ** -0.5, layout, m, 0, 1,
          within(to_layout(out, layout), dtype, error))


def eighths(*shape, step, low=-12, count=25):
    """low / 8 and up, in some order: numbers that all types hold."""
    return (low + torch.arange(math.prod(shape)) * step % count).reshape(shape).double() / 8


def attention_updates():
    """What rows have of two parts of their keys, put together; statistics lie as those of packed sequences."""
    for name, dtype, n, d, lengths in (("one sequence", F32, 2, 64, (3,)), ("three, bf16", BF16, 1, 128, (2, 1, 3)),
                                       ("one of them empty, f16", F16, 3, 64, (1, 0, 2))):
        c = Call(f"RingAttentionUpdate/{name}")
        rows = sum(lengths)
        outs = [eighths(rows, n, d, step=step).to(dtype) for step in (7, 11)]
        tops = [eighths(rows * n, step=step) for step in (13, 9)]
        sums = [eighths(rows * n, step=step, low=3, count=23) for step in (5, 8)]
        top = torch.maximum(*tops)
        parts = [total * torch.exp(each - top) for total, each in zip(sums, tops)]
        shares = [part / (parts[0] + parts[1]) for part in parts]
        # By row and head, from where the statistics of each sequence lie.
        places = torch.cat([
            (sum(lengths[:s]) * n + torch.arange(n)[None, :] * length + torch.arange(length)[:, None]).reshape(-1)
            for s, length in enumerate(lengths)
        ])
        want = sum(out.double() * share[places].reshape(rows, n, 1) for out, share in zip(outs, shares))
        given = [
            (X(out), X(eightfold(each.reshape(rows, n, 1)).float()), X(eightfold(total.reshape(rows, n, 1)).float()))
            for out, each, total in zip(outs, tops, sums)
        ]
        ends = torch.tensor([sum(lengths[:s]) for s in range(len(lengths) + 1)])
        c("RingAttentionUpdate", *given[0], *given[1], X(ends), "TND", within(want, dtype, 16 * EPS),
          within(eightfold(top.reshape(rows, n, 1)), F32, 0.0),
          within(eightfold((parts[0] + parts[1]).reshape(rows, n, 1)), F32, 64 * EPS))


# Dropout

def dropouts():
    begin("dropout")
    for dtype in (F32, F16, BF16):
        c = Call(f"DropoutDoMask/{nameof(dtype)}")
        x, keep = randn(11, 13, dtype=dtype), coin(11, 13, p=0.75)
        want = x.double() * keep / 0.75
        c("DropoutDoMask", X(x), X(packed_bits(keep)), 0.25, Y(want, dtype, operations=4, size=largest(want)))
        c = Call(f"DropoutBackward/{nameof(dtype)}")
        dy, keep = randn(11, 13, dtype=dtype), coin(11, 13, p=0.5)
        want = dy.double() * keep * 2
        c("DropoutBackward", X(dy), X(packed_bits(keep)), 2.0, Y(want, dtype, operations=4, size=largest(want)))
        c = Call(f"Dropout/{nameof(dtype)}, nothing dropped")
        x = randn(11, 13, dtype=dtype)
        c("Dropout", X(x), 0.0, True, 3, 0, Y(x), unread([32], U8))
        c = Call(f"Dropout/{nameof(dtype)}, not training")
        x = randn(11, 13, dtype=dtype)
        c("Dropout", X(x), 0.5, False, 3, 0, Y(x), unread([32], U8))
    for op, more in (("DropoutGenMask", []), ("DropoutGenMaskV2", [NUMBERS["FLOAT"]])):
        for name, p, want in (("none dropped", 0.0, 255), ("all dropped", 1.0, 0)):
            c = Call(f"{op}/{name}")
            c(op, Ints(16, 16), p, 5, 0, *more, Y(torch.full((32,), want, dtype=U8)))


def refuses(ops, *arguments):
    """What these operators refuse in place of an argument of their first case: (argument, value)."""
    for op in ops.split():
        for book in families.values():
            if "aclnn" + op in book["operators"]:
                described = [[i, Call.described(None, "", value, {})] for i, value in arguments]
                book["operators"]["aclnn" + op].setdefault("refuses", []).extend(described)


def refusals():
    refuses("Mm Matmul BatchMatMul", (3, -1), (3, 9))
    refuses("Addmm Baddbmm", (6, 9))
    refuses("InplaceAddmm InplaceBaddbmm", (5, 9))
    refuses("Gemm", (5, 2), (6, -1))
    refuses("WeightQuantBatchMatmulV2 WeightQuantBatchMatmulV3", (7, 16), (7, 33), (7, -32))
    refuses("Cast", (1, NUMBERS["INT32"]), (1, -1))
    refuses("Permute", (1, Ints(0, 1)), (1, Ints(0, 1, 1)), (1, Ints(0, 1, 3)))
    refuses("Cat", (1, 3), (1, 2))
    refuses("Slice", (1, 2), (4, 0), (4, -1), (2, 2))
    refuses("SplitWithSize", (1, Ints(1, 3)), (1, Ints(1, 3, 3)), (1, Ints(1, 4, 1)), (2, 2))
    refuses("Expand", (1, Ints(2, 3)), (1, Ints(2, 4, 4)), (1, Ints(-1, 3, 4)))
    refuses("Repeat", (1, Ints(2)), (1, Ints(2, 1, 2)), (1, Ints(2, 1, -3)))
    refuses("Arange", (2, Scalar(0.0)), (2, Scalar(-0.75)), (1, Scalar(9.0)))
    refuses("ReduceSum Mean", (1, Ints(3)), (1, Ints(1, 1)), (1, Ints(1)), (2, True), (3, NUMBERS["BF16"]))
    refuses("MeanV2 Amax Amin LogSumExp All Any", (1, Ints(3)), (1, Ints(1, 1)))
    refuses("MeanV2 All Any Amin", (2, True))
    refuses("Amax LogSumExp", (2, False))
    refuses("Norm LinalgVectorNorm", (2, Ints(3)), (2, Ints(0, 0)), (3, True))
    refuses("LinalgVectorNorm", (4, NUMBERS["FLOAT16"]))
    refuses("ArgMax MaxDim", (1, 2), (1, 0), (2, True))
    refuses("EmbeddingDenseBackward", (2, 6))
    refuses("IndexSelect GatherV2", (1, 3), (1, 1))
    refuses("Gather", (1, 3), (1, -4))
    refuses("IndexAdd IndexCopy", (1, 2), (1, -3))
    refuses("InplaceIndexCopy", (1, 1))
    refuses("ScatterAdd Scatter", (1, 2))
    refuses("Scatter InplaceScatter ScatterValue InplaceScatterValue", (4, 3), (4, -1), (1, 2))
    refuses("InplaceScatterUpdate", (3, 0), (3, -1), (3, 4))
    refuses("InplaceIndexFillTensor", (1, 2), (2, Ints(4)))
    refuses("ForeachMulScalarV2 ForeachAddScalarV2", (1, Scalar(0.5, F16)))
    refuses("ForeachAddListV2", (2, Scalar(0.5, F16)))
    refuses("ForeachAddcdivScalarV2 ForeachAddcmulScalarV2", (3, Scalar(0.5, F16)))
    refuses("ForeachNorm", (1, Scalar(3.0)))
    refuses("SwiGlu", (1, 0), (1, 2))
    refuses("SwiGluGrad", (2, 0), (2, 2))
    refuses("GeGluV3", (1, 0), (1, 2), (2, 2))
    refuses("GeGluV3Backward", (3, 0), (3, 2), (4, 2))
    refuses("Softmax LogSoftmax", (1, 3), (1, -4))
    refuses("SoftmaxBackward LogSoftmaxBackward", (2, 3))
    refuses("CrossEntropyLoss", (3, "average"), (3, "sums"), (5, 1.5), (6, 0.5), (7, True))
    refuses("CrossEntropyLossGrad", (6, "average"), (6, "none"), (8, 0.1), (9, 0.5))
    refuses("NLLLoss", (3, 3), (3, 1))
    refuses("NLLLossBackward", (4, 3), (4, 1))
    refuses("RotaryPositionEmbedding", (3, 2), (3, -1))
    refuses("RotaryPositionEmbeddingGrad", (4, 2), (4, -1))
    refuses("ApplyRotaryPosEmb ApplyRotaryPosEmbV2", (4, 0))
    refuses("ApplyRotaryPosEmbV2", (5, "interleave"))
    for op, layout in (("FlashAttentionScore", 13), ("FlashAttentionVarLenScore", 15), ("FlashAttentionScoreGrad", 18),
                       ("FlashAttentionUnpaddingScoreGrad", 20)):
        refuses(op, (layout - 4, 0.0), (layout - 4, 1.5), (layout - 1, 3), (layout, "NSBD"), (layout + 2, 9))
    for op, ends in (("FlashAttentionVarLenScore", 8), ("FlashAttentionUnpaddingScoreGrad", 13)):
        refuses(op, (ends, Ints(4, 3)), (ends, Ints(3, 6)), (ends, Ints(7)), (ends + 7, "BSND"), (ends + 9, 5))
    refuses("RingAttentionUpdate", (7, "SBH"), (7, "BSND"))
    refuses("IncreFlashAttentionV4", (15, 3), (17, "SBND"), (18, 3))
    refuses("DropoutDoMask", (2, -0.5), (2, 1.5))
    refuses("DropoutGenMask DropoutGenMaskV2", (1, -0.5), (1, 1.5))
    refuses("Dropout", (1, -0.5), (1, 1.5))
    accepts("RmsNorm", contiguous=[3, 4])
    accepts("RmsNormGrad", contiguous=[4, 5])
    accepts("AddRmsNorm", contiguous=[4, 5, 6])
    accepts("CrossEntropyLoss", contiguous=[9])
    accepts("CrossEntropyLossGrad", contiguous=[10])
    accepts("SwiGlu", contiguous=[0, 2])
    accepts("SwiGluGrad", contiguous=[0, 3])
    accepts("GeGluV3", contiguous=[0, 4, 5])
    accepts("GeGluV3Backward", contiguous=[0, 1, 2, 6])
    accepts("RotaryPositionEmbedding", contiguous=[4])
    accepts("RotaryPositionEmbeddingGrad", contiguous=[5, 6, 7])
    accepts("RingAttentionUpdate", contiguous=[8, 9, 10])
    accepts("ForeachMulScalarV2 ForeachAddScalarV2", contiguous=[0, 2])
    accepts("ForeachAddListV2", contiguous=[0, 1, 3])
    accepts("ForeachMulList", contiguous=[0, 1, 2])
    accepts("ForeachAddcdivScalarV2 ForeachAddcmulScalarV2 ForeachAddcdivList ForeachAddcdivScalarList",
            contiguous=[0, 1, 2, 4])
    accepts("ForeachSqrt ForeachCopy", contiguous=[0, 1])
    accepts("ForeachNorm ForeachZeroInplace ForeachNonFiniteCheckAndUnscale", contiguous=[0])
    accepts("FusedAdamw", contiguous=[0, 1, 2, 3])


def exceptions():
    accepts("Clamp", optional=[1, 2])
    accepts("WeightQuantBatchMatmulV2 WeightQuantBatchMatmulV3", optional=[3, 4, 5, 6])
    accepts("ApplyAdamWV2", optional=[3])
    accepts("FusedAdamw", optional=[4, 6, 7])
    accepts("RotaryPositionEmbeddingGrad", optional=[3])
    accepts("CrossEntropyLossGrad", optional=[3, 4, 5])
    # Outputs without content.
    accepts("CrossEntropyLoss", optional=[2], any_size=[1, 10, 11], any_shape=[10, 11])
    accepts("NLLLoss", any_shape=[6])
    for op, optional, unused in (
        ("FlashAttentionScore", [3, 4, 5, 6, 7], 18),
        ("FlashAttentionVarLenScore", [3, 4, 5, 6, 7], 20),
        ("FlashAttentionScoreGrad", [4, 5, 6, 7, 10, 12], 24),
        ("FlashAttentionUnpaddingScoreGrad", [4, 5, 6, 7, 10, 12], 26),
    ):
        accepts(op, optional=optional, any_dtype=[unused], any_kind=[unused], any_size=[unused], any_shape=[unused])
    accepts("IncreFlashAttentionV4", optional=list(range(3, 15)))
    accepts("RingAttentionUpdate", any_shape=[6])
    # Where there is nothing that a shape must agree with.
    accepts(
        "InplaceZero InplaceOne InplaceFillScalar InplaceFillTensor ForeachNonFiniteCheckAndUnscale ForeachZeroInplace",
        any_shape=[0])
    accepts("Abs Adds All Any ArgMax Cast Cat Clamp Divs Exp InplaceEqScalar InplaceFillScalar "
            "InplaceIndexFillTensor InplaceLogicalNot InplaceMaskedFillScalar InplaceNeg InplaceOne "
            "InplaceScatterValue InplaceTril InplaceTriu InplaceZero IsFinite Log Mean Muls Neg "
            "PowTensorScalar Reciprocal ReduceSum Rsqrt Sigmoid Sqrt Subs Tanh", any_kind=[0])
    accepts("Add Div InplaceCopy InplaceFillTensor LogicalNot Maximum Minimum Mul Sub", any_kind=[0, 1])
    accepts("Addcmul EqTensor LogicalAnd LogicalOr", any_kind=[0, 1, 2])
    accepts("EqScalar GtScalar LtScalar NeScalar", any_kind=[0, 2])
    accepts("InplaceAdd InplaceDiv InplaceMul InplaceSub PowScalarTensor", any_kind=[1])
    accepts("InplaceAddcmul SWhere", any_kind=[1, 2])
    accepts("Arange", any_kind=[3])
    accepts("ApplyAdamWV2", any_kind=[5])
    accepts("All Amax Any ArgMax ForeachNorm Gather InplaceAdds InplaceDiv InplaceDivs InplaceEqScalar "
            "InplaceExp InplaceIndexFillTensor InplaceLog InplaceLogicalNot InplaceMaskedFillScalar "
            "InplaceMul InplaceMuls InplaceNeg InplacePowTensorScalar InplaceReciprocal InplaceRsqrt "
            "InplaceSqrt InplaceSubs InplaceTril InplaceTriu LinalgVectorNorm LogSumExp MaxDim Mean MeanV2 "
            "Norm ReduceSum", any_shape=[0])
    accepts("InplaceScatterValue", any_shape=[0, 2])
    accepts("InplaceScatter", any_shape=[0, 3])
    accepts("DropoutDoMask", any_shape=[1])
    accepts("ScatterValue", any_shape=[2])
    accepts("Scatter", any_shape=[2, 3])
    accepts("ScatterAdd", any_shape=[3])
    accepts("DropoutGenMask", any_shape=[4])
    accepts("DropoutGenMaskV2", any_shape=[5])
    accepts(
        "All Any Cast InplaceAdds InplaceDivs InplaceEqScalar InplaceExp InplaceFillScalar "
        "InplaceIndexFillTensor InplaceLog InplaceLogicalNot InplaceMaskedFillScalar InplaceMuls "
        "InplaceNeg InplaceOne InplacePowTensorScalar InplaceReciprocal InplaceRsqrt InplaceSqrt "
        "InplaceSubs InplaceTril InplaceTriu InplaceZero IsFinite IsInf LinalgVectorNorm Mean ReduceSum", any_size=[0])
    accepts("Abs Exp InplaceAdd InplaceCopy InplaceDiv InplaceFillTensor InplaceMul InplaceSub Log LogicalNot "
            "Neg Reciprocal Rsqrt Sigmoid Sqrt Tanh", any_size=[0, 1])
    accepts("Div EqTensor InplaceAddcdiv InplaceAddcmul LogicalAnd LogicalOr Maximum Minimum Mul", any_size=[0, 1, 2])
    accepts("Addcdiv Addcmul", any_size=[0, 1, 2, 4])
    accepts("Add Sub", any_size=[0, 1, 3])
    accepts("Cat Divs EqScalar GtScalar InplaceScatterValue LtScalar Muls NeScalar PowTensorScalar", any_size=[0, 2])
    accepts("Adds ArgMax Clamp LogSumExp Subs", any_size=[0, 3])
    accepts("Embedding EmbeddingDenseBackward IndexPutImpl InplaceScatterUpdate NLLLoss ScatterNdUpdate", any_size=[1])
    accepts("PowScalarTensor", any_size=[1, 2])
    accepts("SWhere", any_size=[1, 2, 3])
    accepts("Gather GatherV2 IndexAdd IndexCopy IndexSelect InplaceIndexCopy InplaceScatter NLLLossBackward "
            "Scatter ScatterAdd ScatterValue", any_size=[2])
    accepts("Arange", any_size=[3])
    accepts("MaxDim", any_size=[4])


def write(folder):
    os.makedirs(folder, exist_ok=True)
    total = 0
    for name, book in families.items():
        numbers = os.path.join(folder, name + ".safetensors")
        save_file(dict(book["tensors"].values()), numbers)
        os.chmod(numbers, 0o644)
        compact = lambda value: json.dumps(value, separators=(", ", ": "))
        lines = ",\n".join(compact(case) for case in book["cases"])
        operators = ",\n".join(f"{compact(op)}: {compact(book['operators'][op])}" for op in sorted(book["operators"]))
        with open(os.path.join(folder, name + ".json"), "w") as out:
            out.write(f'{{"cases": [\n{lines}\n],\n"operators": {{\n{operators}\n}}}}\n')
        size = sum(os.path.getsize(os.path.join(folder, name + end)) for end in (".json", ".safetensors"))
        total += size
        print(f"{name}: {len(book['operators'])} operators, {len(book['cases'])} cases, {size} bytes")
    print(f"{total} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "fixtures", "ascend_operators"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for make in (matmuls, elementwise, copies, reductions, indices_, foreach, optimizers, norms, losses, rotaries,
                 attentions, dropouts):
        make()
    exceptions()
    refusals()
    write(arguments.out)


if __name__ == "__main__":
    main()
