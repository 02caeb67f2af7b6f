"""Verifying a snapshot: every byte of it is read, and every claim of its manifest held against what is there.

    file      there, of its size and checksum; RocksDB reads every block of it
    keys      strictly ascending, decodable, in the bucket that they hash to
    rows      decodable
    manifest  as many rows and tombstones as it says, the first key, the last key
    lookups   a sample of keys, found through a reader that is opened as the server opens it
    claims    of ids, and epochs of ownership, if the table has them: readable, without gaps, no id claimed twice
    ids       of a dictionary table, those in its log included: every row has one, all are claimed, no two the same

What is wrong is collected, not raised: one bad file does not hide another. `stelae verify` prints the report.
"""

from __future__ import annotations

import operator
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowReader
from stelae.encoding.values import value_codec
from stelae.errors import CorruptData, NotFound, StelaeError, Unavailable
from stelae.log.epochs import FIRST_EPOCH, TableOwnership, check_epochs_are_gapless
from stelae.log.id_claims import (
    BIGINT_LIMIT,
    FIRST_CLAIM,
    FIRST_ID,
    TableClaims,
    check_claims_are_dense,
    check_claims_are_disjoint,
    id_limit,
)
from stelae.log.reader import read_log, recover
from stelae.log.replay import replay
from stelae.log.takeover import has_log, log_folder
from stelae.read.open_snapshot import open_snapshot
from stelae.read.prepare_tablets import fetch_file
from stelae.read.projection import JsonRow
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.rocksdb.tablet import Tablet
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.base import Storage
from stelae.storage.paths import CLAIM_FOLDER, EPOCH_FOLDER, claim_path, epoch_path
from stelae.units import MIB

BATCH_ROWS = 16_384
SAMPLES = 16
"""Keys of each bucket that are looked up."""

T = TypeVar("T")

