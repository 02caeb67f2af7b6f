"""Records of the log, version 1: what an online write says.

Values in, bytes out. `stelae/log/segments.py` puts records into files; docs/format.md#log is the contract.

    granted    | claim u64 | first id u64 | last id u64 |
    inserted   | schema id u32 | bucket u32 | asked u32 | keys u32 | partition u32 | partition, JSON |
               | ends of the keys u32 ... | ends of the rows u32 ... | bytes of the keys | bytes of the rows |
    skipped    | next offset u64 |

Little-endian. A batch is joined bytes and their ends, which Arrow and numpy turn into lists and back: no Python runs
for each key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from stelae.errors import CorruptData, InvalidRequest, TooLarge
from stelae.storage.paths import PartitionValue

GRANTED, INSERTED, SKIPPED = 1, 2, 3  # On disk. Never renumber.

CLAIM = struct.Struct("<3Q")  # On disk. Never change.
SKIP = struct.Struct("<Q")  # On disk. Never change.
BATCH = struct.Struct("<5I")  # On disk. Never change.
ENDS = struct.Struct("<2I")  # On disk. Never change.

MAX_PAYLOAD_BYTES = 1 << 30
"""Of one record: a batch for one bucket. Far above what a request may have."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The owner holds a claim of ids. Logged before the first of its ids."""

    number: int
    """Of the claim (`stelae/ownership/id_claims.py`)."""
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
