"""Errors of the log: what failed, whether anything was lost, what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from stelae.errors import StelaeError, Unavailable

KEEP = "keep the folder of the log as it is, and restore this file from a copy; nothing is served from a damaged log"
"""The hint for a damaged log."""

_REOPEN = "then open the table for writing again: a new owner's epoch recovers what is durable"


def repeated(failure: StelaeError) -> StelaeError:
    """The error for those who come after a failure: a copy, for each raise adds to the traceback of its own."""
    return type(failure)(failure.message, place=failure.place, hint=failure.hint)


def log_closed(folder: Path) -> StelaeError:
    """For records that come after `close`."""
    return Unavailable("the log is closed", place=str(folder), hint=_REOPEN)


def broken_off(exc: BaseException, path: Path) -> StelaeError:
    """For a flush that ended with an error of nobody's making: a bug, an interrupt."""
    return Unavailable(f"the flush was broken off: {exc!r}", place=str(path), hint=_REOPEN)


def log_unavailable(action: str, exc: OSError, path: Path | str) -> StelaeError:
    """For an error of the operating system. `action` is a verb: read, write, remove segments of."""
    match exc.errno:
        case errno.ENOSPC | errno.EDQUOT:
            message, hint = f"cannot {action} the log: no space left", f"free space, {_REOPEN}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            message, hint = f"cannot {action} the log: {exc.strerror}", "this process needs the right to do so"
        case _:
            message, hint = f"cannot {action} the log: {exc.strerror or exc}", f"look after the disk, {_REOPEN}"
    return Unavailable(message, place=str(path), hint=hint)


def removed_meanwhile(place: str) -> StelaeError:
    """For a segment that its owner removed (`remove_covered`) between two steps of a reader."""
    return Unavailable("the segment was removed while the log was read", place=place, hint="read the log again")
