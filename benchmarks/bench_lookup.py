"""Batch lookups through Python clients: 10 million rows of a key and five typed columns, batches of 1 to 10,000 keys.

    python -m benchmarks.bench_lookup [--quick]

Quick mode has half a million rows. Every store holds the same rows, each client is a process of its own, and all take
turns. Measured are keys a second, and the processor time a key of client and server apart.

- Stelae: `Client.lookup_many` of an Arrow table, which answers with a typed Arrow table; and of a list of integers,
  which is JSON on the wire and answers with dicts.
- Redis: `MGET` of msgpack maps, which become dicts, through redis-py with its own parser and with hiredis.
- PostgreSQL: a prepared `WHERE user_id = ANY (...)` through psycopg, results in binary, tuples.
- RocksDB in process (rocksdict): multi-get over the very same files, key bytes at hand, rows stay bytes; and LMDB in
  process, with the same bytes. Nothing is sent, parsed or decoded there: these are ceilings.

Keys are drawn as YCSB does: uniformly, and by a scrambled Zipf distribution (0.99). Misses are asked for apart; they
lie between the keys that are there. All stores have memory for all rows: Stelae's files are uncompressed and read in
place, and it makes a hash index. Then the same without an index; and compressed, as a table is by default, with a block
cache that holds all of it, and with one that holds a small part.

Two clients at a time, and batches of 10,000: `stelae serve --workers 2` against Redis, which has one thread for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.common import Plot, Ratio, draw, facts, in_turn, left_out, listing, median, quick_mode, show
from benchmarks.distributions import ZIPF_THETA, scrambled_zipf, uniform
from benchmarks.peers import NotInstalled, disk_folder
from benchmarks.people import ids_of, missing_ids_of, rows_of
from benchmarks.readers import (
    ClientProcess,
    Lmdb,
    Postgres,
    Reader,
    Redis,
    RedisOwnParser,
    RocksDB,
    StelaeArrow,
    StelaeJson,
    arrow_values,
)
from benchmarks.stores import Store, lmdb_store, people_table, postgres_store, redis_store, stelae_store, table_bytes
from stelae.snapshot.warehouse import Table

TABLE = "bench.people"
TABLE_OPTIONS = {"bucket": "4", "file.compression": "none"}
"""What a user would choose who gives the table as much memory as Redis takes."""
COMPRESSED = "bench.compressed"
COMPRESSED_OPTIONS = {"bucket": "4", "file.compression": "lz4"}
"""What a table has by default; it can be larger than the block cache."""

NO_INDEX = ("--hash-index-bytes", "0")

BATCH_SIZES = (1, 10, 100, 1_000, 10_000)
BATCH = 1_000
LARGE_BATCH = 10_000
PARALLEL = 2
"""Clients at a time, and worker processes."""

ARROW, JSON = "Stelae, Arrow", "Stelae, JSON"
REDIS, REDIS_OWN = "Redis, hiredis", "Redis, redis-py's parser"
POSTGRES, ROCKSDB, LMDB = "PostgreSQL", "RocksDB in process", "LMDB in process"
READERS: Mapping[str, type[Reader]] = {
    ARROW: StelaeArrow,
    JSON: StelaeJson,
    REDIS_OWN: RedisOwnParser,
    REDIS: Redis,
    POSTGRES: Postgres,
    ROCKSDB: RocksDB,
    LMDB: Lmdb,
}
TARGETS = {REDIS_OWN: ">= 1.7", REDIS: ">= 0.6", ROCKSDB: ">= 0.6"}
"""Of Stelae with Arrow, uniform keys that are there, batches of BATCH."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int
    drawn: int
    """Keys of a workload; they come around again."""
    cache_bytes: int
    """More than the table takes."""
    small_cache_bytes: int
    shared_buffers: str
    rounds: int
    seconds: float


QUICK = Size(500_000, 200_000, 2**28, 4 * 2**20, "512MB", rounds=3, seconds=0.5)
FULL = Size(10_000_000, 1_000_000, 4 * 2**30, 64 * 2**20, "4GB", rounds=3, seconds=1)


@dataclass
class Figures:
    """What was measured of one subject, round by round."""

    keys: int = 0
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    rates: list[float] = field(default_factory=list)
    """Keys a second."""

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def key_us(self) -> float:
        """Time a key."""
        return 1e6 / self.rate

    @property
    def server_us(self) -> float:
        """Processor time of the server a key."""
        return self.server_cpu_s / self.keys * 1e6

    @property
    def client_us(self) -> float:
        return self.client_cpu_s / self.keys * 1e6

    @property
    def cpu_us(self) -> float:
        return self.server_us + self.client_us


