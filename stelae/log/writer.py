"""The log of a table: online writes, durable before they are acknowledged. On a local folder.

    GroupCommit   requests ──► one flush at a time, shared ──► still the owner? ──► acknowledged        asyncio
    LogWriter     records ──► durable in the segment of one's own epoch, which rolls by size           one thread
    read_log      the records that count, in order                                                      any process
    recover       where the log ends, and what its next owner has to write again                        any process
    remove_covered  deletes segments whose records are in every snapshot that is kept

`stelae/log/records.py` has the bytes, and decides from them what counts; docs/format.md#log is the contract.

One log a table, whatever partitions and buckets it has, so that one flush serves all. An offset is the ordinal of a
record over all epochs. An owner writes segments of its own epoch only and never touches those of others:

    segment-000000000003-00000000000000000000.log     epoch 3, records 0 to 41, and maybe more that count no more
    segment-000000000005-00000000000000000042.log     epoch 5: "epoch 3 ends at 42"; then record 42, ...

So a takeover is: put the epoch (`stelae/log/epochs.py`), then `recover`, then open a LogWriter, whose first segment
says to all readers where the former owner's records end. The former owner's last flush may be on no disk, although one
can read it, and all that came before it is durable. So the new owner ends the former epoch before that flush, and
writes its records again, in the same put that makes its first segment: they keep their offsets, and from here on
nothing depends on what a former owner, its page cache or its disk does with its file.

After an error of a write or of fsync nobody knows what is on the disk, and a second fsync may well say that all is fine
(https://wiki.postgresql.org/wiki/Fsync_Errors). So nothing is tried again: the writer refuses all further records, and
the owner takes a new epoch and recovers.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from stelae.errors import Conflict, CorruptData, InvalidRequest, StelaeError, Unavailable
from stelae.log.records import (
    GRANTED,
    HEADER_BYTES,
    KEEP,
    SKIPPED,
    Frame,
    Granted,
    Outline,
    Part,
    Payload,
    Record,
    SegmentHeader,
    Skipped,
    Tail,
    decode_header,
    decode_record,
    encode_flush,
    encode_header,
    encode_record,
    outline,
    read_frames,
    removable,
)
from stelae.storage.local import LocalStorage
from stelae.storage.paths import parse_segment_name

SEGMENT_BYTES = 64 << 20
"""A segment that has as many gets no further flush."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the log that counts."""

    offset: int
    epoch: int
    """Of the owner who wrote it."""
    bytes: int
    """On disk."""
    record: Record


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log whose records count."""

    name: str
    epoch: int
    base: int
    end: int
    """Its records are `base` to `end` - 1; none if both are one."""
    bytes: int
    torn_bytes: int
    """At the end of the newest segment: of a flush that was not finished. They do not count."""


@dataclass(frozen=True, slots=True)
class LogState:
    """What a log says before it is replayed. The default is a log without segments."""

    log_id: bytes | None = None
    """The same in all segments of the log; None if there are none yet."""
    epoch: int = 0
    """Of the newest segment that counts; 0 if there is none."""
    start: int = 0
    """Records from this offset on can be read."""
    end: int = 0
    """Offset of the next record. A snapshot may cover more: of a log that was read before its last flush got lost."""
    last_flush: int = 0
    """Offset of the first record of the last flush: all before it is durable. `end` if nothing was flushed since."""
    last_payloads: tuple[Payload, ...] = field(default=(), repr=False)
    """The records of the last flush, for the next owner to write again."""
    claim: Granted | None = None
    """The last claim that was logged, if it is in the segments that are there."""
    claim_offset: int = 0
    """Of that record. No id of the claim is in the log before it."""
    segments: tuple[Segment, ...] = ()
    ignored: tuple[str, ...] = ()
    """Segments of writers that had been replaced; no record in them counts."""


# Reading


def read_log(folder: Path, from_offset: int | None = None) -> Iterator[Entry]:
    """The records that count, in order, from an offset on (default: all that are there).

    CorruptData, with file and position, when one is damaged or missing; so also when records at or above `from_offset`
    were removed. A flush at the end that was not finished is left out. Reads beside a running writer, too: then the
    last records may not be durable yet.
    """
    plan = _outline(folder)
    if plan.parts and from_offset is not None and from_offset < plan.start:
        raise CorruptData(
            f"the log starts at record {plan.start}; records {from_offset} to {plan.start - 1} are not there",
            place=f"{folder}/{plan.parts[0].header.name}",
            hint="they were removed, or a segment is lacking; " + KEEP,
        )
    return _entries(folder, plan.parts, from_offset or 0)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some records of one segment: what another process needs to read them."""

    place: str
    """The file, as an absolute path."""
    header: SegmentHeader
    first: int
    until: int
    """Its records from `first` to `until` - 1."""


