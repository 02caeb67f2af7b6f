"""Goal: a snapshot opens whole or not at all; what is damaged is noticed; nothing is left behind; files that did not
change are not opened twice.

Method: snapshots on a local folder and in memory (where files are downloaded), damaged on purpose.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stelae.errors import CorruptData, StelaeError, Unavailable
from stelae.read.open_snapshot import open_snapshot
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.memory import MemoryStorage
from stelae.verify.verify import verify_snapshot
from tests.faults import FaultyStorage
from tests.tables import commit_rows
from tests.waiting import WAIT_S

SQL = "CREATE TABLE t (a INT, v STRING, PRIMARY KEY (a) NOT ENFORCED)"
ROWS = [{"a": i, "v": str(i)} for i in range(100)]


def make_table(tmp_path: Path, kind: str) -> Table:
    storage = MemoryStorage() if kind == "memory" else None
    return Warehouse(tmp_path / "w", storage).create_table(SQL)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_open_read_close(tmp_path: Path, kind: str) -> None:
    table = make_table(tmp_path, kind)
    commit_rows(table, ROWS)
    folder = tmp_path / "tablets"
    reader = open_snapshot(table, table.snapshots.read(), folder)
    [place] = folder.iterdir()
    assert len(list(place.iterdir())) == 4  # a folder a bucket, no downloads
    assert [reader.lookup((i,), reader.table.all_columns) for i in range(101)] == [*ROWS, None]
    del reader
    gc.collect()
    assert list(place.iterdir()) == []


def test_a_table_that_was_opened_before_it_was_altered(tmp_path: Path) -> None:
    """The snapshot names a version of the definition that the table does not know."""
    table = make_table(tmp_path, "local")
    first = commit_rows(table, ROWS)
    warehouse = Warehouse(tmp_path / "w")
    for number in (1, 2):
        warehouse.alter_table(f"ALTER TABLE {table.name} ADD c{number} INT")
    newer = commit_rows(warehouse.table(table.name), [{"a": 1, "v": "new", "c2": 7}], onto=first)
    assert newer.schema_id == 2
    reader = open_snapshot(table, newer, tmp_path / "tablets")
    rows = reader.lookup_many([(1,), (2,)], reader.table.all_columns)
    assert rows == [{"a": 1, "v": "new", "c1": None, "c2": 7}, {"a": 2, "v": "2", "c1": None, "c2": None}]
    assert verify_snapshot(table, newer).ok


def test_buckets_that_did_not_change_are_shared(tmp_path: Path) -> None:
    table = make_table(tmp_path, "local")
    first = commit_rows(table, ROWS)
    one = open_snapshot(table, first, tmp_path / "tablets")
    second = commit_rows(table, [{"a": 1, "v": "new"}], onto=first)
    two = open_snapshot(table, second, tmp_path / "tablets", previous=one)
    tablets = [reader.partitions[()].tablets for reader in (one, two)]
    assert sum(a is b for a, b in zip(*tablets, strict=True)) == 3
    assert one.lookup((1,), one.table.all_columns) == {"a": 1, "v": "1"}
    assert two.lookup((1,), two.table.all_columns) == {"a": 1, "v": "new"}
    del one, tablets
    gc.collect()
    assert two.lookup_many([(i,) for i in range(2, 100)], two.table.all_columns) == ROWS[2:]


def test_tablets_outlive_the_files(tmp_path: Path) -> None:
    """A clean-up of the warehouse takes nothing from those who read."""
    table = make_table(tmp_path, "local")
    snapshot = commit_rows(table, ROWS)
    reader = open_snapshot(table, snapshot, tmp_path / "tablets")
    for file in snapshot.files:
        table.storage.delete(file.path)
    assert reader.lookup_many([(i,) for i in range(100)], reader.table.all_columns) == ROWS


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.unlink()
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip, empty, Path.unlink])
def test_a_damaged_file(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    table = make_table(tmp_path, "local")
    snapshot = commit_rows(table, ROWS)
    *_, last = snapshot.files
    path = table.storage.local_path(last.path)
    assert path is not None
    damage(path)
    with pytest.raises(CorruptData) as error:
        open_snapshot(table, snapshot, tmp_path / "tablets")
    assert error.value.place == last.path
    assert list((tmp_path / "tablets").iterdir()) == []


def test_a_file_that_is_no_sorted_file(tmp_path: Path) -> None:
    """Its checksum is what the manifest says; RocksDB notices."""
    table = make_table(tmp_path, "local")
    snapshot = commit_rows(table, ROWS)
    [first, *_] = snapshot.files
    path = table.storage.local_path(first.path)
    assert path is not None
    path.unlink()
    path.write_bytes(b"no sorted file" * 100)
    forged = _with_checksum_of(table, snapshot, first.path)
    with pytest.raises(CorruptData, match="RocksDB"):
        open_snapshot(table, forged, tmp_path / "tablets")
    assert list((tmp_path / "tablets").iterdir()) == []


def _with_checksum_of(table: Table, snapshot: Snapshot, path: str) -> Snapshot:
    from dataclasses import replace

    from stelae.storage.checksum import file_checksum

    local = table.storage.local_path(path)
    assert local is not None
    partitions = tuple(
        replace(
            partition,
            buckets=tuple(
                replace(
                    bucket,
                    files=tuple(
                        replace(file, checksum=file_checksum(local)) if file.path == path else file
                        for file in bucket.files
                    ),
                )
                for bucket in partition.buckets
            ),
        )
        for partition in snapshot.partitions
    )
    return replace(snapshot, partitions=partitions)


@pytest.mark.parametrize("nth", [1, 3, 4])
@pytest.mark.parametrize("kind", ["fail", "corrupt"])
def test_a_download_that_fails(tmp_path: Path, nth: int, kind: str) -> None:
    storage = FaultyStorage(MemoryStorage())
    table = Warehouse("memory:", storage).create_table(SQL)
    snapshot = commit_rows(table, ROWS)
    error: type[StelaeError]
    if kind == "fail":
        storage.fail("download", nth=nth)
        error = Unavailable
    else:
        path = f"default.db/t/{list(snapshot.files)[nth - 1].path}"
        memory = storage.inner
        assert isinstance(memory, MemoryStorage)
        content = memory.get(path)
        memory.delete(path)
        memory.put_if_absent(path, content[:-1] + b"!")
        error = CorruptData
    with pytest.raises(error):
        open_snapshot(table, snapshot, tmp_path / "tablets")
    assert list((tmp_path / "tablets").iterdir()) == []


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_another_process_prepares(tmp_path: Path, kind: str) -> None:
    """Memory is read by this one: the other has none of it."""
    table = make_table(tmp_path, kind)
    snapshot = commit_rows(table, ROWS)
    reader = open_snapshot(table, snapshot, tmp_path / "tablets", in_background=True)
    assert reader.lookup_many([(i,) for i in range(100)], reader.table.all_columns) == ROWS
    if kind == "local":
        path = table.storage.local_path(next(iter(snapshot.files)).path)
        assert path is not None
        flip(path)
        with pytest.raises(CorruptData, match="checksum") as error:
            open_snapshot(table, snapshot, tmp_path / "tablets", in_background=True)
        assert error.value.place in str(path)
        assert len(list((tmp_path / "tablets").iterdir())) == 1


def test_the_other_process_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, "local")
    snapshot = commit_rows(table, ROWS)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(Unavailable, match="ended with 1"):
        open_snapshot(table, snapshot, tmp_path / "tablets", in_background=True)
    assert list((tmp_path / "tablets").iterdir()) == []


@pytest.mark.parametrize("request_bytes", [b"", pickle.dumps(["cut"])[:-3]])
def test_the_server_dies(request_bytes: bytes) -> None:
    """Killed before it had said what to prepare: its log, which outlives it, gets no traceback."""
    command = [sys.executable, "-P", "-m", "stelae.read.background_process"]
    ended = subprocess.run(command, input=request_bytes, capture_output=True, timeout=WAIT_S, check=False)
    assert (ended.stdout, ended.stderr) == (b"", b"")


@pytest.mark.parametrize("in_background", [False, True])
def test_giving_up(tmp_path: Path, in_background: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, "local")
    snapshot = commit_rows(table, ROWS)
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("stelae.read.background_process.STOP_POLL_S", 0.001)
    with pytest.raises(Unavailable, match="given up"):
        open_snapshot(table, snapshot, tmp_path / "tablets", stop=stop, in_background=in_background)
    assert list((tmp_path / "tablets").iterdir()) == []