@dataclass
class Subject:
    """A store and clients of it, which ask at the same time."""

    name: str
    store: Store
    clients: list[ClientProcess]

    def measure(self, seconds: float, figures: Figures | None = None) -> float:
        """Keys a second of all clients."""
        before = self.store.cpu_s()
        for client in self.clients:
            client.start(seconds)
        works = [client.result() for client in self.clients]
        rate = float(sum(work.keys / work.seconds for work in works))
        if figures is not None:
            figures.server_cpu_s += self.store.cpu_s() - before
            figures.client_cpu_s += sum(work.cpu_s for work in works)
            figures.keys += sum(work.keys for work in works)
            figures.rates.append(rate)
        return rate


class Workloads:
    """Keys to ask for, in files."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.folder = folder
        self.rows, self.count = size.rows, size.drawn

    def uniform(self) -> Path:
        return self._file("uniform", ids_of(uniform(self.rows, self.count, seed=1)))

    def zipf(self) -> Path:
        return self._file("zipf", ids_of(scrambled_zipf(self.rows, self.count, seed=2)))

    def misses(self) -> Path:
        return self._file("misses", missing_ids_of(uniform(self.rows, self.count, seed=3)))

    def _file(self, name: str, ids: np.ndarray) -> Path:
        path = self.folder / f"{name}.npy"
        if not path.exists():
            np.save(path, ids)
        return path


def measure(
    subjects: Sequence[Subject], ids: Path, batch: int, size: Size, *, warm: bool = False
) -> dict[str, Figures]:
    """Figures of all subjects, which take turns, by name. `warm`: each asks for all keys first."""
    print(f"{ids.stem}, batches of {batch:,}", flush=True)
    figures = {subject.name: Figures() for subject in subjects}
    for subject in subjects:
        for client in subject.clients:
            client.prepare(ids, batch)
        if warm:
            subject.clients[0].warm()
            subject.store.settle()
        subject.measure(size.seconds / 4)
    in_turn(size.rounds, {each.name: partial(each.measure, size.seconds, figures[each.name]) for each in subjects})
    return figures


def check(subject: Subject, rows: int) -> None:
    """Every client of a subject gives the right rows, and none for keys that are not there."""
    numbers = np.random.default_rng(4).choice(rows, 100, replace=False)
    ids = np.concatenate([ids_of(numbers), missing_ids_of(numbers)])
    wanted = [*arrow_values(rows_of(numbers)), *[None] * len(numbers)]
    for client in subject.clients:
        if client.check(ids) != wanted:
            raise SystemExit(f"{subject.name} gave other rows than it holds")


@contextmanager
def asking(
    name: str, store: Store, size: Size, clients: int = 1, reader: type[Reader] | None = None
) -> Iterator[Subject]:
    """A subject whose clients are connected and get the right answers."""
    with ExitStack() as stack:
        kind = reader or READERS[name]
        connected = [stack.enter_context(ClientProcess(kind, store.address)) for _ in range(clients)]
        subject = Subject(name, store, connected)
        check(subject, size.rows)
        yield subject


def open_all(folder: Path, table: Table, made_s: float, size: Size, stack: ExitStack) -> list[Subject]:
    """Ours and all peers that are installed, loaded."""
    warehouse = folder / "warehouse"
    ours = stack.enter_context(
        stelae_store(warehouse, table, "--block-cache-bytes", str(size.cache_bytes), load_s=made_s)
    )
    rocksdb = Store(ROCKSDB, f"{warehouse} {table.name} {size.cache_bytes}", made_s, lambda: table_bytes(table))
    stores: dict[str, Callable[[], Store]] = {ARROW: lambda: ours, JSON: lambda: ours, ROCKSDB: lambda: rocksdb}

    @cache
    def redis() -> Store:
        return stack.enter_context(redis_store(folder / "redis", size.rows))

    stores |= {REDIS_OWN: redis, REDIS: redis}
    stores[POSTGRES] = lambda: stack.enter_context(postgres_store(folder / "postgres", size.rows, size.shared_buffers))
    stores[LMDB] = lambda: lmdb_store(folder / "lmdb", warehouse, table, size.rows)
    subjects = []
    for name in READERS:
        try:
            store = stores[name]()
            subjects.append(stack.enter_context(asking(name, store, size)))
        except NotInstalled as error:
            left_out(name, str(error))
        else:
            print(f"  {name}: loaded in {store.load_s:.1f} s", flush=True)
    return subjects


# What is measured


def main() -> None:
    quick = quick_mode(__doc__)
    size = QUICK if quick else FULL
    facts(**asdict(size), zipf_theta=ZIPF_THETA, table=str(TABLE_OPTIONS), compressed_table=str(COMPRESSED_OPTIONS))
    with disk_folder() as folder:
        run(folder, size)


def run(folder: Path, size: Size) -> None:
    workloads = Workloads(folder, size)
    warehouse = folder / "warehouse"
    table, made_s = people_table(warehouse, TABLE, TABLE_OPTIONS, size.rows)
    with ExitStack() as stack:
        subjects = open_all(folder, table, made_s, size, stack)
        names = [subject.name for subject in subjects]
        by_size = {
            batch: measure(subjects, workloads.uniform(), batch, size, warm=batch == BATCH)
            for batch in sorted(BATCH_SIZES, key=lambda batch: batch != BATCH)
        }
        show_sizes(names, by_size)
        show_stores(subjects, size.rows)
        hits = by_size[BATCH]
        show_rates(f"Batches of {BATCH:,}, uniform keys", hits, TARGETS)
        zipf = measure(subjects, workloads.zipf(), BATCH, size)
        show_rates(f"Batches of {BATCH:,}, Zipf keys", zipf, {})
        show_misses(hits, measure(subjects, workloads.misses(), BATCH, size))
        show_processor_time(hits)
        stores = {subject.name: subject.store for subject in subjects}
        measure_parallel(warehouse, table, stores, workloads, size)
    measure_memory(warehouse, table, workloads, size)


def show_sizes(names: Sequence[str], by_size: Mapping[int, Mapping[str, Figures]]) -> None:
    """Throughput and processor time by size of batches."""
    sizes = [f"{batch:,}" for batch in BATCH_SIZES]
    rates: list[list[str | float]] = [[name, *(by_size[batch][name].rate for batch in BATCH_SIZES)] for name in names]
    listing("By size of batches: keys a second", ["", *sizes], rates)
    times: list[list[str | float]] = [[name, *(by_size[batch][name].cpu_us for batch in BATCH_SIZES)] for name in names]
    listing("By size of batches: processor time a key of client and server, us", ["", *sizes], times)
    lines = {name: [(batch, by_size[batch][name].rate) for batch in BATCH_SIZES] for name in names}
    draw(Plot("lookup-batches", "Batch lookups, one client", "keys in a batch", "keys a second", lines))
    lines = {name: [(batch, by_size[batch][name].cpu_us) for batch in BATCH_SIZES] for name in names}
    title = "Processor time of client and server, batch lookups"
    draw(Plot("lookup-processor-time", title, "keys in a batch", "microseconds a key", lines))
    if REDIS in names:
        show(
            "Against Redis with hiredis, by size of batches",
            [
                Ratio(f"batches of {batch:,}", figures[ARROW].rate, figures[REDIS].rate, "keys/s", "")
                for batch, figures in sorted(by_size.items())
            ],
        )


def show_stores(subjects: Sequence[Subject], rows: int) -> None:
    """Bytes on disk and in memory, and how long a store took to fill."""
    lines: list[list[str | float]] = []
    for subject in subjects:
        if subject.name in (JSON, REDIS_OWN):  # The same store as the one beside it.
            continue
        # A store in process is in the memory of its client.
        memory = subject.store.memory_bytes() or subject.clients[0].memory_bytes()
        disk = subject.store.disk_bytes()
        lines.append([subject.name, disk / rows, memory / rows, subject.store.load_s])
    listing("Stores: bytes a row, and seconds to fill them", ["", "on disk", "memory of the process", "s"], lines)


def show_rates(title: str, figures: Mapping[str, Figures], targets: Mapping[str, str]) -> None:
    """Ours with Arrow against all others."""
    ours = figures[ARROW].rate
    others = {name: each.rate for name, each in figures.items() if name != ARROW}
    show(title, [Ratio(name, ours, rate, "keys/s", targets.get(name, "")) for name, rate in others.items()])


def show_misses(hits: Mapping[str, Figures], misses: Mapping[str, Figures]) -> None:
    show(
        f"Misses / hits, time a key, batches of {BATCH:,}",
        [Ratio(name, misses[name].key_us, hits[name].key_us, "us", "<= 1" if name == ARROW else "") for name in hits],
    )


def show_processor_time(figures: Mapping[str, Figures]) -> None:
    lines: list[list[str | float]]
    lines = [[name, each.client_us, each.server_us, each.cpu_us] for name, each in figures.items()]
    title = f"Processor time a key, batches of {BATCH:,}, uniform keys"
    listing(title, ["us", "client", "server", "both"], lines)
    ours = figures[ARROW]
    ratios = [Ratio("client / server", ours.client_us, ours.server_us, "us", "< 1")]
    if REDIS in figures:
        ratios.append(Ratio("both / both of Redis, hiredis", ours.cpu_us, figures[REDIS].cpu_us, "us", ""))
    show("Processor time of Stelae, Arrow", ratios)


def measure_parallel(
    warehouse: Path, table: Table, stores: Mapping[str, Store], workloads: Workloads, size: Size
) -> None:
    """Several clients at a time. `stores`: those that one client has asked."""
    one, many = "Stelae, Arrow, 1 worker", f"Stelae, Arrow, {PARALLEL} workers"
    arguments = ("--block-cache-bytes", str(size.cache_bytes), "--workers", str(PARALLEL))
    with ExitStack() as stack:
        workers = stack.enter_context(stelae_store(warehouse, table, *arguments))
        wanted: list[tuple[str, Store, type[Reader]]] = [
            (one, stores[ARROW], StelaeArrow),
            (many, workers, StelaeArrow),
        ]
        wanted += [(REDIS, stores[REDIS], Redis)] if REDIS in stores else []
        subjects = [stack.enter_context(asking(name, store, size, PARALLEL, kind)) for name, store, kind in wanted]
        figures = measure(subjects, workloads.uniform(), LARGE_BATCH, size, warm=True)
    ratios = [Ratio("2 workers / 1 worker", figures[many].rate, figures[one].rate, "keys/s", "")]
    if REDIS in figures:
        ratios += [
            Ratio(f"{many} / {REDIS}", figures[many].rate, figures[REDIS].rate, "keys/s", ">= 1"),
            Ratio(f"{one} / {REDIS}", figures[one].rate, figures[REDIS].rate, "keys/s", ""),
            Ratio("processor time, clients and server", figures[many].cpu_us, figures[REDIS].cpu_us, "us/key", ""),
        ]
    show(f"{PARALLEL} clients, batches of {LARGE_BATCH:,}, uniform keys", ratios)


def measure_memory(warehouse: Path, table: Table, workloads: Workloads, size: Size) -> None:
    """The server with less and less memory: without an index, compressed, with a block cache smaller than the table."""
    compressed, _ = people_table(warehouse, COMPRESSED, COMPRESSED_OPTIONS, size.rows)
    small_mib = size.small_cache_bytes / 2**20
    indexed = "uncompressed, hash index"
    servers = {
        indexed: (table, size.cache_bytes, ()),
        "uncompressed": (table, size.cache_bytes, NO_INDEX),
        "lz4, all in the block cache": (compressed, size.cache_bytes, NO_INDEX),
        f"lz4, block cache of {small_mib:,.0f} MiB": (compressed, size.small_cache_bytes, NO_INDEX),
    }
    with ExitStack() as stack:
        subjects = []
        for name, (stored, cache_bytes, arguments) in servers.items():
            arguments = ("--block-cache-bytes", str(cache_bytes), *arguments)
            store = stack.enter_context(stelae_store(warehouse, stored, *arguments))
            subjects.append(stack.enter_context(asking(name, store, size, reader=StelaeArrow)))
        by_keys = {
            "uniform": measure(subjects, workloads.uniform(), BATCH, size, warm=True),
            "Zipf": measure(subjects, workloads.zipf(), BATCH, size),
        }
        memory = {subject.name: subject.store.memory_bytes() / size.rows for subject in subjects}
    title = f"Stelae with less memory, batches of {BATCH:,}"
    headings = ["", "uniform, keys/s", "Zipf, keys/s", "bytes of memory a row", "bytes of files a row"]
    listing(
        title,
        headings,
        [
            [
                name,
                *(figures[name].rate for figures in by_keys.values()),
                memory[name],
                table_bytes(servers[name][0]) / size.rows,
            ]
            for name in servers
        ],
    )
    show(
        title,
        [
            Ratio(f"{name} / {indexed}; {keys} keys", figures[name].rate, figures[indexed].rate, "keys/s", "")
            for keys, figures in by_keys.items()
            for name in servers
            if name != indexed
        ],
    )


if __name__ == "__main__":
    main()
