"""`stelae` on a slow disk: `python -m tests.service.slow_server serve ...`.

Flushes of the log take some milliseconds and are written in two pieces, as the put of a claim or an epoch and the
question after the owner do. So whoever kills or stalls the process at a random moment hits these moments often.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from stelae.cli import main
from stelae.log import LocalLogFile
from stelae.ownership import TableOwnership
from stelae.storage import LocalStorage

MOST_S = 0.006


def pause() -> None:
    time.sleep(random.uniform(0, MOST_S))


def slow(method: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*arguments: Any, **named: Any) -> Any:
        pause()
        done = method(*arguments, **named)
        pause()
        return done

    return slowly


def in_two_pieces(write: Callable[[LocalLogFile, bytes], None]) -> Callable[[LocalLogFile, bytes], None]:
    def write_slowly(file: LocalLogFile, data: bytes) -> None:
        cut = random.randrange(len(data))
        write(file, data[:cut])
        pause()
        write(file, data[cut:])

    return write_slowly


if __name__ == "__main__":
    LocalLogFile.write = in_two_pieces(LocalLogFile.write)  # type: ignore[assignment, method-assign]
    LocalLogFile.sync = slow(LocalLogFile.sync)  # type: ignore[method-assign]
    LocalStorage.put_if_absent = slow(LocalStorage.put_if_absent)  # type: ignore[method-assign]
    TableOwnership.still_holds = slow(TableOwnership.still_holds)  # type: ignore[method-assign]
    sys.exit(main())
