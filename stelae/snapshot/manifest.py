"""A snapshot as a value: which files make up a table at one moment.

    Snapshot                     one commit: snapshot/snapshot-<id>.json
    └── PartitionFiles           a partition and its bucket count; without partition columns exactly one, without values
        └── BucketFiles          every bucket, in order, also those without rows
            └── DataFile         a sorted file; a bucket's files are sorted runs, oldest first: of a key in two files
                                 the last counts

docs/format.md#snapshot-manifest is the contract. manifest_checks.py has the invariants, manifest_json.py the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from stelae.storage.paths import PartitionValue

if TYPE_CHECKING:
    from stelae.encoding.keys import KeyBytes

MANIFEST_FORMAT = 1  # On disk. Never renumber.

SnapshotKind = Literal["merge", "overwrite", "rollback", "fence"]  # On disk. Never rename.


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over files. Derived from the files; stored for people, and checked against them."""

    rows: int
    """Stored rows. A key that is in several sorted runs counts once for each."""
    hidden_rows: int
    """Those of them that are tombstones."""
    files: int
    bytes: int

    @property
    def visible_rows(self) -> int:
        """Rows without the tombstones: exact where each bucket is one sorted run, else too many."""
        return self.rows - self.hidden_rows


@dataclass(frozen=True, slots=True)
class DataFile:
    """A sorted file. Written once by one builder task, never changed, named by any number of snapshots."""

    path: str
    """`[<partition folder>/]bucket-<bucket>/sst-<uuid>.sst` of its own bucket, relative to the table's folder."""
    bytes: int
    """Size of the file, at least 1."""
    checksum: str
    """Of the whole file, `xxh3-128:` and 32 hexadecimal digits. Readers verify it while they copy the file."""
    rows: int
    """Rows in the file, hidden ones included; at least 1: a bucket without rows has no file."""
    hidden_rows: int
    """Tombstones among them: kept for later merges, never shown."""
    first_key: KeyBytes
    """Smallest key. In JSON hexadecimal. A reader may use both keys to skip the file, or ignore them."""
    last_key: KeyBytes
    """Largest key. In JSON hexadecimal."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The files of one bucket."""

    bucket: int
    """From 0; the position in `PartitionFiles.buckets`."""
    files: tuple[DataFile, ...]
    """Sorted runs, oldest first; each file is a run of its own. Empty when the bucket has no rows."""
    log_offset: int = 0
    """Records of the table's log below this offset are in the files, as far as they are of this bucket. 0 as long as a
    table takes no online writes.
    """

    @property
    def totals(self) -> Totals:
        return totals_of(self.files)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition."""

    values: tuple[PartitionValue, ...]
    """Values of the partition columns, in their order, as `stelae/encoding/values.py` prints them for JSON."""
    bucket_count: int
    """What the bucket hash is taken modulo of, in this partition. Readers take it from here, never from an option."""
    buckets: tuple[BucketFiles, ...]
    """All of them: `bucket_count` entries, number 0 first."""
    folder: str = ""
    """`paths.partition_folder` of columns and values; '' without partitions."""

    @property
    def files(self) -> Iterator[DataFile]:
        return (file for bucket in self.buckets for file in bucket.files)

    @property
    def totals(self) -> Totals:
        return totals_of(self.files)


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table. Written by the builder's driver (or by `rollback`), read by everybody."""

    table: str
    """`database.table` at the time of writing. For people; a reader goes by the folder."""
    id: int
    """From 1, one more than the parent's. The number in the file's name."""
    parent: int | None
    """The snapshot before this one; null for the first."""
    schema_id: int
    """The schema that this snapshot was built with. Rows of older files may name older ones."""
    build_id: str
    """Names the attempt that wrote it. A writer that lost the answer to its commit knows its own manifest by it."""
    kind: SnapshotKind
    """merge: on top of the parent's rows; overwrite: instead of them; rollback: the files of an older snapshot; fence:
    those of the parent, put by a new owner of the table to take the number from a build that may still come.
    """
    created_ms: int
    """When it was made, by the writer's clock: milliseconds since 1970-01-01 UTC. For people; orders nothing."""
    partitions: tuple[PartitionFiles, ...]
    """In any order, each once. A partition that is not here has no rows."""
    versions: Mapping[str, str]
    """Software that wrote the files, `{"stelae": "0.1.0", "spark": "4.3.0"}`. For people; a reader may ignore it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Free text by name. A reader may ignore it. `rollback.to`: the snapshot that a rollback went back to."""
    format: int = MANIFEST_FORMAT

    @cached_property
    def totals(self) -> Totals:
        return totals_of(self.files)

    @property
    def files(self) -> Iterator[DataFile]:
        """All files, partition by partition, bucket by bucket."""
        return (file for partition in self.partitions for file in partition.files)

    @property
    def log_offset(self) -> int:
        """Records of the table's log below this offset are in the files: of all buckets, the least that one says."""
        return min((b.log_offset for partition in self.partitions for b in partition.buckets), default=0)

    @cached_property
    def by_values(self) -> Mapping[tuple[PartitionValue, ...], PartitionFiles]:
        """Partitions by the values of the partition columns."""
        return {partition.values: partition for partition in self.partitions}


def totals_of(files: Iterable[DataFile]) -> Totals:
    """The sums over some files."""
    rows = hidden_rows = count = size = 0
    for file in files:
        rows += file.rows
        hidden_rows += file.hidden_rows
        count += 1
        size += file.bytes
    return Totals(rows, hidden_rows, count, size)
