"""A follower: a process that answers lookups from the files of the one that owns the tables.

    python -P -m stelae.service.workers.follower CONTROL FORWARD CONNECTIONS

The leader (service/workers/follower_handle.py) starts it, and it inherits these sockets:

    CONTROL       what to serve (service/workers/messages.py) ──►    ◄── that it does, and what it counted
    FORWARD       requests that the leader has to answer (service/workers/forwarding.py)
    CONNECTIONS   accepted connections (service/workers/connections.py)

It sees no storage, writes nothing, and has nothing to clean up: when one of its sockets is closed, the leader is gone,
and it ends at once. Signals are the leader's: Ctrl-C goes to all processes of a terminal, SIGTERM of a service manager
to all of a service, and the leader tells its followers when it is their turn to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import uvicorn

from stelae.errors import StelaeError
from stelae.names import TableName
from stelae.rocksdb.block_cache import BlockCache
from stelae.service.http.arrow_bodies import ReadThreads
from stelae.service.http.asgi import Receive, Scope, Send, send_body
from stelae.service.http.fast_lookup import PointLookups
from stelae.service.http.lookup_routes import LookupRoute, PrefixLookupRoute
from stelae.service.http.uvicorn_config import GC_THRESHOLDS, leave_pandas_out, uvicorn_config
from stelae.service.http.uvicorn_protocol import AnswerNow, answering
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import ServerCounts, WorkerCounts
from stelae.service.tables.served_table import LINGER_S, ForwardToOwner, ServedTable
from stelae.service.workers.channel import MESSAGE_LENGTH, Channel
from stelae.service.workers.connections import OwnTarget, ReceivedConnections
from stelae.service.workers.followed_table import FollowedTable, OpenTablets
from stelae.service.workers.forwarding import Forwarder, Replayed
from stelae.service.workers.messages import Ask, Begin, Drain, Report, TableState
from stelae.wire.http_api import lookup_path, prefix_lookup_path

logger = logging.getLogger("stelae.server")


class Follower:
    """The application."""

    def __init__(self, options: ServerOptions, block_cache_bytes: int) -> None:
        self.options = options
        self.tables: dict[str, FollowedTable] = {}
        self.counts = ServerCounts()
        self.cache = BlockCache(block_cache_bytes)
        self.threads = ReadThreads()
        self.forwarder = Forwarder(options.max_body_bytes, max(1, round(options.poll_interval_s)), _leader_is_gone)
        self.answers_now: dict[bytes, AnswerNow] = {}
        self._tablets = OpenTablets(self.cache)
        self._hot: dict[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {}
        self._opening = ThreadPoolExecutor(1, "stelae-open")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope.get("path", "")
        route = self._hot.get(path)
        if route is not None:
            return self._answer(route, scope, receive, send)
        if scope["type"] == "lifespan":
            return _follow_lifespan(receive, send)
        if path == "/livez" and scope["method"] in ("GET", "HEAD"):
            return send_body(send, 200, [(b"content-type", b"text/plain; charset=utf-8")], b"ok\n")
        return self.forwarder.forward(scope, receive, send)

    async def follow(self, state: TableState) -> None:
        """Serve a table as the leader says."""
        table = self.tables.get(state.table)
        if table is None:
            served = ServedTable(TableName.parse(state.table))
            served.open_pinned = _ask_the_leader
            table = self.tables[state.table] = FollowedTable(served, self._tablets)
        if state.new or state.indexes:
            await asyncio.get_running_loop().run_in_executor(self._opening, table.open, state)
        gone = table.follow(state)
        if table.served.serving is not None and lookup_path(state.table) not in self._hot:
            self._add_routes(table.served)
        asyncio.get_running_loop().call_later(LINGER_S, partial(self._drop, gone))

    def report(self, number: int, error: str | None = None) -> Report:
        used = resource.getrusage(resource.RUSAGE_SELF)
        counts = WorkerCounts(
            {name: table.served.counts for name, table in self.tables.items()},
            self.counts,
            cache_bytes=self.cache.usage_bytes(),
            cpu_seconds=used.ru_utime + used.ru_stime,
            resident_bytes=_resident_bytes(),
            forwarded=self.forwarder.count,
        )
        return Report(number, counts, {name: table.pins() for name, table in self.tables.items()}, error)

    def _add_routes(self, table: ServedTable) -> None:
        shared = (self.options, self.counts, self.threads)
        fast_lookup = PointLookups(table)
        lookup = LookupRoute(table, *shared)
        prefix_lookup = PrefixLookupRoute(table, *shared)
        for name in table.names_in_paths:
            self.answers_now[f"GET {lookup_path(name)}".encode()] = fast_lookup.answer
            self._hot[lookup_path(name)] = lookup.answer
            self._hot[prefix_lookup_path(name)] = prefix_lookup.answer

    async def _answer(
        self, route: Callable[[Scope, Receive, Send], Awaitable[None]], scope: Scope, receive: Receive, send: Send
    ) -> None:
        replayed = Replayed(receive)
        try:
            await route(scope, replayed.first, send)
        except ForwardToOwner:
            await self.forwarder.forward(scope, replayed.again, send)

    def _drop(self, gone: list[object]) -> None:
        with contextlib.suppress(RuntimeError):  # ending
            self._opening.submit(gone.clear)  # in a thread, since the last reference closes files


class FollowerServer(uvicorn.Server):
    """uvicorn with connections that come from the leader."""

    def __init__(self, config: uvicorn.Config, app: Follower, ends: list[socket.socket]) -> None:
        super().__init__(config)
        self._app = app
        self._ends = ends
        self._control = Channel(self._told, _leader_is_gone)
        self._states: asyncio.Queue[TableState] = asyncio.Queue()
        self._is_frozen = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        await super().startup(sockets=[])
        control, forward, connections = self._ends
        await self._app.forwarder.channel.begin(forward)
        self._received = ReceivedConnections(connections, OwnTarget(self), _leader_is_gone)
        self.config.http_protocol_class.ended = self._received.closed  # type: ignore[attr-defined]
        self._following = asyncio.create_task(self._follow())
        await self._control.begin(control)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        self._received.stop()
        await super().shutdown(sockets=[])

    def _told(self, message: object) -> None:
        match message:
            case TableState():
                self._states.put_nowait(message)
            case Ask():
                self._control.send(self._app.report(message.number))
            case Drain():
                self.should_exit = True

    async def _follow(self) -> None:
        """Follow one state after the other, as they come."""
        while True:
            state = await self._states.get()
            error = None
            try:
                await self._app.follow(state)
            except Exception as exc:
                if not isinstance(exc, StelaeError):
                    logger.exception("%s can't be served by this worker", state.table)
                error = str(exc)
            self._control.send(self._app.report(state.number, error))
            if not self._is_frozen and self._states.empty():
                self._is_frozen = True
                gc.collect()
                gc.freeze()  # as in service/server.py: what is loaded now stays


async def _follow_lifespan(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _ask_the_leader(number: int) -> NoReturn:  # noqa: ARG001
    raise ForwardToOwner


def _leader_is_gone() -> None:
    os._exit(0)  # at once, whatever is under way: nobody can be asked any more, and the port is to be free


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _first_message(control: socket.socket) -> Any:
    def read(size: int) -> bytes:
        data = control.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            _leader_is_gone()
        return data

    (length,) = MESSAGE_LENGTH.unpack(read(MESSAGE_LENGTH.size))
    return pickle.loads(read(length))  # noqa: S301 (from the leader)


def main() -> None:
    """The process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ends = [socket.socket(fileno=int(number)) for number in sys.argv[1:4]]
    begin: Begin = _first_message(ends[0])
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s worker {begin.number}: %(message)s", stream=sys.stderr
    )
    gc.set_threshold(*GC_THRESHOLDS)
    leave_pandas_out()
    app = Follower(begin.options, begin.block_cache_bytes)
    protocol = type("FollowerProtocol", (_Counted, answering(app.answers_now)), {})
    FollowerServer(uvicorn_config(app, begin.options, protocol), app, ends).run()
    logging.shutdown()
    os._exit(0)


class _Counted:
    """A protocol that says when its connection ended."""

    ended: Callable[[], None]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)  # type: ignore[misc]
        type(self).ended()


if __name__ == "__main__":
    main()