Listener = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    place: str
    """A file's path below the table, or a key."""
    message: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was read, and what is wrong."""

    table: str
    snapshot: int
    files: int
    rows: int
    hidden_rows: int
    bytes: int
    lookups: int
    """Sampled keys that were looked up; 0 when a bad file kept the snapshot from being opened."""
    seconds: float
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_snapshot(
    table: Table, snapshot: Snapshot, *, listener: Listener | None = None, seed: int = 0
) -> VerifyReport:
    """Read all files of a snapshot and report. `seed` chooses the sampled keys.

    Raises Unavailable when the storage can't be read: that says nothing about the snapshot.
    """
    started = time.monotonic()
    table = table.at_least(snapshot.schema_id)
    run = _Run(table, snapshot, random.Random(seed))  # noqa: S311 - a sample, no secret.
    done, total = 0, snapshot.totals.bytes
    with scratch_folder(table.storage) as scratch:
        for partition in snapshot.partitions:
            for bucket in partition.buckets:
                for file in bucket.files:
                    run.check_file(partition, bucket, file, scratch)
                    done += file.bytes
                    if listener:
                        listener(Progress(done, total))
        if not run.problems:
            run.check_lookups(scratch)
        run.problems += ownership_problems(table)
        if not run.problems and table.schema.auto_increment is not None:
            run.check_ids(scratch)
    return VerifyReport(
        table=str(table.name),
        snapshot=snapshot.id,
        files=run.files,
        rows=run.rows,
        hidden_rows=run.hidden_rows,
        bytes=run.bytes_read,
        lookups=run.lookups,
        seconds=time.monotonic() - started,
        problems=tuple(run.problems),
    )


@contextmanager
def scratch_folder(storage: Storage) -> Iterator[Path]:
    """A folder for opening files in: inside a local warehouse, so that they are linked, if it may be written to."""
    try:
        folder = storage.scratch_folder()
    except Unavailable:
        folder = Path(tempfile.mkdtemp(prefix="stelae-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SeenIds:
    """Which ids there are: a bit for each, in blocks of those ranges that have any."""

    BLOCK_BITS = 20

    def __init__(self, last: int) -> None:
        """`last` is the greatest id that was ever claimed."""
        self.last = last
        self._blocks: dict[int, npt.NDArray[np.uint8]] = {}

    def add(self, ids: npt.NDArray[np.int64]) -> str:
        """Take some ids, and say what is wrong with one of them; '' if nothing is."""
        wild = (ids < FIRST_ID) | (ids > self.last)
        if wild.any():
            return f"id {ids[wild][0]} was never claimed; claims end at {self.last}"
        ids = np.sort(ids)
        same = ids[1:] == ids[:-1]
        if same.any():
            return f"id {ids[1:][same][0]} is of two keys"
        numbers = ids >> self.BLOCK_BITS
        for number in np.unique(numbers):
            bits = np.zeros(1 << self.BLOCK_BITS, np.bool_)
            bits[ids[numbers == number] & ((1 << self.BLOCK_BITS) - 1)] = True
            packed = np.packbits(bits)
            before = self._blocks.get(int(number))
            if before is not None and (before & packed).any():
                twice = np.flatnonzero(np.unpackbits(before & packed))[0]
                return f"id {(int(number) << self.BLOCK_BITS) + int(twice)} is of two keys"
            self._blocks[int(number)] = packed if before is None else before | packed
        return ""


@dataclass
class _Run:
    """One verification: counts and problems so far."""

    table: Table
    snapshot: Snapshot
    random: random.Random
    files: int = 0
    rows: int = 0
    hidden_rows: int = 0
    bytes_read: int = 0
    lookups: int = 0
    problems: list[Problem] = field(default_factory=list)
    samples: list[tuple[PartitionFiles, bytes, bytes]] = field(default_factory=list)
    """Partition, key and row."""

    def check_file(self, partition: PartitionFiles, bucket: BucketFiles, file: DataFile, scratch: Path) -> None:
        self.files += 1
        # A newer sorted run may hold other rows of the same keys: only those of the newest must be found.
        samples = SAMPLES if file is bucket.files[-1] else 0
        fetched = scratch / "fetched"
        fetched.mkdir()
        try:
            check_size(self.table.storage, file)
            local = fetch_file(self.table.storage, file, fetched)
            content = _Content(self.table, partition.bucket_count, bucket.bucket, samples, self.random)
            for keys, rows in batches_of(local, scratch):
                content.add(keys, rows)
        except (CorruptData, NotFound) as exc:
            self.problems.append(Problem(file.path, _told(exc, file.path)))
            return
        finally:
            shutil.rmtree(fetched)  # One download at a time, however large the table.
        self.rows += content.rows
        self.hidden_rows += content.hidden_rows
        self.bytes_read += file.bytes
        self.problems += [Problem(file.path, message) for message in [*content.problems, *content.differences(file)]]
        self.samples += [(partition, key, row) for key, row in content.samples]

    def check_ids(self, scratch: Path) -> None:
        """Every visible row has an id of its own, and so has every row of the log that is not in the snapshot."""
        names = self.table.schema.options.auto_increment_fields
        reader = open_snapshot(self.table, self.snapshot, scratch, BlockCache(8 * MIB))
        folder = log_folder(self.table.storage)
        if folder is not None and has_log(self.table):
            reader = reader.with_online(OnlineRows.open(scratch / "online", BlockCache(8 * MIB)))
            # Only what is durable for sure: a server may be writing.
            until = max(recover(folder).last_flush, self.snapshot.log_offset)
            entries = read_log(folder, self.snapshot.log_offset)
            replay(reader, takewhile(lambda entry: entry.offset < until, entries))
        newest = TableClaims(self.table.storage, BIGINT_LIMIT).newest()
        seen = SeenIds(0 if newest is None else newest.ids.last)
        for rows in reader.visible_rows(BATCH_ROWS):
            [ids] = reader.table.rows.decode_batch(pa.array(rows, pa.binary()), names)
            wrong = f"{ids.null_count} rows have no id" if ids.null_count else seen.add(ids.to_numpy().astype(np.int64))
            if wrong:
                self.problems.append(Problem(f"column {names[0]}", wrong))
                return

    def check_lookups(self, scratch: Path) -> None:
        """Sampled keys are answered, each with its row, by a reader like the server's."""
        try:
            reader = open_snapshot(self.table, self.snapshot, scratch, BlockCache(8 * MIB))
        except StelaeError as exc:
            if isinstance(exc, Unavailable):
                raise
            self.problems.append(Problem(f"snapshot {self.snapshot.id}", f"can't be opened: {_told(exc)}"))
            return
        codec = KeyCodec(self.table.schema.key_columns)
        for partition, key, row in self.samples:
            self.lookups += 1
            try:
                found, expected = look_up(reader, key_of(self.table, partition, codec.decode(key)), row)
            except StelaeError as exc:
                self.problems.append(Problem(f"key {key.hex()}", f"the lookup failed: {_told(exc)}"))
                continue
            if found != expected:
                said = "is not found" if found is None else f"is answered with {found}"
                self.problems.append(Problem(f"key {key.hex()}", f"{said}; its file has {expected}"))


