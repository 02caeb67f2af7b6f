"""Replaying the log onto a reader: rows that were inserted since its snapshot become its online rows.

    records ──► some thousand keys ──► the bucket of each ──► those that the snapshot does not show ──► OnlineRows

A record names the bucket that it is of, but not of how many: a build may have chosen another count since. So the bucket
is computed again, from the key. numpy and native calls do it all, for many keys at a time, whether a record has one key
or ten thousand.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from threading import Event

import numpy as np
import pyarrow as pa

from stelae.encoding.partitions import partition_from_json
from stelae.errors import CorruptData, InvalidRequest, Unavailable
from stelae.log.reader import Entry
from stelae.log.records import Inserted
from stelae.read.overlay import ORDINAL_BYTES
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.online_rows import OnlineRows
from stelae.storage.paths import PartitionValue

REPLAY_CHUNK_KEYS = 4096
"""Keys to gather before they are put. Enough for numpy to pay off, and few enough for `put_many`, which holds the GIL,
to take some milliseconds.
"""
NO_ORDINALS = range(0)


def replay(reader: SnapshotReader, entries: Iterable[Entry], *, stop: Event | None = None) -> int:
    """Put the rows of these records into the reader's online rows. Returns how many were put.

    Left out are rows whose key the snapshot shows, and rows of partitions that it does not have. Of equal keys the last
    counts. A record is put as a whole. CorruptData for a record that the table's definition can't read, Unavailable
    soon after `stop` was set; then some have been put.
    """
    if reader.online is None:
        raise InvalidRequest("the reader has no online rows")
    gathered = _Gathered(reader, reader.online)
    schemas = reader.table.rows.schemas
    ordinals: dict[tuple[PartitionValue, ...], range] = {}
    for entry in entries:
        if stop is not None and stop.is_set():
            raise Unavailable("replaying the log was given up")
        record = entry.record
        if not isinstance(record, Inserted):
            continue
        if record.schema_id not in schemas:
            known = ", ".join(map(str, sorted(schemas)))
            raise CorruptData(
                f"record {entry.offset} of the log has schema id {record.schema_id}, which is not known",
                hint=f"schemas of this table: {known}; a newer one may have to be loaded",
            )
        if record.partition not in ordinals:
            ordinals[record.partition] = _ordinals(reader, record.partition, entry.offset)
        gathered.add(record, ordinals[record.partition])
    gathered.put()
    return gathered.rows_put


class _Gathered:
    """Rows in the order of the log, and of each record how many it has and the ordinals of its partition's buckets."""

    def __init__(self, reader: SnapshotReader, online: OnlineRows) -> None:
        self.rows_put = 0
        self._reader = reader
        self._online = online
        self._clear()

    def add(self, record: Inserted, ordinals: range) -> None:
        if ordinals:
            self._keys += record.keys
            self._rows += record.rows
            self._counts.append(len(record.keys))
            self._ordinals.append(ordinals)
            if len(self._keys) >= REPLAY_CHUNK_KEYS:
                self.put()

    def put(self) -> None:
        located, rows = self._located_keys(), self._rows
        shown = self._reader.snapshot_rows_at(located)
        if shown.count(None) < len(shown):
            absent = [index for index, row in enumerate(shown) if row is None]
            located, rows = [located[index] for index in absent], [rows[index] for index in absent]
        self._online.put_many(located, rows)
        self.rows_put += len(rows)
        self._clear()

    def _located_keys(self) -> list[bytes]:
        ordinals = np.repeat([ordinals.start for ordinals in self._ordinals], self._counts).astype(np.int64)
        if any(len(ordinals) > 1 for ordinals in self._ordinals):
            table = self._reader.table
            arrays = table.keys.decode_batch(pa.array(self._keys, pa.binary()))
            by_name = {column.name: array for column, array in zip(table.schema.key_columns, arrays, strict=True)}
            hashes = table.buckets.hash_batch([by_name[column.name] for column in table.schema.bucket_columns])
            ordinals += np.mod(hashes, np.repeat([len(ordinals) for ordinals in self._ordinals], self._counts))
        prefixes = ordinals.astype(f">u{ORDINAL_BYTES}").view(f"V{ORDINAL_BYTES}").tolist()
        return list(map(operator.add, prefixes, self._keys))

    def _clear(self) -> None:
        self._keys: list[bytes] = []
        self._rows: list[bytes] = []
        self._counts: list[int] = []
        self._ordinals: list[range] = []


def _ordinals(reader: SnapshotReader, partition: tuple[PartitionValue, ...], offset: int) -> range:
    """The ordinals of the buckets of a record's partition; none if the snapshot lacks it."""
    try:
        values = partition_from_json(reader.table.schema.partition_columns, partition)
    except (InvalidRequest, ValueError) as exc:
        raise CorruptData(f"record {offset} of the log is of no partition that the table can have: {exc}") from exc
    return reader.ordinals.get(values, NO_ORDINALS)
