"""Keys and buckets against Spark itself.

Goal: a row is looked up in the bucket that Spark put it in, and Spark's sort gives the order of the key bytes.
Method: one DataFrame with a column of random values of every key type (extremes, nulls, NaNs, text of all planes), that
Spark hashes and sorts, alone and in random composites; Python must agree on every row.
"""

from __future__ import annotations

import dataclasses
import functools
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from stelae.encoding.buckets import BucketFunction, spark_bucket_expression
from stelae.encoding.keys import KeyCodec
from stelae.schema.table_schema import Column
from stelae.schema.types import quote_name
from tests.stelae.encoding.physical import KEY_TYPES, arrow_array, random_values

ROWS = 3000
SEED = 20_261_120
COUNTS = (1, 7, 8)


@pytest.fixture(scope="module")
def values() -> dict[Column, pa.Array]:
    """Random values of every key type, without nulls; a column is named after its type, with a character to quote."""
    rng = random.Random(SEED)
    return {
        Column(i, f"{name} `x`", dataclasses.replace(data_type, nullable=False)): arrow_array(
            random_values(rng, data_type, ROWS), data_type
        )
        for i, (name, data_type) in enumerate(KEY_TYPES.items())
    }


@pytest.fixture(scope="module")
def values_and_nulls(values: dict[Column, pa.Array]) -> dict[Column, pa.Array]:
    """The same in nullable columns, some of them null."""
    rng = np.random.default_rng(SEED)
    return {
        dataclasses.replace(column, type=dataclasses.replace(column.type, nullable=True)): pc.if_else(
            rng.random(ROWS) < 0.05, pa.scalar(None, array.type), array
        )
        for column, array in values.items()
    }


def composites(columns: list[Column], count: int, widest: int) -> list[list[Column]]:
    rng = random.Random(SEED)
    return [rng.sample(columns, rng.randint(2, widest)) for _ in range(count)]


def frame(spark: SparkSession, values: dict[Column, pa.Array]) -> DataFrame:
    table = pa.table({column.name: array for column, array in values.items()} | {"i": pa.array(range(ROWS))})
    fields = [f"{quote_name(column.name)} {column.type.spark()}" for column in values]
    return spark.createDataFrame(table, ", ".join([*fields, "i BIGINT"]))


def test_spark_and_python_agree_on_every_bucket(spark: SparkSession, values_and_nulls: dict[Column, pa.Array]) -> None:
    keys = [[column] for column in values_and_nulls] + composites(list(values_and_nulls), count=12, widest=5)
    wanted = []
    for key in keys:
        names = ", ".join(quote_name(column.name) for column in key)
        wanted.append(f"xxhash64({names}) AS h{len(wanted)}")
        wanted.append(f"{spark_bucket_expression(key, COUNTS[len(wanted) % 3])} AS b{len(wanted)}")
    hashed = frame(spark, values_and_nulls).selectExpr("i", *wanted).toArrow().sort_by("i")
    for n, key in enumerate(keys):
        function = BucketFunction(key)
        arrays = [values_and_nulls[column] for column in key]
        names = [column.name for column in key]
        h, b = hashed.column(2 * n + 1), hashed.column(2 * n + 2)
        assert function.hash_batch(arrays).tolist() == h.to_pylist(), (names, SEED)
        assert b.type == pa.int32()
        assert function.bucket_batch(arrays, COUNTS[(2 * n + 1) % 3]).tolist() == b.to_pylist(), (names, SEED)


@pytest.mark.parametrize("fixture", ["values", "values_and_nulls"])
def test_spark_sorts_as_key_bytes_do(spark: SparkSession, fixture: str, request: pytest.FixtureRequest) -> None:
    values: dict[Column, pa.Array] = request.getfixturevalue(fixture)
    df = frame(spark, values).coalesce(1)
    keys = [[column] for column in values] + composites(list(values), count=8, widest=4)
    # Random values rarely share a first column: sort by few distinct values first, too.
    [few] = [column for column in values if column.type.name == "BOOLEAN"]
    keys += [[few, column] for column in values if column is not few]
    each = [
        df.sortWithinPartitions(*(quote_name(column.name) for column in key)).selectExpr(f"{n} AS n", "i")
        for n, key in enumerate(keys)
    ]
    order = functools.reduce(DataFrame.unionAll, each).toArrow()
    for n, key in enumerate(keys):
        rows = order.filter(pc.field("n") == n).column("i").combine_chunks()
        encoded = KeyCodec(key).encode_list([values[column].take(rows) for column in key])
        assert len(encoded) == ROWS
        assert encoded == sorted(encoded), ([column.name for column in key], SEED)
