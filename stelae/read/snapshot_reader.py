"""One snapshot, open: which rows a key, many keys or a prefix have.

    key values ──► partition ──► bucket ──► key bytes ──► tablet.get ──► row bytes ──► JSON      lookup
    many keys  ──► by bucket ──► tablet.multi_get, or one hash index    ──► row bytes            lookup_many, rows_of
    prefix     ──► `stelae/read/prefix_scan.py`                                                  prefix_lookup

Answers are JSON-ready (`stelae/encoding/values.py` says how each type looks). The path of a single key takes three
microseconds; what can be prepared per table or per selection of columns is prepared once: see
`stelae/read/table_reader.py` and `stelae/read/projection.py`.

Above the snapshot there may be online rows, those written since (`stelae/read/overlay.py`). A reader without them knows
nothing of all that: what it asks are the tablets themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.byte_cursor import Mask
from stelae.encoding.key_batch import Indexes, KeyColumns, KeyLayout, KeyValues, grouped
from stelae.encoding.row_header import hidden_mask
from stelae.errors import CorruptData, StelaeError, TooLarge
from stelae.read.hash_index import HashIndex
from stelae.read.overlay import (
    FLAGS,
    HIDDEN_FLAGS,
    ORDINAL_BYTES,
    AnyPartition,
    OverlaidTablet,
    ordinal_prefix,
    overlay,
)
from stelae.read.partition_tablets import PartitionTablets
from stelae.read.prefix_scan import PrefixesScan, PrefixScan, RowPage
from stelae.read.projection import JsonRow, Projection
from stelae.read.table_reader import TableReader
from stelae.rocksdb.online_rows import OnlineRows
from stelae.rocksdb.tablet import Tablet
from stelae.snapshot.manifest import Snapshot
from stelae.storage.paths import PartitionValue

INDEXED_KEYS = 64
"""So many keys at a time are faster through a hash index than through RocksDB."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of the reader, by its ordinal."""

    tablet: Tablet | None
    partition: tuple[PartitionValue, ...]
    """As in the manifest."""
    bucket: int
    """Within the partition."""


