"""A table that this server owns: new keys get their ids, go into the log, and come into sight.

    submit ──► ids, rows ──► records, one a bucket ──► GroupCommit (durable, still the owner?) ──► OnlineRows ──► done
                             pending: keys on the way, by which other requests find them, and wait

All of it runs on the event loop, so that what stands between two `await`s happens at once: to find a key new, to give
it an id and to put it into `pending` is one step. Rows come into sight only when they may be acknowledged, in the order
of the log. After any failure of the log or loss of the table nothing more is tried: every request that waits gets the
error, and the table is taken over again, which reads what really counts.

If the server dies between log and answer, the client does not know whether its rows are in. The record is durable; the
next owner recovers it (`stelae/ownership/takeover.py`), replay makes it an online row (`stelae/log/replay.py`), and the
insert, repeated, finds its keys KNOWN with the same ids (`service/writes/insertion.py`). A record that was not durable
is gone: then the repeated insert finds them NEW.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import orjson

from stelae.encoding.key_batch import KeyValues
from stelae.errors import Conflict, CorruptData, StelaeError, Unavailable
from stelae.log.errors import repeated
from stelae.log.group_commit import GroupCommit
from stelae.log.records import Inserted, Payload, Record, encode_insert_of_one, encode_record
from stelae.log.table_log import log_folder
from stelae.log.writer import LogWriter
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import TableClaims, id_limit
from stelae.ownership.new_rows import GrantedIds, NewRows, unused_ids
from stelae.ownership.takeover import Takeover, owned_by_another
from stelae.read.overlay import ORDINAL_BYTES
from stelae.read.snapshot_reader import SnapshotReader
from stelae.snapshot.warehouse import Table

T = TypeVar("T")


class InThread(Protocol):
    """Runs what waits for storage in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(slots=True, eq=False)
class Batch:
    """New rows of one request, on their way into the log."""

    keys: Sequence[KeyValues]
    located_keys: list[bytes]
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


