"""Insert if not exists: words to ids over the network, each id durable before it is answered.

    python -m benchmarks.bench_insert [--quick]

A million words, each of them once and nine million more by Zipf's law, shuffled, in batches of 1,000 from 4 client
processes; every client ends with the list of ids of its batch. Quick mode has a tenth of it. All servers start empty,
on the same disk.

Peers, each by its cheapest client:

- PostgreSQL with `synchronous_commit = on`, in three ways: `INSERT ... ON CONFLICT DO NOTHING RETURNING` and, in the
  same transaction, a SELECT of the ids that were there before; the insert alone, which leaves a client without the ids
  of words that were there; and a SELECT first, then an insert of what it did not find.
- Redis with `appendfsync always` and a script of GET, INCR and SET a word; redis-py with hiredis and without.

Afterwards, every word must have one id at all times, no two words the same, and the server as many words as were sent;
then the server is killed, started again and asked once more.

Single new words come from 16 connections, one a request, against as many appends to a file with fdatasync in a row.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import multiprocessing
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.peers import (
    POSTGRES_USER,
    NotInstalled,
    disk_folder,
    postgres,
    postgres_programs,
    redis,
    redis_program,
)
from benchmarks.servers import Running, tablet_server
from benchmarks.words import Stream, make_stream, make_words
from stelae.warehouse import Warehouse

BATCH = 1000
CLIENTS = 4
CONNECTIONS = 16
RECORD_BYTES = 128
"""About what a word and its row take in the log."""
ASKED_AGAIN = 20
"""Batches, after the crash."""
START_TIMEOUT_S = 120

WORDS = """CREATE TABLE IF NOT EXISTS bench.words (word STRING, id BIGINT, PRIMARY KEY (word) NOT ENFORCED)
    WITH ('bucket' = '1', 'auto-increment.fields' = 'id')"""
INSERT_PATH = "/v1/tables/bench.words/insert-if-not-exists"

REDIS_COUNTER = "\0next"
REDIS_SCRIPT = """
local ids = {}
for i, key in ipairs(KEYS) do
  local id = redis.call('GET', key)
  if not id then
    id = redis.call('INCR', '\\0next')
    redis.call('SET', key, id)
  end
  ids[i] = tonumber(id)
