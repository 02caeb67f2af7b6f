"""What crash tests of servers are made of: books, processes that die, clients, builds, and what storage holds.

    Books       every (key, id) that anybody was ever told; what contradicts it is `wrong`
    Doomed      a `stelae serve` process, to be killed or stalled
    SparkBuilds a process that builds with Spark, to be killed, too
    Clients     threads that insert and look up at random, and write into the books
    fold, mint  builds without Spark: beside a server, taking in its log; as owner, giving ids themselves
    stored_ids  keys and ids as they are on storage, read without any server

Books are kept in this process's memory: whatever happens to a server, what its clients know stays.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import orjson
import pyarrow as pa

from stelae.builder.lease.owner_client import acknowledged
from stelae.errors import Conflict, StelaeError, Unavailable
from stelae.log.reader import read_log, recover
from stelae.log.records import Inserted
from stelae.log.table_log import log_folder, trim_log
from stelae.ownership.id_claims import TableClaims, id_limit
from stelae.ownership.new_rows import NewRows
from stelae.ownership.takeover import durable_log_range, live_owner, take_over
from stelae.read.table_reader import TableReader
from stelae.rocksdb.sst_writer import SstWriter
from stelae.rocksdb.tablet import Tablet
from stelae.snapshot import retention
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.paths import EPOCH_FOLDER, parse_epoch_path, sst_path
from tests.tables import all_claims
from tests.waiting import WAIT_S

UIDS = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '3', 'auto-increment.fields' = 'id', 'auto-increment.cache-size' = '40')"""
"""Claims are small, so that many are made."""
URL = "/v1/tables/shop.uids/"
READY = re.compile(r"serving .* at http://127\.0\.0\.1:(\d+), ready in ([\d.]+) s\n")
REFUSED = {409, 503}
"""What a server may say to an insert that it can't take now; and, 503, to a lookup."""
FRONTIER = 100
"""Keys that are new, and asked for by everybody at once."""

Rows = dict[bytes, bytes]
"""Row bytes by key bytes."""


