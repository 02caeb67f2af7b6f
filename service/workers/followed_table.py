"""One table of a follower: it opens what the leader has open, and closes what is not named any more.

leader     ServedTable ──► TableState   (service/workers/messages.py)
follower   TableState  ──► ServedTable
"""

from __future__ import annotations

from collections.abc import Sequence
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
from stelae.service.tables.served_table import OpenSnapshot, ServedTable, Serving
from stelae.service.workers.forwarding import LeaderRows
from stelae.service.workers.messages import OpenFolders, SnapshotName, TableState


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
