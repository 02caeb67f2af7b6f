"""Clients that look up batches of people (benchmarks/people.py), each in a process of its own.

    with ClientProcess(StelaeArrow, "http://127.0.0.1:8000") as client:
        client.prepare(file_of_ids, batch=1000)
        client.start(seconds)
        client.result()             keys, seconds, processor time of this client

A batch is at hand in the form that its client takes: an Arrow table for one, a list of integers for another. What is
measured begins there and ends with rows in the form that the client gives: a typed Arrow table, dicts, tuples, or for
stores in process the stored bytes. A process of its own also makes room for two forms of one client: redis-py decides
by its imports which parser it has.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks import processes
from benchmarks.peers import POSTGRES_USER, check_packages

COLUMNS = ("name", "city", "age", "score", "updated")
MOST_BATCHES = 20_000
"""Of those that are prepared: small batches come around again."""
STOP_TIMEOUT_S = 30

Ids: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = tuple[Any, ...] | None
"""COLUMNS of a row as Python values, `updated` in microseconds; None when there is no row."""


class Reader(Protocol):
    """A client, connected."""

    PACKAGES: Sequence[str]
    """What must be installed."""

    def __init__(self, address: str) -> None: ...

    def keys(self, ids: Ids) -> Any:
        """A batch, as this client takes it. Not measured."""

    def look_up(self, keys: Any) -> Any:
        """Ask for a batch. This is what is measured."""

    def rows(self, answer: Any, ids: Ids) -> list[Values]:
        """The rows of an answer, aligned with the ids: to see that it is right."""


class StelaeArrow:
    """Arrow in, Arrow out. The address is `URL TABLE`."""

    PACKAGES: Sequence[str] = ()

    def __init__(self, address: str) -> None:
        import stelae

        url, self.table = address.split()
        # A batch is one request, however long it is.
        self.client = stelae.Client(url, batch_size=100_000)

    def keys(self, ids: Ids) -> Any:
        import pyarrow as pa

        return pa.table({"user_id": ids})

    def look_up(self, keys: Any) -> Any:
        return self.client.lookup_many(self.table, keys)

    def rows(self, answer: Any, ids: Ids) -> list[Values]:
        import pyarrow as pa

        assert isinstance(answer, pa.Table), f"an Arrow table is answered by {type(answer)}"
        assert len(answer) == len(ids)
        return arrow_values(answer)


class StelaeJson(StelaeArrow):
    """Integers in, dicts out: JSON on the wire."""

    def keys(self, ids: Ids) -> Any:
        return ids.tolist()

    def rows(self, answer: Any, ids: Ids) -> list[Values]:  # noqa: ARG002
        import pyarrow as pa

        types = [("age", pa.int32()), ("updated", pa.timestamp("us"))]
        columns = {name: [row and row[name] for row in answer] for name in COLUMNS}
        given = {name: pa.array(columns[name], dict(types).get(name)) for name in COLUMNS}
        return arrow_values(pa.table(given))


class Redis:
    """MGET of msgpack maps, which become dicts. The address is a port."""

    PACKAGES: Sequence[str] = ("redis", "hiredis", "msgpack")

    def __init__(self, address: str) -> None:
        import msgpack
        import redis

        self.redis = redis.Redis(port=int(address))
        self.unpack = msgpack.unpackb

    def keys(self, ids: Ids) -> Any:
        return ids.tolist()

    def look_up(self, keys: Any) -> Any:
        unpack = self.unpack
        return [None if row is None else unpack(row) for row in self.redis.mget(keys)]

    def rows(self, answer: Any, ids: Ids) -> list[Values]:  # noqa: ARG002
        return [row and tuple(row[name] for name in COLUMNS) for row in answer]


class RedisOwnParser(Redis):
    """Without hiredis. In a process that has not imported redis-py yet."""

    PACKAGES: Sequence[str] = ("redis", "msgpack")

    def __init__(self, address: str) -> None:
        assert "redis" not in sys.modules
        sys.modules["hiredis"] = None  # type: ignore[assignment]  # redis-py does without.
        super().__init__(address)


class Postgres:
    """A prepared statement with an array of keys, results in binary, as tuples. The address is a port."""

    PACKAGES: Sequence[str] = ("psycopg",)
    SELECT = "SELECT user_id, name, city, age, score, updated FROM people WHERE user_id = ANY (%t::bigint[])"

    def __init__(self, address: str) -> None:
        import psycopg

        connection = psycopg.connect(
            f"host=127.0.0.1 port={address} user={POSTGRES_USER} dbname=postgres", autocommit=True, prepare_threshold=0
        )
        self.cursor = connection.cursor(binary=True)

    def keys(self, ids: Ids) -> Any:
        return ids.tolist()

    def look_up(self, keys: Any) -> Any:
        # Text, which costs this client less than an array in binary. Rows come in no order.
        found = self.cursor.execute(self.SELECT, ["{" + ",".join(map(str, keys)) + "}"]).fetchall()
        rows = {row[0]: row for row in found}
        return [rows.get(key) for key in keys]

    def rows(self, answer: Any, ids: Ids) -> list[Values]:  # noqa: ARG002
        return [row and (*row[1:5], microseconds(row[5])) for row in answer]


class RocksDB:
    """RocksDB in this process, over the files of the table: multi-get of key bytes that are at hand by bucket; rows
    stay bytes. The address is `WAREHOUSE TABLE CACHE_BYTES`.
    """

    PACKAGES: Sequence[str] = ("rocksdict",)

    def __init__(self, address: str) -> None:
        from stelae.read.open_snapshot import open_snapshot
        from stelae.rocksdb.block_cache import BlockCache
        from stelae.snapshot.warehouse import Warehouse

        warehouse, name, cache_bytes = address.split()
        table = Warehouse(warehouse).table(name)
        self.folder = tempfile.TemporaryDirectory(prefix="tablets-", dir=warehouse)
        folder, cache = Path(self.folder.name), BlockCache(int(cache_bytes))
        self.reader = open_snapshot(table, table.snapshots.read(), folder, cache)
        [partition] = self.reader.partitions.values()
        self.tablets = [tablet for tablet in partition.tablets if tablet is not None]

    def keys(self, ids: Ids) -> Any:
        import pyarrow as pa

        table = self.reader.table
        encoded = table.keys.encode_list([pa.array(ids)])
        buckets = table.buckets.bucket_batch([pa.array(ids)], len(self.tablets)).tolist()
        by_bucket: list[list[bytes]] = [[] for _ in self.tablets]
        for bucket, key in zip(buckets, encoded, strict=True):
            by_bucket[bucket].append(key)
        return [(tablet.multi_get, keys) for tablet, keys in zip(self.tablets, by_bucket, strict=True) if keys]

    def look_up(self, keys: Any) -> Any:
        return [multi_get(some) for multi_get, some in keys]

    def rows(self, answer: Any, ids: Ids) -> list[Values]:
        found: dict[bytes, bytes | None] = {}
        for (_, keys), rows in zip(self.keys(ids), answer, strict=True):
            found |= dict(zip(keys, rows, strict=True))
        return stored_values(self.reader.table, found, ids)


class Lmdb:
    """LMDB in this process: getmulti of key bytes; rows are the same bytes as in the table's files. The address is
    `FOLDER WAREHOUSE TABLE`.
    """

    PACKAGES: Sequence[str] = ("lmdb",)

    def __init__(self, address: str) -> None:
        import lmdb

        from stelae.read.table_reader import TableReader
        from stelae.snapshot.warehouse import Warehouse

        folder, warehouse, name = address.split()
        table = Warehouse(warehouse).table(name)
        self.table = TableReader(table.schema, table.schemas)
        self.environment = lmdb.open(
            folder, readonly=True, lock=False, map_size=Path(folder, "data.mdb").stat().st_size
        )
        self.transaction = self.environment.begin()
        self.cursor = self.transaction.cursor()

    def keys(self, ids: Ids) -> Any:
        import pyarrow as pa

        return self.table.keys.encode_list([pa.array(ids)])

    def look_up(self, keys: Any) -> Any:
        return self.cursor.getmulti(keys)

    def rows(self, answer: Any, ids: Ids) -> list[Values]:
        return stored_values(self.table, dict(answer), ids)


def arrow_values(table: Any) -> list[Values]:
    """Of the columns of a table; a row whose name is null is no row."""
    import pyarrow as pa

    columns = [table[name] for name in COLUMNS[:-1]]
    columns.append(table["updated"].cast(pa.int64()))
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [None if row[0] is None else row for row in rows]


def stored_values(table: Any, found: dict[bytes, bytes | None], ids: Ids) -> list[Values]:
    """Of row bytes by key bytes."""
    import pyarrow as pa

    rows = pa.array([found.get(key) for key in table.keys.encode_list([pa.array(ids)])], pa.binary())
    return arrow_values(pa.table(dict(zip(COLUMNS, table.rows.decode_batch(rows, COLUMNS), strict=True))))


def microseconds(moment: Any) -> int:
    import datetime as dt

    return int((moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))  # noqa: DTZ001


# Processes


@dataclass(frozen=True)
class Work:
    """What a client did."""

    keys: int
    seconds: float
    cpu_s: float


class ClientProcess:
    """A client in a process of its own."""

    def __init__(self, reader: type[Reader], address: str) -> None:
        check_packages(*reader.PACKAGES)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, reader, address), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.result()
        except BaseException:
            self._process.kill()
            raise

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pipe.close()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()

    def prepare(self, ids: Path, batch: int) -> None:
        """Get ready to look up the ids of a file, so many at a time."""
        self._ask("prepare", ids, batch)

    def check(self, ids: Ids) -> list[Values]:
        """The rows of one batch."""
        rows: list[Values] = self._ask("check", ids)
        return rows

    def warm(self) -> None:
        """Look up all batches once."""
        self._ask("warm")

    def start(self, seconds: float) -> None:
        """Look up one batch after the other; `result` tells what came of it."""
        self._pipe.send(("run", (seconds,)))

    def result(self) -> Any:
        try:
            done, answer = self._pipe.recv()
        except EOFError:
            raise SystemExit("a client ended without an answer") from None
        if not done:
            raise SystemExit(f"a client failed:\n{answer}")
        return answer

    def memory_bytes(self) -> int:
        return processes.memory_bytes(self._process.pid or 0)

    def _ask(self, call: str, *arguments: Any) -> Any:
        self._pipe.send((call, arguments))
        return self.result()


def serve(pipe: Connection, kind: type[Reader], address: str) -> None:
    """Answer the calls of a ClientProcess."""
    try:
        reader = kind(address)
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        return
    pipe.send((True, None))
    session = Session(reader)
    while True:
        try:
            call, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(session, call)(*arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))


class Session:
    """The calls of a ClientProcess."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.look_up: Callable[[Any], Any] = reader.look_up
        self.batches: list[Any] = []
        self.size = 0
        self.next = 0

    def prepare(self, ids: Path, batch: int) -> None:
        self.batches = []
        given = np.load(ids, mmap_mode="r")
        count = min(len(given) // batch, MOST_BATCHES)
        self.batches = [self.reader.keys(np.array(given[i * batch : (i + 1) * batch])) for i in range(count)]
        self.size, self.next = batch, 0
        gc.collect()

    def check(self, ids: Ids) -> list[Values]:
        return self.reader.rows(self.look_up(self.reader.keys(ids)), ids)

    def warm(self) -> None:
        for keys in self.batches:
            self.look_up(keys)

    def run(self, seconds: float) -> Work:
        look_up, batches, count = self.look_up, self.batches, len(self.batches)
        first = at = self.next
        cpu_started, started = time.process_time(), time.perf_counter()
        ends = started + seconds
        while True:
            look_up(batches[at % count])
            at += 1
            if (now := time.perf_counter()) >= ends:
                break
        cpu_s = time.process_time() - cpu_started
        self.next = at % count
        return Work((at - first) * self.size, now - started, cpu_s)
