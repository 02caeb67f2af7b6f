"""The open buckets of one partition of a snapshot, and where its hash index appears."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.encoding.key_batch import KeyValues
from stelae.read.hash_index import HashIndex
from stelae.rocksdb.tablet import Tablet


@dataclass(frozen=True, slots=True)
class PartitionTablets:
    """The open buckets of one partition; None where a bucket is empty."""

    folder: str
    values: KeyValues
    """Physical partition values."""
    bucket_count: int
    tablets: tuple[Tablet | None, ...]
    rows: int = 0
    """Stored rows, hidden ones too."""
    index: PartitionIndex = field(default_factory=lambda: PartitionIndex())


class PartitionIndex:
    """Where the hash index of a partition appears when somebody has made it. Shared by all readers of its tablets.

    The only thing of a reader that changes, and no answer with it: an index says what the tablets say, sooner. To swap
    the reader instead would send inserts that are under way round again, and drop what is kept for each reader (parsed
    queries, pins, what followers know), once for each partition of a table.
    """

    def __init__(self) -> None:
        self.made: HashIndex | None = None