def log_parts(folder: Path, first: int, until: int) -> tuple[LogPart, ...]:
    """The records from `first` to `until` - 1, a part a segment, in order. Reads headers alone.

    For records that are durable: `read_part` raises CorruptData when one of them is not there.
    """
    plan = _outline(folder)
    if first < until and (not plan.parts or first < plan.start):
        raise CorruptData(
            f"the log starts at record {plan.start}; records from {first} on are not there",
            place=str(folder),
            hint="they were removed, or a segment is lacking; " + KEEP,
        )
    parts = (
        LogPart(
            place=str(folder.absolute() / part.header.name),
            header=part.header,
            first=max(first, part.header.base),
            until=until if part.until is None else min(until, part.until),
        )
        for part in plan.parts
    )
    return tuple(part for part in parts if part.first < part.until)


def read_part(part: LogPart) -> Iterator[Entry]:
    """The records of a part, in order. CorruptData when one is damaged or missing."""
    place, data = _read(Path(part.place).parent, part.header)
    for frame in read_frames(data, part.header, part.until, place):
        if frame.offset >= part.first:
            yield _entry(frame, part.header, place)


def newest_epoch(folder: Path) -> int:
    """The epoch of the newest segment that counts; 0 if there is none. Reads headers alone."""
    parts = _outline(folder).parts
    return parts[-1].header.epoch if parts else 0


def recover(folder: Path) -> LogState:
    """The state of a log; reads and checks all of its records. Changes nothing.

    For an owner it says what a LogWriter needs, if the epoch was put before.
    """
    plan = _outline(folder)
    ignored = tuple(header.name for header in plan.ignored)
    if not plan.parts:
        return LogState(ignored=ignored)
    claim: Granted | None = None
    claim_offset = 0
    segments = []
    flush: list[Frame] = []
    for part in plan.parts:
        place, data = _read(folder, part.header)
        frames = read_frames(data, part.header, part.until, place)
        flush = []
        while True:
            try:
                frame = next(frames)
            except StopIteration as stop:
                tail: Tail = stop.value
                break
            if frame.place == 0:
                flush.clear()
            flush.append(frame)
            if frame.payload.kind == GRANTED:
                record = decode_record(frame.payload, f"{place}, byte {frame.position}")
                if isinstance(record, Granted):
                    claim, claim_offset = record, frame.offset
        header = part.header
        segments.append(Segment(header.name, header.epoch, header.base, tail.offset, len(data), tail.torn_bytes))
    newest = plan.parts[-1].header
    return LogState(
        log_id=newest.log_id,
        epoch=newest.epoch,
        start=plan.start,
        end=segments[-1].end,
        last_flush=flush[0].offset if flush else segments[-1].end,
        last_payloads=tuple(frame.payload for frame in flush if frame.payload.kind != SKIPPED),
        claim=claim,
        claim_offset=claim_offset,
        segments=tuple(segments),
        ignored=ignored,
    )


def remove_covered(folder: Path, covered: int) -> tuple[str, ...]:
    """Delete the segments that nobody needs when every snapshot that is kept covers the records below `covered`.

    Returns their names, oldest first. The newest segment always stays. For the owner, beside its writer.
    """
    gone = tuple(header.name for header in removable(_outline(folder), covered))
    try:
        for name in gone:
            (folder / name).unlink(missing_ok=True)
            _sync_folder(folder)  # Or a power cut might bring back one that is older than others that stay gone.
    except OSError as exc:
        raise _unavailable("remove segments of", exc, folder) from exc
    return gone


def _entries(folder: Path, parts: Sequence[Part], from_offset: int) -> Iterator[Entry]:
    for part in parts:
        if part.until is not None and part.until <= from_offset:
            continue
        place, data = _read(folder, part.header)
        for frame in read_frames(data, part.header, part.until, place):
            if frame.offset >= from_offset:
                yield _entry(frame, part.header, place)


def _entry(frame: Frame, header: SegmentHeader, place: str) -> Entry:
    record = decode_record(frame.payload, f"{place}, byte {frame.position}")
    return Entry(frame.offset, header.epoch, frame.end - frame.position, record)


def _outline(folder: Path) -> Outline:
    headers = []
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if parse_segment_name(entry.name))
    except FileNotFoundError:
        names = []
    except OSError as exc:
        raise _unavailable("read", exc, folder) from exc
    for name in names:
        place = f"{folder}/{name}"
        try:
            with (folder / name).open("rb") as file:
                header = decode_header(file.read(HEADER_BYTES), place)
        except FileNotFoundError as exc:
            raise _removed_meanwhile(place) from exc
        except OSError as exc:
            raise _unavailable("read", exc, place) from exc
        if header.name != name:
            raise CorruptData(f"the file holds {header.name}", place=place, hint=KEEP)
        headers.append(header)
    return outline(headers, str(folder))


def _read(folder: Path, header: SegmentHeader) -> tuple[str, bytes]:
    place = f"{folder}/{header.name}"
    try:
        return place, (folder / header.name).read_bytes()
    except FileNotFoundError as exc:
        raise _removed_meanwhile(place) from exc
    except OSError as exc:
        raise _unavailable("read", exc, place) from exc


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Writing


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
        again_written = list(previous.last_payloads)
        if header.base + len(again_written) < base:
            again_written.append(encode_record(Skipped(base)))
        try:
            self._open(header, again_written)
        except OSError as exc:
            raise _unavailable("write", exc, self.path) from exc

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
            raise self._fail(_unavailable("write", exc, self.path)) from exc
        except StelaeError as exc:
            raise self._fail(exc) from exc
        except BaseException as exc:
            self._fail(_broken_off(exc, self.path))
            raise
        self._bytes += len(data)
        self.durable_end = self.end
        self._pending.clear()
        self.flushes += 1

    def close(self) -> None:
        """Close the file. What was appended and not flushed is dropped."""
        if self.failure is None:
            self.failure = _closed(self._folder)
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
            raise again(self.failure)


