"""Storage in an object store. The only module that imports obstore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stelae.errors import AlreadyExists, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.storage.checksum import CHUNK_BYTES
from stelae.storage.local_files import downloading, os_errors, temporary_folder
from stelae.storage.storage import StoredFile, checked_path, exists, path_of

SINGLE_PUT_BYTES = 64 << 20
"""Files up to this size go up in one conditional put, held in memory; larger ones in parts."""


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
            return bytes(self._obs.get(self._store, checked_path(path)).bytes())

    def put_if_absent(self, path: str, data: bytes) -> None:
        with _object_errors("write", self._place(path)):
            self._obs.put(self._store, checked_path(path), data, mode="create")

    def upload(self, local: Path, path: str) -> None:
        with os_errors("read", str(local)):
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
            self._obs.put(self._store, checked_path(path), local)

    def download(self, path: str, local: Path) -> str:
        with _object_errors("download", self._place(path)):
            chunks = self._obs.get(self._store, checked_path(path)).stream(min_chunk_size=CHUNK_BYTES)
            with os_errors("write", str(local)), downloading(local) as add:
                for chunk in chunks:
                    add(memoryview(chunk))
            return add.total.text()

    def local_path(self, path: str) -> Path | None:
        checked_path(path)
        return None

    def head(self, path: str) -> StoredFile:
        with _object_errors("read", self._place(path)):
            return _from_meta(self._obs.head(self._store, checked_path(path)))

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        with _object_errors("list", self._place(folder)):
            prefix = checked_path(folder) if folder else None
            return iter(
                sorted((_from_meta(meta) for page in self._obs.list(self._store, prefix) for meta in page), key=path_of)
            )

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:  # noqa: ARG002
        return iter(())

    def folders(self, folder: str = "") -> tuple[str, ...]:
        with _object_errors("list", self._place(folder)):
            prefix = checked_path(folder) if folder else None
            found = self._obs.list_with_delimiter(self._store, prefix)["common_prefixes"]
            return tuple(sorted(path.rsplit("/", 1)[-1] for path in found))

    def delete(self, path: str) -> None:
        with suppress(NotFound), _object_errors("delete", self._place(path)):
            self._obs.delete(self._store, checked_path(path))

    def scratch_folder(self, folder: str = "") -> Path:  # noqa: ARG002
        return temporary_folder()

    def _place(self, path: str) -> str:
        return f"{self._url}/{path}"


def _open_object_storage(url: str, options: dict[str, Any]) -> ObjectStorage:
    return ObjectStorage(url, **options)


def _from_meta(meta: Any) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


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