class Books:
    """What was told. For many threads."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: list[str] = []
        """Keys in the order in which they were told."""
        self.wrong: list[str] = []
        """Contradictions. The test has failed when there is one."""
        self.requests = 0
        self._keys: dict[int, str] = {}
        self._inserted: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.names)

    def tell(self, by: str, names: Sequence[str], ids: Sequence[int | None], inserted: Sequence[bool] = ()) -> None:
        """An answer: ids of keys, and which of them were inserted by it. None: the key is not there."""
        with self._lock:
            self.requests += 1
            for name, number in zip(names, ids, strict=True):
                if number is None:
                    continue
                if self.ids.setdefault(name, number) != number:
                    self.wrong.append(f"{name} has id {self.ids[name]}, {by} says {number}")
                elif self._keys.setdefault(number, name) != name:
                    self.wrong.append(f"id {number} is of {self._keys[number]}, {by} gives it to {name}")
                elif len(self.names) < len(self.ids):
                    self.names.append(name)
            for name, new in zip(names, inserted, strict=False):
                if new and name in self._inserted:
                    self.wrong.append(f"{name} was inserted again by {by}")
                if new:
                    self._inserted.add(name)

    def complain(self, what: str) -> None:
        with self._lock:
            self.wrong.append(what)

    def some(self, rng: random.Random, count: int) -> list[str]:
        """Keys that were told, half of the time those of just now."""
        known = len(self.names)
        first = max(0, known - FRONTIER) if rng.random() < 0.5 else 0
        return [self.names[rng.randrange(first, known)] for _ in range(count)] if known else []

    def around(self, rng: random.Random, count: int) -> list[str]:
        """Keys of which some are new, some known, some twice."""
        known = len(self.names)
        first = max(0, known - 2 * FRONTIER)
        return [f"k{rng.randrange(first, known + FRONTIER)}" for _ in range(count)]

    def check_against(self, stored: Mapping[str, int]) -> None:
        """Everything that was told is there."""
        for name, number in self.ids.items():
            if stored.get(name) != number:
                self.wrong.append(f"{name} was told to have id {number}, stored is {stored.get(name)}")


# Servers


class Doomed:
    """A server process."""

    def __init__(
        self, warehouse: Path, name: str, logs: Path, *arguments: str, port: int = 0, disk: str = "good"
    ) -> None:
        """`disk`: as `doomed_server.py` has it, or good. Port 0: a free one."""
        self.name = name
        self.log = logs / f"server-{time.time_ns()}-{name}.log"
        self.port = 0
        self.startup_s = 0.0
        """Of loading and taking over, as it says."""
        self.rivalled = False
        """Somebody else may own the table: then lookups may lack what is new. What it has shown, it shows on."""
        self.shown: set[str] = set()
        self.mute_from: float | None = None
        """Requests that are sent later, by this process's clock, may insert nothing: somebody else owns the table."""
        self.started = time.monotonic()
        self._stopped = 0.0
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", *(["stelae"] if disk == "good" else ["tests.service.doomed_server", disk]),
                    "serve", "-w", str(warehouse), "--port", str(port), "--name", name, "--poll-interval", "0.05",
                    *arguments,
                ],
                stdout=subprocess.PIPE, stderr=log, cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        match = READY.fullmatch(line)
        if match is None:
            self.kill()
            raise AssertionError(f"server {self.name} is not ready: {line!r}\n{self.log.read_text()}")
        self.port, self.startup_s = int(match[1]), float(match[2])

    def stall(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self._stopped = time.monotonic()

    def go_on(self, *, taken_over: bool) -> None:
        """End a stall. `taken_over`: it owns the table no more."""
        if taken_over:
            self.mute_from = self._stopped + 0.1
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)

    def end(self) -> None:
        """A clean end."""
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        assert code == 0, f"server {self.name} ended with {code}\n{self.log.read_text()}"

    def complaints(self) -> list[str]:
        """What in its log is a bug for sure."""
        text = self.log.read_text(errors="replace")
        return [f"server {self.name}: {self.log}"] if "Traceback" in text or "not foreseen" in text else []


