"""Notices new tables and new snapshots, loads them in the background, swaps them in.

    every poll_interval_s:  which tables are there?            one thread, never more than one look at a time
                            has one of them something newer?
    for each that has:      manifest → open_snapshot           max_parallel_loads threads, and a process each
                            → ServedTable.swap                 on the event loop: one assignment
                            → the old one is closed later      in a thread, when its last requests are long gone

The event loop never waits for storage. Whatever fails leaves what is served as it is: it is counted, logged, shown by
health and metrics, and tried again after a pause that doubles up to a minute (a newer snapshot is tried at once). A
rollback is a newer manifest with older files, so nothing here knows of it; its buckets are open mostly, and shared.

When a server starts and the newest snapshot is damaged, it serves the newest older one that loads, as it would had it
been running before; `error` says so.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from stelae.errors import CorruptData, StelaeError, Unavailable
from stelae.names import TableName
from stelae.read.open_snapshot import open_snapshot
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import ServerCounts
from stelae.service.tables.data_folder import DataFolder
from stelae.service.tables.pinned_snapshots import Pins
from stelae.service.tables.served_table import LINGER_S, Keeping, ServedTable, Serving
from stelae.service.workers.follower_pool import FollowerPool
from stelae.service.writes.table_writer import Attachment, TableWriter
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.paths import schema_path
from stelae.storage.storage import exists

T = TypeVar("T")

logger = logging.getLogger("stelae.server")

OLDER_TRIED = 3
"""Snapshots before a damaged newest one that a start tries."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a table's folder found."""

    name: TableName
    table: Table | None
    """Its definition as of now; None when nothing changed, or when it can't be read."""
    newer: bool
    """Whether there is something to load."""
    error: StelaeError | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """An open snapshot, ready to be swapped in."""

    reader: SnapshotReader
    error: StelaeError | None
    """Why it is not the newest one."""


