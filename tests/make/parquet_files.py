#!/usr/bin/env python3
"""Writes tests/fixtures/parquet: small Parquet files, and the records that stand in them, NAME.jsonl for NAME.parquet.

    tests/make/parquet_files.py            writes the files
    tests/make/parquet_files.py --check    says whether the records of the files are those that this writes

Needs pyarrow. The records are written by json, not read from the files: what one and the other mean must agree.
"""

import argparse
import datetime
import decimal
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).resolve().parent.parent / "fixtures" / "parquet"
TURN = pa.struct([("role", pa.string()), ("content", pa.string())])


def turns(*contents):
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


def types():
    """A column of each type that has a value in JSON."""
    day = datetime.datetime(2024, 2, 29, 12, 30, 15, 250000)
    nest = [[1, None], [], None]
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int32()), ["x", "y"])
    columns = [
        ("text", pa.string(), ["a\n\"b\"", "\u00fc \u4e2d"], None),
        ("nothing", pa.null(), [None, None], None),
        ("flag", pa.bool_(), [True, None], None),
        ("i8", pa.int8(), [-128, 127], None),
        ("i16", pa.int16(), [-32768, 7], None),
        ("i32", pa.int32(), [-(2**31), 7], None),
        ("i64", pa.int64(), [-(2**63), 2**63 - 1], None),
        ("u8", pa.uint8(), [255, 0], None),
        ("u16", pa.uint16(), [65535, 0], None),
        ("u32", pa.uint32(), [2**32 - 1, 0], None),
        ("u64", pa.uint64(), [2**64 - 1, 0], None),
        ("f16", pa.float16(), [0.5, -2.0], None),
        ("f32", pa.float32(), [0.25, float("nan")], [0.25, None]),
        ("f64", pa.float64(), [0.1, float("nan")], [0.1, None]),
        ("large", pa.large_string(), ["l", None], None),
        ("view", pa.string_view(), ["a text of more than twelve bytes", "v"], None),
        ("bytes", pa.binary(), [b"b", "\u00fc".encode()], ["b", "\u00fc"]),
        ("large_bytes", pa.large_binary(), [b"", None], ["", None]),
        ("coded", pa.dictionary(pa.int32(), pa.string()), codes, ["y", "x"]),
        ("list", pa.list_(pa.list_(pa.int64())), [nest, None], None),
        ("large_list", pa.large_list(pa.string()), [["a"], []], None),
        ("pair", pa.list_(pa.int32(), 2), [[1, 2], [3, None]], None),
        ("struct", pa.struct([("a", pa.int32()), ("b", pa.list_(TURN))]), [{"a": None, "b": turns("q")}, None], None),
        ("map", pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], []], [{"k": 1, "l": None}, {}]),
        ("day", pa.date32(), [day.date(), None], ["2024-02-29", None]),
        ("time", pa.timestamp("ms"), [day, None], ["2024-02-29 12:30:15.250", None]),
        # Files have no unit of seconds.
        ("zoned", pa.timestamp("s", tz="UTC"), [day.replace(microsecond=0), None], ["2024-02-29 12:30:15.000Z", None]),
        ("clock", pa.time64("us"), [day.time(), None], ["12:30:15.250000", None]),
        ("price", pa.decimal128(6, 2), [decimal.Decimal("-12.50"), None], ["-12.50", None]),
        ("long_price", pa.decimal256(50, 1), [decimal.Decimal("9" * 40 + ".5"), None], ["9" * 40 + ".5", None]),
    ]
    arrays = [values if isinstance(values, pa.Array) else pa.array(values, type) for _, type, values, _ in columns]
    table = pa.table(arrays, [name for name, *_ in columns])
    names = [name for name, *_ in columns]
    as_json = [values if shown is None else shown for _, _, values, shown in columns]
    return table, [dict(zip(names, row)) for row in zip(*as_json)], {}


def chat():
    """Conversations with tools, in three row groups; roles are codes, as categories of polars are, and pages have sums."""
    call = {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"}
    call_type = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    turn = pa.struct([("role", pa.dictionary(pa.int32(), pa.string())), TURN.field("content"),
                      ("tool_calls", pa.list_(call_type))])
    tools = json.dumps([{"name": "weather", "parameters": {"type": "object"}}])
    rows = [{"messages": [{**one, "tool_calls": None} for one in turns(f"question {i}", f"answer {i}")], "tools": None,
             "id": i} for i in range(7)]
    rows[3]["messages"] = [{"role": "user", "content": "Rain?", "tool_calls": None},
                           {"role": "assistant", "content": None, "tool_calls": [call]},
                           {"role": "tool", "content": "no", "tool_calls": None},
                           {"role": "assistant", "content": "It is dry.", "tool_calls": None}]
    rows[3]["tools"] = tools
    schema = pa.schema([("messages", pa.list_(turn)), ("tools", pa.string()), ("id", pa.int64())])
    return pa.Table.from_pylist(rows, schema), rows, {"row_group_size": 3, "compression": "zstd", "write_page_checksum": True}


def pairs():
    """Columns that are each compressed otherwise."""
    rows = [{"prompt": f"p {i}", "completion": "the same answer" if i % 2 else f"a\u00e4 {i}", "weight": float(i != 2)}
            for i in range(5)]
    return pa.Table.from_pylist(rows), rows, {"compression": {"prompt": "snappy", "completion": "gzip", "weight": "zstd"}}


def refused():
    """Files that have no records, or values that have no JSON."""
    image = pa.array([b"a"] * 299 + [b"\xff\xd8"])
    yield "bytes", pa.table({"text": pa.array(["a"] * 300), "image": image})
    yield "infinite", pa.table({"text": ["a", "b"], "x": [1.0, float("-inf")]})
    yield "duration", pa.table({"text": ["a"], "took": pa.array([5], pa.duration("s"))})
    yield "twins", pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    yield "keys", pa.table({"text": ["a"], "m": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))})
    yield "empty", pa.table({"text": pa.array([], pa.string())})


def written(table, options):
    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_statistics=False, **options)
    return buffer.getvalue()


def put(name, content, check):
    """Writes a file, or says whether it is there: of Parquet the values, since bytes differ between versions."""
    path = OUT / name
    if not check:
        path.write_bytes(content)
    elif name.endswith(".parquet"):
        there, here = (pq.ParquetFile(io.BytesIO(of)).read() for of in (path.read_bytes(), content))
        if repr(there.columns) != repr(here.columns) or there.schema != here.schema:
            sys.exit(f"{name} is not what this writes")
    elif path.read_bytes() != content:
        sys.exit(f"{name} is not what this writes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    OUT.mkdir(exist_ok=True)
    for name, (table, rows, options) in {"types": types(), "chat": chat(), "pairs": pairs()}.items():
        put(f"{name}.parquet", written(table, options), check)
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        put(f"{name}.jsonl", "".join(lines).encode(), check)
    for name, table in refused():
        put(f"{name}.parquet", written(table, {}), check)


if __name__ == "__main__":
    main()
