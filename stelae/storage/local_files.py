"""Files of this machine, as every storage meets them: where it uploads from, downloads to, or is itself a folder.

Errors of the operating system become ours here: NotFound, InvalidRequest for a name that is too long, and Unavailable
for all else, a full disk and missing permissions included.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.storage.checksum import Checksum


@contextmanager
def downloading(local: Path) -> Iterator[_Sink]:
    """A sink for the bytes of `local`; on any error the file is removed."""
    with local.open("wb") as file:
        try:
            yield _Sink(file)
            file.flush()
        except BaseException:
            with suppress(OSError):
                local.unlink(missing_ok=True)
            raise


class _Sink:
    """Writes what arrives and adds it to the checksum."""

    def __init__(self, file: Any) -> None:
        self._write = file.write
        self.total = Checksum()

    def __call__(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.total.add(data)


def temporary_folder() -> Path:
    """A scratch folder for a storage that is no folder itself."""
    with os_errors("write", tempfile.gettempdir()):
        return Path(tempfile.mkdtemp(prefix="stelae-"))


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable: those that were added, and those that were removed. OSError if it fails."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def os_errors(action: str, place: str) -> Iterator[None]:
    """Raises OSError of the block as ours. `action` is a verb for the message: read, write, list."""
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
