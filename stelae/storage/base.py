"""Where files live: a local folder, an object store, or memory. The only module that imports obstore.

    Storage              what all of them promise (below)
    ├── LocalStorage     a folder; durable by fsync, put-if-absent by hard link
    ├── ObjectStorage    s3://, gs://, az://, ... through obstore; put-if-absent by conditional put
    ├── MemoryStorage    a dict, for tests
    └── StorageView      one folder of another storage

`open_storage(url_or_path)` picks one. Everything that Stelae stores is written once under a new name and never
changed, so there is no overwrite, no append and no rename. The one primitive that all else rests on is
`put_if_absent`: of any number of callers with one name, in any number of processes, exactly one returns and all
others get AlreadyExists.

A call that raises Unavailable may have happened or not (its answer can get lost). A caller that must know reads the
name again and compares the content; `stelae/snapshot/snapshots.py` does.

Errors of the operating system and of obstore become ours at this edge: NotFound, AlreadyExists, and Unavailable for all
else, a full disk and missing permissions included.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

from stelae.errors import AlreadyExists, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.storage.checksum import CHUNK_BYTES, Checksum

SINGLE_PUT_BYTES = 64 << 20
"""Object stores: files up to this size go up in one conditional put, held in memory; larger ones in parts."""

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(memory):")


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


def open_storage(url_or_path: str | Path, **options: Any) -> Storage:
    """The storage at a local path or a URL.

    `warehouse`, `/data/warehouse` and `file:///data/warehouse` are local folders (made by the first write). `memory:`
    is a fresh, empty memory. All else (`s3://bucket/path`, `gs://`, `az://`, ...) is an object store: credentials and
    region come from the environment, as obstore reads them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, ...), and `options`
    go to `obstore.store.from_url`.
    """
    match = None if isinstance(url_or_path, Path) else _SCHEME.match(url_or_path)
    scheme = (match[1] or match[2]).lower() if match else "path"
    if scheme not in ("path", "file", "memory"):
        return ObjectStorage(str(url_or_path), **options)
    if options:
        raise InvalidRequest(
            f"a local folder takes no options: {', '.join(sorted(options))}",
            place=str(url_or_path),
            hint="options are for object stores, such as s3://bucket/path",
        )
    if scheme == "memory":
        return MemoryStorage()
    if scheme == "file":
        return LocalStorage(Path(unquote(urlsplit(str(url_or_path)).path)))
    if not str(url_or_path):
        raise InvalidRequest(
            "the path of the warehouse is empty", hint="give a folder, or a URL such as s3://bucket/path"
        )
    return LocalStorage(Path(url_or_path))


def exists(storage: Storage, path: str) -> bool:
    """Whether the file is there: one small request."""
    try:
        storage.head(path)
    except NotFound:
        return False
    return True


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
        with _local_errors("read", self._place(path)):
            return self._target(path).read_bytes()

    def put_if_absent(self, path: str, data: bytes) -> None:
        with _local_errors("write", self._place(path)):
            target = self._target(path)
            self._make_folder(target.parent)
            temporary = _temporary_beside(target)
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
        with _local_errors("upload to", self._place(path)):
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
        with _local_errors("download", self._place(path)), self._target(path).open("rb", buffering=0) as source:
            with _downloading(local) as add:
                while chunk := source.read(CHUNK_BYTES):
                    add(chunk)
            return add.total.text()

    def local_path(self, path: str) -> Path | None:
        return self._target(path)

    def head(self, path: str) -> StoredFile:
        with _local_errors("read", self._place(path)):
            status = self._target(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise NotFound("not a file", place=self._place(path))
            return _stored_file(path, status)

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        return iter(sorted(self._walk(folder, temporary=False), key=_path_of))

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:
        return iter(sorted(self._walk(folder, temporary=True), key=_path_of))

    def folders(self, folder: str = "") -> tuple[str, ...]:
        with _local_errors("list", self._place(folder)):
            try:
                with os.scandir(self._folder(folder)) as entries:
                    return tuple(
                        sorted(entry.name for entry in entries if entry.is_dir() and not _is_temporary(entry.name))
                    )
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def delete(self, path: str) -> None:
        with _local_errors("delete", self._place(path)):
            target = self._target(path)
            target.unlink(missing_ok=True)
            _remove_empty_scratch(target.parent)

    def scratch_folder(self, folder: str = "") -> Path:
        with _local_errors("write", self._place(folder)):
            scratch = _temporary_beside(self._folder(folder) / "scratch")
            scratch.mkdir(parents=True)
            return scratch

    def _target(self, path: str) -> Path:
        return self.root / _checked_path(path)

    def _folder(self, folder: str) -> Path:
        return self.root / _checked_path(folder) if folder else self.root

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _publish(self, source: Path, target: Path) -> None:
        """Give a finished file its name, if nobody has it."""
        try:
            os.link(source, target)
        except FileExistsError as exc:
            # A network file system may link, lose the answer and be asked once more: then both names are one file.
            ours = source.samefile(target)
            # The winner may not have come so far: what a caller learns of here must outlast a power cut, too.
            _fsync_folder(target.parent)
            if not ours:
                raise AlreadyExists("the name is taken", place=str(target)) from exc
        _fsync_folder(target.parent)

    def _copy_in(self, local: Path, target: Path) -> None:
        temporary = _temporary_beside(target)
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
            _fsync_folder(above)
        if new_root:
            _fsync_folder(self.root.parent)
        self._durable.add(folder)

    def _walk(self, folder: str, *, temporary: bool, scratch: bool = False) -> Iterator[StoredFile]:
        with _local_errors("list", self._place(folder)):
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


class ObjectStorage:
    """An object store, through obstore. Objects appear whole; put-if-absent is the store's conditional put.

    Parts of uploads that were cut off are invisible and `unfinished` cannot name them: give the bucket a lifecycle
    rule that aborts incomplete multipart uploads. The time of an object may be the one at which its upload began.
    """

    def __init__(self, url: str, *, store: Any = None, **options: Any) -> None:
        """`store` is an open obstore store to use instead of opening `url` (then this object does not pickle)."""
        import obstore.store  # here, so that a local warehouse does without it

        self._url = url.rstrip("/")
        self._options = options
        self._store = store
        self._given = store is not None
        if not self._given:
            with _object_errors("open", url):
                self._store = obstore.store.from_url(self._url, **options)
        self._obs = obstore

    @property
    def url(self) -> str:
        return self._url

    def __reduce__(self) -> tuple[object, ...]:
        if self._given:
            raise InvalidRequest("a storage around an open store stays in its process", place=self._url)
        return _open_object_storage, (self._url, self._options)

    def get(self, path: str) -> bytes:
        with _object_errors("read", self._place(path)):
            return bytes(self._obs.get(self._store, _checked_path(path)).bytes())

    def put_if_absent(self, path: str, data: bytes) -> None:
        with _object_errors("write", self._place(path)):
            self._obs.put(self._store, _checked_path(path), data, mode="create")

    def upload(self, local: Path, path: str) -> None:
        with _local_errors("read", str(local)):
            size = local.stat().st_size
            data = local.read_bytes() if size <= SINGLE_PUT_BYTES else None
        if data is not None:
            try:
                self.put_if_absent(path, data)
            except AlreadyExists:
                # obstore repeats a put whose answer got lost, and then finds the name taken: by the same bytes.
                if self.get(path) != data:
                    raise
            return
        if exists(self, path):
            raise AlreadyExists("the name is taken", place=self._place(path))
        with _object_errors("upload to", self._place(path)):
            self._obs.put(self._store, _checked_path(path), local)

    def download(self, path: str, local: Path) -> str:
        with _object_errors("download", self._place(path)):
            chunks = self._obs.get(self._store, _checked_path(path)).stream(min_chunk_size=CHUNK_BYTES)
            with _local_errors("write", str(local)), _downloading(local) as add:
                for chunk in chunks:
                    add(memoryview(chunk))
            return add.total.text()

    def local_path(self, path: str) -> Path | None:
        _checked_path(path)
        return None

    def head(self, path: str) -> StoredFile:
        with _object_errors("read", self._place(path)):
            return _from_meta(self._obs.head(self._store, _checked_path(path)))

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        with _object_errors("list", self._place(folder)):
            prefix = _checked_path(folder) if folder else None
            return iter(
                sorted(
                    (_from_meta(meta) for page in self._obs.list(self._store, prefix) for meta in page), key=_path_of
                )
            )

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:  # noqa: ARG002
        return iter(())

    def folders(self, folder: str = "") -> tuple[str, ...]:
        with _object_errors("list", self._place(folder)):
            prefix = _checked_path(folder) if folder else None
            found = self._obs.list_with_delimiter(self._store, prefix)["common_prefixes"]
            return tuple(sorted(path.rsplit("/", 1)[-1] for path in found))

    def delete(self, path: str) -> None:
        with suppress(NotFound), _object_errors("delete", self._place(path)):
            self._obs.delete(self._store, _checked_path(path))

    def scratch_folder(self, folder: str = "") -> Path:  # noqa: ARG002
        return _scratch_elsewhere()

    def _place(self, path: str) -> str:
        return f"{self._url}/{path}"


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
            if _checked_path(path) in self._files:
                raise AlreadyExists("the name is taken", place=f"memory:/{path}")
            self._files[path] = (bytes(data), int(self._clock() * 1000))

    def upload(self, local: Path, path: str) -> None:
        with _local_errors("read", str(local)):
            data = local.read_bytes()
        self.put_if_absent(path, data)

    def download(self, path: str, local: Path) -> str:
        data = self.get(path)
        with _local_errors("write", str(local)), _downloading(local) as add:
            add(data)
        return add.total.text()

    def local_path(self, path: str) -> Path | None:
        _checked_path(path)
        return None

    def head(self, path: str) -> StoredFile:
        data, modified_ms = self._file(path)
        return StoredFile(path, len(data), modified_ms)

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        below = f"{_checked_path(folder)}/" if folder else ""
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
            self._files.pop(_checked_path(path), None)

    def scratch_folder(self, folder: str = "") -> Path:  # noqa: ARG002
        return _scratch_elsewhere()

    def _file(self, path: str) -> tuple[bytes, int]:
        with self._lock:
            file = self._files.get(_checked_path(path))
        if file is None:
            raise NotFound("no such file", place=f"memory:/{path}")
        return file


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
        return f"{self.folder}/{_checked_path(path)}"

    def _folder(self, folder: str) -> str:
        return self._path(folder) if folder else self.folder

    def _seen(self, file: StoredFile) -> StoredFile:
        return replace(file, path=file.path.removeprefix(self.folder + "/"))


def _open_object_storage(url: str, options: dict[str, Any]) -> ObjectStorage:
    return ObjectStorage(url, **options)


def _checked_path(path: str) -> str:
    """The path itself; one that leaves the storage or has two spellings is refused."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path:
        raise InvalidRequest(
            f"not a path inside the storage: {path!r}", hint="paths are relative, with / and without . or .."
        )
    return path


