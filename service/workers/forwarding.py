"""Requests that one process of a server takes and another one answers: the leader, which owns the tables.

    follower   scope, body ──► Forwarded ──► leader: its own application ──► Answered ──► status, headers, body

No HTTP is written or parsed in between: an ASGI scope in a few fields is enough. What waits is bounded by number, bytes
and time; beyond that, and when the leader is gone, a request gets 503.

`LeaderRows` decides what is forwarded. A table that takes online writes has rows which only the leader has. A
visible row of the snapshot wins over any of them (`stelae/read/overlay.py`), so a follower answers what it
finds there; where the reader would ask the online rows, there is nobody to ask but the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from stelae.errors import StelaeError, Unavailable
from stelae.service.http.asgi import (
    App,
    ClientDisconnectedError,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    read_body,
    send_problem,
)
from stelae.service.tables.served_table import ForwardToOwner
from stelae.service.workers.channel import Channel

MAX_WAITING = 1000
"""Requests of one follower that wait for the leader."""
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Of their bodies."""
ANSWER_S = 60.0
"""How long a request waits for the leader."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request on its way to the leader."""

    number: int
    method: str
    path: str
    query: bytes
    headers: Sequence[Header]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """What it gets."""

    number: int
    status: int
    headers: Sequence[Header]
    body: bytes


class LeaderRows:
    """Stands for the online rows of a table in a process that does not have them (`stelae/rocksdb/online_rows.py`)."""

    directory = Path("online rows of the leader")

    def get(self, key: bytes) -> NoReturn:  # noqa: ARG002
        raise ForwardToOwner

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        if keys:
            raise ForwardToOwner
        return []

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:  # noqa: ARG002
        raise ForwardToOwner

    def __len__(self) -> int:
        raise ForwardToOwner


class Forwarder:
    """The follower's side."""

    def __init__(self, max_body_bytes: int, retry_after_s: int, lost: Callable[[], None]) -> None:
        self.count = 0
        """Requests forwarded."""
        self._max_body_bytes = max_body_bytes
        self._retry_after_s = retry_after_s
        self.channel = Channel(self._received, lost)
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._waiting_bytes = 0

    def _received(self, answer: Answered) -> None:
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the leader answer a request."""
        try:
            body = await read_body(scope, receive, self._max_body_bytes)
            answer = await self._answer(scope, body)
            await _send_whole(send, answer)
        except ClientDisconnectedError:
            pass
        except StelaeError as exc:
            with suppress(ClientDisconnectedError):
                await send_problem(send, exc, retry_after_s=self._retry_after_s)

    async def _answer(self, scope: Scope, body: bytes) -> Answered:
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(body) > MAX_WAITING_BYTES:
            raise Unavailable(
                f"{len(self._waiting)} requests wait for the process that takes writes",
                place=scope["path"],
                hint="send fewer at a time",
            )
        self.count += 1
        number = self.count
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._waiting_bytes += len(body)
        try:
            self.channel.send(
                Forwarded(number, scope["method"], scope["path"], scope["query_string"], list(scope["headers"]), body)
            )
            return await asyncio.wait_for(waiting, ANSWER_S)
        except TimeoutError:
            raise Unavailable(
                f"the process that takes writes did not answer within {ANSWER_S:g} s: it is not known what it did",
                place=scope["path"],
                hint="asking again says so",
            ) from None
        finally:
            del self._waiting[number]
            self._waiting_bytes -= len(body)


async def answer_forwarded(app: App, request: Forwarded) -> Answered:
    """The leader's side: what its application answers."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": request.query,
        "headers": request.headers,
        "server": None,
        "client": None,
        "state": {},
    }
    body: bytes | None = request.body
    started: list[Message] = []
    parts: list[bytes] = []

    async def receive() -> Message:
        nonlocal body
        if body is None:
            await asyncio.get_running_loop().create_future()  # the client stays
        message = {"type": "http.request", "body": body, "more_body": False}
        body = None
        return message

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return Answered(request.number, started[0]["status"], list(started[0]["headers"]), b"".join(parts))


async def _send_whole(send: Send, answer: Answered) -> None:
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})
    except OSError as exc:
        raise ClientDisconnectedError from exc


class Replayed:
    """A request's body for the second one who reads it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen: list[Message] = []

    async def first(self) -> Any:
        message = await self._receive()
        self._seen.append(message)
        return message

    async def again(self) -> Any:
        return self._seen.pop(0) if self._seen else await self._receive()
