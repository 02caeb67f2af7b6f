"""Segments of the log, version 1: files of records with checksums.

Values in, bytes out; `stelae/log/reader.py` and `stelae/log/writer.py` have the files. docs/format.md#log is the
contract.

    segment    | header, 80 bytes | record | record | ...

    header     | magic 8 | version u32 | carried u32 | log id 16 | epoch u64 | base u64 |
               | previous epoch u64 | previous end u64 | salt u64 | checksum u64 |

    record     | checksum u64 | mark 4 | length u32 | offset u64 | index in flush u32 | kind u8 | zeros 3 | payload |
                              |<----------------------- what the checksum covers ------------------------->|

Little-endian. Payloads: `stelae/log/records.py`.

What tells an unfinished write from damage. A crash, of the process or of the machine, tears at most the one flush that
was under way, for the next one only begins when the last one is durable. So a record says how many records of its flush
come before it (`index_in_flush`), and a broken record with a whole one of a later flush behind it was once durable:
that is damage, never cut. The checksum is seeded by the segment's salt, so that bytes which a client chose, or which a
disk kept of another file, are never taken for a record.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import xxhash

from stelae.errors import CorruptData
from stelae.log.errors import KEEP
from stelae.log.records import SKIPPED, Payload, Skipped, decode_record
from stelae.storage.paths import segment_name

VERSION = 1  # On disk. Never renumber.
MAGIC = b"\x89STELOG\n"  # On disk. Never change.
RECORD_MARK = b"\xa5LOG"  # On disk. Never change.

SEGMENT_HEADER = struct.Struct("<8sII16s5Q")  # On disk. Never change.
RECORD_HEADER = struct.Struct("<4sIQIB3x")  # On disk. Never change.
CHECKSUM = struct.Struct("<Q")  # On disk. Never change.

SEGMENT_HEADER_BYTES = SEGMENT_HEADER.size + CHECKSUM.size
RECORD_OVERHEAD_BYTES = CHECKSUM.size + RECORD_HEADER.size
"""Of a record without its payload."""

MAX_NUMBER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says of itself and of what came before it."""

    log_id: bytes
    """16 random bytes, the same in all segments of a log: tells a file that strayed in from another table."""
    epoch: int
    """Of the owner who writes it, from 1. One owner an epoch."""
    base: int
    """Offset of its first record: `previous_end` in the epoch's first segment."""
    previous_epoch: int
    """The epoch whose records come before; 0 if there is none."""
    previous_end: int
    """Records of the previous epoch at or above this offset do not count: their writer was fenced before."""
    salt: int
    """Seed of the checksums of its records: 64 random bits."""
    carried: int = 0
    """Records that the file was made with, in one piece: they are never torn."""

    @property
    def name(self) -> str:
        return segment_name(self.epoch, self.base)


def encode_header(header: SegmentHeader) -> bytes:
    """The first bytes of a segment."""
    check_header(header, header.name)
    data = SEGMENT_HEADER.pack(
        MAGIC, VERSION, header.carried, header.log_id, header.epoch, header.base,
        header.previous_epoch, header.previous_end, header.salt,
    )  # fmt: skip
    return data + CHECKSUM.pack(xxhash.xxh3_64_intdigest(data))


def decode_header(data: bytes, place: str) -> SegmentHeader:
    """The header at the start of a segment. `data` may go on; anything off is CorruptData."""
    head = data[: SEGMENT_HEADER.size]
    if len(data) < SEGMENT_HEADER_BYTES or not head.startswith(MAGIC):
        raise CorruptData("the file is no segment of a log", place=_at(place, 0), hint=KEEP)
    if xxhash.xxh3_64_intdigest(head) != CHECKSUM.unpack_from(data, SEGMENT_HEADER.size)[0]:
        raise CorruptData("the checksum of the segment's header is wrong", place=_at(place, 0), hint=KEEP)
    _, version, carried, log_id, epoch, base, previous_epoch, previous_end, salt = SEGMENT_HEADER.unpack(head)
    if version != VERSION:
        raise CorruptData(
            f"version {version} of the log is not known",
            place=place,
            hint=f"this version reads version {VERSION}; a newer one may have written the log",
        )
    header = SegmentHeader(log_id, epoch, base, previous_epoch, previous_end, salt, carried)
    check_header(header, place)
    return header


