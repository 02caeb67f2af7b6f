"""Goal: what is answered at once is answered as the application would, and all other requests by the application.

Method: one connection with a transport that records, fed in one piece, in pieces cut anywhere, and with bytes that a
random hand has changed. The same function of a query answers at once and, in the application, the usual way; what is
written must be the same, and whether the function was asked is counted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from uvicorn.server import ServerState

from stelae.service.http.uvicorn_config import uvicorn_config
from stelae.service.http.uvicorn_protocol import MAX_AT_ONCE, AnswerNowProtocol, OneWriteProtocol, answering
from stelae.service.options import DEFAULTS
from tests.length import length
from tests.service.http.test_uvicorn_protocol import Transport


def response(query: bytes, more: bytes = b"") -> bytes:
    body = b"<" + query + b">"
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), more, body)


def digits(query: bytes) -> bytes | None:
    """The function: of queries `k=<digits>` and no others."""
    asked.append(query)
    value = query[2:]
    return response(query) if query.startswith(b"k=") and value.isdigit() else None


asked: list[bytes] = []


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The application. What only it knows of a request, it says."""
    seen.append(scope["method"] + " " + scope["path"])
    query = scope["query_string"]
    if scope["path"] != "/now" or scope["method"] != "GET":
        query += scope["method"].encode() + scope["path"].encode("utf-8", "replace")
    body = b"<" + query + b">"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


seen: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    asked.clear()
    seen.clear()


class Connection:
    """A connection of a server, and what was written to it."""

    def __init__(self, protocol: type[OneWriteProtocol], app: Any = echo, **settings: Any) -> None:
        config = uvicorn_config(app, DEFAULTS, protocol)
        for name, value in settings.items():
            setattr(config, name, value)
        config.load()
        self.state = ServerState()
        self.protocol = protocol(config, self.state, {}, asyncio.get_running_loop())
        self.transport = Transport()
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    async def feed(self, *pieces: bytes) -> bytes:
        """What is written for these pieces."""
        before = len(self.transport.writes)
        for piece in pieces:
            if self.transport.closed:
                break
            self.protocol.data_received(piece)
            for _ in range(12):
                await asyncio.sleep(0)
        return b"".join(self.transport.writes[before:])


def at_once(functions: dict[bytes, Any] | None = None) -> type[AnswerNowProtocol]:
    return answering({b"GET /now": digits} if functions is None else functions)


