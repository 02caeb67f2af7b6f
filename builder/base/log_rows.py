"""Rows that were written online since the parent snapshot: read from the log, and merged like stored rows.

    segments of the log, a task each
      → decoded, a batch of rows at a time
      → placed by the parent's buckets, looked up in them      the cost follows the log, not the table
      → a key that is visible in the parent: that row counts, the one of the log is dropped
      → kept while the build runs: they are counted, then merged

So of one key a visible stored row comes first, then the row of the log, then a hidden stored row, as for readers
(docs/format.md#log). A hidden row whose key is in the log is left out of the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stelae.builder.base.snapshot_rows import as_declared, comes_as_declared
from stelae.builder.lease.lease import BuildLease
from stelae.builder.plan.build_plan import PartitionPlan, files_of
from stelae.builder.plan.partitions import Values, sum_partitions
from stelae.builder.plan.placement import with_ordinals
from stelae.builder.spark_sql.added_columns import (
    HIDDEN_COLUMN,
    LOGGED_ROW_COLUMN,
    PARENT_ORDINAL_COLUMN,
    REPLACED_COLUMN_PREFIX,
    REPLACES_HIDDEN_COLUMN,
)
from stelae.builder.spark_sql.python_steps import map_batches
from stelae.builder.spark_sql.spark_errors import raise_marked
from stelae.builder.spark_sql.sql_text import Query, all_of, col, sql, struct
from stelae.encoding.keys import KeyCodec
from stelae.encoding.row_header import hidden_mask
from stelae.errors import Conflict, StelaeError
from stelae.log.reader import LogPart, read_part
from stelae.log.records import Inserted
from stelae.schema.merge_rules import state_columns
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table
from stelae.spark.bucket_scan import SCAN_BATCH_ROWS, StoredRowDecoder, open_bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stelae.rocksdb.tablet import Tablet


MAX_TASKS = 200


@dataclass(frozen=True)
class LoggedRows:
    """Rows of the log that count, computed once."""

    schema: TableSchema
    frame: DataFrame
    """Columns as `snapshot_rows.stored_rows` gives them with state, and `__stelae_replaces_hidden`."""
    counts: Mapping[Values, int]
    """Rows by partition."""
    replaced: int
    """Of them, those in whose place the parent has a hidden row."""

    @property
    def rows(self) -> Query:
        return Query.of(self.frame).with_columns({}, without=[REPLACES_HIDDEN_COLUMN])

    def without_replaced(self, base: Query) -> Query:
        """Base rows without the hidden ones whose place rows of the log take."""
        names = {f"{REPLACED_COLUMN_PREFIX}{column.id}": column.name for column in self.schema.primary_key_columns}
        replaced = Query.of(self.frame).where(col(REPLACES_HIDDEN_COLUMN))
        replaced = replaced.select({alias: col(name) for alias, name in names.items()})
        same = all_of(col(name).equal_null_safe(col(alias)) for alias, name in names.items())
        return base.join(replaced, same, "LEFT ANTI")


@contextmanager
def rows_of_log(spark: SparkSession, lease: BuildLease) -> Iterator[LoggedRows | None]:
    """The rows of the log that a build covers, as long as the block runs; None where there are no records."""
    table = lease.table
    frame = _log_rows(spark, table, lease.parent, lease.log_parts())
    if frame is None:
        yield None
        return
    frame = frame.cache()  # In memory and on disk.
    try:
        sums = sum_partitions(table.schema, frame, sql(1), col(REPLACES_HIDDEN_COLUMN).cast("INT"))
        counts = {values: rows for values, (rows, _) in sums if rows}
        yield LoggedRows(table.schema, frame, counts, sum(replaced for _, (_, replaced) in sums))
    finally:
        frame.unpersist()


def _log_rows(spark: SparkSession, table: Table, parent: Snapshot | None, parts: Sequence[LogPart]) -> DataFrame | None:
    """The rows of the log's records in some parts whose key is not visible in the parent."""
    schema = table.schema
    if not parts:
        return None
    state = state_columns(schema)
    decoder = StoredRowDecoder(table, schema, state)
    tasks = spark.range(0, len(parts), 1, len(parts))
    read = map_batches(tasks, _PartReader(decoder, tuple(parts)), decoder.ddl)
    declared = {**as_declared([*schema.columns, *state]), HIDDEN_COLUMN: col(HIDDEN_COLUMN)}
    if parent is None:
        return Query.of(read).select({**declared, REPLACES_HIDDEN_COLUMN: False}).frame()
    partitions = _parent_partitions(parent)
    buckets = [bucket for partition in partitions if partition.base for bucket in partition.base.buckets]
    task_count = max(1, min(len(buckets), MAX_TASKS))
    placed = with_ordinals(Query.of(read), schema, partitions, PARENT_ORDINAL_COLUMN)
    moved = placed.repartition(task_count, PARENT_ORDINAL_COLUMN).sort_within_partitions([PARENT_ORDINAL_COLUMN])
    # In one column: each costs round trips. By number: `mapInArrow` takes a dot or a back quote in a name for syntax.
    numbered = {f"_{i}": col(column.name) for i, column in enumerate(decoder.columns)}
    row = {**numbered, HIDDEN_COLUMN: col(HIDDEN_COLUMN)}
    given = moved.select({PARENT_ORDINAL_COLUMN: col(PARENT_ORDINAL_COLUMN), LOGGED_ROW_COLUMN: struct(row)})
    lookup = _Lookup(decoder, tuple(tuple(files_of(bucket)) for bucket in buckets))
    kept = map_batches(given.frame(), lookup, f"{decoder.ddl}, {REPLACES_HIDDEN_COLUMN} BOOLEAN")
    if comes_as_declared(decoder):
        return kept
    return Query.of(kept).select({**declared, REPLACES_HIDDEN_COLUMN: col(REPLACES_HIDDEN_COLUMN)}).frame()


