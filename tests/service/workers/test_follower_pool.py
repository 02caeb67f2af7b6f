"""Goal: several processes on one port answer as one does: the same from each, inserted rows at once everywhere, swaps
without a failed request, and nothing of it hurt by the death of any of them.

Method: `stelae serve --workers` as a process; many connections, of which each process gets its share (the metrics say
how many), asked at random. Followers and the leader are killed, stopped and signalled in the middle.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from stelae.snapshot.warehouse import Table, Warehouse
from stelae.wire.http_api import ARROW, JSON
from tests.service.serving import LOOKUP, USERS
from tests.service.test_process import Process, run
from tests.tables import commit_rows
from tests.waiting import WAIT_S, wait_until

PREFIX_LOOKUP = "/v1/tables/shop.users/prefix-lookup"
INSERT = "/v1/tables/shop.users/insert-if-not-exists"
QUICK = ("--poll-interval", "0.03", "--no-separate-loads")
ROWS = 200


class Connections:
    """Many connections to one server, of which each process has some."""

    def __init__(self, server: Process, count: int) -> None:
        self.server = server
        self.all = [server.connect() for _ in range(count)]
        for each in self.all:
            each.connect()
            ask(each, "GET", "/livez")  # it is with its process by now

    def any(self) -> http.client.HTTPConnection:
        return random.choice(self.all)

    def close(self) -> None:
        for each in self.all:
            each.close()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None, pin: int | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body."""
    headers = {} if body is None else {"Content-Type": JSON}
    if pin is not None:
        headers["Stelae-Snapshot"] = str(pin)
    connection.request(method, path, None if body is None else orjson.dumps(body), headers)
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def get(connection: http.client.HTTPConnection, user_id: int, pin: int | None = None) -> dict[str, Any]:
    """The answer of a point lookup, which must not fail."""
    status, headers, body = ask(connection, "GET", f"{LOOKUP}?user_id={user_id}", pin=pin)
    assert status == 200, body
    answer: dict[str, Any] = orjson.loads(body)
    assert headers["stelae-snapshot"] == str(answer["snapshot"])
    return answer


def metric(server: Process, name: str, **labels: str) -> float:
    """A value, or the sum of those with these labels."""
    page = server.get("/metrics")[1].decode()
    found = 0.0
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match is not None and all(f'{label}="{value}"' in (match[1] or "") for label, value in labels.items()):
            found += float(match[2])
    return found


