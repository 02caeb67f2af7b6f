"""uvicorn's HTTP protocol, with two short cuts.

**Answers at once.** uvicorn makes a scope, a cycle and a task of each request, which takes four times as long as the
lookup of a row. A GET whose answer needs no waiting is answered where its bytes arrive, by a function of the
application, which gets the query and returns the whole answer, head and body:

    bytes ─┬─ end like those of the request before ──────────────── function(query) ─┬─ answer
           └─ httptools ──┬─ a plain GET, nothing else under way ── function(query) ─┤
                          └─ all other requests ──┐                                  └─ None ─┐
                                                  └── scope, cycle, task: ASGI ───────────────┘

None, and an error, send the request the usual way. So that stays the one truth: it answers everything, and a function
only says what it would say, bytes for bytes.

A client sends the same headers with each request. Those that httptools has parsed once on a connection, as the end of
a whole request that was answered at once, need no parsing again: from the same state the same bytes lead to the same
state. What is before them is `GET`, a path that is known, and a query that the function must know every byte of.

**One write.** uvicorn gives the transport the head of a response and then its body, and uvloop makes a system call of
each. So the head is held back until the body follows, which in this server is at once. Only what passes through the
transport is changed; should uvicorn write otherwise one day, it is passed on as it comes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stelae.service.http.asgi import JOINED_BYTES
from stelae.wire.http_api import SNAPSHOT_HEADER

AnswerNow = Callable[[bytes], "bytes | None"]
"""Query string to a whole response with status 200 of a connection that stays open; None: not without waiting, or not
this one. The query is as it came, if it was a query at all: bytes that a URL can't have must give None.
"""

MAX_TAIL_BYTES = 8192
"""Ends of requests that are remembered, one a connection."""
MAX_AT_ONCE = 64
"""Requests in one packet that are answered at once, about half a millisecond; more of them take turns with others."""
UNUSUAL_HEADERS = frozenset(
    {b"connection", b"content-length", b"expect", b"transfer-encoding", b"upgrade", SNAPSHOT_HEADER.lower().encode()}
)
"""A request with one of them goes the usual way, but for `Connection: keep-alive`."""


class OneWriteProtocol(HttpToolsProtocol):
    """A connection, with one write an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _OneWriteTransport(transport)))

    def on_response_complete(self) -> None:
        cast("_OneWriteTransport", self.transport).flush()  # a response without a body
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # uvicorn would read on, however many requests wait


class AnswerNowProtocol(OneWriteProtocol):
    """A connection that also has answers at once."""

    functions: ClassVar[Mapping[bytes, AnswerNow]] = {}
    """By method and path: `GET /v1/...`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        # What would have to be in each answer, or be done with each request.
        usual_only = (
            config.access_log
            or self.limit_concurrency is not None
            or config.date_header
            or config.encoded_headers
            or config.root_path
        )
        self._functions = {} if usual_only else self.functions
        self._tail: bytes | None = None
        """All that followed the URL of the last request; None unless that was one packet and was answered at once."""
        self._at_boundary = True
        """Whether the next byte for the parser begins a request."""
        self._at_once = 0
        """Requests of this packet that may still be answered at once."""
        self._is_answered = False
        """Whether the request that the parser is in was answered at once."""
        self._quiet_since = -math.inf
        """When the last answer was given at once."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._write = transport.write  # no head is held back when this is called

    def data_received(self, data: bytes) -> None:
        self._at_once = MAX_AT_ONCE
        tail = self._tail
        if tail is not None and data.endswith(tail):
            target, _, query = data[: -len(tail)].partition(b"?")
            function = self._functions.get(target)
            if function is not None and self._answer(function, query):
                return  # the timer stays, and looks at _quiet_since
            self._at_once = 0  # it was asked
        self._tail = None
        starts_here = self._at_boundary
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        super().data_received(data)
        if self._is_answered and self._at_boundary and not self.transport.is_closing():
            if starts_here and self._at_once == MAX_AT_ONCE - 1:
                head = b"GET " + self.url
                if data.startswith(head + b" HTTP/1.1\r\n") and len(data) - len(head) <= MAX_TAIL_BYTES:
                    self._tail = data[len(head) :]
            if timer is None:
                self._arm_keep_alive(self.timeout_keep_alive)
            else:
                self.timeout_keep_alive_task = timer  # as above
        elif timer is not None:
            timer.cancel()

    def on_message_begin(self) -> None:
        self._at_boundary = self._is_answered = False
        # A scope is made when it is needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        if self._at_once > 0:
            target, _, query = self.url.partition(b"?")
            function = self._functions.get(b"GET " + target)
            if function is not None and self._is_plain_get() and self._answer(function, query):
                self._at_once -= 1
                self._is_answered = True
                return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the list of the scope
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._at_boundary = True
        if not self._is_answered:
            super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._arm_keep_alive(left)
        else:
            super().timeout_keep_alive_handler()

    def _is_plain_get(self) -> bool:
        """Whether the request is a GET without a body that asks for nothing unusual, and no other is under way."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            return False
        for name, value in self.headers:
            if name in UNUSUAL_HEADERS and not (name == b"connection" and value.lower() == b"keep-alive"):
                return False
        parser = self.parser
        return (
            parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def _answer(self, function: AnswerNow, query: bytes) -> bool:
        """Answer at once, if the function knows how and the client reads."""
        if self.flow.write_paused:
            return False  # the usual way waits, and reads no more until then
        try:
            answer = function(query)
        except Exception:
            return False  # the usual way meets it again, and says so
        if answer is None:
            return False
        self._write(answer)
        self._quiet_since = self.loop.time()
        self.server_state.total_requests += 1
        return True

    def _arm_keep_alive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)


def answering(functions: Mapping[bytes, AnswerNow]) -> type[AnswerNowProtocol]:
    """The protocol of a server that has these functions, now or later."""
    return type("AnswerNowProtocol", (AnswerNowProtocol,), {"functions": functions})


class _OneWriteTransport:
    """A transport that joins the head of a response with what follows it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: bytes | None = None
        # What uvicorn asks for with each request, without a detour.
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        held = self._held
        if held is not None:
            self._held = None
            if len(data) < JOINED_BYTES:
                self._transport.write(held + data)
            else:
                self._transport.writelines((held, data))
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # 100: the client waits for it
            self._held = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send what is held."""
        if self._held is not None:
            held, self._held = self._held, None
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
