"""Goal: a table goes on through ALTER TABLE: builds write the new definition, what they do not touch stays as it is,
and rows of before read null in new columns, in Spark and at a lookup.

Method: builds before and after, with and without the new column; two partitions, of which one is not touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import build, read
from stelae.errors import InvalidRequest
from stelae.read.open_snapshot import open_snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.verify.verify import verify_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VISITS = """
    CREATE TABLE visits (dt STRING, id INT, pages INT, PRIMARY KEY (dt, id) NOT ENFORCED)
    PARTITIONED BY (dt) WITH ('bucket' = '2')"""


def in_spark(spark: SparkSession, warehouse: Warehouse, snapshot: int | None = None) -> list[dict[str, Any]]:
    rows = read(spark, warehouse, "visits", snapshot).orderBy("dt", "id").collect()
    return [row.asDict(recursive=True) for row in rows]


def at_lookup(table: Table, folder: Path) -> list[dict[str, Any]]:
    reader = open_snapshot(table, table.snapshots.read(), folder)
    return reader.prefix_lookup({}, reader.table.all_columns, limit=100).rows


def test_builds_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    before = warehouse.create_table(VISITS)
    rows = spark.sql("SELECT d AS dt, id, id * 10 AS pages FROM VALUES ('a', 1), ('a', 2), ('b', 1) AS v(d, id)")
    first = build(spark, warehouse, "visits", rows)
    altered = warehouse.alter_table("ALTER TABLE visits ADD (tags ARRAY<STRING>, seen TIMESTAMP_LTZ(3))")
    assert altered is not None
    nulls = {"tags": None, "seen": None}
    assert in_spark(spark, warehouse) == [
        {"dt": "a", "id": 1, "pages": 10, **nulls},
        {"dt": "a", "id": 2, "pages": 20, **nulls},
        {"dt": "b", "id": 1, "pages": 10, **nulls},
    ]

    new = spark.sql("SELECT 'a' AS dt, 2 AS id, 21 AS pages, array('x', NULL) AS tags, CAST(NULL AS TIMESTAMP) AS seen")
    second = build(spark, warehouse, "visits", new)
    assert (first.schema_id, second.schema_id) == (0, 1)
    assert second.by_values[("b",)] == first.by_values[("b",)]

    lacking = spark.sql("SELECT 'c' AS dt, 3 AS id, 30 AS pages")
    with pytest.raises(InvalidRequest, match="lacks columns of the table: tags, seen"):
        build(spark, warehouse, "visits", lacking)
    third = build(spark, warehouse, "visits", lacking, allow_missing_columns=True)
    assert third.schema_id == 1

    expected = [
        {"dt": "a", "id": 1, "pages": 10, **nulls},
        {"dt": "a", "id": 2, "pages": 21, "tags": ["x", None], "seen": None},
        {"dt": "b", "id": 1, "pages": 10, **nulls},
        {"dt": "c", "id": 3, "pages": 30, **nulls},
    ]
    assert in_spark(spark, warehouse) == expected
    assert in_spark(spark, warehouse, snapshot=2) == expected[:3]
    for table in (warehouse.table("visits"), before):  # opened after, and before
        assert at_lookup(table, tmp_path / "serving") == expected
        assert verify_snapshot(table, third).ok


def test_a_rollback_across_the_change_is_built_on(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(VISITS)
    build(spark, warehouse, "visits", spark.sql("SELECT 'a' AS dt, 1 AS id, 10 AS pages"))
    warehouse.alter_table("ALTER TABLE visits ADD referrer STRING")
    build(spark, warehouse, "visits", spark.sql("SELECT 'a' AS dt, 1 AS id, 11 AS pages, 'x' AS referrer"))
    assert table.snapshots.rollback(1, now_ms=1).schema_id == 0
    assert in_spark(spark, warehouse) == [{"dt": "a", "id": 1, "pages": 10, "referrer": None}]
    build(spark, warehouse, "visits", spark.sql("SELECT 'a' AS dt, 2 AS id, 20 AS pages, 'y' AS referrer"))
    assert [row["referrer"] for row in in_spark(spark, warehouse)] == [None, "y"]


@pytest.mark.parametrize(
    ("options", "after"),
    [
        # The late record of time 1 gives the new column, which had no value; `n` stays that of time 5, and then of 7.
        ("'merge-engine' = 'partial-update', 'sequence.field' = 'ts'", [(5, 5, "late"), (7, 70, "late")]),
        ("'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum'", [(1, 15, "late"), (7, 85, "late")]),
    ],
)
def test_what_merges_keep_goes_on(
    spark: SparkSession, tmp_path: Path, options: str, after: list[tuple[Any, ...]]
) -> None:
    """Rows of computed tables hold more than their columns: that is read under the new definition, too."""
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(f"CREATE TABLE t (id INT, ts INT, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({options})")
    build(spark, warehouse, "t", spark.sql("SELECT 1 AS id, 5 AS ts, 5 AS n"))
    warehouse.alter_table("ALTER TABLE t ADD note STRING")
    late = spark.sql("SELECT 1 AS id, 1 AS ts, 10 AS n, 'late' AS note")
    build(spark, warehouse, "t", late)
    assert [tuple(row)[1:] for row in read(spark, warehouse, "t").collect()] == after[:1]
    build(spark, warehouse, "t", spark.sql("SELECT 1 AS id, 7 AS ts, 70 AS n"), allow_missing_columns=True)
    assert [tuple(row)[1:] for row in read(spark, warehouse, "t").collect()] == after[1:]


def test_a_new_column_gets_a_function_before_its_first_build(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(
        "CREATE TABLE t (k INT, a INT, PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'fields.a.agg' = 'sum', 'bucket' = '1')"
    )
    build(spark, warehouse, "t", spark.sql("SELECT 1 AS k, 10 AS a"))
    warehouse.alter_table("ALTER TABLE t ADD c INT")
    warehouse.alter_table("ALTER TABLE t SET ('fields.c.agg' = 'sum')")
    for _ in range(2):
        build(spark, warehouse, "t", spark.sql("SELECT 1 AS k, 1 AS a, 5 AS c"))
    assert read(spark, warehouse, "t").toArrow().to_pylist() == [{"k": 1, "a": 12, "c": 10}]
    with pytest.raises(InvalidRequest, match="can't change"):
        warehouse.alter_table("ALTER TABLE t SET ('fields.c.agg' = 'max')")


def test_options_of_files_are_for_files_written_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    """A partition that a build does not touch keeps its files; each file is larger or smaller as its option asks."""
    warehouse = Warehouse(tmp_path / "w")
    warehouse.create_table(VISITS)

    def build_partition(name: str) -> tuple[Any, int]:
        rows = spark.sql(f"SELECT '{name}' AS dt, CAST(id AS INT) AS id, 7 AS pages FROM range(20000)")
        snapshot = build(spark, warehouse, "visits", rows)
        return snapshot, sum(file.bytes for file in snapshot.by_values[(name,)].files)

    first, lz4 = build_partition("a")
    warehouse.alter_table("ALTER TABLE visits SET ('file.compression' = 'none', 'file.block-size' = '4 kb')")
    _, plain = build_partition("b")
    warehouse.alter_table("ALTER TABLE visits SET ('file.compression' = 'zstd', 'file.compression.zstd-level' = '1')")
    _, zstd = build_partition("c")
    warehouse.alter_table("ALTER TABLE visits SET ('file.block-size' = '512 b')")
    last, small = build_partition("d")
    assert zstd < lz4 < plain
    assert zstd < small
    assert last.by_values[("a",)] == first.by_values[("a",)]
    reader = open_snapshot(warehouse.table("visits"), last, tmp_path / "serving")
    for name in "abcd":
        rows = reader.prefix_lookup({"dt": name}, reader.table.all_columns, limit=20_001).rows
        assert rows == [{"dt": name, "id": i, "pages": 7} for i in range(20_000)]
    assert verify_snapshot(warehouse.table("visits"), last).ok
