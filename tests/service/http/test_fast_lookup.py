"""Goal: a point lookup that is answered at once gets the bytes that the usual way gives, and is counted alike.

Method: a server in this process with its own protocol, asked over plain sockets. A header that makes no difference to
the answer, `Content-Length: 0`, sends a request the usual way: so both answers to each of many queries are compared,
handwritten ones and random ones. How many were answered at once is asserted, so that the comparison is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

import pytest
import uvicorn

from stelae.rocksdb.online_rows import OnlineRows
from stelae.service.app import TabletServer, create_app
from stelae.service.http.uvicorn_config import uvicorn_config
from stelae.service.http.uvicorn_protocol import answering
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import LOOKUP
from stelae.service.tables.served_table import ForwardToOwner, OpenSnapshot, Serving
from stelae.service.workers.forwarding import LeaderRows
from stelae.snapshot.warehouse import Warehouse
from tests.length import length
from tests.tables import commit_rows
from tests.waiting import WAIT_S, wait_until

ITEMS = ["a", "a b", "a+b", "é", "50%", "x=y", "", "a&b", "日本"]
TABLES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "shop.users": (
        "CREATE TABLE shop.users (user_id BIGINT, name STRING, city STRING, PRIMARY KEY (user_id) NOT ENFORCED)",
        [{"user_id": i, "name": f"näme {i}", "city": None if i % 2 else "Paris"} for i in range(-5, 30)],
    ),
    "shop.items": (
        "CREATE TABLE shop.items (item VARCHAR(12), pieces INT, PRIMARY KEY (item) NOT ENFORCED)",
        [
            {"item": item, "pieces": n}
            for n, item in enumerate(["a", "a b", "a+b", "é", "50%", "x=y", "", "a&b", "日本"])
        ],
    ),
    "shop.orders": (
        """CREATE TABLE shop.orders (user_id BIGINT, item STRING, day DATE, total DECIMAL(9, 2),
        PRIMARY KEY (user_id, item, day) NOT ENFORCED) PARTITIONED BY (day)""",
        [
            {"user_id": u, "item": i, "day": f"2026-11-{d}", "total": u}
            for u in range(5)
            for i in ("a", "b c")
            for d in (20, 21)
        ],
    ),
    "small": (
        """CREATE TABLE small (k SMALLINT, v DOUBLE, PRIMARY KEY (k) NOT ENFORCED)
        WITH ('primary-key.nullable' = 'true')""",
        [{"k": None, "v": 1.0}, {"k": 1, "v": float("nan")}, {"k": 2, "v": 1e300}],
    ),
    "odd": (
        "CREATE TABLE odd (`columns` STRING, `v v` INT, PRIMARY KEY (`columns`) NOT ENFORCED)",
        [{"columns": "v v", "v v": 1}, {"columns": "a,b", "v v": 2}],
    ),
    "strange": (
        "CREATE TABLE strange (`a+b` BIGINT, `ü=` INT, PRIMARY KEY (`a+b`) NOT ENFORCED)",
        [{"a+b": 1, "ü=": 1}],
    ),
}


class Listening:
    """The server, and what it answered at once."""

    def __init__(self, app: TabletServer, server: uvicorn.Server, port: int) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.at_once = 0

    def connect(self) -> Connection:
        return Connection(self.port)

    def count(self) -> None:
        """Count answers at once from now on."""

        def counting(function: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
            def answer(query: bytes) -> bytes | None:
                found = function(query)
                self.at_once += found is not None
                return found

            return answer

        for path, function in list(self.app.answers_now.items()):
            self.app.answers_now[path] = counting(function)


class Connection:
    """A connection to it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self._left = b""

    def get(self, target: bytes, headers: bytes = b"") -> bytes:
        self.send(request(target, headers))
        return self.answer()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """The next response, whole."""
        while b"\r\n\r\n" not in self._left:
            self._receive()
        head, _, body = self._left.partition(b"\r\n\r\n")
        [length] = [int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        while len(body) < length:
            self._receive()
            body = self._left[len(head) + 4 :]
        self._left = body[length:]
        return head + b"\r\n\r\n" + body[:length]

    def _receive(self) -> None:
        received = self.socket.recv(1 << 16)
        if not received:
            raise ConnectionError(f"closed after {self._left!r}")
        self._left += received


def request(target: bytes, headers: bytes = b"") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n"


USUAL = b"Content-Length: 0\r\n"


@contextmanager
def listening(warehouse: Warehouse, poll_interval_s: float = 3600.0, **settings: Any) -> Iterator[Listening]:
    options = ServerOptions(poll_interval_s=poll_interval_s, separate_loads=False)
    app = create_app(options, warehouse)
    config = uvicorn_config(app, options, answering(app.answers_now))
    for name, value in settings.items():
        setattr(config, name, value)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening_:
        loop_factory = config.get_loop_factory()

        def run() -> None:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(server.serve([listening_]))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(lambda: app.ready)
            found = Listening(app, server, listening_.getsockname()[1])
            found.count()
            yield found
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    for sql, rows in TABLES.values():
        commit_rows(warehouse.create_table(sql), rows)
    return warehouse


@pytest.fixture(scope="module")
def server(warehouse: Warehouse) -> Iterator[Listening]:
    with listening(warehouse) as server:
        yield server


def path_of(table: str) -> bytes:
    return f"/v1/tables/{table}/lookup".encode()


def both(server: Listening, target: bytes) -> tuple[bytes, bool]:
    """The answer both ways give, and whether one of them was at once."""
    before = server.at_once
    usual = server.connect().get(target, USUAL)
    assert server.at_once == before
    connection = server.connect()
    assert connection.get(target) == usual, target
    at_once = server.at_once > before
    if b"connection: close" not in usual:
        assert connection.get(target) == usual, target  # its headers are known by now
        assert server.at_once == before + 2 * at_once
    return usual, at_once


@pytest.mark.parametrize(
    ("table", "query", "found"),
    [
        ("shop.users", "user_id=7", b'"user_id":7,"name":"n\xc3\xa4me 7","city":null'),
        ("shop.users", "user_id=-5", b'"user_id":-5'),
        ("shop.users", "user_id=0007", b'"user_id":7'),
        ("shop.users", "user_id=%37", b'"user_id":7'),
        ("shop.users", "user_id=7&columns=city,name", b'{"city":null,"name":"n\xc3\xa4me 7"}'),
        ("shop.users", "columns=name&user_id=7", b'{"name":"n\xc3\xa4me 7"}'),
        ("shop.users", "columns=name%2Ccity&user_id=7", b'"city":null}'),
        ("shop.users", "user_id=999", b'{"found":false,"row":null'),
        ("shop.users", "user_id=123456789012345678", b'"found":false'),
        ("shop.items", "item=a", b'"pieces":0'),
        ("shop.items", "item=a+b", b'"pieces":1'),
        ("shop.items", "item=a%20b", b'"pieces":1'),
        ("shop.items", "item=a%2Bb", b'"pieces":2'),
        ("shop.items", "item=%C3%A9", b'"pieces":3'),
        ("shop.items", "item=50%25", b'"pieces":4'),
        ("shop.items", "item=50%", b'"pieces":4'),
        ("shop.items", "item=x%3Dy", b'"pieces":5'),
        ("shop.items", "item=", b'"pieces":6'),
        ("shop.items", "item=a%26b", b'"pieces":7'),
        ("shop.items", "item=12", b'"found":false'),
        ("shop.orders", "user_id=3&item=a&day=2026-11-20", b'"total":"3.00"'),
        ("shop.orders", "day=2026-11-21&item=b+c&user_id=3&columns=total", b'"row":{"total":"3.00"}'),
        ("shop.orders", "user_id=3&item=a&day=2026-11-30", b'"found":false'),
        ("small", "k=1", b'"v":"NaN"'),
        ("default.small", "k=2", b'"v":1e+300'),
        ("odd", "columns=v+v", b'"v v":1'),
        ("odd", "columns=a,b", b'"v v":2'),
    ],
)
def test_what_is_answered_at_once(server: Listening, table: str, query: str, found: bytes) -> None:
    answer, at_once = both(server, path_of(table) + b"?" + query.encode())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ")
    assert found in answer
    assert at_once


@pytest.mark.parametrize(
    ("table", "query", "status"),
    [
        ("shop.users", "", 400),
        ("shop.users", "user_id", 400),
        ("shop.users", "user_id=", 400),
        ("shop.users", "user_id=7=7", 400),
        ("shop.users", "user_id=x", 400),
        ("shop.users", "user_id=7&user_id=7", 400),
        ("shop.users", "user_id=7&", 400),
        ("shop.users", "user_id=7&city=Paris", 400),
        ("shop.users", "user_id=7&columns=", 400),
        ("shop.users", "user_id=7&columns=name,name", 400),
        ("shop.users", "user_id=7&columns=nome", 400),
        ("shop.users", "user_id=99999999999999999999", 400),
        ("shop.users", "user_id=" + "7" * 5000, 400),
        ("shop.users", "user%5Fid=7", 200),
        ("shop.users", "user_id=7#part", 200),
        ("shop.items", "item=" + "x" * 13, 400),
        ("shop.items", "item=%FF", 400),
        ("shop.items", "item=é", 400),
        ("shop.items", "item=a=b", 200),
        ("shop.orders", "user_id=3&item=a", 400),
        ("small", "k=40000", 400),
        ("small", "k=null", 400),
        ("strange", "a+b=1", 200),
        ("strange", "a%2Bb=1", 200),
        ("nowhere", "k=1", 404),
    ],
)
def test_what_goes_the_usual_way(server: Listening, table: str, query: str, status: int) -> None:
    answer, at_once = both(server, path_of(table) + b"?" + query.encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert not at_once


@pytest.mark.long
@pytest.mark.parametrize("seed", range(length(short=4, long=40)))
def test_random_queries(server: Listening, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    texts = [
        "1",
        "7",
        "-3",
        "007",
        "a",
        "a b",
        "é",
        "日本",
        "x" * 13,
        "",
        "2026-11-20",
        "50%",
        "a&b",
        "1.0",
        "NULL",
        "٣",
    ]
    names = [name for sql, _ in TABLES.values() for name in ("user_id", "item", "day", "k", "columns", "city", "v v")]

    def encoded(text: str) -> bytes:
        match chance.randrange(5):
            case 0:
                return quote(text).encode()
            case 1:
                return text.replace(" ", "%20").encode()
            case 2:
                return "".join(f"%{byte:02x}" for byte in text.encode()).encode()
        return quote_plus(text, safe="-.,:").encode()

    def query_of(table: str) -> bytes:
        _, rows = TABLES[table]
        row = chance.choice(rows)
        keys = {"shop.users": 1, "shop.items": 1, "shop.orders": 3, "small": 1, "odd": 1, "strange": 1}[table]
        pairs = [(name, str(value)) for name, value in list(row.items())[:keys]]
        if chance.random() < 0.4:
            pairs.append(("columns", ",".join(chance.sample([*row], chance.randint(1, len(row))))))
        if chance.random() < 0.3:
            at = chance.randrange(len(pairs))
            pairs[at] = (pairs[at][0], chance.choice(texts))
        if chance.random() < 0.1:
            pairs.append((chance.choice(names), chance.choice(texts)))
        if chance.random() < 0.1:
            pairs.pop(chance.randrange(len(pairs)))
        chance.shuffle(pairs)
        query = b"&".join((name.encode() if chance.random() < 0.8 else encoded(name)) + b"=" + encoded(value)
                          for name, value in pairs)  # fmt: skip
        if query and chance.random() < 0.1:
            at = chance.randrange(len(query))
            query = query[:at] + chance.choice([b"%", b"+", b"&", b"=", b";", b"#", b"\xff", b"_", b"?"]) + query[at:]
        return query.replace(b" ", b"+")  # a space would end the URL

    at_once, statuses = 0, set()
    for _ in range(300):
        table = chance.choice(list(TABLES))
        answer, was_at_once = both(server, path_of(table) + b"?" + query_of(table))
        at_once += was_at_once
        statuses.add(answer[9:12])
    assert 100 < at_once < 250
    assert {b"200", b"400"} <= statuses


def test_both_ways_count_alike(server: Listening) -> None:
    counts = server.app.tables["shop.users"].counts
    connection = server.connect()
    seen = []
    for headers in (USUAL, b""):
        of = counts.operations[LOOKUP]
        before = (of.ok, counts.missing, counts.found, sum(of.failed.values()), of.seconds)
        for key in (1, 2, 3, 777, 778):
            connection.get(path_of("shop.users") + b"?user_id=%d" % key, headers)
        connection.get(path_of("shop.users") + b"?user_id=x", headers)
        after = (of.ok, counts.missing, counts.found, sum(of.failed.values()), of.seconds)
        seen.append([now - then for now, then in zip(after, before, strict=True)])
        assert 0 < seen[-1].pop() < 5
    assert seen == [[5, 2, 3, 1]] * 2


def test_a_process_that_does_not_know_all_rows_leaves_misses_to_the_usual_way(server: Listening) -> None:
    table = server.app.tables["shop.users"]
    connection = server.connect()
    answer = server.app.answers_now[b"GET " + path_of("shop.users")]
    serving = table.serving
    assert serving is not None
    before, missing = server.at_once, table.counts.missing
    table.serving = Serving(OpenSnapshot(serving.reader.with_online(cast("OnlineRows", LeaderRows()))), {})
    try:
        connection.get(path_of("shop.users") + b"?user_id=7")
        assert server.at_once == before + 1
        with pytest.raises(ForwardToOwner):  # what becomes of it is not looked at here
            answer(b"user_id=999")
        assert table.counts.missing == missing
    finally:
        table.serving = serving
    assert answer(b"user_id=999")


def test_answers_come_from_the_snapshot_that_is_current(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    users = warehouse.create_table(TABLES["shop.users"][0])
    warehouse.create_table(TABLES["shop.items"][0])
    first = commit_rows(users, [{"user_id": 1, "name": "one"}])
    with listening(warehouse, poll_interval_s=0.02) as server:
        connection = server.connect()
        target = path_of("shop.users") + b"?user_id=1"
        connection.get(target)
        assert server.at_once == 1
        assert connection.get(path_of("shop.items") + b"?item=a").startswith(b"HTTP/1.1 503 ")
        second = commit_rows(users, [{"user_id": 1, "name": "two"}])
        deadline = time.monotonic() + WAIT_S
        seen = []
        while b"two" not in (answer := connection.get(target)) and time.monotonic() < deadline:
            seen.append(answer)
        assert {line for line in answer.split(b"\r\n") if b"snapshot" in line} == {
            b"stelae-snapshot: %d" % second.id,
            b'{"found":true,"row":{"user_id":1,"name":"two","city":null},"snapshot":%d}' % second.id,
        }
        assert all(b'"name":"one"' in answer and b": %d\r\n" % first.id in answer for answer in seen)
        assert server.at_once == len(seen) + 2


def test_requests_one_after_the_other_without_waiting(server: Listening) -> None:
    connection = server.connect()
    keys = list(range(-5, 30)) * 10
    connection.send(b"".join(request(path_of("shop.users") + b"?user_id=%d" % key) for key in keys))
    for key in keys:
        assert b'"user_id":%d,' % key in connection.answer()


def test_a_request_in_two_parts(server: Listening) -> None:
    packet = request(path_of("shop.users") + b"?user_id=7")
    connection = server.connect()
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in range(1, len(packet), 3):
        connection.send(packet[:cut])
        time.sleep(0.002)
        connection.send(packet[cut:])
        assert b'"user_id":7,' in connection.answer()


def test_a_client_that_never_reads_costs_a_bounded_buffer(server: Listening) -> None:
    """And gets all its answers, in order, when it begins to read."""
    connection = server.connect()
    many = 30_000
    answers = [connection.get(path_of("shop.users") + b"?user_id=%d" % i) for i in range(30)]
    data = b"".join(request(path_of("shop.users") + b"?user_id=%d" % (i % 30)) for i in range(many))
    [waiting] = server.server.server_state.connections
    theirs = waiting.transport.get_extra_info("socket")  # type: ignore[union-attr]
    for each in (connection.socket, theirs):  # the kernel keeps little
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    connection.socket.setblocking(False)
    sent = 0

    def is_stopped() -> bool:
        """Sends until nothing goes any more."""
        nonlocal sent
        with contextlib.suppress(BlockingIOError):
            while sent < len(data):
                sent += connection.socket.send(data[sent : sent + 65_536])
            return True
        return bool(waiting.flow.write_paused and waiting.flow.read_paused)  # type: ignore[union-attr]

    wait_until(is_stopped)
    assert sent < len(data), "the server read all of it"
    assert len(waiting.pipeline) < 10_000  # type: ignore[union-attr]
    assert waiting.transport.get_write_buffer_size() < 1 << 20
    connection.socket.settimeout(WAIT_S)
    rest = threading.Thread(target=connection.send, args=(data[sent:],))
    rest.start()
    expected = b"".join(answers) * (many // 30)
    received = bytearray()
    while len(received) < len(expected):
        received += connection.socket.recv(1 << 20)
    assert received == expected
    rest.join()


def asked_until_closed(connection: Connection, target: bytes) -> None:
    with contextlib.suppress(OSError):
        for _ in range(1000):
            assert b'"user_id":7,' in connection.get(target)
            time.sleep(0.01)
        pytest.fail("the connection was never closed")


def test_a_server_that_stops_closes_the_connection_after_an_answer(warehouse: Warehouse) -> None:
    with listening(warehouse) as server:
        connection = server.connect()
        target = path_of("shop.users") + b"?user_id=7"
        assert b'"user_id":7,' in connection.get(target)
        server.server.should_exit = True
        asked_until_closed(connection, target)
        assert server.server.server_state.total_requests == server.at_once


def test_a_limit_of_requests_counts_all(warehouse: Warehouse) -> None:
    with listening(warehouse, limit_max_requests=5) as server:
        asked_until_closed(server.connect(), path_of("shop.users") + b"?user_id=7")
        assert server.at_once >= 5
