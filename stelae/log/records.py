"""Records and segments of the log, version 1: what online writes look like on disk.

Values in, bytes out; `stelae/log/writer.py` has the files. docs/format.md#log is the contract.

    segment    | header, 80 bytes | record | record | ...

    header     | magic 8 | version u32 | carried u32 | log id 16 | epoch u64 | base u64 |
               | previous epoch u64 | previous end u64 | salt u64 | checksum u64 |

    record     | checksum u64 | "\\xa5LOG" | length u32 | offset u64 | place u32 | kind u8 | zeros 3 | payload |
                               |<------------------------- what the checksum covers --------------------->|

    granted    | claim u64 | first id u64 | last id u64 |
    inserted   | schema id u32 | bucket u32 | asked u32 | keys u32 | partition u32 | partition, JSON |
               | ends of the keys u32 ... | ends of the rows u32 ... | bytes of the keys | bytes of the rows |
    skipped    | next offset u64 |

Little-endian. A batch is joined bytes and their ends, which Arrow and numpy turn into lists and back: no Python runs
for each key.

What tells an unfinished write from damage. A crash, of the process or of the machine, tears at most the one flush that
was under way, for the next one only begins when the last one is durable. So a record says how many records of its flush
stand before it (`place`), and a broken record with a whole one of a later flush behind it was once durable: that is
damage, never cut. The checksum is seeded by the segment's salt, so that bytes which a client chose, or which a disk
kept of another file, are never taken for a record.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import xxhash

from stelae.errors import CorruptData, InvalidRequest, TooLarge
from stelae.storage.paths import PartitionValue, segment_name

VERSION = 1  # On disk. Never renumber.
MAGIC = b"\x89STELOG\n"  # On disk. Never change.
MARK = b"\xa5LOG"  # On disk. Never change.
GRANTED, INSERTED, SKIPPED = 1, 2, 3  # On disk. Never renumber.

HEADER = struct.Struct("<8sII16s5Q")  # On disk. Never change.
RECORD = struct.Struct("<4sIQIB3x")  # On disk. Never change.
CHECKSUM = struct.Struct("<Q")  # On disk. Never change.
CLAIM = struct.Struct("<3Q")  # On disk. Never change.
SKIP = struct.Struct("<Q")  # On disk. Never change.
BATCH = struct.Struct("<5I")  # On disk. Never change.
ENDS = struct.Struct("<2I")  # On disk. Never change.

HEADER_BYTES = HEADER.size + CHECKSUM.size
RECORD_BYTES = CHECKSUM.size + RECORD.size
"""Of a record without its payload."""

MAX_PAYLOAD_BYTES = 1 << 30
"""Of one record: a batch for one bucket. Far above what a request may have."""
MAX_NUMBER = (1 << 63) - 1

KEEP = "keep the folder of the log as it is, and restore this file from a copy; nothing is served from a damaged log"


@dataclass(frozen=True, slots=True)
class Granted:
    """The owner holds a claim of ids. Logged before the first of its ids."""

    number: int
    """Of the claim (`stelae/log/id_claims.py`)."""
    first: int
    last: int
    """Ids from `first` to `last`, both included."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """What one request inserted into one bucket: all of it or nothing."""

    schema_id: int
    """The schema that keys and rows are encoded with."""
    partition: tuple[PartitionValue, ...]
    """Values of the partition columns, as in the manifest."""
    bucket: int
    keys: Sequence[bytes]
    """Key bytes (`stelae/encoding/keys.py`) of the new rows, in the order of the request."""
    rows: Sequence[bytes]
    """Row bytes (`stelae/encoding/rows.py`), one for each key."""
    asked: int
    """Keys of this bucket that the client asked for; those that were there already are not in `keys`."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets between this record's and `next` are not given: a snapshot covers them, of records that got lost.

    Written by a LogWriter, when it takes over.
    """

    next: int
    """Offset of the next record."""


Record: TypeAlias = Granted | Inserted | Skipped


class Payload(NamedTuple):
    """An encoded record, before it has an offset."""

    kind: int
    data: bytes


# Records


def encode_record(record: Record) -> Payload:
    """The payload of a record. InvalidRequest if it can't be one, TooLarge if it is more than a record holds."""
    try:
        if isinstance(record, Granted):
            if not record.first <= record.last:
                raise InvalidRequest(f"a claim of ids {record.first} to {record.last} is empty")
            return Payload(GRANTED, CLAIM.pack(record.number, record.first, record.last))
        if isinstance(record, Skipped):
            return Payload(SKIPPED, SKIP.pack(record.next))
        return Payload(INSERTED, _encode_inserted(record))
    except struct.error as exc:
        raise InvalidRequest(f"a number does not fit a record of the log: {exc}") from exc


