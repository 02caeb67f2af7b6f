"""Storage in a folder: of this machine, or of a network file system."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from stelae.errors import AlreadyExists, NotFound
from stelae.storage.checksum import CHUNK_BYTES
from stelae.storage.local_files import downloading, fsync_folder, os_errors
from stelae.storage.storage import StoredFile, checked_path, path_of

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")


class LocalStorage:
    """A folder on this machine, or on a network file system with hard links and fsync.

    A write goes to a temporary file in the target's folder, then fsync, then a hard link to the final name, which the
    kernel refuses when the name is taken, then fsync of the folder. So a name appears with its whole content or not
    at all, also when the machine loses power (as far as its drives honour fsync; macOS asks them less strictly than
    Linux). Temporary files (`.<32 hex digits>.tmp`), and all files in folders of such a name, show up in `unfinished`
    only.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))  # noqa: PTH100  (resolve() would follow symbolic links)
        self._durable: set[Path] = set()

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def get(self, path: str) -> bytes:
        with os_errors("read", self._place(path)):
            return self._target(path).read_bytes()

    def put_if_absent(self, path: str, data: bytes) -> None:
        with os_errors("write", self._place(path)):
            target = self._target(path)
            self._make_folder(target.parent)
            temporary = _temporary_for(target)
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self._publish(temporary, target)
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def upload(self, local: Path, path: str) -> None:
        with os_errors("upload to", self._place(path)):
            target = self._target(path)
            self._make_folder(target.parent)
            with local.open("rb") as file:
                os.utime(file.fileno())  # `clean` counts the age of a file from its upload, not from its first byte
                os.fsync(file.fileno())
            try:
                self._publish(local, target)
            except OSError as exc:
                if exc.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                    raise
                self._copy_in(local, target)

    def download(self, path: str, local: Path) -> str:
        with os_errors("download", self._place(path)), self._target(path).open("rb", buffering=0) as source:
            with downloading(local) as add:
                while chunk := source.read(CHUNK_BYTES):
                    add(chunk)
            return add.total.text()

    def local_path(self, path: str) -> Path | None:
        return self._target(path)

    def head(self, path: str) -> StoredFile:
        with os_errors("read", self._place(path)):
            status = self._target(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise NotFound("not a file", place=self._place(path))
            return _stored_file(path, status)

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        return iter(sorted(self._walk(folder, temporary=False), key=path_of))

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:
        return iter(sorted(self._walk(folder, temporary=True), key=path_of))

    def folders(self, folder: str = "") -> tuple[str, ...]:
        with os_errors("list", self._place(folder)):
            try:
                with os.scandir(self._folder(folder)) as entries:
                    return tuple(
                        sorted(entry.name for entry in entries if entry.is_dir() and not _is_temporary(entry.name))
                    )
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def delete(self, path: str) -> None:
        with os_errors("delete", self._place(path)):
            target = self._target(path)
            target.unlink(missing_ok=True)
            _remove_empty_scratch(target.parent)

    def scratch_folder(self, folder: str = "") -> Path:
        with os_errors("write", self._place(folder)):
            scratch = _temporary_for(self._folder(folder) / "scratch")
            scratch.mkdir(parents=True)
            return scratch

    def _target(self, path: str) -> Path:
        return self.root / checked_path(path)

    def _folder(self, folder: str) -> Path:
        return self.root / checked_path(folder) if folder else self.root

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _publish(self, source: Path, target: Path) -> None:
        """Give a finished file its name, if nobody has it."""
        try:
            os.link(source, target)
        except FileExistsError as exc:
            # A network file system may link, lose the answer and be asked once more: then both names are one file.
            ours = source.samefile(target)
            # Who put it may not have come so far: what a caller learns of here must outlast a power cut, too.
            fsync_folder(target.parent)
            if not ours:
                raise AlreadyExists("the name is taken", place=str(target)) from exc
        fsync_folder(target.parent)

    def _copy_in(self, local: Path, target: Path) -> None:
        temporary = _temporary_for(target)
        try:
            shutil.copyfile(local, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            self._publish(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder whose name outlasts a power cut: the folders above it, up to the root, are synced once."""
        if folder in self._durable and folder.is_dir():
            return
        new_root = not self.root.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        above = folder
        while above != self.root:
            above = above.parent
            fsync_folder(above)
        if new_root:
            fsync_folder(self.root.parent)
        self._durable.add(folder)

    def _walk(self, folder: str, *, temporary: bool, scratch: bool = False) -> Iterator[StoredFile]:
        with os_errors("list", self._place(folder)):
            try:
                entries = os.scandir(self._folder(folder))
            except (FileNotFoundError, NotADirectoryError):
                return
            with entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    is_temporary = scratch or _is_temporary(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if temporary or not is_temporary:
                            yield from self._walk(path, temporary=temporary, scratch=is_temporary)
                    elif temporary == is_temporary and entry.is_file():
                        with suppress(FileNotFoundError):  # deleted while we list
                            yield _stored_file(path, entry.stat())


def _stored_file(path: str, status: os.stat_result) -> StoredFile:
    return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def _temporary_for(target: Path) -> Path:
    return target.with_name(f".{uuid4().hex}.tmp")


def _remove_empty_scratch(folder: Path) -> None:
    """Remove a scratch folder, up to its own name, as far as nothing is left in it."""
    inside = [part for part in (folder, *folder.parents) if _is_temporary(part.name)]
    if inside:
        with suppress(OSError):
            while folder != inside[-1].parent:
                folder.rmdir()
                folder = folder.parent
