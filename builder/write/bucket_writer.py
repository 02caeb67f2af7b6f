"""Sorted rows become sorted files. Everything here runs on executors, once a task.

    Arrow batches of one task, sorted by (ordinal), key columns, merge order
      → keys encoded               → the last record of each key kept, across batches too
      → tombstones dropped or kept → rows encoded → SST → looked up in → stored under a new name
      → one report a bucket

A task that is tried again writes files with new names. Only files in the reports that the driver collects are
committed.
"""

from __future__ import annotations

import gc
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from stelae.builder.lease.owner_client import AskOwner
from stelae.builder.merge.arrow_folds import ArrowFold
from stelae.builder.merge.last_record import KeyComparison, only_sequence
from stelae.builder.spark_sql.spark_errors import raise_marked
from stelae.builder.write.bucket_report import BucketReport
from stelae.builder.write.id_numbering import BucketIds
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.errors import CorruptData, StelaeError
from stelae.ownership.id_claims import IdRange
from stelae.schema.options import FileOptions
from stelae.schema.table_schema import TableSchema
from stelae.storage.paths import sst_path
from stelae.storage.storage import Storage

CHECKED_KEYS = 16
"""Keys of each file that are looked up in it before it is stored."""


@dataclass(frozen=True)
class WriteSpec:
    """What writer tasks need. Pickled with each task."""

    schema: TableSchema
    storage: Storage
    """Rooted in the table folder."""
    folders: dict[int, tuple[str, int]]
    """Bucket ordinal → partition folder and bucket."""
    task_count: int
    merged: bool
    """Rows come one a key, with two columns more: RECORDS and FORGOTTEN."""
    keeps_tombstones: bool
    forget_before_ms: int | None
    """Tombstones that became one before this time are dropped."""
    folds: Mapping[int, ArrowFold]
    """What is left to be done for a value column, by its position among the value columns."""
    files: FileOptions
    """How files are written."""
    ids: Mapping[int, IdRange] | None = None
    """Of dictionary tables: by ordinal, the range that new keys of a bucket get their ids from, in key order."""
    ask: AskOwner | None = None
    """Who gives the other ids."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_imports()
        try:
            for report in write_buckets(self, batches if self.ask is None else self.ask(batches)):
                yield pa.RecordBatch.from_pydict({"report": pa.array([report.encode()], pa.string())})
        except StelaeError as error:
            raise_marked(error)


def write_buckets(spec: WriteSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[BucketReport]:
    """Write the buckets of one task; a report for each that had rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    output = _TaskOutput(spec, context.partitionId() if context else 0)
    same_key = KeyComparison(spec.schema)
    carry: pa.RecordBatch | None = None
    try:
        for batch in batches:
            whole = batch if carry is None else pa.concat_batches([carry, batch])
            if not whole.num_rows:
                continue
            # The last record may have successors in the next batch: it waits for them.
            carry = whole.slice(whole.num_rows - 1)
            yield from output.write(whole.slice(0, whole.num_rows - 1), same_key.last_of_key(whole))
        if carry is not None:
            yield from output.write(carry, np.array([True]))
        yield from output.finish()
    finally:
        output.close()


class _TaskOutput:
    """What one task writes: the rows of each bucket go to a writer of their own."""

    def __init__(self, spec: WriteSpec, task: int) -> None:
        self._spec = spec
        self._task = task
        self._writer: _BucketWriter | None = None

    def write(self, batch: pa.RecordBatch, last_of_key: np.ndarray) -> Iterator[BucketReport]:
        """Write rows; `last_of_key` marks those that survive. Gives the reports of buckets that are complete."""
        if not batch.num_rows:
            return
        ordinals = batch.column(0).to_numpy()
        starts = np.flatnonzero(np.diff(ordinals)) + 1
        for start, stop in zip([0, *starts.tolist()], [*starts.tolist(), batch.num_rows], strict=True):
            ordinal = int(ordinals[start])
            if self._writer is None or self._writer.ordinal != ordinal:
                yield from self.finish()
                self._writer = _BucketWriter(self._spec, self._checked(ordinal))
            self._writer.write(batch.slice(start, stop - start), last_of_key[start:stop])

    def finish(self) -> Iterator[BucketReport]:
        if self._writer is not None:
            yield self._writer.finish()
            self._writer = None

    def close(self) -> None:
        """Leave nothing behind where a task fails."""
        if self._writer is not None:
            self._writer.close()

    def _checked(self, ordinal: int) -> int:
        previous = -1 if self._writer is None else self._writer.ordinal
        # A planner that replaces the partitioning does it silently; then buckets would be torn apart. Never write that.
        if ordinal % self._spec.task_count != self._task or ordinal <= previous:
            raise CorruptData(
                f"task {self._task} of {self._spec.task_count} got a row of bucket {ordinal} after bucket {previous}",
                hint="Spark did not keep the partitioning that the build asked for; please report the query plan",
            )
        return ordinal