def encode_insert_of_one(schema_id: int, partition: bytes, bucket: int, key: bytes, row: bytes) -> Payload:
    """`encode_record` of an Inserted with one key, which was all that was asked for; `partition` is its JSON."""
    head = BATCH.pack(schema_id, bucket, 1, 1, len(partition))
    return Payload(INSERTED, b"".join((head, partition, ENDS.pack(len(key), len(row)), key, row)))


def decode_record(payload: Payload, place: str) -> Record:
    """The record in a payload whose checksum is right. CorruptData if it is none that this version knows."""
    kind, data = payload
    try:
        if kind == GRANTED:
            return Granted(*CLAIM.unpack(data))
        if kind == INSERTED:
            return _decode_inserted(data)
        if kind == SKIPPED:
            return Skipped(*SKIP.unpack(data))
    except (ValueError, TypeError, struct.error, orjson.JSONDecodeError) as exc:
        raise CorruptData(f"the checksum of the record is right, but not what it holds: {exc}", place=place) from exc
    raise CorruptData(
        f"a record of kind {kind} is not known", place=place, hint="a newer version of Stelae may have written the log"
    )


def _encode_inserted(record: Inserted) -> bytes:
    count = len(record.keys)
    if len(record.rows) != count or record.asked < count:
        raise InvalidRequest(f"{count} keys, {len(record.rows)} rows and {record.asked} keys asked for do not match")
    key_ends, keys = _pack(record.keys)
    row_ends, rows = _pack(record.rows)
    partition = orjson.dumps(record.partition)
    head = BATCH.pack(record.schema_id, record.bucket, record.asked, count, len(partition))
    return b"".join((head, partition, key_ends, row_ends, keys, rows))


def _decode_inserted(data: bytes) -> Inserted:
    schema_id, bucket, asked, count, partition_bytes = BATCH.unpack_from(data)
    ends_at = BATCH.size + partition_bytes
    keys_at = ends_at + 8 * count
    if keys_at > len(data) or asked < count:
        raise ValueError("its counts are more than its bytes")
    partition = orjson.loads(data[BATCH.size : ends_at])
    if not isinstance(partition, list):
        raise TypeError("its partition is no list")
    ends = np.frombuffer(data, "<u4", 2 * count, ends_at)
    rows_at = keys_at + (int(ends[count - 1]) if count else 0)
    keys = _unpack(ends[:count], data[keys_at:rows_at])
    rows = _unpack(ends[count:], data[rows_at:])
    return Inserted(schema_id, tuple(partition), bucket, keys, rows, asked)


