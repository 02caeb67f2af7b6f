"""Goal: the deduplicate engine merges as Paimon does, however the input is cut into builds.

Method: the cases of tests/cases/deduplicate.yaml through real builds: as written, all records in one build, one
record a build. Afterwards `read` gives the rows, and so does a reader that opens the snapshot as a server does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builder import build, read
from stelae.errors import StelaeError
from stelae.loading import open_snapshot
from stelae.types import quote_name
from stelae.warehouse import Table, Warehouse
from tests.cases import Case, Record, load, loosened, python_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = load("deduplicate")
KIND = "record_kind"


@pytest.mark.parametrize("cut", ["as_written", "one_build", "one_record_a_build"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.error], ids=lambda case: case.name)
def test_case(spark: SparkSession, tmp_path: Path, case: Case, cut: str) -> None:
    batches = list(cut_into_builds(case.batches, cut))
    if cut != "as_written" and [len(batch) for batch in batches] == [len(batch) for batch in case.batches]:
        pytest.skip("the same builds as written")
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(case.sql("t"))
    for batch in batches:
        build(spark, warehouse, "t", frame_of(spark, table, batch, case), row_kind=kind_column(case))
    ddl = ", ".join(f"{quote_name(column.name)} {column.type.spark()}" for column in table.schema.columns)
    expected = spark.createDataFrame(python_rows(table.schema, case.rows or []), ddl)
    assert rows_of(read(spark, warehouse, "t")) == rows_of(expected)
    assert served_rows(table, tmp_path / "serving") == case.rows


@pytest.mark.parametrize("case", [case for case in CASES if case.error], ids=lambda case: case.name)
def test_refused(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(StelaeError) as caught:
        create_and_build(spark, warehouse, case)
    assert case.message in str(caught.value)
    tables = warehouse.tables()
    assert tables == [] or warehouse.table("t").snapshots.latest_id() is None


def create_and_build(spark: SparkSession, warehouse: Warehouse, case: Case) -> None:
    table = warehouse.create_table(case.sql("t"))
    assert case.error in ("rejected at build", "rejected at write"), "the table was created"
    for batch in case.batches:
        build(spark, warehouse, "t", frame_of(spark, table, batch, case), row_kind=kind_column(case))


def cut_into_builds(batches: list[list[Record]], cut: str) -> Iterator[list[Record]]:
    match cut:
        case "as_written":
            yield from batches
        case "one_build":
            yield [record for batch in batches for record in batch]
        case "one_record_a_build":
            yield from ([record] for batch in batches for record in batch)


def kind_column(case: Case) -> str | None:
    return None if "rowkind.field" in case.options else KIND


def frame_of(spark: SparkSession, table: Table, batch: list[Record], case: Case) -> DataFrame:
    """The records as a frame, in one partition: its row order is their order."""
    loose = case.loose_input
    rows = python_rows(table.schema, [record[1:] for record in batch], loose=loose)
    ddl = ", ".join(
        f"{quote_name(c.name)} {(loosened(c.type) if loose else c.type).spark()}" for c in table.schema.columns
    )
    if kind_column(case):
        rows = [(*row, record[0]) for row, record in zip(rows, batch, strict=True)]
        ddl += f", {KIND} STRING"
    return spark.createDataFrame(rows, ddl).coalesce(1)


def served_rows(table: Table, folder: Path) -> list[list[Any]]:
    """All rows of the newest snapshot in key order, as a case writes them."""
    reader = open_snapshot(table, table.snapshots.read(), folder)
    page = reader.prefix_lookup({}, reader.table.all_columns, limit=1000)
    assert page.next_page_token is None
    by_key = {}
    for row in page.rows:
        key = reader.table.key_from_json({name: row[name] for name in table.schema.primary_key})
        assert reader.lookup(key, reader.table.all_columns) == row
        by_key[key] = row
    assert len(by_key) == len(page.rows)
    return [[as_written(column.type, row[column.name]) for column in table.schema.columns] for row in page.rows]


def as_written(data_type: Any, value: Any) -> Any:
    """A JSON answer in the spelling of the cases."""
    import base64

    from stelae import types as t

    match data_type, value:
        case _, None:
            return None
        case t.Binary(), str():
            return "0x" + base64.b64decode(value).hex()
        case t.Row(), dict():
            return list(value.values())
        case t.Timestamp(), str():
            return value.replace("T", " ")
        case _:
            return value


def rows_of(frame: DataFrame) -> list[str]:
    """Rows in any order, through Arrow: it knows time zones, which `collect` drops."""
    return sorted(map(repr, frame.toArrow().to_pylist()))
