"""Goal: every engine merges as the cases say, however the input is cut into builds; what can't be merged is refused.

Method: the cases of tests/cases through real builds: as written, all records in one build, one record of a key a
build. Afterwards `read` gives the rows, and so does a reader that opens the snapshot as a server does. Cases of one
definition share a table: see tests/builder/case_tables.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stelae.ddl import parse_create_table
from stelae.errors import StelaeError
from stelae.warehouse import Warehouse
from tests.builder.case_tables import Outcome, Run, build_records, definition_of, run_together, runs_of
from tests.cases import FILES, Case, expected_rows, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [case for file in FILES for case in load(file)]
RUNS = [run for case in CASES if not case.error for run in runs_of(case)]
Results = Callable[[Run], Outcome]
THREADS = 2
"""Builds at a time. A small build keeps the driver busy, not the cores."""


@pytest.fixture(scope="module")
def results(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Results]:
    """What a run left. All definitions that the chosen tests need are built in the background, in order."""
    chosen = [item.callspec.params.get("run") for item in request.session.items if hasattr(item, "callspec")]
    groups = defaultdict(list)
    for run in filter(None, chosen):
        groups[definition_of(run.case)].append(run)

    def built(runs: list[Run]) -> dict[str, Outcome | StelaeError]:
        """If a build fails, each run is built alone, so that it fails for its own reason."""
        try:
            return dict(run_together(spark, tmp_path_factory.mktemp("group"), runs))
        except StelaeError as error:
            if len(runs) == 1:
                return {runs[0].name: error}
            return {name: outcome for run in runs for name, outcome in built([run]).items()}

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = {definition: pool.submit(built, runs) for definition, runs in groups.items()}

        def result(run: Run) -> Outcome:
            outcome = outcomes[definition_of(run.case)].result()[run.name]
            if isinstance(outcome, StelaeError):
                raise outcome
            return outcome

        yield result
        pool.shutdown(cancel_futures=True)


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
    *fine, refused = case.batches
    for index, batch in enumerate(fine):
        build_records(spark, warehouse, table, batch, case, index)
    before = table.snapshots.latest_id()
    with pytest.raises(StelaeError) as caught:
        build_records(spark, warehouse, table, refused, case, len(fine))
    assert [part for part in case.message if part not in str(caught.value)] == [], str(caught.value)
    assert table.snapshots.latest_id() == before


def types_of(case: Case) -> list[object]:
    added = [column for columns in case.add_columns.values() for column in columns]
    bare = replace(case, columns=[*case.columns, *added], partition_by=[], options={})
    return [column.type for column in parse_create_table(bare.sql("t"))[1].columns]
