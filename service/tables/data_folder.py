"""The folder in which a server opens its tablets.

    <warehouse>/.serving/<id>/           this server's tablets, hard links to the files of the warehouse
    <warehouse>/.serving/<id>.lock       locked as long as the server lives

Inside a local warehouse, so that hard links work: loading a snapshot copies no bytes, and a tablet keeps its files
when the warehouse cleans them away. The name starts with a dot and does not end in `.db`: no listing takes it for a
database.

Several servers may share a warehouse, and any of them may be killed. So each folder has a lock file, which the kernel
releases with the process: at the start a server removes the folders of those that are gone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from stelae.errors import Unavailable
from stelae.storage.file_lock import abandoned_locks, try_lock, unlock
from stelae.storage.storage import Storage

SERVING_FOLDER = ".serving"
ATTEMPTS = 5

_ID = re.compile(r"[0-9a-f]{12}")


class DataFolder:
    """A folder of this server alone. `close` removes it."""

    def __init__(self, parent: Path, *, keep_parent: bool = True) -> None:
        """`keep_parent`: leave `parent` in place when the last server ends."""
        self._keep_parent = keep_parent
        try:
            _remove_abandoned(parent)
            self.path, self._lock = _new_folder(parent)
        except OSError as exc:
            raise Unavailable(
                f"the server can't open its tablets there: {exc}",
                place=str(parent),
                hint="choose another --data-folder",
            ) from exc

    @classmethod
    def for_storage(cls, storage: Storage, chosen: Path | None = None) -> DataFolder:
        """In the `chosen` folder; by default inside a local warehouse, or else in the system's temporary folder."""
        if chosen is not None:
            return cls(chosen)
        inside = storage.local_path(SERVING_FOLDER)
        if inside is not None:
            with suppress(Unavailable):  # a warehouse that is mounted read-only: then files are copied
                return cls(inside, keep_parent=False)
        return cls(Path(tempfile.gettempdir()) / f"stelae-serving-{os.getuid()}", keep_parent=False)

    def sweep(self) -> None:
        """Remove the empty folders of snapshots that were closed."""
        for folder in self.path.iterdir():
            with suppress(OSError):
                folder.rmdir()  # refuses one that is not empty

    def close(self) -> None:
        """Remove everything. Tablets that are still open keep reading: their files live on until they are closed."""
        shutil.rmtree(self.path, ignore_errors=True)
        unlock(self._lock, _lock_file(self.path))
        if not self._keep_parent:
            with suppress(OSError):
                self.path.parent.rmdir()  # refuses while other servers are there


def _new_folder(parent: Path) -> tuple[Path, int]:
    for _ in range(ATTEMPTS):
        parent.mkdir(parents=True, exist_ok=True)  # another server that ends may have removed it
        path = parent / uuid.uuid4().hex[:12]
        with suppress(FileNotFoundError):
            lock = try_lock(_lock_file(path))
            if lock is not None:
                path.mkdir()
                return path, lock
    raise OSError("its file system has no locks")


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of servers that are gone."""
    for file in abandoned_locks(parent):
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
    # What a process that prepared tablets for a killed server made after its folder was removed. A folder of a server
    # that lives has a lock from the beginning.
    for folder in parent.glob("*"):
        if _ID.fullmatch(folder.name) and not _lock_file(folder).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _lock_file(path: Path) -> Path:
    return path.with_suffix(".lock")