class PromptLoop(asyncio.SelectorEventLoop):
    """Where nothing waits for time: when nothing else is to be done, the clock jumps to what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._ready_now = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now

    def _jump(self, timeout: float | None) -> Any:
        found = self._ready_now(timeout and 0)
        self._now += 0.0 if found else timeout or 0.0
        return found


def on_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await test()

    with asyncio.Runner(loop_factory=PromptLoop) as runner:
        runner.run(run())


def get(query: str = "k=1", headers: str = "", *, line: str = "GET /now?{} HTTP/1.1") -> bytes:
    return f"{line.format(query)}\r\nHost: x\r\n{headers}\r\n".encode("latin-1")


def test_a_plain_get_needs_no_application() -> None:
    async def test() -> None:
        connection = Connection(at_once())
        for number in (1, 22, 333):
            query = f"k={number}"
            assert await connection.feed(get(query)) == response(query.encode())
        assert len(connection.transport.writes) == 3
        assert (asked, seen) == ([b"k=1", b"k=22", b"k=333"], [])
        assert connection.state.total_requests == 3
        assert not connection.state.tasks

    on_loop(test)


def test_headers_of_the_request_before_are_not_parsed_again() -> None:
    async def test() -> None:
        connection = Connection(at_once())
        await connection.feed(get("k=1", "A: b\r\n"))
        parser, connection.protocol.parser = connection.protocol.parser, None  # type: ignore[assignment]
        assert await connection.feed(get("k=2", "A: b\r\n")) == response(b"k=2")
        connection.protocol.parser = parser
        # Others are, and are the ones to compare with from then on.
        assert await connection.feed(get("k=3", "A: c\r\n")) == response(b"k=3")
        connection.protocol.parser = None  # type: ignore[assignment]
        assert await connection.feed(get("k=4", "A: c\r\n")) == response(b"k=4")
        assert seen == []

    on_loop(test)


@pytest.mark.parametrize("warm", [False, True])
def test_requests_that_are_cut_anywhere(warm: bool) -> None:
    packet = get("k=7", "A: b\r\n")

    async def test() -> None:
        for cut in range(1, len(packet)):
            connection = Connection(at_once())
            if warm:
                await connection.feed(packet)
            assert await connection.feed(packet[:cut]) == b""
            assert await connection.feed(packet[cut:]) == response(b"k=7"), cut
            assert await connection.feed(packet) == response(b"k=7")
        assert await Connection(at_once()).feed(*(bytes([byte]) for byte in packet)) == response(b"k=7")
        assert seen == []

    on_loop(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    """Those past the limit of one packet take turns with others; so do all behind one that is under way."""

    async def test() -> None:
        count = 3 * MAX_AT_ONCE
        queries = [f"k={i}" for i in range(count)]
        expected = [response(query.encode()) for query in queries]
        connection = Connection(at_once())
        connection.protocol.data_received(b"".join(map(get, queries)))
        assert connection.transport.writes == expected[:MAX_AT_ONCE]
        for _ in range(20 * count):
            await asyncio.sleep(0)
        assert connection.transport.writes == expected
        assert len(seen) == count - MAX_AT_ONCE

        connection = Connection(at_once())
        written = await connection.feed(get("k=1") + get("slow") + get("k=2") + get("k=3"))
        assert written == b"".join(map(response, (b"k=1", b"slow", b"k=2", b"k=3")))
        assert connection.state.total_requests == 4
        assert await connection.feed(get("k=4")) == response(b"k=4")
        assert asked == [*(query.encode() for query in queries[:MAX_AT_ONCE]), b"k=1", b"slow", b"k=4"]

    on_loop(test)


UNUSUAL = {
    "method": (get(line="POST /now?{} HTTP/1.1"), b"<k=1POST/now>"),
    "head": (get(line="HEAD /now?{} HTTP/1.1"), b"content-length: 13"),
    "HTTP/1.0": (get(line="GET /now?{} HTTP/1.0"), b"<k=1>"),
    "absolute form": (get(line="GET http://x/now?{} HTTP/1.1"), b"<k=1>"),
    "encoded path": (get(line="GET /n%6Fw?{} HTTP/1.1"), b"<k=1>"),
    "other path": (get(line="GET /now/?{} HTTP/1.1"), b"<k=1GET/now/>"),
    "close": (get(headers="Connection: close\r\n"), b"connection: close"),
    "close among others": (get(headers="Connection: keep-alive, close\r\n"), b"<k=1>"),
    "expect": (get(headers="Expect: 100-continue\r\n"), b"<k=1>"),
    "body": (get(headers="Content-Length: 2\r\n") + b"{}", b"<k=1>"),
    "chunks": (get(headers="Transfer-Encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n", b"<k=1>"),
    "upgrade": (get(headers="Connection: Upgrade\r\nUpgrade: h2c\r\n"), b"<k=1>"),
    "pin": (get(headers="stelae-SNAPSHOT: 1\r\n"), b"<k=1>"),
}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("request_", "expected"), UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_requests_go_the_usual_way(request_: bytes, expected: bytes, warm: bool) -> None:
    async def test() -> None:
        mine, stock = Connection(at_once()), Connection(OneWriteProtocol)
        for connection in (mine, stock):
            if warm:
                await connection.feed(get("k=9"))
        asked.clear()
        written = await mine.feed(request_)
        assert asked == []
        assert expected in written
        assert written == await stock.feed(request_)
        assert mine.transport.closed == stock.transport.closed
        if not mine.transport.closed and b"Upgrade" not in request_:
            assert await mine.feed(get("k=2")) == response(b"k=2")

    on_loop(test)


def test_many_headers_and_keep_alive_by_name_are_usual() -> None:
    async def test() -> None:
        connection = Connection(at_once())
        many = "".join(f"X-{i}: {'v' * 50}\r\n" for i in range(500))
        for number in (1, 2):
            assert await connection.feed(get(f"k={number}", many)) == response(b"k=%d" % number)
            assert await connection.feed(get(f"k={number}", "connection: Keep-Alive\r\n")) == response(b"k=%d" % number)
        assert seen == []

    on_loop(test)


@pytest.mark.parametrize("warm", [False, True])
def test_a_function_that_fails_or_declines_leaves_it_to_the_application(warm: bool) -> None:
    def fail(query: bytes) -> bytes | None:
        if query == b"k=9":
            return response(query)
        raise RuntimeError(query)

    async def test() -> None:
        for function in (fail, digits):
            connection = Connection(at_once({b"GET /now": function}))
            if warm:
                await connection.feed(get("k=9"))
            seen.clear()
            asked.clear()
            for query in ("a=b", ""):
                assert await connection.feed(get(query)) == response(query.encode())
            assert seen == ["GET /now"] * 2
            assert function is fail or asked == [b"a=b", b""]  # once each
            assert await connection.feed(get("k=9")) == response(b"k=9")
            assert len(seen) == 2

    on_loop(test)


def test_a_request_hidden_in_a_query() -> None:
    """A packet that ends like the one before is not one request for that."""

    async def test() -> None:
        mine, stock = Connection(at_once()), Connection(OneWriteProtocol)
        packets = [
            b"GET /now?a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(get("k=1")) + get("k=1"),
            b"GET /now?a HTTP/1.1\r\nHost: x\r\n\r\n" + get("k=2"),
            b"GET /now?a HTTP/1.1\r\nA: " + get("k=3"),
        ]
        for packet in packets:
            assert await mine.feed(get("k=9")) == await stock.feed(get("k=9"))
            assert await mine.feed(packet) == await stock.feed(packet)
        assert not mine.transport.closed

    on_loop(test)


def test_settings_that_concern_each_request_are_obeyed() -> None:
    async def test() -> None:
        for settings in ({"limit_concurrency": 9}, {"root_path": "/now"}, {"date_header": True}):
            connection = Connection(at_once(), **settings)
            await connection.feed(get("k=1"))
            assert asked == [], settings
        full = Connection(at_once(), limit_concurrency=1)
        assert (await full.feed(get("k=1"))).startswith(b"HTTP/1.1 503 ")

    on_loop(test)


def test_a_client_that_does_not_read_is_waited_for() -> None:
    async def test() -> None:
        connection = Connection(at_once())
        await connection.feed(get("k=1"))
        connection.protocol.pause_writing()
        assert await connection.feed(get("k=2"), get("k=3")) == b""
        assert connection.protocol.flow.read_paused
        connection.protocol.resume_writing()
        assert await connection.feed(b"") == response(b"k=2") + response(b"k=3")
        assert not connection.protocol.flow.read_paused

    on_loop(test)


def test_a_connection_that_is_idle_too_long_is_closed() -> None:
    """Not before: each answer begins the time anew, and a request that has begun has as long as it takes."""

    async def closed_after(*, until_s: float, feed: Iterable[bytes] = (), warm: bool = True) -> bool:
        connection = Connection(at_once(), timeout_keep_alive=0.2)
        loop = asyncio.get_running_loop()
        end = loop.time() + until_s
        if warm:
            await connection.feed(get("k=1"))
        for piece in feed:
            await asyncio.sleep(0.15)
            await connection.feed(piece)
        await asyncio.sleep(end - loop.time())
        return connection.transport.closed

    async def test() -> None:
        cases = [
            (False, {"until_s": 0.1}),
            (True, {"until_s": 0.35}),
            (False, {"until_s": 0.55, "feed": [get("k=2"), get("k=3"), get("k=4")]}),
            (True, {"until_s": 0.8, "feed": [get("k=2"), get("k=3"), get("k=4")]}),
            (False, {"until_s": 0.5, "feed": [get("k=2"), get("k=3")[:-1]]}),
            (False, {"until_s": 0.5, "feed": [get("k=2"), get("slow")[:9]]}),
            (True, {"until_s": 0.6, "feed": [get("k=2"), get("slow")]}),
            (True, {"until_s": 0.6, "feed": [get("slow"), get("k=2")]}),
            (False, {"until_s": 0.4, "feed": [get("k=2"), get("slow")]}),
        ]
        found = await asyncio.gather(*(closed_after(**case) for _, case in cases))  # type: ignore[arg-type]
        assert found == [expected for expected, _ in cases]

    on_loop(test)


def test_a_server_that_stops_closes_connections_that_were_answered_at_once() -> None:
    async def test() -> None:
        connection = Connection(at_once())
        await connection.feed(get("k=1"))
        connection.protocol.shutdown()
        assert connection.transport.closed

        # A request under way is finished first.
        connection = Connection(at_once())
        await connection.feed(get("k=1"))
        connection.protocol.data_received(get("slow"))
        connection.protocol.shutdown()
        assert not connection.transport.closed
        assert await connection.feed(b"") == response(b"slow", b"connection: close\r\n")
        assert connection.transport.closed

    on_loop(test)


def test_a_client_that_leaves() -> None:
    async def test() -> None:
        connection = Connection(at_once(), timeout_keep_alive=0.05)
        await connection.feed(get("k=1"), get("k=2"))
        connection.protocol.connection_lost(ConnectionResetError())
        assert not connection.state.connections
        connection.transport.closed = True
        await asyncio.sleep(0.2)  # the timer finds nothing to do

    on_loop(test)


FRAGMENTS = [
    get("k=1"), get("k=22", "A: b\r\n"), get("slow"), get(""), get("k=3", "Connection: keep-alive\r\n"),
    get(line="HEAD /now?{} HTTP/1.1"), get("k=4", "Content-Length: 3\r\n") + b"abc", b"\r\n",
    get(line="GET /no HTTP/1.1"),
    get("k=5", "Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n", get(line="GET http://h/now?{} HTTP/1.1"),
    get("k=6", "Connection: close\r\n"), get(line="GET /now?k=1 HTTP/1.0"), get("k=7#f"), get("k=%31"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", range(length(short=8, long=200)))
def test_random_connections(seed: int) -> None:
    """Any bytes, cut anywhere, get the same from this protocol and from uvicorn's."""
    chance = random.Random(seed)
    print("seed", seed)

    def stream() -> list[bytes]:
        data = bytearray(b"".join(chance.choices(FRAGMENTS, [6, 4, 2, *[1] * (len(FRAGMENTS) - 3)], k=8)))
        for _ in range(chance.choice((0, 0, 0, 1, 1, 3))):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    del data[at : at + chance.choice((1, 2, 30))]
                case 1:
                    data[at:at] = chance.choice((b"\r\n", b" ", b"\0", b"\xe9", b"GET ", b"?", b"#", bytes(data[:40])))
                case 2:
                    data[at] = chance.randrange(256)
        cuts = sorted(chance.choices(range(len(data)), k=chance.choice((0, 1, 3, 8))))
        if chance.random() < 0.5:  # at the ends of requests, as clients do
            cuts = [end for end in (data.find(b"\r\n\r\n", at) + 4 for at in range(0, len(data), 60)) if end > 3]
            cuts = sorted(set(cuts))
        return [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    async def test() -> None:
        for _ in range(150):
            pieces = stream()
            mine, stock = Connection(at_once()), Connection(OneWriteProtocol)
            written, expected = await mine.feed(*pieces), await stock.feed(*pieces)
            bad = expected.find(b"HTTP/1.1 400 ")
            if bad >= 0:
                # uvicorn forgets answers to what came in the same packet before; at once they are out already.
                assert written.endswith(expected[bad:]), pieces
                assert written.startswith(expected[:bad]), pieces
            else:
                assert written == expected, pieces
            assert mine.transport.closed == stock.transport.closed, pieces
            if bad < 0:
                assert mine.state.total_requests == stock.state.total_requests
        assert len(asked) > length(short=300, long=200)  # or this compares nothing

    on_loop(test)
