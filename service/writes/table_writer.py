"""Online writes of one table: who owns it, and insert-if-not-exists.

    REFUSED   the table, its storage or an option of this server rules online writes out
    IDLE      nobody owns the table, and nobody has written here yet
    CLOSED    another one owns it, or something failed; looked at again with every poll
    OPEN      this server owns the table: inserts are taken, and lookups see them

    insert     known? ──► answer
               being inserted by another request? ──► wait for that one, look again
               new ──► ids ──► one log record a bucket ──► GroupCommit (durable, still the owner?) ──► rows ──► answer

    snapshot   take: own the table, if that is wanted ──► attach: replay the log above the snapshot onto the new reader,
               catch up with what is inserted meanwhile ──► swap                             (service/watcher.py calls)

A table that has a log is taken over before it is served, so that a server that was killed shows after its restart what
it had acknowledged. A table without one is taken with the first insert.

All of it runs on the event loop, so that what stands between two `await`s happens at once: to find a key new, to give
it an id and to put it into `pending` is one step. Rows come into sight only when they may be acknowledged, in the order
of the log. After any failure of the log or loss of the table nothing more is tried: every request that waits gets the
error, and the table is taken over again, which reads what really counts.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import TypeVar

import orjson

from stelae.encoding.key_batch import Key, chosen
from stelae.errors import Conflict, CorruptData, InvalidRequest, StelaeError, Unavailable
from stelae.log.epochs import TableOwnership
from stelae.log.id_claims import Claim, TableClaims, id_limit
from stelae.log.new_rows import GrantedIds, NewRows, check_takes_inserts, unused_ids
from stelae.log.records import Inserted, Payload, Record, encode_insert_of_one, encode_record
from stelae.log.replay import replay
from stelae.log.takeover import Takeover, live_owner, log_folder, owned, take_over, trim_log
from stelae.log.writer import Entry, GroupCommit, LogWriter, again, read_log
from stelae.read.overlay import FLAGS, HIDDEN_FLAGS, ORDINAL_BYTES
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.service.tables.served_table import MAX_BACK_OFF_S, OpenSnapshot, ServedTable
from stelae.snapshot.warehouse import Table

T = TypeVar("T")

log = logging.getLogger("stelae.server")

CHUNK_KEYS = 256
"""Keys of a request that are looked up between two turns of other requests."""
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


@dataclass(slots=True, eq=False)
class Batch:
    """New rows of one request, on their way into the log."""

    keys: Sequence[Key]
    places: list[bytes]
    """On the reader that is served, also when that is swapped meanwhile."""
    rows: list[bytes]
    reader: SnapshotReader
    """On which the keys were found to be new."""
    submitted: asyncio.Future[range]
    """The log's. Whoever waits for keys of another request waits for this."""
    done: asyncio.Future[None]
    """For the request that brought the keys, which may go away."""

    async def settled(self) -> None:
        """Wait until the rows may be seen. Raises what the log says if they may not."""
        await asyncio.wait([self.submitted])
        self.submitted.result()


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of the keys of a request, aligned with them."""

    opened: OpenSnapshot
    """What they were read from; behind it come those that were inserted."""
    rows: list[bytes | None]
    """Row bytes; None for a key of a partition that the table does not have."""
    inserted: list[bool]


class TableWriter:
    """Online writes of one table. Lives on the event loop; storage is asked in threads."""

    def __init__(
        self,
        served: ServedTable,
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
        """`folder` is where online rows are kept, on this machine; `threads` wait for storage, those of all tables.
        `force`: take the table from a server that lives, once.
        """
        self.served = served
        self.error: StelaeError | None = None
        """Why inserts are not taken; None if they are, or if nobody asked."""
        self.owner: Owner | None = None
        self.wanted = False
        """Whether somebody wrote."""
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
        if not self.wanted and not await self._thread(partial(_has_segments, table)):
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
            owner = await self._thread(partial(Owner.opened, taken, table, online))
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
            log.info("%s: online writes are taken, by epoch %d", self.served.name, taken.epoch.number)
            return online

        return Attachment(online, finish)

    async def _next(self, owner: Owner, table: Table, reader: SnapshotReader) -> Attachment:
        """Bring the online rows of a table onto its next snapshot. Its owner may be one that lost it."""
        tail = owner.record()
        try:
            online = await self._thread(partial(self._replayed, reader, table, owner.applied))
            while sum(len(batch.places) for batch in tail) > CAUGHT_UP_ROWS:
                part, tail[:] = list(tail), []
                await self._thread(partial(_put_all, online, part))
        except BaseException:
            owner.forget(tail)
            raise

        def finish() -> SnapshotReader:
            owner.forget(tail)
            _put_all(online, tail)
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
            log.info("%s: %s online rows above snapshot %d", self.served.name, f"{count:,}", reader.id)
        return online

    async def look(self, table: Table) -> bool:
        """Once a poll: notice that the table was lost. True if it should be taken now."""
        owner = self.owner
        if owner is not None:
            with suppress(Unavailable):  # of the storage: nothing is known, and every flush asks, too
                if not await self._thread(owner.takeover.still_holds):
                    self.lose(await self._thread(partial(_lost, table)))
            return False
        if self._closed or self.refusal() is not None or self._clock() < self._retry_at:
            return False
        try:
            if not self.wanted and not await self._thread(partial(_has_segments, table)):
                return False
            living = await self._thread(partial(live_owner, table))
        except StelaeError as exc:
            self._close(exc)
            return False
        if living is not None and not self._force:
            self.error = owned(table, living)  # nothing to be done while it lives
            return False
        return True

    def lose(self, error: StelaeError) -> None:
        """This server owns the table no more, or can't say that it does."""
        owner, self.owner = self.owner, None
        if owner is None:
            return
        self._close(error)
        log.error("%s: online writes are not taken any more: %s", self.served.name, error)
        task = asyncio.create_task(self._end(owner))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, owner: Owner) -> None:
        await owner.commit.close()  # requests that wait get the error of the log first
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
            await owner.commit.close()
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
                log.warning("%s: the log could not be trimmed: %s", self.served.name, exc)
            else:
                if gone:
                    log.info("%s: %d segments of the log are covered, and removed", self.served.name, len(gone))

    # Inserting

    async def insert(self, keys: Sequence[Key], reload: Callable[[], Awaitable[None]]) -> Answer:
        """The rows of keys; those that are not there are inserted, durably when this returns.

        `reload` loads the table, and takes it over on the way. Conflict when another server owns it. Unavailable when
        it can't be written: then it is not known whether the new keys count; asking again says so.
        """
        while True:
            owner = self.owner or await self.open(reload)
            serving = self.served.serving
            if serving is None:
                raise self.served.unavailable()
            answer = await self._insert(owner, serving.current, keys)
            if answer is not None:
                return answer

    async def insert_one(self, key: Key, reload: Callable[[], Awaitable[None]]) -> Answer:
        """`insert` of one key, in a third of the time: services insert key by key."""
        while True:
            owner = self.owner or await self.open(reload)
            serving = self.served.serving
            if serving is None:
                raise self.served.unavailable()
            opened = serving.current
            reader = opened.reader
            place = reader.locate(key)
            row = None if place is None else reader.find(key)
            if place is None or (row is not None and row[FLAGS] != HIDDEN_FLAGS):
                return Answer(opened, [row], [False])
            if owner.reader is not reader:
                raise AssertionError("what is served is not what the owner shows")
            batch = owner.pending.get(place)
            if batch is not None:
                await batch.settled()
            elif owner.lacks_ids(1):
                await owner.claim(1, self._thread)
            else:
                batch = owner.submit_one(key, place)
                await batch.done
                return Answer(opened, [batch.rows[0]], [True])

    async def open(self, reload: Callable[[], Awaitable[None]]) -> Owner:
        """Own the table, if it can be had. What `insert` raises, this does, too."""
        refused = self.refusal()
        if refused is not None:
            raise refused
        if self.error is None or isinstance(self.error, Conflict):
            self.wanted = True
            await reload()
        if self.owner is None:
            raise again(self.error or Unavailable(f"table {self.served.name} is not open", place=self.served.name))
        return self.owner

    async def _insert(self, owner: Owner, opened: OpenSnapshot, keys: Sequence[Key]) -> Answer | None:
        """None when another snapshot came meanwhile: then everything is looked up again."""
        reader = opened.reader
        places: list[bytes | None] = []
        rows: list[bytes | None] = []
        version = owner.version
        for start in range(0, len(keys), CHUNK_KEYS):
            if start:
                await asyncio.sleep(0)
            some = reader.locate_many(keys[start : start + CHUNK_KEYS])
            places += some
            rows += _rows_at(reader, some)
        answer = Answer(opened, rows, [False] * len(keys))
        unseen = [index for index, row in enumerate(rows) if row is None and places[index] is not None]
        while unseen:
            if self.owner is not owner:
                return None
            if owner.reader is not reader:
                return None
            if owner.version != version:
                version = owner.version
                for index, row in zip(unseen, _rows_at(reader, [places[index] for index in unseen]), strict=True):
                    rows[index] = row
                unseen = [index for index in unseen if rows[index] is None]
                continue
            wanted = [place for index in unseen if (place := places[index]) is not None]
            waiting = {batch for place in wanted if (batch := owner.pending.get(place)) is not None}
            if waiting:
                for batch in waiting:
                    await batch.settled()
                continue
            new = list(dict.fromkeys(wanted))
            if owner.lacks_ids(len(new)):
                await owner.claim(len(new), self._thread)
                continue
            first = {place: index for index, place in zip(reversed(unseen), reversed(wanted), strict=True)}
            asked: dict[bytes, int] = {}
            for place in places:
                if place is not None:
                    asked[place[:ORDINAL_BYTES]] = asked.get(place[:ORDINAL_BYTES], 0) + 1
            batch = owner.submit(chosen(keys, [first[place] for place in new]), new, asked)
            row_of = dict(zip(new, batch.rows, strict=True))
            await batch.done
            for index, place in zip(unseen, wanted, strict=True):
                rows[index] = row_of[place]
                answer.inserted[index] = first[place] == index
            return answer
        return answer

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A reader that is ready to be served."""

    reader: SnapshotReader
    finish: Callable[[], SnapshotReader] | None = None
    """Called on the event loop, at the moment of the swap; gives what is to be served."""

    def finished(self) -> SnapshotReader:
        return self.reader if self.finish is None else self.finish()


class Owner:
    """A table that this server owns, open for inserts. Lives on the event loop."""

    commit: GroupCommit
    """Set by `started`."""

    def __init__(
        self, takeover: Takeover, writer: LogWriter, table: Table, reader: SnapshotReader, ids: GrantedIds | None
    ) -> None:
        self.takeover = takeover
        self._writer = writer
        self.reader = reader
        """What inserts are looked up in: the reader that is served."""
        self.version = 0
        """Changes whenever rows of `reader` do."""
        self.pending: dict[bytes, Batch] = {}
        """New keys that are on their way into the log, by place."""
        self.applied = writer.end
        """Records below this offset are in the online rows, as far as the snapshot does not cover them."""
        self.ids = ids
        """None where the table mints no ids."""
        self.inserted_rows = 0
        column = table.schema.auto_increment
        self._claims = None if column is None else TableClaims(table.storage, id_limit(column))
        self._cache_size = table.schema.options.auto_increment_cache_size
        self._schema = table.schema
        self._new_rows = NewRows(table.schema)
        self._in_flight: deque[Batch] = deque()
        self._tails: list[list[Batch]] = []
        self._claiming: asyncio.Lock = asyncio.Lock()
        self._on_failure: Callable[[StelaeError], None] = lambda _: None

    @classmethod
    def opened(cls, takeover: Takeover, table: Table, reader: SnapshotReader) -> Owner:
        """An owner, with the ids that are left of its own last claim. Reads the log; in a thread."""
        if takeover.writer is None:
            raise CorruptData("a server took a table over without a log", place=table.url)
        table = table.at_least(reader.table.schema.id)
        ids = None if table.schema.auto_increment is None else _ids(takeover, table, reader)
        return cls(takeover, takeover.writer, table, reader, ids)

    def started(self, on_failure: Callable[[StelaeError], None]) -> None:
        """Take inserts from now on. On the event loop."""
        self.commit = GroupCommit(self._writer, self.takeover.still_holds)
        self._on_failure = on_failure

    # Inserts

    def lacks_ids(self, count: int) -> bool:
        return self.ids is not None and self.ids.left < count

    async def claim(self, count: int, thread: Callable[[Callable[[], Claim]], Awaitable[Claim]]) -> None:
        """Have at least `count` ids. InvalidRequest when the column has no more."""
        async with self._claiming:
            if self.ids is None or self._claims is None or not self.lacks_ids(count):
                return
            missing = count - self.ids.left
            claims, epoch = self._claims, self.takeover.epoch
            work = partial(
                claims.claim,
                max(missing, self._cache_size),
                owner=epoch.owner,
                epoch=epoch.number,
                purpose="online",
            )
            claim = await thread(work)
            self.ids.grant(claim.number, claim.ids)

    def submit(self, keys: Sequence[Key], places: list[bytes], asked: dict[bytes, int]) -> Batch:
        """Give new keys their rows and put them into the next flush. All of it before anybody else gets a turn."""
        numbers = range(len(places)) if self.ids is None else self.ids.take(len(places))
        rows = self._new_rows.rows(numbers)
        records: list[Record] = [] if self.ids is None else [*self.ids.unlogged()]
        by_slot: dict[bytes, list[int]] = {}
        for index, place in enumerate(places):
            by_slot.setdefault(place[:ORDINAL_BYTES], []).append(index)
        for slot, indexes in by_slot.items():
            partition, bucket, _ = self.reader.log_address(places[indexes[0]])
            records.append(
                Inserted(
                    schema_id=self._schema.id,
                    partition=partition,
                    bucket=bucket,
                    keys=[places[index][ORDINAL_BYTES:] for index in indexes],
                    rows=[rows[index] for index in indexes],
                    asked=asked[slot],
                )
            )
        return self._under_way(keys, places, rows, [encode_record(record) for record in records])

    def submit_one(self, key: Key, place: bytes) -> Batch:
        """`submit` of one key."""
        rows = self._new_rows.rows((0,) if self.ids is None else self.ids.take(1))
        payloads = [] if self.ids is None else [encode_record(record) for record in self.ids.unlogged()]
        partition, bucket, key_bytes = self.reader.log_address(place)
        text = orjson.dumps(partition) if partition else b"[]"
        payloads.append(encode_insert_of_one(self._schema.id, text, bucket, key_bytes, rows[0]))
        return self._under_way([key], [place], rows, payloads)

    def _under_way(self, keys: Sequence[Key], places: list[bytes], rows: list[bytes], payloads: list[Payload]) -> Batch:
        submitted = self.commit.submit_payloads(payloads)
        batch = Batch(keys, places, rows, self.reader, submitted, submitted.get_loop().create_future())
        batch.done.add_done_callback(_seen)
        self._in_flight.append(batch)
        for place in places:
            self.pending[place] = batch
        submitted.add_done_callback(self._settle)
        return batch

    def _settle(self, submitted: asyncio.Future[range]) -> None:
        """The oldest batch that is in flight may be acknowledged, or has failed. GroupCommit keeps their order."""
        batch = self._in_flight.popleft()
        try:
            offsets = submitted.result()
            for place in batch.places:
                self.pending.pop(place, None)
            _put(self.reader, batch)
        except BaseException as exc:
            error = exc if isinstance(exc, StelaeError) else Unavailable(f"inserted rows can't be shown: {exc!r}")
            if not batch.done.done():
                batch.done.set_exception(again(error))
            self._on_failure(error)
            return
        self.applied = offsets.stop
        self.version += 1
        self.inserted_rows += len(batch.places)
        for tail in self._tails:
            tail.append(batch)
        if not batch.done.done():
            batch.done.set_result(None)

    # Swaps

    def check_follows(self, reader: SnapshotReader) -> None:
        """A snapshot of this table, under this owner. Conflict when somebody else owns it by now. In a thread."""
        if not self.takeover.still_holds():
            raise _lost(self.takeover.table)
        if reader.log_offset > self.commit.writer.durable_end:
            raise CorruptData(
                f"snapshot {reader.id} covers the log up to {reader.log_offset}, which ends at "
                f"{self.commit.writer.durable_end}",
                place=self.takeover.table.url,
            )

    def record(self) -> list[Batch]:
        """A list that all batches are appended to from now on, as soon as they may be shown."""
        tail: list[Batch] = []
        self._tails.append(tail)
        return tail

    def forget(self, tail: list[Batch]) -> None:
        self._tails = [other for other in self._tails if other is not tail]

    def move_to(self, reader: SnapshotReader) -> None:
        """Go on with another reader, which has all that `self.reader` shows."""
        self.reader = reader
        self.version += 1
        self.pending = {}
        for batch in self._in_flight:
            # Buckets may be others now; a partition that is gone has no place, and its rows are in the log alone.
            places = reader.locate_many(batch.keys)
            batch.places = [place or b"" for place in places]
            self.pending.update({place: batch for place in places if place is not None})


def _put(reader: SnapshotReader, batch: Batch) -> None:
    """Make the rows of a batch seen by those who read through `reader`."""
    places, rows = batch.places, batch.rows
    if reader is not batch.reader:
        # A build may have brought rows of these keys with it.
        kept = [(place, row) for place, row in zip(places, rows, strict=True) if place]
        known = reader.rows_at([place for place, _ in kept])
        kept = [pair for pair, row in zip(kept, known, strict=True) if row is None]
        places, rows = [place for place, _ in kept], [row for _, row in kept]
    if places and reader.online is not None:
        reader.online.put_many(places, rows)


def _put_all(reader: SnapshotReader, batches: Sequence[Batch]) -> None:
    """The same for batches that were put onto the reader before, whose places need not be those of this one."""
    for batch in batches:
        places = [place or b"" for place in reader.locate_many(batch.keys)]
        _put(reader, replace(batch, places=places))


def _rows_at(reader: SnapshotReader, places: Sequence[bytes | None]) -> list[bytes | None]:
    if None not in places:
        return reader.rows_at(places)  # type: ignore[arg-type]
    known = iter(reader.rows_at([place for place in places if place is not None]))
    return [None if place is None else next(known) for place in places]


def _entries(table: Table, first: int, until: int) -> Iterator[Entry]:
    """Records of the log from one offset to another: behind it are some that nobody may be shown yet."""
    folder = log_folder(table.storage)
    if folder is None or first >= until:
        return iter(())
    return takewhile(lambda entry: entry.offset < until, read_log(folder, first))


def _ids(takeover: Takeover, table: Table, reader: SnapshotReader) -> GrantedIds:
    ids = GrantedIds()
    column, last, folder = table.schema.auto_increment, takeover.log.claim, log_folder(table.storage)
    if column is None or last is None or folder is None:
        return ids
    claim = TableClaims(table.storage, id_limit(column)).read(last.number)
    if claim.owner == takeover.epoch.owner and claim.purpose == "online":
        left = unused_ids(folder, reader.table.rows, reader.table.schema, claim, takeover.log.claim_offset)
        if left is not None:
            ids.grant(claim.number, left, logged=True)
    return ids


def _has_segments(table: Table) -> bool:
    folder = log_folder(table.storage)
    return folder is not None and any(folder.glob("segment-*.log"))


def _take(table: Table, me: Identity, *, force: bool) -> Takeover:
    living = live_owner(table) if force else None
    # A build that lives ends by itself, and would have worked for nothing.
    force = living is not None and living.kind == "server"
    return take_over(table, "server", me.name, me.url, force=force, note="online writes")


def _lost(table: Table) -> StelaeError:
    """Who has the table now."""
    current = TableOwnership(table.storage, str(table.name)).current()
    if current is None:
        return Conflict(f"the epochs of table {table.name} are gone", place=table.url)
    return owned(table, current)


def _seen(future: asyncio.Future[None]) -> None:
    """A failure that no request waits for any more is no news."""
    if not future.cancelled():
        future.exception()
