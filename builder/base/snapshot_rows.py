"""Rows of a snapshot, read back as a DataFrame: the base that a build merges into, and what `read` returns.

One task a bucket opens the bucket's sorted files and hands on Arrow batches in key order, decoded vectorised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from stelae.builder.plan.build_plan import files_of
from stelae.builder.spark_sql.added_columns import HIDDEN_COLUMN
from stelae.builder.spark_sql.python_steps import map_batches
from stelae.builder.spark_sql.spark_errors import translated
from stelae.builder.spark_sql.sql_text import Query, Sql, col
from stelae.schema.merge_rules import state_columns
from stelae.schema.table_schema import Column, TableSchema
from stelae.snapshot.manifest import PartitionFiles
from stelae.snapshot.warehouse import Table
from stelae.spark.bucket_scan import SCAN_BATCH_ROWS, StoredRowDecoder, open_bucket
from stelae.spark.column_types import as_arrow_has_it

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class BucketRead:
    """One bucket to read: what a task needs, small enough to travel with it."""

    partition_values: tuple[object, ...]
    """As JSON, in the order of the partition columns."""
    files: tuple[str, ...]
    """Paths below the table folder, oldest sorted run first."""


def stored_rows(
    spark: SparkSession,
    table: Table,
    schema: TableSchema,
    partitions: Sequence[PartitionFiles],
    *,
    with_state: bool = False,
) -> DataFrame:
    """All stored rows of the partitions, tombstones included: the table's columns, with `with_state` what later merges
    need besides, and `__stelae_hidden`.
    """
    state = state_columns(schema) if with_state else ()
    shown = [*schema.columns, *state]
    reads = [
        BucketRead(partition.values, tuple(files_of(bucket)))
        for partition in partitions
        for bucket in partition.buckets
        if bucket.files
    ]
    decoder = StoredRowDecoder(table, schema, tuple(state))
    if not reads:
        frame = spark.createDataFrame([], decoder.ddl)
    else:
        reader = _BucketReader(decoder, tuple(reads))
        frame = map_batches(spark.range(0, len(reads), 1, len(reads)), reader, decoder.ddl)
    if comes_as_declared(decoder):
        return frame
    return Query.of(frame).select({**as_declared(shown), HIDDEN_COLUMN: col(HIDDEN_COLUMN)}).frame()


def superseded_rows(
    spark: SparkSession, table: Table, schema: TableSchema, partitions: Sequence[PartitionFiles]
) -> int:
    """Rows in files of the partitions that a newer file of the bucket has another row for: they are not read."""
    stacked = [replace(p, buckets=tuple(b for b in p.buckets if len(b.files) > 1)) for p in partitions]
    rows = sum(file.rows for partition in stacked for file in partition.files)
    if not rows:
        return 0
    with translated(f"counting the rows of {table.name}"):
        return rows - stored_rows(spark, table, schema, stacked).count()


def comes_as_declared(decoder: StoredRowDecoder) -> bool:
    """Whether decoded columns have the table's order and types already."""
    shown = [*decoder.schema.columns, *decoder.state]
    return decoder.columns == shown and all(as_arrow_has_it(column.type) == column.type for column in shown)


def as_declared(columns: Sequence[Column]) -> dict[str, Sql]:
    """Decoded columns in exactly the table's types."""
    # A cast to the type that a column has already is dropped by Spark.
    return {column.name: col(column.name).cast(column.type.spark()) for column in columns}


@dataclass(frozen=True)
class _BucketReader:
    """Runs on executors: turns numbers of buckets into their rows. Pickled with the task."""

    decoder: StoredRowDecoder
    reads: tuple[BucketRead, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from self._read(self.reads[index])

    def _read(self, read: BucketRead) -> Iterator[pa.RecordBatch]:
        with open_bucket(self.decoder.table.storage, read.files) as tablet:
            scan = tablet.scan()
            while chunk := list(islice(scan, SCAN_BATCH_ROWS)):
                keys, rows = zip(*chunk, strict=True)
                yield self.decoder.batch(read.partition_values, keys, rows)
