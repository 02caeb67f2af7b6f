"""Snapshot manifest, format 1: a snapshot in, the bytes of its file out, and back.

`stelae/snapshot/snapshots.py` stores them; docs/format.md#snapshot-manifest is the contract. The format is closed: a
reader refuses fields that it does not know, and every change of the format is a new format number. The file is sealed
and read strictly (`stelae/storage/sealed_json.py`), then checked (`stelae/snapshot/manifest_checks.py`).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from stelae.errors import CorruptData
from stelae.snapshot.manifest import (
    MANIFEST_FORMAT,
    BucketFiles,
    DataFile,
    PartitionFiles,
    Snapshot,
    SnapshotKind,
    Totals,
)
from stelae.snapshot.manifest_checks import check_snapshot, check_totals
from stelae.storage.sealed_json import JsonObject, open_sealed_object, seal_json


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the manifest. CorruptData for a snapshot that `decode_snapshot` would not give back as it is."""
    place = f"snapshot {snapshot.id} of {snapshot.table}, before it is written"
    check_snapshot(snapshot, place)
    data = seal_json(
        {
            "format": snapshot.format,
            "table": snapshot.table,
            "id": snapshot.id,
            "parent": snapshot.parent,
            "schema_id": snapshot.schema_id,
            "build_id": snapshot.build_id,
            "kind": snapshot.kind,
            "created_ms": snapshot.created_ms,
            "versions": dict(snapshot.versions),
            "properties": dict(snapshot.properties),
            "totals": snapshot.totals,
            "partitions": [_encode_partition(partition) for partition in snapshot.partitions],
        }
    )
    if decode_snapshot(data, place) != snapshot:
        raise CorruptData(
            "the manifest would not read back as it is: a value has another type than declared", place=place
        )
    return data


def decode_snapshot(data: bytes, place: str) -> Snapshot:
    """The snapshot in the bytes of a manifest. `place` names the file in errors; anything off is CorruptData."""
    root = open_sealed_object(data, _SNAPSHOT_FIELDS, MANIFEST_FORMAT, place)
    totals = root.child("totals", _names(Totals))
    snapshot = Snapshot(
        format=root.count("format"),
        table=root.text("table"),
        id=root.count("id"),
        parent=root.count_or_null("parent"),
        schema_id=root.count("schema_id"),
        build_id=root.text("build_id"),
        kind=cast("SnapshotKind", root.text("kind")),
        created_ms=root.count("created_ms"),
        versions=root.texts("versions"),
        properties=root.texts("properties"),
        partitions=tuple(_decode_partition(part) for part in root.children("partitions", _PARTITION_FIELDS)),
    )
    check_snapshot(snapshot, place)
    check_totals(snapshot, Totals(**{name: totals.count(name) for name in _names(Totals)}), place)
    return snapshot


def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(part.name for part in fields(kind))


_SNAPSHOT_FIELDS = _names(Snapshot) | {"totals"}
_PARTITION_FIELDS = _names(PartitionFiles)
_BUCKET_FIELDS = _names(BucketFiles)
_FILE_FIELDS = _names(DataFile)


def _encode_partition(partition: PartitionFiles) -> dict[str, object]:
    return {
        "values": list(partition.values),
        "folder": partition.folder,
        "bucket_count": partition.bucket_count,
        "buckets": [
            {
                "bucket": bucket.bucket,
                "log_offset": bucket.log_offset,
                "files": bucket.files,
            }
            for bucket in partition.buckets
        ],
    }


def _decode_partition(reader: JsonObject) -> PartitionFiles:
    return PartitionFiles(
        values=reader.scalars("values"),
        folder=reader.text("folder"),
        bucket_count=reader.count("bucket_count"),
        buckets=tuple(
            BucketFiles(
                bucket=bucket.count("bucket"),
                log_offset=bucket.count("log_offset"),
                files=tuple(_decode_file(file) for file in bucket.children("files", _FILE_FIELDS)),
            )
            for bucket in reader.children("buckets", _BUCKET_FIELDS)
        ),
    )


def _decode_file(reader: JsonObject) -> DataFile:
    return DataFile(
        path=reader.text("path"),
        bytes=reader.count("bytes"),
        checksum=reader.text("checksum"),
        rows=reader.count("rows"),
        hidden_rows=reader.count("hidden_rows"),
        first_key=reader.hex("first_key"),
        last_key=reader.hex("last_key"),
    )
