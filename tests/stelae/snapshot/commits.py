"""Small snapshots of one table: built, committed, looked at."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.snapshots import TableSnapshots
from stelae.storage.checksum import checksum
from stelae.storage.paths import sst_path
from stelae.storage.storage import Storage

TABLE = "shop.users"
HOUR = 3600
LATER = 10**9
"""Seconds after which everything is old."""


def now_ms() -> int:
    return int(time.time() * 1000)


def upload(storage: Storage, bucket: int = 0) -> DataFile:
    """A new data file."""
    path = sst_path("", bucket, uuid4().hex)
    storage.put_if_absent(path, path.encode())
    return DataFile(path, len(path), checksum(path.encode()), 1, 0, b"k", b"k")


def next_snapshot(parent: Snapshot | None, *files: DataFile, **changes: Any) -> Snapshot:
    snapshot = Snapshot(
        table=TABLE,
        id=1 if parent is None else parent.id + 1,
        parent=None if parent is None else parent.id,
        schema_id=0,
        build_id=uuid4().hex,
        kind="merge",
        created_ms=5,
        versions={},
        partitions=(PartitionFiles((), 1, (BucketFiles(0, files),)),),
    )
    return replace(snapshot, **changes)


def build(snapshots: TableSnapshots, count: int = 1) -> list[Snapshot]:
    """Commit some snapshots of one new file each."""
    return [snapshots.commit(next_snapshot(snapshots.latest(), upload(snapshots.storage))) for _ in range(count)]


def paths_of(snapshot: Snapshot) -> list[str]:
    return [file.path for file in snapshot.files]