class Owner:
    """A table that this server owns, open for inserts. Lives on the event loop."""

    group_commit: GroupCommit
    """Set by `started`."""

    def __init__(
        self,
        takeover: Takeover,
        writer: LogWriter,
        table: Table,
        reader: SnapshotReader,
        ids: GrantedIds | None,
        thread: InThread,
    ) -> None:
        self.takeover = takeover
        self._writer = writer
        self.reader = reader
        """What inserts are looked up in: the reader that is served."""
        self.version = 0
        """Changes whenever rows of `reader` do."""
        self.pending: dict[bytes, Batch] = {}
        """New keys that are on their way into the log, by located key."""
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
        self._thread = thread
        self._in_flight: deque[Batch] = deque()
        self._tails: list[list[Batch]] = []
        self._claiming: asyncio.Lock = asyncio.Lock()
        self._on_failure: Callable[[StelaeError], None] = lambda _: None

    @classmethod
    def opened(cls, takeover: Takeover, table: Table, reader: SnapshotReader, thread: InThread) -> Owner:
        """An owner, with the ids that are left of its own last claim. Reads the log; in a thread."""
        if takeover.writer is None:
            raise CorruptData("a server took a table over without a log", place=table.url)
        table = table.at_least(reader.table.schema.id)
        ids = None if table.schema.auto_increment is None else _ids_left(takeover, table, reader)
        return cls(takeover, takeover.writer, table, reader, ids, thread)

    def started(self, on_failure: Callable[[StelaeError], None]) -> None:
        """Take inserts from now on. On the event loop."""
        self.group_commit = GroupCommit(self._writer, self.takeover.still_holds)
        self._on_failure = on_failure

    # Inserts

    def lacks_ids(self, count: int) -> bool:
        return self.ids is not None and self.ids.left < count

    async def claim(self, count: int) -> None:
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
            claim = await self._thread(work)
            self.ids.grant(claim.number, claim.ids)

    def submit(self, keys: Sequence[KeyValues], located_keys: list[bytes], asked: dict[bytes, int]) -> Batch:
        """Give new keys their rows and put them into the next flush. All of it before anybody else gets a turn.
        `asked` counts the keys of the request, known ones included, by bucket ordinal.
        """
        numbers = range(len(located_keys)) if self.ids is None else self.ids.take(len(located_keys))
        rows = self._new_rows.rows(numbers)
        records: list[Record] = [] if self.ids is None else [*self.ids.unlogged()]
        by_ordinal: dict[bytes, list[int]] = {}
        for index, located in enumerate(located_keys):
            by_ordinal.setdefault(located[:ORDINAL_BYTES], []).append(index)
        for ordinal, indexes in by_ordinal.items():
            partition, bucket, _ = self.reader.log_address(located_keys[indexes[0]])
            records.append(
                Inserted(
                    schema_id=self._schema.id,
                    partition=partition,
                    bucket=bucket,
                    keys=[located_keys[index][ORDINAL_BYTES:] for index in indexes],
                    rows=[rows[index] for index in indexes],
                    asked=asked[ordinal],
                )
            )
        return self._under_way(keys, located_keys, rows, [encode_record(record) for record in records])

    def submit_one(self, key: KeyValues, located: bytes) -> Batch:
        """`submit` of one key."""
        rows = self._new_rows.rows((0,) if self.ids is None else self.ids.take(1))
        payloads = [] if self.ids is None else [encode_record(record) for record in self.ids.unlogged()]
        partition, bucket, key_bytes = self.reader.log_address(located)
        text = orjson.dumps(partition) if partition else b"[]"
        payloads.append(encode_insert_of_one(self._schema.id, text, bucket, key_bytes, rows[0]))
        return self._under_way([key], [located], rows, payloads)

    def _under_way(
        self, keys: Sequence[KeyValues], located_keys: list[bytes], rows: list[bytes], payloads: list[Payload]
    ) -> Batch:
        submitted = self.group_commit.submit_payloads(payloads)
        batch = Batch(keys, located_keys, rows, self.reader, submitted, submitted.get_loop().create_future())
        batch.done.add_done_callback(_retrieved)
        self._in_flight.append(batch)
        for located in located_keys:
            self.pending[located] = batch
        submitted.add_done_callback(self._settle)
        return batch

    def _settle(self, submitted: asyncio.Future[range]) -> None:
        """The oldest batch that is in flight may be acknowledged, or has failed. GroupCommit keeps their order."""
        batch = self._in_flight.popleft()
        try:
            offsets = submitted.result()
            for located in batch.located_keys:
                self.pending.pop(located, None)
            _put(self.reader, batch)
        except BaseException as exc:
            error = exc if isinstance(exc, StelaeError) else Unavailable(f"inserted rows can't be shown: {exc!r}")
            if not batch.done.done():
                batch.done.set_exception(repeated(error))
            self._on_failure(error)
            return
        self.applied = offsets.stop
        self.version += 1
        self.inserted_rows += len(batch.located_keys)
        for tail in self._tails:
            tail.append(batch)
        if not batch.done.done():
            batch.done.set_result(None)

    # Swaps

    def check_follows(self, reader: SnapshotReader) -> None:
        """A snapshot of this table, under this owner. Conflict when somebody else owns it by now. In a thread."""
        if not self.takeover.still_holds():
            raise current_owner(self.takeover.table)
        if reader.log_offset > self.group_commit.writer.durable_end:
            raise CorruptData(
                f"snapshot {reader.id} covers the log up to {reader.log_offset}, which ends at "
                f"{self.group_commit.writer.durable_end}",
                place=self.takeover.table.url,
            )

    def record(self) -> list[Batch]:
        """A list that all batches are appended to from now on, as soon as they may be shown."""
        tail: list[Batch] = []
        self._tails.append(tail)
        return tail

    def forget(self, tail: list[Batch]) -> None:
        """Append no more to a list of `record`."""
        self._tails = [other for other in self._tails if other is not tail]

    def move_to(self, reader: SnapshotReader) -> None:
        """Go on with another reader, which has all that `self.reader` shows."""
        self.reader = reader
        self.version += 1
        self.pending = {}
        for batch in self._in_flight:
            # Buckets may be others now; a key of a partition that is gone has none, and its row is in the log alone.
            found = reader.locate_many(batch.keys)
            batch.located_keys = [located or b"" for located in found]
            self.pending.update({located: batch for located in found if located is not None})


def put_all(reader: SnapshotReader, batches: Sequence[Batch]) -> None:
    """Make the rows of batches seen through a reader that is to be served next: on it keys may have other buckets."""
    for batch in batches:
        _put(reader, replace(batch, located_keys=[located or b"" for located in reader.locate_many(batch.keys)]))


def current_owner(table: Table) -> StelaeError:
    """The error that says who has a table that was lost."""
    current = TableOwnership(table.storage, str(table.name)).current()
    if current is None:
        return Conflict(f"the epochs of table {table.name} are gone", place=table.url)
    return owned_by_another(table, current)


def _put(reader: SnapshotReader, batch: Batch) -> None:
    """Make the rows of a batch seen by those who read through `reader`."""
    located_keys, rows = batch.located_keys, batch.rows
    if reader is not batch.reader:
        # A build may have brought rows of these keys with it.
        kept = [(located, row) for located, row in zip(located_keys, rows, strict=True) if located]
        known = reader.rows_at([located for located, _ in kept])
        kept = [pair for pair, row in zip(kept, known, strict=True) if row is None]
        located_keys, rows = [located for located, _ in kept], [row for _, row in kept]
    if located_keys and reader.online is not None:
        reader.online.put_many(located_keys, rows)


def _ids_left(takeover: Takeover, table: Table, reader: SnapshotReader) -> GrantedIds:
    """What an owner of this name had claimed before, and handed out to nobody. Reads the log."""
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


def _retrieved(future: asyncio.Future[None]) -> None:
    """Take the failure of a request that went away: asyncio would log that nobody did."""
    if not future.cancelled():
        future.exception()
