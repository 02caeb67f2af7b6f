"""The table of the lookup benchmarks: a BIGINT key and five typed columns, whose values look random, so that they
compress no better than those of real tables.

    rows_of(numbers)          rows, by their numbers 0, 1, 2, ...
    ids_of(numbers)           their keys: even, so that the odd ones are keys that are not there, between those that are
    chunks(rows)              all rows of a table in key order, some at a time
    make_people(table, rows)  a snapshot of it, written without Spark, in memory that does not grow with it
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.rocksdb.sst_writer import SstWriter
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.paths import sst_path

CHUNK_ROWS = 250_000
FIRST_MOMENT_US = 1_763_640_000_000_000
YEAR_S = 365 * 24 * 3600

Numbers = npt.NDArray[np.int64]


def create_people(warehouse: Path, name: str, options: Mapping[str, str]) -> Table:
    """The empty table."""
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return Warehouse(warehouse).create_table(
        f"""CREATE TABLE {name} (
            user_id BIGINT, name STRING, city STRING, age INT, score DOUBLE, updated TIMESTAMP(6),
            PRIMARY KEY (user_id) NOT ENFORCED
        ) WITH ({settings})"""
    )


def ids_of(numbers: Numbers) -> Numbers:
    return numbers * 2


def missing_ids_of(numbers: Numbers) -> Numbers:
    """Keys that are not there."""
    return numbers * 2 + 1


def rows_of(numbers: Numbers) -> pa.Table:
    """Rows of these numbers, in their order."""
    mixed = _mix(numbers.astype(np.uint64))
    text = pa.array((mixed % np.uint64(10**12)).astype(np.int64)).cast(pa.string())
    city = pa.array((mixed >> np.uint64(40)).astype(np.int64) % 1000).cast(pa.string())
    moments = FIRST_MOMENT_US + (mixed >> np.uint64(3)).astype(np.int64) % YEAR_S * 1_000_000
    return pa.table(
        {
            "user_id": pa.array(ids_of(numbers)),
            "name": pc.binary_join_element_wise("user", text, " "),
            "city": pc.binary_join_element_wise("city", city, " "),
            "age": pa.array((mixed >> np.uint64(20)).astype(np.int64) % 100).cast(pa.int32()),
            "score": pa.array((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53),
            "updated": pa.array(moments, pa.timestamp("us")),
        }
    )


def chunks(rows: int) -> Iterator[pa.Table]:
    for first in range(0, rows, CHUNK_ROWS):
        yield rows_of(np.arange(first, min(first + CHUNK_ROWS, rows)))


def make_people(table: Table, rows: int) -> Snapshot:
    schema = table.schema
    count = schema.options.bucket
    assert count is not None
    buckets, keys, values = BucketFunction(schema.bucket_columns), KeyCodec(schema.key_columns), RowCodec(schema)
    scratch = table.storage.scratch_folder()
    writers = [SstWriter(scratch / f"{bucket}.sst", schema.options.files) for bucket in range(count)]
    for chunk in chunks(rows):
        numbers = buckets.bucket_batch([chunk["user_id"].combine_chunks()], count)
        for bucket, writer in enumerate(writers):
            part = chunk.take(pa.array(np.flatnonzero(numbers == bucket))).combine_chunks()
            arrays = {name: part[name].combine_chunks() for name in part.column_names}
            writer.write(
                keys.encode_list([arrays[column.name] for column in schema.key_columns]),
                values.encode_list([arrays[column.name] for column in schema.value_columns], rows=len(part)),
            )
    files = []
    for bucket, writer in enumerate(writers):
        info = writer.finish()
        path = sst_path("", bucket, uuid4().hex)
        table.storage.upload(scratch / f"{bucket}.sst", path)
        file = DataFile(path, info.bytes, info.checksum, info.rows, 0, info.first_key, info.last_key)
        files.append(BucketFiles(bucket, (file,)))
    shutil.rmtree(scratch)
    return table.snapshots.commit(
        Snapshot(
            table=str(table.name),
            id=1,
            parent=None,
            schema_id=schema.id,
            build_id=uuid4().hex,
            kind="overwrite",
            created_ms=int(time.time() * 1000),
            versions={"stelae": "benchmark"},
            partitions=(PartitionFiles(values=(), bucket_count=count, buckets=tuple(files), folder=""),),
        )
    )


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64: 64 bits that look random, the same ones for the same value."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
