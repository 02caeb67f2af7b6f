"""The overlay: online rows above the buckets of a snapshot.

    OverlaidPartition    the open buckets of a partition (PartitionTablets) with online rows above them
    OverlaidTablet       one of its buckets: reads like its tablet

Online rows are those that were written since the snapshot. Of one key counts, in this order: the snapshot's row if it
is visible, the online row, the hidden row (a tombstone). One memtable has the online rows of all buckets, by located
key:

    located key    | bucket ordinal u32, big-endian | key bytes |

The ordinal numbers the buckets of a reader, across its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from stelae.encoding.key_batch import KeyValues
from stelae.encoding.keys import prefix_end
from stelae.encoding.row_header import FLAGS_AT, HIDDEN_FLAG
from stelae.read.partition_tablets import PartitionTablets
from stelae.rocksdb.online_rows import OnlineRows
from stelae.rocksdb.tablet import Tablet

ORDINAL_BYTES = 4
FLAGS, HIDDEN_FLAGS = slice(FLAGS_AT, FLAGS_AT + 1), bytes([HIDDEN_FLAG])
"""Where a stored row says that it is hidden, and how. Row bytes that are cut are left to the decoders."""


@dataclass(frozen=True, slots=True)
class OverlaidPartition:
    """PartitionTablets with online rows above them."""

    folder: str
    values: KeyValues
    bucket_count: int
    tablets: tuple[OverlaidTablet, ...]


AnyPartition = PartitionTablets | OverlaidPartition

Get: TypeAlias = Callable[[bytes], bytes | None]


class OverlaidTablet:
    """A bucket with online rows above it; reads like its tablet."""

    get: Get
    """The row of one key."""

    def __init__(self, tablet: Tablet | None, online: OnlineRows, prefix: bytes) -> None:
        """`prefix` is what the located keys of this bucket begin with (`ordinal_prefix`)."""
        self.directory = tablet.directory if tablet else online.directory
        self._tablet = tablet
        self._online = online
        self._prefix = prefix
        self.get = self._getter()

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them."""
        rows: list[bytes | None] = self._tablet.multi_get(keys) if self._tablet else [None] * len(keys)
        absent = [index for index, row in enumerate(rows) if row is None or row[FLAGS] == HIDDEN_FLAGS]
        if absent:
            prefix = self._prefix
            found = self._online.multi_get([prefix + keys[index] for index in absent])
            for index, row in zip(absent, found, strict=True):
                if row is not None:
                    rows[index] = row
        return rows

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order."""
        prefix, cut = self._prefix, len(self._prefix)
        end = prefix_end(prefix) if upper is None else prefix + upper
        online = ((located[cut:], row) for located, row in self._online.scan(prefix + lower, end))
        above = next(online, None)
        for key, row in self._tablet.scan(lower, upper) if self._tablet else ():
            while above and above[0] < key:
                yield above
                above = next(online, None)
            if above and above[0] == key:
                yield above if row[FLAGS] == HIDDEN_FLAGS else (key, row)
                above = next(online, None)
            else:
                yield key, row
        if above:
            yield above
            yield from online

    def _getter(self) -> Get:
        # The snapshot first: it has most of the keys that are asked for.
        get, prefix = cast("Get", self._online.get), self._prefix
        if self._tablet is None:
            return lambda key: get(prefix + key)
        get_stored = cast("Get", self._tablet.get)

        def get_overlaid(key: bytes) -> bytes | None:
            row = get_stored(key)
            if row is None:
                return get(prefix + key)
            if row[FLAGS] == HIDDEN_FLAGS:
                return get(prefix + key) or row
            return row

        return get_overlaid


def overlay(partition: PartitionTablets, online: OnlineRows, ordinals: Sequence[int]) -> OverlaidPartition:
    """A partition with online rows above it; `ordinals` are those of its buckets."""
    return OverlaidPartition(
        partition.folder,
        partition.values,
        partition.bucket_count,
        tuple(
            OverlaidTablet(tablet, online, ordinal_prefix(ordinal))
            for tablet, ordinal in zip(partition.tablets, ordinals, strict=True)
        ),
    )


def ordinal_prefix(ordinal: int) -> bytes:
    """What the located keys of a bucket begin with."""
    return ordinal.to_bytes(ORDINAL_BYTES, "big")
