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
from stelae.snapshot.warehouse import Warehouse
from tests.length import length
from tests.stelae.read.readers import (
    EVENTS,
    KEY,
    NULLABLE_EVENTS,
    Model,
    keys,
    nullable_keys,
    open_reader,
    prefixes,
    read_pages,
)
from tests.tables import commit_rows


@dataclass
class Story:
    """What is written and what is asked. Values of None are deletes."""

    sql: str
    runs: list[dict[tuple[Any, ...], int | None]]
    asked: list[tuple[Any, ...]]
    scans: list[tuple[tuple[str, ...], tuple[Any, ...], int]]


def stories(sql: str, keys: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[Story]:
    return st.builds(
        Story,
        st.just(sql),
        st.lists(st.dictionaries(keys, st.none() | st.integers(0, 9), max_size=30), min_size=1, max_size=3),
        st.lists(keys, max_size=20),
        st.lists(st.tuples(prefixes, keys, st.integers(1, 40)), min_size=3, max_size=6),
    )


@pytest.mark.long
@settings(max_examples=length(short=60, long=1000))
@given(
    story=stories(EVENTS, keys) | stories(NULLABLE_EVENTS, nullable_keys),
    buckets=st.fixed_dictionaries({(day,): st.integers(1, 4) for day in (9, 10, 11)}),
    columns=st.permutations([*KEY, "v"]),
)
def test_a_reader_is_a_dict(story: Story, buckets: dict[tuple[int], int], columns: Sequence[str]) -> None:
    runs, asked, scans = story.runs, story.asked, story.scans
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
        projection = read.projection(columns)

        wanted = [*asked, *(key for run in runs for key in run)]
        expected = [
            None
            if key not in model.rows
            else {n: {**dict(zip(KEY, key, strict=True)), "v": model.rows[key]}[n] for n in columns}
            for key in wanted
        ]
        physical = [read.key_from_json(dict(zip(KEY, key, strict=True))) for key in wanted]
        assert [reader.lookup(key, projection) for key in physical] == expected
        answers = reader.lookup_many(physical, projection)
        assert answers == expected
        assert all(list(row) == list(columns) for row in answers if row)

        for names, key, limit in scans:
            given_values = {name: dict(zip(KEY, key, strict=True))[name] for name in names}
            prefix = read.prefix_from_json(given_values)
            every = model.prefix(given_values)
            assert reader.prefix_lookup(prefix, read.all_columns, 1000).rows == every
            assert read_pages(reader, prefix, limit) == every
        assert read.partition_of(read.whole_key((1,), ("x", "y", 2))) == (1,)


def test_a_null_is_a_key_like_another(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(
        "CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('primary-key.nullable' = 'true')"
    )
    commit_rows(table, [{"k": None, "v": "none"}, {"k": 0, "v": "zero"}])
    reader = open_reader(table, tmp_path / "tablets")
    read, projection = reader.table, reader.table.all_columns
    none = {"k": None, "v": "none"}
    assert [reader.lookup(read.key_from_json(key), projection) for key in (None, {"k": None})] == [none, none]
    assert reader.lookup_many([(None,), (0,), (1,)], projection) == [none, {"k": 0, "v": "zero"}, None]
    assert reader.prefix_lookup(read.prefix_from_json({"k": None}), projection, 9).rows == [none]
    assert [row["k"] for row in reader.prefix_lookup({}, projection, 9).rows if row] == [None, 0]
    with pytest.raises(InvalidRequest, match="the key lacks k"):
        read.key_from_json({})


def test_a_snapshot_without_rows(tmp_path: Path) -> None:
    for sql in ("CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)", EVENTS):
        table = Warehouse(tmp_path / "w").create_table(sql)
        commit_rows(table, [])
        reader = open_reader(table, tmp_path / "tablets")
        key = (1,) if sql != EVENTS else ("x", 1, "", 1)
        projection = reader.table.all_columns
        assert reader.lookup(key, projection) is None
        assert reader.lookup_many([key, key], projection) == [None, None]
        assert reader.prefix_lookup({}, projection, 5).rows == []


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
    projection = reader.table.all_columns
    assert reader.lookup((999,), projection) == {"a": 999, "v": "x" * 100}
    near = [(i,) for i in range(400, 600)]
    with pytest.raises(CorruptData, match="checksum") as error:
        _ = [reader.lookup(key, projection) for key in near]
    assert str(tmp_path) in str(error.value.place)
    with pytest.raises(CorruptData, match="checksum"):
        reader.lookup_many(near, projection)
    with pytest.raises(CorruptData, match="checksum"):
        reader.prefix_lookup({}, projection, 1000)
