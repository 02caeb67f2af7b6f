"""Goal: tablets answer as their files say, the files are never touched, and damage is told.

Method: small files through the real RocksDB; a dict as the model; every kind of damage to a file.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from stelae.errors import CorruptData, StelaeError
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.database import BLOCK_BYTES, BLOOM_BITS_PER_KEY
from stelae.rocksdb.tablet import Tablet
from stelae.storage.checksum import file_checksum
from tests.files import read_file
from tests.stelae.rocksdb.sorted_files import people, some_rows, write_file


def test_a_tablet_answers_like_a_dict(tmp_path: Path) -> None:
    rows = some_rows(3000)
    write_file(tmp_path / "a.sst", rows)
    tablet = Tablet.open(tmp_path / "db", [tmp_path / "a.sst"], BlockCache(1 << 20))
    keys = [*random.Random(1).sample(sorted(rows), 500), b"", b"\xff" * 30, b"missing"]
    assert [tablet.get(key) for key in keys] == [rows.get(key) for key in keys]
    assert tablet.multi_get(keys) == [rows.get(key) for key in keys]
    assert tablet.multi_get([]) == []
    ordered = sorted(rows)
    lower, upper = ordered[100], ordered[200]
    assert [key for key, _ in tablet.scan(lower, upper)] == ordered[100:200]
    assert dict(tablet.scan()) == rows


def test_a_tablet_has_its_filter_and_the_cache(tmp_path: Path) -> None:
    """rocksdict opens what is there with RocksDB's defaults, unless it is told otherwise: slow, but never wrong."""
    rows = {f"{i:09}".encode(): b"x" * 50 for i in range(20_000)}
    write_file(tmp_path / "a.sst", rows)
    cache = BlockCache(8 << 20)
    tablet = Tablet.open(tmp_path / "db", [tmp_path / "a.sst"], cache)
    filter_bytes = len(rows) * BLOOM_BITS_PER_KEY / 8
    assert int(tablet._db.property_value("rocksdb.estimate-table-readers-mem") or 0) > filter_bytes
    before = cache.usage_bytes()
    tablet.multi_get([key + b"absent" for key in list(rows)[:400]])
    assert cache.usage_bytes() - before < 20 * BLOCK_BYTES  # 1 in 100 reads a block
    tablet.multi_get(list(rows))
    assert cache.usage_bytes() - before > 200 * BLOCK_BYTES


def test_the_newer_run_wins_and_no_file_changes(tmp_path: Path) -> None:
    """RocksDB numbers overlapping files; were the number written into the file, the warehouse's copy would change."""
    old = {b"a": b"1", b"b": b"1", b"d": b"1"}
    new = {b"b": b"2", b"c": b"2"}
    files = []
    for number, rows in enumerate((old, new)):
        files.append(tmp_path / f"{number}.sst")
        write_file(files[-1], rows)
    before = [file_checksum(file) for file in files]
    tablet = Tablet.open(tmp_path / "db", files)
    assert dict(tablet.scan()) == {**old, **new}
    assert tablet.get(b"b") == b"2"
    assert [file_checksum(file) for file in files] == before
    tablet.close()
    assert [file_checksum(file) for file in files] == before


def test_a_tablet_cleans_up_when_nobody_holds_it(tmp_path: Path) -> None:
    write_file(tmp_path / "a.sst", {b"a": b"1"})
    tablet = Tablet.open(tmp_path / "db", [tmp_path / "a.sst"])
    get = tablet.get
    assert get(b"a") == b"1"
    del tablet, get
    gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sst"]


def test_a_tablet_of_another_process(tmp_path: Path) -> None:
    """Several have one folder open; the one that owns it may remove it while the others read on."""
    rows = some_rows(5000)
    write_file(tmp_path / "a.sst", rows)
    mine = Tablet.open(tmp_path / "tablet", [tmp_path / "a.sst"])
    program = """
import sys
from pathlib import Path
from stelae.rocksdb.tablet import Tablet
tablet = Tablet.reopen(Path(sys.argv[1]), owns_folder=False)
print(len(list(tablet.scan())), flush=True)
sys.stdin.readline()
print(len(list(tablet.scan())), flush=True)
tablet.close()
print(Path(sys.argv[1]).exists())
"""
    for removed in (False, True):
        command = [sys.executable, "-c", program, str(mine.directory)]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == f"{len(rows)}\n"
        if removed:
            mine.close()
        said, _ = other.communicate("go\n")
        assert said.split() == [str(len(rows)), str(not removed)]


