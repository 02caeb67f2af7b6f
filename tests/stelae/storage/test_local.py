"""Goal: a name in a local folder appears with its whole content or not at all, and outlasts a power cut.

Method: races of processes; a writer killed at each of its system calls; errors of the operating system planted where
they occur.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stelae.storage.local_files
from stelae.errors import AlreadyExists, InvalidRequest, StelaeError, Unavailable
from stelae.storage.local import LocalStorage
from stelae.storage.storage import StoredFile, exists
from stelae.storage.view import StorageView
from tests.stelae.storage.conftest import write
from tests.waiting import WAIT_S


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
        code = subprocess.run(command, check=False, timeout=WAIT_S).returncode
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
        out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        for number in map(int, out.split()):
            assert winners.setdefault(number, name) == name
    assert sorted(winners) == list(range(200))
    for number, name in winners.items():
        assert local.get(f"snapshot/snapshot-{number}.json") == name.encode() * 1000
    assert list(local.unfinished()) == []


def _raises(code: int) -> Callable[..., Iterator[StoredFile]]:
    def call(*args: object, **kwargs: object) -> Iterator[StoredFile]:
        raise OSError(code, os.strerror(code))

    return call