def followers(server: Process) -> list[int]:
    """Process ids."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server.process.pid and b"stelae.service.workers.follower" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def in_threads(work: Callable[[], None], count: int) -> Iterator[None]:
    """`work` again and again in threads, as long as the context is open. It must not fail."""
    done = threading.Event()
    failures: list[BaseException] = []
    rounds = 0

    def loop() -> None:
        nonlocal rounds
        try:
            while not done.is_set():
                work()
                rounds += 1
        except BaseException as exc:
            failures.append(exc)
            done.set()

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    assert rounds > count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def users(path: Path) -> Table:
    table = Warehouse(path).create_table(USERS)
    commit(table, "one")
    return table


def commit(table: Table, mark: str) -> int:
    return commit_rows(table, [{"user_id": i, "name": mark, "city": str(i)} for i in range(ROWS)]).id


def test_every_process_answers_alike(users: Table, path: Path) -> None:
    requests: list[tuple[str, str, object, int | None]] = [
        ("GET", f"{LOOKUP}?user_id=1", None, None),
        ("HEAD", f"{LOOKUP}?user_id=1", None, None),
        ("GET", f"{LOOKUP}?user_id=1&columns=city", None, 1),
        ("GET", f"{LOOKUP}?user_id=5000", None, None),
        ("GET", f"{LOOKUP}?user_id=x", None, None),
        ("GET", f"{LOOKUP}?user_id=1", None, 99),
        ("GET", "/v1/tables/shop.user/lookup?user_id=1", None, None),
        ("GET", "/v1/tables", None, None),
        ("GET", "/v1/tables/shop.users", None, None),
        ("DELETE", LOOKUP, None, None),
        ("POST", LOOKUP, {"keys": [*range(ROWS + 10)], "columns": ["name"]}, None),
        ("POST", LOOKUP, {"keys": "x"}, None),
        ("POST", LOOKUP, {"keys": [1]}, 99),
        ("POST", PREFIX_LOOKUP, {"prefix": {}, "limit": 7}, None),
        ("POST", INSERT, {"keys": [1, 2]}, 1),
        ("GET", "/livez", None, None),
        ("GET", "/readyz", None, None),
        ("GET", "/docs", None, None),
        ("GET", "/nowhere", None, None),
    ]
    with run(path, "--workers", "3") as server:
        assert ", with 3 workers, at http" in server.line
        connections = Connections(server, 9)
        for number in ("1", "2"):
            assert metric(server, "stelae_worker_connections", worker=number) in (3, 4)  # and the one that asks
        for request in requests:
            first, *others = [ask(connection, *request) for connection in connections.all]
            for other in others:
                assert other == first, request
        for number in ("0", "1", "2"):
            assert metric(server, "stelae_worker_requests_total", worker=number) >= 3 * 3
        connections.close()
        wait_until(lambda: metric(server, "stelae_worker_connections") <= 1)


def test_connections_are_even(users: Table, path: Path) -> None:
    """Also after some are closed."""
    with run(path, "--workers", "2") as server:
        connections = [Connections(server, 1) for _ in range(16)]
        assert metric(server, "stelae_worker_connections", worker="1") in (8, 9)
        for connection in connections[::2]:
            connection.close()
        wait_until(lambda: metric(server, "stelae_worker_connections", worker="1") <= 8)
        more = Connections(server, 8)
        assert metric(server, "stelae_worker_connections", worker="1") in (8, 9)
        more.close()


def test_an_inserted_row_is_seen_at_once_everywhere(users: Table, path: Path) -> None:
    """While snapshots are swapped in, some of which have other rows of these keys as well."""
    with run(path, "--workers", "2", *QUICK) as server:
        connections = threading.local()
        numbers = iter(range(10_000, 10_000_000))
        kinds: dict[str, int] = {}

        def insert_and_look() -> None:
            if not hasattr(connections, "mine"):
                connections.mine = Connections(server, 4)
            mine: Connections = connections.mine
            key = next(numbers)
            status, _, body = ask(mine.any(), "POST", INSERT, {"keys": [key, 3]})
            assert status == 200, body
            assert orjson.loads(body)["inserted"] == [True, False], body
            for kind in random.sample(("point", "batch", "prefix", "insert"), 2):
                kinds[kind] = kinds.get(kind, 0) + 1
                if kind == "point":
                    assert get(mine.any(), key)["found"], key
                elif kind == "batch":
                    status, _, body = ask(mine.any(), "POST", LOOKUP, {"keys": [1, key, 2]})
                    assert [row["user_id"] for row in orjson.loads(body)["rows"]] == [1, key, 2]
                elif kind == "prefix":
                    status, _, body = ask(mine.any(), "POST", PREFIX_LOOKUP, {"prefix": {"user_id": key}})
                    assert [row["user_id"] for row in orjson.loads(body)["rows"]] == [key]
                else:
                    status, _, body = ask(mine.any(), "POST", INSERT, {"keys": [key]})
                    assert orjson.loads(body)["inserted"] == [False]

        with in_threads(insert_and_look, 4):
            for mark in ("two", "three", "four"):
                time.sleep(0.3)
                number = commit(users, mark)
                wait_until(lambda number=number: metric(server, "stelae_snapshot_id") == number)
        assert min(kinds.values()) > 10
        assert metric(server, "stelae_worker_forwarded_total") > 10
        one = Connections(server, 6)
        _, _, whole = ask(one.any(), "POST", PREFIX_LOOKUP, {"prefix": {}, "limit": 10_000})
        for connection in one.all:
            assert ask(connection, "POST", PREFIX_LOOKUP, {"prefix": {}, "limit": 10_000})[2] == whole
        assert len(orjson.loads(whole)["rows"]) == ROWS + metric(server, "stelae_insert_keys_total", result="inserted")


def test_what_an_answer_names_can_be_pinned_everywhere(users: Table, path: Path) -> None:
    """Under swaps, without a failed request; and a snapshot is the same at every process."""
    marks = ["one", *(f"mark {number}" for number in range(2, 12))]
    with run(path, "--workers", "2", *QUICK, "--kept-snapshots", "4") as server:
        local = threading.local()
        seen: set[int] = set()

        def ask_twice() -> None:
            if not hasattr(local, "mine"):
                local.mine = Connections(server, 4)
            user_id = random.randrange(ROWS)
            answer = get(local.mine.any(), user_id)
            assert answer["row"]["name"] == marks[answer["snapshot"] - 1]
            seen.add(answer["snapshot"])
            assert get(local.mine.any(), user_id, pin=answer["snapshot"]) == answer
            status, _, body = ask(local.mine.any(), "POST", LOOKUP, {"keys": [user_id]}, pin=answer["snapshot"])
            assert status == 200, body
            assert orjson.loads(body)["rows"] == [answer["row"]]

        with in_threads(ask_twice, 3):
            for number, mark in enumerate(marks[1:], start=2):
                commit(users, mark)
                wait_until(lambda number=number: number in seen)
        assert seen == set(range(1, len(marks) + 1))
        code_and_log = _stopped(server)
        assert code_and_log[0] == 0
        assert "Traceback" not in code_and_log[1]
        assert "ERROR" not in code_and_log[1]


def test_a_pin_at_one_process_keeps_a_snapshot_open(users: Table, path: Path) -> None:
    with run(path, "--workers", "2", *QUICK, "--kept-snapshots", "0") as server:
        connections = Connections(server, 4)
        pinning = connections.all[:2]  # one of each process
        for number in range(2, 5):
            for each in pinning[:1] if number % 2 else pinning[1:]:
                assert get(each, 1, pin=1)["row"]["name"] == "one"
            commit(users, str(number))
            wait_until(lambda number=number: get(connections.any(), 1)["snapshot"] == number)
            for each in connections.all:
                assert get(each, 1, pin=1)["row"]["name"] == "one"
        assert metric(server, "stelae_kept_snapshots") == 1


def test_a_pin_that_has_to_be_opened(users: Table, path: Path) -> None:
    commit(users, "two")
    with run(path, "--workers", "2") as server:
        connections = Connections(server, 4)
        status, headers, body = ask(connections.all[0], "GET", f"{LOOKUP}?user_id=1", pin=1)
        assert (status, orjson.loads(body)["detail"]) == (503, "snapshot 1 of shop.users is being opened")
        assert int(headers["retry-after"]) >= 1
        wait_until(lambda: ask(connections.all[0], "GET", f"{LOOKUP}?user_id=1", pin=1)[0] == 200)
        for each in connections.all:
            assert get(each, 1, pin=1)["row"]["name"] == "one"


def test_a_table_that_is_created_later(path: Path) -> None:
    warehouse = Warehouse(path)
    warehouse.create_table("CREATE TABLE shop.other (id INT, PRIMARY KEY (id) NOT ENFORCED)")
    with run(path, "--workers", "2", *QUICK) as server:
        connections = Connections(server, 4)
        assert {ask(each, "GET", f"{LOOKUP}?user_id=1")[0] for each in connections.all} == {404}
        users = warehouse.create_table(USERS)
        wait_until(lambda: all(ask(each, "GET", f"{LOOKUP}?user_id=1")[0] == 503 for each in connections.all))
        commit(users, "one")
        wait_until(lambda: all(ask(each, "GET", f"{LOOKUP}?user_id=1")[0] == 200 for each in connections.all))
        for each in connections.all:
            get(each, 1)
        assert metric(server, "stelae_worker_requests_total", worker="1") >= 2


def test_a_follower_is_killed(users: Table, path: Path) -> None:
    """Its connections break, and no others. It comes back, and no counter goes down."""
    with run(path, "--workers", "2") as server:
        [victim] = followers(server)
        connections = Connections(server, 8)
        broken: set[int] = set()

        def ask_one() -> None:
            index = random.randrange(8)
            mine = server.connect()
            try:
                get(mine, 1)
            except (OSError, http.client.HTTPException):
                broken.add(index)
            mine.close()

        for each in connections.all:
            for _ in range(5):
                get(each, 1)
        before = metric(server, "stelae_requests_total", outcome="ok")
        assert before == 40
        with in_threads(ask_one, 2):
            time.sleep(0.2)
            os.kill(victim, signal.SIGKILL)
            time.sleep(0.5)
        assert len(broken) <= 2  # what was under way at that moment, one a thread
        lost = 0
        for each in connections.all:
            try:
                get(each, 1)
            except (OSError, http.client.HTTPException):
                lost += 1
        assert lost == 4
        assert metric(server, "stelae_requests_total", outcome="ok") >= before
        wait_until(lambda: metric(server, "stelae_worker_restarts_total") == 1)
        wait_until(lambda: bool(followers(server)))
        assert followers(server) != [victim]

        def reaches_the_new_one() -> bool:
            fresh = Connections(server, 4)
            for each in fresh.all:
                get(each, 1)
            fresh.close()
            return metric(server, "stelae_worker_cpu_seconds_total") > 0 and _connections_of(server, 4) > 0

        wait_until(reaches_the_new_one)
        code, log = _stopped(server)
        assert code == 0
        assert "worker 1 ended with -9; another one is started" in log
        assert "Traceback" not in log, log


def test_a_follower_that_stands_still_holds_up_nobody_for_long(users: Table, path: Path) -> None:
    """A swap waits some seconds for it; then another one is started."""
    with run(path, "--workers", "2", *QUICK) as server:
        [victim] = followers(server)
        os.kill(victim, signal.SIGSTOP)
        commit(users, "two")
        wait_until(lambda: not is_alive(victim))

        def all_swapped() -> bool:
            fresh = Connections(server, 4)
            snapshots = {get(each, 1)["snapshot"] for each in fresh.all}
            fresh.close()
            return snapshots == {2}

        wait_until(all_swapped)
        wait_until(lambda: _connections_of(server, 4) > 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_the_leader_is_killed(users: Table, path: Path, number: int) -> None:
    """Its followers go, and the port is free."""
    with run(path, "--workers", "3") as server:
        connections = Connections(server, 6)
        there = followers(server)
        assert len(there) == 2
        server.signal(number)
        server.process.wait(WAIT_S)
        wait_until(lambda: not any(map(is_alive, there)))
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", server.port))
        connections.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping(users: Table, path: Path, number: int) -> None:
    """Requests in flight finish at every process; nobody new is taken; the code is 0, and nothing is left."""
    with run(path, "--workers", "2") as server:
        there = followers(server)
        body = orjson.dumps({"keys": list(range(ROWS))})
        head = f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        slow = [socket.create_connection(("127.0.0.1", server.port), WAIT_S) for _ in range(4)]
        for each in slow:
            each.sendall(head + body[:50])
        idle = Connections(server, 4)
        time.sleep(0.2)
        for process in (server.process.pid, *there):  # a terminal, or a service manager, tells all of them
            os.kill(process, number)
        wait_until(server.refuses_connections)
        for each in slow:
            each.sendall(body[50:])
            response = http.client.HTTPResponse(each)
            response.begin()
            assert response.status == 200
            assert len(orjson.loads(response.read())["rows"]) == ROWS
            each.close()
        code, log = server.ended()
        assert code == 0
        assert "Traceback" not in log, log
        assert "ERROR" not in log, log
        assert not any(map(is_alive, there))
        idle.close()
    assert [each.name for each in path.iterdir()] == ["shop.db"]


def test_a_large_batch_is_forwarded_whole(users: Table, path: Path) -> None:
    """Bodies and answers of megabytes, through any process; and one that is too large is refused by each."""
    with run(path, "--workers", "2", "--max-body-bytes", "2000000") as server:
        connections = Connections(server, 4)
        ask(connections.any(), "POST", INSERT, {"keys": [10_000]})
        keys = [*(list(range(ROWS)) * 400), 10_000]  # no process but one knows the last of them
        answers = [ask(each, "POST", LOOKUP, {"keys": keys}) for each in connections.all]
        assert len({answer[2] for answer in answers}) == 1
        assert len(orjson.loads(answers[0][2])["rows"]) == len(keys)
        assert metric(server, "stelae_keys_total", result="found") == 4 * len(keys)
        assert {ask(each, "POST", INSERT, {"keys": ["x" * 2_000_000]})[0] for each in connections.all} == {413}


def test_arrow_through_any_process(users: Table, path: Path) -> None:
    """With rows that only one of them has, in both forms."""
    with run(path, "--workers", "2") as server:
        connections = Connections(server, 4)
        ask(connections.any(), "POST", INSERT, {"keys": [10_000]})
        keys = pa.table({"user_id": pa.array([3, 10_000, 20_000], pa.int64())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_table(keys)
        for form in ("typed", "encoded"):
            bodies = []
            for each in connections.all:
                each.request("POST", f"{LOOKUP}?rows={form}", sink.getvalue().to_pybytes(), {"Content-Type": ARROW})
                response = each.getresponse()
                bodies.append(response.read())
                assert response.status == 200, bodies
            assert len(set(bodies)) == 1
            assert pa.ipc.open_stream(bodies[0]).read_all()["row"].is_valid().to_pylist() == [True, True, False]


def test_hash_indexes_are_used_by_all(users: Table, path: Path) -> None:
    """What the leader makes, because batches ask for it at any process, answers the same as before everywhere."""
    with run(path, "--workers", "2") as server:
        connections = Connections(server, 4)
        keys = [*range(ROWS + 50)] * 10
        before = {ask(each, "POST", LOOKUP, {"keys": keys})[2] for each in connections.all}
        follower_of = connections.all[1]
        files = [Path(f"/proc/{process}/maps") for process in followers(server)]

        def is_mapped() -> bool:
            assert ask(follower_of, "POST", LOOKUP, {"keys": keys})[0] == 200
            return all("/index-" in file.read_text() for file in files)

        wait_until(is_mapped)
        after = {ask(each, "POST", LOOKUP, {"keys": keys})[2] for each in connections.all}
        assert after == before
        assert len(after) == 1
        ask(connections.any(), "POST", INSERT, {"keys": [ROWS + 1]})
        for each in connections.all:
            rows = orjson.loads(ask(each, "POST", LOOKUP, {"keys": keys})[2])["rows"]
            assert rows[ROWS + 1]["user_id"] == ROWS + 1
            assert rows[ROWS + 2] is None


def _connections_of(server: Process, count: int) -> float:
    """How many of new connections worker 1 gets."""
    fresh = Connections(server, count)
    got = metric(server, "stelae_worker_connections", worker="1")
    fresh.close()
    return got


def _stopped(server: Process) -> tuple[int, str]:
    server.signal(signal.SIGTERM)
    return server.ended()
