"""Rows written online, without a server: what one would put into the log.

inserted = insert_online(table, [{"word": "new"}])      # as an owner that takes the table over, and releases it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.encoding.values import value_codec
from stelae.log.records import Granted, Inserted, Record
from stelae.ownership.id_claims import TableClaims, id_limit
from stelae.ownership.takeover import take_over
from stelae.snapshot.warehouse import Table

URL = "http://127.0.0.1:9"


def insert_online(table: Table, keys: Sequence[Mapping[str, Any]], *, records: int = 1) -> dict[tuple[Any, ...], int]:
    """Write rows for these keys into the log, in so many records a partition; ids by primary key."""
    taken = take_over(table, "server", "test", URL)
    writer = taken.writer
    assert writer is not None
    try:
        logged, ids = online_records(table, keys, epoch=taken.epoch.number, records=records)
        writer.append(logged)
        writer.flush()
    finally:
        taken.release()
    return ids


def online_records(
    table: Table, keys: Sequence[Mapping[str, Any]], *, epoch: int, records: int
) -> tuple[list[Record], dict[tuple[Any, ...], int]]:
    """Records of the log for new keys, and the ids that they got."""
    schema = table.schema
    minted = schema.auto_increment
    numbers: Sequence[int] = [0] * len(keys)
    logged: list[Record] = []
    if minted is not None:
        claims = TableClaims(table.storage, id_limit(minted))
        claim = claims.claim(len(keys) + 3, owner="test", epoch=epoch, purpose="online")
        logged.append(Granted(claim.number, claim.ids.first, claim.ids.last))
        numbers = range(claim.ids.first, claim.ids.first + len(keys))
    codecs = {column.name: value_codec(column) for column in schema.columns}
    key_codec, row_codec = KeyCodec(schema.key_columns), RowCodec(schema)
    buckets = BucketFunction(schema.bucket_columns)
    found: dict[tuple[Any, ...], list[tuple[bytes, bytes]]] = {}
    ids = {}
    for key, number in zip(keys, numbers, strict=True):
        values = {name: codecs[name].from_python(value, name) for name, value in key.items()}
        partition = tuple(codecs[name].to_json(values[name]) for name in schema.partition_keys)
        bucket = buckets.bucket([values[c.name] for c in schema.bucket_columns], 7)
        row = [number if column == minted else None for column in row_codec.columns]
        found.setdefault((partition, bucket), []).append(
            (key_codec.encode([values[c.name] for c in schema.key_columns]), row_codec.encode(row))
        )
        ids[tuple(key[name] for name in schema.primary_key)] = number
    for (partition, bucket), rows in found.items():
        for part in range(records):
            some = rows[part::records]
            if some:
                logged.append(
                    Inserted(schema.id, partition, bucket, [k for k, _ in some], [r for _, r in some], len(some))
                )
    return logged, ids
