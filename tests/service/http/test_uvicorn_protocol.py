"""Goal: an answer goes out in one write, and whatever uvicorn writes goes out whole, in order and in time.

Method: uvicorn's protocol with a transport that records, fed with requests byte for byte.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState

from stelae.service.http.asgi import JOINED_BYTES
from stelae.service.http.uvicorn_config import uvicorn_config
from stelae.service.options import DEFAULTS


class Transport:
    """Records what a socket would get: an item a system call."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def exchange(app: Any, *pieces: bytes) -> Transport:
    """Feed the pieces of a connection, with time to answer after each."""

    async def run() -> Transport:
        config = uvicorn_config(app, DEFAULTS)
        config.load()
        protocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=ServerState(), app_state={}, _loop=asyncio.get_running_loop()
        )
        transport = Transport()
        protocol.connection_made(transport)  # type: ignore[arg-type]
        for piece in pieces:
            protocol.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        return transport

    return asyncio.run(run())


def answering(*bodies: bytes, status: int = 200, headers: Any = ()) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = (b"content-length", b"%d" % sum(map(len, bodies)))
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        for index, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": index < len(bodies) - 1})

    return app


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD_OF_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


def test_head_and_body_are_one_write() -> None:
    assert exchange(answering(b"hello"), GET).writes == [HEAD_OF_ANSWER % 5 + b"hello"]


def test_later_parts_follow() -> None:
    assert exchange(answering(b"ab", b"cd", b"ef"), GET).writes == [HEAD_OF_ANSWER % 6 + b"ab", b"cd", b"ef"]


def test_large_bodies_are_not_copied() -> None:
    body = b"x" * JOINED_BYTES
    assert exchange(answering(body), GET).writes == [HEAD_OF_ANSWER % len(body) + body]


def test_an_answer_without_a_body() -> None:
    head = HEAD_OF_ANSWER % 5
    assert exchange(answering(b"hello"), b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").writes == [head]
    closing = exchange(answering(b"hello"), b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"".join(closing.writes) == head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert closing.closed


def test_requests_on_one_connection() -> None:
    answer = HEAD_OF_ANSWER % 5 + b"hello"
    assert exchange(answering(b"hello"), GET, GET).writes == [answer, answer]
    assert exchange(answering(b"hello"), GET + GET).writes == [answer, answer]  # pipelined


def test_a_client_that_waits_for_100_gets_it_at_once() -> None:
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    transport = exchange(answering(b"ok"), request)
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    transport = exchange(answering(b"ok"), request, b"{}")
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD_OF_ANSWER % 2 + b"ok"]


def test_a_body_that_looks_like_a_head_is_not_kept_back() -> None:
    parts = (b"a", b"HTTP/1.1 200 OK\r\n\r\n")
    assert b"".join(exchange(answering(*parts), GET).writes) == HEAD_OF_ANSWER % 20 + b"".join(parts)


def test_what_is_no_request(caplog: pytest.LogCaptureFixture) -> None:
    transport = exchange(answering(b""), b"\x16\x03\x01 this is TLS\r\n\r\n")
    assert b"".join(transport.writes).startswith(b"HTTP/1.1 400 ")
    assert transport.closed


def test_an_application_that_fails_after_the_head() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    transport = exchange(app, GET)
    assert b"".join(transport.writes).startswith(b"HTTP/1.1 200 OK\r\n")
    assert transport.closed
