"""The ASGI application: hot paths straight to their endpoints, all others to FastAPI.

    scope["path"] ─┬─ in the dict of hot paths ──── service/http/lookup_routes.py   lookups
                   └─ not in it ─────────────────── FastAPI                tables, probes, metrics, documentation

    create_app(options, warehouse)  →  TabletServer: tables + watcher + metrics + both kinds of routes

The server starts to listen at once, and answers 503 until tables are loaded. `/livez` says that the loop runs.
`/readyz` says that every table that was there with a snapshot at the start is served; a table that appears later, and
a newer snapshot that does not load, never make a server unready that answers all it did before.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.names import DEFAULT_DATABASE
from stelae.rocksdb.block_cache import BlockCache
from stelae.service.http.arrow_bodies import ReadThreads
from stelae.service.http.asgi import (
    ClientDisconnectedError,
    MethodNotAllowed,
    Receive,
    Scope,
    Send,
    send_problem,
    status_of,
)
from stelae.service.http.fast_lookup import PointLookups
from stelae.service.http.insert_route import InsertRoute
from stelae.service.http.lookup_routes import LookupRoute, PrefixLookupRoute
from stelae.service.http.metrics_page import Metrics
from stelae.service.http.openapi import openapi_page
from stelae.service.http.table_json import Readiness, TableDescription, TableList, describe_table, summarize_table
from stelae.service.http.uvicorn_protocol import AnswerNow
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import ServerCounts, TableCounts
from stelae.service.tables.data_folder import DataFolder
from stelae.service.tables.index_builder import IndexBuilder
from stelae.service.tables.served_table import ServedTable, State, unknown_table
from stelae.service.watcher import Watcher
from stelae.service.workers.follower_pool import FollowerPool
from stelae.service.writes.table_writer import Identity, TableWriter
from stelae.snapshot.warehouse import Warehouse
from stelae.wire.http_api import SNAPSHOT_HEADER, TABLES_PATH, insert_path, lookup_path, prefix_lookup_path

logger = logging.getLogger("stelae.server")

OWNER_THREADS = 4
"""Takeovers, claims and replays of all tables that wait for storage at a time."""
WORKERS_START_S = 60.0
"""How long the line that says that all is ready waits for workers."""
METRICS_CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class TabletServer:
    """The application. `running` makes it live: an ASGI server does it by the lifespan messages, a test by itself."""

    def __init__(
        self,
        options: ServerOptions,
        warehouse: Warehouse,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.warehouse = warehouse
        self.tables: dict[str, ServedTable] = {}
        self.writers: dict[str, TableWriter] = {}
        """Of the same tables: who takes their online writes."""
        self.counts = ServerCounts()
        self.workers = FollowerPool(options, self.tables, self) if options.workers > 1 else None
        """The other processes that answer; None where this is the only one."""
        self.cache = BlockCache(options.block_cache_bytes // options.workers)
        self.threads = ReadThreads()
        self.metrics = Metrics(self.tables, self.writers, self.counts, self.cache, wall_clock)
        self.port = options.port
        """That is listened on, where the option leaves the choice to the system."""
        self.draining = False
        """Set when the server is about to stop: `/readyz` says 503 from then on."""
        self.started: tuple[str, ...] | None = None
        """The tables that had a snapshot at the start, or might have; None until the warehouse was read."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called once, when they are all loaded, or have failed to."""
        self._clock, self._wall_clock = clock, wall_clock
        self.answers_now: dict[bytes, AnswerNow] = {}
        """Functions for `service/http/uvicorn_protocol.py`, by method and path."""
        self._hot: dict[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {}
        self._cold = _cold_routes(self)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Gives the coroutine of whoever answers, instead of wrapping it in one more.
        route = self._hot.get(scope.get("path", ""))
        if route is not None:
            return route(scope, receive, send)
        if scope["type"] == "http":
            return self._answer_cold(scope, receive, send)
        return self._follow_lifespan(receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watcher]:
        """Load and serve what the warehouse has, as long as the context is open."""
        folder = DataFolder.for_storage(self.warehouse.storage, self.options.data_folder)
        threads = ThreadPoolExecutor(OWNER_THREADS, "stelae-own")

        def add(table: ServedTable) -> None:
            self.writers[table.name] = TableWriter(
                table,
                partial(watcher.reload, table),
                self.identity,
                folder.path,
                self.cache,
                threads,
                allowed=self.options.online_writes,
                force=self.options.take_over,
                poll_interval_s=self.options.poll_interval_s,
                clock=self._clock,
            )
            self._add_routes(table)

        watcher = Watcher(
            self.warehouse,
            self.tables,
            self.writers,
            self.options,
            folder,
            self.cache,
            self.counts,
            on_table=add,
            workers=self.workers,
            clock=self._clock,
            wall_clock=self._wall_clock,
        )
        indexes = IndexBuilder(
            self.tables, folder.path, self.options.hash_index_bytes, self._index_made, self._counts_of_all
        )
        tasks = [asyncio.create_task(work) for work in (watcher.run(), self._await_start(watcher), indexes.run())]
        if self.workers is not None:
            self.workers.start()
        try:
            yield watcher
        finally:
            if self.workers is not None:
                await self.workers.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.answers_now.clear()
            self._hot.clear()
            await asyncio.gather(*(writer.close() for writer in self.writers.values()))
            await watcher.stop()
            threads.shutdown(wait=False)
            self.threads.close()
            indexes.close()
            folder.close()

    def _index_made(self, table: ServedTable, *_: object) -> None:
        if self.workers is not None:
            self.workers.publish(table)

    def _counts_of_all(self, table: ServedTable) -> TableCounts:
        return table.counts if self.workers is None else self.workers.counts_of(table)

    @property
    def unready(self) -> list[str]:
        """Tables of the start that are not served."""
        return [name for name in self.started or () if self.tables[name].state is not State.READY]

    @property
    def ready(self) -> bool:
        return self.started is not None and not self.unready and not self.draining

    def served_table(self, name: str) -> ServedTable:
        """A table by the name in a path. NotFound, with names that come near, when it is not served; Unavailable while
        the warehouse was never read, for then nobody knows.
        """
        table = self.tables.get(name) or self.tables.get(f"{DEFAULT_DATABASE}.{name}")
        if table is None and self.started is None:
            raise Unavailable(
                f"it is not known yet whether there is a table {name!r}: the server starts",
                place=name,
                hint="try again in a moment",
            )
        if table is None:
            self.counts.unknown_tables += 1
            raise unknown_table(name, self.tables)
        return table

    def identity(self) -> Identity:
        """How this server is known as an owner of tables."""
        options = self.options
        host = socket.gethostname() if options.host in ("", "0.0.0.0", "::") else options.host  # noqa: S104
        where = f"[{host}]" if ":" in host else host
        return Identity(
            options.name or f"{socket.gethostname()}:{self.port}",
            options.advertise_url.rstrip("/") or f"http://{where}:{self.port}",
        )

    def _add_routes(self, table: ServedTable) -> None:
        shared = (self.options, self.counts, self.threads)
        fast_lookup = PointLookups(table)
        lookup = LookupRoute(table, *shared)
        prefix_lookup = PrefixLookupRoute(table, *shared)
        insert = InsertRoute(self.writers[table.name], *shared)
        for name in table.names_in_paths:
            self.answers_now[f"GET {lookup_path(name)}".encode()] = fast_lookup.answer
            self._hot[lookup_path(name)] = lookup.answer
            self._hot[prefix_lookup_path(name)] = prefix_lookup.answer
            self._hot[insert_path(name)] = insert.answer

    async def _await_start(self, watcher: Watcher) -> None:
        await watcher.looked.wait()
        self.started = tuple(name for name, table in self.tables.items() if table.state is not State.EMPTY)
        await watcher.settled()
        if self.workers is not None and not await self.workers.all_in_service(WORKERS_START_S):
            logger.error("not all workers have started yet; the others serve")
        self.on_ready()

    async def _answer_cold(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.counts.in_flight += 1
        try:
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}  # the server leaves the body out
            await self._cold(scope, receive, send)
        except ClientDisconnectedError:
            pass
        except Exception:
            # Starlette has answered 500 by now, and raises so that the server can log it.
            logger.exception("%s %s failed in a way that was not foreseen", scope["method"], scope["path"])
        finally:
            self.counts.in_flight -= 1

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        running = self.running()
        try:
            await running.__aenter__()
        except StelaeError as exc:
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await running.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


def create_app(
    options: ServerOptions,
    warehouse: Warehouse,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> TabletServer:
    """The tablet server of a warehouse, as an ASGI application."""
    return TabletServer(options, warehouse, clock=clock, wall_clock=wall_clock)


def _cold_routes(server: TabletServer) -> FastAPI:
    api = FastAPI(title="Stelae tablet server", docs_url="/docs", redoc_url=None, openapi_url="/openapi.json")
    api.openapi = lambda: openapi_page(api)  # type: ignore[method-assign]
    retry_after_s = max(1, round(server.options.poll_interval_s))

    @api.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/docs")

    @api.get(TABLES_PATH, tags=["tables"], summary="All tables that are served")
    async def list_tables() -> TableList:
        return TableList(tables=[summarize_table(table) for _, table in sorted(server.tables.items())])

    @api.get(TABLES_PATH + "/{table}", tags=["tables"], summary="One table: definition, snapshot, state")
    async def get_table(table: str, response: Response) -> TableDescription:
        served = server.served_table(table)
        if served.serving is not None:
            response.headers[SNAPSHOT_HEADER] = str(served.serving.reader.id)
        return describe_table(served, server.writers[served.name])

    @api.get("/livez", tags=["probes"], summary="Whether the process works", response_class=Response)
    async def livez() -> Response:
        return Response("ok\n", media_type="text/plain")

    @api.get("/readyz", tags=["probes"], summary="Whether requests should be sent here")
    async def readyz(response: Response) -> Readiness:
        response.status_code = 200 if server.ready else 503
        return Readiness.of(server.ready, server.draining, server.tables)

    @api.get("/metrics", tags=["probes"], summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        workers = server.workers
        if workers is None:
            return Response(server.metrics.page(), media_type=METRICS_CONTENT)
        page = server.metrics.page(await workers.counts(), workers.restarts)
        return Response(page, media_type=METRICS_CONTENT)

    # What is left of the paths of tables: those of tables that are not served, and operations that do not exist.
    @api.api_route(TABLES_PATH + "/{table}/{operation:path}", methods=_ANY, include_in_schema=False)
    async def unknown(table: str, operation: str) -> Response:
        served = server.served_table(table)
        raise NotFound(
            f"no operation {operation!r}", place=operation, hint=f"GET {TABLES_PATH}/{served.name}, or see /docs"
        )

    @api.exception_handler(StelaeError)
    async def stelae_error(request: Request, exc: StelaeError) -> Response:  # noqa: ARG001
        return _Problem(exc, retry_after_s)

    @api.exception_handler(HTTPException)
    async def http_error(request: Request, exc: HTTPException) -> Response:
        if exc.status_code == 405:
            allow = (exc.headers or {}).get("Allow", "GET") + ", HEAD"
            error: StelaeError = MethodNotAllowed(
                f"{request.method} is no method of this path", place=request.url.path, hint=f"it has {allow}"
            )
            return _Problem(error, retry_after_s, allow)
        if exc.status_code == 404:
            error = NotFound("no such path", place=request.url.path, hint="the paths are listed at /docs")
            return _Problem(error, retry_after_s)
        return _Problem(InvalidRequest(str(exc.detail), place=request.url.path), retry_after_s)

    @api.exception_handler(Exception)
    async def unforeseen(request: Request, exc: Exception) -> Response:  # noqa: ARG001
        return _Problem(StelaeError("the server failed; its log says why", place=request.url.path), retry_after_s)

    return api


_ANY = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class _Problem(Response):
    """Problem details, as a response of Starlette."""

    def __init__(self, error: StelaeError, retry_after_s: int, allow: str | None = None) -> None:
        super().__init__(status_code=status_of(error))
        self._error, self._retry_after_s, self._allow = error, retry_after_s, allow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send_problem(send, self._error, retry_after_s=self._retry_after_s, allow=self._allow)
