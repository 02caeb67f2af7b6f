"""The log of a table, read: the records that count, in order. By any process, also while one writes.

    read_log      the records that count, in order
    log_parts     the same cut into parts, for other processes; read_part reads one
    recover       where the log ends, and what its next owner has to write again

`stelae/log/counted_segments.py` decides which segments count, `stelae/log/segments.py` which records of a segment are
whole. Nothing here changes a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stelae.errors import CorruptData
from stelae.log.counted_segments import CountedSegment, Outline, outline
from stelae.log.errors import KEEP, log_unavailable, removed_meanwhile
from stelae.log.records import GRANTED, SKIPPED, Granted, Payload, Record, decode_record
from stelae.log.segments import SEGMENT_HEADER_BYTES, SegmentHeader, StoredRecord, Tail, decode_header, read_records
from stelae.storage.paths import parse_segment_name


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
    """Segments of writers that were fenced before; no record in them counts."""


def read_log(folder: Path, from_offset: int | None = None) -> Iterator[Entry]:
    """The records that count, in order, from an offset on (default: all that are there).

    CorruptData, with file and position, when one is damaged or missing; so also when records at or above `from_offset`
    were removed. A flush at the end that was not finished is left out. While a writer runs, the last records
    may not be durable yet.
    """
    plan = read_outline(folder)
    if plan.counted and from_offset is not None and from_offset < plan.start:
        raise CorruptData(
            f"the log starts at record {plan.start}; records {from_offset} to {plan.start - 1} are not there",
            place=f"{folder}/{plan.counted[0].header.name}",
            hint="they were removed, or a segment is lacking; " + KEEP,
        )
    return _entries(folder, plan.counted, from_offset or 0)


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
    plan = read_outline(folder)
    if first < until and (not plan.counted or first < plan.start):
        raise CorruptData(
            f"the log starts at record {plan.start}; records from {first} on are not there",
            place=str(folder),
            hint="they were removed, or a segment is lacking; " + KEEP,
        )
    parts = (
        LogPart(
            place=str(folder.absolute() / segment.header.name),
            header=segment.header,
            first=max(first, segment.header.base),
            until=until if segment.until is None else min(until, segment.until),
        )
        for segment in plan.counted
    )
    return tuple(part for part in parts if part.first < part.until)


def read_part(part: LogPart) -> Iterator[Entry]:
    """The records of a part, in order. CorruptData when one is damaged or missing."""
    place, data = _read_segment(Path(part.place).parent, part.header)
    for stored in read_records(data, part.header, part.until, place):
        if stored.offset >= part.first:
            yield _entry(stored, part.header, place)


def newest_epoch(folder: Path) -> int:
    """The epoch of the newest segment that counts; 0 if there is none. Reads headers alone."""
    counted = read_outline(folder).counted
    return counted[-1].header.epoch if counted else 0


def recover(folder: Path) -> LogState:
    """The state of a log; reads and checks all of its records. Changes nothing.

    For an owner it says what a LogWriter needs, if the epoch was put before.
    """
    plan = read_outline(folder)
    ignored = tuple(header.name for header in plan.ignored)
    if not plan.counted:
        return LogState(ignored=ignored)
    claim: Granted | None = None
    claim_offset = 0
    segments = []
    for segment in plan.counted:
        place, data = _read_segment(folder, segment.header)
        last = _last_of(data, segment, place)
        if last.claim is not None:
            claim, claim_offset = last.claim
        header, tail = segment.header, last.tail
        segments.append(Segment(header.name, header.epoch, header.base, tail.offset, len(data), tail.torn_bytes))
    return LogState(
        log_id=header.log_id,
        epoch=header.epoch,
        start=plan.start,
        end=tail.offset,
        last_flush=last.flush[0].offset if last.flush else tail.offset,
        last_payloads=tuple(stored.payload for stored in last.flush if stored.payload.kind != SKIPPED),
        claim=claim,
        claim_offset=claim_offset,
        segments=tuple(segments),
        ignored=ignored,
    )


@dataclass(frozen=True, slots=True)
class _Last:
    """What a segment has last."""

    tail: Tail
    flush: Sequence[StoredRecord]
    claim: tuple[Granted, int] | None
    """And its offset."""


def _last_of(data: bytes, segment: CountedSegment, place: str) -> _Last:
    records = read_records(data, segment.header, segment.until, place)
    flush: list[StoredRecord] = []
    claim = None
    while True:
        try:
            stored = next(records)
        except StopIteration as stop:
            return _Last(stop.value, flush, claim)
        if stored.index_in_flush == 0:
            flush.clear()
        flush.append(stored)
        if stored.payload.kind == GRANTED:
            record = decode_record(stored.payload, f"{place}, byte {stored.position}")
            if isinstance(record, Granted):
                claim = record, stored.offset


def _entries(folder: Path, segments: Sequence[CountedSegment], from_offset: int) -> Iterator[Entry]:
    for segment in segments:
        if segment.until is not None and segment.until <= from_offset:
            continue
        place, data = _read_segment(folder, segment.header)
        for stored in read_records(data, segment.header, segment.until, place):
            if stored.offset >= from_offset:
                yield _entry(stored, segment.header, place)


def _entry(stored: StoredRecord, header: SegmentHeader, place: str) -> Entry:
    record = decode_record(stored.payload, f"{place}, byte {stored.position}")
    return Entry(stored.offset, header.epoch, stored.end - stored.position, record)


def read_outline(folder: Path) -> Outline:
    headers = []
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if parse_segment_name(entry.name))
    except FileNotFoundError:
        names = []
    except OSError as exc:
        raise log_unavailable("read", exc, folder) from exc
    for name in names:
        place = f"{folder}/{name}"
        try:
            with (folder / name).open("rb") as file:
                header = decode_header(file.read(SEGMENT_HEADER_BYTES), place)
        except FileNotFoundError as exc:
            raise removed_meanwhile(place) from exc
        except OSError as exc:
            raise log_unavailable("read", exc, place) from exc
        if header.name != name:
            raise CorruptData(f"the file holds {header.name}", place=place, hint=KEEP)
        headers.append(header)
    return outline(headers, str(folder))


def _read_segment(folder: Path, header: SegmentHeader) -> tuple[str, bytes]:
    place = f"{folder}/{header.name}"
    try:
        return place, (folder / header.name).read_bytes()
    except FileNotFoundError as exc:
        raise removed_meanwhile(place) from exc
    except OSError as exc:
        raise log_unavailable("read", exc, place) from exc
