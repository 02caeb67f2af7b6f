"""Readers for tests, and what they should know: a dict, sorted by Spark's order of the key columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stelae.read.open_snapshot import open_snapshot
from stelae.read.snapshot_reader import SnapshotReader
from stelae.snapshot.warehouse import Table, Warehouse
from tests.tables import commit_rows

EVENTS = """CREATE TABLE events (
    day INT, kind STRING, name STRING, number INT, v BIGINT, PRIMARY KEY (kind, day, name, number) NOT ENFORCED
) PARTITIONED BY (day) WITH ('bucket-key' = 'name')"""

KEY = ("kind", "day", "name", "number")
IN_ORDER = ("kind", "name", "number")
"""The key columns as they are sorted within a partition."""

NULLABLE_EVENTS = EVENTS.replace("day INT", "day INT NOT NULL").replace(
    "WITH (", "WITH ('primary-key.nullable' = 'true', "
)
"""The same with nulls in all key columns but the partition's."""

names = st.sampled_from(["", "a", "a\0", "a\0b", "aa", "b", "ü", "\U0001f600"])
kinds = st.sampled_from(["x", "x\0", "y"])
numbers = st.integers(-2, 2)
days = st.integers(9, 11)
keys = st.tuples(kinds, days, names, numbers)
nullable_keys = st.tuples(st.none() | kinds, days, st.none() | names, st.none() | numbers)


@dataclass
class Model:
    """What a reader should know."""

    rows: dict[tuple[Any, ...], int]

    def prefix(self, prefix: dict[str, Any]) -> list[dict[str, Any]]:
        """Matching rows, partition by partition in the order of the folders, then in key order."""
        found = [dict(zip((*KEY, "v"), (*key, v), strict=True)) for key, v in self.rows.items()]
        found = [row for row in found if all(row[name] == value for name, value in prefix.items())]
        return sorted(found, key=lambda row: (f"day={row['day']}", *(_ordered(row[name]) for name in IN_ORDER)))


def _ordered(value: Any) -> Any:
    if value is None:
        return (0,)
    return (1, value.encode() if isinstance(value, str) else value)


def open_reader(table: Table, folder: Path) -> SnapshotReader:
    return open_snapshot(table, table.snapshots.read(), folder)


prefixes = st.sampled_from(
    [
        (), ("day",), ("kind",), ("kind", "name"), ("day", "kind"), ("day", "kind", "name"),
        ("kind", "name", "number"), ("day", "kind", "name", "number"),
    ]
)  # fmt: skip


def read_pages(reader: SnapshotReader, prefix: dict[str, Any], limit: int) -> list[Any]:
    """All pages. No page but the last is short, and the last is not empty unless it is the only one."""
    rows: list[Any] = []
    token = None
    while True:
        page = reader.prefix_lookup(prefix, reader.table.all_columns, limit, token)
        rows += page.rows
        token = page.next_page_token
        if token is None:
            assert page.rows or not rows
            return rows
        assert len(page.rows) == limit


def orders(folder: Path, rows: int = 20) -> SnapshotReader:
    table = Warehouse(folder / "w").create_table(
        "CREATE TABLE o (a INT, b STRING, v INT, PRIMARY KEY (a, b) NOT ENFORCED)"
    )
    commit_rows(table, [{"a": i // 5, "b": str(i), "v": i} for i in range(rows)])
    return open_reader(table, folder / "tablets")
