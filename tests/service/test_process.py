"""Goal: the real process: it says when it is ready, answers over sockets, and ends as it should on every signal.

Method: `stelae serve` as a process on a free port, asked with http.client and with the project's own client.
"""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from stelae.client.client import Client
from stelae.service.tables.data_folder import SERVING_FOLDER
from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import LOOKUP, USERS
from tests.tables import commit_rows
from tests.waiting import WAIT_S, wait_until

READY = re.compile(r"serving (\d+) tables?, ([\d,]+) rows.* at http://127\.0\.0\.1:(\d+), ready in \d+\.\d s\n")


class Process:
    def __init__(self, process: subprocess.Popen[str], port: int, line: str) -> None:
        self.process = process
        self.port = port
        self.line = line

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def get(self, path: str) -> tuple[int, bytes]:
        connection = self.connect()
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def has_read_what_was_sent(self) -> None:
        """What comes is read in the order in which it comes: requests that come later are answered."""
        for _ in range(2):
            assert self.get("/livez")[0] == 200

    def refuses_connections(self) -> bool:
        try:
            self.get("/livez")
        except ConnectionRefusedError:
            return True
        except (OSError, http.client.HTTPException):
            pass  # it was about to close
        return False

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Exit code and log."""
        assert self.process.stderr is not None
        log = self.process.stderr.read()
        return self.process.wait(WAIT_S), log


@contextmanager
def run(
    warehouse: Path, *arguments: str, stelae: Sequence[str] = ("-m", "stelae"), cwd: Path | None = None
) -> Iterator[Process]:
    command = [sys.executable, *stelae, "serve", "-w", str(warehouse), "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = READY.fullmatch(line)
        if match is None:
            process.kill()
            pytest.fail(f"not ready: {line!r}\n{process.communicate()[1]}")
        yield Process(process, int(match[3]), line)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    users = Warehouse(path).create_table(USERS)
    commit_rows(users, [{"user_id": i, "name": f"name {i}", "city": "x" * 100} for i in range(2000)])
    return path


def test_serve_and_stop(warehouse: Path) -> None:
    with run(warehouse) as server:
        assert server.line.startswith("serving 1 table, 2,000 rows, at http://127.0.0.1:")
        connection = server.connect()
        for user_id in range(3):  # one connection, kept alive
            connection.request("GET", f"{LOOKUP}?user_id={user_id}")
            response = connection.getresponse()
            assert response.getheader("stelae-snapshot") == "1"
            assert orjson.loads(response.read())["row"]["name"] == f"name {user_id}"
            assert response.getheader("server") is None
        connection.request("HEAD", f"{LOOKUP}?user_id=1")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        assert int(response.getheader("content-length") or 0) > 100
        with Client(f"http://127.0.0.1:{server.port}") as client:
            assert client.lookup_many("shop.users", range(3000)).count(None) == 1000
            assert client.describe("shop.users").snapshot == 1
        assert (warehouse / SERVING_FOLDER).is_dir()
        server.signal(signal.SIGTERM)
        code, log = server.ended()
        assert code == 0
        assert "Traceback" not in log
    assert not (warehouse / SERVING_FOLDER).exists()


IN_THE_WORKING_FOLDER = ("json.py", "pickle.py", "stelae.py", "stelae/__init__.py", "service/__init__.py", "uvicorn.py")


def test_nothing_is_imported_from_the_working_folder(warehouse: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    for name in IN_THE_WORKING_FOLDER:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("raise SystemExit('imported from the working folder')")
    # As a script of a package does it, and with a path that has the working folder in front by the time of the start.
    start = "import sys, stelae.cli.app, stelae.service.server; sys.path.insert(0, ''); stelae.cli.app.main()"
    with run(warehouse, "--workers", "2", "--poll-interval", "0.05", stelae=("-P", "-c", start), cwd=folder) as server:
        assert "with 2 workers" in server.line
        commit_rows(Warehouse(warehouse).table("shop.users"), [{"user_id": 7, "name": "new", "city": None}])
        deadline = time.monotonic() + 60
        while orjson.loads(server.get(f"{LOOKUP}?user_id=7")[1])["snapshot"] == 1:  # a process loads the next one
            assert time.monotonic() < deadline
            time.sleep(0.05)
        metrics = server.get("/metrics")[1].decode()
        assert "stelae_worker_restarts_total 0.0" in metrics
        assert 'stelae_worker_requests_total{worker="1"}' in metrics
        server.signal(signal.SIGTERM)
        code, log = server.ended()
        assert (code, "working folder" in log) == (0, False), log


def test_new_snapshots_are_noticed(warehouse: Path) -> None:
    with run(warehouse, "--poll-interval", "0.05") as server:
        users = Warehouse(warehouse).table("shop.users")
        commit_rows(users, [{"user_id": 1, "name": "new"}])
        wait_until(lambda: b"new" in server.get(f"{LOOKUP}?user_id=1")[1])
        server.signal(signal.SIGINT)  # Ctrl-C
        assert server.ended()[0] == 0


def test_requests_in_flight_finish(warehouse: Path) -> None:
    """SIGTERM comes while a body is half sent: the rest is read, the answer is whole, then the process ends."""
    with run(warehouse) as server:
        body = orjson.dumps({"keys": list(range(2000))})
        head = f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        idle = server.connect()
        idle.request("GET", "/livez")
        idle.getresponse().read()
        with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
            connection.sendall(head + body[:100])
            server.has_read_what_was_sent()
            server.signal(signal.SIGTERM)
            wait_until(server.refuses_connections)  # nobody new
            connection.sendall(body[100:])
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.status == 200
            assert len(orjson.loads(response.read())["rows"]) == 2000
        code, log = server.ended()
        assert code == 0
        assert "Traceback" not in log


def test_a_request_that_takes_longer_than_the_grace_is_cut_off(warehouse: Path) -> None:
    with run(warehouse, "--shutdown-grace", "1") as server:
        with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
            connection.sendall(f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
            server.has_read_what_was_sent()
            started = time.monotonic()
            server.signal(signal.SIGTERM)
            code, _ = server.ended()
        assert code == 0
        assert time.monotonic() - started > 0.9


def test_drain(warehouse: Path) -> None:
    """`/readyz` says 503 first, while requests are still answered; a second signal ends the wait."""
    with run(warehouse, "--drain", "30") as server:
        assert server.get("/readyz")[0] == 200
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/readyz")[0] == 503)
        status, body = server.get(f"{LOOKUP}?user_id=1")
        assert (status, orjson.loads(body)["found"]) == (200, True)
        server.signal(signal.SIGTERM)
        assert server.ended()[0] == 0


def test_clients_that_go_away(warehouse: Path) -> None:
    """In the middle of a body, and of an answer: nothing is logged, others are served."""
    with run(warehouse) as server:
        body = orjson.dumps({"keys": list(range(2000)) * 20})
        head = f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for part in (body[:1000], body):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
                    connection.sendall(head + part)
                    time.sleep(0.02)
        assert server.get(f"{LOOKUP}?user_id=1")[0] == 200
        assert server.get("/livez")[0] == 200
        server.signal(signal.SIGTERM)
        code, log = server.ended()
        assert code == 0
        assert "Traceback" not in log
        assert "ERROR" not in log


def test_a_body_over_the_limit_is_answered(warehouse: Path) -> None:
    """Also while it is still being sent; the connection can be used again."""
    with run(warehouse, "--max-body-bytes", "100000") as server:
        connection = server.connect()
        for _ in range(2):
            connection.request("POST", LOOKUP, b" " * 5_000_000)
            response = connection.getresponse()
            assert (response.status, orjson.loads(response.read())["type"]) == (413, "urn:stelae:problem:too-large")
        chunks = (b" " * 50_000 for _ in range(10))
        connection.request("POST", LOOKUP, chunks, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        response = connection.getresponse()
        assert (response.status, orjson.loads(response.read())["type"]) == (413, "urn:stelae:problem:too-large")
        connection.request("GET", f"{LOOKUP}?user_id=1")
        assert connection.getresponse().status == 200


def test_small_requests_are_not_stalled_by_large_ones(warehouse: Path) -> None:
    """100,000 keys take most of a second; others get their turns meanwhile."""
    with run(warehouse) as server:
        body = orjson.dumps({"keys": list(range(2000)) * 50, "columns": ["user_id"]})
        answered = threading.Event()

        def ask() -> None:
            connection = server.connect()
            connection.request("POST", LOOKUP, body)
            assert len(orjson.loads(connection.getresponse().read())["rows"]) == 100_000
            answered.set()

        asker = threading.Thread(target=ask)
        asker.start()
        connection = server.connect()
        count = 0
        while not answered.is_set():
            connection.request("GET", f"{LOOKUP}?user_id=1")
            assert connection.getresponse().read()
            count += 1
        asker.join()
        assert count >= 10


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--table", "shop.user"], 3, "shop.users"),
        (["--port", "70000"], 2, "65535"),
        (["--max-batch-keys", "0"], 2, "at least 1"),
        (["--host", "no.such.host.invalid"], 2, "can't listen there"),
    ],
)
def test_what_cannot_start(warehouse: Path, arguments: list[str], code: int, words: str) -> None:
    command = [sys.executable, "-m", "stelae", "serve", "-w", str(warehouse), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == code
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken(warehouse: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "stelae", "serve", "-w", str(warehouse), "--port", str(taken.getsockname()[1])]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 2
    assert "can't listen there" in ended.stderr


def test_a_killed_server_leaves_nothing_for_long(warehouse: Path) -> None:
    with run(warehouse) as server:
        server.signal(signal.SIGKILL)
        server.ended()
        [left] = [path for path in (warehouse / SERVING_FOLDER).iterdir() if path.is_dir()]
    with run(warehouse) as server:
        assert not left.exists()
        assert server.get(f"{LOOKUP}?user_id=1")[0] == 200
        server.signal(signal.SIGTERM)
        assert server.ended()[0] == 0
    assert [path.name for path in warehouse.iterdir()] == ["shop.db"]
