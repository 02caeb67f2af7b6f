"""Key and bucket codecs: nanoseconds a row, and the ratio to the plain Python loop that does the same.

    python -m benchmarks.bench_codecs_keys [--quick]

The peers are loops over Python values written for just these columns (struct, str.encode, xxhash), without checks; they
get their values for nothing. A ratio of 0.1 is ten times as fast. Best of five.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from benchmarks.common import nanoseconds, quick_mode, row_cost
from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.schema.table_schema import Column
from stelae.schema.types import BigInt, DataType, String, Timestamp

Row = tuple[Any, ...]
BIAS = 1 << 63
END = b"\x00\x01"


def pack_bigint(rows: list[Row]) -> list[bytes]:
    pack = struct.Struct(">Q").pack
    return [pack(value + BIAS) for (value,) in rows]


def unpack_bigint(keys: list[bytes]) -> list[Row]:
    unpack = struct.Struct(">Q").unpack
    return [(unpack(key)[0] - BIAS,) for key in keys]


def pack_string(rows: list[Row]) -> list[bytes]:
    return [value.encode() for (value,) in rows]


def unpack_string(keys: list[bytes]) -> list[Row]:
    return [(key.decode(),) for key in keys]


def pack_flight(rows: list[Row]) -> list[bytes]:
    pack = struct.Struct(">Q").pack
    return [
        origin.encode() + END + pack(hour + BIAS) + carrier.encode() + END + pack(flight + BIAS) + tail.encode()
        for origin, hour, carrier, flight, tail in rows
    ]


def unpack_flight(keys: list[bytes]) -> list[Row]:
    unpack_from = struct.Struct(">Q").unpack_from
    rows = []
    for key in keys:
        a = key.index(END)
        b = key.index(END, a + 10)
        hour, flight = unpack_from(key, a + 2)[0] - BIAS, unpack_from(key, b + 2)[0] - BIAS
        rows.append((key[:a].decode(), hour, key[a + 10 : b].decode(), flight, key[b + 10 :].decode()))
    return rows


def plain_hash(rows: list[Row]) -> list[int]:
    pack, digest = struct.Struct("<q").pack, xxhash.xxh64_intdigest
    hashes = []
    for row in rows:
        h = 42
        for value in row:
            h = digest(value.encode() if isinstance(value, str) else pack(value), h)
        hashes.append(h)
    return hashes


@dataclass(frozen=True)
class Case:
    types: list[DataType]
    arrays: list[pa.Array]
    pack: Callable[[list[Row]], list[bytes]]
    unpack: Callable[[list[bytes]], list[Row]]


def cases(rows: int) -> dict[str, Case]:
    rng = np.random.default_rng(1)
    bigint = pa.array(rng.integers(-(2**63), 2**63 - 1, rows))
    string = pa.array([f"user-{i * 7919 % rows:08d}-é" for i in range(rows)])
    flight = [
        pa.array([("EWR", "JFK", "LGA")[i % 3] for i in range(rows)]),
        pa.array(rng.integers(0, 2**51, rows)).cast(pa.timestamp("us")),
        pa.array([("UA", "AA", "DL", "B6")[i % 4] for i in range(rows)]),
        pa.array(rng.integers(1, 9000, rows)),
        pa.array([f"N{i % 3000 + 10000}" for i in range(rows)]),
    ]
    flight_types = [String(), Timestamp(), String(), BigInt(), String()]
    return {
        "BIGINT": Case([BigInt()], [bigint], pack_bigint, unpack_bigint),
        "STRING": Case([String()], [string], pack_string, unpack_string),
        "STRING, TIMESTAMP, STRING, BIGINT, STRING": Case(flight_types, flight, pack_flight, unpack_flight),
    }


def measure(name: str, case: Case, repeats: int) -> None:
    columns = [Column(i, f"c{i}", replace(data_type, nullable=False)) for i, data_type in enumerate(case.types)]
    codec, function = KeyCodec(columns), BucketFunction(columns)
    batch = codec.encode_batch(case.arrays)
    keys = codec.encode_list(case.arrays)
    rows = [codec.decode(key) for key in keys]
    count = len(rows)
    assert keys == case.pack(rows)
    assert rows == case.unpack(keys)
    assert function.hash_batch(case.arrays).view(np.uint64).tolist() == plain_hash(rows)

    encode, decode, bucket = codec.encode, codec.decode, function.bucket
    packing = nanoseconds(count, lambda: case.pack(rows), repeats)
    unpacking = nanoseconds(count, lambda: case.unpack(keys), repeats)
    hashing = nanoseconds(count, lambda: plain_hash(rows), repeats)
    print(f"{name}: {sum(map(len, keys)) / count:.1f} bytes a key")
    for what, work, peer, peer_name in (
        ("encode_batch", lambda: codec.encode_batch(case.arrays), packing, "packing loop"),
        ("encode_list", lambda: codec.encode_list(case.arrays), packing, "packing loop"),
        ("encode", lambda: [encode(row) for row in rows], packing, "packing loop"),
        ("decode_batch", lambda: codec.decode_batch(batch), unpacking, "unpacking loop"),
        ("decode", lambda: [decode(key) for key in keys], unpacking, "unpacking loop"),
        ("hash_batch", lambda: function.hash_batch(case.arrays), hashing, "xxhash loop"),
        ("bucket", lambda: [bucket(row, 8) for row in rows], hashing, "xxhash loop"),
    ):
        ns = nanoseconds(count, work, repeats)
        row_cost(what, ns, peer, peer_name)


def main() -> None:
    rows = 50_000 if quick_mode(__doc__) else 1_000_000
    print(f"pyarrow {pa.__version__}, numpy {np.__version__}, {rows:,} rows")
    for count, repeats in ((rows, 5), (1_000, 50)):
        print(f"{count:,} rows at a time")
        for name, case in cases(count).items():
            measure(name, case, repeats)


if __name__ == "__main__":
    main()
