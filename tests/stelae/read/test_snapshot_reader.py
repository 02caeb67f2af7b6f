"""Goal: a reader answers as a dict of the rows would: by key, by many keys, by prefix, page by page.

Method: random tables (partitions with bucket counts of their own, several sorted runs, tombstones) against a model
that is a dict sorted by Spark's order of the key columns. Then the odd cases, one by one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.errors import CorruptData, InvalidRequest
from stelae.read.open_snapshot import open_snapshot
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
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


@dataclass
class Story:
    """What is written and what is asked. Values of None are deletes."""

    sql: str
    runs: list[dict[tuple[Any, ...], int | None]]
    asked: list[tuple[Any, ...]]
    shapes: list[tuple[tuple[str, ...], tuple[Any, ...], int]]


def stories(sql: str, keys: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[Story]:
    return st.builds(
        Story,
        st.just(sql),
        st.lists(st.dictionaries(keys, st.none() | st.integers(0, 9), max_size=30), min_size=1, max_size=3),
        st.lists(keys, max_size=20),
        st.lists(st.tuples(prefixes, keys, st.integers(1, 40)), min_size=3, max_size=6),
    )


@settings(max_examples=60)
@given(
    story=stories(EVENTS, keys) | stories(NULLABLE_EVENTS, nullable_keys),
    buckets=st.fixed_dictionaries({(day,): st.integers(1, 4) for day in (9, 10, 11)}),
    columns=st.permutations([*KEY, "v"]),
)
def test_a_reader_is_a_dict(story: Story, buckets: dict[tuple[int], int], columns: Sequence[str]) -> None:
    runs, asked, shapes = story.runs, story.asked, story.shapes
    model = Model({})
    with tempfile.TemporaryDirectory() as folder:
        table = Warehouse(Path(folder) / "w").create_table(story.sql)
        snapshot = None
        for run in runs:
            model.rows.update(run)
            snapshot = commit_rows(
                table,
                [dict(zip((*KEY, "v"), (*key, v), strict=True)) for key, v in run.items() if v is not None],
                hidden=[dict(zip(KEY, key, strict=True)) for key, v in run.items() if v is None],
                onto=snapshot,
                buckets=buckets,
            )
        model.rows = {key: v for key, v in model.rows.items() if v is not None}
        reader = open_reader(table, Path(folder) / "tablets")
        read = reader.table
        shape = read.projection(columns)

        wanted = [*asked, *(key for run in runs for key in run)]
        expected = [
            None
            if key not in model.rows
            else {n: {**dict(zip(KEY, key, strict=True)), "v": model.rows[key]}[n] for n in columns}
            for key in wanted
        ]
        physical = [read.key_from_json(dict(zip(KEY, key, strict=True))) for key in wanted]
        assert [reader.lookup(key, shape) for key in physical] == expected
        answers = reader.lookup_many(physical, shape)
        assert answers == expected
        assert all(list(row) == list(columns) for row in answers if row)

        for names, key, limit in shapes:
            given_values = {name: dict(zip(KEY, key, strict=True))[name] for name in names}
            prefix = read.prefix_from_json(given_values)
            every = model.prefix(given_values)
            assert reader.prefix_lookup(prefix, read.all_columns, 1000).rows == every
            assert read_pages(reader, prefix, limit) == every
        assert read.partition_of(read.whole_key((1,), ("x", "y", 2))) == (1,)


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


def test_a_scan_looks_at_no_more_than_its_budget(tmp_path: Path) -> None:
    """Also where all that it sees is hidden: whoever steps it can do other things in between."""
    table = Warehouse(tmp_path / "w").create_table("CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)")
    commit_rows(table, [{"a": 1000}, {"a": 2000}], hidden=[{"a": i} for i in range(1000)])
    reader = open_reader(table, tmp_path / "tablets")
    scan = reader.prefix_scan({}, reader.table.all_columns, limit=1)
    steps = [scan.step(100) for _ in range(10)]
    assert steps == [[]] * 10
    assert not scan.done
    assert scan.step(100) == [{"a": 1000}]
    assert scan.done
    assert scan.next_page_token is not None
    rest = reader.prefix_lookup({}, reader.table.all_columns, 10, scan.next_page_token)
    assert (rest.rows, rest.next_page_token) == ([{"a": 2000}], None)


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ([], "a prefix must be an object, this one is an array"),
        (None, "a prefix must be an object, this one is null"),
        ({"b": "x"}, "'a' is missing before 'b'"),
        ({"v": 1}, "not a primary-key column"),
        ({"nix": 1}, "unknown column"),
        ({"a": "x"}, "no INT"),
        ({"a": None}, "null"),
    ],
)
def test_what_is_no_prefix(tmp_path: Path, prefix: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        orders(tmp_path).table.prefix_from_json(prefix)
    assert words in str(error.value)


def test_a_null_is_a_key_like_another(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(
        "CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('primary-key.nullable' = 'true')"
    )
    commit_rows(table, [{"k": None, "v": "none"}, {"k": 0, "v": "zero"}])
    reader = open_reader(table, tmp_path / "tablets")
    read, shape = reader.table, reader.table.all_columns
    none = {"k": None, "v": "none"}
    assert [reader.lookup(read.key_from_json(key), shape) for key in (None, {"k": None})] == [none, none]
    assert reader.lookup_many([(None,), (0,), (1,)], shape) == [none, {"k": 0, "v": "zero"}, None]
    assert reader.prefix_lookup(read.prefix_from_json({"k": None}), shape, 9).rows == [none]
    assert [row["k"] for row in reader.prefix_lookup({}, shape, 9).rows if row] == [None, 0]
    with pytest.raises(InvalidRequest, match="the key lacks k"):
        read.key_from_json({})


@pytest.mark.parametrize("pairs", [{}, {"k": ""}, {"k": "null"}, {"k": "None"}])
def test_text_that_would_say_null_gets_a_hint(tmp_path: Path, pairs: dict[str, str]) -> None:
    sql = "CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED)"
    warehouse = Warehouse(tmp_path / "w")
    for name, options, is_told in (("a", "", False), ("b", " WITH ('primary-key.nullable' = 'true')", True)):
        schema = warehouse.create_table(sql.replace("t (", f"{name} (") + options).schema
        with pytest.raises(InvalidRequest) as caught:
            TableReader(schema, {schema.id: schema}).key_from_text(pairs)
        assert ("POST the key as JSON" in (caught.value.hint or "")) == is_told
        assert caught.value.place == "k"


@pytest.mark.parametrize("token", ["", "x", "WzFd", "\u00e4", "bnVsbA", "WyIiLCJ6eiJd", "WyIiLDFd"])
def test_what_is_no_page_token(tmp_path: Path, token: str) -> None:
    reader = orders(tmp_path)
    with pytest.raises(InvalidRequest, match="not a page token"):
        reader.prefix_lookup({}, reader.table.all_columns, 1, token)


def test_a_page_token_of_another_prefix(tmp_path: Path) -> None:
    reader = orders(tmp_path)
    token = reader.prefix_lookup({"a": 2}, reader.table.all_columns, 1).next_page_token
    assert len(reader.prefix_lookup({"a": 2}, reader.table.all_columns, 9, token).rows) == 4
    for other in ({"a": 1}, {"a": 3}):
        with pytest.raises(InvalidRequest, match="another prefix"):
            reader.prefix_lookup(other, reader.table.all_columns, 9, token)


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_start_at_one(tmp_path: Path, limit: int) -> None:
    reader = orders(tmp_path)
    with pytest.raises(InvalidRequest, match="limit must be at least 1"):
        reader.prefix_lookup({}, reader.table.all_columns, limit)


def test_a_snapshot_without_rows(tmp_path: Path) -> None:
    for sql in ("CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)", EVENTS):
        table = Warehouse(tmp_path / "w").create_table(sql)
        commit_rows(table, [])
        reader = open_reader(table, tmp_path / "tablets")
        key = (1,) if sql != EVENTS else ("x", 1, "", 1)
        shape = reader.table.all_columns
        assert reader.lookup(key, shape) is None
        assert reader.lookup_many([key, key], shape) == [None, None]
        assert reader.prefix_lookup({}, shape, 5).rows == []


def test_selections_are_bounded(tmp_path: Path) -> None:
    """Callers choose them; the ones prepared first make room."""
    table = Warehouse(tmp_path / "w").create_table(
        f"CREATE TABLE t (a INT, {', '.join(f'c{i} INT' for i in range(30))}, PRIMARY KEY (a) NOT ENFORCED)"
    )
    commit_rows(table, [{"a": 1, "c1": 2}])
    reader = open_reader(table, tmp_path / "tablets")
    for i in range(30):
        for j in range(30):
            if i != j:
                assert list(reader.lookup((1,), reader.table.projection([f"c{i}", f"c{j}"])) or ()) == [
                    f"c{i}",
                    f"c{j}",
                ]
    assert len(reader.table._projections) <= 256


def test_a_block_that_goes_bad_after_the_load(tmp_path: Path) -> None:
    """RocksDB checks every block that it reads: the error says which tablet, and is CorruptData."""
    table = Warehouse(tmp_path / "w").create_table(
        "CREATE TABLE t (a INT, v STRING, PRIMARY KEY (a) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'file.compression' = 'none')"
    )
    snapshot = commit_rows(table, [{"a": i, "v": "x" * 100} for i in range(1000)])
    reader = open_reader(table, tmp_path / "tablets")
    [file] = snapshot.files
    stored = table.storage.local_path(file.path)
    assert stored is not None
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    with stored.open("r+b") as target:  # in place: the tablet has a hard link to it
        target.write(content)
    shape = reader.table.all_columns
    assert reader.lookup((999,), shape) == {"a": 999, "v": "x" * 100}
    near = [(i,) for i in range(400, 600)]
    with pytest.raises(CorruptData, match="checksum") as error:
        _ = [reader.lookup(key, shape) for key in near]
    assert str(tmp_path) in str(error.value.place)
    with pytest.raises(CorruptData, match="checksum"):
        reader.lookup_many(near, shape)
    with pytest.raises(CorruptData, match="checksum"):
        reader.prefix_lookup({}, shape, 1000)
