"""Rows of a snapshot, read back as a DataFrame: the base that a build merges into, and what `read` returns.

One task a bucket opens the bucket's sorted files and hands on Arrow batches in key order, decoded vectorised.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from builder.changes import HIDDEN
from builder.plan import files_of
from stelae import types as t
from stelae.manifest import PartitionFiles
from stelae.merging import state_columns
from stelae.schema import Column, TableSchema
from stelae.warehouse import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 16_384


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
    reads = [
        BucketRead(partition.values, tuple(files_of(bucket)))
        for partition in partitions
        for bucket in partition.buckets
        if bucket.files
    ]
    from pyspark.sql import functions as f

    read = [*_columns_as_read(schema), *state]
    columns = [f"{t.quote_name(c.name)} {as_arrow_has_it(c.type).spark()}" for c in read]
    ddl = ", ".join([*columns, f"{HIDDEN} BOOLEAN"])
    # A cast to the type that a column has already is dropped by Spark.
    shown = [*schema.columns, *state]
    wanted = [f.col(t.quote_name(c.name)).cast(c.type.spark()).alias(c.name) for c in shown]
    if not reads:
        return spark.createDataFrame([], ddl).select(*wanted, HIDDEN)
    reader = _BucketReader(table, schema, tuple(reads), tuple(state))
    return spark.range(0, len(reads), 1, len(reads)).mapInArrow(reader, ddl).select(*wanted, HIDDEN)


def as_arrow_has_it(data_type: t.DataType) -> t.DataType:
    """The type that Spark sees in Arrow data: TIME has no precision there, so Spark takes it for the finest."""
    match data_type:
        case t.Time():
            return t.Time(precision=t.MAX_TIME_PRECISION)
        case t.Array(element=element):
            return t.Array(element=as_arrow_has_it(element))
        case t.Map(key=key, value=value):
            return t.Map(key=as_arrow_has_it(key), value=as_arrow_has_it(value))
        case t.Row(fields=fields):
            return t.Row(fields=tuple(t.Field(each.name, as_arrow_has_it(each.type)) for each in fields))
    return data_type


def schema_order(schema: TableSchema) -> list[str]:
    """The table's columns in declared order, quoted for Spark."""
    return [t.quote_name(name) for name in schema.column_names]


def _columns_as_read(schema: TableSchema) -> list[Column]:
    return [*schema.partition_columns, *schema.key_columns, *schema.value_columns]


@dataclass(frozen=True)
class _BucketReader:
    """Runs on executors: turns numbers of buckets into their rows. Pickled with the task."""

    table: Table
    schema: TableSchema
    reads: tuple[BucketRead, ...]
    state: tuple[Column, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from self._read(self.reads[index])

    def _read(self, read: BucketRead) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from stelae.arrow import arrow_schema, arrow_type
        from stelae.keys import KeyCodec
        from stelae.rows import RowReader
        from stelae.sst import MIB, BlockCache, Tablet
        from stelae.values import value_codec

        columns = [*_columns_as_read(self.schema), *self.state]
        values = [column.name for column in (*self.schema.value_columns, *self.state)]
        arrow = arrow_schema(columns)
        out = pa.schema([*(pa.field(field.name, field.type) for field in arrow), pa.field(HIDDEN, pa.bool_())])
        keys = KeyCodec(self.schema.key_columns)
        rows = RowReader(self.table.schemas, self.schema)
        partition = [
            pa.scalar(
                value_codec(column).to_python(value_codec(column).from_json(value, column.name)),
                arrow_type(column.type),
            )
            for column, value in zip(self.schema.partition_columns, read.partition_values, strict=True)
        ]
        folder = Path(tempfile.mkdtemp(prefix="stelae-read-"))
        try:
            tablet = Tablet.open(folder / "db", self._local_files(read, folder), BlockCache(8 * MIB))
            try:
                scan = tablet.scan()
                while chunk := list(islice(scan, BATCH_ROWS)):
                    key_bytes = pa.array([key for key, _ in chunk], pa.binary())
                    row_bytes = pa.array([row for _, row in chunk], pa.binary())
                    constants = [pa.repeat(value, len(chunk)) for value in partition]
                    yield pa.RecordBatch.from_arrays(
                        [
                            *constants,
                            *keys.decode_batch(key_bytes),
                            *rows.decode_batch(row_bytes, values),
                            pa.array(rows.hidden_mask(row_bytes)),
                        ],
                        schema=out,
                    )
            finally:
                tablet.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _local_files(self, read: BucketRead, folder: Path) -> list[Path]:
        files = []
        for index, path in enumerate(read.files):
            local = self.table.storage.local_path(path)
            if local is None:
                local = folder / f"{index:06d}.sst"
                self.table.storage.download(path, local)
            files.append(local)
        return files