class SnapshotReader:
    """One snapshot, open. Immutable but for the online rows: a newer snapshot is another reader."""

    find: Callable[[KeyValues], bytes | None]
    """The stored row of one key; None when there is none. Valid as long as the reader is."""

    locate: Callable[[KeyValues], bytes | None]
    """The located key of one key, whether there is a row or not; None when there is no such partition."""

    def __init__(
        self,
        table: TableReader,
        snapshot: Snapshot,
        partitions: Sequence[PartitionTablets],
        online: OnlineRows | None = None,
    ) -> None:
        self.table = table
        self.snapshot = snapshot
        self.id = snapshot.id
        self.log_offset = snapshot.log_offset
        """Records of the table's log below this offset are in the snapshot."""
        self.partitions = {partition.values: partition for partition in partitions}
        self.online = online
        self.ordinals = _ordinals(partitions)
        """By the values of the partition: the ordinals of its buckets."""
        overlaid: Sequence[AnyPartition] = partitions
        if online is not None:
            overlaid = [overlay(partition, online, self.ordinals[partition.values]) for partition in partitions]
        self._buckets = _buckets(snapshot, partitions)
        self._overlaid = {partition.values: partition for partition in overlaid}
        self._by_bytes = {_partition_bytes(table.layout, partition.values): partition for partition in partitions}
        self._unpartitioned = partitions[0] if not table.schema.partition_keys and partitions else None
        self._has_hidden = snapshot.totals.hidden_rows > 0
        self._single = overlaid[0] if not table.schema.partition_keys and overlaid else None
        self.find = self._finder()
        self.locate = self._locator()

    def with_online(self, online: OnlineRows | None) -> SnapshotReader:
        """A reader of the same tablets with these online rows, or without."""
        return SnapshotReader(self.table, self.snapshot, list(self.partitions.values()), online)

    def lookup(self, key: KeyValues, projection: Projection) -> JsonRow | None:
        """The row of one key; None when there is none."""
        row = self.find(key)
        return None if row is None else projection.row(key, row)

    def lookup_many(self, keys: Sequence[KeyValues], projection: Projection) -> list[JsonRow | None]:
        """The rows of many keys, aligned with them: one native multi-get a bucket."""
        answers: list[JsonRow | None] = [None] * len(keys)
        make = projection.row
        hashed = self._only_index(len(keys))
        if hashed is not None:
            encode, key_of = self.table.keys.encode, self.table.key_of
            stored = self._visible(hashed, [encode(key_of(key)) for key in keys])
            stored = self._or_online(stored, lambda at: self.locate(keys[at]))
            return [None if row is None else make(key, row) for key, row in zip(keys, stored, strict=True)]
        for tablet, indexes, encoded in self._by_tablet(keys):
            try:
                rows = tablet.multi_get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc
            for index, row in zip(indexes, rows, strict=True):
                if row is not None:
                    answers[index] = make(keys[index], row)
        return answers

    def rows_of(self, keys: KeyColumns) -> pa.Array:
        """Row bytes of the visible rows of many keys, aligned with them: a BinaryArray, null where there is no row."""
        found: list[pa.Array] = []
        positions: list[Indexes] = []
        key_bytes = np.array(keys.key_bytes, np.object_)
        for values, of_partition in keys.by_partition():
            partition = self._by_bytes.get(values)
            where = np.arange(len(keys)) if of_partition is None else of_partition
            if partition is None:
                found.append(pa.nulls(len(where), pa.binary()))
                positions.append(where)
            elif (index := self._index_for(partition, len(where))) is not None:
                some = keys.key_bytes if of_partition is None else key_bytes[of_partition].tolist()
                found.append(index.rows_of(some))
                positions.append(where)
            else:
                count = partition.bucket_count
                for bucket, indexes in grouped(np.mod(keys.hashes[where], count), count):
                    positions.append(where[indexes])
                    found.append(self._multi_get(partition.tablets[bucket], key_bytes[positions[-1]].tolist()))
        if len(found) == 1:
            rows = found[0]
        else:
            rows = pa.concat_arrays(found) if found else pa.array([], pa.binary())
            back = np.empty(len(rows), np.intp)
            back[np.concatenate([*positions, np.empty(0, np.intp)])] = np.arange(len(rows))
            rows = rows.take(pa.array(back))
        if self._has_hidden:
            rows = self.without_hidden(rows)
        return rows if self.online is None or not rows.null_count else self._with_online(keys, rows)

    @property
    def hash_index_bytes(self) -> int:
        """Of the hash indexes that its partitions have."""
        return sum(each.index.made.bytes for each in self.partitions.values() if each.index.made is not None)

    @property
    def is_indexed(self) -> bool:
        """Whether batches of any keys go through one hash index."""
        return self._unpartitioned is not None and self._unpartitioned.index.made is not None

    def _index_for(self, partition: PartitionTablets, count: int) -> HashIndex | None:
        """The hash index of a partition, if there is one and so many keys are worth its fixed cost."""
        return partition.index.made if count >= INDEXED_KEYS else None

    def _only_index(self, count: int) -> HashIndex | None:
        """That of a table without partitions, for so many keys."""
        return None if self._unpartitioned is None else self._index_for(self._unpartitioned, count)

    def _visible(self, index: HashIndex, keys: list[bytes]) -> list[bytes | None]:
        """The visible rows that an index has of keys, aligned with them."""
        rows = index.rows_of(keys)
        visible: list[bytes | None] = (self.without_hidden(rows) if self._has_hidden else rows).to_pylist()
        return visible

    def _or_online(self, rows: list[bytes | None], located: Callable[[int], bytes | None]) -> list[bytes | None]:
        """Visible rows, and online ones where there is none; `located` gives the located key of each."""
        if self.online is None:
            return rows
        wanted = {at: key for at, row in enumerate(rows) if row is None and (key := located(at)) is not None}
        if not wanted:
            return rows
        try:
            found = self.online.multi_get(list(wanted.values()))
        except Exception as exc:
            raise _read_error(exc, self.online) from exc
        for at, row in zip(wanted, found, strict=True):
            rows[at] = row
        return rows

    def _multi_get(self, tablet: Tablet | None, keys: list[bytes]) -> pa.Array:
        if tablet is None:
            return pa.nulls(len(keys), pa.binary())
        try:
            rows = pa.array(tablet.multi_get(keys), pa.binary())
        except Exception as exc:
            raise _read_error(exc, tablet) from exc
        if isinstance(rows, pa.ChunkedArray):
            raise TooLarge(f"the rows of {len(keys):,} keys take more than 2 GiB", hint="ask for fewer keys at a time")
        return rows

    def _with_online(self, keys: KeyColumns, rows: pa.Array) -> pa.Array:
        """Rows with those that are online in place of nulls."""
        absent = rows.is_null()
        located_keys = self._located_keys(keys.taken(np.flatnonzero(absent.to_numpy(zero_copy_only=False))))
        online = self._or_online([None] * len(located_keys), located_keys.__getitem__)
        return pc.replace_with_mask(rows, absent, pa.array(online, pa.binary()))

    def without_hidden(self, rows: pa.Array) -> pa.Array:
        """Row bytes with null in place of hidden rows."""
        hidden: Mask = hidden_mask(rows)
        return pc.if_else(pa.array(hidden), None, rows) if hidden.any() else rows

    def prefix_lookup(
        self, prefix: Mapping[str, Any], projection: Projection, limit: int, page_token: str | None = None
    ) -> RowPage:
        """Rows whose key starts with `prefix`, in key order, partition by partition.

        `prefix` comes from `TableReader.prefix_from_json`. A prefix with all bucket-key columns asks one bucket,
        another one all buckets of the partition.
        """
        scan = self.prefix_scan(prefix, projection, limit, page_token)
        rows: list[JsonRow] = []
        while not scan.done:
            rows += scan.step(limit)
        return RowPage(rows, scan.next_page_token)

    def prefix_scan(
        self, prefix: Mapping[str, Any], projection: Projection, limit: int, page_token: str | None = None
    ) -> PrefixScan:
        """The same step by step, for callers that have other things to do in between."""
        return PrefixScan(self.table, self._overlaid, prefix, projection, limit, page_token)

    def prefixes_scan(
        self, prefixes: Sequence[Mapping[str, Any]], limit: int, page_token: str | None = None
    ) -> PrefixesScan:
        """Rows of many prefixes, one prefix after the other, step by step: for answers in Arrow."""
        return PrefixesScan(self.table, self._overlaid, prefixes, limit, page_token)

    def locate_many(self, keys: Sequence[KeyValues]) -> list[bytes | None]:
        """The located keys of many keys, aligned with them."""
        return self._located_keys(keys) if isinstance(keys, KeyColumns) else list(map(self.locate, keys))

    def _located_keys(self, keys: KeyColumns) -> list[bytes | None]:
        located_keys: list[bytes | None] = [None] * len(keys)
        for values, of_partition in keys.by_partition():
            partition = self._by_bytes.get(values)
            if partition is None:
                continue
            ordinals = self.ordinals[partition.values]
            prefixes = np.array([ordinal_prefix(ordinal) for ordinal in ordinals], np.object_)
            hashes = keys.hashes if of_partition is None else keys.hashes[of_partition]
            starts = prefixes[np.mod(hashes, len(ordinals))].tolist()
            if of_partition is None:
                return list(map(add, starts, keys.key_bytes))
            for index, start in zip(of_partition.tolist(), starts, strict=True):
                located_keys[index] = start + keys.key_bytes[index]
        return located_keys

    def rows_at(self, located_keys: Sequence[bytes]) -> list[bytes | None]:
        """Row bytes of the visible rows of these located keys, aligned with them; None where there is none.

        One native multi-get a bucket, and one of the online rows.
        """
        return self._or_online(self.snapshot_rows_at(located_keys), located_keys.__getitem__)

    def snapshot_rows_at(self, located_keys: Sequence[bytes]) -> list[bytes | None]:
        """The same of the snapshot alone."""
        hashed = self._only_index(len(located_keys))
        if hashed is not None:
            return self._visible(hashed, [key[ORDINAL_BYTES:] for key in located_keys])
        rows: list[bytes | None] = [None] * len(located_keys)
        groups: dict[bytes, list[int]] = {}
        for index, key in enumerate(located_keys):
            groups.setdefault(key[:ORDINAL_BYTES], []).append(index)
        for prefix, indexes in groups.items():
            tablet = self._buckets[int.from_bytes(prefix, "big")].tablet
            if tablet is None:
                continue
            try:
                found = tablet.multi_get([located_keys[index][ORDINAL_BYTES:] for index in indexes])
            except Exception as exc:
                raise _read_error(exc, tablet) from exc
            for index, row in zip(indexes, found, strict=True):
                if row is not None and row[FLAGS] != HIDDEN_FLAGS:
                    rows[index] = row
        return rows

    def visible_rows(self, most: int) -> Iterator[list[bytes]]:
        """Row bytes of all visible rows, in lists of at most `most`."""
        for partition in self._overlaid.values():
            for tablet in partition.tablets:
                scan = iter(()) if tablet is None else tablet.scan()
                while chunk := list(islice(scan, most)):
                    yield [row for _, row in chunk if row[FLAGS] != HIDDEN_FLAGS]

    def log_address(self, located_key: bytes) -> tuple[tuple[PartitionValue, ...], int, bytes]:
        """What the log says instead of a located key: partition values as in the manifest, bucket, key bytes."""
        found = self._buckets[int.from_bytes(located_key[:ORDINAL_BYTES], "big")]
        return found.partition, found.bucket, located_key[ORDINAL_BYTES:]

    def _finder(self) -> Callable[[KeyValues], bytes | None]:
        table = self.table
        encode, hash_of = table.keys.encode, table.buckets.hash
        partition_of, key_of, bucketed_of = table.partition_of, table.key_of, table.bucketed_of
        partitions = {
            values: (tuple(tablet or _EMPTY for tablet in partition.tablets), partition.bucket_count)
            for values, partition in self._overlaid.items()
        }
        tablets, count = partitions.get((), ((_EMPTY,), 1))

        def find(key: KeyValues) -> bytes | None:
            found = partitions.get(partition_of(key))
            if found is None:
                return None
            tablets, count = found
            tablet = tablets[hash_of(bucketed_of(key)) % count]
            encoded = encode(key_of(key))
            try:
                return tablet.get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc

        def find_by_whole_key(key: KeyValues) -> bytes | None:
            tablet = tablets[hash_of(key) % count]
            encoded = encode(key)
            try:
                return tablet.get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc

        return find_by_whole_key if table.is_plain else find

    def _locator(self) -> Callable[[KeyValues], bytes | None]:
        table = self.table
        encode, hash_of = table.keys.encode, table.buckets.hash
        partition_of, key_of, bucketed_of = table.partition_of, table.key_of, table.bucketed_of
        partitions = {values: tuple(map(ordinal_prefix, ordinals)) for values, ordinals in self.ordinals.items()}

        def locate(key: KeyValues) -> bytes | None:
            prefixes = partitions.get(partition_of(key))
            if prefixes is None:
                return None
            return prefixes[hash_of(bucketed_of(key)) % len(prefixes)] + encode(key_of(key))

        if not partitions or not table.is_plain:
            return locate
        single = partitions[()]
        count = len(single)
        return lambda key: single[hash_of(key) % count] + encode(key)

    def _by_tablet(self, keys: Sequence[KeyValues]) -> Iterator[tuple[Tablet | OverlaidTablet, list[int], list[bytes]]]:
        table = self.table
        groups: dict[int, tuple[Tablet | OverlaidTablet, list[int], list[bytes]]] = {}
        encode, key_of, bucket, bucketed_of = table.keys.encode, table.key_of, table.buckets.bucket, table.bucketed_of
        for index, key in enumerate(keys):
            partition = self._single or self._overlaid.get(table.partition_of(key))
            if partition is None:
                continue
            tablet = partition.tablets[bucket(bucketed_of(key), partition.bucket_count)]
            if tablet is None:
                continue
            group = groups.get(id(tablet))
            if group is None:
                group = groups[id(tablet)] = (tablet, [], [])
            group[1].append(index)
            group[2].append(encode(key_of(key)))
        return iter(groups.values())


