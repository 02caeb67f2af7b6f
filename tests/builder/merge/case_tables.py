"""Cases through real builds, many at a time.

A build of a few rows costs about as much as one of thousands. So cases share a table where they can
(tests/builder/merge/shared_table.py), in which the first column of the primary key tells the runs apart: a *run* is a
case in one of its cuts into builds. Build i of the table has the records of build i of every run, in the order of the
run. A key never meets another key when records are merged, so no run notices the others.

    cases → table (run, key, ...) → builds → `read` and a reader as a server has it → rows a run
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stelae.builder import build, read
from stelae.encoding.values import value_codec
from stelae.read.open_snapshot import open_snapshot
from stelae.schema import types as t
from stelae.schema.table_schema import Column, TableSchema
from stelae.snapshot.warehouse import Table, Warehouse
from tests.builder.merge import bitmaps
from tests.builder.merge.shared_table import RUN, SharedTable
from tests.cases import Case, Record, comparable, loosened, to_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CUTS = ("as_written", "one_build", "one_record_a_build")
KIND = "record_kind"


@dataclass
class Run:
    """A case, cut into builds in one way."""

    case: Case
    cut: str
    batches: list[list[Record]]

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.cut}"


@dataclass
class Outcome:
    """What a run left: rows as `comparable` values, unsorted as `read` gives them, in key order as they are served."""

    read: list[list[Any]] = field(default_factory=list)
    served: list[list[Any]] = field(default_factory=list)


def runs_of(case: Case) -> list[Run]:
    """The case in all cuts that differ."""
    runs: list[Run] = []
    for cut in CUTS[:1] if case.add_columns or case.targets else CUTS:
        batches = list(cut_into_builds(case, cut))
        if all(batches != run.batches for run in runs):
            runs.append(Run(case, cut, batches))
    return runs


def cut_into_builds(case: Case, cut: str) -> Iterator[list[Record]]:
    """One record a build: build i has the i-th record of every key, which are not merged with each other."""
    records = [record for batch in case.batches for record in batch]
    match cut:
        case "as_written":
            yield from case.batches
        case "one_build":
            yield records
        case "one_record_a_build":
            positions = [[column["name"] for column in case.columns].index(name) + 1 for name in case.primary_key]
            rounds: list[list[Record]] = []
            seen: dict[str, int] = {}
            for record in records:
                key = json.dumps([record[position] for position in positions])
                seen[key] = seen.get(key, -1) + 1
                if seen[key] == len(rounds):
                    rounds.append([])
                rounds[seen[key]].append(record)
            yield from rounds


def run_together(spark: SparkSession, folder: Path, shared: SharedTable, runs: Sequence[Run]) -> dict[str, Outcome]:
    """Build the runs in one table, and read it. Their cases are of that table."""
    case = shared.case
    warehouse = Warehouse(folder / "warehouse")
    table = warehouse.create_table(case.sql("t"))
    for index in range(max(len(run.batches) for run in runs)):
        table = with_added_columns(warehouse, table, case, index)
        records = [
            shared.record(run.case, run.name, record)
            for run in runs
            if index < len(run.batches)
            for record in run.batches[index]
        ]
        build_records(spark, warehouse, table, records, case, index)
    outcomes = {run.name: Outcome() for run in runs}
    columns = [column.name for column in table.schema.columns]
    positions = {run.name: [columns.index(name) - 1 for name in shared.names(run.case).values()] for run in runs}
    for name, row in read_rows(spark, warehouse, table, case):
        outcomes[name].read.append([row[position] for position in positions[name]])
    for name, row in served_rows(spark, table, folder / "serving", case):
        outcomes[name].served.append([row[position] for position in positions[name]])
    return outcomes


def with_added_columns(warehouse: Warehouse, table: Table, case: Case, batch: int) -> Table:
    """The table with the columns that it gets before this batch."""
    for column in case.add_columns.get(batch, []):
        warehouse.alter_table(f"ALTER TABLE t ADD COLUMN {t.quote_name(column['name'])} {column['type']}")
    return warehouse.table(str(table.name))


# --- in


def kind_column(case: Case) -> str | None:
    return None if "rowkind.field" in case.options else KIND


def build_records(
    spark: SparkSession, warehouse: Warehouse, table: Table, records: Sequence[Record], case: Case, batch: int
) -> None:
    targets = case.targets.get(batch)
    if targets is not None and RUN in table.schema.by_name:
        targets = [RUN, *targets]
    frame = frame_of(spark, table.schema, records, case)
    if targets is not None:
        frame = frame.select(*(name for name in frame.columns if name == KIND or name in targets))
    build(spark, warehouse, "t", frame, row_kind=kind_column(case), target_columns=targets)


def frame_of(spark: SparkSession, schema: TableSchema, records: Sequence[Record], case: Case) -> DataFrame:
    """The records as a frame, in one partition: its row order is their order."""
    columns = [(c.name, loosened(c.type) if case.loose_input else c.type) for c in schema.columns]
    rows: list[tuple[Any, ...]] = []
    for kind, *values in records:
        values += [None] * (len(columns) - len(values))
        cells = (input_value(spark, case, name, of, v) for (name, of), v in zip(columns, values, strict=True))
        rows.append((*cells, *([kind] if kind_column(case) else [])))
    ddl = ", ".join(f"{t.quote_name(name)} {case.input_types.get(name) or of.spark()}" for name, of in columns)
    return spark.createDataFrame(rows, ddl + (f", {KIND} STRING" if kind_column(case) else "")).coalesce(1)


def input_value(spark: SparkSession, case: Case, name: str, data_type: t.DataType, value: Any) -> Any:
    if value is None or name in case.input_types:
        return value
    if name in case.encode:
        return bitmaps.encode(spark, case.encode[name], value)
    return to_python(data_type, value)


# --- out


def read_rows(spark: SparkSession, warehouse: Warehouse, table: Table, case: Case) -> Iterator[tuple[str, list[Any]]]:
    """Run and row of all that `read` gives, through Arrow: it knows time zones, which `collect` drops."""
    for row in read(spark, warehouse, str(table.name)).toArrow().to_pylist():
        cells = [output_value(spark, case, c, row[c.name]) for c in table.schema.columns]
        yield cells[0], cells[1:]


def served_rows(spark: SparkSession, table: Table, folder: Path, case: Case) -> Iterator[tuple[str, list[Any]]]:
    """Run and row of all rows of the newest snapshot, in key order; each is looked up by its key as well."""
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    reader = open_snapshot(table, snapshot, folder)
    columns = reader.table.all_columns
    page = reader.prefix_lookup({}, columns, limit=100_000)
    assert page.next_page_token is None
    codecs = [(column, value_codec(column)) for column in table.schema.columns]
    keys = set()
    for row in page.rows:
        key = reader.table.key_from_json({name: row[name] for name in table.schema.primary_key})
        assert reader.lookup(key, columns) == row
        keys.add(key)
        values = [(c, codec.to_python(codec.from_json(row[c.name], c.name))) for c, codec in codecs]
        cells = [output_value(spark, case, column, value) for column, value in values]
        yield cells[0], cells[1:]
    assert len(keys) == len(page.rows)


def output_value(spark: SparkSession, case: Case, column: Column, value: Any) -> Any:
    if value is not None and column.name in case.encode:
        value = bitmaps.decode(spark, case.encode[column.name], value)
    return comparable(case, column.name, column.type, value)
