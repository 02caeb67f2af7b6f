"""The followers of a server: started, told what to serve, asked what they counted, ended. In the leader.

    start ──► python -m stelae.service.workers.follower ──► Begin ──► TableState of every table ──► takes part
    ended, whatever the reason ──► logged, and started again, after a pause that doubles

    swap      prepare: every follower opens the next snapshot, and forwards all misses of the table until further notice
              ──► all have acknowledged ──► the leader swaps ──► publish: followers swap, and forward what they have to
              ──► all have acknowledged ──► the leader lets go of the snapshot before

So whoever gets an answer from a snapshot can pin it at any process, and an inserted row, which no follower has, is
asked for at the leader by all of them before it is acknowledged. A follower that does not acknowledge in time is
killed: it can't answer from what it was not told, and nobody waits for it longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from stelae.read.background_process import child_environment
from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.http.asgi import App
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import TableCounts, WorkerCounts
from stelae.service.tables.served_table import ServedTable
from stelae.service.workers.channel import Channel
from stelae.service.workers.connections import FollowerTarget
from stelae.service.workers.forwarding import Forwarded, answer_forwarded
from stelae.service.workers.shared_state import (
    Ask,
    Begin,
    Drain,
    OpenFolders,
    Report,
    SnapshotName,
    TableState,
    folders_of,
    indexes_of,
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


class Workers:
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
        follower = await FollowerHandle.started(self, number)
        self._followers[number] = follower
        begins = asyncio.create_task(self._bring_in(follower))
        try:
            return await follower.process.wait()
        finally:
            begins.cancel()
            follower.close()
            self._followers.pop(number, None)
            if follower.counts is not None:
                gone = self._gone.setdefault(number, WorkerCounts())
                gone.add(follower.counts)

    async def _bring_in(self, follower: FollowerHandle) -> None:
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

    async def followed(self) -> None:
        """Wait until all have followed what they were told by now."""
        told = [(follower, follower.last_state) for follower in self._followers.values() if follower.last_state]
        await asyncio.gather(*(follower.acknowledged(number, START_S) for follower, number in told))

    def _told_to_all(self, table: ServedTable) -> asyncio.Future[list[None]]:
        told = [(follower, self._tell(follower, table)) for follower in self._followers.values()]
        return asyncio.gather(*(self._acknowledged(follower, number) for follower, number in told))

    async def _acknowledged(self, follower: FollowerHandle, number: int) -> None:
        # Who is not in service yet comes into service only when it has followed all it was told.
        if not follower.in_service:
            return
        if not await follower.acknowledged(number, ACKNOWLEDGE_S) and not follower.is_gone:
            logger.error("worker %d did not follow a change within %g s", follower.number, ACKNOWLEDGE_S)
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


class FollowerHandle:
    """A follower, as the leader sees it. Connections go to it, too."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, passed: FollowerTarget, app: App) -> None:
        self.control = Channel(self._reported, self._lost)
        self.forward = Channel(partial(self._forwarded, app), lambda: None)
        self.number = number
        self.process = process
        self.in_service = False
        self.is_gone = False
        self.ended = asyncio.Event()
        self.report: Report | None = None
        """The last one."""
        self.last_state = 0
        """The number of the last state that it was told."""
        self._last_sent = 0
        self._passed = passed
        self._followed = 0
        self._told: dict[str, frozenset[SnapshotName]] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def started(cls, workers: Workers, number: int) -> FollowerHandle:
        """Start a process."""
        kinds = (socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
        pairs = [socket.socketpair(socket.AF_UNIX, kind) for kind in kinds]
        theirs = [pair[1].fileno() for pair in pairs]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # not from the working folder
                "-m",
                "stelae.service.workers.follower",
                *map(str, theirs),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),  # standard output is for the line that says that all is ready
                pass_fds=theirs,
                start_new_session=True,  # Ctrl-C is for the leader, which ends this one by itself
                env=child_environment(),
            )
        except BaseException:
            for mine, _ in pairs:
                mine.close()
            raise
        finally:
            for _, other in pairs:
                other.close()
        control, forward, connections = (mine for mine, _ in pairs)
        follower = cls(number, process, FollowerTarget(connections), workers.app)
        await follower.control.begin(control)
        await follower.forward.begin(forward)
        follower.control.send(Begin(workers.options, workers.block_cache_bytes, number))
        return follower

    @property
    def connections(self) -> int:
        return self._passed.connections

    @property
    def up_to_date(self) -> bool:
        """Whether it follows all that it was told."""
        return self._followed == self.last_state

    @property
    def counts(self) -> WorkerCounts | None:
        return None if self.report is None else self.report.counts

    def take(self, connection: socket.socket) -> bool:
        return self._passed.take(connection)

    def tell(
        self,
        table: str,
        current: SnapshotName | None,
        readers: Mapping[SnapshotName, SnapshotReader],
        forwarding: frozenset[SnapshotName],
    ) -> int:
        """How a table is to be served from now on. Returns the number by which it is acknowledged."""
        known = self._told.get(table, frozenset())
        new: dict[SnapshotName, OpenFolders] = {
            name: folders_of(reader) for name, reader in readers.items() if name not in known
        }
        self._told[table] = frozenset(readers)
        self._last_sent += 1
        self.last_state = self._last_sent
        self._waiting[self._last_sent] = asyncio.get_running_loop().create_future()
        indexes = {name: folders for name, reader in readers.items() if any(folders := indexes_of(reader))}
        self.control.send(TableState(self._last_sent, table, current, list(readers), forwarding, new, indexes))
        return self._last_sent

    def ask(self) -> int:
        """Have it report. Returns the number of the report."""
        self._last_sent += 1
        self._waiting[self._last_sent] = asyncio.get_running_loop().create_future()
        self.control.send(Ask(self._last_sent))
        return self._last_sent

    async def acknowledged(self, number: int, within_s: float) -> bool:
        """Wait for a report. False if it does not come in time, or never will."""
        waiting = self._waiting.get(number)
        if waiting is not None and not self.is_gone:
            try:
                await asyncio.wait_for(asyncio.shield(waiting), max(0.0, within_s))
            except TimeoutError:
                return False
        return not self.is_gone

    def kill(self) -> None:
        self.in_service = False
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """It ended."""
        self._lost()
        self.ended.set()
        self.control.close()
        self.forward.close()
        self._passed.close()
        for task in self._answering:
            task.cancel()

    def _reported(self, report: Report) -> None:
        self.report = report
        if report.error is not None:
            logger.error("worker %d: %s", self.number, report.error)
            self.kill()  # its successor begins from nothing
            return
        if report.number == self.last_state:
            self._followed = report.number
        waiting = self._waiting.pop(report.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _lost(self) -> None:
        self.in_service = False
        self.is_gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
        self.kill()

    def _forwarded(self, app: App, request: Forwarded) -> None:
        task = asyncio.create_task(self._answer(app, request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, app: App, request: Forwarded) -> None:
        self.forward.send(await answer_forwarded(app, request))
