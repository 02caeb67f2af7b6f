"""Work done by another process, of low priority: what would hold up the threads of one that answers requests.

    run_in_background_process(function, arguments...)

`python -P -m stelae.read.background_process` does it, and its result or error comes back.

The function is one that a module has, and what goes to and fro can be pickled. Both ends are this program. Not by
`multiprocessing`: its new processes import the main module of the old one again, and look for modules in the working
folder first.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

from stelae.errors import StelaeError, Unavailable

R = TypeVar("R")

NICENESS = 19
"""Of the other process: all of a processor that nobody wants, a sixtieth of one that others want."""
STOP_POLL_S = 0.1


class NotPortableError(Exception):
    """Something can't be sent to another process."""


def run_in_background_process(work: Callable[..., R], *arguments: object, stop: Event | None = None) -> R:
    """What `work(*arguments)` gives, or raises if that is a StelaeError. Setting `stop` kills it: Unavailable.

    NotPortableError when the arguments can't be sent; Unavailable when the process ends without an answer.
    """
    try:
        request: bytes | None = pickle.dumps((work, arguments))
    except (StelaeError, pickle.PicklingError, TypeError, AttributeError) as exc:
        raise NotPortableError(str(exc)) from exc
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stelae.read.background_process"],  # -P: not from the working folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the server, which ends this one by itself
        env=child_environment(),
    )
    with process:
        while True:
            try:
                answer, _ = process.communicate(request, timeout=STOP_POLL_S)
                break
            except subprocess.TimeoutExpired:
                request = None  # `communicate` goes on with what it has
                if stop is not None and stop.is_set():
                    process.kill()
                    raise Unavailable("the work was given up") from None
    if process.returncode:
        raise Unavailable(
            f"the process that does {work.__name__} ended with {process.returncode}",
            hint="its messages are on standard error; -9 is often a lack of memory",
        )
    error, result = pickle.loads(answer)  # noqa: S301 (from our own process)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def child_environment() -> dict[str, str]:
    """The environment of another Python, started with -P, that is part of this program: it finds modules where this one
    does, but for the working folder. What lies there is the user's, unless stelae itself was imported from it.
    """
    home, here = (os.path.realpath(folder) for folder in (Path(__file__).parents[2], Path.cwd()))
    paths = [os.path.realpath(path) for path in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path != here or path == home)}


def main() -> None:
    """The other process: a request on standard input, an error or a result on standard output."""
    with suppress(OSError, AttributeError):
        os.nice(NICENESS)
    try:
        work, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 (from our own process)
    except (EOFError, pickle.UnpicklingError):
        return  # The server was killed before it had said what to do.
    error: StelaeError | None = None
    result: object = None
    try:
        result = work(*arguments)
    except StelaeError as exc:
        error = exc
    with suppress(BrokenPipeError):  # nobody waits any more
        pickle.dump((error, result), sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