def _path_of(file: StoredFile) -> str:
    return file.path


def _stored_file(path: str, status: os.stat_result) -> StoredFile:
    return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _from_meta(meta: Any) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def _temporary_beside(target: Path) -> Path:
    return target.with_name(f".{uuid4().hex}.tmp")


def _remove_empty_scratch(folder: Path) -> None:
    """Remove a scratch folder, up to its own name, as far as nothing is left in it."""
    inside = [part for part in (folder, *folder.parents) if _is_temporary(part.name)]
    if inside:
        with suppress(OSError):
            while folder != inside[-1].parent:
                folder.rmdir()
                folder = folder.parent


def _scratch_elsewhere() -> Path:
    with _local_errors("write", tempfile.gettempdir()):
        return Path(tempfile.mkdtemp(prefix="stelae-"))


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Sink:
    """Writes what arrives and adds it to the checksum."""

    def __init__(self, file: Any) -> None:
        self._write = file.write
        self.total = Checksum()

    def __call__(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.total.add(data)


@contextmanager
def _downloading(local: Path) -> Iterator[_Sink]:
    """A sink for the bytes of `local`; on any error the file is removed."""
    with local.open("wb") as file:
        try:
            yield _Sink(file)
            file.flush()
        except BaseException:
            with suppress(OSError):
                local.unlink(missing_ok=True)
            raise


@contextmanager
def _local_errors(action: str, place: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _from_os_error(exc, action, place) from exc


def _from_os_error(exc: OSError, action: str, place: str) -> StelaeError:
    where = place if exc.filename is None else f"{place} ({exc.filename})" if str(exc.filename) != place else place
    match exc.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return NotFound("no such file", place=where)
        case errno.ENOSPC | errno.EDQUOT:
            return Unavailable(
                f"cannot {action} storage: no space left", place=where, hint="free space, then try again"
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Unavailable(
                f"cannot {action} storage: {exc.strerror}",
                place=where,
                hint="this process needs the right to read and write there, and a file system with hard links",
            )
        case errno.ENAMETOOLONG:
            return InvalidRequest("the file name is too long for this file system", place=where)
        case _:
            return Unavailable(f"cannot {action} storage: {exc.strerror or exc}", place=where)


@contextmanager
def _object_errors(action: str, place: str) -> Iterator[None]:
    try:
        yield
    except StelaeError:
        raise
    except Exception as exc:
        raise _from_object_error(exc, action, place) from exc


def _from_object_error(exc: Exception, action: str, place: str) -> StelaeError:
    """obstore raises Python's own classes for some errors and its own for others, and versions differ."""
    from obstore import exceptions as errors

    said = str(exc).split("\n\nDebug source", 1)[0].strip()
    if isinstance(exc, (errors.NotFoundError, FileNotFoundError)):
        return NotFound("no such file", place=place)
    if isinstance(exc, (errors.AlreadyExistsError, errors.PreconditionError, FileExistsError)):
        return AlreadyExists("the name is taken", place=place)
    if isinstance(exc, (errors.UnknownConfigurationKeyError, errors.InvalidPathError, ValueError, TypeError)):
        return InvalidRequest(f"cannot {action} storage: {said}", place=place)
    if action == "open":
        return InvalidRequest(
            f"cannot open storage: {said}", place=place, hint="a local path, or s3://, gs://, az:// and the like"
        )
    if isinstance(exc, (errors.PermissionDeniedError, errors.UnauthenticatedError, PermissionError)):
        return Unavailable(
            f"cannot {action} storage: {said}",
            place=place,
            hint="credentials come from the environment (AWS_ACCESS_KEY_ID, ...)",
        )
    return Unavailable(f"cannot {action} storage: {said}", place=place)
