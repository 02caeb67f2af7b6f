"""Tables for tests and benchmarks, written without Spark: through the codecs, `SstWriter` and `TableSnapshots.commit`.

    table = warehouse.create_table("CREATE TABLE shop.users (...)")
    commit_rows(table, [{"user_id": 42, "name": "Ada"}])              # a new snapshot of these rows alone
    commit_rows(table, [...], onto=snapshot, hidden=[...])            # a sorted run more on top of a snapshot's files

Rows are Python dicts as pyarrow takes them, or an Arrow table. Of equal keys the last row counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from stelae.arrow import arrow_schema
from stelae.buckets import BucketFunction
from stelae.keys import KeyCodec
from stelae.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.paths import partition_folder, sst_path
from stelae.rows import RowCodec
from stelae.sst import SstWriter
from stelae.values import value_codec
from stelae.warehouse import Table

DEFAULT_BUCKETS = 4

Rows = Sequence[Mapping[str, Any]] | pa.Table


def commit_rows(
    table: Table,
    rows: Rows,
    *,
    hidden: Rows = (),
    onto: Snapshot | None = None,
    buckets: int | Mapping[tuple[Any, ...], int] | None = None,
    created_ms: int | None = None,
) -> Snapshot:
    """Commit a snapshot of these rows; `hidden` ones become tombstones. `buckets`: a count, or one for each
    partition.
    """
    schema = table.schema
    columns = [(c.name, c) for c in schema.columns]
    arrow = [_arrow_table(table, part) for part in (rows, hidden)]
    every = pa.concat_tables(arrow).combine_chunks()
    is_hidden = np.zeros(every.num_rows, np.bool_)
    is_hidden[arrow[0].num_rows :] = True
    arrays = {name: _whole(every.column(name)) for name, _ in columns}
    keys = KeyCodec(schema.key_columns).encode_list([arrays[c.name] for c in schema.key_columns]) if len(every) else []
    encoded = (
        RowCodec(schema).encode_list([arrays[c.name] for c in schema.value_columns], is_hidden, rows=len(every))
        if len(every)
        else []
    )
    before = {partition.values: partition for partition in onto.partitions} if onto else {}
    partitions = []
    members = _partitions(table, every)
    for values in {**before, **members} or ({(): np.arange(0)} if not schema.partition_keys else {}):
        indexes = members.get(values, np.arange(0))
        old = before.get(values)
        wanted = buckets.get(values, DEFAULT_BUCKETS) if isinstance(buckets, Mapping) else buckets
        count = old.bucket_count if old else wanted or schema.options.bucket or DEFAULT_BUCKETS
        numbers = BucketFunction(schema.bucket_columns).bucket_batch(
            [arrays[c.name].take(pa.array(indexes)) for c in schema.bucket_columns], count
        )
        folder = partition_folder(schema.partition_keys, values)
        partitions.append(
            PartitionFiles(
                values=values,
                bucket_count=count,
                buckets=tuple(
                    BucketFiles(
                        bucket,
                        (
                            *(old.buckets[bucket].files if old else ()),
                            *_write(table, folder, bucket, indexes[numbers == bucket], keys, encoded, is_hidden),
                        ),
                    )
                    for bucket in range(count)
                ),
                folder=folder,
            )
        )
    latest = table.snapshots.latest_id()
    return table.snapshots.commit(
        Snapshot(
            table=str(table.name),
            id=(latest or 0) + 1,
            parent=latest,
            schema_id=schema.id,
            build_id=uuid4().hex,
            kind="merge" if onto else "overwrite",
            created_ms=int(time.time() * 1000) if created_ms is None else created_ms,
            versions={"stelae": "test"},
            partitions=tuple(partitions),
        )
    )


def _write(
    table: Table,
    folder: str,
    bucket: int,
    indexes: np.ndarray[Any, Any],
    keys: list[bytes],
    rows: list[bytes],
    hidden: np.ndarray[Any, Any],
) -> list[DataFile]:
    latest = {keys[i]: i for i in indexes.tolist()}  # of equal keys the last
    if not latest:
        return []
    ordered = sorted(latest)
    scratch = table.storage.scratch_folder()
    file = scratch / "new.sst"
    writer = SstWriter(file, table.schema.options.file_compression)
    writer.write(ordered, [rows[latest[key]] for key in ordered])
    info = writer.finish()
    path = sst_path(folder, bucket, uuid4().hex)
    table.storage.upload(file, path)
    file.unlink()
    scratch.rmdir()
    return [
        DataFile(
            path=path,
            bytes=info.bytes,
            checksum=info.checksum,
            rows=info.rows,
            hidden_rows=int(hidden[[latest[key] for key in ordered]].sum()),
            first_key=info.first_key,
            last_key=info.last_key,
        )
    ]


def _arrow_table(table: Table, rows: Rows) -> pa.Table:
    # Tombstones may have nulls anywhere.
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(table.schema.columns)])
    if isinstance(rows, pa.Table):
        return rows.select(schema.names).cast(schema)
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _partitions(table: Table, rows: pa.Table) -> dict[tuple[Any, ...], np.ndarray[Any, Any]]:
    """Row numbers by the JSON values of the partition columns."""
    columns = table.schema.partition_columns
    if not columns:
        return {(): np.arange(rows.num_rows)}
    codecs = [value_codec(column) for column in columns]
    members: dict[tuple[Any, ...], list[int]] = {}
    for index, row in enumerate(rows.select([c.name for c in columns]).to_pylist()):
        values = tuple(
            codec.to_json(codec.from_python(row[column.name], column.name))
            for codec, column in zip(codecs, columns, strict=True)
        )
        members.setdefault(values, []).append(index)
    return {values: np.array(indexes) for values, indexes in members.items()}
