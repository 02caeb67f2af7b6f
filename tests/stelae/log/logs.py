"""Small logs for the tests of this folder: written, read, broken on purpose."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stelae.log.reader import read_log, recover
from stelae.log.records import Granted, Inserted, Record
from stelae.log.segments import decode_header, read_records
from stelae.log.writer import LocalLogFile, LogWriter
from stelae.storage.paths import segment_name

LOG_ID = bytes(range(16))
GIVEN = Granted(12, 1, 100_000)
BATCH = Inserted(3, ("2026-11-20", 7), 5, [b"ab", b"", b"c"], [b"\1", b"\2\2", b""], 4)
SINGLE = Inserted(0, (), 0, [b"key"], [b"row"], 1)


def key(text: str | int) -> Inserted:
    return replace(SINGLE, keys=[str(text).encode()])


def opened(folder: Path, epoch: int = 1, **options: Any) -> LogWriter:
    """The writer of the next owner."""
    state = recover(folder)
    return LogWriter(folder, epoch, state.end, state, **options)


def write(writer: LogWriter, *flushes: list[Record]) -> None:
    for records in flushes:
        writer.append(records)
        writer.flush()


def keys_of(folder: Path, from_offset: int | None = None) -> list[str]:
    records = (entry.record for entry in read_log(folder, from_offset))
    return [record.keys[0].decode() for record in records if isinstance(record, Inserted)]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def drained(records: Any) -> tuple[list[Any], Any]:
    found = []
    while True:
        try:
            found.append(next(records))
        except StopIteration as stop:
            return found, stop.value


def small_log(folder: Path) -> tuple[bytes, list[int]]:
    """A log of one segment of three flushes, of four records; its bytes, and where each record starts."""
    write(opened(folder), [GIVEN], [key("a"), key("b")], [key("c")])
    data = (folder / segment_name(1, 0)).read_bytes()
    records, _ = drained(read_records(data, decode_header(data, ""), None, ""))
    return data, [record.position for record in records]


class Faults:
    """Makes files that fail on purpose, and keeps what was done with them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.write_error: OSError | None = None
        self.written_before_error = 0
        self.sync_error: OSError | None = None
        self.before_sync: Callable[[], None] = lambda: None

    def open(self, path: Path) -> LocalLogFile:
        faults = self

        class File(LocalLogFile):
            def write(self, data: bytes) -> None:
                faults.events.append("write")
                if faults.write_error:
                    super().write(data[: faults.written_before_error])
                    raise faults.write_error
                super().write(data)

            def sync(self) -> None:
                faults.before_sync()
                faults.events.append("sync")
                if faults.sync_error:
                    raise faults.sync_error
                super().sync()

        return File(path)

    @property
    def syncs(self) -> int:
        return self.events.count("sync")


NO_SPACE, IO_ERROR = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error")