end
return ids
"""

Ids = npt.NDArray[np.int64]


# --- clients


class Client(Protocol):
    """A connection of one process."""

    complete: bool
    """Whether `insert` tells the ids of words that were there before; otherwise they are 0."""

    def __init__(self, port: int) -> None: ...

    def insert(self, words: list[str]) -> list[int]:
        """The ids of words, aligned; words that have none get one."""

    def stored(self) -> int | None:
        """The number of words in the server; None if it does not tell."""

    def close(self) -> None: ...


class StelaeClient:
    """HTTP by hand, like the clients of the peers: no URL to parse, no pool, no retry."""

    complete = True
    HEAD = (
        f"POST {INSERT_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    ).encode()

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), START_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def insert(self, words: list[str]) -> list[int]:
        return [row["id"] for row in self.ask(words)["rows"]]

    def ask(self, words: list[str]) -> Any:
        body = orjson.dumps({"keys": words, "columns": ["id"]})
        self.socket.sendall(self.HEAD % len(body) + body)
        received = self.receive()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self.receive()
        head = received[:end].lower()
        missing = int(head.partition(b"content-length:")[2].split()[0]) - (len(received) - end - 4)
        parts = [received[end + 4 :]]
        while missing > 0:
            parts.append(self.receive())
            missing -= len(parts[-1])
        answer = orjson.loads(b"".join(parts))
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"{head.splitlines()[0].decode()}: {answer}")
        return answer

    def receive(self) -> bytes:
        data = self.socket.recv(1 << 18)
        if not data:
            raise SystemExit("the server closed the connection")
        return data

    def stored(self) -> None:
        return None

    def close(self) -> None:
        self.socket.close()


class PostgresClient:
    """Arrays go as text that the server splits: less work for the client, and for the server, than an array. They are
    sorted, or two transactions might wait for each other.
    """

    complete = True
    INSERT = r"""INSERT INTO words (word) SELECT unnest(string_to_array(%b, E'\n'))
        ON CONFLICT DO NOTHING RETURNING word, id"""
    SELECT = r"SELECT word, id FROM words WHERE word = ANY (string_to_array(%b, E'\n'))"

    def __init__(self, port: int) -> None:
        import psycopg

        self.connection = psycopg.connect(
            f"host=127.0.0.1 port={port} user={POSTGRES_USER} dbname=postgres", autocommit=True, prepare_threshold=0
        )
        self.cursor = self.connection.cursor(binary=True)

    def insert(self, words: list[str]) -> list[int]:
        distinct = sorted(set(words))
        with self.connection.transaction():
            ids = self.query(self.INSERT, distinct)
            ids |= self.query(self.SELECT, [word for word in distinct if word not in ids])
        return [ids[word] for word in words]

    def query(self, statement: str, words: Sequence[str]) -> dict[str, int]:
        if not words:
            return {}
        return dict(self.cursor.execute(statement, ["\n".join(words)]).fetchall())

    def create(self) -> None:
        assert self.scalar("SHOW synchronous_commit") == self.scalar("SHOW fsync") == "on"
        self.cursor.execute(
            "CREATE TABLE IF NOT EXISTS words (word text PRIMARY KEY, id bigint GENERATED ALWAYS AS IDENTITY)"
        )

    def scalar(self, statement: str) -> Any:
        row = self.cursor.execute(statement).fetchone()
        assert row is not None
        return row[0]

    def stored(self) -> int:
        return int(self.scalar("SELECT count(*) FROM words"))

    def close(self) -> None:
        self.connection.close()


class PostgresInsertOnlyClient(PostgresClient):
    complete = False

    def insert(self, words: list[str]) -> list[int]:
        ids = self.query(self.INSERT, sorted(set(words)))
        # Once, also if the batch has the word twice: so a word that gets two ids is noticed.
        return [ids.pop(word, 0) for word in words]


class PostgresReadFirstClient(PostgresClient):
    """Each statement is a transaction of its own: words are never deleted."""

    def insert(self, words: list[str]) -> list[int]:
        left = set(words)
        ids = self.query(self.SELECT, list(left))
        while left := left.difference(ids):
            ids |= self.query(self.INSERT, sorted(left))
            # Others may have inserted some in between.
            ids |= self.query(self.SELECT, list(left.difference(ids)))
        return [ids[word] for word in words]


class RedisClient:
    complete = True

    def __init__(self, port: int) -> None:
        import redis as redis_py

        self.redis = redis_py.Redis(port=port)
        self.script = self.redis.script_load(REDIS_SCRIPT)

    def insert(self, words: list[str]) -> list[int]:
        ids: list[int] = self.redis.evalsha(self.script, len(words), *words)
        return ids

    def stored(self) -> int:
        assert self.redis.config_get("appendfsync") == {"appendfsync": "always"}
        assert int(self.redis.get(REDIS_COUNTER)) == self.redis.dbsize() - 1
        return int(self.redis.dbsize()) - 1

    def close(self) -> None:
        self.redis.close()


class RedisPythonClient(RedisClient):
    """In a client process, which has not imported redis-py yet."""

    def __init__(self, port: int) -> None:
        if "redis" not in sys.modules:
            sys.modules["hiredis"] = None  # type: ignore[assignment]  # redis-py does without.
        super().__init__(port)


# --- servers


@dataclass(frozen=True)
class Subject:
    """What is measured: a server and a client of it."""

    name: str
    serve: Callable[[Path], AbstractContextManager[Running]]
    """Starts the server, or starts it again, with its data in a folder."""
    client: type[Client]
    check: Callable[[], object] = lambda: None
    """Raises NotInstalled."""


@contextmanager
def serve_stelae(folder: Path) -> Iterator[Running]:
    Warehouse(folder).create_table(WORDS)
    with tablet_server(folder) as server:
        yield server


@contextmanager
def serve_postgres(folder: Path) -> Iterator[Running]:
    with postgres(folder) as server:
        with closing(PostgresClient(server.port)) as client:
            client.create()
        yield server


def check_postgres() -> None:
    postgres_programs()
    check_packages("psycopg")


def check_redis() -> None:
    redis_program()
    check_packages("redis", "hiredis")


def check_packages(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise NotInstalled(f"{name} is not installed: pip install '.[bench]'")


OURS = Subject("Stelae", serve_stelae, StelaeClient)
POSTGRES = Subject("PostgreSQL", serve_postgres, PostgresClient, check_postgres)
POSTGRES_INSERT = Subject("PostgreSQL, insert only", serve_postgres, PostgresInsertOnlyClient, check_postgres)
POSTGRES_READ = Subject("PostgreSQL, read first", serve_postgres, PostgresReadFirstClient, check_postgres)
REDIS = Subject("Redis", redis, RedisClient, check_redis)
REDIS_PYTHON = Subject("Redis, without hiredis", redis, RedisPythonClient, check_redis)
PEERS = {POSTGRES: ">= 5", POSTGRES_INSERT: "", POSTGRES_READ: "", REDIS: ">= 1", REDIS_PYTHON: ""}


# --- batches


@dataclass(frozen=True)
class Work:
    """What a client process did."""

    started: float
    ended: float
    cpu_s: float


class BatchRuns:
    """Runs of the same words through one server after the other."""

    def __init__(self, folder: Path, words: list[str], stream: Stream) -> None:
        self.folder = folder
        self.words = words
        self.stream = stream
        self.numbers = itertools.count()
        self.cpu_us: dict[Subject, list[float]] = {}
        """Processor time a word of server and clients, a run."""
        (folder / "words").write_text("\n".join(words))
        np.save(folder / "stream.npy", stream)

    def run(self, subject: Subject) -> float:
        """Words a second."""
        data = self.folder / f"data-{next(self.numbers)}"
        with subject.serve(data) as server:
            before = server.cpu_s()
            works = self.send(subject, server.port)
            seconds = max(work.ended for work in works) - min(work.started for work in works)
            server_us, client_us = (
                cpu_s / len(self.stream) * 1e6 for cpu_s in (server.cpu_s() - before, sum(work.cpu_s for work in works))
            )
            self.cpu_us.setdefault(subject, []).append(server_us + client_us)
            print(f"  processor time a word: server {server_us:.2f} us, clients {client_us:.2f} us")
            known = self.check_ids(subject)
            server.crash()
        with subject.serve(data) as server, closing(subject.client(server.port)) as client:
            self.check_again(subject, client, known)
        shutil.rmtree(data)
        return len(self.stream) / seconds

    def send(self, subject: Subject, port: int) -> list[Work]:
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(CLIENTS)
        with ProcessPoolExecutor(CLIENTS, context, initializer=join_others, initargs=(barrier,)) as pool:
            futures = [pool.submit(send_share, subject.client, port, self.folder, number) for number in range(CLIENTS)]
            return [future.result() for future in futures]

    def check_ids(self, subject: Subject) -> Ids:
        """One id a word at all times, and no two words the same. The ids by word."""
        answers = np.zeros((len(self.stream) // BATCH, BATCH), np.int64)
        for number in range(CLIENTS):
            answers[number::CLIENTS] = np.load(ids_path(self.folder, number))
        ids = answers.ravel()
        told = ids > 0
        known = np.zeros(len(self.words), np.int64)
        known[self.stream[told]] = ids[told]
        assert np.array_equal(known[self.stream[told]], ids[told]), f"{subject.name}: a word has two ids"
        assert len(np.unique(known[known > 0])) == len(self.words), (
            f"{subject.name}: not each word has an id of its own"
        )
        assert told.sum() == (len(ids) if subject.client.complete else len(self.words)), f"{subject.name}: ids missing"
        return known

    def check_again(self, subject: Subject, client: Client, known: Ids) -> None:
        """After a crash the words have the ids that they had before."""
        for positions in self.stream.reshape(-1, BATCH)[-ASKED_AGAIN:]:
            expected = known[positions].tolist() if subject.client.complete else [0] * BATCH
            again = client.insert([self.words[position] for position in positions])
            assert again == expected, f"{subject.name}: other ids after a crash"
        assert client.stored() in (None, len(self.words)), f"{subject.name}: {client.stored()} words"


BARRIER: Barrier
"""Of a client process: where it waits for the others."""


def join_others(barrier: Barrier) -> None:
    global BARRIER
    BARRIER = barrier


def send_share(client: type[Client], port: int, folder: Path, number: int) -> Work:
    """Send every CLIENTS-th batch, in a process of its own; the ids go to a file."""
    words = (folder / "words").read_text().split("\n")
    batches = np.load(folder / "stream.npy").reshape(-1, BATCH)[number::CLIENTS].tolist()
    batches = [[words[position] for position in batch] for batch in batches]
    gc.collect()
    gc.disable()
    with closing(client(port)) as connection:
        BARRIER.wait(START_TIMEOUT_S)
        started, cpu_started = time.perf_counter(), time.process_time()
        ids = [connection.insert(batch) for batch in batches]
        done = Work(started, time.perf_counter(), time.process_time() - cpu_started)
    np.save(ids_path(folder, number), np.array(ids, np.int64))
    return done


def ids_path(folder: Path, number: int) -> Path:
    return folder / f"ids-{number}.npy"


def measure_batches(folder: Path, words: int, rounds: int) -> list[Ratio]:
    peers = {}
    for peer, target in PEERS.items():
        try:
            peer.check()
            peers[peer] = target
        except NotInstalled as error:
            print(f"left out: {peer.name}. {error}")
    stream = make_stream(words, repeats=9 * words, seed=1)
    runs = BatchRuns(folder, make_words(words, seed=1), stream)
    rates = in_turn(rounds, {subject.name: partial(runs.run, subject) for subject in (OURS, *peers)})
    rate = {name: median(values) for name, values in rates.items()}
    cpu_us = {subject: median(values) for subject, values in runs.cpu_us.items()}
    return [
        *(Ratio(peer.name, rate[OURS.name], rate[peer.name], "words/s", target) for peer, target in peers.items()),
        *(Ratio(f"CPU time; {peer.name}", cpu_us[OURS], cpu_us[peer], "us/word", "") for peer in peers),
    ]


# --- single words


def measure_singles(folder: Path, seconds: int, rounds: int) -> list[Ratio]:
    """New words, one a request, against durable appends in a row."""
    if shutil.which("wrk") is None:
        print("left out: single words. wrk is not installed: sudo apt-get install -y --no-install-recommends wrk")
        return []
    # More than can be sent, so that all are new.
    words = iter(make_words(60_000 * seconds * (rounds + 1), seed=2))
    sent: list[str] = []
    cpu_us = []

    with serve_stelae(folder / "singles") as server:

        def send(seconds: int = seconds) -> float:
            lines = list(itertools.islice(words, 60_000 * seconds))
            bodies = folder / "bodies"
            bodies.write_text("".join(f'{{"keys":["{word}"]}}\n' for word in lines))
            before = server.cpu_s()
            result = server.wrk(bodies, seconds, CONNECTIONS, post=INSERT_PATH)
            cpu_us.append((server.cpu_s() - before) / result.requests * 1e6)
            assert result.failed == 0, result
            assert result.requests < len(lines), "all words were used up"
            sent.extend(lines[: result.requests])
            return result.requests_per_s

        send(1)
        rates = in_turn(rounds, {"single words": send, "fdatasync": lambda: fsync_rate(folder, seconds)})
        check_singles(server.port, sent, unfinished=CONNECTIONS * (rounds + 1))
    return [
        Ratio(
            f"single words, {CONNECTIONS} connections / fdatasync",
            median(rates["single words"]),
            median(rates["fdatasync"]),
            "1/s",
            ">= 5",
            note=f"a single word takes {median(cpu_us):.0f} us of the server's processor time",
        )
    ]


def fsync_rate(folder: Path, seconds: int) -> float:
    """Appends a second to a file, each durable before the next."""
    record = b"\0" * RECORD_BYTES
    path = folder / "appended"
    count = 0
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            file.write(record)
            os.fdatasync(file.fileno())
            count += 1
    path.unlink()
    return count / spent


def check_singles(port: int, words: list[str], unfinished: int) -> None:
    """All have ids, save those that were on the way when the last moment came."""
    inserted, ids = 0, set()
    with closing(StelaeClient(port)) as client:
        for batch in batched(words, BATCH):
            answer = client.ask(batch)
            inserted += sum(answer["inserted"])
            ids.update(row["id"] for row in answer["rows"])
    assert inserted <= unfinished, f"{inserted} words were answered and have no id"
    assert len(ids) == len(words), "two words have the same id"


def batched(words: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(words), size):
        yield words[first : first + size]


def main() -> None:
    quick = quick_mode(__doc__)
    words, rounds = (100_000, 2) if quick else (1_000_000, 1)
    with disk_folder() as folder:
        ratios = measure_batches(folder, words, rounds)
        ratios += measure_singles(folder, seconds=2 if quick else 5, rounds=3)
    show(
        f"Insert if not exists, durable: {words:,} new and {9 * words:,} repeated words, batches of {BATCH:,} from "
        f"{CLIENTS} processes",
        ratios,
    )


if __name__ == "__main__":
    main()