class Watcher:
    """Keeps `tables` up to date. Runs on the event loop of `run`; storage is asked in threads."""

    def __init__(
        self,
        warehouse: Warehouse,
        tables: dict[str, ServedTable],
        writers: Mapping[str, TableWriter],
        options: ServerOptions,
        folder: DataFolder,
        cache: BlockCache,
        counts: ServerCounts,
        *,
        on_table: Callable[[ServedTable], None],
        workers: FollowerPool | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_table` is called with a table that was found, before anything else is done with it: it gives it its
        writer, in `writers`, and its routes.
        """
        self._warehouse = warehouse
        self._tables = tables
        self._writers = writers
        self._options = options
        self._folder = folder
        self._cache = cache
        self._counts = counts
        self._workers = workers
        self._on_table = on_table
        self._clock = clock
        self._wall_clock = wall_clock
        self._stop = threading.Event()
        self._polls = ThreadPoolExecutor(1, "stelae-watch")
        self._loads = ThreadPoolExecutor(options.max_parallel_loads, "stelae-load")
        self._opened: dict[str, Table] = {}
        """Definitions by table, as of the last look that found something new."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._lingering: set[asyncio.Task[None]] = set()
        self._unreachable = False
        self._keeping = Keeping(options.kept_snapshots, options.pinned_snapshots, options.pin_idle_s)
        self.pins = Pins(
            self._keeping,
            lambda table: self._opened.get(table.name),
            self._open_pinned,
            self._announced,
            self._replaced,
            clock=clock,
        )
        self.looked = asyncio.Event()
        """Set when all of the warehouse was read once: until then nobody knows which tables have snapshots."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                await self.poll()
            except Exception:
                logger.exception("a look at the warehouse failed in a way that was not foreseen")
                self._counts.poll_failures += 1
            await asyncio.sleep(self._options.poll_interval_s)

    async def poll(self) -> None:
        """Look once and start what there is to load."""
        try:
            looks = await _in(self._polls, self._look)
        except StelaeError as exc:
            self._counts.poll_failures += 1
            if not self._unreachable:
                logger.warning("the warehouse can't be read; what is loaded is served on: %s", exc)
            self._unreachable = True
            return
        if self._unreachable:
            logger.info("the warehouse can be read again")
        self._unreachable = False
        self._counts.polled_at = self._wall_clock()
        for look in looks:
            self._follow(look)
        if self._workers is not None:
            self._workers.take_pins()
        for table in self._tables.values():
            self.pins.close_unpinned(table)
        await asyncio.gather(*map(self._look_after_writes, self._tables.values()))
        if not any(isinstance(look.error, Unavailable) for look in looks):
            self.looked.set()

    async def settled(self) -> None:
        """Wait until no load is under way."""
        while self._loading:
            await asyncio.wait(list(self._loading.values()))
        await self.pins.settled()

    async def reload(self, table: ServedTable) -> None:
        """Load a table from its beginning, and take it over on the way if that is wanted. Returns when that is done."""
        running = self._loading.get(table.name)
        if running is not None:
            await asyncio.wait([running])
            if self._writers[table.name].owner is not None:
                return
            # It may have gone past that point before it was wanted.
        if table.name not in self._loading and table.name in self._opened:
            self._start(table)
        if table.name in self._loading:
            await asyncio.wait([self._loading[table.name]])

    async def stop(self) -> None:
        """Give up what is under way and close everything that is open. Nothing may be answered afterwards."""
        self._stop.set()
        self.pins.stop()
        for task in (*self._loading.values(), *self._lingering):
            task.cancel()
        for pool in (self._polls, self._loads):
            pool.shutdown(wait=False, cancel_futures=True)
        for table in self._tables.values():
            table.serving = None

    # In the thread that polls

    def _look(self) -> list[Look]:
        named = dict.fromkeys(TableName.parse(name) for name in self._options.tables)
        return [self._look_at(name) for name in named or self._warehouse.tables()]

    def _look_at(self, name: TableName) -> Look:
        """Two small requests where nothing is new."""
        table = self._opened.get(str(name))
        served = self._tables.get(str(name))
        try:
            if table is None or exists(table.storage, schema_path(table.schema.id + 1)):
                table = self._warehouse.table(name)
                return Look(name, table, newer=table.snapshots.has_newer(None))
            newest = None if served is None else served.newest_id
            if table.snapshots.has_newer(newest):
                return Look(name, table, newer=True)
            return Look(name, None, newer=False)
        except StelaeError as exc:
            return Look(name, None, newer=False, error=exc)

    # On the event loop

    def _follow(self, look: Look) -> None:
        name = str(look.name)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = ServedTable(look.name, self._clock)
            table.open_pinned = partial(self.pins.explain, table)
            self._on_table(table)
            logger.info("%s: found", name)
        if look.error is not None:
            self._look_failed(table, look.error)
            return
        if look.table is not None:
            self._opened[name] = look.table
            table.schema = look.table.schema
        if table.newest_id is None and not look.newer:
            table.recovered()  # a definition that could not be read, of a table that was never built
        retry = table.error is not None and self._clock() >= table.retry_at
        if (look.newer or retry) and name not in self._loading:
            self._start(table)

    def _start(self, table: ServedTable) -> None:
        table.loading = True
        # At the start nobody waits for an answer yet: then the shorter way.
        in_background = self._options.separate_loads and self.looked.is_set()
        self._loading[table.name] = asyncio.create_task(self._load(table, self._opened[table.name], in_background))

    async def _look_after_writes(self, table: ServedTable) -> None:
        opened = self._opened.get(table.name)
        if opened is None or table.name in self._loading:
            return
        if await self._writers[table.name].look(opened) and table.name not in self._loading:
            self._start(table)

    def _look_failed(self, table: ServedTable, error: StelaeError) -> None:
        if isinstance(error, Unavailable):
            self._counts.poll_failures += 1  # the storage: nothing is known about the table
        elif table.error is None or str(table.error) != str(error):
            logger.error("%s: %s", table.name, error)
            table.error = error

    async def _load(self, table: ServedTable, opened: Table, in_background: bool) -> None:
        started = self._clock()
        previous = table.serving.reader if table.serving else None
        writer = self._writers[table.name]
        try:
            await writer.take(opened)  # it may commit a snapshot
            newest_id = await _in(self._loads, opened.snapshots.latest_id)
            if newest_id is None:
                return
            table.newest_id = newest_id
            loaded = await _in(self._loads, partial(self._open, opened, newest_id, previous, in_background))
            async with self._announced(table, loaded.reader):
                if not await self._serve_loaded(table, opened, loaded, previous, started):
                    return
            await writer.swapped(opened)
        except StelaeError as exc:
            self._load_failed(table, exc)
        except Exception as exc:
            if self._stop.is_set():
                return  # the server ends, and the threads that would have cleaned up are gone
            logger.exception("%s: loading failed in a way that was not foreseen", table.name)
            self._load_failed(table, StelaeError(f"{type(exc).__name__}: {exc}", place=table.name))
        finally:
            table.loading = False
            self._loading.pop(table.name, None)

    async def _serve_loaded(
        self, table: ServedTable, opened: Table, loaded: Loaded, previous: SnapshotReader | None, started: float
    ) -> bool:
        """Serve what was loaded, with the online rows above it. False if there is nothing new in it."""
        attachment = await self._writers[table.name].attach(opened, loaded.reader)
        if attachment.finish is None and _same(previous, loaded.reader):
            # Online rows of a time when the table was ours are shown on.
            table.recovered()
            return False
        self._swap(table, loaded, attachment, self._clock() - started)
        return True

    @asynccontextmanager
    async def _announced(self, table: ServedTable, reader: SnapshotReader) -> AsyncIterator[None]:
        """Whoever is told of this snapshot in here can pin it at any process, and no process says of a key that is
        inserted in here that it is not there.
        """
        if self._workers is None:
            yield
            return
        try:
            await self._workers.prepare(table, reader)
            yield
        finally:
            self._workers.publish(table, reader)

    def _swap(self, table: ServedTable, loaded: Loaded, attachment: Attachment, seconds: float) -> None:
        before = table.swap(attachment.finished(), self._keeping)
        table.counts.loads += 1
        table.counts.load_seconds += seconds
        table.counts.last_load_seconds = seconds
        if loaded.error is None:
            table.recovered()
        else:
            self._load_failed(table, loaded.error)
        snapshot = loaded.reader.snapshot
        logger.info(
            "%s: snapshot %d is served (%s rows, %.2f s%s)",
            table.name,
            snapshot.id,
            f"{snapshot.totals.visible_rows:,}",
            seconds,
            f"; before: {before.reader.id}" if before else "",
        )
        if before is not None:
            self._replaced(table, before)

    def _replaced(self, table: ServedTable, before: Serving) -> None:
        """Some of what was open before is open no more."""
        if self._workers is not None:
            self._workers.publish(table)
        task = asyncio.create_task(self._close_later([before]))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _load_failed(self, table: ServedTable, error: StelaeError) -> None:
        # The stack of the failure holds the tablets of that attempt, and those of the snapshot that is served.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        serving = table.serving
        again = table.error is not None and str(table.error) == str(error)
        table.failed(error, self._clock(), self._options.poll_interval_s)
        if not again:
            what = f"snapshot {serving.reader.id} is served on" if serving else "nothing is served"
            logger.error("%s: the newest snapshot can't be loaded, %s: %s", table.name, what, error)

    async def _open_pinned(self, table: Table, number: int, sharing: list[SnapshotReader]) -> SnapshotReader:
        in_background = self._options.separate_loads
        return await _in(self._loads, partial(self._open_one, table, number, sharing, in_background))

    async def _close_later(self, holder: list[object]) -> None:
        """Drop what `holder` holds, in a thread, after a while: the last reference closes the files."""
        if self._workers is not None:
            await self._workers.acknowledged()
        await asyncio.sleep(LINGER_S)
        with suppress(RuntimeError):  # the server is ending
            await _in(self._polls, partial(self._drop, holder))

    def _drop(self, holder: list[object]) -> None:
        holder.clear()
        self._folder.sweep()

    # In a thread that loads

    def _open(self, table: Table, newest_id: int, previous: SnapshotReader | None, in_background: bool) -> Loaded:
        try:
            return Loaded(self._open_one(table, newest_id, previous, in_background), None)
        except CorruptData as exc:
            if previous is not None:
                raise
            for older in reversed(table.snapshots.retained_ids()[:-1][-OLDER_TRIED:]):
                with suppress(StelaeError):
                    return Loaded(self._open_one(table, older, None, in_background), exc)
            raise

    def _open_one(
        self,
        table: Table,
        snapshot_id: int,
        previous: SnapshotReader | list[SnapshotReader] | None,
        in_background: bool,
    ) -> SnapshotReader:
        snapshot: Snapshot = table.snapshots.read(snapshot_id)
        return open_snapshot(
            table,
            snapshot,
            self._folder.path,
            self._cache,
            previous=previous,
            threads=self._options.load_threads,
            stop=self._stop,
            in_background=in_background,
        )


def _same(previous: SnapshotReader | None, reader: SnapshotReader) -> bool:
    """Whether a reader shows what the one before it shows, but for online rows."""
    if previous is None:
        return False
    return (previous.id, previous.table.schema.id) == (reader.id, reader.table.schema.id)


async def _in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)
