"""Goal: with `primary-key.nullable`, null is a key like another, from the build to the lookup.

Method: the examples of Paimon's own tests for each engine; then a table with nulls in key columns of several types,
built in steps, against a dict: by `read`, by lookups of every key, by prefix, and by `verify`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import build, read
from stelae.errors import InvalidRequest
from stelae.read.open_snapshot import open_snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.verify.verify import verify_snapshot
from tests.service.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20_261_120
NAN = float("nan")


@pytest.mark.parametrize(
    ("columns", "options", "batches", "expected"),
    [
        (
            "v STRING",
            "",
            [[(None, "null-v1"), (1, "one-v1")], [(None, "null-v2"), (1, "one-v2"), (2, "two")]],
            [(None, "null-v2"), (1, "one-v2"), (2, "two")],
        ),
        (
            "a INT, b STRING",
            ", 'merge-engine' = 'partial-update'",
            [[(None, 1, None), (1, 10, "one")], [(None, None, "merged")]],
            [(None, 1, "merged"), (1, 10, "one")],
        ),
        (
            "total BIGINT",
            ", 'merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum'",
            [[(None, 1), (1, 10)], [(None, 2), (1, 20)]],
            [(None, 3), (1, 30)],
        ),
    ],
    ids=["deduplicate", "partial-update", "aggregation"],
)
@pytest.mark.parametrize("together", [False, True], ids=["two builds", "one build"])
def test_records_of_the_null_key_merge(
    spark: SparkSession,
    tmp_path: Path,
    columns: str,
    options: str,
    batches: list[list[tuple[Any, ...]]],
    expected: list[tuple[Any, ...]],
    together: bool,
) -> None:
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(
        f"CREATE TABLE t (id INT, {columns}, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ('bucket' = '1', 'primary-key.nullable' = 'true'{options})"
    )
    for batch in [[record for each in batches for record in each]] if together else batches:
        build(spark, warehouse, "t", spark.createDataFrame(batch, f"id INT, {columns}").coalesce(1))
    rows = [tuple(row) for row in read(spark, warehouse, "t").orderBy("id").collect()]
    assert rows == expected
    with serving(warehouse) as server:
        answer = server.post("/v1/tables/t/lookup", {"keys": [row[0] for row in expected]})
        assert [tuple(row.values()) for row in answer.json["rows"]] == expected
    assert table.schema.key_columns[0].type.nullable


SITES = """
    CREATE TABLE sites (
        dt DATE NOT NULL, n INT, ratio DOUBLE, amount DECIMAL(30, 2), flag BOOLEAN NOT NULL, name STRING, v INT,
        PRIMARY KEY (dt, n, ratio, amount, flag, name) NOT ENFORCED
    ) PARTITIONED BY (dt) WITH ('primary-key.nullable' = 'true', 'bucket' = '3', 'bucket-key' = 'n,name')"""
KEY = ("dt", "n", "ratio", "amount", "flag", "name")
DDL = "dt STRING, n INT, ratio DOUBLE, amount DECIMAL(30, 2), flag BOOLEAN, name STRING, v INT, kind STRING"

VALUES: dict[str, list[Any]] = {
    "dt": ["2026-11-20", "2026-11-21"],
    "n": [None, -1, 0, 7],
    "ratio": [None, NAN, -0.0, 0.0, 1.5],
    "amount": [None, "0.00", "-1.25"],
    "flag": [False, True],
    "name": [None, "", "a\0", "ü"],
}


def test_nulls_in_columns_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(SITES)
    model: dict[tuple[Any, ...], int] = {}
    asked: list[tuple[Any, ...]] = []
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        for step in range(3):
            records = []
            for number in range(400):
                key = tuple(chance.choice(VALUES[name]) for name in KEY)
                kind = chance.choice(["+I", "+U", "-D"])
                records.append((*key, 1000 * step + number, kind))
                asked.append(key)
                if kind == "-D":
                    model.pop(same_key(key), None)
                else:
                    model[same_key(key)] = 1000 * step + number
            build(spark, warehouse, "sites", frame(spark, records), row_kind="kind")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    rows = read(spark, warehouse, "sites").selectExpr(
        "CAST(dt AS STRING)", "n", "ratio", "CAST(amount AS STRING)", "flag", "name", "v"
    )
    assert {same_key(tuple(row)[:-1]): row["v"] for row in rows.collect()} == model, SEED
    check_lookups(table, tmp_path / "tablets", asked, model)
    report = verify_snapshot(table, table.snapshots.read())
    assert report.problems == ()


def frame(spark: SparkSession, records: list[tuple[Any, ...]]) -> DataFrame:
    from pyspark.sql import functions as f

    ddl = DDL.replace("DECIMAL(30, 2)", "STRING")
    given = spark.createDataFrame(records, ddl).coalesce(1)
    return given.withColumns({"dt": f.col("dt").cast("date"), "amount": f.col("amount").cast("decimal(30, 2)")})


def same_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key that equals another where they are the same key: one NaN, one zero."""
    return tuple("NaN" if value != value else value + 0.0 if isinstance(value, float) else value for value in key)


def check_lookups(table: Table, folder: Path, asked: list[tuple[Any, ...]], model: dict[tuple[Any, ...], int]) -> None:
    reader = open_snapshot(table, table.snapshots.read(), folder)
    projection = reader.table.projection(["v"])

    def as_json(values: dict[str, Any]) -> dict[str, Any]:
        return {name: "NaN" if value != value else value for name, value in values.items()}

    keys = [reader.table.key_from_json(as_json(dict(zip(KEY, key, strict=True)))) for key in asked]
    found = [None if row is None else row["v"] for row in reader.lookup_many(keys, projection)]
    assert found == [model.get(same_key(key)) for key in asked], SEED
    assert [row and row["v"] for key in keys[:100] for row in [reader.lookup(key, projection)]] == found[:100]

    for n in VALUES["n"]:
        for ratio in VALUES["ratio"]:
            prefix = reader.table.prefix_from_json(as_json({"n": n, "ratio": ratio}))
            expected = sorted(v for key, v in model.items() if key[1:3] == same_key((n, ratio)))
            page = reader.prefix_lookup(prefix, projection, 10_000)
            assert sorted(row["v"] for row in page.rows) == expected, (n, ratio, SEED)


@pytest.mark.parametrize("column", ["dt", "flag"])
def test_a_null_in_a_column_that_is_not_null_is_refused(spark: SparkSession, tmp_path: Path, column: str) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(SITES)
    row = {"dt": "2026-11-20", "n": None, "ratio": None, "amount": None, "flag": True, "name": None, "v": 1}
    records = [(*(row | {column: None}).values(), "+I")]
    with pytest.raises(InvalidRequest, match=f"null in primary-key column {column}"):
        build(spark, warehouse, "sites", frame(spark, records), row_kind="kind")
