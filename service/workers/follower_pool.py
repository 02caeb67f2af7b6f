"""The followers of a server: started, told what to serve, asked what they counted, ended. In the leader.

    start ──► FollowerHandle.started ──► Begin ──► TableState of every table ──► takes part
    ended, whatever the reason ──► logged, and started again, after a pause that doubles

    swap      prepare: every follower opens the next snapshot, and forwards all misses of the table until further notice
              ──► all have acknowledged ──► the leader swaps ──► publish: followers swap, and forward what they have to
              ──► all have acknowledged ──► the leader closes the snapshot before

So whoever gets an answer from a snapshot can pin it at any process, and an inserted row, which no follower has, is
asked for at the leader by all of them before it is acknowledged. A follower that does not acknowledge in time is
killed: it can't answer from what it was not told, and nobody waits for it longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.http.asgi import App
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import TableCounts, WorkerCounts
from stelae.service.tables.served_table import ServedTable
from stelae.service.workers.follower_handle import FollowerHandle
from stelae.service.workers.messages import (
    Begin,
    Drain,
    SnapshotName,
    name_of,
)

logger = logging.getLogger("stelae.server")

ACKNOWLEDGE_S = 5.0
"""How long a follower may take for what it is told."""
START_S = 60.0
"""And for all that it is told when it starts."""
BEAT_S = 2.0
"""How often followers are asked what they counted, and so, whether they live."""
SCRAPE_S = 1.0
"""How long a scrape waits for their answers; then the ones before count."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Between the end of a follower and the next one in its place."""
GOOD_S = 60.0
"""A follower that lived so long did not fail because of how it was started."""
END_S = 2.0
"""How long a follower may take to end behind its last request."""


