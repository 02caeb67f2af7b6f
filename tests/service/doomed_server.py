"""`stelae` on a bad disk: `python -m tests.service.doomed_server DISK serve ...`.

slow      flushes of the log take some milliseconds and are written in two pieces, as the put of a claim or an epoch
          and the question after the owner do: whoever kills or stalls the process at a random moment hits these
          moments often
failing   the same, and now and then a flush fails, before or behind its second piece, on disk or not
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from stelae.cli import main
from stelae.log.writer import LocalLogFile
from stelae.ownership.epochs import TableOwnership
from stelae.storage.local import LocalStorage

MOST_S = 0.006
FAILURES = 0.01
"""Of all writes and all syncs."""


def pause() -> None:
    time.sleep(random.uniform(0, MOST_S))


def slow(method: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*arguments: Any, **named: Any) -> Any:
        pause()
        done = method(*arguments, **named)
        pause()
        return done

    return slowly


def failing(method: Callable[..., Any], number: int) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        before, after = random.random() < FAILURES / 2, random.random() < FAILURES / 2
        done = None if before else method(*arguments)
        if before or after:
            raise OSError(number, os.strerror(number))
        return done

    return fail


def in_two_pieces(write: Callable[[LocalLogFile, bytes], None]) -> Callable[[LocalLogFile, bytes], None]:
    def write_slowly(file: LocalLogFile, data: bytes) -> None:
        cut = random.randrange(len(data))
        write(file, data[:cut])
        pause()
        write(file, data[cut:])

    return write_slowly


if __name__ == "__main__":
    disk = sys.argv.pop(1)
    write, sync = LocalLogFile.write, LocalLogFile.sync
    if disk == "failing":
        write, sync = failing(write, errno.ENOSPC), failing(sync, errno.EIO)
    LocalLogFile.write = in_two_pieces(write)  # type: ignore[assignment, method-assign]
    LocalLogFile.sync = slow(sync)  # type: ignore[method-assign]
    LocalStorage.put_if_absent = slow(LocalStorage.put_if_absent)  # type: ignore[method-assign]
    TableOwnership.still_holds = slow(TableOwnership.still_holds)  # type: ignore[method-assign]
    sys.exit(main())
