"""Goal: a hash index finds what a dict finds, whatever the keys look like and however their hashes fall.

Method: random keys of one width and of many against a dict, misses among them; hash functions made bad on purpose, so
that all keys fall into one slot or have one fingerprint; and a partition's index against its tablets.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pytest

from stelae.encoding.key_batch import KeyColumns
from stelae.errors import Unavailable
from stelae.read import hash_index
from stelae.read.build_index import index_bytes, index_partition, index_partition_in_background
from stelae.read.hash_index import HashIndex, build_hash_index, needed_bytes
from stelae.read.open_snapshot import open_snapshot
from stelae.read.snapshot_reader import INDEXED_KEYS, SnapshotReader
from stelae.rocksdb.online_rows import OnlineRows
from stelae.snapshot.warehouse import Table, Warehouse
from tests.tables import commit_rows


def make(tmp_path: Path, rows: dict[bytes, bytes], width: int | None, chunk: int = 100) -> HashIndex:
    keys = list(rows)

    def chunks() -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        for start in range(0, len(keys), chunk):
            some = keys[start : start + chunk]
            yield some, [rows[key] for key in some]

    build_hash_index(chunks(), tmp_path / "index", width)
    return HashIndex(tmp_path / "index")


def random_rows(rng: random.Random, width: int | None, count: int) -> dict[bytes, bytes]:
    def key() -> bytes:
        return rng.randbytes(rng.choice([0, 1, 2, 3, 8, 20]) if width is None else width)

    return {key(): rng.randbytes(rng.choice([0, 3, 50])) for _ in range(count)}


@pytest.mark.parametrize("width", [None, 1, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("count", [1, 2, 50, 5000])
def test_finds_what_a_dict_finds(tmp_path: Path, width: int | None, count: int) -> None:
    rng = random.Random(count)
    rows = random_rows(rng, width, count)
    index = make(tmp_path, rows, width)
    assert index.rows == len(rows)
    for size in (0, 1, 7, 3000):
        asked = [*rng.choices(list(rows), k=size), *random_rows(rng, width, size)]
        rng.shuffle(asked)
        found = index.rows_of(asked)
        assert found.type == pa.binary()
        assert found.to_pylist() == [rows.get(key) for key in asked]
        found.validate(full=True)


@pytest.mark.parametrize("width", [None, 8, 12])
@pytest.mark.parametrize("mask", [0, 0xFFFFFFFF, 0xFFFFFFFF_00000000, 0x3_00000003, 0xFF000000_00000000])
def test_bad_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int | None, mask: int) -> None:
    """Few slots to begin at, few fingerprints, or one of each: slower, and never wrong."""
    good = hash_index.hash_keys
    monkeypatch.setattr(hash_index, "hash_keys", lambda *args: good(*args) & np.uint64(mask))
    rng = random.Random(mask)
    rows = random_rows(rng, width, 300)
    index = make(tmp_path, rows, width)
    asked = [*rows, *random_rows(rng, width, 100)]
    assert index.rows_of(asked).to_pylist() == [rows.get(key) for key in asked]


def test_last_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that all begin at the last slot stand behind it."""
    monkeypatch.setattr(hash_index, "hash_keys", lambda keys, *_: np.full(len(keys), 2**64 - 1, np.uint64))
    rows = random_rows(random.Random(1), 8, 40)
    asked = [*rows, bytes(8)]
    assert make(tmp_path, rows, 8).rows_of(asked).to_pylist() == [rows.get(key) for key in asked]


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        make(tmp_path, {bytes(8): b"", bytes(7): b""}, 8)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_goes_with_the_index(tmp_path: Path) -> None:
    index = make(tmp_path, {b"a": b"1"}, None)
    shared = HashIndex(index.directory, owns_folder=False)
    assert index.bytes == sum(file.stat().st_size for file in index.directory.iterdir())
    del index
    assert list(tmp_path.iterdir()) == []
    assert shared.rows_of([b"a"]).to_pylist() == [b"1"]  # what is mapped stays as long as it is used


# Of a table.

SQL = """CREATE TABLE t (k STRING, n INT, v STRING, PRIMARY KEY (k, n) NOT ENFORCED)
WITH ('bucket' = '3', 'bucket-key' = 'k')"""
PARTITIONED = """CREATE TABLE p (dt INT, k BIGINT, v STRING, PRIMARY KEY (dt, k) NOT ENFORCED) PARTITIONED BY (dt)
WITH ('bucket' = '2')"""


def opened(table: Table, tmp_path: Path, previous: SnapshotReader | None = None) -> SnapshotReader:
    return open_snapshot(table, table.snapshots.read(), tmp_path / "open", previous=previous)


def index_all(reader: SnapshotReader, tmp_path: Path) -> None:
    for number, partition in enumerate(reader.partitions.values()):
        folders = [tablet.directory for tablet in partition.tablets if tablet]
        directory = tmp_path / f"index-{reader.id}-{number}"
        index_partition(folders, directory, reader.table.keys.width)
        partition.index.made = HashIndex(directory)


def columns(reader: SnapshotReader, **values: Sequence[object]) -> KeyColumns:
    return KeyColumns.of(reader.table.layout, {name: pa.array(cells) for name, cells in values.items()})


