"""Connections of the client: requests out, answers in, over sockets. One request at a time on a connection.

    Client ──send──► Transport ──► connection that lay idle, or a new one ──► server
                                                └─ kept for the next request

A connection that the server closed meanwhile is seen before it is used; what still breaks is a Failure, and whether to
ask again is decided above (`stelae/client/retry.py`). A process that was forked leaves its parent's connections alone.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stelae.client.http1 import AnswerReader, NotHttpError, Response, header_lines, request_head
from stelae.client.settings import Endpoint
from stelae.client.steps import (
    Broken,
    Failure,
    Insecure,
    Late,
    LateToConnect,
    NoneFree,
    NotHttp,
    NotReached,
    PastDeadline,
    Request,
)
from stelae.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES = 65536
"""What is read at once while the length of an answer is not known."""
MAX_BYTES_WITH_HEAD = 256 * 1024
"""A shorter body is sent with its head, in one call and, where it fits, in one packet."""


class Transport:
    """Sends requests of many threads over at most so many connections. Newest first: old ones may be forgotten."""

    def __init__(
        self,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        timeout_s: float,
        connections: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._endpoint = endpoint
        self._fields = header_lines({"Host": endpoint.authority, "Accept-Encoding": "identity", **headers}).encode(
            "latin-1"
        )
        self._timeout_s = timeout_s
        self._connections = connections
        self._tls = tls
        self._tls_made: ssl.SSLContext | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._idle: deque[Connection] = deque()
        self._free = threading.Semaphore(self._connections)

    def send(self, request: Request, *, fresh: bool, deadline: float | None) -> Response:
        """Ask once. `fresh`: not on a connection that lay idle. `deadline`: of `time.monotonic`."""
        if self._process != os.getpid():
            # Forked: what is open belongs to the parent, and its locks may be held by threads that are not here.
            inherited = self._idle
            self._start()
            for connection in inherited:
                connection.close()
        free = self._free
        if not free.acquire(blocking=False) and not free.acquire(timeout=wait_s(self._timeout_s, deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                raise PastDeadline
            raise NoneFree
        try:
            return self._send(request, fresh, deadline)
        finally:
            free.release()

    def close(self) -> None:
        """Close all connections; those in use when they have their answers."""
        self._closed = True
        self._drop_idle()

    def _send(self, request: Request, fresh: bool, deadline: float | None) -> Response:
        if self._closed:
            raise InvalidRequest("the client is closed", place=self._endpoint.url + request.path)
        body = request.body
        head = request_head(
            request.method,
            self._endpoint.path + request.path,
            self._fields,
            None if body is None else len(body),
            header_lines(request.headers) if request.headers else "",
        )
        if fresh:
            self._drop_idle()
        connection = self._take(deadline)
        kept = False
        try:
            response = connection.exchange(head, body, deadline)
            kept = connection.reusable and not self._closed
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()
        return response

    def _take(self, deadline: float | None) -> Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return Connection.open(self._endpoint, self._timeout_s, deadline, self._context())
            if connection.alive():
                return connection
            connection.close()

    def _drop_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _context(self) -> ssl.SSLContext | None:
        if not self._endpoint.secure:
            return None
        if self._tls is not None:
            return self._tls
        if self._tls_made is None:
            self._tls_made = ssl.create_default_context()
        return self._tls_made


class Connection:
    """One connection, for one request at a time."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._socket = sock
        self._timeout_s = timeout_s
        self._used = False
        self._events = select.poll()
        self._events.register(sock, select.POLLIN)
        self.reusable = False

    @classmethod
    def open(
        cls, endpoint: Endpoint, timeout_s: float, deadline: float | None, context: ssl.SSLContext | None
    ) -> Connection:
        try:
            sock = socket.create_connection((endpoint.host, endpoint.port), wait_s(timeout_s, deadline))
        except TimeoutError as exc:
            raise _late(deadline, LateToConnect) from exc
        except (OSError, UnicodeError) as exc:
            raise NotReached(said(exc)) from exc
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock.settimeout(wait_s(timeout_s, deadline))
                sock = context.wrap_socket(sock, server_hostname=endpoint.host)
            sock.settimeout(timeout_s)
            return cls(sock, timeout_s)
        except TimeoutError as exc:
            sock.close()
            raise _late(deadline, LateToConnect) from exc
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as exc:
            sock.close()
            raise NotReached(said(exc)) from exc
        except (ssl.SSLError, ssl.CertificateError) as exc:
            sock.close()
            raise Insecure(said(exc)) from exc
        except BaseException:
            sock.close()
            raise

    def alive(self) -> bool:
        """Whether the server has kept it open. Nothing can be there to read: nothing was asked."""
        return not self._events.poll(0)

    def close(self) -> None:
        self._socket.close()

    def exchange(self, head: bytes, body: bytes | pa.Buffer | None, deadline: float | None) -> Response:
        """Send a request and read its answer."""
        was_idle, self._used, self.reusable = self._used, True, False
        broken: OSError | None = None
        reader = AnswerReader()
        try:
            try:
                self._send(head, body, deadline)
            except (BrokenPipeError, ConnectionResetError) as exc:
                broken = exc  # A server that refuses a body may have said why, and closed.
            self._read(reader, deadline)
            response = reader.response()
        except TimeoutError as exc:
            raise _late(deadline, Late) from exc
        except NotHttpError as exc:
            if not reader.complete and (not reader.begun or "ended within" in str(exc)):
                raise Broken(str(exc), stale=was_idle and broken is not None) from exc
            raise NotHttp(str(exc)) from exc
        except OSError as exc:
            raise Broken(said(exc), stale=was_idle and broken is not None and not reader.begun) from exc
        self.reusable = reader.keeps_alive and broken is None
        return response

    def _send(self, head: bytes, body: bytes | pa.Buffer | None, deadline: float | None) -> None:
        sock = self._socket
        if deadline is not None:
            sock.settimeout(wait_s(self._timeout_s, deadline))
        if body is None:
            sock.sendall(head)
        elif len(body) <= MAX_BYTES_WITH_HEAD:
            sock.sendall(b"".join((head, body)))
        else:
            sock.sendall(head)
            sock.sendall(body)

    def _read(self, reader: AnswerReader, deadline: float | None) -> None:
        sock = self._socket
        while not reader.complete:
            if deadline is not None:
                sock.settimeout(wait_s(self._timeout_s, deadline))
            needs = reader.needs
            if needs is not None:
                count = sock.recv_into(needs)
                if count:
                    reader.took(count)
                else:
                    reader.ended()
            else:
                data = sock.recv(READ_BYTES)
                if data:
                    reader.feed(data)
                else:
                    reader.ended()
        if deadline is not None:
            sock.settimeout(self._timeout_s)


def wait_s(timeout_s: float, deadline: float | None) -> float:
    """How long to wait now; PastDeadline when the time for the call is over. `deadline`: of `time.monotonic`."""
    if deadline is None:
        return timeout_s
    left = deadline - time.monotonic()
    if left <= 0:
        raise PastDeadline
    return min(timeout_s, left)


def _late(deadline: float | None, otherwise: type[Late]) -> Failure:
    return PastDeadline() if deadline is not None and time.monotonic() >= deadline else otherwise()


def said(error: Exception) -> str:
    """The reason that an error of the system gives, without its number."""
    reason: Any = getattr(error, "strerror", None)
    return str(reason or error)
