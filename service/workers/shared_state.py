"""What a follower is told to serve, and how it follows.

    leader     ServedTable ──► TableState   which snapshots are open, which is current, whose misses are forwarded
    follower   TableState  ──► ServedTable  opens what it lacks, closes what is not named

A message is the whole state of one table, so that one that is missed, or a follower that starts anew, is no special
case. A snapshot is described by its folders (`OpenFolders`) once a follower, and by its name from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

from stelae.read.hash_index import HashIndex
from stelae.read.open_snapshot import assemble
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.rocksdb.tablet import Tablet
from stelae.schema.table_schema import TableSchema
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import WorkerCounts
from stelae.service.tables.served_table import OpenSnapshot, ServedTable, Serving
from stelae.service.workers.forwarding import LeaderRows
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
    """The answer to a TableState, when it is followed, and to an Ask."""

    number: int
    counts: WorkerCounts
    pins: dict[str, dict[int, float]]
    """When snapshots were last pinned, by table; of the clock that all processes of a machine share."""
    error: str | None = None
    """Why it is not followed."""


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


class OpenTablets:
    """The tablets of a follower, each open once, as long as a reader has it."""

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._tablets: WeakValueDictionary[Path, Tablet] = WeakValueDictionary()
        self._indexes: WeakValueDictionary[Path, HashIndex] = WeakValueDictionary()

    def read(self, folders: OpenFolders) -> SnapshotReader:
        """Open a snapshot: a millisecond a bucket. In a thread."""
        tablets = [tuple(None if each is None else self._tablet(each) for each in of) for of in folders.tablets]
        partitions = assemble(folders.schema, folders.snapshot, tablets, {})
        return SnapshotReader(TableReader(folders.schema, folders.schemas), folders.snapshot, partitions)

    def index(self, reader: SnapshotReader, folders: Sequence[Path | None]) -> None:
        """Have a reader use these hash indexes. In a thread."""
        for partition, folder in zip(reader.partitions.values(), folders, strict=True):
            if folder is not None and partition.index.made is None:
                index = self._indexes.get(folder)
                if index is None:
                    index = self._indexes[folder] = HashIndex(folder, owns_folder=False)
                partition.index.made = index

    def _tablet(self, folder: Path) -> Tablet:
        tablet = self._tablets.get(folder)
        if tablet is None:
            tablet = self._tablets[folder] = Tablet.reopen(folder, self._cache, owns_folder=False)
        return tablet


class FollowedTable:
    """One table of a follower."""

    def __init__(self, served: ServedTable, tablets: OpenTablets) -> None:
        self.served = served
        self._tablets = tablets
        self._readers: dict[SnapshotName, SnapshotReader] = {}
        self._opened: dict[SnapshotName, tuple[bool, OpenSnapshot]] = {}
        """What requests are answered from, and whether that has rows which only the leader has above it."""

    def open(self, state: TableState) -> None:
        """Open what is new. In a thread; nothing is answered from it yet."""
        for name, folders in state.new.items():
            self._readers[name] = self._tablets.read(folders)
        for name, indexes in state.indexes.items():
            self._tablets.index(self._readers[name], indexes)

    def follow(self, state: TableState) -> list[object]:
        """Serve what the state says. Gives what is not needed any more, for the caller to drop."""
        before = dict(self._opened)
        self._opened = {name: (name in state.forwarding, self._open_as(name, state)) for name in state.open}
        gone: list[object] = [self._readers.pop(name) for name in list(self._readers) if name not in self._opened]
        gone += [self.served.serving, *before.values()]
        if state.current is None:
            self.served.serving = None
        else:
            kept = {name[0]: opened for name, (_, opened) in self._opened.items()}
            current = self._opened[state.current][1]
            kept.pop(current.reader.id)
            self.served.serving = Serving(current, kept)
        return gone

    def pins(self) -> dict[int, float]:
        """When each snapshot was last pinned here, by id."""
        return {name[0]: opened.pinned_at for name, (_, opened) in self._opened.items() if opened.pinned_at >= 0}

    def _open_as(self, name: SnapshotName, state: TableState) -> OpenSnapshot:
        forwarding = name in state.forwarding
        known = self._opened.get(name)
        if known is not None and known[0] is forwarding:
            return known[1]
        reader = self._readers[name]
        opened = OpenSnapshot(reader.with_online(cast("OnlineRows", LeaderRows())) if forwarding else reader)
        if known is not None:
            opened.pinned_at = known[1].pinned_at
        return opened