class _Content:
    """What one file holds."""

    def __init__(self, table: Table, bucket_count: int, bucket: int, samples: int, chance: random.Random) -> None:
        schema = table.schema
        self.rows = self.hidden_rows = 0
        self.problems: list[str] = []
        self.samples: list[tuple[bytes, bytes]] = []
        self._wanted = samples
        self._random = chance
        self._first = self._last = b""
        self._keys = KeyCodec(schema.key_columns)
        self._reader = RowReader(table.schemas, schema)
        names = [column.name for column in schema.key_columns]
        self._bucketed = [names.index(column.name) for column in schema.bucket_columns]
        self._buckets = BucketFunction(schema.bucket_columns)
        self._bucket_count, self._bucket = bucket_count, bucket

    def add(self, keys: list[bytes], rows: list[bytes]) -> None:
        """The next rows. Raises CorruptData when they do not decode."""
        if (self.rows and keys[0] <= self._last) or not all(map(operator.lt, keys, keys[1:])):
            raise CorruptData(f"keys are not in strictly ascending order, among rows {self.rows:,} and following")
        if not self.rows:
            self._first = keys[0]
        self._last = keys[-1]
        columns = self._keys.decode_batch(pa.array(keys, pa.binary()))
        buckets = self._buckets.bucket_batch([columns[index] for index in self._bucketed], self._bucket_count)
        astray = buckets != self._bucket
        if astray.any():
            first = int(astray.argmax())
            self.problems.append(
                f"{int(astray.sum()):,} keys are of other buckets, key {keys[first].hex()} of bucket {buckets[first]}"
            )
        row_bytes = pa.array(rows, pa.binary())
        self._reader.decode_batch(row_bytes)
        self.hidden_rows += int(self._reader.hidden_mask(row_bytes).sum())
        for index in self._random.sample(range(len(keys)), min(self._wanted - len(self.samples), len(keys))):
            self.samples.append((keys[index], rows[index]))
        self.rows += len(keys)

    def differences(self, file: DataFile) -> list[str]:
        """Where the manifest says something else."""
        pairs = [
            ("rows", self.rows, file.rows),
            ("tombstones", self.hidden_rows, file.hidden_rows),
            ("first key", self._first.hex(), file.first_key.hex()),
            ("last key", self._last.hex(), file.last_key.hex()),
        ]
        return [f"{name}: {there}; the manifest says {said}" for name, there, said in pairs if there != said]


def ownership_problems(table: Table) -> list[Problem]:
    """What is wrong with the id claims and the epochs of a table; most tables have neither."""
    column = table.schema.auto_increment
    ids = TableClaims(table.storage, BIGINT_LIMIT if column is None else id_limit(column))
    ownership = TableOwnership(table.storage, str(table.name))
    # Claims first: the epoch that a claim names was there before it.
    claims, problems = _read_all(ids.numbers(), FIRST_CLAIM, ids.read, claim_path)
    epochs, bad_epochs = _read_all(ownership.numbers(), FIRST_EPOCH, ownership.read, epoch_path)
    problems += bad_epochs
    problems += _broken(check_claims_are_disjoint, claims, CLAIM_FOLDER)
    if not problems:  # Else one bad file would be told several times.
        problems += _broken(check_claims_are_dense, claims, CLAIM_FOLDER)
        problems += _broken(check_epochs_are_gapless, epochs, EPOCH_FOLDER)
        problems += [
            Problem(claim_path(claim.number), f"names epoch {claim.epoch}; there are {len(epochs)}")
            for claim in claims
            if claim.epoch > len(epochs)
        ]
    return problems


def _read_all(
    listed: list[int], first: int, read: Callable[[int], T], path_of: Callable[[int], str]
) -> tuple[list[T], list[Problem]]:
    """Numbered files up to the last one that is listed: what they hold, and which can't be read or are lacking."""
    found: list[T] = []
    problems: list[Problem] = []
    number = min([first, *listed])
    while listed and number <= listed[-1]:
        try:
            found.append(read(number))
        except CorruptData as exc:
            problems.append(Problem(path_of(number), exc.message))
        except NotFound:
            problems.append(Problem(path_of(number), "no such file, but there are later ones"))
            listed = [other for other in listed if other > number]
            number = min(listed, default=number)
            continue
        number += 1
    return found, problems


def _broken(check: Callable[[list[T], str], None], values: list[T], folder: str) -> list[Problem]:
    """What an invariant says against some values."""
    try:
        check(values, folder)
    except CorruptData as exc:
        return [Problem(folder, exc.message)]
    return []


def check_size(storage: Storage, file: DataFile) -> None:
    """The file is there, with as many bytes as the manifest says."""
    size = storage.head(file.path).bytes
    if size != file.bytes:
        raise CorruptData(f"the file has {size:,} bytes; the manifest says {file.bytes:,}")


def batches_of(local: Path, scratch: Path) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and rows of a sorted file, in order; RocksDB verifies the checksum of every block on the way."""
    tablet = Tablet.open(scratch / uuid.uuid4().hex, [local], BlockCache(8 * MIB))
    try:
        scan = tablet.scan()
        while chunk := list(islice(scan, BATCH_ROWS)):
            keys, rows = zip(*chunk, strict=True)
            yield list(keys), list(rows)
    finally:
        tablet.close()


def key_of(table: Table, partition: PartitionFiles, key_values: tuple[Any, ...]) -> dict[str, Any]:
    """A whole primary key as JSON, from the values of a partition and of its key columns."""
    key = dict(zip(table.schema.partition_keys, partition.values, strict=True))
    for column, value in zip(table.schema.key_columns, key_values, strict=True):
        key[column.name] = value_codec(column).to_json(value)
    return key


def look_up(reader: SnapshotReader, key: dict[str, Any], row: bytes) -> tuple[JsonRow | None, JsonRow | None]:
    """What a lookup finds, and what the row that is stored says."""
    values = reader.table.key_from_json(key)
    shape = reader.table.all_columns
    return reader.lookup(values, shape), shape.row(values, row)


def _told(error: StelaeError, known: str = "") -> str:
    """The message, and its place unless the reader knows it already."""
    place = f" ({error.place})" if error.place and error.place != known else ""
    return f"{error.message}{place}"
