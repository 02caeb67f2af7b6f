"""Taking a table over: all that has to be read and written before its owner may mint an id or acknowledge a row.

    take_over(table, "server", ...)    lock → epoch → fence → newest snapshot → log → first segment → still the owner?
    live_owner(table)                  who has it, if that process lives
    durable_log_range(table, parent)   what a build may cover that leaves the table to its owner

`stelae/ownership/epochs.py` says why in this order; docs/format.md#ownership is the contract. Servers and builds that
mint take tables over in the same way.

Whether an owner lives is told by a lock next to its epoch (`stelae/storage/file_lock.py`): taken before the epoch is
put, released by the kernel when the process ends. It is for politeness, and for finding out soon that a server was
killed. Nothing depends on it, unlike on a lease: taking a table from an owner that lives after all loses nothing and
mints nothing twice, but takes its writes away from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from stelae.errors import Conflict, StelaeError, Unavailable
from stelae.log.reader import LogState, newest_epoch, recover
from stelae.log.table_log import check_has_folder, log_folder
from stelae.log.writer import LogWriter
from stelae.ownership.epochs import FIRST_EPOCH, Epoch, OwnerKind, TableOwnership
from stelae.snapshot.manifest import BucketFiles, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.file_lock import abandoned_locks, is_locked, try_lock, unlock
from stelae.storage.paths import EPOCH_FOLDER, epoch_lock_path, epoch_path, parse_epoch_lock_path
from stelae.storage.storage import Storage


@dataclass
class Takeover:
    """A table that is owned. `close` or `release` it."""

    table: Table
    epoch: Epoch
    snapshot: Snapshot | None
    """The newest one, any fence included. None for a build before the first snapshot, unless it had to fence."""
    log: LogState
    """The log as it was found: its records below `log.end` count, and none of a former owner behind them ever will."""
    writer: LogWriter | None
    """Of the owner's own segment. None where there is no log: on storage without local folders, and for a build of a
    table that never had one.
    """
    lock: int | None

    @property
    def ownership(self) -> TableOwnership:
        return TableOwnership(self.table.storage, str(self.table.name))

    def still_holds(self) -> bool:
        """Whether nobody took over so far. One small request."""
        if self._next_epoch is None:
            return self.ownership.still_holds(self.epoch)
        try:
            # What the other way does on a local folder, in a tenth of the time.
            os.stat(self._next_epoch)  # noqa: PTH116 (a Path takes as long as the call)
        except FileNotFoundError:
            return True
        except OSError:
            return self.ownership.still_holds(self.epoch)
        return False

    @cached_property
    def _next_epoch(self) -> str | None:
        path = self.table.storage.local_path(epoch_path(self.epoch.number + 1))
        return None if path is None else str(path)

    def release(self, note: str = "") -> bool:
        """Give the table up, for whoever wants it next; nothing may be minted or acknowledged any more. False when
        somebody took it before.
        """
        try:
            return self.ownership.release(self.epoch, note=note)
        finally:
            self.close()

    def close(self) -> None:
        """Stop without a release, as a process that ends does: the next owner takes over as from one that died."""
        if self.writer is not None:
            self.writer.close()
        if self.lock is not None:
            path = self.table.storage.local_path(epoch_lock_path(self.epoch.number))
            unlock(self.lock, path)
            self.lock = None


def take_over(
    table: Table, kind: OwnerKind, owner: str, url: str | None = None, *, force: bool = False, note: str = ""
) -> Takeover:
    """Own the table from now on, with everything that former owners acknowledged in hand.

    Conflict, naming the owner, when one that lives has it and `force` is not set, or when somebody else is faster.
    InvalidRequest for a server on storage where no log can be. Unavailable where the storage fails: then nothing was
    taken, or what was taken is taken over like that of a crashed owner.
    """
    if kind == "server":
        check_has_folder(table)
    ownership = TableOwnership(table.storage, str(table.name))
    current = ownership.current()
    if current is not None and not force and lives(table.storage, current):
        raise owned_by_another(table, current)
    number = FIRST_EPOCH if current is None else current.number + 1
    lock = _lock(table, number)
    try:
        taken = _complete(table, ownership.take(kind, owner, url, after=current, note=note), lock)
    except BaseException:
        if lock is not None:
            unlock(lock, table.storage.local_path(epoch_lock_path(number)))
        raise
    _remove_locks(table.storage, number)
    return taken


def _complete(table: Table, epoch: Epoch, lock: int | None) -> Takeover:
    """The steps after the epoch: fence, snapshot, log, first segment, and a look whether the epoch still holds."""
    ownership = TableOwnership(table.storage, str(table.name))
    folder = log_folder(table.storage)
    segment_epoch = newest_epoch(folder) if folder is not None else 0
    first = table.snapshots.latest_id() is None and epoch.kind == "server"
    if first or ownership.unfinished_build(epoch, segment_epoch=segment_epoch) is not None:
        table.snapshots.fence(empty_snapshot(table))
    snapshot = table.snapshots.latest()
    state = recover(folder) if folder is not None else LogState()
    if state.epoch >= epoch.number:
        raise _taken(table, epoch)
    writer = None
    if folder is not None and (epoch.kind == "server" or state.log_id is not None):
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
        covered = snapshot.log_offset if snapshot is not None else 0
        writer = LogWriter(folder, epoch.number, max(state.end, covered), state)
    try:
        if not ownership.still_holds(epoch):
            raise _taken(table, epoch)
    except BaseException:
        if writer is not None:
            writer.close()
        raise
    return Takeover(table, epoch, snapshot, state, writer, lock)


def live_owner(table: Table) -> Epoch | None:
    """Who owns the table, if that process lives, as far as this machine can tell."""
    current = TableOwnership(table.storage, str(table.name)).current()
    return current if current is not None and lives(table.storage, current) else None


def lives(storage: Storage, epoch: Epoch) -> bool:
    """Whether the owner by an epoch is a process that lives. False where nobody can tell: on object stores."""
    path = storage.local_path(epoch_lock_path(epoch.number))
    return epoch.kind != "free" and path is not None and is_locked(path)


def owned_by_another(table: Table, epoch: Epoch) -> Conflict:
    """The error for whoever wants a table that is another's."""
    if epoch.kind == "server":
        hint = f"send writes to it: {epoch.url}; or take the table over: stelae serve --take-over"
    else:
        hint = "wait until it has ended"
    return Conflict(f"table {table.name} is owned by {epoch}", place=str(table.name), hint=hint)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records of the log that a snapshot takes in."""

    first: int
    """What the parent covers."""
    until: int
    """Not included: the log offset of the new snapshot."""


def durable_log_range(table: Table, parent: Snapshot | None, *, durable: int = 0) -> LogRange | None:
    """The records that a build may cover while another process owns the table: all that are durable for sure. None
    without a log.

    That is all but the last flush, and of that what the owner, asked before, says is `durable`. `parent` is the newest
    snapshot; if it is not any more when the build commits, that fails anyway. Unavailable while somebody takes the
    table over: ask again in a moment.
    """
    folder = log_folder(table.storage)
    ownership = TableOwnership(table.storage, str(table.name))
    current = ownership.current()
    if folder is None or current is None:
        return None
    state = recover(folder)
    if state.epoch != current.number or not ownership.still_holds(current):
        raise Unavailable(
            f"table {table.name} is being taken over by {current}", place=str(table.name), hint="try again in a moment"
        )
    first = 0 if parent is None else parent.log_offset
    return LogRange(first, max(first, state.last_flush, min(durable, state.end)))


def empty_snapshot(table: Table) -> Snapshot:
    """The first snapshot of a table that nobody has built: no rows."""
    schema = table.schema
    count = schema.options.bucket or 1
    whole = PartitionFiles((), count, tuple(BucketFiles(number, ()) for number in range(count)))
    return Snapshot(
        table=str(table.name),
        id=1,
        parent=None,
        schema_id=schema.id,
        build_id=f"empty-{uuid4().hex}",
        kind="fence",
        created_ms=time.time_ns() // 1_000_000,
        partitions=() if schema.partition_keys else (whole,),
        versions=_versions(("stelae",)),
    )


def _versions(packages: Iterable[str]) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in packages}


def _lock(table: Table, number: int) -> int | None:
    """The lock of an epoch that is about to be taken; None on storage without local folders."""
    path = table.storage.local_path(epoch_lock_path(number))
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(path)
    except OSError as exc:
        raise Unavailable(
            f"table {table.name} can't be taken over: {exc.strerror}",
            place=str(path),
            hint="online writes and ids need a warehouse that this process may write to",
        ) from exc
    if lock is None:
        raise Conflict(
            f"somebody takes table {table.name} over at this moment", place=str(table.name), hint="try again"
        )
    return lock


def _remove_locks(storage: Storage, below: int) -> None:
    """Remove the lock files of former owners that were killed. Their numbers are not used again."""

    def is_former(file: Path) -> bool:
        number = parse_epoch_lock_path(f"{EPOCH_FOLDER}/{file.name}")
        return number is not None and number < below

    folder = storage.local_path(EPOCH_FOLDER)
    if folder is not None:
        with suppress(OSError):
            for _ in abandoned_locks(folder, is_former):
                pass  # nothing belongs to one


def _taken(table: Table, epoch: Epoch) -> StelaeError:
    return Conflict(
        f"table {table.name} was taken over from {epoch} at once", place=str(table.name), hint="look who owns it now"
    )
