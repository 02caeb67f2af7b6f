"""Goal: every engine merges as the cases say, however the input is cut into builds; what can't be merged is refused.

Method: the cases of tests/cases through real builds: as written, all records in one build, one record of a key a
build. Afterwards `read` gives the rows, and so does a reader that opens the snapshot as a server does. Cases share
tables: see tests/builder/merge/case_tables.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.errors import StelaeError
from stelae.schema.sql import parse_create_table
from stelae.schema.types import DataType
from stelae.snapshot.warehouse import Warehouse
from tests.builder.merge.case_tables import Outcome, Run, build_records, run_together, runs_of
from tests.builder.merge.shared_table import SharedTable, definition_of, tables_of
from tests.cases import FILES, Case, expected_rows, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [case for file in FILES for case in load(file)]
RUNS = [run for case in CASES if not case.error for run in runs_of(case)]
REFUSED = [case for case in CASES if case.error and not case.rejected_at_create]
THREADS = 3
"""Builds at a time. A small build keeps the driver busy, not the cores."""

QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Compiling the expressions of a table takes longer than merging a few rows. The other tests of merging compile."""


class Background:
    """All builds that the chosen tests need, in the background: the tests wait for theirs."""

    def __init__(self, spark: SparkSession, scratch: pytest.TempPathFactory, pool: ThreadPoolExecutor) -> None:
        self.spark = spark
        self.scratch = scratch
        self.pool = pool
        self.outcomes: dict[str, Future[dict[str, Outcome | StelaeError]]] = {}
        self.refusals: dict[str, Future[Refusal]] = {}

    def start(self, runs: Sequence[Run], refused: Sequence[Case]) -> None:
        for shared in tables_of(run.case for run in runs):
            members = [run for run in runs if definition_of(run.case) in shared.numbers]
            building = self.pool.submit(self._built, shared, members)
            self.outcomes.update((run.name, building) for run in members)
        for case in refused:
            self.refusals[case.name] = self.pool.submit(refusal, self.spark, self.scratch.mktemp("refused"), case)

    def _built(self, shared: SharedTable, runs: list[Run]) -> dict[str, Outcome | StelaeError]:
        """If a build fails, each run is built alone, so that it fails for its own reason."""
        try:
            return dict(run_together(self.spark, self.scratch.mktemp("runs"), shared, runs))
        except StelaeError as error:
            if len(runs) == 1:
                return {runs[0].name: error}
            alone = (self._built(SharedTable([run.case]), [run]) for run in runs)
            return {name: outcome for outcomes in alone for name, outcome in outcomes.items()}

    def outcome(self, run: Run) -> Outcome:
        outcome = self.outcomes[run.name].result()[run.name]
        if isinstance(outcome, StelaeError):
            raise outcome
        return outcome


@dataclass
class Refusal:
    """What the last batch of a case was refused with, and the newest snapshot before and after."""

    error: str | None
    before: int | None
    after: int | None


def refusal(spark: SparkSession, folder: Path, case: Case) -> Refusal:
    warehouse = Warehouse(folder)
    options = case.options if "bucket" in case.options else {**case.options, "bucket": "1"}
    table = warehouse.create_table(replace(case, options=options).sql("t"))
    *fine, refused = case.batches
    for index, batch in enumerate(fine):
        build_records(spark, warehouse, table, batch, case, index)
    before, error = table.snapshots.latest_id(), None
    try:
        build_records(spark, warehouse, table, refused, case, len(fine))
    except StelaeError as caught:
        error = str(caught)
    return Refusal(error, before, table.snapshots.latest_id())


@pytest.fixture(scope="module")
def background(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Background]:
    chosen: list[tuple[str, Any]] = [
        (item.originalname, item.callspec.params)
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    before = {name: spark.conf.get(name) or "" for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    with ThreadPoolExecutor(THREADS) as pool:
        started = Background(spark, tmp_path_factory, pool)
        started.start(
            [values["run"] for name, values in chosen if name == test_rows.__name__],
            [values["case"] for name, values in chosen if name == test_refused_at_build.__name__],
        )
        yield started
        pool.shutdown(cancel_futures=True)
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_rows(run: Run, background: Background) -> None:
    case, outcome = run.case, background.outcome(run)
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


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_at_build(case: Case, background: Background) -> None:
    """The last batch is refused, and nothing of it committed."""
    refusal = background.refusals[case.name].result()
    assert refusal.error is not None, "the batch was built"
    assert [part for part in case.message if part not in refusal.error] == [], refusal.error
    assert refusal.after == refusal.before


def types_of(case: Case) -> list[DataType]:
    added = [column for columns in case.add_columns.values() for column in columns]
    bare = replace(case, columns=[*case.columns, *added], partition_by=[], options={})
    return [column.type for column in parse_create_table(bare.sql("t"))[1].columns]