def test_a_tablet_without_files_is_empty(tmp_path: Path) -> None:
    tablet = Tablet.open(tmp_path / "db", [])
    assert tablet.get(b"a") is None
    assert list(tablet.scan()) == []


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    """The checksum of the file is what notices damage; RocksDB alone must at least never answer wrongly."""
    rows = some_rows(200)
    path = tmp_path / "a.sst"
    info = write_file(path, rows, "none")
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:length])
        assert file_checksum(path) != info.checksum
        with pytest.raises(StelaeError):
            Tablet.open(tmp_path / f"db{length}", [path])


def test_damaged_blocks_never_give_wrong_rows(tmp_path: Path) -> None:
    rows = some_rows(400)
    path = tmp_path / "a.sst"
    write_file(path, rows, "none")
    whole = bytearray(path.read_bytes())
    for position in range(0, len(whole), max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        path.write_bytes(damaged)
        with suppress(StelaeError):
            assert all(rows.get(key) == row for key, row in read_file(path))


def test_only_uncompressed_files_are_read_past_the_cache(tmp_path: Path) -> None:
    rows = people()
    for compression in ("none", "lz4", "zstd"):
        write_file(tmp_path / f"{compression}.sst", rows, compression)
        cache = BlockCache(8 << 20)
        before = cache.usage_bytes()
        tablet = Tablet.open(tmp_path / f"db {compression}", [tmp_path / f"{compression}.sst"], cache)
        assert tablet.multi_get(list(rows)) == list(rows.values())
        assert dict(tablet.scan()) == rows
        assert (cache.usage_bytes() - before < 4096) == (compression == "none")
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if f"db {compression}/" in line]
        assert bool(mapped) == (compression == "none")
        tablet.close()
        assert str(tablet.directory) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("kinds", [("none", "lz4"), ("zstd", "none"), ("none", "none"), ("lz4", "zstd", "none")])
def test_a_tablet_of_files_of_several_kinds(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """As after ALTER TABLE ... SET ('file.compression' = ...): the runs that are there stay as they are."""
    model: dict[bytes, bytes] = {}
    files = []
    for number, compression in enumerate(kinds):
        rows = some_rows(2000, seed=number) | {b"shared": compression.encode()}
        model |= rows
        files.append(tmp_path / f"{number}.sst")
        write_file(files[-1], rows, compression, block_bytes=512 << number)
    cache = BlockCache(1 << 20)
    tablet = Tablet.open(tmp_path / "db", files, cache)
    keys = [*sorted(model), b"missing"]
    assert tablet.multi_get(keys) == [model.get(key) for key in keys]
    assert tablet.get(b"shared") == kinds[-1].encode()
    assert dict(tablet.scan()) == model


@pytest.mark.parametrize("compression", ["lz4", "none"])
def test_a_damaged_block_is_told_when_it_is_read(tmp_path: Path, compression: str) -> None:
    """Also where blocks are read in place: the damage is done before the file is opened, and found when it is read."""
    rows = people(5000)
    path = tmp_path / "a.sst"
    write_file(path, rows, compression)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0x40
    path.write_bytes(damaged)
    tablet = Tablet.open(tmp_path / "db", [path], BlockCache(1 << 20))
    with pytest.raises(CorruptData):
        list(tablet.scan())
    told = 0
    for key, row in rows.items():
        try:
            assert tablet.get(key) == row
        except Exception as exc:  # rocksdict's own; stelae/read/snapshot_reader.py translates it
            told += "orruption" in str(exc)
    assert 0 < told < 200
    with pytest.raises(Exception, match="orruption"):
        tablet.multi_get(list(rows))


def test_a_file_that_is_read_only_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB opens for writing what it ingests. Root may write to every file: here it may not."""
    rows = some_rows(10)
    file = tmp_path / "a.sst"
    write_file(file, rows)
    monkeypatch.setattr("stelae.rocksdb.tablet.os.access", lambda _, mode: mode != os.W_OK)
    tablet = Tablet.open(tmp_path / "db", [file])
    assert file.stat().st_nlink == 1
    assert dict(tablet.scan()) == rows