def _partition_bytes(layout: KeyLayout, values: KeyValues) -> bytes:
    return layout.partitions.encode(values) if layout.partitions else b""


def _ordinals(partitions: Sequence[PartitionTablets]) -> dict[KeyValues, range]:
    ordinals = {}
    end = 0
    for partition in partitions:
        first, end = end, end + partition.bucket_count
        ordinals[partition.values] = range(first, end)
    return ordinals


def _buckets(snapshot: Snapshot, partitions: Sequence[PartitionTablets]) -> list[Bucket]:
    """All buckets, by ordinal."""
    values = {partition.folder: partition.values for partition in snapshot.partitions}
    return [
        Bucket(tablet, values[partition.folder], bucket)
        for partition in partitions
        for bucket, tablet in enumerate(partition.tablets)
    ]


class _EmptyTablet:
    """Stands for a bucket without files."""

    directory = None

    def get(self, key: bytes) -> bytes | None:  # noqa: ARG002
        return None


_EMPTY = _EmptyTablet()


def _read_error(exc: Exception, tablet: Tablet | OverlaidTablet | OnlineRows | _EmptyTablet) -> Exception:
    """RocksDB verifies the checksum of each block that it reads: a disk may go bad long after a file was loaded."""
    if isinstance(exc, StelaeError) or not str(exc).startswith("Corruption"):
        return exc
    return CorruptData(
        f"RocksDB can't read a sorted file: {exc}",
        place=str(tablet.directory),
        hint="keep the file; restart the server, which verifies all files, or roll back: stelae rollback",
    )
