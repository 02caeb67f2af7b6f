"""Goal: every key gets one entry, equal keys the same, in the order in which they were first seen; columns that grow
hold what was appended.

Method: batches of random keys against a dict, with all the lengths that the hash cuts differently, and with hashes so
poor that nearly all keys share one; arrays of many types, whole and sliced, against lists.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stelae.spark.append_column import AppendBits, AppendColumn
from stelae.spark.key_index import BytesIndex, WordIndex, hash_batch, mixed


class Model:
    """What an index should say."""

    def __init__(self) -> None:
        self.entries: dict[Any, int] = {}

    def check(self, keys: list[Any], entries: Any, added: Any) -> None:
        for row in added.tolist():
            assert keys[row] not in self.entries
            self.entries[keys[row]] = len(self.entries)
        assert entries.tolist() == [self.entries[key] for key in keys]


@pytest.mark.parametrize("spread", [1, 700, 30_000, 1 << 40])
def test_words(spread: int) -> None:
    chosen, index, model = np.random.default_rng(spread), WordIndex(), Model()
    for rows in (0, 1, 5000, 5000, 9000, 2):
        keys = chosen.integers(0, spread, rows).astype(np.uint64) * np.uint64(chosen.integers(1, 1 << 20))
        model.check(keys.tolist(), *index.find_or_add(keys))
    assert index.count == len(model.entries)


def test_words_that_want_the_same_slot() -> None:
    """Keys that differ in bits that hardly move the slot: long runs of taken slots, over the end of the table too."""
    index, model = WordIndex(), Model()
    # `mixed` can be undone: these become words of ones in all high bits, so all want the last slot.
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    keys = []
    for low in range(900):
        word = ((1 << 64) - 1 - low) * inverse % (1 << 64)
        keys.append(word ^ (word >> 32))
    array = np.array(keys, np.uint64)
    assert len(set((mixed(array) >> np.uint64(40)).tolist())) == 1
    for _ in range(2):
        model.check(keys, *index.find_or_add(array))


def some_keys(chosen: random.Random, rows: int) -> list[bytes]:
    def key() -> bytes:
        kind = chosen.randrange(6)
        if kind == 0:
            return b"k%d" % chosen.randrange(2000)
        if kind == 1:
            return bytes(chosen.randrange(20))  # zeros, which differ in nothing but their number
        if kind == 2:
            return b"x" * chosen.choice((7, 8, 9, 255, 256, 257, 5000)) + b"%d" % chosen.randrange(3)
        return chosen.randbytes(chosen.randrange(0, 3))

    return [key() for _ in range(rows)]


@pytest.mark.parametrize("poor", [False, True])
def test_bytes(poor: bool) -> None:
    chosen, model = random.Random(poor), Model()
    index = BytesIndex((lambda keys: hash_batch(keys) % np.uint64(5)) if poor else None)
    for rows in (0, 1, 3000, 3000, 10):
        keys = some_keys(chosen, rows)
        array = pa.array([b"not of the batch", *keys], pa.binary()).slice(1)
        model.check(keys, *index.find_or_add(array))


def test_hashes_depend_on_nothing_but_the_key() -> None:
    """Not on the batch: on where it starts, what follows, or on the lengths of others."""
    chosen = random.Random(3)
    keys = some_keys(chosen, 2000)
    together = hash_batch(pa.array(keys, pa.binary())).tolist()
    assert together == [int(hash_batch(pa.array([b"abc", key], pa.binary()).slice(1))[0]) for key in keys]
    assert len(set(together)) == len(set(keys)), "64 bits of a good hash do not collide here"


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -5, None]),
    (pa.int64(), [1, 2, 3]),
    (pa.bool_(), [True, None, False]),
    (pa.float64(), [1.5, float("inf"), None]),
    (pa.string(), ["", "abc", None, "ä" * 50]),
    (pa.binary(), [b"", b"\0\xff", None]),
    (pa.decimal128(30, 2), [Decimal("1.50"), None, Decimal("-99999999999999999999.01")]),
    (pa.timestamp("us", tz="UTC"), [0, None, 1 << 50]),
    (pa.list_(pa.int32()), [[], None, [1, None]]),
    (pa.struct([("a", pa.string())]), [{"a": "x"}, None, {"a": None}]),
]


@pytest.mark.parametrize(("arrow", "values"), VALUES, ids=[str(arrow) for arrow, _ in VALUES])
def test_columns_that_grow(arrow: pa.DataType, values: list[Any]) -> None:
    chosen = random.Random(str(arrow))
    column, expected, earlier = AppendColumn(arrow), [], []
    for _ in range(300):
        batch = pa.array(chosen.choices(values, k=chosen.randrange(1, 40)), arrow).slice(chosen.randrange(3))
        column.append(batch)
        expected += batch.to_pylist()
        if chosen.random() < 0.1:
            earlier.append((column.array(), list(expected)))
    array = column.array()
    array.validate(full=True)
    assert array.type == arrow
    assert array.to_pylist() == expected
    assert column.length == len(expected)
    assert column.nbytes >= array.nbytes
    for view, then in earlier:
        assert view.to_pylist() == then, "a view does not change when rows are added"


def test_bits() -> None:
    chosen, bits, expected = random.Random(5), AppendBits(), []
    for _ in range(500):
        some = [chosen.random() < 0.5 for _ in range(chosen.randrange(20))]
        bits.append(np.array(some, np.bool_))
        expected += some
    assert bits.array().to_pylist() == expected