class Client:
    """One connection to a server, which may break at any moment."""

    def __init__(self, server: Doomed, books: Books) -> None:
        self.server = server
        self.books = books
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)

    def close(self) -> None:
        self._connection.close()

    def insert(self, names: Sequence[str]) -> bool:
        """False when it was refused. OSError or HTTPException when the server is gone."""
        sent = time.monotonic()
        status, body = self._post("insert-if-not-exists", names)
        if status != 200:
            self._check_refusal("insert", status, body)
            return False
        inserted = body["inserted"]
        self.server.shown.update(names)
        self.books.tell(self.server.name, names, [row["id"] for row in body["rows"]], inserted)
        if any(inserted) and self.server.mute_from is not None and sent > self.server.mute_from:
            self.books.complain(f"server {self.server.name} inserted when another one owned the table")
        return True

    def look_up(self, names: Sequence[str]) -> bool:
        """Keys that were told before."""
        shown = self.server.shown.intersection(names)
        status, body = self._post("lookup", names)
        if status != 200:
            self._check_refusal("lookup", status, body)
            return False
        ids = [row and row["id"] for row in body["rows"]]
        self.books.tell(self.server.name, names, ids)
        for name, number in zip(names, ids, strict=True):
            if number is not None:
                self.server.shown.add(name)
            elif name in shown:
                self.books.complain(f"server {self.server.name} does not show {name} any more")
            elif not self.server.rivalled:
                self.books.complain(f"server {self.server.name} does not show {name}")
        return True

    def _post(self, what: str, names: Sequence[str]) -> tuple[int, dict[str, Any]]:
        body = orjson.dumps({"keys": names})
        self._connection.request("POST", URL + what, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, orjson.loads(response.read())

    def _check_refusal(self, what: str, status: int, body: object) -> None:
        if status not in REFUSED:
            self.books.complain(f"server {self.server.name} answered {what} with {status}: {body}")


class Clients:
    """Threads that ask the server they are pointed at, as long as it answers. None: they pause."""

    def __init__(self, books: Books, count: int, seed: int) -> None:
        self.books = books
        self.targets: list[Doomed | None] = [None] * count
        self._busy = [False] * count
        self._stop = False
        self._threads = [threading.Thread(target=self._run, args=(i, random.Random(seed + i))) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def point_at(self, server: Doomed | None, *, only: slice = slice(None)) -> None:
        for index in range(len(self.targets))[only]:
            self.targets[index] = server

    def pause(self) -> None:
        """When this returns, all answers are in the books. Servers that were asked have to be gone, or to answer."""
        self.point_at(None)
        deadline = time.monotonic() + 2 * WAIT_S
        while any(self._busy):
            assert time.monotonic() < deadline, "a request has no end"
            time.sleep(0.001)

    def stop(self) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join()

    def _run(self, index: int, rng: random.Random) -> None:
        client: Client | None = None
        while not self._stop:
            self._busy[index] = True
            server = self.targets[index]
            if client is not None and client.server is not server:
                client.close()
                client = None
            if server is None:
                self._busy[index] = False
                time.sleep(0.002)
                continue
            client = client or Client(server, self.books)
            try:
                if not self._ask(client, rng):
                    time.sleep(0.005)
            except TimeoutError:
                self.books.complain(f"server {server.name} did not answer for {WAIT_S} s")
            except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
                client.close()
                client = None
                time.sleep(0.002)
            except Exception as exc:
                self.books.complain(f"a client failed: {exc!r}")

    def _ask(self, client: Client, rng: random.Random) -> bool:
        count = rng.choice((1, 1, 1, 2, 5, rng.randint(1, 50)))
        if rng.random() < 0.3:
            names = self.books.some(rng, count)
            return client.look_up(names) if names else False
        return client.insert(self.books.around(rng, count) + self.books.some(rng, rng.choice((0, 0, count))))


# Builds with Spark


class SparkBuilds:
    """A process that builds one thing after the other."""

    def __init__(self, warehouse: Path, folder: Path) -> None:
        self.log = folder / f"spark-{time.time_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.service.doomed_builds", str(warehouse)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=Path(__file__).parents[2],
                env={**os.environ, "SPARK_LOCAL_DIRS": str(folder / "spark")},
            )  # fmt: skip
        self.wait_for("started")

    def begin(self, first: int, count: int) -> None:
        """Build keys from k<first> on; `wait_for` tells how far it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first} {count}\n".encode())
        self.process.stdin.flush()

    def wait_for(self, *starts: str) -> str:
        """The next line that starts with one of these."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline().decode().strip():
            if line.startswith(starts):
                return line
        raise AssertionError(f"Spark ended: {self.log.read_text()}")

    def kill(self) -> None:
        """Kill the driver. Its executors end by themselves, and may write a little longer."""
        self.process.kill()
        self.process.wait(WAIT_S)


# Storage


def epoch_number(table: Table) -> int:
    """The greatest one; 0 before the first."""
    folder = table.storage.local_path(EPOCH_FOLDER)
    assert folder is not None
    with suppress(FileNotFoundError):
        return max((parse_epoch_path(f"{EPOCH_FOLDER}/{file.name}") or 0 for file in folder.iterdir()), default=0)
    return 0


def stored_rows(table: Table, snapshot: Snapshot | None) -> Rows:
    """Of a snapshot, read from its files."""
    rows: Rows = {}
    for bucket in (bucket for partition in (snapshot.partitions if snapshot else ()) for bucket in partition.buckets):
        if not bucket.files:
            continue
        scratch = table.storage.scratch_folder()
        files = [table.storage.local_path(file.path) for file in bucket.files]
        tablet = Tablet.open(scratch / "tablet", [file for file in files if file is not None])
        rows.update(tablet.scan())
        tablet.close()
        shutil.rmtree(scratch)
    return rows


def logged_rows(table: Table, first: int, until: int | None = None) -> Rows:
    """Of the log. AssertionError when a key is in it twice."""
    rows: Rows = {}
    folder = log_folder(table.storage)
    assert folder is not None
    for entry in takewhile(lambda entry: until is None or entry.offset < until, read_log(folder, first)):
        if isinstance(entry.record, Inserted):
            for key, row in zip(entry.record.keys, entry.record.rows, strict=True):
                assert key not in rows, f"key {key!r} is in the log twice, again in record {entry.offset}"
                rows[key] = row
    return rows


def ids_of(table: Table, rows: Rows) -> dict[str, int]:
    reader = TableReader(table.schema, table.schemas)
    [names] = reader.keys.decode_batch(pa.array(rows.keys(), pa.binary()))
    [ids] = reader.rows.decode_batch(pa.array(rows.values(), pa.binary()), ["id"])
    return dict(zip(names.to_pylist(), ids.to_pylist(), strict=True))


def stored_ids(table: Table) -> dict[str, int]:
    """All keys and ids of the table, as storage has them while no server runs; checked by themselves.

    Every key that is in the snapshot and in the log has one id, every id is of one key, and was claimed before.
    """
    snapshot, folder = table.snapshots.latest(), log_folder(table.storage)
    assert folder is not None
    start, covered = recover(folder).start, snapshot.log_offset if snapshot else 0
    assert start <= covered, f"the log starts at record {start}, the newest snapshot covers {covered}"
    found, logged = ids_of(table, stored_rows(table, snapshot)), ids_of(table, logged_rows(table, start))
    above = ids_of(table, logged_rows(table, covered))
    for name, number in logged.items():
        assert name in found or name in above, f"{name} is in the log below record {covered}, and in no snapshot"
        assert found.setdefault(name, number) == number, f"{name} has id {found[name]}, and {number} in the log"
    names = {number: name for name, number in found.items()}
    assert len(names) == len(found), "an id is of two keys"
    check_ids_were_claimed(table, logged)
    return found


def check_ids_were_claimed(table: Table, logged: Mapping[str, int]) -> None:
    """Claims are disjoint, and all ids are theirs."""
    column = table.schema.auto_increment
    assert column is not None
    claims = all_claims(TableClaims(table.storage, id_limit(column)))
    last = claims[-1].ids.last if claims else 0
    assert all(1 <= number <= last for number in logged.values()), f"an id is above {last}, the last that was claimed"


# Builds without Spark


@dataclass
class Stopped(Exception):
    """A build ended where a crash would have ended it."""

    late_commit: Callable[[], Snapshot] | None = field(default=None)
    """What it would have done next, had it only been stalled."""


def fold(table: Table, rng: random.Random) -> str:
    """A build beside a server: takes in what the log has for sure. Says what it did."""
    parent, owner = table.snapshots.latest(), live_owner(table)
    try:
        asked = owner is not None and owner.kind == "server" and rng.random() < 0.5
        durable = acknowledged(owner, str(table.name)) if owner is not None and asked else 0
        covered = durable_log_range(table, parent, durable=durable)
        if covered is None:
            return "no log"
        new = logged_rows(table, covered.first, covered.until)
    except Unavailable:
        return "a takeover was under way"
    kept = [number for number in table.snapshots.retained_ids() if parent and number != parent.id]
    if kept and rng.random() < 0.1:
        to = rng.choice(kept)
        try:
            return f"snapshot {table.snapshots.rollback(to, now_ms=1).id} went back to {to}"
        except StelaeError as exc:
            return f"did not go back to {to}: {exc}"
    rewrite = parent is None or rng.random() < 0.5
    rows = {**new, **stored_rows(table, parent)} if rewrite else new
    count = rng.randint(1, 5) if rewrite or parent is None else parent.partitions[0].bucket_count
    snapshot = made(table, parent, rows, count, covered.until, onto=None if rewrite else parent)
    if rng.random() < 0.2:
        return "gave up before its commit"
    try:
        table.snapshots.commit(snapshot)
    except Conflict:
        return "somebody else committed"
    retention.expire(table.snapshots, 2)
    what = f"{count} new buckets" if rewrite else "on top"
    return f"snapshot {snapshot.id}, {len(new)} rows of the log, {what}"


def mint(table: Table, rng: random.Random, books: Books, phase: str | None) -> str:
    """A build that owns the table, if no server does, and gives ids. `phase`: of "took", "claimed" and "wrote", after
    which it stops.
    """
    taken = take_over(table, "build", "nightly")

    def stop_at(here: str, late_commit: Callable[[], Snapshot] | None = None) -> None:
        if phase == here:
            taken.close()
            raise Stopped(late_commit)

    stop_at("took")
    parent, column = taken.snapshot, table.schema.auto_increment
    assert column is not None
    covered = parent.log_offset if parent else 0
    until = max(covered, taken.log.end)
    rows = {**logged_rows(table, covered, until), **stored_rows(table, parent)}
    known = ids_of(table, rows)
    new = [name for name in dict.fromkeys(books.around(rng, 150)) if name not in known]
    if new:
        claims = TableClaims(table.storage, id_limit(column))
        claim = claims.claim(len(new), owner="nightly", epoch=taken.epoch.number, purpose="build")
        stop_at("claimed")
        ids = list(range(claim.ids.first, claim.ids.last + 1))
        keys = TableReader(table.schema, table.schemas).keys
        rows |= {keys.encode([name]): row for name, row in zip(new, NewRows(table.schema).rows(ids), strict=True)}
    snapshot = made(table, parent, rows, rng.randint(1, 5), until)

    def commit() -> Snapshot:
        committed = table.snapshots.commit(snapshot)
        if new:
            books.tell("a build", new, ids, [True] * len(new))
        return committed

    stop_at("wrote", commit)
    try:
        commit()
    except Conflict:
        taken.release()
        return "was fenced"
    retention.expire(table.snapshots, 2)
    trim_log(table)
    taken.release()
    return f"snapshot {snapshot.id}, {len(new)} ids"


def made(
    table: Table, parent: Snapshot | None, rows: Rows, count: int, log_offset: int, *, onto: Snapshot | None = None
) -> Snapshot:
    """A snapshot of rows, alone or on top of the files of another one, to be committed. Its files are stored."""
    before = onto.partitions[0].buckets if onto else [BucketFiles(number, ()) for number in range(count)]
    return Snapshot(
        table=str(table.name),
        id=(parent.id if parent else 0) + 1,
        parent=parent.id if parent else None,
        schema_id=table.schema.id,
        build_id=uuid4().hex,
        kind="merge" if onto else "overwrite",
        created_ms=time.time_ns() // 1_000_000,
        versions={"stelae": "test"},
        partitions=(
            PartitionFiles(
                values=(),
                bucket_count=count,
                buckets=tuple(
                    BucketFiles(bucket, (*before[bucket].files, *_stored(table, bucket, keys, rows)), log_offset)
                    for bucket, keys in enumerate(_by_bucket(table, sorted(rows), count))
                ),
            ),
        ),
    )


def _by_bucket(table: Table, keys: Sequence[bytes], count: int) -> Iterator[list[bytes]]:
    reader = TableReader(table.schema, table.schemas)
    numbers = reader.buckets.bucket_batch(reader.keys.decode_batch(pa.array(keys, pa.binary())), count)
    for bucket in range(count):
        yield [keys[index] for index in np.flatnonzero(numbers == bucket).tolist()]


def _stored(table: Table, bucket: int, keys: list[bytes], rows: Rows) -> list[DataFile]:
    if not keys:
        return []
    scratch = table.storage.scratch_folder()
    writer = SstWriter(scratch / "new.sst", table.schema.options.files)
    writer.write(keys, [rows[key] for key in keys])
    info = writer.finish()
    path = sst_path("", bucket, uuid4().hex)
    table.storage.upload(scratch / "new.sst", path)
    shutil.rmtree(scratch)
    return [DataFile(path, info.bytes, info.checksum, info.rows, 0, info.first_key, info.last_key)]
