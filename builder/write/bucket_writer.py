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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson

from stelae.builder.base.owner_client import AskOwner
from stelae.builder.merge.functions import ArrowFold
from stelae.builder.merge.last_record import KeyComparison, only_sequence
from stelae.builder.plan.errors import raise_marked
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.errors import CorruptData, InvalidRequest, StelaeError
from stelae.log.id_claims import FIRST_ID, IdRange
from stelae.schema.merge_rules import stored_columns
from stelae.schema.options import FileOptions
from stelae.schema.table_schema import TableSchema
from stelae.storage.base import Storage
from stelae.storage.paths import sst_path

if TYPE_CHECKING:
    import pyarrow as pa

REPORT_DDL = "report STRING"

SAMPLES = 16
"""Keys of each file that are looked up in it before it is stored."""


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What one task wrote for one slot. A bucket that all rows were deleted of has no file."""

    slot: int
    path: str | None
    bytes: int
    checksum: str
    rows: int
    hidden_rows: int
    first_key: str
    """Hexadecimal, as is `last_key`."""
    last_key: str
    rows_in: int
    """Records that came in: base rows and changes."""
    seconds: float
    """From the first batch to the stored file, waiting for Spark's sort included."""
    ids_kept: int = 0
    """Visible rows that came with an id."""
    ids_minted: int = 0
    """Visible rows that got one here."""
    last_id: int = 0
    """The greatest id of a row; 0 if there is none."""

    @classmethod
    def decode(cls, text: str) -> BucketReport:
        return cls(**orjson.loads(text))


@dataclass(frozen=True)
class IdRanges:
    """The ids that a build gives, each range to the rows of one slot in key order."""

    by_slot: Mapping[int, IdRange]


@dataclass(frozen=True)
class WriteSpec:
    """What writer tasks need. Pickled with each task."""

    schema: TableSchema
    storage: Storage
    """Rooted in the table folder."""
    folders: dict[int, tuple[str, int]]
    """Slot → partition folder and bucket."""
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
    ids: IdRanges | None = None
    """For dictionary tables."""
    ask: AskOwner | None = None
    """Who gives the other ids."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        _freeze_imports()
        try:
            for report in write_slots(self, batches if self.ask is None else self.ask(batches)):
                text = orjson.dumps(asdict(report)).decode()
                yield pa.RecordBatch.from_pydict({"report": pa.array([text], pa.string())})
        except StelaeError as error:
            raise_marked(error)


def write_slots(spec: WriteSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[BucketReport]:
    """Write the buckets of one task; a report for each slot that had rows."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    sink = _SlotSink(spec, context.partitionId() if context else 0)
    same_key = KeyComparison(spec.schema)
    carry: pa.RecordBatch | None = None
    try:
        for batch in batches:
            whole = batch if carry is None else pa.concat_batches([carry, batch])
            if not whole.num_rows:
                continue
            # The last record may have successors in the next batch: it waits for them.
            carry = whole.slice(whole.num_rows - 1)
            yield from sink.write(whole.slice(0, whole.num_rows - 1), same_key.last_of_key(whole))
        if carry is not None:
            yield from sink.write(carry, np.array([True]))
        yield from sink.finish()
    finally:
        sink.close()


