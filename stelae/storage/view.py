"""One folder of a storage, as a storage: a table's part of a warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from stelae.storage.storage import Storage, StoredFile, checked_path


@dataclass(frozen=True)
class StorageView:
    """One folder of a storage, as a storage."""

    storage: Storage
    folder: str

    @property
    def url(self) -> str:
        return f"{self.storage.url}/{quote(self.folder)}"

    def get(self, path: str) -> bytes:
        return self.storage.get(self._path(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.storage.put_if_absent(self._path(path), data)

    def upload(self, local: Path, path: str) -> None:
        self.storage.upload(local, self._path(path))

    def download(self, path: str, local: Path) -> str:
        return self.storage.download(self._path(path), local)

    def local_path(self, path: str) -> Path | None:
        return self.storage.local_path(self._path(path))

    def head(self, path: str) -> StoredFile:
        return self._seen(self.storage.head(self._path(path)))

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        return map(self._seen, self.storage.list(self._folder(folder)))

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:
        return map(self._seen, self.storage.unfinished(self._folder(folder)))

    def folders(self, folder: str = "") -> tuple[str, ...]:
        return self.storage.folders(self._folder(folder))

    def delete(self, path: str) -> None:
        self.storage.delete(self._path(path))

    def scratch_folder(self, folder: str = "") -> Path:
        return self.storage.scratch_folder(self._folder(folder))

    def _path(self, path: str) -> str:
        return f"{self.folder}/{checked_path(path)}"

    def _folder(self, folder: str) -> str:
        return self._path(folder) if folder else self.folder

    def _seen(self, file: StoredFile) -> StoredFile:
        return replace(file, path=file.path.removeprefix(self.folder + "/"))
