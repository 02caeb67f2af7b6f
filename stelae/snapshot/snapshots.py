"""Commits: the snapshots of one table, on storage.

    snapshot/snapshot-17.json     a commit. Created only if absent, never changed, never deleted
    snapshot/floor-12.json        snapshots below 12 are expired. The highest floor counts; floors are never deleted
                                  either

A commit is one put-if-absent of the next number: of two builds on one parent, one gets the name and the other
Conflict. A number that was free again could be taken by a writer that slept through everything since, so the names
stay for good (docs/decisions/0001). `stelae/snapshot/retention.py` expires snapshots, which frees data files only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound
from stelae.snapshot.manifest import BucketFiles, PartitionFiles, Snapshot
from stelae.snapshot.manifest_json import decode_snapshot, encode_snapshot
from stelae.storage.paths import (
    SNAPSHOT_FOLDER,
    parse_floor_path,
    parse_snapshot_path,
    snapshot_path,
)
from stelae.storage.storage import Storage, exists, put_or_settle

FIRST_SNAPSHOT_ID = 1
ROLLBACK_PROPERTY = "rollback.to"  # On disk. Never rename.


class TableSnapshots:
    """The snapshots of one table. Holds no state: every call asks the storage. Safe to share between threads."""

    def __init__(self, storage: Storage, table: str, *, keeps_keys: bool = False) -> None:
        """`storage` is rooted in the table's folder; `table` is the name that its manifests carry. `keeps_keys`: a
        rollback takes no key away that a later snapshot has, as a dictionary table wants it.
        """
        self.storage = storage
        self.table = table
        self.keeps_keys = keeps_keys

    # Reading

    def latest_id(self) -> int | None:
        """The newest snapshot, None before the first build. One listing."""
        return self.listing().latest or None

    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first build."""
        snapshot_id = self.latest_id()
        return None if snapshot_id is None else self.load(snapshot_id)

    def has_newer(self, snapshot_id: int | None) -> bool:
        """Whether anything was committed after this snapshot (None: anything at all). One small request."""
        return exists(self.storage, snapshot_path(FIRST_SNAPSHOT_ID if snapshot_id is None else snapshot_id + 1))

    def read(self, snapshot_id: int | None = None) -> Snapshot:
        """A snapshot that is retained, by default the newest. NotFound when it never was or is expired."""
        listing = self.listing()
        if snapshot_id is None and not listing.latest:
            raise NotFound(
                f"table {self.table} has no snapshot yet",
                place=self.table,
                hint=f"build it: stelae build {self.table} INPUT",
            )
        if snapshot_id is None:
            return self.load(listing.latest)
        if snapshot_id < listing.floor:
            raise NotFound(
                f"snapshot {snapshot_id} of {self.table} is expired",
                place=self.table,
                hint=f"the oldest one kept is {listing.floor}; the option snapshot.num-retained says how many are",
            )
        if snapshot_id > listing.latest:
            raise NotFound(
                f"table {self.table} has no snapshot {snapshot_id}",
                place=self.table,
                hint=f"it has {listing.floor} to {listing.latest}" if listing.latest else "it was never built",
            )
        return self.load(snapshot_id)

    def retained_ids(self) -> tuple[int, ...]:
        """Snapshots that can be read, oldest first."""
        return tuple(self.listing().retained)

    def retained(self) -> tuple[Snapshot, ...]:
        """Snapshots that can be read, oldest first."""
        return tuple(map(self.load, self.retained_ids()))

    def floor(self) -> int:
        """Snapshots below this id are expired; 1 as long as none is."""
        return self.listing().floor

    def missing_files(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Paths of its files that are not on storage in the size it says. One listing of the table; reads no data."""
        sizes = {file.path: file.bytes for file in self.storage.list()}
        return tuple(file.path for file in snapshot.files if sizes.get(file.path) != file.bytes)

    # Writing

    def commit(self, snapshot: Snapshot) -> Snapshot:
        """Make `snapshot` the newest, and return it as it is stored.

        Conflict when its parent is not the newest (any more); the message names both builds. Safe to repeat with the
        same snapshot when it raised Unavailable: a manifest that carries our `build_id` is our own, so a commit whose
        answer got lost counts once. CorruptData when the snapshot breaks an invariant or names a file that is not on
        storage.
        """
        data = encode_snapshot(snapshot)
        if snapshot.table != self.table:
            raise InvalidRequest(
                f"a snapshot of {snapshot.table} cannot be committed to {self.table}", place=self.table
            )
        latest = self.latest_id() or FIRST_SNAPSHOT_ID - 1
        if latest >= snapshot.id:
            return self._own(self.load(snapshot.id), snapshot)
        if latest != snapshot.id - 1:
            raise InvalidRequest(
                f"snapshot {snapshot.id} of {self.table} cannot follow snapshot {latest}", place=self.table
            )
        missing = self.missing_files(snapshot)
        if missing:
            raise CorruptData(
                f"snapshot {snapshot.id} names {len(missing)} files that are not on storage in the size it says",
                place=self.place_of(missing[0]),
                hint="nothing was committed; a clean-up whose grace is shorter than the build may have removed them",
            )
        stored = put_or_settle(
            self.storage,
            snapshot_path(snapshot.id),
            data,
            snapshot,
            lambda: self.load(snapshot.id),
            doubt=f"snapshot {snapshot.id} of {self.table} was committed",
            hint="commit the same snapshot again: that is safe, and says which",
        )
        return self._own(stored, snapshot)

    def rollback(
        self, to: int, *, now_ms: int, build_id: str | None = None, versions: Mapping[str, str] | None = None
    ) -> Snapshot:
        """Commit the content of snapshot `to` once more, as the newest. Nothing is undone: the snapshots in between
        stay.

        Where keys are kept, a key that came after snapshot `to` stays as the newest snapshot has it: somebody may have
        its id. Only what `to` has is as it was there.

        NotFound when `to` is expired or was never there, InvalidRequest when it is the newest already, or when keys
        can't be kept, CorruptData when files of it are gone, Conflict when somebody commits in the meantime.
        """
        target = self.read(to)
        latest = self.latest_id() or to
        if to == latest:
            raise InvalidRequest(f"snapshot {to} is the newest of {self.table} already", place=self.table)
        content = stacked(self.load(latest), target) if self.keeps_keys else target
        return self.commit(
            replace(
                content,
                id=latest + 1,
                parent=latest,
                build_id=build_id or f"rollback-{uuid4().hex}",
                kind="rollback",
                created_ms=now_ms,
                versions=target.versions if versions is None else versions,
                properties={**target.properties, ROLLBACK_PROPERTY: str(to)},
            )
        )

    def fence(self, empty: Snapshot) -> Snapshot:
        """Take the next number from a build that may still commit it: a copy of the newest snapshot, or `empty` before
        the first. Returns the newest snapshot; if somebody else took the number meanwhile, that is as good.
        """
        newest = self.latest()
        content = empty if newest is None else newest
        number = FIRST_SNAPSHOT_ID if newest is None else newest.id + 1
        fence = replace(
            content,
            id=number,
            parent=number - 1 or None,
            build_id=f"fence-{uuid4().hex}",
            kind="fence",
            created_ms=empty.created_ms,
        )
        try:
            return self.commit(fence)
        except Conflict:
            return self.load(self.latest_id() or number)

    # Leaves

    def _own(self, stored: Snapshot, snapshot: Snapshot) -> Snapshot:
        """What is stored under the number of `snapshot`, if it is by the same build; else Conflict."""
        if stored.build_id == snapshot.build_id:
            return stored
        raise Conflict(
            f"snapshot {snapshot.id} of {self.table} was committed by build {stored.build_id}, "
            f"so build {snapshot.build_id} cannot commit it",
            place=self.place_of(snapshot_path(snapshot.id)),
            hint="nothing of this build is visible; build again on top of the newest snapshot",
        )

    def load(self, snapshot_id: int) -> Snapshot:
        """A snapshot by its manifest, retained or not. NotFound without one."""
        path = snapshot_path(snapshot_id)
        snapshot = decode_snapshot(self.storage.get(path), self.place_of(path))
        if snapshot.id != snapshot_id:
            raise CorruptData(f"the manifest is that of snapshot {snapshot.id}", place=self.place_of(path))
        return snapshot

    def listing(self, floors_before_ms: int | None = None) -> Listing:
        """The newest snapshot and the floor; of floors that were put later than `floors_before_ms` none counts."""
        latest, floor = FIRST_SNAPSHOT_ID - 1, FIRST_SNAPSHOT_ID
        for file in self.storage.list(SNAPSHOT_FOLDER):
            latest = max(latest, parse_snapshot_path(file.path) or 0)
            if floors_before_ms is None or file.modified_ms <= floors_before_ms:
                floor = max(floor, parse_floor_path(file.path) or 0)
        return Listing(latest, floor)

    def place_of(self, path: str) -> str:
        """Where a file of the table is, for errors."""
        return f"{self.storage.url}/{path}"


@dataclass(frozen=True, slots=True)
class Listing:
    """Which snapshots a table has."""

    latest: int
    """Newest snapshot; 0 when there is none."""
    floor: int

    @property
    def retained(self) -> range:
        """Ids have no gaps. A listing that runs while others commit may, so it is asked for its ends only."""
        return range(self.floor, self.latest + 1)


def stacked(older: Snapshot, newer: Snapshot) -> Snapshot:
    """A snapshot with the rows of `newer`, and of `older` those whose keys `newer` does not have. Names files of both,
    writes none. InvalidRequest where their bucket counts differ.
    """
    partitions = {partition.folder: partition for partition in older.partitions}
    for partition in newer.partitions:
        below = partitions.get(partition.folder)
        if below is not None and below.bucket_count != partition.bucket_count:
            raise InvalidRequest(
                f"snapshot {newer.id} has {partition.bucket_count} buckets, snapshot {older.id} has "
                f"{below.bucket_count}, so the ids that were given since can't be kept",
                place=older.table,
                hint="ids never change, so this table does not go back behind a change of its buckets: build again",
            )
        partitions[partition.folder] = partition if below is None else _stacked(below, partition, older.log_offset)
    return replace(newer, partitions=tuple(partitions.values()), schema_id=max(older.schema_id, newer.schema_id))


def _stacked(older: PartitionFiles, newer: PartitionFiles, log_offset: int) -> PartitionFiles:
    buckets = []
    for below, above in zip(older.buckets, newer.buckets, strict=True):
        paths = {file.path for file in above.files}
        files = (*(file for file in below.files if file.path not in paths), *above.files)
        buckets.append(BucketFiles(above.bucket, files, log_offset))
    return replace(newer, buckets=tuple(buckets))
