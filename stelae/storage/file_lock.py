"""Locks that end with their process: flock on a file of a local folder.

The kernel releases a lock when the process that holds it ends, however it ends. So a lock tells who lives, which a
process id can't: those are used again, and in every container there is a process 1.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def try_lock(file: Path) -> int | None:
    """A handle with a lock on the file, which is made if need be; None when somebody else has it, or took the file away
    meanwhile. Closing the handle unlocks. OSError where the folder can't be written to.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == file.stat().st_ino:
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def unlock(handle: int, file: Path | None) -> None:
    """Give a lock up. The file goes first, so that nobody can lock it in between; None: it stays, or there is none."""
    if file is not None:
        with suppress(OSError):
            file.unlink(missing_ok=True)
    with suppress(OSError):
        os.close(handle)


def abandoned_locks(folder: Path, chosen: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """Lock files (`*.lock`, those that are `chosen`) of processes that ended without clearing up. Each is locked while
    the caller removes what belongs to it, and is removed then. OSError where the folder can't be written to.
    """
    for file in filter(chosen, folder.glob("*.lock")):
        handle = try_lock(file)
        if handle is not None:
            try:
                yield file
            finally:
                unlock(handle, file)


def is_locked(file: Path) -> bool:
    """Whether a process that lives holds a lock on the file. One that can't be read counts as locked."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
