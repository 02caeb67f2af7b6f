"""Rows of a snapshot, read back as a DataFrame: the base that a build merges into, and what `read` returns.

One task a bucket opens the bucket's sorted files and hands on Arrow batches in key order, decoded vectorised.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from builder.changes import HIDDEN
from builder.plan import files_of
from builder.spark_errors import translated
from stelae import types as t
from stelae.manifest import PartitionFiles
from stelae.merging import state_columns
from stelae.schema import Column, TableSchema
from stelae.warehouse import Table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from stelae.keys import KeyCodec
    from stelae.rows import RowReader
    from stelae.sst import Tablet
    from stelae.storage import Storage

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
    shown = [*schema.columns, *state]
    reads = [
        BucketRead(partition.values, tuple(files_of(bucket)))
        for partition in partitions
        for bucket in partition.buckets
        if bucket.files
    ]
    decoder = RowDecoder(table, schema, tuple(state))
    if not reads:
        frame = spark.createDataFrame([], decoder.ddl)
    else:
        reader = _BucketReader(decoder, tuple(reads))
        frame = spark.range(0, len(reads), 1, len(reads)).mapInArrow(reader, decoder.ddl)
    return frame.select(*as_declared(shown), HIDDEN)


def count_overlaid(spark: SparkSession, table: Table, schema: TableSchema, partitions: Sequence[PartitionFiles]) -> int:
    """Rows in files of the partitions that a newer file of the bucket has another row for: they are not read."""
    overlaid = [replace(p, buckets=tuple(b for b in p.buckets if len(b.files) > 1)) for p in partitions]
    rows = sum(file.rows for partition in overlaid for file in partition.files)
    if not rows:
        return 0
    with translated(f"counting the rows of {table.name}"):
        return rows - stored_rows(spark, table, schema, overlaid).count()


def as_declared(columns: Sequence[Column]) -> list[SparkColumn]:
    """Decoded columns in exactly the table's types."""
    from pyspark.sql import functions as f

    # A cast to the type that a column has already is dropped by Spark.
    return [f.col(t.quote_name(c.name)).cast(c.type.spark()).alias(c.name) for c in columns]


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
class RowDecoder:
    """Keys and rows as they are stored, made columns. Pickled with the tasks that read."""

    table: Table
    schema: TableSchema
    state: tuple[Column, ...] = ()

    @property
    def columns(self) -> list[Column]:
        return [*_columns_as_read(self.schema), *self.state]

    @property
    def ddl(self) -> str:
        """The columns as Spark sees them, and `__stelae_hidden`."""
        columns = [f"{t.quote_name(c.name)} {as_arrow_has_it(c.type).spark()}" for c in self.columns]
        return ", ".join([*columns, f"{HIDDEN} BOOLEAN"])

    @cached_property
    def _codecs(self) -> tuple[KeyCodec, RowReader, pa.Schema]:
        import pyarrow as pa

        from stelae.arrow import arrow_schema
        from stelae.keys import KeyCodec
        from stelae.rows import RowReader

        arrow = arrow_schema(self.columns)
        out = pa.schema([*(pa.field(field.name, field.type) for field in arrow), pa.field(HIDDEN, pa.bool_())])
        return KeyCodec(self.schema.key_columns), RowReader(self.table.schemas, self.schema), out

    def hidden_mask(self, rows: pa.Array) -> np.ndarray:
        """Which of the rows are hidden."""
        return self._codecs[1].hidden_mask(rows)

    def batch(self, partition: Sequence[object], keys: Sequence[bytes], rows: Sequence[bytes]) -> pa.RecordBatch:
        """Rows of one partition; its values are those of the manifest."""
        import pyarrow as pa

        from stelae.arrow import arrow_type
        from stelae.values import value_codec

        key_codec, row_reader, schema = self._codecs
        values = [column.name for column in (*self.schema.value_columns, *self.state)]
        key_bytes, row_bytes = pa.array(keys, pa.binary()), pa.array(rows, pa.binary())
        constants = [
            pa.repeat(
                pa.scalar(
                    value_codec(column).to_python(value_codec(column).from_json(value, column.name)),
                    arrow_type(column.type),
                ),
                len(keys),
            )
            for column, value in zip(self.schema.partition_columns, partition, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [
                *constants,
                *key_codec.decode_batch(key_bytes),
                *row_reader.decode_batch(row_bytes, values),
                pa.array(row_reader.hidden_mask(row_bytes)),
            ],
            schema=schema,
        )


@contextmanager
def open_bucket(storage: Storage, files: Sequence[str]) -> Iterator[Tablet]:
    """The tablet of a bucket, in a folder of its own on this machine, as long as the block runs."""
    from stelae.sst import MIB, BlockCache, Tablet

    folder = Path(tempfile.mkdtemp(prefix="stelae-read-"))
    try:
        tablet = Tablet.open(folder / "db", _local_files(storage, files, folder), BlockCache(8 * MIB))
        try:
            yield tablet
        finally:
            tablet.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local_files(storage: Storage, paths: Sequence[str], folder: Path) -> list[Path]:
    files = []
    for index, path in enumerate(paths):
        local = storage.local_path(path)
        if local is None:
            local = folder / f"{index:06d}.sst"
            storage.download(path, local)
        files.append(local)
    return files


@dataclass(frozen=True)
class _BucketReader:
    """Runs on executors: turns numbers of buckets into their rows. Pickled with the task."""

    decoder: RowDecoder
    reads: tuple[BucketRead, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from self._read(self.reads[index])

    def _read(self, read: BucketRead) -> Iterator[pa.RecordBatch]:
        with open_bucket(self.decoder.table.storage, read.files) as tablet:
            scan = tablet.scan()
            while chunk := list(islice(scan, BATCH_ROWS)):
                keys, rows = zip(*chunk, strict=True)
                yield self.decoder.batch(read.partition_values, keys, rows)
