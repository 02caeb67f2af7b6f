"""What a leader and a follower tell each other: values that go through `channel.py`.

    leader ──► follower     Begin; TableState: what to serve, which snapshots are open, whose misses are forwarded; Ask;
                            Drain
    follower ──► leader     Report

A message is the whole state of one table, so that one that is missed, or a follower that starts anew, is no special
case. A snapshot is described by its folders (`OpenFolders`) once a follower, and by its name from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stelae.read.snapshot_reader import SnapshotReader
from stelae.schema.table_schema import TableSchema
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import WorkerCounts
from stelae.snapshot.manifest import Snapshot

SnapshotName = tuple[int, int, str]
"""Snapshot, schema, and a digest of the folders: snapshots of one table with the same name read alike."""


@dataclass(frozen=True, slots=True)
class OpenFolders:
    """A snapshot that the leader has open."""

    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    snapshot: Snapshot
    tablets: Sequence[Sequence[Path | None]]
    """Folders of the tablets of each bucket, partition by partition, in the order of the snapshot."""


@dataclass(frozen=True, slots=True)
class TableState:
    """How a table is to be served."""

    number: int
    """Messages to one follower are numbered."""
    table: str
    current: SnapshotName | None
    open: Sequence[SnapshotName]
    """All that are open, the current one included."""
    forwarding: frozenset[SnapshotName]
    """Those above which there may be rows that only the leader has."""
    new: Mapping[SnapshotName, OpenFolders]
    """Those that the follower was not told of before."""
    indexes: Mapping[SnapshotName, Sequence[Path | None]]
    """Folders of the hash indexes that are made, of all that are open, partition by partition."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message to a follower."""

    options: ServerOptions
    block_cache_bytes: int
    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Wants a Report."""

    number: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what is under way, then end."""


@dataclass(frozen=True, slots=True)
class Report:
    """Acknowledges a TableState that is served from now on, and answers an Ask."""

    number: int
    counts: WorkerCounts
    pins: dict[str, dict[int, float]]
    """When snapshots were last pinned, by table; of the clock that all processes of a machine share."""
    error: str | None = None
    """Why it can't be served."""


def name_of(reader: SnapshotReader) -> SnapshotName:
    """By what a snapshot is known to followers."""
    digest = hashlib.blake2b(digest_size=8)
    for partition in reader.partitions.values():
        for tablet in partition.tablets:
            digest.update(b"\0" if tablet is None else str(tablet.directory).encode() + b"\0")
    return reader.id, reader.table.schema.id, digest.hexdigest()


def folders_of(reader: SnapshotReader) -> OpenFolders:
    """A reader as others can open it."""
    return OpenFolders(
        reader.table.schema,
        dict(reader.table.rows.schemas),
        reader.snapshot,
        [
            [None if tablet is None else tablet.directory for tablet in partition.tablets]
            for partition in reader.partitions.values()
        ],
    )


def indexes_of(reader: SnapshotReader) -> list[Path | None]:
    """Folders of a reader's hash indexes, partition by partition."""
    made = [partition.index.made for partition in reader.partitions.values()]
    return [None if index is None else index.directory for index in made]
