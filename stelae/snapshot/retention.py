"""Which snapshots are kept: `expire` gives old ones up, `clean` deletes the files that no snapshot needs any more.

What may be deleted, and when. `clean` holds no lock, so it argues instead. Let the grace be longer than any build,
rollback or load of a snapshot takes. `clean` lists the data files first, and the snapshots after that:

1. A file of a snapshot in that list is named there: kept.
2. A snapshot committed later names new files, and files of its parent. New files were uploaded less than one grace
   ago, before or after they were listed: too young to delete. The parent was the newest when that commit began, hence
   not expired; its files are kept by 1, or by 2 in turn.
3. A rollback committed later names files of a snapshot that was not expired when the rollback began. So a floor above
   it was put after that, less than one grace ago: `clean` does not look at floors that young (docs/decisions/0003).

A server that loads a snapshot while it expires has the grace to finish, by 3. If any manifest that counts cannot be
read, nothing is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from stelae.errors import AlreadyExists, CorruptData, InvalidRequest, NotFound
from stelae.snapshot.snapshots import FIRST_SNAPSHOT_ID, TableSnapshots
from stelae.storage.paths import SNAPSHOT_FOLDER, floor_path, parse_sst_path
from stelae.storage.storage import StoredFile


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What `clean` removed, or would remove."""

    files: tuple[StoredFile, ...]
    """Data files that no snapshot names and left-overs of killed writers, sorted by path."""
    kept_young: int
    """Files that no snapshot names but that are younger than the grace."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def expire(snapshots: TableSnapshots, retain: int) -> tuple[int, ...]:
    """Keep the newest `retain` snapshots; returns the ids that expired now. `clean` frees their files later."""
    if retain < 1:
        raise InvalidRequest(
            f"cannot retain {retain} snapshots", place="snapshot.num-retained", hint="the newest one is always kept"
        )
    listing = snapshots.listing()
    floor = listing.latest - retain + 1
    expired = tuple(range(listing.floor, floor))
    if expired:
        try:
            snapshots.storage.put_if_absent(floor_path(floor), b"")
        except AlreadyExists:
            return ()  # somebody else expired the same ones
    return expired


def clean(snapshots: TableSnapshots, *, grace_s: float, now_ms: int, dry_run: bool = False) -> CleanReport:
    """Delete what no snapshot needs and what is older than the grace: data files, and left-overs of killed writers.

    `grace_s` must be longer than any build, rollback or load takes (the head of this module says why). `now_ms`
    is the caller's clock, which must agree with the storage's to well within the grace. Other files are left
    alone.
    """
    if grace_s < 0:
        raise InvalidRequest(f"the grace is {grace_s} s", hint="it has to be longer than the longest build")
    before_ms = now_ms - int(grace_s * 1000)
    # Files first, snapshots after: a commit in between is then seen.
    unnamed = [file for file in snapshots.storage.list() if parse_sst_path(file.path)]
    unfinished = list(snapshots.storage.unfinished())
    named = _named_files(snapshots, before_ms)
    garbage = [file for file in unnamed if file.path not in named] + unfinished
    old = tuple(sorted((file for file in garbage if file.modified_ms <= before_ms), key=lambda file: file.path))
    if not dry_run:
        for file in old:
            snapshots.storage.delete(file.path)
    return CleanReport(old, kept_young=len(garbage) - len(old))


def check_floor(floor: int, latest: int, place: str) -> None:
    """The newest snapshot is never expired."""
    if floor > max(latest, FIRST_SNAPSHOT_ID):
        raise CorruptData(f"snapshots below {floor} are expired, but the newest is {latest}", place=place)


def _named_files(snapshots: TableSnapshots, before_ms: int) -> frozenset[str]:
    """Paths that snapshots name, without those that expired before `before_ms`."""
    listing = snapshots.listing(before_ms)
    place = snapshots.place_of(SNAPSHOT_FOLDER)
    check_floor(listing.floor, listing.latest, place)
    try:
        return frozenset(file.path for snapshot_id in listing.retained for file in snapshots.load(snapshot_id).files)
    except NotFound as exc:
        raise CorruptData(
            f"{snapshots.table} lacks a manifest between {listing.floor} and {listing.latest}; nothing was deleted",
            place=exc.place or place,
            hint="restore it, or expire it: snapshots below the floor need no manifest",
        ) from exc