def _parent_partitions(parent: Snapshot) -> list[PartitionPlan]:
    """The partitions of the parent with their buckets numbered through."""
    partitions = []
    first = 0
    for partition in parent.partitions:
        partitions.append(PartitionPlan(partition.values, partition.folder, partition.bucket_count, partition, first))
        first += partition.bucket_count
    return partitions


@dataclass(frozen=True)
class _PartReader:
    """Runs on executors: turns numbers of parts into the rows in them. Pickled with the task."""

    decoder: StoredRowDecoder
    parts: tuple[LogPart, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from self._read(self.parts[index])
        except StelaeError as error:
            raise_marked(error)

    def _read(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        """Records hold a few rows each: those of a partition are decoded together."""
        waiting: dict[Values, tuple[list[bytes], list[bytes]]] = {}
        for entry in read_part(part):
            if not isinstance(entry.record, Inserted):
                continue
            self._check_schema(entry.record.schema_id)
            keys, rows = waiting.setdefault(entry.record.partition, ([], []))
            keys += entry.record.keys
            rows += entry.record.rows
            if len(keys) >= SCAN_BATCH_ROWS:
                yield self.decoder.batch(entry.record.partition, keys, rows)
                del waiting[entry.record.partition]
        for partition, (keys, rows) in waiting.items():
            if keys:
                yield self.decoder.batch(partition, keys, rows)

    def _check_schema(self, schema_id: int) -> None:
        if schema_id not in self.decoder.table.schemas:
            raise Conflict(
                f"the table was altered meanwhile: rows were written online with schema {schema_id}",
                place=str(self.decoder.table.name),
                hint="build again",
            )


@dataclass(frozen=True)
class _Lookup:
    """Runs on executors: drops rows whose key is visible in the parent. Pickled with the task.

    Batches come sorted by the ordinal of their bucket: each bucket is opened once a task.
    """

    decoder: StoredRowDecoder
    buckets: tuple[tuple[str, ...], ...]
    """Files of each bucket of the parent, by ordinal."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with ExitStack() as stack:
                opened, tablet = -1, None
                for batch in batches:
                    # Null, in a partition that the parent has not, becomes -1.
                    ordinals = batch.column(0).fill_null(-1).to_numpy(zero_copy_only=False)
                    rows = pa.RecordBatch.from_struct_array(batch.column(1))
                    bounds = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(ordinals)]
                    for start, stop in pairwise(bounds):
                        ordinal = int(ordinals[start])
                        if ordinal != opened:
                            stack.close()
                            files = self.buckets[ordinal] if ordinal >= 0 else ()
                            storage = self.decoder.table.storage
                            tablet = stack.enter_context(open_bucket(storage, files)) if files else None
                            opened = ordinal
                        yield self._kept(rows.slice(start, stop - start), tablet)
        except StelaeError as error:
            raise_marked(error)

    def _kept(self, batch: pa.RecordBatch, tablet: Tablet | None) -> pa.RecordBatch:
        """Of rows with the decoded columns."""
        hidden = np.zeros(batch.num_rows, dtype=bool)
        if tablet is not None:
            found = tablet.multi_get(self._keys(batch))
            there = [index for index, row in enumerate(found) if row is not None]
            rows = pa.array([found[index] for index in there], pa.binary())
            hidden[there] = hidden_mask(rows)
            keep = hidden.copy()
            keep[[index for index, row in enumerate(found) if row is None]] = True
            batch, hidden = batch.filter(pa.array(keep)), hidden[keep]
        names = [*(column.name for column in self.decoder.columns), HIDDEN_COLUMN, REPLACES_HIDDEN_COLUMN]
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(hidden, pa.bool_())], names=names)

    def _keys(self, batch: pa.RecordBatch) -> list[bytes]:
        schema = self.decoder.schema
        first = len(schema.partition_columns)
        return KeyCodec(schema.key_columns).encode_list(batch.columns[first : first + len(schema.key_columns)])
