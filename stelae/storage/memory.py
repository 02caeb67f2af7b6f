"""Storage in a dict, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from stelae.errors import AlreadyExists, InvalidRequest, NotFound
from stelae.storage.local_files import downloading, os_errors, temporary_folder
from stelae.storage.storage import StoredFile, checked_path


class MemoryStorage:
    """Files in a dict. Lives in one process: it refuses to be pickled."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._files: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory:"

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidRequest("a warehouse in memory lives in one process", hint="use a folder or an object store")

    def get(self, path: str) -> bytes:
        return self._file(path)[0]

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._lock:
            if checked_path(path) in self._files:
                raise AlreadyExists("the name is taken", place=f"memory:/{path}")
            self._files[path] = (bytes(data), int(self._clock() * 1000))

    def upload(self, local: Path, path: str) -> None:
        with os_errors("read", str(local)):
            data = local.read_bytes()
        self.put_if_absent(path, data)

    def download(self, path: str, local: Path) -> str:
        data = self.get(path)
        with os_errors("write", str(local)), downloading(local) as add:
            add(data)
        return add.total.text()

    def local_path(self, path: str) -> Path | None:
        checked_path(path)
        return None

    def head(self, path: str) -> StoredFile:
        data, modified_ms = self._file(path)
        return StoredFile(path, len(data), modified_ms)

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        below = f"{checked_path(folder)}/" if folder else ""
        with self._lock:
            found = sorted((path, *file) for path, file in self._files.items() if path.startswith(below))
        return (StoredFile(path, len(data), modified_ms) for path, data, modified_ms in found)

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:  # noqa: ARG002
        return iter(())

    def folders(self, folder: str = "") -> tuple[str, ...]:
        depth = len(folder.split("/")) if folder else 0
        parts = (file.path.split("/") for file in self.list(folder))
        return tuple(sorted({part[depth] for part in parts if len(part) > depth + 1}))

    def delete(self, path: str) -> None:
        with self._lock:
            self._files.pop(checked_path(path), None)

    def scratch_folder(self, folder: str = "") -> Path:  # noqa: ARG002
        return temporary_folder()

    def _file(self, path: str) -> tuple[bytes, int]:
        with self._lock:
            file = self._files.get(checked_path(path))
        if file is None:
            raise NotFound("no such file", place=f"memory:/{path}")
        return file
