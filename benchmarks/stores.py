"""The stores that hold the people (benchmarks/people.py): each loaded as fast as it can be, with as much memory as it
wants, and nothing durable that does not have to be.

    with redis_store(folder, rows) as store:
        store.address, store.load_s, store.disk_bytes(), store.memory_bytes(), store.cpu_s()
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import processes
from benchmarks.peers import POSTGRES_USER, check_packages, check_postgres, check_redis, postgres, redis
from benchmarks.people import chunks, create_people, make_people
from benchmarks.servers import tablet_server
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.snapshot.warehouse import Table

GIB = 2**30
REDIS_SETTINGS = {"appendonly": "no"}
POSTGRES_SETTINGS = {"synchronous_commit": "off", "wal_level": "minimal", "max_wal_senders": "0"}
REDIS_PAIRS = 500
"""Of one MSET while loading."""
REDIS_ROW_BYTES = 300
"""What a row takes in Redis, at most."""
LMDB_MAP_BYTES = 64 * GIB
"""Room in the address space: the file has what is written."""


@dataclass(frozen=True)
class Store:
    name: str
    address: str
    """For its clients: benchmarks/readers.py."""
    load_s: float
    disk_bytes: Callable[[], int]
    pid: int | None = None
    """Of the server; None when there is none."""
    processes: int = 0
    """Of the server when it does nothing in the background; 0 if it never does."""

    def cpu_s(self) -> float:
        """Processor time of the server and its children."""
        return 0.0 if self.pid is None else processes.cpu_s(self.pid)

    def settle(self) -> None:
        """Wait until what the server makes in the background is made."""
        if self.pid is not None and self.processes:
            processes.settle(self.pid, self.processes)

    def memory_bytes(self) -> int:
        return 0 if self.pid is None else processes.memory_bytes(self.pid)


def people_table(warehouse: Path, name: str, options: Mapping[str, str], rows: int) -> tuple[Table, float]:
    """The table and the seconds that it took to make."""
    started = time.perf_counter()
    table = create_people(warehouse, name, options)
    make_people(table, rows)
    return table, time.perf_counter() - started


@contextmanager
def stelae_store(warehouse: Path, table: Table, *arguments: str, load_s: float = 0.0) -> Iterator[Store]:
    """A tablet server of one table. `load_s`: what it took to make it. Bytes on the disk are those of the warehouse,
    with what the server has made beside it.
    """
    name = str(table.name)
    with tablet_server(warehouse, "--table", name, *arguments) as server:
        yield Store(
            "Stelae",
            f"http://127.0.0.1:{server.port} {name}",
            load_s,
            lambda: processes.file_bytes(warehouse),
            server.process.pid,
            len(processes.tree(server.process.pid)),
        )


def table_bytes(table: Table) -> int:
    return table.snapshots.read().totals.bytes


@contextmanager
def redis_store(folder: Path, rows: int) -> Iterator[Store]:
    """Each row is a msgpack map under its key as text."""
    check_redis("msgpack")
    import msgpack

    free = free_bytes()
    if free < rows * REDIS_ROW_BYTES:
        raise SystemExit(
            f"Redis needs some {rows * REDIS_ROW_BYTES / GIB:.1f} GiB, there are {free / GIB:.1f} GiB left"
        )
    with redis(folder, **REDIS_SETTINGS) as server:
        started = time.perf_counter()
        pack = msgpack.Packer().pack
        with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as answers:
            for chunk in chunks(rows):
                sent = 0
                values = pairs(chunk, pack)
                for first in range(0, len(values), REDIS_PAIRS):
                    part = values[first : first + REDIS_PAIRS]
                    connection.sendall(b"*%d\r\n$4\r\nMSET\r\n" % (1 + 2 * len(part)) + b"".join(part))
                    sent += 1
                for _ in range(sent):
                    answer = answers.readline()
                    assert answer == b"+OK\r\n", answer
        seconds = time.perf_counter() - started
        yield Store("Redis", str(server.port), seconds, lambda: 0, server.process.pid)


def pairs(chunk: pa.Table, pack: Callable[[Any], bytes]) -> list[bytes]:
    """Key and value of each row, as Redis reads them."""
    numbers = chunk.set_column(5, "updated", chunk["updated"].cast(pa.int64()))
    columns = [numbers[name].to_numpy(zero_copy_only=False).tolist() for name in numbers.column_names]
    made = []
    for key, name, city, age, score, updated in zip(*columns, strict=True):
        row = pack({"name": name, "city": city, "age": age, "score": score, "updated": updated})
        text = b"%d" % key
        made.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(text), text, len(row), row))
    return made


@contextmanager
def postgres_store(folder: Path, rows: int, shared_buffers: str) -> Iterator[Store]:
    """A table with a primary key, vacuumed."""
    check_postgres()
    import psycopg
    import pyarrow.csv

    options = pyarrow.csv.WriteOptions(include_header=False)
    with postgres(folder, shared_buffers=shared_buffers, **POSTGRES_SETTINGS) as server:
        started = time.perf_counter()
        address = f"host=127.0.0.1 port={server.port} user={POSTGRES_USER} dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "CREATE UNLOGGED TABLE people (user_id bigint NOT NULL, name text, city text, age int, "
                "score double precision, updated timestamp)"
            )
            with connection.cursor().copy("COPY people FROM STDIN (FORMAT csv)") as copy:
                for chunk in chunks(rows):
                    sink = pa.BufferOutputStream()
                    pyarrow.csv.write_csv(chunk, sink, options)
                    copy.write(memoryview(sink.getvalue()))
            connection.execute("ALTER TABLE people ADD PRIMARY KEY (user_id)")
            connection.execute("VACUUM ANALYZE people")
            size = connection.execute("SELECT pg_total_relation_size('people')").fetchone()
            assert size is not None
        seconds = time.perf_counter() - started
        yield Store("PostgreSQL", str(server.port), seconds, lambda: int(size[0]), server.process.pid)


def lmdb_store(folder: Path, warehouse: Path, table: Table, rows: int) -> Store:
    """Key bytes and row bytes of the table, in key order."""
    check_packages("lmdb")
    import lmdb

    schema = table.schema
    keys, values = KeyCodec(schema.key_columns), RowCodec(schema)
    started = time.perf_counter()
    with closing(lmdb.open(str(folder), map_size=LMDB_MAP_BYTES, sync=False, metasync=False, writemap=True)) as store:
        for chunk in chunks(rows):
            arrays = {name: chunk[name].combine_chunks() for name in chunk.column_names}
            encoded = zip(
                keys.encode_list([arrays[column.name] for column in schema.key_columns]),
                values.encode_list([arrays[column.name] for column in schema.value_columns], rows=len(chunk)),
                strict=True,
            )
            with store.begin(write=True) as transaction:
                transaction.cursor().putmulti(encoded, append=True)
    seconds = time.perf_counter() - started
    return Store("LMDB", f"{folder} {warehouse} {table.name}", seconds, lambda: processes.file_bytes(folder))


def free_bytes() -> int:
    """Memory that can be had."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
