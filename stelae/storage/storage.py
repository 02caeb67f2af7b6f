"""What every storage promises, and the files that it tells of.

    Storage              the promise (below)
    ├── LocalStorage     local.py: a folder; durable by fsync, put-if-absent by hard link
    ├── ObjectStorage    object_store.py: s3://, gs://, az://, ... through obstore; put-if-absent by conditional put
    ├── MemoryStorage    memory.py: a dict, for tests
    └── StorageView      view.py: one folder of another storage

`open_storage(url_or_path)` of open.py picks one. Everything that Stelae stores is written once under a new name and
never changed, so there is no overwrite, no append and no rename. The one primitive that all else rests on is
`put_if_absent`: of any number of callers with one name, in any number of processes, exactly one returns and all
others get AlreadyExists.

A call that raises Unavailable may have happened or not (its answer can get lost). A caller that must know reads the
name again and compares the content: `put_or_settle`.

Errors of the operating system and of obstore become ours in the storages: NotFound, AlreadyExists, and Unavailable for
all else, a full disk and missing permissions included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from stelae.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on storage."""

    path: str
    """Relative to the storage, with `/`."""
    bytes: int
    modified_ms: int
    """When it was written, by the clock of the storage: milliseconds since 1970-01-01 UTC."""


class Storage(Protocol):
    """A tree of files that are written once. Paths are relative, with `/`. Safe to use from several threads."""

    @property
    def url(self) -> str:
        """Names the place; `open_storage(url)` opens it again, in another process too (memory excepted)."""

    def get(self, path: str) -> bytes:
        """The content of a small file. NotFound when it is absent."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a small file, whole and durable, or raise AlreadyExists and change nothing: the fence of a commit."""

    def upload(self, local: Path, path: str) -> None:
        """Store a finished local file under a name that is new (it holds a uuid): whole and durable, or not at all.

        AlreadyExists when the name is taken, though only `put_if_absent` is sure of it when two callers race (an
        object store takes a large file in parts, unconditionally). The local file may share its bytes with the stored
        one from now on: delete it, never write to it.
        """

    def download(self, path: str, local: Path) -> str:
        """Copy a file to `local` and return the checksum of what arrived. A failed copy leaves no file."""

    def local_path(self, path: str) -> Path | None:
        """Where the file lies on this machine, so that it can be hard-linked; None when it has to be downloaded."""

    def head(self, path: str) -> StoredFile:
        """Size and time of one file. NotFound when it is absent."""

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        """All finished files below a folder, at any depth, sorted by path. A folder that is absent holds none."""

    def folders(self, folder: str = "") -> tuple[str, ...]:
        """Names of the folders directly in a folder, sorted."""

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:
        """Left-overs of writers that were killed, sorted by path; also files that are being written now."""

    def delete(self, path: str) -> None:
        """Remove a file; one that is absent is fine."""

    def scratch_folder(self, folder: str = "") -> Path:
        """A new, empty folder on this machine for a file that will be uploaded below `folder`; the caller removes it.

        A local storage has it in there, so that an upload moves no bytes; what a killed writer leaves in it is
        `unfinished`.
        """


def exists(storage: Storage, path: str) -> bool:
    """Whether the file is there: one small request."""
    try:
        storage.head(path)
    except NotFound:
        return False
    return True


def put_or_settle(
    storage: Storage, path: str, data: bytes, value: T, read: Callable[[], T], *, doubt: str, hint: str
) -> T:
    """Put a small file, whatever its answer says, and return what is stored under the name from now on.

    That is `value`, which `data` encodes, or what `read` finds there: somebody else's, or this very value if an earlier
    answer got lost. The caller compares; so a value names the attempt that wrote it. Unavailable where that stays
    unknown: the storage did not say, and does not (yet) have the file. `doubt` says what may have happened ("epoch 3
    was taken"), `hint` what to do.
    """
    try:
        storage.put_if_absent(path, data)
    except AlreadyExists:
        return read()
    except Unavailable as exc:
        try:
            return read()
        except (NotFound, Unavailable):
            raise Unavailable(
                f"it is not known whether {doubt}: {exc.message}", place=f"{storage.url}/{path}", hint=hint
            ) from exc
    return value


def checked_path(path: str) -> str:
    """The path itself; one that leaves the storage or has two spellings is refused."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path:
        raise InvalidRequest(
            f"not a path inside the storage: {path!r}", hint="paths are relative, with / and without . or .."
        )
    return path


def path_of(file: StoredFile) -> str:
    """What listings are sorted by."""
    return file.path
