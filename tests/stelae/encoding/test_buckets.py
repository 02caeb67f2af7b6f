"""Buckets.

Goal: Python's bucket is Spark's, for one row and for batches, and never changes (docs/format.md#buckets).
Method: hashes that Spark 4.3 computed, written down; single rows against batches with Hypothesis, with nulls; what is
refused; the examples of the document. tests/builder/plan/test_placement.py asks Spark itself.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.encoding.buckets import BucketFunction, spark_bucket_expression
from stelae.errors import InvalidRequest
from stelae.schema.table_schema import Column
from stelae.schema.types import Array, BigInt, DataType, Decimal, Int, String, TinyInt
from tests.stelae.encoding.physical import KEY_TYPES, arrow_array, key_columns, values_of
from tests.stelae.encoding.test_keys import examples, types_named

# What `xxhash64` of Spark 4.3 gave. A changed line means that rows are looked up where they are not.
GOLDEN: list[tuple[str, tuple[Any, ...], int]] = [
    ("BOOLEAN", (False,), 3614696996920510707),
    ("BOOLEAN", (True,), -6698625589789238999),
    ("TINYINT", (-1,), 2017008487422258757),
    ("SMALLINT", (258,), -7984997633170402155),
    ("INT", (0,), 3614696996920510707),
    ("INT", (42,), -387659249110444264),
    ("INT", (-1,), 2017008487422258757),
    ("BIGINT", (42,), -6876166290308861218),
    ("BIGINT", (-9223372036854775808,), -8619748838626508300),
    ("FLOAT", (-0.0,), 3614696996920510707),
    ("FLOAT", (1.5,), 6163473420726370430),
    ("FLOAT", (math.nan,), 2692338816207849720),
    ("DOUBLE", (0.0,), -5252525462095825812),
    ("DOUBLE", (-1.5,), -1519168156472177911),
    ("DOUBLE", (math.nan,), -3127944061524951246),
    ("DECIMAL(9, 2)", (12345,), 8791244235932249694),
    ("DECIMAL(9, 2)", (-1,), 3858142552250413010),
    ("DECIMAL(18, 4)", (999999999999999999,), 2162198894918931945),
    ("DECIMAL(19, 0)", (0,), -8959994473701255385),
    ("DECIMAL(19, 0)", (12345,), -3765588051240043440),
    ("DECIMAL(19, 0)", (128,), 6715097930120473301),
    ("DECIMAL(38, 10)", (-129,), -6459515886037897956),
    ("DECIMAL(38, 10)", (10**38 - 1,), -47190729175993179),
    ("STRING", ("",), -7444071767201028348),
    ("STRING", ("a",), -8582455328737087284),
    ("STRING", ("Zürich",), -2199928141300491114),
    ("STRING", ("東京 \x00 a text of more than thirty-two bytes",), -4549730238133206103),
    ("BYTES", (b"\x00\xff",), 879945414100663330),
    ("DATE", (0,), 3614696996920510707),
    ("DATE", (-719162,), 6773727150484150602),
    ("TIME", (45296000001000,), 2013903295024397299),
    ("TIMESTAMP", (1795176896000001,), 2131375317346616867),
    ("TIMESTAMP_LTZ", (-1,), 3858142552250413010),
    ("BIGINT STRING", (42, "Zürich"), -1194049466192770149),
    ("STRING BIGINT", ("Zürich", 42), -925929498499762237),
    ("STRING TIMESTAMP STRING BIGINT STRING", ("EWR", 1357034400000000, "UA", 1545, "N14228"), -6607762114448288706),
    ("INT BIGINT", (None, None), 42),
    ("INT STRING", (None, "a"), -8582455328737087284),
    ("STRING INT", ("a", None), -8582455328737087284),
    ("STRING", (None,), 42),
]


def function(*types: DataType) -> BucketFunction:
    return BucketFunction(key_columns(*types))


@pytest.mark.parametrize(("names", "values", "expected"), GOLDEN, ids=lambda part: str(part)[:40])
def test_golden_hashes(names: str, values: tuple[Any, ...], expected: int) -> None:
    types = types_named(names)
    assert function(*types).hash(values) == expected
    arrays = [arrow_array([value], data_type) for value, data_type in zip(values, types, strict=True)]
    assert function(*types).hash_batch(arrays).tolist() == [expected]
    assert function(*types).bucket(values, 8) == expected % 8
    assert function(*types).bucket_batch(arrays, 8).tolist() == [expected % 8]


def test_every_type_has_golden_hashes() -> None:
    assert {name for names, _, _ in GOLDEN for name in map(str, types_named(names))} == {
        str(data_type) for data_type in KEY_TYPES.values()
    }


TABLES = (
    st.lists(st.sampled_from(list(KEY_TYPES.values())), min_size=1, max_size=4)
    .map(tuple)
    .flatmap(
        lambda types: st.tuples(
            st.just(types), st.lists(st.tuples(*(st.none() | values_of(t) for t in types)), min_size=1, max_size=8)
        )
    )
)


@given(TABLES, st.integers(1, 1000), st.integers(0, 3))
def test_batches_agree_with_single_rows(
    table: tuple[tuple[DataType, ...], list[tuple[Any, ...]]], count: int, head: int
) -> None:
    types, rows = table
    buckets = function(*types)
    arrays = [arrow_array([row[i] for row in rows], data_type) for i, data_type in enumerate(types)]
    hashes = [buckets.hash(row) for row in rows]
    assert buckets.hash_batch(arrays).tolist() == hashes
    assert buckets.hash_batch([array[head:] for array in arrays]).tolist() == hashes[head:]
    assert buckets.bucket_batch(arrays, count).tolist() == [buckets.bucket(row, count) for row in rows]
    assert all(0 <= buckets.bucket(row, count) < count for row in rows)
    assert buckets.hash_batch(arrays).dtype == np.int64
    assert buckets.bucket_batch(arrays, count).dtype == np.int32


def test_null_leaves_the_hash() -> None:
    two = function(Int(), String())
    assert two.hash((None, "a")) == function(String()).hash(("a",))
    assert two.hash((7, None)) == function(Int()).hash((7,))
    assert two.hash((None, None)) == 42
    assert function(Int()).hash((None,)) == 42


def test_other_arrow_types_give_the_same_buckets() -> None:
    two = function(String(), BigInt())
    texts, numbers = pa.array(["é", "b", None]), pa.array([1, None, 3])
    other = [texts.dictionary_encode(), numbers.cast(pa.int8())]
    assert two.hash_batch(other).tolist() == two.hash_batch([texts, numbers]).tolist()


def test_empty_batch() -> None:
    for data_type in KEY_TYPES.values():
        assert function(data_type).bucket_batch([arrow_array([], data_type)], 3).tolist() == []


@pytest.mark.parametrize(
    ("types", "values", "message"),
    [
        ((TinyInt(),), (128,), "128 is no value of column c0 TINYINT"),
        ((Int(),), (2**31,), "c0 INT"),
        ((BigInt(),), (2**63,), "c0 BIGINT"),
        ((BigInt(), BigInt()), (1, 2**63), "c1 BIGINT"),
        ((Decimal(precision=18),), (2**63,), "c0 DECIMAL"),
        ((BigInt(),), ("1",), "'1' is no value"),
        ((String(),), (b"a",), "c0 STRING"),
        ((Decimal(precision=20),), ("1",), "c0 DECIMAL"),
        ((KEY_TYPES["BYTES"],), ("a",), "c0 BYTES"),
        ((KEY_TYPES["BOOLEAN"],), (2,), "c0 BOOLEAN"),
        ((KEY_TYPES["FLOAT"],), (1e39,), "c0 FLOAT"),
        ((KEY_TYPES["DOUBLE"],), ("1",), "c0 DOUBLE"),
        ((Int(),), (1, 2), "the bucket key has columns c0, but 2 values were given"),
        ((Int(), Int()), (1,), "but 1 values were given"),
    ],
    ids=str,
)
def test_values_that_are_refused(types: tuple[DataType, ...], values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        function(*types).bucket(values, 4)


def test_batches_that_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="2 columns, but 1"):
        function(Int(), Int()).hash_batch([pa.array([1], pa.int32())])
    with pytest.raises(InvalidRequest, match="column c1 has 2 rows, column c0 1"):
        function(Int(), Int()).hash_batch([pa.array([1], pa.int32()), pa.array([1, 2], pa.int32())])
    with pytest.raises(InvalidRequest, match="column c0 INT"):
        function(Int()).hash_batch([pa.array([2**40])])


def test_what_cannot_be_a_bucket_key() -> None:
    with pytest.raises(InvalidRequest, match="cannot be part of a bucket key"):
        function(Array(element=Int()))
    with pytest.raises(InvalidRequest, match="needs a column"):
        function()


def test_functions_pickle() -> None:
    assert pickle.loads(pickle.dumps(function(BigInt()))).hash((42,)) == -6876166290308861218


def test_spark_expression() -> None:
    columns = [Column(0, "user id", BigInt()), Column(1, "a`b", String())]
    assert spark_bucket_expression(columns, 8) == "CAST(pmod(xxhash64(`user id`, `a``b`), 8) AS INT)"


def test_examples_of_the_document() -> None:
    cases = examples("Buckets")
    assert len(cases) >= 6
    for columns, values, shown in cases:
        hashed, bucket = map(int, shown.split())
        assert BucketFunction(columns).hash(values) == hashed, (columns, values)
        assert BucketFunction(columns).bucket(values, 8) == bucket
