"""Goal: all storages keep the same promises, put-if-absent above all; nothing half-written is ever seen.

Method: one suite over every storage (object stores through obstore's MemoryStore and a small S3 behind HTTP); races
of threads and processes; a writer killed at each of its system calls; errors of the operating system planted where
they occur.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pytest

import stelae.storage.local_files
import stelae.storage.object_store
from stelae.errors import AlreadyExists, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.storage.base import Storage, StoredFile, exists
from stelae.storage.checksum import checksum
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.object_store import ObjectStorage
from stelae.storage.open import open_storage
from stelae.storage.view import StorageView
from tests.faults import FaultyStorage
from tests.s3 import Store, running

ODD_NAMES = ["dt=a%2Fb/x", "dt=%C3%A9/x", "dt=/x", "dt=./x", "a~b/.c/d e", "plain"]


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    with running() as store:
        yield store


@pytest.fixture(params=["local", "memory", "object", "s3", "view", "local view"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: dict[str, Callable[[], Storage]] = {
        "s3": lambda: s3_storage(request.getfixturevalue("s3")),
        "local": lambda: LocalStorage(tmp_path / "root"),
        "memory": MemoryStorage,
        "object": lambda: ObjectStorage("memory://", store=obstore.store.MemoryStore()),
        "view": lambda: StorageView(MemoryStorage(), "some/folder"),
        "local view": lambda: StorageView(LocalStorage(tmp_path / "root"), "shop.db/users"),
    }
    return made[str(request.param)]()


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


def s3_storage(store: Store) -> Storage:
    """An empty place in the S3 of these tests."""
    store.objects.clear()
    store.requests.clear()
    return open_storage("s3://bucket/some/prefix", **store.options)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# Promises of all storages


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


# Opening


def test_open_storage(tmp_path: Path) -> None:
    for spelling in (tmp_path / "a b", str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
        storage = open_storage(spelling)
        assert isinstance(storage, LocalStorage)
        assert storage.root == tmp_path / "a b"
    assert isinstance(open_storage("memory:"), MemoryStorage)
    assert open_storage("warehouse").url == (Path.cwd() / "warehouse").as_uri()
    assert open_storage("odd:name").url == (Path.cwd() / "odd:name").as_uri()
    assert isinstance(open_storage("s3://bucket/path/", region="eu-central-1"), ObjectStorage)


def test_opening_changes_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "root")
    assert list(storage.list()) == []
    assert storage.folders() == ()
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("url", "options"),
    [("", {}), ("foo://bucket", {}), ("warehouse", {"region": "x"}), ("s3://bucket", {"no_such_option": "x"})],
)
def test_open_storage_refuses(url: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        open_storage(url, **options)


def test_a_url_opens_the_same_place(local: LocalStorage) -> None:
    local.put_if_absent("a b/ü.json", b"x")
    assert open_storage(local.url).get("a b/ü.json") == b"x"
    view = StorageView(local, "a b")
    assert open_storage(view.url).get("ü.json") == b"x"


def test_pickle(local: LocalStorage) -> None:
    view = StorageView(local, "a")
    view.put_if_absent("b", b"x")
    copy: StorageView = pickle.loads(pickle.dumps(view))
    assert copy.get("b") == b"x"
    assert copy.url == view.url
    remote = open_storage("s3://bucket/path", region="eu-central-1", skip_signature=True)
    assert pickle.loads(pickle.dumps(remote)).url == "s3://bucket/path"
    for stays in (MemoryStorage(), ObjectStorage("memory:", store=obstore.store.MemoryStore())):
        with pytest.raises(InvalidRequest):
            pickle.dumps(stays)


# A local folder


def test_a_server_can_link_to_local_files(local: LocalStorage, tmp_path: Path) -> None:
    StorageView(local, "a").put_if_absent("b", b"x")
    path = StorageView(local, "a").local_path("b")
    assert path == local.root / "a/b"
    os.link(path, tmp_path / "mine")
    local.delete("a/b")
    assert (tmp_path / "mine").read_bytes() == b"x"


def test_the_age_of_a_file_counts_from_its_upload(local: LocalStorage, tmp_path: Path) -> None:
    source = write(tmp_path / "x", b"x")
    os.utime(source, (1, 1))
    local.upload(source, "x")
    assert abs(local.head("x").modified_ms - time.time() * 1000) < 60_000


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM])
def test_upload_from_another_file_system_copies(
    local: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    source = write(tmp_path / "x", b"content")
    real_link = os.link

    def link(a: Path, b: Path) -> None:
        if Path(a) == source:
            raise OSError(code, os.strerror(code))
        real_link(a, b)

    monkeypatch.setattr(os, "link", link)
    local.upload(source, "a/x")
    assert local.get("a/x") == b"content"
    assert not (local.root / "a/x").samefile(source)
    assert list(local.unfinished()) == []
    with pytest.raises(AlreadyExists):
        local.upload(source, "a/x")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "link", "open"])
def test_errors_of_the_system_are_unavailable_and_change_nothing(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    local.put_if_absent("a/before", b"x")
    if call == "open":
        monkeypatch.setattr(Path, "open", _raises(code))
    else:
        monkeypatch.setattr(os, call, _raises(code))
    with pytest.raises(Unavailable) as raised:
        local.put_if_absent("a/b", b"x")
    monkeypatch.undo()
    assert str(local.root / "a/b") in str(raised.value)
    assert [file.path for file in local.list()] == ["a/before"]
    assert list(local.unfinished()) == []


def test_a_full_disk_while_downloading_leaves_no_file(
    local: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put_if_absent("a", b"x" * 100)
    monkeypatch.setattr(stelae.storage.local_files._Sink, "__call__", _raises(errno.ENOSPC))
    with pytest.raises(Unavailable, match="no space left"):
        local.download("a", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_name_that_is_too_long(local: LocalStorage) -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        local.put_if_absent("x" * 300, b"")


def test_a_file_where_a_folder_should_be(local: LocalStorage) -> None:
    local.put_if_absent("a", b"")
    with pytest.raises(StelaeError) as raised:
        local.put_if_absent("a/b", b"")
    assert not isinstance(raised.value, AlreadyExists)


def test_a_repeated_link_of_a_network_file_system_is_no_conflict(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link = os.link

    def link(a: Path, b: Path) -> None:
        real_link(a, b)
        raise FileExistsError(errno.EEXIST, "exists", str(a), None, str(b))

    monkeypatch.setattr(os, "link", link)
    local.put_if_absent("a", b"x")
    assert local.get("a") == b"x"


def test_every_new_name_is_synced_before_the_put_returns(local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real_fsync(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", fsync)
    local.put_if_absent("a/b/c", b"x")
    assert synced[:4] == ["a", "root", local.root.parent.name, synced[3]]
    assert synced[3].endswith(".tmp")
    assert synced[4:] == ["b"]
    synced.clear()
    with pytest.raises(AlreadyExists):
        local.put_if_absent("a/b/c", b"y")
    assert synced[1:] == ["b"]  # the winner may have died before its own sync


CRASH = """
import os, sys
from pathlib import Path
from stelae.storage.local import LocalStorage

