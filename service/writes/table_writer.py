"""Online writes of one table: who owns it, and the way to become its owner.

    REFUSED   the table, its storage or an option of this server rules online writes out
    IDLE      nobody owns the table, and nobody has written here yet
    CLOSED    another one owns it, or something failed; looked at again with every poll
    OPEN      this server owns the table: inserts are taken, and lookups see them

    snapshot   take: own the table, if that is wanted ──► attach: replay the log above the snapshot onto the new reader,
               catch up with what is inserted meanwhile ──► swap                             (service/watcher.py calls)
    insert     open: own the table, by a load of it, if it can be had ──► service/writes/insertion.py

A table that has a log is taken over before it is served, so that a server that was killed shows after its restart what
it had acknowledged. A table without one is taken with the first insert.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import TypeVar

from stelae.encoding.key_batch import KeyValues
from stelae.errors import Conflict, CorruptData, InvalidRequest, StelaeError, Unavailable
from stelae.log.errors import repeated
from stelae.log.reader import Entry, read_log
from stelae.log.replay import replay
from stelae.log.table_log import has_segments, log_folder, trim_log
from stelae.ownership.new_rows import check_takes_inserts
from stelae.ownership.takeover import Takeover, live_owner, owned_by_another, take_over
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.service.tables.served_table import MAX_BACK_OFF_S, OpenSnapshot, ServedTable
from stelae.service.writes.insertion import Finding, Insertion, InsertOutcome, insert_one
from stelae.service.writes.owner import Owner, current_owner, put_all
from stelae.snapshot.warehouse import Table

T = TypeVar("T")

logger = logging.getLogger("stelae.server")

CAUGHT_UP_ROWS = 2_000
"""Rows that may be left to be put onto a new reader while everybody waits: about two milliseconds."""


class WriteState(StrEnum):
    """Where online writes of a table are."""

    REFUSED = "REFUSED"
    IDLE = "IDLE"
    CLOSED = "CLOSED"
    OPEN = "OPEN"


@dataclass(frozen=True, slots=True)
class Identity:
    """How this server is known to others."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A reader that is ready to be served."""

    reader: SnapshotReader
    finish: Callable[[], SnapshotReader] | None = None
    """Called on the event loop, at the moment of the swap; gives what is to be served."""

    def finished(self) -> SnapshotReader:
        return self.reader if self.finish is None else self.finish()


