"""Goal: connections are kept, shared and given up rightly: by threads, over forks, when servers close them.

Method: small servers of a few lines on sockets, which say in which connection a request came.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.client.connection_pool import Transport
from stelae.client.settings import Endpoint
from stelae.client.steps import (
    Broken,
    Insecure,
    Late,
    NoneFree,
    NotHttp,
    NotReached,
    PastDeadline,
    Request,
)
from stelae.errors import InvalidRequest
from tests.waiting import WAIT_S, wait_until

ASK = Request("GET", "/x")
Answer = Callable[[int, int], bytes | None]
"""Of the nth connection and the nth request in it, both from 0; None closes without one."""


class Peer:
    """A server that answers each request with what a function says."""

    def __init__(self, answer: Answer, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections: list[socket.socket] = []
        self.listening = socket.socket(family)
        self.listening.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        self.listening.listen()
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            number = len(self.connections)
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        count = 0
        data = b""
        while True:
            try:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
            except OSError:
                return
            head, _, data = data.partition(b"\r\n\r\n")
            self.requests.append(head)
            said = self.answer(number, count)
            count += 1
            if said is None:
                connection.close()
                return
            with contextlib.suppress(OSError):  # Nobody waits for it any more.
                connection.sendall(said)

    def close(self) -> None:
        self.listening.close()
        for connection in self.connections:
            connection.close()


def say(body: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body.encode())


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer(lambda number, count: say(f"{number}.{count}"))
    yield peer
    peer.close()


def transport(port: int, host: str = "127.0.0.1", **options: Any) -> Transport:
    settings = {"timeout_s": 5.0, "connections": 4, "tls": None, "headers": {}} | options
    return Transport(Endpoint.parse(f"http://{host}:{port}/p"), **settings)


def ask(over: Transport, fresh: bool = False, deadline: float | None = None) -> str:
    return bytes(over.send(ASK, fresh=fresh, deadline=deadline).body).decode()


def test_a_connection_is_kept(peer: Peer) -> None:
    over = transport(peer.port, headers={"A": "b"})
    assert [ask(over) for _ in range(3)] == ["0.0", "0.1", "0.2"]
    assert peer.requests[0].split(b"\r\n") == [
        b"GET /p/x HTTP/1.1", b"Host: 127.0.0.1:%d" % peer.port, b"Accept-Encoding: identity", b"A: b",
    ]  # fmt: skip
    assert ask(over, fresh=True) == "1.0"


def test_a_body_goes_out_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = transport(listening.getsockname()[1])
        for size in (0, 8_000, 3_000_000):
            body = bytes(range(256)) * (size // 256)
            got: list[bytes] = []

            def serve(got: list[bytes] = got, size: int = len(body)) -> None:
                connection, _ = listening.accept()
                data = b""
                while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < size:
                    data += connection.recv(1 << 20)
                got.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                connection.close()

            server = threading.Thread(target=serve)
            server.start()
            over.send(Request("POST", "/x", body, {"Content-Type": "a"}), fresh=False, deadline=None)
            server.join()
            head, _, sent = got[0].partition(b"\r\n\r\n")
            assert sent == body
            assert b"Content-Type: a\r\nContent-Length: %d" % len(body) in head


def test_a_connection_that_the_server_closed_is_seen(peer: Peer) -> None:
    over = transport(peer.port)
    assert ask(over) == "0.0"
    peer.connections[0].shutdown(socket.SHUT_RDWR)
    assert ask(over) == "1.0"


def test_a_connection_that_breaks_under_a_request_is_told_apart() -> None:
    peer = Peer(lambda number, count: say("x") if not count else None)
    over = transport(peer.port)
    ask(over)
    with pytest.raises(Broken) as caught:
        ask(over)
    assert not caught.value.stale  # It may have got there.
    peer.close()


def test_an_answer_that_ends_early_is_broken() -> None:
    parts = [b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"]

    def answer(number: int, count: int) -> bytes:
        threading.Timer(0.05, peer.connections[number].shutdown, [socket.SHUT_RDWR]).start()
        return parts[number]

    peer = Peer(answer)
    for _ in parts:
        with pytest.raises(Broken, match="ended within"):
            ask(transport(peer.port))
    peer.close()


def test_an_answer_that_was_not_asked_for_is_not_taken_for_one() -> None:
    """The second answer of a pair must not be read as that to the next request."""
    peer = Peer(lambda number, count: say(f"{number}.{count}") * 2)
    over = transport(peer.port)
    assert [ask(over) for _ in range(3)] == ["0.0", "1.0", "2.0"]
    peer.close()


def test_a_server_may_refuse_a_body_before_it_came() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass
            connection.close()

        server = threading.Thread(target=serve)
        server.start()
        over = transport(listening.getsockname()[1])
        request = Request("POST", "/x", b"x" * 20_000_000)
        assert over.send(request, fresh=False, deadline=None).status == 413
        server.join()


def test_what_fails_says_how() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NotReached, match="Connection refused"):
            ask(transport(taken.getsockname()[1]))
    with pytest.raises(NotReached):
        ask(transport(1, "no-such-host.invalid"))
    peer = Peer(lambda number, count: b"SSH-2.0-x\r\n\r\n")
    with pytest.raises(NotHttp, match="SSH"):
        ask(transport(peer.port))
    peer.close()


def test_a_port_without_tls_is_not_secure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            with contextlib.suppress(OSError):
                connection.recv(65536)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        endpoint = Endpoint.parse(f"https://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(Insecure):
            ask(Transport(endpoint, {}, 5.0, 1, None))


def silent(number: int, count: int) -> bytes:
    time.sleep(60)
    return say("late")


def test_waits_are_bounded() -> None:
    peer = Peer(silent)
    with pytest.raises(Late):
        ask(transport(peer.port, timeout_s=0.1))
    started = time.monotonic()
    with pytest.raises(PastDeadline):
        ask(transport(peer.port), deadline=started + 0.2)
    assert time.monotonic() - started < 5, "a timeout has 5 s"
    with pytest.raises(PastDeadline):
        ask(transport(peer.port), deadline=started)
    peer.close()


def test_a_deadline_bounds_an_answer_that_trickles() -> None:
    def trickle(number: int, count: int) -> bytes:
        def drip() -> None:
            for _ in range(600):
                time.sleep(0.05)
                try:
                    peer.connections[number].sendall(b"x")
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"

    peer = Peer(trickle)
    started = time.monotonic()
    with pytest.raises(PastDeadline):
        ask(transport(peer.port, timeout_s=0.5), deadline=started + 0.3)
    assert time.monotonic() - started < 15, "it trickles for 30 s"
    peer.close()


def test_threads_share_a_bounded_number_of_connections(peer: Peer) -> None:
    over = transport(peer.port, connections=2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                ask(over)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(peer.connections) <= 2
    assert len(peer.requests) == 400


def test_a_request_waits_for_a_free_connection_only_so_long() -> None:
    answered = threading.Event()
    peer = Peer(lambda number, count: say("late") if answered.wait() else None)
    over = transport(peer.port, connections=1, timeout_s=WAIT_S)
    first = threading.Thread(target=ask, args=(over,))
    first.start()
    wait_until(lambda: peer.requests)
    with pytest.raises(PastDeadline):
        ask(over, deadline=time.monotonic() + 0.1)
    over._timeout_s = 0.1
    with pytest.raises(NoneFree):
        ask(over)
    answered.set()
    first.join()
    peer.close()


def asked_in_a_fork(over: Transport, give: Any) -> None:
    give.send([ask(over), ask(over)])


def test_a_forked_process_opens_connections_of_its_own(peer: Peer) -> None:
    over = transport(peer.port, connections=1)
    assert ask(over) == "0.0"
    held = over._free
    held.acquire()  # As if another thread were asking.
    fork = multiprocessing.get_context("fork")
    take, give = fork.Pipe(duplex=False)
    child = fork.Process(target=asked_in_a_fork, args=(over, give))
    child.start()
    assert take.poll(10)
    assert take.recv() == ["1.0", "1.1"]
    child.join()
    held.release()
    assert ask(over) == "0.1"


def test_a_closed_transport_keeps_nothing(peer: Peer) -> None:
    over = transport(peer.port)
    ask(over)
    over.close()
    with pytest.raises(InvalidRequest, match="closed"):
        ask(over)


def test_ipv6() -> None:
    try:
        peer = Peer(lambda number, count: say("six"), socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert ask(transport(peer.port, "[::1]")) == "six"
    assert b"Host: [::1]:%d" % peer.port in peer.requests[0]
    peer.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    while secure.recv(65536):
                        secure.sendall(say("x" * 100_000))
            except ssl.SSLError:
                continue
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        endpoint = Endpoint.parse(f"https://localhost:{listening.getsockname()[1]}")
        trusting = ssl.create_default_context(cafile=certificate)
        over = Transport(endpoint, {}, 5.0, 1, trusting)
        assert [ask(over) for _ in range(3)] == ["x" * 100_000] * 3
        over.close()
        with pytest.raises(Insecure, match="certificate"):
            ask(Transport(endpoint, {}, 5.0, 1, None))
