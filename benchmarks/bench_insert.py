"""Insert if not exists: words to ids over the network, each id durable before it is answered.

    python -m benchmarks.bench_insert [--quick]

A million words, each of them once and nine million more by Zipf's law, shuffled, in batches of 1,000 from 4 client
processes; every client ends with the list of ids of its batch. Quick mode has a tenth of it. All servers start empty,
on the same disk, and take the stream in pieces, in turn. Rates are of the whole stream: later pieces have fewer new
words.

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
import itertools
import multiprocessing
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.common import WRK_MISSING, Ratio, in_turn, left_out, median, quick_mode, show
from benchmarks.peers import (
    POSTGRES_USER,
    NotInstalled,
    check_postgres,
    check_redis,
    disk_folder,
    postgres,
    redis,
)
from benchmarks.servers import Running, tablet_server
from benchmarks.words import Stream, make_stream, make_words
from stelae.snapshot.warehouse import Warehouse

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
        assert self.redis.get(REDIS_COUNTER) == b"%d" % (self.redis.dbsize() - 1)
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


OURS = Subject("Stelae", serve_stelae, StelaeClient)
POSTGRES = Subject("PostgreSQL", serve_postgres, PostgresClient, check_postgres)
POSTGRES_INSERT = Subject("PostgreSQL, insert only", serve_postgres, PostgresInsertOnlyClient, check_postgres)
POSTGRES_READ = Subject("PostgreSQL, read first", serve_postgres, PostgresReadFirstClient, check_postgres)
REDIS = Subject("Redis", redis, RedisClient, partial(check_redis, "hiredis"))
REDIS_PYTHON = Subject("Redis, without hiredis", redis, RedisPythonClient, check_redis)
PEERS = {POSTGRES: ">= 5", POSTGRES_INSERT: "", POSTGRES_READ: "", REDIS: ">= 1", REDIS_PYTHON: ""}


# --- batches


@dataclass(frozen=True)
class Work:
    """What a client process did with its share of a piece."""

    started: float
    ended: float
    cpu_s: float
    ids: Ids
    """By batch and word."""


class Race:
    """A subject, started and empty, that takes the stream piece by piece, in turn with others."""

    def __init__(self, subject: Subject, folder: Path, words: list[str], stack: ExitStack) -> None:
        self.subject = subject
        self.words = words
        self.data = folder / subject.name
        self.server = stack.enter_context(subject.serve(self.data))
        context = multiprocessing.get_context("spawn")
        self.pool = stack.enter_context(
            ProcessPoolExecutor(CLIENTS, context, prepare_process, (context.Barrier(CLIENTS), folder))
        )
        self.sent: list[Stream] = []
        self.ids: list[Ids] = []
        self.seconds = 0.0
        self.server_cpu_s = 0.0
        self.client_cpu_s = 0.0

    def send(self, pieces: Iterator[Stream]) -> float:
        """Words a second of the next piece."""
        piece = next(pieces)
        before = self.server.cpu_s()
        futures = [
            self.pool.submit(send_share, self.subject.client, self.server.port, share)
            for share in (piece[number::CLIENTS] for number in range(CLIENTS))
        ]
        works = [future.result() for future in futures]
        seconds = max(work.ended for work in works) - min(work.started for work in works)
        self.server_cpu_s += self.server.cpu_s() - before
        self.client_cpu_s += sum(work.cpu_s for work in works)
        self.seconds += seconds
        self.sent += [piece[number::CLIENTS] for number in range(CLIENTS)]
        self.ids += [work.ids for work in works]
        return piece.size / seconds

    def per_second(self) -> float:
        return sum(piece.size for piece in self.sent) / self.seconds

    def cpu_us(self) -> float:
        """Processor time a word of server and clients."""
        return (self.server_cpu_s + self.client_cpu_s) / sum(piece.size for piece in self.sent) * 1e6

    def check(self) -> None:
        """All words have ids, no two the same one, none two; and the same after a crash."""
        name, complete = self.subject.name, self.subject.client.complete
        sent = np.concatenate([piece.ravel() for piece in self.sent])
        ids = np.concatenate([ids.ravel() for ids in self.ids])
        told = ids > 0
        known = np.zeros(len(self.words), np.int64)
        known[sent[told]] = ids[told]
        assert np.array_equal(known[sent[told]], ids[told]), f"{name}: a word has two ids"
        assert known.all(), f"{name}: words without an id"
        assert len(np.unique(known)) == len(known), f"{name}: two words have the same id"
        assert told.sum() == (len(ids) if complete else len(known)), f"{name}: ids are missing"
        self.server.crash()
        with self.subject.serve(self.data) as server, closing(self.subject.client(server.port)) as client:
            for positions in self.sent[-1][-ASKED_AGAIN:]:
                again = client.insert([self.words[position] for position in positions])
                assert again == (known[positions].tolist() if complete else [0] * BATCH), f"{name}: other ids"
            assert client.stored() in (None, len(known)), f"{name}: {client.stored()} words"


BARRIER: Barrier
"""Of a client process: where it waits for the others."""
CLIENT_WORDS: list[str]


def prepare_process(barrier: Barrier, folder: Path) -> None:
    global BARRIER, CLIENT_WORDS
    BARRIER = barrier
    CLIENT_WORDS = words_path(folder).read_text().split("\n")


def words_path(folder: Path) -> Path:
    return folder / "words"


def send_share(client: type[Client], port: int, share: Stream) -> Work:
    """Send batches, in a client process."""
    batches = [[CLIENT_WORDS[position] for position in batch] for batch in share.tolist()]
    gc.collect()
    gc.disable()
    with closing(client(port)) as connection:
        BARRIER.wait(START_TIMEOUT_S)
        started, cpu_started = time.perf_counter(), time.process_time()
        ids = [connection.insert(batch) for batch in batches]
        ended, cpu_s = time.perf_counter(), time.process_time() - cpu_started
    return Work(started, ended, cpu_s, np.array(ids, np.int64))


def measure_batches(folder: Path, count: int, pieces: int) -> list[Ratio]:
    words = make_words(count, seed=1)
    words_path(folder).write_text("\n".join(words))
    batches = make_stream(count, repeats=9 * count, seed=1).reshape(pieces, -1, BATCH)
    with ExitStack() as stack:
        races = {}
        for subject in (OURS, *PEERS):
            try:
                subject.check()
            except NotInstalled as error:
                left_out(subject.name, str(error))
            else:
                races[subject] = Race(subject, folder, words, stack)
        in_turn(pieces, {subject.name: partial(race.send, iter(batches)) for subject, race in races.items()})
        for subject, race in races.items():
            server_us, client_us = (cpu_s / batches.size * 1e6 for cpu_s in (race.server_cpu_s, race.client_cpu_s))
            print(f"  {subject.name}: processor time a word: server {server_us:.2f} us, clients {client_us:.2f} us")
            race.check()
    ours = races.pop(OURS)
    return [
        *(Ratio(p.name, ours.per_second(), race.per_second(), "words/s", PEERS[p]) for p, race in races.items()),
        *(Ratio(f"CPU time; {p.name}", ours.cpu_us(), race.cpu_us(), "us/word", "") for p, race in races.items()),
    ]


# --- single words


def measure_singles(folder: Path, seconds: int, rounds: int) -> list[Ratio]:
    """New words, one a request, against durable appends in a row."""
    if shutil.which("wrk") is None:
        left_out("single words", WRK_MISSING)
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
    inserted = 0
    ids: set[int] = set()
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
    words = 100_000 if quick else 1_000_000
    with disk_folder() as folder:
        ratios = measure_batches(folder, words, pieces=5 if quick else 10)
        ratios += measure_singles(folder, seconds=1 if quick else 2, rounds=5 if quick else 10)
    show(
        f"Insert if not exists, durable: {words:,} new and {9 * words:,} repeated words, batches of {BATCH:,} from "
        f"{CLIENTS} processes",
        ratios,
    )


if __name__ == "__main__":
    main()