root, action, crash_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def crashing(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == crash_at:
            os._exit(9)
        return function(*args, **kwargs)
    return call

for module, names in ((os, ("fsync", "link", "unlink", "utime", "mkdir")), (Path, ("unlink", "mkdir"))):
    for name in names:
        setattr(module, name, crashing(getattr(module, name)))
storage = LocalStorage(root / "root")
if action == "put":
    storage.put_if_absent("a/file", b"content")
else:
    storage.upload(root / "source", "a/file")
"""


@pytest.mark.parametrize("action", ["put", "upload"])
def test_a_writer_killed_at_any_system_call(tmp_path: Path, action: str) -> None:
    appeared = []
    for crash_at in range(1, 30):
        folder = tmp_path / str(crash_at)
        folder.mkdir()
        write(folder / "source", b"content")
        command = [sys.executable, "-c", CRASH, str(folder), action, str(crash_at)]
        code = subprocess.run(command, check=False, timeout=60).returncode
        storage = LocalStorage(folder / "root")
        appeared.append(exists(storage, "a/file"))
        if appeared[-1]:
            assert storage.get("a/file") == b"content"
        else:
            storage.put_if_absent("a/file", b"other")  # whatever was left, the name is free
        assert [file.path for file in storage.list()] == ["a/file"]
        if code == 0:
            break
        assert code == 9
    assert code == 0
    assert appeared == sorted(appeared)
    assert not appeared[0]


RACE = """
import sys, time
from stelae.errors import AlreadyExists
from stelae.storage.open import open_storage

storage, me = open_storage(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
won = []
for number in range(200):
    try:
        storage.put_if_absent(f"snapshot/snapshot-{number}.json", me.encode() * 1000)
        won.append(number)
    except AlreadyExists:
        assert len(storage.get(f"snapshot/snapshot-{number}.json")) == 1000
print(*won)
"""


def test_one_of_several_processes_wins_each_name(local: LocalStorage) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, local.url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    winners: dict[int, str] = {}
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process, name in zip(processes, "abc", strict=True):
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        for number in map(int, out.split()):
            assert winners.setdefault(number, name) == name
    assert sorted(winners) == list(range(200))
    for number, name in winners.items():
        assert local.get(f"snapshot/snapshot-{number}.json") == name.encode() * 1000
    assert list(local.unfinished()) == []


# An object store


def test_keys_on_s3(s3: Store) -> None:
    s3_storage(s3).put_if_absent("dt=a%2Fb/x y", b"")
    assert list(s3.objects) == ["some/prefix/dt=a%2Fb/x y"]


def test_a_poll_on_s3_is_one_request(s3: Store) -> None:
    storage = s3_storage(s3)
    assert not exists(storage, "snapshot/snapshot-1.json")
    assert s3.requests == ["HEAD /bucket/some/prefix/snapshot/snapshot-1.json"]


def test_lost_answers_on_s3(s3: Store, tmp_path: Path) -> None:
    """obstore sends a put again when its answer got lost, and is told that the name is taken."""
    storage = s3_storage(s3)
    s3.lost_answers = 1
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("snapshot/snapshot-1.json", b"x")  # snapshots.py reads it again and finds its own build
    s3.lost_answers = 1
    storage.upload(write(tmp_path / "x", b"x"), "bucket-0/sst-1.sst")
    assert storage.get("bucket-0/sst-1.sst") == b"x"


def test_an_s3_storage_works_in_another_process(s3: Store) -> None:
    storage = s3_storage(s3)
    storage.put_if_absent("a", b"x")
    assert pickle.loads(pickle.dumps(StorageView(storage, "b").storage)).get("a") == b"x"


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_large_files_go_up_in_parts(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(stelae.storage.object_store, "SINGLE_PUT_BYTES", 1000)
    storage = s3_storage(s3) if kind == "s3" else ObjectStorage("memory:", store=obstore.store.MemoryStore())
    data = os.urandom(12 << 20)
    source = write(tmp_path / "x", data)
    storage.upload(source, "x")
    assert storage.download("x", tmp_path / "y") == checksum(data)
    with pytest.raises(AlreadyExists):
        storage.upload(source, "x")


def test_a_local_file_that_is_missing_is_named(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        storage.upload(tmp_path / "nowhere", "x")


def test_an_object_store_out_of_reach_is_unavailable() -> None:
    storage = open_storage(
        "s3://bucket/path",
        endpoint="http://127.0.0.1:9",
        skip_signature=True,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    for call in (storage.get, storage.head, storage.delete, lambda path: storage.put_if_absent(path, b"")):
        with pytest.raises(Unavailable) as raised:
            call("a")
        assert "Debug source" not in str(raised.value)
    with pytest.raises(Unavailable):
        list(storage.list())


def _raises(code: int) -> Callable[..., Iterator[StoredFile]]:
    def call(*args: object, **kwargs: object) -> Iterator[StoredFile]:
        raise OSError(code, os.strerror(code))

    return call
