"""A tablet server in this process, called as uvicorn would call it, from plain synchronous tests.

    with serving(warehouse) as server:
        server.get("/v1/tables/shop.users/lookup", user_id=42).json
        commit_rows(table, ...); server.poll()          # look at the warehouse now, and wait for what is loaded

The event loop runs in a thread. The server polls when it is told to, and its clock moves when it is told to.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson

from stelae.service.app import TabletServer, create_app
from stelae.service.options import ServerOptions
from stelae.service.watcher import Watcher
from stelae.snapshot.warehouse import Warehouse
from stelae.wire.http_api import JSON, PROBLEM_JSON
from tests.waiting import WAIT_S

T = TypeVar("T")

NEVER_S = 3600.0

USERS = "CREATE TABLE shop.users (user_id BIGINT, name STRING, city STRING, PRIMARY KEY (user_id) NOT ENFORCED)"
LOOKUP = "/v1/tables/shop.users/lookup"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Answer:
    """What the server sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def problem(self) -> dict[str, Any]:
        """The problem details; a success is not one."""
        assert self.headers["content-type"] == PROBLEM_JSON, self.body
        body: dict[str, Any] = self.json
        assert body["status"] == self.status
        assert body["detail"]
        assert body["type"].startswith("urn:stelae:problem:")
        assert "Traceback" not in self.body.decode()
        return body


class Server:
    """The client side of `serving`."""

    def __init__(self, app: TabletServer, watcher: Watcher, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.app = app
        self.watcher = watcher
        self.clock = clock
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop."""
        return self.start(work).result(WAIT_S)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The same, without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def poll(self) -> None:
        """Look at the warehouse and load what is new."""

        async def once() -> None:
            await self.watcher.poll()
            await self.watcher.settled()

        self.run(once())

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **query: object) -> Answer:
        return self.request("GET", path, urlencode(query).encode(), headers=headers)

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        return self.request("POST", path, body=[content], headers={"Content-Type": JSON, **(headers or {})})

    def request(
        self,
        method: str,
        path: str,
        query: bytes = b"",
        *,
        body: list[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        then_disconnect: bool = False,
    ) -> Answer:
        """Any request; `body` comes in pieces. Raises NoAnswerError when the server sends none."""
        return self.run(call(self.app, method, path, query, body or [b""], headers or {}, then_disconnect))


class NoAnswerError(Exception):
    """The server sent nothing."""


async def call(
    app: TabletServer,
    method: str,
    path: str,
    query: bytes = b"",
    body: list[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    then_disconnect: bool = False,
) -> Answer:
    """One request, as an ASGI server makes it."""
    pieces = list(body or [b""])
    sent: list[Mapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        if not pieces:
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces) or then_disconnect}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "server": ("test", 80),
        "client": ("test", 1),
    }
    await app(scope, receive, send)
    if not sent:
        raise NoAnswerError
    start, *parts = sent
    assert start["type"] == "http.response.start"
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    content = b"".join(part.get("body", b"") for part in parts)
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    assert len(answered) == len(start["headers"])
    if answered.get("content-length") != str(len(content)):
        raise AssertionError(f"{answered} with {len(content)} bytes")
    return Answer(start["status"], answered, content)


@contextmanager
def serving(warehouse: Warehouse, **options: Any) -> Iterator[Server]:
    """A server that has looked at the warehouse once and loaded what was there."""
    options.setdefault("separate_loads", False)  # a process a load takes a fifth of a second
    clock = Clock()
    app = create_app(ServerOptions(poll_interval_s=NEVER_S, **options), warehouse, clock=clock)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        running = app.running()
        watcher = asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(WAIT_S)
        server = Server(app, watcher, loop, clock)
        try:
            server.run(started(app, watcher))
            yield server
        finally:
            server.run(running.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def started(app: TabletServer, watcher: Watcher) -> None:
    """Wait until the warehouse was read and what it has is loaded."""
    await asyncio.wait_for(watcher.looked.wait(), WAIT_S)
    await watcher.settled()
    while app.started is None:
        await asyncio.sleep(0)
