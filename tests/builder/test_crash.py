"""Goal: a build that is killed anywhere leaves the old snapshot served, and leftovers that `clean` removes after its
grace.

Method: builds in processes of their own that are killed (SIGKILL) while files are being written, before the manifest
is put and after.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stelae.builder import build, read, run_build
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import BIGINT_LIMIT, TableClaims
from stelae.read.open_snapshot import open_snapshot
from stelae.snapshot import retention
from stelae.snapshot.warehouse import Warehouse
from stelae.verify.verify import verify_snapshot
from tests.length import only_long
from tests.tables import all_claims

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 86_400


@pytest.mark.long
@pytest.mark.parametrize("phase", ["files", pytest.param("commit", marks=only_long), "none"])
def test_a_killed_build(spark: SparkSession, tmp_path: Path, phase: str) -> None:
    folder = tmp_path / "warehouse"
    warehouse = Warehouse(folder)
    table = warehouse.create_table(
        "CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '4')"
    )
    build(spark, warehouse, "users", spark.range(100).selectExpr("id", "concat('old', id) AS name"))
    old_files = {file.path for file in table.storage.list()}

    committed = "COMMITTED" in killed_in(phase, folder)
    assert committed == (phase == "none")
    expected = "new" if committed else "old"
    assert table.snapshots.latest_id() == (2 if committed else 1)
    reader = open_snapshot(table, table.snapshots.read(), tmp_path / "serving")
    assert reader.lookup((7,), reader.table.all_columns) == {"id": 7, "name": f"{expected}7"}

    left = {file.path for file in (*table.storage.list(), *table.storage.unfinished())} - old_files
    assert left, "the killed build left nothing behind: it was killed too early to tell"
    now_ms = time.time_ns() // 1_000_000
    kept = retention.clean(table.snapshots, grace_s=DAY_S, now_ms=now_ms)
    assert not kept.files, "the grace protects what may be a build in progress"
    retention.clean(table.snapshots, grace_s=DAY_S, now_ms=now_ms + 2 * DAY_S * 1000)
    after = {file.path for file in (*table.storage.list(), *table.storage.unfinished())}
    named = {file.path for snapshot in table.snapshots.retained() for file in snapshot.files}
    assert {path for path in after if path.endswith(".sst")} == named
    assert old_files <= after

    build(spark, warehouse, "users", spark.range(1).selectExpr("id", "'next' AS name"))
    assert read(spark, warehouse, "users").count() == (300_000 if committed else 100)


@pytest.mark.long
@pytest.mark.parametrize("phase", [pytest.param("files", marks=only_long), "commit"])
def test_a_killed_build_that_mints(spark: SparkSession, tmp_path: Path, phase: str) -> None:
    """Its ids are wasted, and its number is taken: the next build takes the table over from it."""
    folder = tmp_path / "warehouse"
    warehouse = Warehouse(folder)
    table = warehouse.create_table(
        "CREATE TABLE users (id BIGINT, name STRING, number BIGINT, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('bucket' = '4', 'auto-increment.fields' = 'number')"
    )
    build(spark, warehouse, "users", spark.range(100).selectExpr("id", "concat('old', id) AS name"))
    before = {row.id: row.number for row in read(spark, warehouse, "users").collect()}
    killed_in(phase, folder)
    claims = TableClaims(table.storage, BIGINT_LIMIT)
    assert [str(claim.ids) for claim in all_claims(claims)] == ["1 to 100", "101 to 300,000"]
    current = TableOwnership(table.storage, str(table.name)).current()
    assert current is not None
    assert current.kind == "build"

    report = run_build(spark, warehouse, "users", spark.range(95, 105).selectExpr("id", "'next' AS name"))
    assert (str(report.ids), report.snapshot.id) == ("300,001 to 300,005", 3)
    assert table.snapshots.read(2).kind == "fence"
    after = {row.id: row.number for row in read(spark, warehouse, "users").collect()}
    assert sorted(after.values()) == [*range(1, 101), *range(300_001, 300_006)]
    assert {key: after[key] for key in before} == before
    problems = verify_snapshot(table, table.snapshots.read()).problems
    assert not problems


def killed_in(phase: str, folder: Path) -> str:
    """A build of 300,000 rows that is killed in this phase. Returns what it printed, when the last of its executors has
    ended as well: until then they may still write.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.builder.doomed_build", str(folder), phase],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        env={**os.environ, "SPARK_LOCAL_DIRS": str(folder.parent / "spark")}, start_new_session=True,
    )  # fmt: skip
    printed, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    while runs_any_of(process.pid):
        time.sleep(0.05)
    return printed


def runs_any_of(session: int) -> bool:
    """Whether a process of this session runs."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    for pid, state in (line.split() for line in listed.splitlines()):
        with suppress(ProcessLookupError):
            if not state.startswith("Z") and os.getsid(int(pid)) == session:
                return True
    return False
