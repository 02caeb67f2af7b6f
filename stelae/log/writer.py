"""The log of a table, written: online writes, durable before they are acknowledged. On a local folder.

    LogWriter        records ──► durable in the segment of one's own epoch, which rolls by size          one thread
    remove_covered   deletes segments whose records are in every snapshot that is kept

One log a table, whatever partitions and buckets it has, so that one flush serves all. An offset is the ordinal of a
record over all epochs. An owner writes segments of its own epoch only and never touches those of others.

So a takeover is: put the epoch (`stelae/ownership/epochs.py`), `recover` (`stelae/log/reader.py`), open a LogWriter,
whose first segment says to all readers where the former owner's records end. The former owner's last flush may be on no
disk, although one can read it, and all that came before it is durable. So the new owner ends the former epoch before
that flush, and writes its records again, in the same put that makes its first segment: they keep their offsets, and
from here on nothing depends on what a former owner, its page cache or its disk does with its file.

After an error of a write or of fsync nobody knows what is on the disk, and a second fsync may well say that all is fine
(https://wiki.postgresql.org/wiki/Fsync_Errors). So nothing is tried again: the writer refuses all further records, and
the owner takes a new epoch and recovers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stelae.errors import InvalidRequest, StelaeError
from stelae.log.counted_segments import removable
from stelae.log.errors import broken_off, log_closed, log_unavailable, repeated
from stelae.log.reader import LogState, read_outline
from stelae.log.records import Payload, Record, Skipped, encode_record
from stelae.log.segments import SegmentHeader, encode_flush, encode_header
from stelae.storage.local import LocalStorage
from stelae.storage.local_files import fsync_folder

SEGMENT_BYTES = 64 << 20
"""A segment that has as many gets no further flush."""


class LogFile(Protocol):
    """A segment that is being written. Errors are the operating system's."""

    def write(self, data: bytes) -> None:
        """Append all of it."""

    def sync(self) -> None:
        """Make durable what was written."""

    def close(self) -> None: ...


class LocalLogFile:
    """A file on this machine that is there already.

    Opened with O_DSYNC, where the system has it: `write` returns when the bytes are durable, and `sync` has nothing to
    do. That is one system call a flush and not two, which counts in a process with one interpreter lock: after each of
    them the writer waits for the lock, as long as the event loop has requests to answer.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DSYNC)
        os.lseek(self._handle, 0, os.SEEK_END)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

    def sync(self) -> None:
        if not _DSYNC:
            _fdatasync(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


_DSYNC: int = getattr(os, "O_DSYNC", 0) if sys.platform == "linux" else 0
"""Elsewhere O_DSYNC may leave data in the cache of the disk."""
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class LogWriter:
    """Writes the records of one owner: segments of its epoch. For one thread at a time.

    After any error it refuses all further records (`failure`): the owner takes a new epoch and recovers.
    """

    def __init__(
        self,
        folder: Path,
        epoch: int,
        base: int,
        previous: LogState,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        open_file: Callable[[Path], LogFile] = LocalLogFile,
    ) -> None:
        """Create the epoch's first segment, durable when this returns: from here on, readers go by it.

        `previous` is what `recover` said after the epoch was taken. `base` is the offset of the next record: at least
        `previous.end`, and at least what any snapshot covers. The last flush of the previous epoch is written again.
        Conflict when the epoch has such a segment already.
        """
        if epoch <= previous.epoch or base < previous.end:
            raise InvalidRequest(
                f"epoch {epoch} from offset {base} does not come after epoch {previous.epoch} to {previous.end}",
                place=str(folder),
            )
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._open_file = open_file
        self._pending: list[Payload] = []
        self.failure: StelaeError | None = None
        """Why it takes no more records."""
        self.durable_end = base
        """Records below this offset, of this and all former epochs, are durable."""
        self.flushes = 0
        """Of this writer that succeeded."""
        header = SegmentHeader(
            log_id=previous.log_id or os.urandom(16),
            epoch=epoch,
            base=previous.last_flush,
            previous_epoch=previous.epoch,
            previous_end=previous.last_flush,
            salt=_salt(),
        )
        carried = list(previous.last_payloads)
        if header.base + len(carried) < base:
            carried.append(encode_record(Skipped(base)))
        try:
            self._open(header, carried)
        except OSError as exc:
            raise log_unavailable("write", exc, self.path) from exc

    @property
    def path(self) -> Path:
        """Of the segment that is being written."""
        return self._folder / self._header.name

    @property
    def epoch(self) -> int:
        return self._header.epoch

    @property
    def end(self) -> int:
        """Offset of the next record that is appended."""
        return self.durable_end + len(self._pending)

    def append(self, records: Sequence[Record]) -> range:
        """Add records to the next flush. Returns their offsets."""
        return self.append_payloads([encode_record(record) for record in records])

    def append_payloads(self, payloads: Sequence[Payload]) -> range:
        """Add encoded records to the next flush. Returns their offsets."""
        self._check_usable()
        first = self.end
        self._pending += payloads
        return range(first, self.end)

    def flush(self) -> None:
        """Write what was appended and make it durable: all of it counts, or this raises.

        After an error records of this flush may be in the log or not; nobody must be told that they are.
        """
        self._check_usable()
        if not self._pending:
            return
        try:
            if self._bytes >= self._segment_bytes and self.durable_end > self._header.base:
                self._roll()
            data = encode_flush(self._pending, self.durable_end, self._header.salt)
            self._file.write(data)
            self._file.sync()
        except OSError as exc:
            raise self._fail(log_unavailable("write", exc, self.path)) from exc
        except StelaeError as exc:
            raise self._fail(exc) from exc
        except BaseException as exc:
            self._fail(broken_off(exc, self.path))
            raise
        self._bytes += len(data)
        self.durable_end = self.end
        self._pending.clear()
        self.flushes += 1

    def close(self) -> None:
        """Close the file. What was appended and not flushed is dropped."""
        if self.failure is None:
            self.failure = log_closed(self._folder)
            self._file.close()

    def _open(self, header: SegmentHeader, payloads: Sequence[Payload] = ()) -> None:
        header = replace(header, carried=len(payloads))
        data = encode_header(header) + encode_flush(payloads, header.base, header.salt)
        LocalStorage(self._folder).put_if_absent(header.name, data)
        self._header = header
        self._file = self._open_file(self.path)
        self._bytes = len(data)

    def _roll(self) -> None:
        former = self._file
        self._open(replace(self._header, base=self.durable_end, salt=_salt()))
        former.close()

    def _fail(self, failure: StelaeError) -> StelaeError:
        self.failure = failure
        with suppress(OSError):
            self._file.close()
        return failure

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise repeated(self.failure)


def remove_covered(folder: Path, covered: int) -> tuple[str, ...]:
    """Delete the segments that nobody needs when every snapshot that is kept covers the records below `covered`.

    Returns their names, oldest first. The newest segment always stays. For the owner, also while it writes.
    """
    gone = tuple(header.name for header in removable(read_outline(folder), covered))
    try:
        for name in gone:
            (folder / name).unlink(missing_ok=True)
            fsync_folder(folder)  # Or a power cut might bring back one that is older than others that stay gone.
    except OSError as exc:
        raise log_unavailable("remove segments of", exc, folder) from exc
    return gone


def _salt() -> int:
    return int.from_bytes(os.urandom(8), "little")
