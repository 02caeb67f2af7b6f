"""A follower, as the leader sees it: its process, what it was told and has acknowledged, what it forwards.

started ──► python -P -m stelae.service.workers.follower, with three sockets (service/workers/follower.py)
tell    ──► TableState, numbered ──► `acknowledged` waits for the report of that number
take    ──► a connection is passed on
lost, or an error in a report ──► killed; service/workers/follower_pool.py starts the next one
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from stelae.read.background_process import child_environment
from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.http.asgi import App
from stelae.service.tables.counts import WorkerCounts
from stelae.service.workers.channel import Channel
from stelae.service.workers.connections import FollowerTarget
from stelae.service.workers.forwarding import Forwarded, answer_forwarded
from stelae.service.workers.messages import (
    Ask,
    Begin,
    OpenFolders,
    Report,
    SnapshotName,
    TableState,
    folders_of,
    indexes_of,
)

logger = logging.getLogger("stelae.server")


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
        self._acknowledged = 0
        self._told: dict[str, frozenset[SnapshotName]] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def started(cls, begin: Begin, app: App) -> FollowerHandle:
        """Start a process. `app` answers what it forwards."""
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
        follower = cls(begin.number, process, FollowerTarget(connections), app)
        await follower.control.begin(control)
        await follower.forward.begin(forward)
        follower.control.send(begin)
        return follower

    @property
    def connections(self) -> int:
        return self._passed.connections

    @property
    def up_to_date(self) -> bool:
        """Whether it has acknowledged all that it was told."""
        return self._acknowledged == self.last_state

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
            self._acknowledged = report.number
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
