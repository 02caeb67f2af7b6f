"""Verifying the files of a snapshot: every byte is read, and every claim of the manifest held against it.

file      there, of its size and checksum; RocksDB reads every block of it
keys      strictly ascending, decodable, in the bucket that they hash to
rows      decodable
manifest  as many rows and tombstones as it says, the first key, the last key
lookups   a sample of keys, found through a reader that is opened as the server opens it
"""

from __future__ import annotations

import operator
import random
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.encoding.row_header import hidden_mask
from stelae.encoding.row_reader import RowReader
from stelae.encoding.values import value_codec
from stelae.errors import CorruptData, NotFound, StelaeError, Unavailable
from stelae.read.open_snapshot import open_snapshot
from stelae.read.prepare_tablets import fetch_file
from stelae.read.projection import JsonRow
from stelae.read.snapshot_reader import SnapshotReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.tablet import Tablet
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.storage import Storage
from stelae.units import MIB

CHECKED_ROWS = 16_384
"""Rows of a file that are decoded at a time."""
SAMPLED_KEYS = 16
"""Keys of each bucket that are looked up."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    place: str
    """A file's path below the table, or a key."""
    message: str


@dataclass
class FileChecks:
    """The files of one snapshot: counts and problems so far."""

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
        """Read a file, and hold it against its manifest. `scratch`: a folder to open it in."""
        self.files += 1
        # A newer sorted run may hold other rows of the same keys: only those of the newest must be found.
        samples = SAMPLED_KEYS if file is bucket.files[-1] else 0
        fetched = scratch / "fetched"
        fetched.mkdir()
        try:
            check_size(self.table.storage, file)
            local = fetch_file(self.table.storage, file, fetched)
            content = _Content(self.table, partition.bucket_count, bucket.bucket, samples, self.random)
            for keys, rows in batches_of(local, scratch):
                content.add(keys, rows)
        except (CorruptData, NotFound) as exc:
            self.problems.append(Problem(file.path, told(exc, file.path)))
            return
        finally:
            shutil.rmtree(fetched)  # One download at a time, however large the table.
        self.rows += content.rows
        self.hidden_rows += content.hidden_rows
        self.bytes_read += file.bytes
        self.problems += [Problem(file.path, message) for message in [*content.problems, *content.differences(file)]]
        self.samples += [(partition, key, row) for key, row in content.samples]

    def check_lookups(self, scratch: Path) -> None:
        """Sampled keys are answered, each with its row, by a reader like the server's."""
        try:
            reader = open_snapshot(self.table, self.snapshot, scratch, BlockCache(8 * MIB))
        except StelaeError as exc:
            if isinstance(exc, Unavailable):
                raise
            self.problems.append(Problem(f"snapshot {self.snapshot.id}", f"can't be opened: {told(exc)}"))
            return
        codec = KeyCodec(self.table.schema.key_columns)
        for partition, key, row in self.samples:
            self.lookups += 1
            try:
                found, stored = found_and_stored(reader, key_of(self.table, partition, codec.decode(key)), row)
            except StelaeError as exc:
                self.problems.append(Problem(f"key {key.hex()}", f"the lookup failed: {told(exc)}"))
                continue
            if found != stored:
                said = "is not found" if found is None else f"is answered with {found}"
                self.problems.append(Problem(f"key {key.hex()}", f"{said}; its file has {stored}"))


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
        self.hidden_rows += int(hidden_mask(row_bytes).sum())
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
        while chunk := list(islice(scan, CHECKED_ROWS)):
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


def found_and_stored(reader: SnapshotReader, key: dict[str, Any], row: bytes) -> tuple[JsonRow | None, JsonRow | None]:
    """What a lookup finds, and what the row that is stored says."""
    values = reader.table.key_from_json(key)
    columns = reader.table.all_columns
    return reader.lookup(values, columns), columns.row(values, row)


def told(error: StelaeError, known: str = "") -> str:
    """The message of an error, and its place unless the reader knows it already."""
    place = f" ({error.place})" if error.place and error.place != known else ""
    return f"{error.message}{place}"
