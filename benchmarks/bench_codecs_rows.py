"""Row and value codecs: nanoseconds a row, and the ratio to what one would write by hand for just these columns.

    python -m benchmarks.bench_codecs_rows [--quick]

The peers know their columns, check nothing and take no nulls: a loop with struct for one row at a time (it gets Python
values for nothing), datetime's own isoformat for JSON, and Arrow's IPC stream with lz4 for whole columns, which stay
columns there. A ratio of 0.1 is ten times as fast. Best of five.
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.common import nanoseconds, quick_mode, row_cost
from stelae.encoding.arrow import arrow_schema
from stelae.encoding.rows import RowCodec
from stelae.schema.options import TableOptions
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import Array, BigInt, DataType, Double, Int, String, Timestamp

Row = tuple[Any, ...]
HEADER = bytes(4)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
NAMES = ("a", "b", "c", "s", "t")
TYPES: list[DataType] = [BigInt(), Int(), Double(), String(), Timestamp()]


def columns(rows: int) -> list[pa.Array]:
    rng = np.random.default_rng(1)
    return [
        pa.array(rng.integers(-(2**63), 2**63 - 1, rows)),
        pa.array(rng.integers(0, 2**31, rows).astype(np.int32)),
        pa.array(rng.random(rows)),
        pa.array([f"customer-{i * 7919 % rows:011d}" for i in range(rows)]),
        pa.array(1_700_000_000_000_000 + rng.integers(0, 10**14, rows)).cast(pa.timestamp("us")),
    ]


def nested_columns(rows: int) -> list[pa.Array]:
    offsets = np.arange(0, 3 * (rows + 1), 3, dtype=np.int32)
    long = columns(3 * rows)
    return [pa.ListArray.from_arrays(offsets, long[1]), pa.ListArray.from_arrays(offsets, long[3])]


def codec_of(types: list[DataType]) -> RowCodec:
    key = Column(0, "id", BigInt(nullable=False))
    values = (Column(i + 1, name, data_type) for i, (name, data_type) in enumerate(zip(NAMES, types, strict=False)))
    return RowCodec(TableSchema(0, (key, *values), ("id",), (), TableOptions()))


def pack_rows(rows: list[Row]) -> list[bytes]:
    pack = struct.Struct("<4sqidqI").pack
    encoded = []
    for a, b, c, s, t in rows:
        text = s.encode()
        encoded.append(pack(HEADER, a, b, c, t, len(text)) + text)
    return encoded


def unpack_rows(rows: list[bytes]) -> list[Row]:
    unpack_from = struct.Struct("<4xqidqI").unpack_from
    decoded = []
    for row in rows:
        a, b, c, t, length = unpack_from(row)
        decoded.append((a, b, c, row[36 : 36 + length].decode(), t))
    return decoded


def unpack_json(rows: list[bytes]) -> list[dict[str, Any]]:
    unpack_from = struct.Struct("<4xqidqI").unpack_from
    decoded = []
    for row in rows:
        a, b, c, t, length = unpack_from(row)
        moment = (EPOCH + dt.timedelta(0, 0, t)).isoformat()
        decoded.append({"a": a, "b": b, "c": c, "s": row[36 : 36 + length].decode(), "t": moment})
    return decoded


def to_stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def measure_batches(title: str, types: list[DataType], arrays: list[pa.Array], rows: list[Row] | None) -> None:
    codec = codec_of(types)
    batch = codec.encode_batch(arrays)
    count = len(batch)
    records = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(codec.columns))
    stream = to_stream(records)
    print(f"{title}: {batch.nbytes / count:.0f} bytes a row")
    writing = nanoseconds(count, lambda: to_stream(records)), "IPC stream"
    reading = nanoseconds(count, lambda: pa.ipc.open_stream(stream).read_all()), "IPC stream"
    packing = (nanoseconds(count, lambda: pack_rows(rows)), "packing loop") if rows else writing
    row_cost("encode_batch", nanoseconds(count, lambda: codec.encode_batch(arrays)), *writing)
    row_cost("encode_list", nanoseconds(count, lambda: codec.encode_list(arrays)), *packing)
    row_cost("decode_batch", nanoseconds(count, lambda: codec.decode_batch(batch)), *reading)
    row_cost("decode 1 of it", nanoseconds(count, lambda: codec.decode_batch(batch, ["a"])), *reading)


def measure_answers(rows: int = 1_000) -> None:
    """What a client does with the answer to a batch of keys: few rows at a time, all found or a tenth missing."""
    types: list[DataType] = [String(), String(), Int(), Double(), Timestamp()]
    ids = np.random.default_rng(1).integers(0, 10_000_000, rows)
    arrays = [
        pa.array([f"name {i}" for i in ids]),
        pa.array([f"city {i % 100}" for i in ids]),
        pa.array((ids % 100).astype(np.int32)),
        pa.array(ids / 8),
        pa.array(1_763_640_000_000_000 + ids).cast(pa.timestamp("us")),
    ]
    codec = codec_of(types)
    batch = codec.encode_batch(arrays)
    with_misses = pa.array([None if i % 10 == 0 else row for i, row in enumerate(batch.to_pylist())], pa.binary())
    records = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(codec.columns))
    stream = to_stream(records)
    print(f"STRING, STRING, INT, DOUBLE, TIMESTAMP, {rows:,} rows at a time")
    writing = nanoseconds(rows, lambda: to_stream(records), 200), "IPC stream"
    reading = nanoseconds(rows, lambda: pa.ipc.open_stream(stream).read_all(), 200), "IPC stream"
    row_cost("encode_batch", nanoseconds(rows, lambda: codec.encode_batch(arrays), 200), *writing)
    row_cost("encode_list", nanoseconds(rows, lambda: codec.encode_list(arrays), 200), *writing)
    row_cost("decode_batch", nanoseconds(rows, lambda: codec.decode_batch(batch), 200), *reading)
    row_cost("with misses", nanoseconds(rows, lambda: codec.decode_batch(with_misses), 200), *reading)
    row_cost("decode 1 of it", nanoseconds(rows, lambda: codec.decode_batch(batch, ["c"]), 200), *reading)


def measure_rows(arrays: list[pa.Array]) -> None:
    codec = codec_of(TYPES)
    encoded = codec.encode_list(arrays)[:50_000]
    rows = [codec.decode(row) for row in encoded]
    count = len(rows)
    encode, decode, to_json = codec.encode, codec.decode, codec.json_decoder(NAMES)
    assert encoded == pack_rows(rows)
    assert rows == unpack_rows(encoded)
    assert [to_json(row) for row in encoded] == unpack_json(encoded)
    packing = nanoseconds(count, lambda: pack_rows(rows))
    unpacking = nanoseconds(count, lambda: unpack_rows(encoded))
    json = nanoseconds(count, lambda: unpack_json(encoded))
    print("one row at a time, the same columns")
    row_cost("encode", nanoseconds(count, lambda: [encode(row) for row in rows]), packing, "packing loop")
    row_cost("decode", nanoseconds(count, lambda: [decode(row) for row in encoded]), unpacking, "unpacking loop")
    row_cost("json_decoder", nanoseconds(count, lambda: [to_json(row) for row in encoded]), json, "unpacking loop")


def main() -> None:
    rows = 50_000 if quick_mode(__doc__) else 500_000
    print(f"pyarrow {pa.__version__}, numpy {np.__version__}, {rows:,} rows")
    arrays = columns(rows)
    codec = codec_of(TYPES)
    python_rows = [codec.decode(row) for row in codec.encode_list(arrays)]
    measure_batches("BIGINT, INT, DOUBLE, STRING(20), TIMESTAMP", TYPES, arrays, python_rows)
    measure_batches("BIGINT, INT, DOUBLE, STRING(20)", TYPES[:4], arrays[:4], None)
    measure_batches("BIGINT, INT, DOUBLE", TYPES[:3], arrays[:3], None)
    nested: list[DataType] = [Array(element=Int()), Array(element=String())]
    measure_batches("ARRAY<INT> of 3, ARRAY<STRING(20)> of 3", nested, nested_columns(rows), None)
    measure_answers()
    measure_rows(arrays)


if __name__ == "__main__":
    main()