class FollowerPool:
    """The followers of one server. Lives on the leader's event loop."""

    def __init__(self, options: ServerOptions, tables: Mapping[str, ServedTable], app: App) -> None:
        self.restarts = 0
        self.options = options
        self.app = app
        self._tables = tables
        self._preparing: dict[str, list[SnapshotReader]] = {}
        self._followers: dict[int, FollowerHandle] = {}
        self._names: WeakKeyDictionary[SnapshotReader, SnapshotName] = WeakKeyDictionary()
        self._gone: dict[int, WorkerCounts] = {}
        """What followers that are no more had counted, by the number of the worker."""
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: set[asyncio.Future[list[None]]] = set()
        self._ending = False
        self._changed = asyncio.Event()

    @property
    def block_cache_bytes(self) -> int:
        """Each process's part of the block cache."""
        return self.options.block_cache_bytes // self.options.workers

    @property
    def numbers(self) -> range:
        """Those of the followers; the leader is worker 0."""
        return range(1, self.options.workers)

    # Life

    @property
    def is_ending(self) -> bool:
        return self._ending

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep(number)) for number in self.numbers]
        self._tasks.append(asyncio.create_task(self._beat()))

    async def all_in_service(self, within_s: float) -> bool:
        """Wait until every follower gets connections."""
        deadline = time.monotonic() + within_s
        while len(self.targets()) < len(self.numbers):
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - time.monotonic())
            except TimeoutError:
                return False
        return True

    def drain(self) -> None:
        """Have all finish what is under way, and end. Nobody gets connections any more."""
        if self._ending:
            return
        self._ending = True
        for follower in self._followers.values():
            if not follower.in_service:
                follower.kill()
            follower.in_service = False
            follower.control.send(Drain())

    async def stop(self) -> None:
        """Wait for the ends of all, for as long as requests may take, and see to them."""
        self.drain()
        ends = [follower.ended.wait() for follower in self._followers.values()]
        if ends:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*ends), self.options.shutdown_grace_s + END_S)
        for follower in list(self._followers.values()):
            follower.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, number: int) -> None:
        """Have a follower of this number, always."""
        pause = FIRST_PAUSE_S
        while not self._ending:
            started = time.monotonic()
            code: int | None = None
            try:
                code = await self._run(number)
            except OSError as exc:
                logger.error("worker %d can't be started: %s", number, exc)
            except Exception:
                logger.exception("worker %d failed in a way that was not foreseen", number)
            if self.is_ending:
                return
            self.restarts += 1
            pause = FIRST_PAUSE_S if time.monotonic() - started > GOOD_S else min(pause * 2, LONGEST_PAUSE_S)
            logger.error("worker %d ended with %s; another one is started in %.1f s", number, code, pause)
            await asyncio.sleep(pause)

    async def _run(self, number: int) -> int:
        follower = await FollowerHandle.started(Begin(self.options, self.block_cache_bytes, number), self.app)
        self._followers[number] = follower
        begins = asyncio.create_task(self._put_in_service(follower))
        try:
            return await follower.process.wait()
        finally:
            begins.cancel()
            follower.close()
            self._followers.pop(number, None)
            if follower.counts is not None:
                gone = self._gone.setdefault(number, WorkerCounts())
                gone.add(follower.counts)

    async def _put_in_service(self, follower: FollowerHandle) -> None:
        """Tell a new follower all there is, and give it connections when it serves that."""
        deadline = time.monotonic() + START_S
        for table in self._tables.values():
            self._tell(follower, table)
        while True:
            number = follower.last_state or follower.ask()  # where there are no tables: whether it runs
            if not await follower.acknowledged(number, deadline - time.monotonic()):
                if not follower.is_gone:
                    logger.error("worker %d did not begin to serve within %g s", follower.number, START_S)
                follower.kill()
                return
            if follower.up_to_date:
                break
        if not self._ending:
            follower.in_service = True
            self._changed.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            asked = [(follower, follower.ask()) for follower in self.targets()]
            for follower, number in asked:
                if not await follower.acknowledged(number, ACKNOWLEDGE_S) and not follower.is_gone:
                    logger.error("worker %d does not answer", follower.number)
                    follower.kill()

    # What is served

    def targets(self) -> list[FollowerHandle]:
        """Those that get connections."""
        return [follower for follower in self._followers.values() if follower.in_service]

    async def prepare(self, table: ServedTable, reader: SnapshotReader) -> None:
        """Have this snapshot open everywhere, and everything that is missing in any snapshot of the table forwarded,
        until `publish`.
        """
        self._preparing.setdefault(table.name, []).append(reader)
        await self._told_to_all(table)
        self._take_pins(table)

    def publish(self, table: ServedTable, prepared: SnapshotReader | None = None) -> None:
        """Have all followers serve the table as the leader does."""
        readers = self._preparing.get(table.name, [])
        self._preparing[table.name] = [reader for reader in readers if reader is not prepared]
        task = asyncio.ensure_future(self._told_to_all(table))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def acknowledged(self) -> None:
        """Wait until all have acknowledged what they were told by now."""
        told = [(follower, follower.last_state) for follower in self._followers.values() if follower.last_state]
        await asyncio.gather(*(follower.acknowledged(number, START_S) for follower, number in told))

    def _told_to_all(self, table: ServedTable) -> asyncio.Future[list[None]]:
        told = [(follower, self._tell(follower, table)) for follower in self._followers.values()]
        return asyncio.gather(*(self._acknowledged(follower, number) for follower, number in told))

    async def _acknowledged(self, follower: FollowerHandle, number: int) -> None:
        # Who is not in service yet comes into service only when it has acknowledged all that it was told.
        if not follower.in_service:
            return
        if not await follower.acknowledged(number, ACKNOWLEDGE_S) and not follower.is_gone:
            logger.error("worker %d did not acknowledge a change within %g s", follower.number, ACKNOWLEDGE_S)
            follower.kill()
        if follower.is_gone:
            await follower.ended.wait()

    def _tell(self, follower: FollowerHandle, table: ServedTable) -> int:
        readers: dict[SnapshotName, SnapshotReader] = {}
        forwarding = set()
        current = None
        serving, preparing = table.serving, self._preparing.get(table.name)
        if serving is not None:
            for opened in (serving.current, *serving.kept.values()):
                name = self._name_of(opened.reader)
                readers[name] = opened.reader
                if opened.reader.online is not None:
                    forwarding.add(name)
            current = self._name_of(serving.reader)
        if preparing:
            for reader in preparing:
                readers.setdefault(self._name_of(reader), reader)
            forwarding = set(readers)
        return follower.tell(table.name, current, readers, frozenset(forwarding))

    def _name_of(self, reader: SnapshotReader) -> SnapshotName:
        name = self._names.get(reader)
        if name is None:
            name = self._names[reader] = name_of(reader)
        return name

    def _take_pins(self, table: ServedTable) -> None:
        serving = table.serving
        if serving is None:
            return
        for follower in self._followers.values():
            pins = follower.report.pins.get(table.name, {}) if follower.report is not None else {}
            for opened in (serving.current, *serving.kept.values()):
                opened.pinned_at = max(opened.pinned_at, pins.get(opened.reader.id, opened.pinned_at))

    def take_pins(self) -> None:
        """Note for all tables what was pinned at followers."""
        for table in self._tables.values():
            self._take_pins(table)

    # What is counted

    def counts_of(self, table: ServedTable) -> TableCounts:
        """What all processes have counted of a table, as far as known."""
        total = TableCounts()
        total.add(table.counts)
        for counts in (*self._gone.values(), *(follower.counts for follower in self._followers.values())):
            if counts is not None and table.name in counts.tables:
                total.add(counts.tables[table.name])
        return total

    async def counts(self) -> dict[int, WorkerCounts]:
        """What the followers have counted, and those before them, by number."""
        asked = [(follower, follower.ask()) for follower in self.targets()]
        await asyncio.gather(*(follower.acknowledged(number, SCRAPE_S) for follower, number in asked))
        all_counts = {}
        for number in self.numbers:
            counts = WorkerCounts()
            gone, follower = self._gone.get(number), self._followers.get(number)
            if gone is not None:
                counts.add(gone)
            if follower is not None and follower.counts is not None:
                counts.add(follower.counts)
                counts.resident_bytes = follower.counts.resident_bytes
                counts.cache_bytes = follower.counts.cache_bytes
                counts.server.in_flight = follower.counts.server.in_flight
                counts.connections = follower.connections
            all_counts[number] = counts
        return all_counts