def test_rows_of_a_table(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(SQL)
    rows = [{"k": f"k{i % 97}", "n": i, "v": f"v{i}"} for i in range(1000)]
    commit_rows(table, rows, hidden=[{"k": "hidden", "n": i} for i in range(10)])
    reader = opened(table, tmp_path)
    asked = [(f"k{i % 97}", i) for i in range(-50, 1050)] + [("hidden", i) for i in range(12)]
    keys = columns(reader, k=[k for k, _ in asked], n=[n for _, n in asked])
    assert len(keys) >= INDEXED_KEYS
    from_tablets = reader.rows_of(keys)
    assert from_tablets.null_count == 112
    index_all(reader, tmp_path)
    assert reader.rows_of(keys).equals(from_tablets)
    [partition] = reader.partitions.values()
    index = partition.index.made
    assert index is not None
    assert index.rows == partition.rows == 1010
    assert 0.5 < index.bytes / index_bytes(partition) < 1.5

    # A few keys are read from the tablets, with the same result.
    partition.index.made = None
    assert reader.rows_of(keys[:10]).equals(from_tablets[:10])

    # Online rows are under visible ones and above hidden ones.
    online = reader.with_online(OnlineRows.open(tmp_path / "online"))
    assert online.online is not None
    located = online.locate_many(keys)
    put = {key: b"row %d" % number for number, key in enumerate(located) if key is not None}
    online.online.put_many(list(put), list(put.values()))
    expected = [row if row is not None else b"row %d" % number for number, row in enumerate(from_tablets.to_pylist())]
    for made in (None, index):
        partition.index.made = made
        assert online.rows_of(keys).to_pylist() == expected


def test_online_rows_are_not_asked_for_keys_that_are_there(tmp_path: Path) -> None:
    """Who asks may be another process, for which that is a question to the one that has them."""
    table = Warehouse(tmp_path / "w").create_table(SQL)
    commit_rows(table, [{"k": f"k{i}", "n": i, "v": "x"} for i in range(200)], hidden=[{"k": "gone", "n": 1}])
    reader = opened(table, tmp_path)
    index_all(reader, tmp_path)

    class Elsewhere(OnlineRows):
        def __init__(self) -> None:
            self.directory = tmp_path

        def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
            raise Unavailable("asked")

        def get(self, key: bytes) -> bytes | None:
            raise Unavailable("asked")

    online = reader.with_online(Elsewhere())
    there = columns(online, k=[f"k{i}" for i in range(200)], n=list(range(200)))
    assert online.rows_of(there).null_count == 0
    assert None not in online.rows_at([key for key in online.locate_many(there) if key])
    assert None not in online.lookup_many(list(there), online.table.all_columns)
    for key in (("gone", 1), ("k1", 7)):
        some = [*list(there), key]
        with pytest.raises(Unavailable, match="asked"):
            online.lookup_many(some, online.table.all_columns)
        with pytest.raises(Unavailable, match="asked"):
            online.rows_of(columns(online, k=[k for k, _ in some], n=[n for _, n in some]))


def test_rows_of_partitions(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(PARTITIONED)
    commit_rows(table, [{"dt": i % 3, "k": i, "v": str(i)} for i in range(900)])
    reader = opened(table, tmp_path)
    rng = random.Random(1)
    asked = [(rng.randrange(5), rng.randrange(1000)) for _ in range(2000)]
    keys = columns(reader, dt=pa.array([d for d, _ in asked], pa.int32()), k=[k for _, k in asked])
    from_tablets = reader.rows_of(keys)
    assert 100 < from_tablets.null_count < 1900
    index_all(reader, tmp_path)
    assert reader.rows_of(keys).equals(from_tablets)


def test_another_reader_of_the_same_files_has_the_index(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(SQL)
    commit_rows(table, [{"k": "a", "n": 1, "v": "x"}])
    first = opened(table, tmp_path)
    index_all(first, tmp_path)
    [before] = first.partitions.values()
    commit_rows(table, [{"k": "b", "n": 1, "v": "y"}])
    [other] = opened(table, tmp_path, first).partitions.values()
    assert other.index.made is None
    table.snapshots.rollback(1, now_ms=0)
    third = opened(table, tmp_path, first)
    [after] = third.partitions.values()
    assert third.id == 3
    assert after.index is before.index


def test_made_by_another_process(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(SQL)
    commit_rows(table, [{"k": f"k{i}", "n": i, "v": "x"} for i in range(500)])
    reader = opened(table, tmp_path)
    [partition] = reader.partitions.values()
    index_partition_in_background(partition, tmp_path / "index", reader.table.keys.width, Event())
    keys = columns(reader, k=[f"k{i}" for i in range(600)], n=list(range(600)))
    expected = reader.rows_of(keys)
    partition.index.made = HashIndex(tmp_path / "index")
    assert reader.rows_of(keys).equals(expected)
    with pytest.raises(Unavailable, match="can't be written"):
        index_partition_in_background(partition, tmp_path / "index", reader.table.keys.width, Event())


def test_needed_bytes() -> None:
    assert needed_bytes(10, 1000) == 1000 + 10 * 32
