"""Goal: every engine merges as the cases say, however the input is cut into builds; what can't be merged is refused.

Method: the cases of tests/cases through real builds: as written, all records in one build, one record of a key a
build. Afterwards `read` gives the rows, and so does a reader that opens the snapshot as a server does. Cases of one
definition share a table: see tests/builder/case_tables.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder import build
from stelae.ddl import parse_create_table
from stelae.errors import StelaeError
from stelae.warehouse import Warehouse
from tests.builder.case_tables import Outcome, Run, definition_of, frame_of, kind_column, run_together, runs_of
from tests.cases import FILES, Case, expected_rows, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [case for file in FILES for case in load(file)]
RUNS = [run for case in CASES if not case.error for run in runs_of(case)]
Results = Callable[[Run], Outcome]


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What a run left. The first one that asks builds all of its definition; if that fails, each is built alone."""
    together = defaultdict(list)
    for run in RUNS:
        together[definition_of(run.case)].append(run)
    outcomes: dict[str, Outcome | StelaeError] = {}

    def result(run: Run) -> Outcome:
        if run.name not in outcomes:
            group = together[definition_of(run.case)]
            try:
                outcomes.update(run_together(spark, tmp_path_factory.mktemp("group"), group))
            except StelaeError as error:
                outcomes.update({each.name: error for each in group})
                for each in group if len(group) > 1 else ():
                    try:
                        outcomes.update(run_together(spark, tmp_path_factory.mktemp("run"), [each]))
                    except StelaeError as alone:
                        outcomes[each.name] = alone
        outcome = outcomes[run.name]
        if isinstance(outcome, StelaeError):
            raise outcome
        return outcome

    return result


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_rows(run: Run, results: Results) -> None:
    case, outcome = run.case, results(run)
    types = types_of(case)
    accepted = [case.rows or []] + ([case.alternative_rows] if case.alternative_rows is not None else [])
    expected = [expected_rows(case, types, rows) for rows in accepted]
    assert sorted(outcome.read, key=repr) in [sorted(rows, key=repr) for rows in expected]
    assert outcome.served in expected, "read gives the rows, a server does not"


@pytest.mark.parametrize("case", [case for case in CASES if not case.rejected_at_create], ids=lambda case: case.name)
def test_created(case: Case) -> None:
    parse_create_table(case.sql("t"))


@pytest.mark.parametrize("case", [case for case in CASES if case.rejected_at_create], ids=lambda case: case.name)
def test_refused_at_create(case: Case, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(StelaeError) as caught:
        warehouse.create_table(case.sql("t"))
    assert [part for part in case.message if part not in str(caught.value)] == [], str(caught.value)
    assert warehouse.tables() == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.error and not case.rejected_at_create], ids=lambda case: case.name
)
def test_refused_at_build(spark: SparkSession, case: Case, tmp_path: Path) -> None:
    """The last batch is refused, and nothing of it committed."""
    warehouse = Warehouse(tmp_path)
    options = case.options if "bucket" in case.options else {**case.options, "bucket": "1"}
    table = warehouse.create_table(replace(case, options=options).sql("t"))
    kinds = kind_column(case)
    *fine, refused = case.batches
    for batch in fine:
        build(spark, warehouse, "t", frame_of(spark, table.schema, batch, case), row_kind=kinds)
    before = table.snapshots.latest_id()
    with pytest.raises(StelaeError) as caught:
        build(spark, warehouse, "t", frame_of(spark, table.schema, refused, case), row_kind=kinds)
    assert [part for part in case.message if part not in str(caught.value)] == [], str(caught.value)
    assert table.snapshots.latest_id() == before


def types_of(case: Case) -> list[object]:
    added = [column for columns in case.add_columns.values() for column in columns]
    bare = replace(case, columns=[*case.columns, *added], partition_by=[], options={})
    return [column.type for column in parse_create_table(bare.sql("t"))[1].columns]