def _pack(pieces: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Where each piece ends, and all of them joined."""
    if len(pieces) == 1:
        return struct.pack("<I", _checked_size(len(pieces[0]))), pieces[0]
    try:
        data = b"".join(pieces)
    except TypeError as exc:
        raise InvalidRequest("a key or a row is null") from exc
    _checked_size(len(data))
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return ends.astype("<u4").tobytes(), data


def _unpack(ends: np.ndarray[tuple[int], np.dtype[np.uint32]], data: bytes) -> list[bytes]:
    count = len(ends)
    if count < 2:
        if len(data) != (int(ends[0]) if count else 0):
            raise ValueError("its lengths do not add up")
        return [data] * count
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends
    if offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
        raise ValueError("its lengths do not add up")
    array = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    pieces: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return pieces


def _checked_size(count: int) -> int:
    if count > MAX_PAYLOAD_BYTES // 2:
        raise _too_large(count)
    return count


def _too_large(count: int) -> TooLarge:
    return TooLarge(
        f"{count:,} bytes of keys or rows are too many for one record of the log",
        hint=f"send fewer keys at a time; the limit is {MAX_PAYLOAD_BYTES // 2:,} bytes",
    )


# Flushes


def encode_flush(payloads: Sequence[Payload], first: int, salt: int) -> bytes:
    """What one flush writes: records with offsets from `first`. If one skips offsets, it is the last."""
    pieces = []
    for place, (kind, data) in enumerate(payloads):
        body = RECORD.pack(MARK, len(data), first + place, place, kind) + data
        pieces.append(CHECKSUM.pack(xxhash.xxh3_64_intdigest(body, seed=salt)))
        pieces.append(body)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole record in a segment."""

    offset: int
    place: int
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


def read_frames(data: bytes, header: SegmentHeader, until: int | None, place: str) -> Generator[Frame, None, Tail]:
    """The records of a segment, in order. `data` is the whole file, `place` its name.

    `until`: records below this offset must be there, and what comes behind them does not count. None: the segment is
    the newest one, and its last flush may be torn. All other damage is CorruptData.
    """
    position, offset, count = HEADER_BYTES, header.base, 0
    while until is None or offset < until:
        frame = _frame_at(data, position, header.salt)
        if frame is None:
            break
        if frame.offset != offset:
            raise CorruptData(
                f"record {frame.offset} stands where record {offset} belongs", place=_at(place, position), hint=KEEP
            )
        yield frame
        position, offset, count = frame.end, next_offset(frame, place), count + 1
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


def next_offset(frame: Frame, place: str) -> int:
    """The offset of the record behind one."""
    if frame.payload.kind != SKIPPED:
        return frame.offset + 1
    record = decode_record(frame.payload, _at(place, frame.position))
    if not isinstance(record, Skipped) or record.next <= frame.offset:
        raise CorruptData(f"record {frame.offset} skips backwards", place=_at(place, frame.position), hint=KEEP)
    return record.next


def _frame_at(data: bytes, position: int, salt: int) -> Frame | None:
    """The record at a position, if there is a whole one."""
    body = position + CHECKSUM.size
    start = body + RECORD.size
    if start > len(data):
        return None
    mark, length, offset, flush_place, kind = RECORD.unpack_from(data, body)
    end = start + length
    if mark != MARK or end > len(data):
        return None
    if xxhash.xxh3_64_intdigest(memoryview(data)[body:end], seed=salt) != CHECKSUM.unpack_from(data, position)[0]:
        return None
    return Frame(offset, flush_place, position, end, Payload(kind, data[start:end]))


def _check_nothing_durable_follows(data: bytes, position: int, offset: int, salt: int, place: str) -> None:
    """Behind a broken record is nothing of a later flush."""
    at = data.find(MARK, position)
    while at >= 0:
        frame = _frame_at(data, at - CHECKSUM.size, salt)
        if frame is not None and frame.offset - frame.place > offset:
            raise CorruptData(
                f"record {offset} is damaged, and record {frame.offset} behind it, of a later flush, is whole",
                place=_at(place, position),
                hint=KEEP,
            )
        at = data.find(MARK, at + 1)


def _at(place: str, position: int) -> str:
    return f"{place}, byte {position}"


# Segments


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
    """Records of the previous epoch at or above this offset do not count: their writer had been replaced."""
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
    data = HEADER.pack(
        MAGIC, VERSION, header.carried, header.log_id, header.epoch, header.base,
        header.previous_epoch, header.previous_end, header.salt,
    )  # fmt: skip
    return data + CHECKSUM.pack(xxhash.xxh3_64_intdigest(data))


def decode_header(data: bytes, place: str) -> SegmentHeader:
    """The header at the start of a segment. `data` may go on; anything off is CorruptData."""
    head = data[: HEADER.size]
    if len(data) < HEADER_BYTES or not head.startswith(MAGIC):
        raise CorruptData("the file is no segment of a log", place=_at(place, 0), hint=KEEP)
    if xxhash.xxh3_64_intdigest(head) != CHECKSUM.unpack_from(data, HEADER.size)[0]:
        raise CorruptData("the checksum of the segment's header is wrong", place=_at(place, 0), hint=KEEP)
    _, version, carried, log_id, epoch, base, previous_epoch, previous_end, salt = HEADER.unpack(head)
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


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as far as it counts."""

    header: SegmentHeader
    until: int | None
    """Its records up to this offset count, and are there. None: all of them; it is the newest segment."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Which segments count, as their headers say it. `outline` makes it."""

    start: int
    """Records from this offset on are there. Those below were removed, or never were."""
    parts: tuple[Part, ...]
    """In the order of their records. Empty: there is no log yet."""
    ignored: tuple[SegmentHeader, ...]
    """Segments without any record that counts: of writers that had been replaced."""


def outline(headers: Sequence[SegmentHeader], folder: str) -> Outline:
    """The segments that count: from the newest epoch back, as each epoch names the one before it.

    `headers` are those of all segments in a folder; its name is for errors. A writer that was replaced may have written
    anything since, segments too; what its successor says of it decides. CorruptData when segments contradict each
    other, or one is not there although older ones are.
    """
    epochs: dict[int, list[SegmentHeader]] = {}
    for header in sorted(headers, key=lambda header: (header.epoch, header.base)):
        epochs.setdefault(header.epoch, []).append(header)
    parts: list[Part] = []
    start, epoch, until = 0, max(epochs, default=0), None
    while epoch in epochs:
        group = epochs[epoch]
        check_one_log([*group, *(part.header for part in parts)], folder)
        check_one_epoch(group, folder)
        counted = [header for header in group if until is None or header.base < until]
        bounds = [*(header.base for header in counted[1:]), until]
        parts[:0] = map(Part, counted, bounds)
        begin = counted[0].base if counted else until
        first = group[0]
        start, epoch, until = first.previous_end, first.previous_epoch, first.previous_end
        if begin is not None and begin > first.previous_end:
            # The epoch's first segments were removed, and with them all that came before.
            check_nothing_before(epochs.get(epoch, ()), first, begin, folder)
            start = begin
            break
    counts = {part.header for part in parts}
    return Outline(start, tuple(parts), tuple(header for header in headers if header not in counts))


def check_one_log(headers: Sequence[SegmentHeader], folder: str) -> None:
    """All segments are of one log."""
    for header in headers:
        if header.log_id != headers[-1].log_id:
            raise CorruptData(
                f"the segment is of another table's log than {headers[-1].name}",
                place=f"{folder}/{header.name}",
                hint=KEEP,
            )


def check_one_epoch(headers: Sequence[SegmentHeader], folder: str) -> None:
    """The segments of an epoch say the same of what came before it."""
    first = headers[0]
    for header in headers:
        if (header.previous_epoch, header.previous_end) != (first.previous_epoch, first.previous_end):
            raise CorruptData(
                f"the segment and {first.name} say different things of the epoch before them",
                place=f"{folder}/{header.name}",
                hint=KEEP,
            )


def check_nothing_before(former: Sequence[SegmentHeader], first: SegmentHeader, begin: int, folder: str) -> None:
    """Segments are removed oldest first: if one is gone, so are all before it."""
    if any(header.base < first.previous_end for header in former):
        raise CorruptData(
            f"records {first.previous_end} to {begin - 1} of epoch {first.epoch} are not there, but older ones are",
            place=f"{folder}/{segment_name(first.epoch, first.previous_end)}",
            hint="a segment is lacking; " + KEEP,
        )


def removable(plan: Outline, covered: int) -> tuple[SegmentHeader, ...]:
    """Segments that nobody needs when snapshots hold all records below `covered`, in the order to remove them.

    That order leaves a log that reads from some offset on, wherever it is cut off. The newest segment always stays: it
    says where the log ends. Segments that were ignored go with the epochs that say so.
    """
    gone: list[SegmentHeader] = []
    for part in plan.parts:
        if part.until is None or part.until > covered:
            gone += [header for header in plan.ignored if header.epoch < part.header.epoch]
            break
        gone.append(part.header)
    return tuple(gone)
