"""What a process and its children take: processor time, memory; and which cores they run on. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

IDLE_S = 2.0
IDLE_CPU = 0.05
"""A server is idle that took less than this part of a core for so long."""
SETTLE_TIMEOUT_S = 300


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    pids = [pid]
    for each in pids:
        with suppress(OSError):  # It ended meanwhile.
            for task in Path(f"/proc/{each}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
    return pids


def cpu_s(pid: int) -> float:
    """Processor time of a process and its children so far, in steps of 10 ms. Children that ended count, too."""
    ticks = 0
    for fields in _of_each(tree(pid), lambda each: Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()):
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Memory of a process and its children, mapped files included. What they share counts once, and what they share
    with others in part.
    """

    def proportional(each: int) -> int:
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024

    return sum(_of_each(tree(pid), proportional))


def settle(pid: int, processes: int = 1) -> None:
    """Wait until a server does nothing in the background any more: it has so many processes, and they are idle."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    idle_since, before = time.monotonic(), cpu_s(pid)
    while time.monotonic() - idle_since < IDLE_S:
        if time.monotonic() > deadline:
            raise SystemExit(f"process {pid} did not come to rest within {SETTLE_TIMEOUT_S} s")
        time.sleep(IDLE_S / 10)
        now = cpu_s(pid)
        if now - before > IDLE_CPU * IDLE_S or len(tree(pid)) > processes:
            idle_since, before = time.monotonic(), now


def file_bytes(folder: Path) -> int:
    """What the files below a folder take on the disk. Holes do not count; a file that has several names does once."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


@contextmanager
def pinned(cores: Iterable[int], pid: int = 0) -> Iterator[None]:
    """A process on these cores alone, with all its threads and children, and those that it starts meanwhile. 0: this
    one.
    """
    before = os.sched_getaffinity(pid)
    _pin(pid, cores)
    try:
        yield
    finally:
        _pin(pid, before)


def _pin(pid: int, cores: Iterable[int]) -> None:
    if pid == 0:
        os.sched_setaffinity(0, cores)
        return
    for each in tree(pid):
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cores)


def _of_each(pids: Iterable[int], ask: Callable[[int], T]) -> list[T]:
    answers = []
    for pid in pids:
        with suppress(OSError):
            answers.append(ask(pid))
    return answers
