"""Goal: `spark.read.format("stelae")` gives the visible rows of a snapshot, whatever is filtered, with or without
pushdown; and reads no more buckets than a filter on key columns needs. What is wrong with options is said.

Method: tables written without Spark, of all column types; the same filters on the source, and on its rows in a plain
frame. The format is found without a call to register it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import read
from stelae.errors import InvalidRequest, NotFound
from stelae.snapshot.warehouse import Warehouse
from stelae.spark import register_source
from tests.tables import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

TABLE = """CREATE TABLE shop.orders (
    region STRING, number INT, line STRING, price DECIMAL(10, 2), at TIMESTAMP(6), sent TIMESTAMP_LTZ(6), day DATE,
    tags ARRAY<STRING>, counts MAP<STRING, INT>, place ROW<street STRING, house INT>, raw BYTES, weight DOUBLE,
    ok BOOLEAN,
    PRIMARY KEY (region, number, line) NOT ENFORCED
) PARTITIONED BY (region) WITH ('bucket' = '3', 'bucket-key' = 'number')"""


def order(i: int) -> dict[str, Any]:
    return {
        "region": f"r{i % 3}",
        "number": i // 2,
        "line": f"l{i % 5}",
        "price": Decimal(i) / 4,
        "at": dt.datetime.fromisoformat("2026-01-01") + dt.timedelta(seconds=i),
        "sent": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) if i % 4 else None,
        "day": dt.date(2026, 1, 1 + i % 20),
        "tags": ["a", "b"][: i % 3],
        "counts": {"x": i},
        "place": {"street": "s", "house": i},
        "raw": b"\0\xff",
        "weight": i / 3,
        "ok": i % 2 == 0,
    }


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("source") / "warehouse")
    table = warehouse.create_table(TABLE)
    first = commit_rows(table, [order(i) for i in range(120)])
    commit_rows(table, [{**order(7), "weight": -1.0}], onto=first, hidden=[order(8)])
    return warehouse


@pytest.fixture(params=[True, False], ids=["pushdown", "no pushdown"])
def pushing(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    spark.conf.set(PUSHDOWN, str(request.param).lower())
    yield request.param
    spark.conf.unset(PUSHDOWN)


def source(spark: SparkSession, warehouse: Warehouse, **options: str) -> DataFrame:
    return spark.read.format("stelae").option("warehouse", warehouse.url).options(**options).load("shop.orders")


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=str)


def test_rows_are_those_of_the_snapshot(spark: SparkSession, warehouse: Warehouse, pushing: bool) -> None:
    frame = source(spark, warehouse)
    expected = read(spark, warehouse, "shop.orders")
    assert frame.dtypes == expected.dtypes
    assert rows(frame) == rows(expected)
    assert frame.count() == 119
    assert frame.where("weight = -1").count() == 1
    assert source(spark, warehouse, snapshot="1").where("weight = -1").count() == 0
    assert source(spark, warehouse, snapshot="1").count() == 120


@pytest.mark.parametrize(
    ("condition", "buckets"),
    [
        ("region = 'r1'", 3),
        ("region IN ('r1', 'r2', 'nowhere')", 6),
        ("region = 'nowhere'", 1),
        ("number = 3", 3),
        ("number = 3 AND region = 'r0'", 1),
        ("number IN (3, 4) AND number IN (4, 5) AND region = 'r0'", 1),
        ("number = 4 AND region = 'r2' AND line = 'l3'", 1),  # the hidden row
        ("number = 3 AND region = 'r1' AND line IN ('l2', 'l1')", 1),
        ("number <=> 3", 3),
        ("number > 50", 9),
        ("number = 3 OR number = 4", 6),
        ("line = 'l1'", 9),
        ("number = 3 AND weight < 0", 3),
        ("number IN (3, NULL)", 3),
        ("region = 'r1' AND region = 'r2'", 1),
    ],
)
def test_filters(spark: SparkSession, warehouse: Warehouse, pushing: bool, condition: str, buckets: int) -> None:
    frame = source(spark, warehouse).where(condition)
    plain = spark.createDataFrame(source(spark, warehouse).collect(), source(spark, warehouse).schema)
    assert rows(frame) == rows(plain.where(condition))
    if pushing and "OR" not in condition:
        assert frame.rdd.getNumPartitions() <= buckets


def test_a_schema_selects_columns(spark: SparkSession, warehouse: Warehouse) -> None:
    reader = spark.read.format("stelae").option("warehouse", warehouse.url)
    frame = reader.schema("weight DOUBLE, number INT").load("shop.orders")
    assert rows(frame) == rows(read(spark, warehouse, "shop.orders").select("weight", "number"))
    empty = reader.schema("tags ARRAY<STRING>").load("shop.orders").where("size(tags) = 2")
    assert empty.count() == 39


@pytest.mark.parametrize(
    ("options", "schema", "error", "said"),
    [
        ({}, "", InvalidRequest, "no warehouse"),
        ({"snapshot": "77"}, "", NotFound, "77"),
        ({"snapshot": "new"}, "", InvalidRequest, "'new'"),
        ({"wharehouse": "x"}, "", InvalidRequest, "wharehouse"),
        ({}, "number STRING", InvalidRequest, "number of shop.orders is INT"),
        ({}, "nummer INT", InvalidRequest, "nummer"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, warehouse: Warehouse, options: dict[str, str], schema: str, error: type[Exception], said: str
) -> None:
    register_source(spark)
    reader = spark.read.format("stelae").options(**options)
    if options or schema:
        reader = reader.option("warehouse", warehouse.url)
    if schema:
        reader = reader.schema(schema)
    with pytest.raises(error, match=said):
        reader.load("shop.orders").collect()


def test_a_table_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    Warehouse(tmp_path).create_table("CREATE TABLE shop.users (id INT, PRIMARY KEY (id) NOT ENFORCED)")
    register_source(spark)
    with pytest.raises(NotFound, match=r"shop\.user"):
        spark.read.format("stelae").option("warehouse", str(tmp_path)).load("shop.user").collect()