def again(failure: StelaeError) -> StelaeError:
    """The error for those who come after a failure."""
    return type(failure)(failure.message, place=failure.place, hint=failure.hint)


def _salt() -> int:
    return int.from_bytes(os.urandom(8), "little")


# Sharing flushes


@dataclass(frozen=True, slots=True)
class _Waiting:
    payloads: list[Payload]
    future: asyncio.Future[range]


class GroupCommit:
    """Concurrent requests of one event loop share flushes of a LogWriter, which belongs to it from now on.

    While one flush runs, in a thread, what is submitted gathers for the next one. Records come into the log in the
    order in which they were submitted.
    """

    def __init__(self, writer: LogWriter, still_holds: Callable[[], bool]) -> None:
        """`still_holds` is asked in that thread after each flush, and before anybody in it gets an answer: whether the
        writer's epoch is in force. False, or an error, fails the flush like an error of the disk.
        """
        self.writer = writer
        self._still_holds = still_holds
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._executor = ThreadPoolExecutor(1, "stelae-log")

    @property
    def failure(self) -> StelaeError | None:
        """Why it takes no more records."""
        return self.writer.failure

    def submit(self, records: Sequence[Record]) -> asyncio.Future[range]:
        """Put records into the next flush. The future gives their offsets when they may be acknowledged.

        An error means that they may be in the log or not, and that the log has to be recovered before anything else is
        written. InvalidRequest for records that can't be encoded, and the failure for a log that takes no more, are
        raised here. A caller that is cancelled takes nothing back.
        """
        return self.submit_payloads([encode_record(record) for record in records])

    def submit_payloads(self, payloads: list[Payload]) -> asyncio.Future[range]:
        """`submit` of encoded records."""
        if self._closing or self.failure is not None:
            raise again(self.failure or _closed(self.writer.path.parent))
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: it asks the system for the process id
        future: asyncio.Future[range] = self._loop.create_future()
        self._waiting.append(_Waiting(payloads, future))
        if self._running is None:
            self._running = self._loop.create_task(self._flush_all())
        return future

    async def close(self) -> None:
        """Wait for everything that was submitted, then close the log."""
        self._closing = True
        while self._running is not None:
            await asyncio.wait([self._running])
        self._executor.shutdown()
        self.writer.close()

    async def _flush_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                offsets = await loop.run_in_executor(self._executor, self._flush, group)
            except BaseException as exc:
                self._fail(exc, [*group, *self._waiting])
                if not isinstance(exc, Exception):
                    raise
                break
            for waiting, written in zip(group, offsets, strict=True):
                if not waiting.future.done():
                    waiting.future.set_result(written)
        self._running = None

    def _flush(self, group: Sequence[_Waiting]) -> list[range]:
        offsets = [self.writer.append_payloads(waiting.payloads) for waiting in group]
        self.writer.flush()
        if not self._still_holds():
            raise Conflict(
                f"epoch {self.writer.epoch} is over: somebody else owns the table now",
                place=str(self.writer.path),
                hint="send it to the owner; whether these records count is the owner's to say",
            )
        return offsets

    def _fail(self, exc: BaseException, group: Sequence[_Waiting]) -> None:
        self._waiting = []
        self._running = None
        failure = exc if isinstance(exc, StelaeError) else _broken_off(exc, self.writer.path)
        if self.writer.failure is None:
            self.writer.failure = failure
        for waiting in group:
            if not waiting.future.done():
                error = again(failure)
                error.__cause__ = exc
                waiting.future.set_exception(error)


_REOPEN = "then open the table for writing again: a new owner's epoch recovers what is durable"


def _closed(folder: Path) -> StelaeError:
    return Unavailable("the log is closed", place=str(folder), hint=_REOPEN)


def _broken_off(exc: BaseException, path: Path) -> StelaeError:
    return Unavailable(f"the flush was broken off: {exc!r}", place=str(path), hint=_REOPEN)


def _unavailable(action: str, exc: OSError, path: Path | str) -> StelaeError:
    match exc.errno:
        case errno.ENOSPC | errno.EDQUOT:
            message, hint = f"cannot {action} the log: no space left", f"free space, {_REOPEN}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            message, hint = f"cannot {action} the log: {exc.strerror}", "this process needs the right to do so"
        case _:
            message, hint = f"cannot {action} the log: {exc.strerror or exc}", f"look after the disk, {_REOPEN}"
    return Unavailable(message, place=str(path), hint=hint)


def _removed_meanwhile(place: str) -> StelaeError:
    return Unavailable("the segment was removed while the log was read", place=place, hint="read the log again")
