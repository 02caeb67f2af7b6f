"""Goal: a server's tablets have a folder of their own that is gone when the server is, also after a crash.

Method: folders made and closed here, and left behind by a process that is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.errors import Unavailable
from stelae.service.tables.data_folder import SERVING_FOLDER, DataFolder
from stelae.snapshot.warehouse import Warehouse
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage

HOLD = """
import sys, time
from pathlib import Path
from stelae.service.tables.data_folder import DataFolder
folder = DataFolder(Path(sys.argv[1]))
(folder.path / "tablet").mkdir()
print(folder.path, flush=True)
time.sleep(60)
"""


def test_inside_a_local_warehouse(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    folder = DataFolder.for_storage(storage)
    assert folder.path.parent == tmp_path / SERVING_FOLDER
    assert Warehouse(tmp_path).tables() == []
    other = DataFolder.for_storage(storage)
    assert other.path != folder.path
    folder.close()
    assert other.path.is_dir()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = DataFolder.for_storage(LocalStorage(tmp_path / "w"), tmp_path / "chosen")
    assert chosen.path.parent == tmp_path / "chosen"
    chosen.close()
    assert (tmp_path / "chosen").is_dir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    remote = DataFolder.for_storage(MemoryStorage())
    assert remote.path.is_relative_to(tmp_path)
    remote.close()


def test_a_warehouse_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that is mounted read-only: files are copied then."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / SERVING_FOLDER).write_text("in the way")  # root may write anywhere, so permissions won't do
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    folder = DataFolder.for_storage(LocalStorage(tmp_path / "w"))
    assert folder.path.is_relative_to(tmp_path / "tmp")
    folder.close()
    with pytest.raises(Unavailable, match="--data-folder"):
        DataFolder.for_storage(LocalStorage(tmp_path / "w"), tmp_path / "w" / SERVING_FOLDER)


def test_left_overs_of_a_killed_server(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    left = Path(holder.stdout.readline().strip())
    while_it_lives = DataFolder(tmp_path)
    assert (left / "tablet").is_dir()
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)
    holder.stdout.close()
    late, other = left.with_name("0123456789ab"), left.with_name("somebody else's")
    late.mkdir()  # by what the killed one had started
    other.mkdir()
    afterwards = DataFolder(tmp_path)
    assert not late.exists()
    assert not left.exists()
    assert while_it_lives.path.is_dir()
    while_it_lives.close()
    afterwards.close()
    assert list(tmp_path.iterdir()) == [other]


def test_empty_folders_are_swept(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (folder.path / "snapshot-1").mkdir()
    (folder.path / "snapshot-2" / "bucket-0").mkdir(parents=True)
    folder.sweep()
    assert [path.name for path in folder.path.iterdir()] == ["snapshot-2"]
    folder.close()