def check_header(header: SegmentHeader, place: str) -> None:
    """An epoch comes after another one, and its records behind those of the other."""
    if not 0 <= header.previous_epoch < header.epoch:
        raise CorruptData(f"epoch {header.epoch} comes after epoch {header.previous_epoch}", place=place, hint=KEEP)
    if not 0 <= header.previous_end <= header.base <= MAX_NUMBER:
        raise CorruptData(
            f"record {header.base} comes before the end of the previous epoch, {header.previous_end}",
            place=place,
            hint=KEEP,
        )


def encode_flush(payloads: Sequence[Payload], first: int, salt: int) -> bytes:
    """What one flush writes: records with offsets from `first`. If one skips offsets, it is the last."""
    pieces = []
    for index, (kind, data) in enumerate(payloads):
        body = RECORD_HEADER.pack(RECORD_MARK, len(data), first + index, index, kind) + data
        pieces.append(CHECKSUM.pack(xxhash.xxh3_64_intdigest(body, seed=salt)))
        pieces.append(body)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A whole record in a segment."""

    offset: int
    index_in_flush: int
    """Records of the same flush before it."""
    position: int
    """Of its first byte in the file."""
    end: int
    """Of the byte behind it."""
    payload: Payload


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the records of a segment end."""

    offset: int
    """Of the record that would come next."""
    position: int
    torn_bytes: int
    """Bytes behind it: of a flush that was not finished."""


def read_records(
    data: bytes, header: SegmentHeader, until: int | None, place: str
) -> Generator[StoredRecord, None, Tail]:
    """The records of a segment, in order. `data` is the whole file, `place` its name.

    `until`: records below this offset must be there, and what comes behind them does not count. None: the segment is
    the newest one, and its last flush may be torn. All other damage is CorruptData.
    """
    position, offset, count = SEGMENT_HEADER_BYTES, header.base, 0
    while until is None or offset < until:
        record = _record_at(data, position, header.salt)
        if record is None:
            break
        if record.offset != offset:
            raise CorruptData(
                f"record {record.offset} stands where record {offset} belongs", place=_at(place, position), hint=KEEP
            )
        yield record
        position, offset, count = record.end, next_offset(record, place), count + 1
    if until is None and count < header.carried:
        raise CorruptData(
            f"record {offset}, which the segment was made with, is damaged", place=_at(place, position), hint=KEEP
        )
    if until is None:
        _check_nothing_durable_follows(data, position, offset, header.salt, place)
    elif offset < until:
        missing = f"record {offset}" if until == offset + 1 else f"records {offset} to {until - 1}"
        what = "not there" if position == len(data) else "damaged: a checksum is wrong, or the file is cut"
        raise CorruptData(f"{missing}: {what}", place=_at(place, position), hint=KEEP)
    return Tail(offset, position, len(data) - position if until is None else 0)


def next_offset(record: StoredRecord, place: str) -> int:
    """The offset of the record behind one."""
    if record.payload.kind != SKIPPED:
        return record.offset + 1
    skipped = decode_record(record.payload, _at(place, record.position))
    if not isinstance(skipped, Skipped) or skipped.next <= record.offset:
        raise CorruptData(f"record {record.offset} skips backwards", place=_at(place, record.position), hint=KEEP)
    return skipped.next


def _record_at(data: bytes, position: int, salt: int) -> StoredRecord | None:
    """The record at a position, if there is a whole one."""
    body = position + CHECKSUM.size
    start = body + RECORD_HEADER.size
    if start > len(data):
        return None
    mark, length, offset, index_in_flush, kind = RECORD_HEADER.unpack_from(data, body)
    end = start + length
    if mark != RECORD_MARK or end > len(data):
        return None
    if xxhash.xxh3_64_intdigest(memoryview(data)[body:end], seed=salt) != CHECKSUM.unpack_from(data, position)[0]:
        return None
    return StoredRecord(offset, index_in_flush, position, end, Payload(kind, data[start:end]))


def _check_nothing_durable_follows(data: bytes, position: int, offset: int, salt: int, place: str) -> None:
    """Behind a broken record is nothing of a later flush."""
    at = data.find(RECORD_MARK, position)
    while at >= 0:
        record = _record_at(data, at - CHECKSUM.size, salt)
        if record is not None and record.offset - record.index_in_flush > offset:
            raise CorruptData(
                f"record {offset} is damaged, and record {record.offset} behind it, of a later flush, is whole",
                place=_at(place, position),
                hint=KEEP,
            )
        at = data.find(RECORD_MARK, at + 1)


def _at(place: str, position: int) -> str:
    return f"{place}, byte {position}"
