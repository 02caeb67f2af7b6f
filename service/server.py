"""The process: a socket, uvicorn, signals, one line when it is ready.

    SIGTERM, SIGINT   →  /readyz says 503  →  drain_s later: no new connections, requests in flight finish
                      →  shutdown_grace_s later at the latest: cut off, exit code 0
    a second signal   →  the same, at once

uvicorn with uvloop and httptools: of the pure and compiled parts that it can be put together from, the fastest, and
each answer in one write (`service/http/uvicorn_protocol.py`). No access log (a line a request costs more than the
request), no Date and Server headers (proxies add them).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

import uvicorn

from stelae.errors import InvalidRequest
from stelae.service.app import TabletServer, create_app
from stelae.service.http.uvicorn_config import BACKLOG, GC_THRESHOLDS, leave_pandas_out, uvicorn_config
from stelae.service.http.uvicorn_protocol import answering
from stelae.service.options import ServerOptions
from stelae.service.tables.served_table import State
from stelae.service.workers.connections import Acceptor, OwnTarget
from stelae.snapshot.warehouse import Warehouse

logger = logging.getLogger("stelae.server")

EXIT_WAIT_S = 5.0
"""How long threads that wait for storage may take after the last request."""


def run_server(options: ServerOptions, warehouse: Warehouse, on_ready: Callable[[Ready], None]) -> None:
    """Serve until a signal says to stop. Returns when everything is closed. `on_ready` is called once, when all tables
    are loaded, or have failed to.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    started = time.perf_counter()
    listening = _bind(options)
    app = create_app(options, warehouse)
    app.port = listening.getsockname()[1]
    app.on_ready = lambda: on_ready(_ready(app, listening, time.perf_counter() - started))
    gc.set_threshold(*GC_THRESHOLDS)
    leave_pandas_out()
    with listening:
        _Server(uvicorn_config(app, options, answering(app.answers_now)), app, options.drain_s).run(sockets=[listening])
    _leave()


@dataclass(frozen=True, slots=True)
class Ready:
    """What a server has when it is ready."""

    url: str
    """Where it listens."""
    seconds: float
    """Since it was started."""
    tables: int
    """That are served."""
    rows: int
    """Of them."""
    never_built: Sequence[str]
    """Tables without a snapshot."""
    not_loadable: Sequence[str]
    """Tables with snapshots of which none loads; the log says why."""


class _Server(uvicorn.Server):
    """uvicorn that drains first, and exits with 0 after a signal that it obeyed."""

    def __init__(self, config: uvicorn.Config, app: TabletServer, drain_s: float) -> None:
        super().__init__(config)
        self._app = app
        self._drain_s = drain_s
        self._acceptors: list[Acceptor] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        workers = self._app.workers
        if workers is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for listening in sockets or []:
            listening.listen(BACKLOG)
            self._acceptors.append(Acceptor(listening, OwnTarget(self), workers.targets))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        if self._app.workers is not None:
            self._app.workers.drain()
        await super().shutdown(sockets)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._app.draining:
            self.should_exit = self.force_exit = True
            return
        self._app.draining = True
        when = f" in {self._drain_s:g} s" if self._drain_s else ""
        logger.info("%s: no new requests%s", signal.Signals(sig).name, when)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_s, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def _bind(options: ServerOptions) -> socket.socket:
    """A socket at the address, not listening yet: until uvicorn does, connections are refused."""
    place = f"{options.host}:{options.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as exc:
        raise InvalidRequest(
            f"can't listen there: {exc.strerror or exc}", place=place, hint="choose another --host or --port"
        ) from exc
    return listening


def _ready(app: TabletServer, listening: socket.socket, seconds: float) -> Ready:
    gc.collect()
    gc.freeze()  # what is loaded now stays: no need to look through it again
    host, port = listening.getsockname()[:2]
    where = f"[{host}]" if ":" in host else host

    def names(state: State) -> list[str]:
        return [name for name, table in app.tables.items() if table.state is state]

    served = [app.tables[name].serving for name in names(State.READY)]
    rows = sum(serving.reader.snapshot.totals.visible_rows for serving in served if serving is not None)
    return Ready(f"http://{where}:{port}", seconds, len(served), rows, names(State.EMPTY), names(State.FAILED))


def _leave() -> None:
    """Wait for threads; one that a storage does not answer must not hold up the exit."""
    deadline = time.monotonic() + EXIT_WAIT_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                logger.warning("a thread still waits for storage; leaving it")
                logging.shutdown()
                os._exit(0)
