"""Bitmaps and sketches as bytes, apart from the code under test.

Roaring bitmaps in the portable serialisation (github.com/RoaringBitmap/RoaringFormatSpec), as CRoaring and pyroaring
read it: the encoder writes array containers alone, the decoder reads every kind. Sketches are those of Spark's own
functions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_RUNS, RUNS = 12346, 12347
ARRAY_LIMIT = 4096
SKETCHES = {
    "hll_sketch": ("hll_sketch_agg", "hll_sketch_estimate"),
    "theta_sketch": ("theta_sketch_agg", "theta_sketch_estimate"),
}


def encode(spark: SparkSession, kind: str, numbers: Iterable[int]) -> bytes:
    """The bitmap or sketch of some numbers."""
    if kind in SKETCHES:
        frame = spark.createDataFrame([(number,) for number in numbers], "n BIGINT")
        return bytes(frame.selectExpr(f"{SKETCHES[kind][0]}(n)").collect()[0][0])
    return encode_64(numbers) if kind == "rbm64" else encode_32(numbers)


def decode(spark: SparkSession, kind: str, data: bytes) -> frozenset[int]:
    """The numbers of a bitmap. Of a sketch as many numbers as it estimates."""
    if kind in SKETCHES:
        frame = spark.createDataFrame([(data,)], "s BINARY").selectExpr(f"{SKETCHES[kind][1]}(s)")
        return frozenset(range(round(frame.collect()[0][0])))
    return frozenset(decode_64(data) if kind == "rbm64" else decode_32(data))


def encode_32(numbers: Iterable[int]) -> bytes:
    containers = [(high, [n & 0xFFFF for n in low]) for high, low in groupby(sorted(set(numbers)), lambda n: n >> 16)]
    assert all(len(low) <= ARRAY_LIMIT for _, low in containers)
    head = struct.pack("<II", NO_RUNS, len(containers))
    head += b"".join(struct.pack("<HH", high, len(low) - 1) for high, low in containers)
    at = len(head) + 4 * len(containers)
    offsets = b""
    for _, low in containers:
        offsets += struct.pack("<I", at)
        at += 2 * len(low)
    return head + offsets + b"".join(struct.pack(f"<{len(low)}H", *low) for _, low in containers)


def encode_64(numbers: Iterable[int]) -> bytes:
    parts = [
        (high, encode_32(n & 0xFFFFFFFF for n in low)) for high, low in groupby(sorted(numbers), lambda n: n >> 32)
    ]
    return struct.pack("<Q", len(parts)) + b"".join(struct.pack("<I", high) + part for high, part in parts)


def decode_32(data: bytes) -> list[int]:
    numbers, size = _read_32(data)
    assert size == len(data), f"{len(data) - size} bytes too many"
    return numbers


def decode_64(data: bytes) -> list[int]:
    (count,) = struct.unpack_from("<Q", data)
    at, numbers = 8, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, size = _read_32(data[at + 4 :])
        numbers += [high << 32 | number for number in low]
        at += 4 + size
    assert at == len(data), f"{len(data) - at} bytes too many"
    return numbers


def _read_32(data: bytes) -> tuple[list[int], int]:
    """The numbers of the bitmap that `data` starts with, and its size."""
    (cookie,) = struct.unpack_from("<I", data)
    assert cookie & 0xFFFF in (NO_RUNS, RUNS)
    if cookie & 0xFFFF == RUNS:
        count, at = (cookie >> 16) + 1, 4
        flags = int.from_bytes(data[at : at + (count + 7) // 8], "little")
        at += (count + 7) // 8
    else:
        (count,), at, flags = struct.unpack_from("<I", data, 4), 8, 0
    heads = [struct.unpack_from("<HH", data, at + 4 * index) for index in range(count)]
    at += 4 * count
    if cookie & 0xFFFF == NO_RUNS or count >= 4:
        at += 4 * count
    numbers = []
    for index, (high, size) in enumerate(heads):
        low, length = _container(data[at:], is_run=bool(flags >> index & 1), cardinality=size + 1)
        assert len(low) == size + 1
        numbers += [high << 16 | number for number in low]
        at += length
    return numbers, at


def _container(data: bytes, *, is_run: bool, cardinality: int) -> tuple[list[int], int]:
    if is_run:
        (runs,) = struct.unpack_from("<H", data)
        pairs = struct.unpack_from(f"<{2 * runs}H", data, 2)
        return list(_of_runs(pairs)), 2 + 4 * runs
    if cardinality <= ARRAY_LIMIT:
        return list(struct.unpack_from(f"<{cardinality}H", data)), 2 * cardinality
    bits = int.from_bytes(data[:8192], "little")
    return [number for number in range(65536) if bits >> number & 1], 8192


def _of_runs(pairs: tuple[int, ...]) -> Iterator[int]:
    for start, more in zip(pairs[::2], pairs[1::2], strict=True):
        yield from range(start, start + more + 1)
