"""Goal: a build may set some columns of a table and let the others be, as partial updates of Apache Fluss do.

Method: the cases of its tests (FlussTableITCase, KvTabletTest, AggregateRowMergerTest), and what it refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import build, read
from stelae.errors import InvalidRequest
from stelae.snapshot.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = tuple[str, list[str] | None, list[Any]]
"""Row kind, target columns, values of all columns."""


def rows_after(spark: SparkSession, folder: Path, columns: str, options: str, steps: list[Step]) -> list[list[Any]]:
    warehouse = Warehouse(folder)
    with_options = f" WITH ({options})" if options else ""
    warehouse.create_table(f"CREATE TABLE t ({columns}, PRIMARY KEY (a) NOT ENFORCED){with_options}")
    schema = ", ".join(part.strip() for part in columns.split(","))
    for kind, targets, values in steps:
        frame = spark.createDataFrame([(*values, kind)], f"{schema}, op STRING")
        build(spark, warehouse, "t", frame, row_kind="op", target_columns=targets)
    table = read(spark, warehouse, "t").orderBy("a").toArrow()
    return [list(row.values()) for row in table.to_pylist()]


WIDE = "a INT, b STRING, c INT, d BOOLEAN"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [("+I", ["a", "b"], [1, "v1", 7, True]), ("+I", ["a", "c"], [1, "no", 8, None])],
            [[1, "v1", 8, None]],
            id="a first insert leaves the others null",
        ),
        pytest.param(
            [
                ("+I", None, [1, "a", 1, True]),
                ("+I", ["b"], [1, "aaa", None, None]),
                ("+I", ["b", "c"], [1, "bbb", 222, None]),
                ("-D", ["b", "c"], [1, None, None, None]),
            ],
            [[1, None, None, True]],
            id="a delete empties its columns",
        ),
        pytest.param(
            [
                ("+I", None, [1, "a", 1, True]),
                ("-D", ["b", "c"], [1, None, None, None]),
                ("-D", ["d"], [1, None, None, None]),
            ],
            [],
            id="a delete of the last values removes the row",
        ),
        pytest.param([("-D", ["b"], [1, None, None, None])], [], id="a delete of nothing"),
        pytest.param([("+I", ["a"], [1, "no", 5, None])], [[1, None, None, None]], id="a key alone is a row"),
        pytest.param(
            [("+I", None, [1, "a", 1, True]), ("+I", ["a"], [1, "no", 5, None])],
            [[1, "a", 1, True]],
            id="a key alone changes nothing",
        ),
        pytest.param(
            [("+I", None, [1, "a", 1, True]), ("+I", ["b"], [1, None, None, None])],
            [[1, None, 1, True]],
            id="null is a value",
        ),
    ],
)
def test_deduplicate(spark: SparkSession, tmp_path: Path, steps: list[Step], expected: list[list[Any]]) -> None:
    assert rows_after(spark, tmp_path, WIDE, "", steps) == expected


def test_deduplicate_in_order_of_a_sequence(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[Step] = [
        ("+I", None, [1, "a", 5, True]),
        ("+I", ["b", "c"], [1, "late", 3, None]),
        ("-D", ["b", "c"], [1, None, 6, None]),
        ("+I", ["b", "c"], [1, "late", 5, None]),
    ]
    assert rows_after(spark, tmp_path, WIDE, "'sequence.field' = 'c'", steps) == [[1, None, 6, True]]


SUMS = "a INT, s INT, m INT, l STRING"
AGGREGATION = """'table.merge-engine' = 'aggregation', 'fields.s.agg' = 'sum', 'fields.m.agg' = 'max',
    'fields.l.agg' = 'last_value'"""


def test_aggregation(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[Step] = [
        ("+I", None, [1, 100, 200, "x"]),
        ("+I", ["a", "s"], [1, 50, None, None]),
        ("+I", ["a", "s"], [2, 77, None, None]),
    ]
    assert rows_after(spark, tmp_path, SUMS, AGGREGATION, steps) == [[1, 150, 200, "x"], [2, 77, None, None]]


@pytest.mark.parametrize(("rest", "expected"), [(None, []), (5, [[1, None, 5, None]])])
def test_a_removal_of_an_aggregate(
    spark: SparkSession, tmp_path: Path, rest: int | None, expected: list[list[Any]]
) -> None:
    steps: list[Step] = [("+I", None, [1, 100, rest, None]), ("-D", ["s"], [1, None, None, None])]
    options = f"{AGGREGATION}, 'table.delete.behavior' = 'allow'"
    assert rows_after(spark, tmp_path, SUMS, options, steps) == expected


def test_partial_update_takes_what_is_not_set_for_null(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[Step] = [("+I", None, [1, "a", 1, True]), ("+I", ["b"], [1, "b", 9, False])]
    assert rows_after(spark, tmp_path, WIDE, "'merge-engine' = 'partial-update'", steps) == [[1, "b", 1, True]]


@pytest.mark.parametrize(
    ("columns", "options", "targets", "message"),
    [
        (WIDE, "", ["x"], "unknown column 'x'"),
        ("a INT, b STRING NOT NULL, c INT", "", ["c"], "b is NOT NULL"),
        (WIDE, "'merge-engine' = 'first-row'", ["b"], "takes whole rows"),
        (WIDE, "'merge-engine' = 'versioned', 'merge-engine.versioned.ver-column' = 'c'", ["b"], "takes whole rows"),
        (WIDE, "'sequence.field' = 'c'", ["b"], "has to give c"),
        (WIDE, "'rowkind.field' = 'b'", ["c"], "has to give b"),
    ],
)
def test_refused(
    spark: SparkSession, tmp_path: Path, columns: str, options: str, targets: list[str], message: str
) -> None:
    warehouse = Warehouse(tmp_path)
    with_options = f" WITH ({options})" if options else ""
    warehouse.create_table(f"CREATE TABLE t ({columns}, PRIMARY KEY (a) NOT ENFORCED){with_options}")
    with pytest.raises(InvalidRequest, match=message):
        build(spark, warehouse, "t", spark.sql("SELECT 1 AS a"), target_columns=targets)
    assert warehouse.table("t").snapshots.latest_id() is None
