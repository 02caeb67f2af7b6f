"""Goal: no build makes more than 300 round trips between Python and the JVM: they, not the rows, are what a small build
waits for.

Method: what py4j sends, but for releases of objects, counted while builds of two records run, the first into an empty
table, others into stored rows; the engines, and what makes a plan long: row kinds, groups, partitions, ids, rows of the
log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import build
from stelae.snapshot.warehouse import Warehouse
from tests.builder.merge.test_merge_cases import QUICK
from tests.builder.online import insert_online

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 300


@dataclass(frozen=True)
class Case:
    name: str
    columns: str
    """Of the table, as DDL; `op`, if it is used, is not one of them."""
    options: str
    rows: tuple[str, ...]
    """Two of each build as SQL, and a row kind."""
    key: str = "k"
    partitioned_by: str = ""
    targets: tuple[str, ...] | None = None
    mode: str = "merge"
    with_log: bool = False
    files: bool = False


FIVE_FUNCTIONS = """
    'merge-engine' = 'aggregation', 'sequence.field' = 'seq', 'fields.a.aggregate-function' = 'sum',
    'fields.b.aggregate-function' = 'last_non_null_value', 'fields.c.aggregate-function' = 'max',
    'fields.d.aggregate-function' = 'product', 'fields.e.aggregate-function' = 'listagg'"""
FIVE = "k BIGINT NOT NULL, seq BIGINT, a BIGINT, b STRING, c DOUBLE, d BIGINT, e STRING"
FIVE_ROWS = ("1L, 1L, 1L, 'x', 1.0D, 2L, 'y', '+I'", "1L, 2L, 1L, 'x', 1.0D, 2L, 'z', '+U'")
GROUPS = """
    'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a,b', 'fields.h.sequence-group' = 'c,d',
    'fields.b.aggregate-function' = 'sum', 'fields.d.aggregate-function' = 'listagg',
    'partial-update.remove-record-on-sequence-group' = 'g'"""
GROUP_COLUMNS = "k BIGINT NOT NULL, g BIGINT, a STRING, b BIGINT, h BIGINT, c STRING, d STRING"
GROUP_ROWS = ("1L, 1L, 'a', 2L, 1L, 'c', 'd', '+I'", "1L, 2L, 'a', 2L, 2L, 'c', 'd', '-D'")
PLAIN = "k BIGINT NOT NULL, a BIGINT, b STRING"
PLAIN_ROWS = ("1L, 1L, 'x', '+I'", "1L, 2L, 'y', '-D'")
PARTITIONED = "k BIGINT NOT NULL, dt STRING NOT NULL, a BIGINT, b STRING"
PARTITIONED_ROWS = ("1L, 'x', 1L, 'x', '+I'", "1L, 'y', 2L, 'y', '-D'")
MINTED = "word STRING NOT NULL, id BIGINT, a BIGINT"
MINTED_ROWS = ("'one', 1L, '+I'", "'two', 2L, '+I'")

CASES = [
    Case("deduplicate", PLAIN, "'sequence.field' = 'a'", PLAIN_ROWS),
    Case("deduplicate with partitions", PARTITIONED, "'sequence.field' = 'a'", PARTITIONED_ROWS, "k, dt", "dt"),
    Case("deduplicate from files", PLAIN, "", PLAIN_ROWS, files=True),
    Case("deduplicate, some columns", PARTITIONED, "'sequence.field' = 'a', 'tombstone.time-retained' = '1 d'",
         PARTITIONED_ROWS, "k, dt", "dt", targets=("k", "dt", "a")),
    Case("first-row", PLAIN, "'merge-engine' = 'first-row', 'ignore-delete' = 'true'", PLAIN_ROWS),
    Case("versioned", PLAIN, "'merge-engine' = 'versioned', 'table.merge-engine.versioned.ver-column' = 'a'",
         PLAIN_ROWS),
    Case("partial-update with groups", GROUP_COLUMNS, GROUPS, GROUP_ROWS),
    Case("aggregation", FIVE, FIVE_FUNCTIONS + ", 'aggregation.remove-record-on-delete' = 'true'", FIVE_ROWS),
    Case("aggregation with partitions", FIVE.replace("seq BIGINT", "dt STRING NOT NULL, seq BIGINT"),
         FIVE_FUNCTIONS + ", 'aggregation.remove-record-on-delete' = 'true'",
         tuple(row.replace("1L,", "1L, 'x',", 1) for row in FIVE_ROWS), "k, dt", "dt"),
    Case("dictionary", MINTED, "'auto-increment.fields' = 'id'", MINTED_ROWS, "word"),
    Case("dictionary with a log", MINTED, "'auto-increment.fields' = 'id'", MINTED_ROWS, "word", with_log=True),
    Case("dictionary with partitions and a log", "dt STRING NOT NULL, " + MINTED, "'auto-increment.fields' = 'id'",
         tuple(f"'x', {row}" for row in MINTED_ROWS), "dt, word", "dt", with_log=True),
    Case("dictionary, overwritten", MINTED, "'auto-increment.fields' = 'id'", MINTED_ROWS, "word", mode="overwrite"),
]  # fmt: skip


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) or "" for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_build_makes_more(case: Case, quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    partitioned = f" PARTITIONED BY ({case.partitioned_by})" if case.partitioned_by else ""
    table = warehouse.create_table(
        f"CREATE TABLE t ({case.columns}, PRIMARY KEY ({case.key}) NOT ENFORCED){partitioned} "
        f"WITH ('bucket' = '2'{', ' if case.options else ''}{case.options})"
    )
    names = [column.name for column in table.schema.columns if column != table.schema.auto_increment]
    selects = [f"SELECT {row}" for row in case.rows]
    frame = quick.sql(" UNION ALL ".join(selects)).toDF(*names, "op")
    if case.targets is not None:
        frame = frame.select(*case.targets, "op")
    if case.files:
        for folder in ("first", "second"):
            frame.write.parquet(str(tmp_path / "input" / folder))
        frame = quick.read.parquet(str(tmp_path / "input" / "*"))
    counts = []
    for number in range(2):
        if case.with_log and number:
            insert_online(table, [{"word": "three", **({"dt": "x"} if case.partitioned_by else {})}])
        with counted(monkeypatch) as trips:
            build(quick, warehouse, "t", frame, row_kind="op", mode=case.mode, target_columns=case.targets)  # type: ignore[arg-type]
        counts.append(len(trips))
    print(f"{case.name}: {counts}")
    assert max(counts) <= MOST, counts


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is sent to the JVM meanwhile, and waited for.

    Releases of objects are not: a thread of py4j sends them when it comes to it, those of earlier builds among them.
    """
    from py4j.java_gateway import GatewayClient
    from py4j.protocol import MEMORY_COMMAND_NAME as RELEASE

    send, sent = GatewayClient.send_command, []

    def counting(self: GatewayClient, command: str, *args: Any, **options: Any) -> Any:
        if not command.startswith(RELEASE):
            sent.append(command)
        return send(self, command, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(GatewayClient, "send_command", counting)
        yield sent
