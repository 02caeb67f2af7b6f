"""Load on a server over plain sockets, and how long each answer took.

    closed_loop      each connection asks again as soon as it has its answer
    open_loop        requests come at a constant rate, whether or not earlier ones are answered

One client for all servers: requests are bytes made beforehand, and of an answer only its end is looked for. So what
differs is the servers. In an open loop a request counts from the moment when it was due, also if no connection was free
then: a server that stalls is charged for all who wait (no "coordinated omission").
"""

from __future__ import annotations

import gc
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

RECEIVE_BYTES = 1 << 16
TIMEOUT_S = 60

Complete: TypeAlias = Callable[[bytes], bool]
"""Whether an answer is all there. Raises ValueError when it is not what was expected."""
Microseconds: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Protocol:
    """How to speak to a server."""

    requests: Sequence[bytes]
    complete: Complete
    greetings: Sequence[tuple[bytes, Complete]] = ()
    """What a new connection says first, and when it is answered."""


@dataclass(frozen=True)
class Load:
    """What came of it."""

    latencies_us: Microseconds
    seconds: float

    @property
    def per_second(self) -> float:
        return len(self.latencies_us) / self.seconds


def connect(port: int, protocol: Protocol, count: int) -> list[socket.socket]:
    """Connections, ready for requests."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for greeting, complete in protocol.greetings:
            connection.sendall(greeting)
            received = b""
            while not complete(received):
                received += _received(connection)
        connections.append(connection)
    return connections


def closed_loop(connections: Sequence[socket.socket], protocol: Protocol, seconds: float) -> Load:
    requests, complete, clock = cycle(protocol.requests), protocol.complete, time.perf_counter_ns
    latencies: list[int] = []
    with _collector_off(), selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        received = dict.fromkeys(connections, b"")
        started = clock()
        ends = started + int(seconds * 1e9)
        asked = {}
        for connection in connections:
            asked[connection] = clock()
            connection.sendall(next(requests))
        while asked:
            for key, _ in selector.select(TIMEOUT_S):
                connection = key.data
                answer = received[connection] + _received(connection)
                if not complete(answer):
                    received[connection] = answer
                    continue
                now = clock()
                latencies.append(now - asked[connection])
                received[connection] = b""
                if now < ends:
                    asked[connection] = clock()
                    connection.sendall(next(requests))
                else:
                    del asked[connection]
        return Load(np.array(latencies) / 1e3, (clock() - started) / 1e9)


def open_loop(connections: Sequence[socket.socket], protocol: Protocol, rate: float, seconds: float) -> Load:
    requests, complete, clock = cycle(protocol.requests), protocol.complete, time.perf_counter_ns
    latencies: list[int] = []
    left = int(rate * seconds)
    step = 1e9 / rate
    with _collector_off(), selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        received = dict.fromkeys(connections, b"")
        free = deque(connections)
        due_of: dict[socket.socket, float] = {}
        started = clock()
        due = float(started)
        while left or due_of:
            while left and free and clock() >= due:
                connection = free.popleft()
                due_of[connection] = due
                connection.sendall(next(requests))
                due += step
                left -= 1
            # Asked over and over: a selector that waits does so for a millisecond at least.
            for key, _ in selector.select(0):
                connection = key.data
                answer = received[connection] + _received(connection)
                if not complete(answer):
                    received[connection] = answer
                    continue
                latencies.append(int(clock() - due_of.pop(connection)))
                received[connection] = b""
                free.append(connection)
        return Load(np.array(latencies) / 1e3, (clock() - started) / 1e9)


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise SystemExit("the server closed a connection")
    return data


@contextmanager
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# HTTP


def http(paths: Sequence[str]) -> Protocol:
    """GET of paths."""
    return Protocol([f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for path in paths], http_complete)


def http_complete(answer: bytes) -> bool:
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ValueError(f"not what was asked for: {answer[:200]!r}")
    at = answer.lower().find(b"content-length:", 0, head)
    length = int(answer[at + 15 : answer.index(b"\r\n", at)])
    return len(answer) >= head + 4 + length


# Redis: https://redis.io/docs/latest/develop/reference/protocol-spec/


def redis(keys: Sequence[bytes]) -> Protocol:
    """GET of keys."""
    return Protocol([b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key) for key in keys], redis_complete)


def redis_complete(answer: bytes) -> bool:
    end = answer.find(b"\r\n")
    if end < 0:
        return False
    if not answer.startswith(b"$") or answer.startswith(b"$-"):
        raise ValueError(f"not what was asked for: {answer[:200]!r}")
    return len(answer) >= end + 4 + int(answer[1:end])


# PostgreSQL: https://www.postgresql.org/docs/current/protocol-message-formats.html

_SYNC = b"S\0\0\0\4"
_READY = b"Z\0\0\0\5I"
"""The end of every answer, outside of transactions."""


def postgres(user: str, statement: str, keys: Sequence[int]) -> Protocol:
    """A prepared statement with one bigint, results in binary."""
    startup = b"\0\3\0\0user\0" + user.encode() + b"\0database\0postgres\0\0"
    parse = b"one\0" + statement.encode() + b"\0\0\1\0\0\0\x14"  # 0x14: the type bigint
    hello = (4 + len(startup)).to_bytes(4, "big") + startup
    prepare = _message(b"P", parse) + _SYNC
    execute = _message(b"E", b"\0\0\0\0\0") + _SYNC
    requests = []
    for key in keys:
        # Portal, statement; one format for all parameters, binary; one parameter of 8 bytes; results in binary.
        bind = b"\0one\0\0\1\0\1\0\1\0\0\0\x08" + key.to_bytes(8, "big") + b"\0\1\0\1"
        requests.append(_message(b"B", bind) + execute)
    return Protocol(requests, postgres_row, ((hello, postgres_complete), (prepare, postgres_complete)))


def postgres_complete(answer: bytes) -> bool:
    if answer[:1] == b"E":
        raise ValueError(f"PostgreSQL: {answer[:300]!r}")
    return answer.endswith(_READY)


def postgres_row(answer: bytes) -> bool:
    """The answer of a bind and an execute, with one row."""
    if not postgres_complete(answer):
        return False
    if not answer.startswith(b"2\0\0\0\4D"):
        raise ValueError(f"not what was asked for: {answer[:300]!r}")
    return True


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (4 + len(body)).to_bytes(4, "big") + body
