"""Tables for tests and benchmarks, written without Spark: through the codecs, `SstWriter` and `TableSnapshots.commit`.

    table = warehouse.create_table("CREATE TABLE shop.users (...)")
    commit_rows(table, [{"user_id": 42, "name": "Ada"}])              # a new snapshot of these rows alone
    commit_rows(table, [...], onto=snapshot, hidden=[...])            # a sorted run more on top of a snapshot's files

Rows are dicts of Python values, as `from_python` of `stelae/encoding/values.py` takes them; a column left out is null.
Or an Arrow table, for many. Of equal keys the last row counts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stelae.encoding.arrow import arrow_schema
from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.encoding.values import value_codec
from stelae.ownership.epochs import Epoch, TableOwnership, check_epochs_are_gapless
from stelae.ownership.id_claims import Claim, TableClaims, check_claims_are_dense, check_claims_are_disjoint
from stelae.rocksdb.sst_writer import SstWriter
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.paths import partition_folder, sst_path

DEFAULT_BUCKETS = 4

Rows = Sequence[Mapping[str, Any]] | pa.Table


@dataclass
class Encoded:
    """Rows as they are stored, by position."""

    keys: list[bytes]
    rows: list[bytes]
    hashes: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.bool_]
    partitions: dict[tuple[Any, ...], npt.NDArray[np.int64]]
    """Positions by the JSON values of the partition columns."""


def commit_rows(
    table: Table,
    rows: Rows,
    *,
    hidden: Sequence[Mapping[str, Any]] = (),
    onto: Snapshot | None = None,
    buckets: int | Mapping[tuple[Any, ...], int] | None = None,
    created_ms: int | None = None,
) -> Snapshot:
    """Commit a snapshot of these rows; `hidden` ones become tombstones.

    `buckets`: a count, or one for each partition by its JSON values.
    """
    schema = table.schema
    encoded = _encode_arrow(table, rows) if isinstance(rows, pa.Table) else _encode_dicts(table, rows, hidden)
    before = {partition.values: partition for partition in onto.partitions} if onto else {}
    partitions = []
    for values in {**before, **encoded.partitions}:
        old = before.get(values)
        wanted = buckets.get(values) if isinstance(buckets, Mapping) else buckets
        count = old.bucket_count if old else wanted or schema.options.bucket or DEFAULT_BUCKETS
        indexes = encoded.partitions.get(values, np.arange(0))
        numbers = np.mod(encoded.hashes[indexes], count)
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
                            *_write(table, folder, bucket, indexes[numbers == bucket], encoded),
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


def _write(table: Table, folder: str, bucket: int, indexes: npt.NDArray[np.int64], encoded: Encoded) -> list[DataFile]:
    latest = {encoded.keys[i]: i for i in indexes.tolist()}  # of equal keys the last
    if not latest:
        return []
    keys = sorted(latest)
    scratch = table.storage.scratch_folder()
    file = scratch / "new.sst"
    writer = SstWriter(file, table.schema.options.files)
    writer.write(keys, [encoded.rows[latest[key]] for key in keys])
    info = writer.finish()
    path = sst_path(folder, bucket, uuid4().hex)
    table.storage.upload(file, path)
    shutil.rmtree(scratch)
    hidden_rows = int(encoded.hidden[list(latest.values())].sum())
    return [DataFile(path, info.bytes, info.checksum, info.rows, hidden_rows, info.first_key, info.last_key)]


def _encode_dicts(table: Table, rows: Sequence[Mapping[str, Any]], hidden: Sequence[Mapping[str, Any]]) -> Encoded:
    schema = table.schema
    codecs = {column.name: value_codec(column) for column in schema.columns}
    keys, bucket_of, row_codec = KeyCodec(schema.key_columns), BucketFunction(schema.bucket_columns), RowCodec(schema)
    encoded_keys, encoded_rows, hashes = [], [], []
    partitions: dict[tuple[Any, ...], list[int]] = {} if schema.partition_keys else {(): []}
    for index, (row, is_hidden) in enumerate([*((r, False) for r in rows), *((r, True) for r in hidden)]):
        unknown = row.keys() - codecs.keys()
        assert not unknown, f"no columns: {unknown}"
        values = {
            name: None if is_hidden and row.get(name) is None else codec.from_python(row.get(name), name)
            for name, codec in codecs.items()
        }
        encoded_keys.append(keys.encode([values[c.name] for c in schema.key_columns]))
        encoded_rows.append(row_codec.encode([values[c.name] for c in schema.value_columns], is_hidden))
        hashes.append(bucket_of.hash([values[c.name] for c in schema.bucket_columns]))
        partition = tuple(codecs[name].to_json(values[name]) for name in schema.partition_keys)
        partitions.setdefault(partition, []).append(index)
    return Encoded(
        encoded_keys,
        encoded_rows,
        np.array(hashes, np.int64),
        np.arange(len(encoded_keys)) >= len(rows),
        {values: np.array(indexes, np.int64) for values, indexes in partitions.items()},
    )


def _encode_arrow(table: Table, rows: pa.Table) -> Encoded:
    schema = table.schema
    assert not schema.partition_keys, "partitions: give dicts"
    arrays = {
        field.name: rows.column(field.name).cast(field.type).combine_chunks() for field in arrow_schema(schema.columns)
    }
    return Encoded(
        KeyCodec(schema.key_columns).encode_list([arrays[c.name] for c in schema.key_columns]),
        RowCodec(schema).encode_list([arrays[c.name] for c in schema.value_columns], rows=len(rows)),
        BucketFunction(schema.bucket_columns).hash_batch([arrays[c.name] for c in schema.bucket_columns]),
        np.zeros(len(rows), np.bool_),
        {(): np.arange(len(rows))},
    )


def all_claims(claims: TableClaims) -> list[Claim]:
    """All claims of ids, by number, which fit together."""
    found = [claims.read(number) for number in claims.numbers()]
    check_claims_are_disjoint(found, "claims")
    check_claims_are_dense(found, "claims")
    return found


def all_epochs(ownership: TableOwnership) -> list[Epoch]:
    """All epochs, by number, without gaps."""
    found = [ownership.read(number) for number in ownership.numbers()]
    check_epochs_are_gapless(found, "epochs")
    return found