class _SlotIds:
    """Gives the visible rows of a slot that have no id the ids of its range, in order; checks that all are distinct."""

    def __init__(self, schema: TableSchema, ids: IdRange | None) -> None:
        names = [column.name for column in stored_columns(schema)]
        self.position = names.index(schema.options.auto_increment_fields[0])
        """Of the auto-increment column among the stored columns."""
        self.kept = 0
        self.minted = 0
        self._next, self._end = (FIRST_ID, FIRST_ID) if ids is None else (ids.first, ids.last + 1)
        self._given: list[np.ndarray] = []

    @property
    def last(self) -> int:
        return max((int(ids.max()) for ids in self._given), default=0)

    def numbered(self, column: pa.Array, hidden: np.ndarray) -> pa.Array:
        """The column with the ids that lacked. Hidden rows have none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lacking = column.is_null().to_numpy(zero_copy_only=False) & ~hidden
        count = int(lacking.sum())
        if self._next + count > self._end:
            raise _other_rows()
        ids = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        ids[lacking] = np.arange(self._next, self._next + count)
        self._next += count
        visible = ids[~hidden]
        self.minted += count
        self.kept += len(visible) - count
        if len(visible):
            self._given.append(visible)
        return pa.array(ids, column.type, mask=hidden)

    def check_complete(self) -> None:
        """All ids of the range are given, and no id is given to two rows."""
        if self._next != self._end:
            raise _other_rows()
        ids = np.concatenate(self._given) if self._given else np.zeros(0, np.int64)
        distinct, counts = np.unique(ids, return_counts=True)
        if len(distinct) != len(ids):
            raise CorruptData(
                f"id {int(distinct[counts > 1][0]):,} belongs to two rows of a bucket",
                hint="nothing was committed; run: stelae verify",
            )
        if len(distinct) and distinct[0] < FIRST_ID:
            raise CorruptData(f"a row has id {int(distinct[0])}; ids start at {FIRST_ID}")


def _other_rows() -> InvalidRequest:
    return InvalidRequest(
        "the input has other new keys than when they were counted",
        hint="Spark computed it twice, with different results: write it to files, or cache it, before it is built",
    )


class _SlotSink:
    """Hands the rows of each slot to a writer of their own."""

    def __init__(self, spec: WriteSpec, task: int) -> None:
        self._spec = spec
        self._task = task
        self._writer: _SlotWriter | None = None

    def write(self, batch: pa.RecordBatch, last_of_key: np.ndarray) -> Iterator[BucketReport]:
        """Write rows; `last_of_key` marks those that survive. Gives the reports of slots that are complete."""
        if not batch.num_rows:
            return
        slots = batch.column(0).to_numpy()
        starts = np.flatnonzero(np.diff(slots)) + 1
        for start, stop in zip([0, *starts.tolist()], [*starts.tolist(), batch.num_rows], strict=True):
            slot = int(slots[start])
            if self._writer is None or self._writer.slot != slot:
                yield from self.finish()
                self._writer = _SlotWriter(self._spec, self._checked(slot))
            self._writer.write(batch.slice(start, stop - start), last_of_key[start:stop])

    def finish(self) -> Iterator[BucketReport]:
        if self._writer is not None:
            yield self._writer.finish()
            self._writer = None

    def close(self) -> None:
        """Leave nothing behind where a task fails."""
        if self._writer is not None:
            self._writer.close()

    def _checked(self, slot: int) -> int:
        previous = -1 if self._writer is None else self._writer.slot
        # A planner that replaces the partitioning does it silently; then buckets would be torn apart. Never write that.
        if slot % self._spec.task_count != self._task or slot <= previous:
            raise CorruptData(
                f"task {self._task} of {self._spec.task_count} got a row of slot {slot} after slot {previous}",
                hint="Spark did not keep the partitioning that the build asked for; please report the query plan",
            )
        return slot


class _SlotWriter:
    """One bucket's file, from its first row to its report."""

    def __init__(self, spec: WriteSpec, slot: int) -> None:
        from stelae.rocksdb.sst_writer import SstWriter

        self.slot = slot
        self._spec = spec
        self._started = time.monotonic()
        self._folder = spec.storage.scratch_folder()
        self._file = self._folder / "rows.sst"
        self._sst = SstWriter(self._file, spec.files)
        self._keys = KeyCodec(spec.schema.key_columns)
        self._rows = RowCodec(spec.schema)
        self._hidden_rows = 0
        self._rows_in = 0
        self._ids = None if spec.ids is None else _SlotIds(spec.schema, spec.ids.by_slot.get(slot))
        self._samples: dict[bytes, bytes] = {}
        self._random = random.Random(slot)  # noqa: S311 - a sample, no secret.

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
                return BucketReport(self.slot, None, 0, "", 0, 0, "", "", self._rows_in, self._seconds())
            info = self._sst.finish()
            self._check_samples()
            folder, bucket = self._spec.folders[self.slot]
            path = sst_path(folder, bucket, str(uuid.uuid4()))
            self._spec.storage.upload(self._file, path)
            return BucketReport(
                slot=self.slot,
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
        import pyarrow.compute as pc

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
        if len(self._samples) >= SAMPLES:
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