class _BucketWriter:
    """One bucket's file, from its first row to its report."""

    def __init__(self, spec: WriteSpec, ordinal: int) -> None:
        from stelae.rocksdb.sst_writer import SstWriter

        self.ordinal = ordinal
        self._spec = spec
        self._started = time.monotonic()
        self._folder = spec.storage.scratch_folder()
        self._file = self._folder / "rows.sst"
        self._sst = SstWriter(self._file, spec.files)
        self._keys = KeyCodec(spec.schema.key_columns)
        self._rows = RowCodec(spec.schema)
        self._hidden_rows = 0
        self._rows_in = 0
        self._ids = None if spec.ids is None else BucketIds(spec.schema, spec.ids.get(ordinal))
        self._samples: dict[bytes, bytes] = {}
        self._random = random.Random(ordinal)  # noqa: S311 - a sample, no secret.

    def write(self, batch: pa.RecordBatch, last_of_key: np.ndarray) -> None:
        """Append the rows that `last_of_key` marks."""
        spec = self._spec
        key_count = len(spec.schema.key_columns)
        at_hidden = 1 + key_count + len(self._rows.columns)
        hidden = batch.column(at_hidden).to_numpy(zero_copy_only=False)
        if spec.merged:
            records, forgotten = (batch.column(at_hidden + i).to_numpy(zero_copy_only=False) for i in (1, 2))
            self._rows_in += int(records.sum())
            keep = last_of_key & ~forgotten
        else:
            self._rows_in += batch.num_rows
            keep = last_of_key if spec.keeps_tombstones else last_of_key & ~hidden
        if spec.forget_before_ms is not None:
            keep = keep & ~(hidden & self._hidden_long_ago(batch.column(at_hidden - 1), spec.forget_before_ms))
        if not keep.all():
            batch = batch.filter(keep)
            hidden = hidden[keep]
        if not batch.num_rows:
            return
        columns = batch.columns
        values = columns[1 + key_count : at_hidden]
        for position, fold in spec.folds.items():
            values[position] = fold(values[position], self._key_of(columns[1 : 1 + key_count]))
        if self._ids is not None:
            values[self._ids.position] = self._ids.numbered(values[self._ids.position], hidden)
        any_hidden = bool(hidden.any())
        if any_hidden:
            if not spec.merged:
                values = only_sequence(spec.schema, values, hidden)
            self._hidden_rows += int(hidden.sum())
        keys = self._keys.encode_list(columns[1 : 1 + key_count])
        rows = self._rows.encode_list(values, hidden if any_hidden else None, rows=batch.num_rows)
        self._sst.write(keys, rows)
        self._sample(keys, rows)

    def finish(self) -> BucketReport:
        """Close, check and store the file."""
        try:
            if self._ids is not None:
                self._ids.check_complete()
            if not self._sst.rows:
                return BucketReport(self.ordinal, None, 0, "", 0, 0, "", "", self._rows_in, self._seconds())
            info = self._sst.finish()
            self._check_samples()
            folder, bucket = self._spec.folders[self.ordinal]
            path = sst_path(folder, bucket, str(uuid.uuid4()))
            self._spec.storage.upload(self._file, path)
            return BucketReport(
                ordinal=self.ordinal,
                path=path,
                bytes=info.bytes,
                checksum=info.checksum,
                rows=info.rows,
                hidden_rows=self._hidden_rows,
                first_key=info.first_key.hex(),
                last_key=info.last_key.hex(),
                rows_in=self._rows_in,
                seconds=self._seconds(),
                ids_kept=self._ids.kept if self._ids else 0,
                ids_minted=self._ids.minted if self._ids else 0,
                last_id=self._ids.last if self._ids else 0,
            )
        finally:
            self.close()

    def close(self) -> None:
        """Remove the scratch folder; a file that is not stored by then is given up."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hidden_long_ago(self, since: pa.Array, before_ms: int) -> np.ndarray:
        """Of the state column `HIDDEN_SINCE`, the last of the stored ones; a row without it was never told to go."""
        long_ago: np.ndarray = pc.fill_null(pc.less(since, before_ms), False).to_numpy(zero_copy_only=False)
        return long_ago

    def _key_of(self, columns: Sequence[pa.Array]) -> Callable[[int], str]:
        """Shows the key of a row, for people."""
        names = [column.name for column in self._spec.schema.key_columns]

        def key_of(row: int) -> str:
            key = {name: column[row].as_py() for name, column in zip(names, columns, strict=True)}
            return orjson.dumps(key, default=str).decode()

        return key_of

    def _sample(self, keys: list[bytes], rows: list[bytes]) -> None:
        index = self._random.randrange(len(keys))
        if len(self._samples) >= CHECKED_KEYS:
            self._samples.pop(self._random.choice(list(self._samples)))
        self._samples[keys[index]] = rows[index]

    def _check_samples(self) -> None:
        """Sampled keys must be answered from the finished file, byte for byte."""
        from stelae.rocksdb.block_cache import BlockCache
        from stelae.rocksdb.tablet import Tablet
        from stelae.units import MIB

        tablet = Tablet.open(self._folder / "check", [self._file], BlockCache(MIB))
        try:
            for key, row in self._samples.items():
                if tablet.get(key) != row:
                    raise CorruptData(f"a row just written is not found again: key {key.hex()}", place=str(self._file))
        finally:
            tablet.close()

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)


def _freeze_imports() -> None:
    # Spark's workers collect garbage after every task; what was imported need not be searched each time.
    gc.freeze()