class TableWriter:
    """Online writes of one table. Lives on the event loop; storage is asked in threads."""

    def __init__(
        self,
        served: ServedTable,
        reload: Callable[[], Awaitable[None]],
        identity: Callable[[], Identity],
        folder: Path,
        cache: BlockCache,
        threads: ThreadPoolExecutor,
        *,
        allowed: bool,
        force: bool,
        poll_interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`reload` loads the table, and takes it over on the way if that is wanted. `folder` is where online rows are
        kept, on this machine; `threads` wait for storage, those of all tables. `force`: take the table from a server
        that lives, once.
        """
        self.served = served
        self.error: StelaeError | None = None
        """Why inserts are not taken; None if they are, or if nobody asked."""
        self.owner: Owner | None = None
        self.wanted = False
        """Whether somebody wrote."""
        self._reload = reload
        self._identity = identity
        self._folder = folder
        self._cache = cache
        self._allowed = allowed
        self._force = force
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._failures = 0
        self._retry_at = 0.0
        self._threads = threads
        self._stop = Event()
        self._taken: Takeover | None = None
        self._shown: Owner | None = None
        """This owner, or the last one, if that lost the table: whose rows are in what is served."""
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def state(self) -> WriteState:
        if self.owner is not None:
            return WriteState.OPEN
        if self.refusal() is not None:
            return WriteState.REFUSED
        return WriteState.IDLE if self.error is None else WriteState.CLOSED

    def refusal(self) -> StelaeError | None:
        """Why this table takes no inserts here, whoever owns it; None if it may."""
        schema = self.served.schema
        if not self._allowed:
            return InvalidRequest(
                "this server takes no online writes",
                place=self.served.name,
                hint="it was started with --no-online-writes",
            )
        if schema is None:
            return None
        try:
            check_takes_inserts(schema)
        except InvalidRequest as exc:
            return InvalidRequest(exc.message, place=self.served.name, hint=exc.hint)
        return None

    # Owning

    async def take(self, table: Table) -> None:
        """Own the table, if that is wanted and possible. What keeps it from that is in `error`, and no exception."""
        if self.owner is not None or self._taken is not None or self._closed or self.refusal() is not None:
            return
        if not self.wanted and not await self._thread(partial(has_segments, table)):
            return
        try:
            self._taken = await self._thread(partial(_take, table, self._identity(), force=self._force))
        except StelaeError as exc:
            self._close(exc)
        else:
            self._force = False

    async def attach(self, table: Table, reader: SnapshotReader) -> Attachment:
        """What is to be served instead of a reader that was just opened: with the online rows, as far as this server
        knows them.
        """
        taken, owner = self._taken, self.owner
        if taken is not None:
            self._taken = None
            return await self._first(taken, table, reader)
        if owner is not None:
            try:
                await self._thread(partial(owner.check_follows, reader))
            except StelaeError as exc:
                self.lose(exc)
        return await self._with_shown(table, reader)

    async def _with_shown(self, table: Table, reader: SnapshotReader) -> Attachment:
        """With the rows that this server has shown, also when it owns the table no more: what it told stays true."""
        owner = self._shown
        if owner is None:
            return Attachment(reader)
        shown = owner.reader
        if self.owner is None and (shown.id, shown.table.schema.id) == (reader.id, reader.table.schema.id):
            return Attachment(reader)  # nothing new: then the watcher goes on with what it has
        return await self._next(owner, table, reader)

    async def _first(self, taken: Takeover, table: Table, reader: SnapshotReader) -> Attachment:
        """Open the table for inserts, behind a takeover."""
        try:
            if taken.snapshot is not None and reader.id < taken.snapshot.id:
                raise CorruptData(
                    f"snapshot {taken.snapshot.id} can't be loaded, so it is not known which keys are new",
                    place=self.served.name,
                )
            online = await self._thread(partial(self._replayed, reader, table, taken.log.end))
            owner = await self._thread(partial(Owner.opened, taken, table, online, self._thread))
        except BaseException as exc:
            await self._thread(taken.close)
            if not isinstance(exc, StelaeError):
                raise
            self._close(exc)
            return await self._with_shown(table, reader)

        def finish() -> SnapshotReader:
            owner.started(self.lose)
            self.owner, self.error, self._failures = owner, None, 0
            self._shown = owner
            logger.info("%s: online writes are taken, by epoch %d", self.served.name, taken.epoch.number)
            return online

        return Attachment(online, finish)

    async def _next(self, owner: Owner, table: Table, reader: SnapshotReader) -> Attachment:
        """Bring the online rows of a table onto its next snapshot. Its owner may be one that lost it."""
        tail = owner.record()
        try:
            online = await self._thread(partial(self._replayed, reader, table, owner.applied))
            while sum(len(batch.located_keys) for batch in tail) > CAUGHT_UP_ROWS:
                part, tail[:] = list(tail), []
                await self._thread(partial(put_all, online, part))
        except BaseException:
            owner.forget(tail)
            raise

        def finish() -> SnapshotReader:
            owner.forget(tail)
            put_all(online, tail)
            owner.move_to(online)
            return online

        return Attachment(online, finish)

    def _replayed(self, reader: SnapshotReader, table: Table, until: int) -> SnapshotReader:
        """The reader with the records of the log below `until` that its snapshot does not cover. In a thread."""
        rows = OnlineRows.open(self._folder / f"online-{uuid.uuid4().hex[:12]}", self._cache)
        try:
            online = reader.with_online(rows)
            count = replay(online, _entries(table, reader.log_offset, until), stop=self._stop)
        except BaseException:
            rows.close()
            raise
        if count:
            logger.info("%s: %s online rows above snapshot %d", self.served.name, f"{count:,}", reader.id)
        return online

    async def look(self, table: Table) -> bool:
        """Once a poll: notice that the table was lost. True if it should be taken now."""
        owner = self.owner
        if owner is not None:
            with suppress(Unavailable):  # of the storage: nothing is known, and every flush asks, too
                if not await self._thread(owner.takeover.still_holds):
                    self.lose(await self._thread(partial(current_owner, table)))
            return False
        if self._closed or self.refusal() is not None or self._clock() < self._retry_at:
            return False
        try:
            if not self.wanted and not await self._thread(partial(has_segments, table)):
                return False
            living = await self._thread(partial(live_owner, table))
        except StelaeError as exc:
            self._close(exc)
            return False
        if living is not None and not self._force:
            self.error = owned_by_another(table, living)  # nothing to be done while it lives
            return False
        return True

    def lose(self, error: StelaeError) -> None:
        """This server owns the table no more, or can't say that it does."""
        owner, self.owner = self.owner, None
        if owner is None:
            return
        self._close(error)
        logger.error("%s: online writes are not taken any more: %s", self.served.name, error)
        task = asyncio.create_task(self._end(owner))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, owner: Owner) -> None:
        await owner.group_commit.close()  # requests that wait get the error of the log first
        await self._thread(owner.takeover.close)

    def _close(self, error: StelaeError) -> None:
        # Its stack holds readers.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.error = error
        self._failures += 1
        pause = 0.0 if isinstance(error, Conflict) else self._poll_interval_s * 2.0 ** min(self._failures, 20)
        self._retry_at = self._clock() + min(MAX_BACK_OFF_S, pause)

    async def close(self) -> None:
        """Write what was taken, and give the table up."""
        self._closed = True
        self._stop.set()
        owner, self.owner = self.owner, None
        if owner is not None:
            await owner.group_commit.close()
            with suppress(StelaeError):
                await self._thread(owner.takeover.release)
        if self._taken is not None:
            await self._thread(self._taken.close)
        for task in list(self._ending):
            await task

    async def swapped(self, table: Table) -> None:
        """A new snapshot is served: what all snapshots cover can go from the log."""
        if self.owner is not None:
            try:
                gone = await self._thread(partial(trim_log, table))
            except StelaeError as exc:
                logger.warning("%s: the log could not be trimmed: %s", self.served.name, exc)
            else:
                if gone:
                    logger.info("%s: %d segments of the log are covered, and removed", self.served.name, len(gone))

    # Inserting

    async def insert(self, keys: Sequence[KeyValues]) -> InsertOutcome:
        """The rows of keys; those that are not there are inserted, durably when this returns.

        Conflict when another server owns the table. Unavailable when it can't be written: then it is not known whether
        the new keys count; asking again says so.
        """
        while True:
            owner = self.owner or await self.open()
            outcome = await self._insert(owner, self._current(), keys)
            if outcome is not None:
                return outcome

    async def insert_one(self, key: KeyValues) -> InsertOutcome:
        """`insert` of one key."""
        while True:
            owner = self.owner or await self.open()
            outcome = await insert_one(owner, self._current(), key)
            if outcome is not None:
                return outcome

    async def open(self) -> Owner:
        """Own the table, if it can be had. What `insert` raises, this does, too."""
        refused = self.refusal()
        if refused is not None:
            raise refused
        if self.error is None or isinstance(self.error, Conflict):
            self.wanted = True
            await self._reload()
        if self.owner is None:
            raise repeated(self.error or Unavailable(f"table {self.served.name} is not open", place=self.served.name))
        return self.owner

    async def _insert(self, owner: Owner, opened: OpenSnapshot, keys: Sequence[KeyValues]) -> InsertOutcome | None:
        """None when the table was lost, or another snapshot came meanwhile: then everything is looked up again."""
        insertion = Insertion(owner, opened, keys)
        await insertion.look_up()
        while not insertion.is_known:
            if self.owner is not owner or owner.reader is not opened.reader:
                return None
            match insertion.find():
                case Finding.KNOWN:
                    break
                case Finding.PENDING:
                    await insertion.wait_for_others()
                case Finding.NEEDS_IDS:
                    await insertion.claim_ids()
                case Finding.NEW:
                    await insertion.submit()
                    break
        return insertion.outcome

    def _current(self) -> OpenSnapshot:
        serving = self.served.serving
        if serving is None:
            raise self.served.unavailable()
        return serving.current

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _entries(table: Table, first: int, until: int) -> Iterator[Entry]:
    """Records of the log from one offset to another: behind it are some that nobody may be shown yet."""
    folder = log_folder(table.storage)
    if folder is None or first >= until:
        return iter(())
    return takewhile(lambda entry: entry.offset < until, read_log(folder, first))


def _take(table: Table, me: Identity, *, force: bool) -> Takeover:
    living = live_owner(table) if force else None
    # A build that lives ends by itself, and would have worked for nothing.
    force = living is not None and living.kind == "server"
    return take_over(table, "server", me.name, me.url, force=force, note="online writes")
