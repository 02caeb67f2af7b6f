"""Goal: all storages keep the same promises, put-if-absent above all; nothing half-written is ever seen.

Method: one suite over every storage (object stores through obstore's MemoryStore and a small S3 behind HTTP); races
of threads; planted faults.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stelae.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from stelae.storage.checksum import checksum
from stelae.storage.storage import Storage, exists
from tests.faults import FaultyStorage
from tests.stelae.storage.conftest import write

ODD_NAMES = ["dt=a%2Fb/x", "dt=%C3%A9/x", "dt=/x", "dt=./x", "a~b/.c/d e", "plain"]


def test_what_is_put_is_read(storage: Storage) -> None:
    storage.put_if_absent("a/b.json", b"one")
    assert storage.get("a/b.json") == b"one"
    head = storage.head("a/b.json")
    assert (head.path, head.bytes) == ("a/b.json", 3)
    assert abs(head.modified_ms - time.time() * 1000) < 60_000
    assert exists(storage, "a/b.json")


def test_put_never_overwrites(storage: Storage, tmp_path: Path) -> None:
    storage.put_if_absent("a", b"one")
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("a", b"two")
    with pytest.raises(AlreadyExists):
        storage.upload(write(tmp_path / "two", b"two"), "a")
    assert storage.get("a") == b"one"
    assert list(storage.unfinished()) == []


def test_upload_and_download(storage: Storage, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    source = write(tmp_path / "source", data)
    storage.upload(source, "bucket-0/sst-1.sst")
    assert source.exists()
    source.unlink()
    target = tmp_path / "target"
    assert storage.download("bucket-0/sst-1.sst", target) == checksum(data)
    assert target.read_bytes() == data


def test_an_empty_file(storage: Storage, tmp_path: Path) -> None:
    storage.put_if_absent("empty", b"")
    storage.upload(write(tmp_path / "x", b""), "empty too")
    assert storage.get("empty") == storage.get("empty too") == b""
    assert storage.download("empty", tmp_path / "y") == checksum(b"")


def test_absent_files(storage: Storage, tmp_path: Path) -> None:
    storage.put_if_absent("folder/file", b"")
    for path in ("absent", "folder/absent", "absent/file", "folder/file/below"):
        for call in (storage.get, storage.head, lambda path: storage.download(path, tmp_path / "local")):
            with pytest.raises(NotFound):
                call(path)
        assert not exists(storage, path)
    assert not (tmp_path / "local").exists()
    storage.delete("absent")


def test_a_folder_is_no_file(storage: Storage) -> None:
    storage.put_if_absent("folder/file", b"")
    for call in (storage.get, storage.head):
        with pytest.raises(NotFound):
            call("folder")


def test_list_is_recursive_sorted_and_by_whole_names(storage: Storage) -> None:
    for path in ("b/2", "b/10", "b/c/d", "bc/1", "a", "b-/1"):
        storage.put_if_absent(path, path.encode())
    assert [file.path for file in storage.list()] == ["a", "b-/1", "b/10", "b/2", "b/c/d", "bc/1"]
    assert [(file.path, file.bytes) for file in storage.list("b")] == [("b/10", 4), ("b/2", 3), ("b/c/d", 5)]
    assert [file.path for file in storage.list("b/c")] == ["b/c/d"]
    assert list(storage.list("absent")) == list(storage.list("a")) == []
    assert storage.folders() == ("b", "b-", "bc")
    assert storage.folders("b") == ("c",)
    assert storage.folders("absent") == ()


def test_delete(storage: Storage) -> None:
    storage.put_if_absent("a/b", b"one")
    storage.delete("a/b")
    assert not exists(storage, "a/b")
    storage.put_if_absent("a/b", b"two")
    assert storage.get("a/b") == b"two"


@pytest.mark.parametrize("path", ODD_NAMES)
def test_names_are_kept_as_they_are(storage: Storage, path: str, tmp_path: Path) -> None:
    storage.put_if_absent(path, b"x")
    storage.upload(write(tmp_path / "x", b"y"), path + "2")
    assert [file.path for file in storage.list()] == [path, path + "2"]
    assert storage.get(path) + storage.get(path + "2") == b"xy"


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b", "a\\b", "a\0b"])
def test_paths_that_leave_the_storage_are_refused(storage: Storage, path: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.get(path),
        lambda: storage.put_if_absent(path, b""),
        lambda: storage.upload(write(tmp_path / "x", b""), path),
        lambda: storage.download(path, tmp_path / "y"),
        lambda: storage.local_path(path),
        lambda: storage.head(path),
        lambda: storage.delete(path),
    ]
    if path:
        calls += [lambda: list(storage.list(path)), lambda: storage.folders(path)]
    for call in calls:
        with pytest.raises(InvalidRequest):
            call()


def test_one_of_twenty_threads_wins(storage: Storage) -> None:
    def put(number: int) -> bool:
        try:
            storage.put_if_absent("snapshot/snapshot-1.json", b"%d" % number)
        except AlreadyExists:
            return False
        return True

    for _ in range(5):
        with ThreadPoolExecutor(20) as pool:
            won = [number for number, mine in enumerate(pool.map(put, range(20))) if mine]
        assert len(won) == 1
        assert storage.get("snapshot/snapshot-1.json") == b"%d" % won[0]
        storage.delete("snapshot/snapshot-1.json")


def test_faults_strike_once(storage: Storage, tmp_path: Path) -> None:
    faulty = FaultyStorage(storage)
    faulty.fail("put_if_absent", nth=2)
    faulty.lose_answer("put_if_absent", nth=3)
    faulty.put_if_absent("1", b"")
    for path in ("2", "3"):
        with pytest.raises(Unavailable, match="planted"):
            faulty.put_if_absent(path, b"")
    assert [file.path for file in faulty.list()] == ["1", "3"]
    with pytest.raises(AlreadyExists):
        faulty.put_if_absent("3", b"")


def test_a_torn_upload_is_never_visible(storage: Storage, tmp_path: Path) -> None:
    faulty = FaultyStorage(storage)
    faulty.tear("upload")
    source = write(tmp_path / "x", b"0123456789")
    with pytest.raises(Unavailable):
        faulty.upload(source, "bucket-0/a")
    assert list(faulty.list()) == []
    assert faulty.folders("bucket-0") == ()
    faulty.upload(source, "bucket-0/a")
    assert [file.path for file in faulty.list()] == ["bucket-0/a"]
    for file in faulty.unfinished():
        faulty.delete(file.path)
    assert list(faulty.unfinished()) == []


def test_scratch_folders(storage: Storage, tmp_path: Path) -> None:
    first, second = storage.scratch_folder(), storage.scratch_folder("bucket-0")
    try:
        assert first != second
        assert list(first.iterdir()) == list(second.iterdir()) == []
        storage.upload(write(first / "rows.sst", b"rows"), "bucket-0/sst-1.sst")
        write(first / "log", b"")
        (second / "db").mkdir()
        write(second / "db" / "rows.sst", b"rows")
        assert [file.path for file in storage.list()] == ["bucket-0/sst-1.sst"]
        assert storage.folders() == ("bucket-0",)
        assert storage.folders("bucket-0") == ()
        local = storage.local_path("bucket-0/sst-1.sst")
        left = [file.path for file in storage.unfinished()]
        if local is None:
            assert left == []
            return
        assert local.samefile(first / "rows.sst")
        assert len(left) == 3
        for path in left:
            storage.delete(path)
        assert not first.exists()
        assert not second.exists()
        assert storage.get("bucket-0/sst-1.sst") == b"rows"
    finally:
        shutil.rmtree(first, ignore_errors=True)
        shutil.rmtree(second, ignore_errors=True)


def test_a_local_file_that_is_missing_is_named(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        storage.upload(tmp_path / "nowhere", "x")
