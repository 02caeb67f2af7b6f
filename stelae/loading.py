"""Opening a snapshot: its files fetched and verified, its tablets made aside.

    manifest → each file: linked (local warehouse) or downloaded, checksum verified
             → each bucket: a tablet in a folder of its own
             → SnapshotReader

Nothing here touches the reader that is serving: a failure leaves it as it is. Buckets whose files did not change
share the tablets of the reader before, so that opening costs what the change costs.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from stelae.checksum import file_checksum
from stelae.errors import CorruptData, NotFound, Unavailable
from stelae.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.reader import PartitionTablets, SnapshotReader, TableReader
from stelae.sst import BlockCache, Tablet
from stelae.storage import Storage
from stelae.values import value_codec
from stelae.warehouse import Table

LOAD_THREADS = 2
"""Files that are fetched and verified at a time: enough to keep a disk busy, few enough to leave a core to readers."""


def open_snapshot(
    table: Table,
    snapshot: Snapshot,
    folder: Path,
    cache: BlockCache | None = None,
    *,
    previous: SnapshotReader | None = None,
    threads: int = LOAD_THREADS,
    stop: Event | None = None,
) -> SnapshotReader:
    """Open a snapshot below `folder`, which the tablets own from then on and clean up when they are let go.

    `previous` is a reader of the same table whose tablets may be shared. Raises CorruptData when a file is not what
    the manifest says and Unavailable when it can't be fetched; then nothing is left behind. Setting `stop` from another
    thread gives up between two files.
    """
    reader = TableReader(table.schema, table.schemas)
    shared = _tablets_by_files(previous)
    place = folder / f"snapshot-{snapshot.id}-{uuid.uuid4().hex[:8]}"
    incoming = place / "incoming"
    incoming.mkdir(parents=True)
    opened: list[Tablet] = []
    try:
        partitions = []
        with _ordered_pool(threads) as pool:
            wanted = [bucket for p in snapshot.partitions for bucket in p.buckets if bucket.files]
            fetched = {
                id(bucket): [pool.submit(_fetch, table.storage, file, incoming, stop) for file in bucket.files]
                for bucket in wanted
                if _paths(bucket) not in shared
            }
            for number, partition in enumerate(snapshot.partitions):
                tablets: list[Tablet | None] = []
                for bucket in partition.buckets:
                    if not bucket.files:
                        tablets.append(None)
                    elif (known := shared.get(_paths(bucket))) is not None:
                        tablets.append(known)
                    else:
                        files = [future.result() for future in fetched[id(bucket)]]
                        tablets.append(Tablet.open(place / f"partition-{number}-bucket-{bucket.bucket}", files, cache))
                        opened.append(tablets[-1])  # type: ignore[arg-type]
                partitions.append(
                    PartitionTablets(
                        partition.folder, _physical(table, partition), partition.bucket_count, tuple(tablets)
                    )
                )
    except BaseException:
        for tablet in opened:
            tablet.close()
        shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        # Downloads live on as hard links inside the tablets.
        shutil.rmtree(incoming, ignore_errors=True)
    return SnapshotReader(reader, snapshot, partitions)


def latest_snapshot(table: Table) -> Snapshot:
    """The newest snapshot's manifest. A table that was never built is not there yet: Unavailable."""
    number = table.snapshots.latest_id()
    if number is None:
        raise Unavailable(
            f"table {table.name} has no snapshot yet",
            place=str(table.name),
            hint=f"build it: stelae build {table.name}",
        )
    return table.snapshots.read(number)


def verify_file(storage: Storage, file: DataFile, scratch: Path) -> Path:
    """A data file on this machine, with size and checksum as its manifest says."""
    return _fetch(storage, file, scratch)


def _fetch(storage: Storage, file: DataFile, incoming: Path, stop: Event | None = None) -> Path:
    if stop is not None and stop.is_set():
        raise Unavailable("loading was given up", place=file.path)
    local = storage.local_path(file.path)
    try:
        if local is None:
            local = incoming / f"{uuid.uuid4().hex}.sst"
            actual = storage.download(file.path, local)
        else:
            actual = file_checksum(local)
    except (FileNotFoundError, NotFound) as exc:
        raise CorruptData(
            "a file of the snapshot is missing", place=file.path, hint="roll back, or build again: stelae rollback"
        ) from exc
    except OSError as exc:
        raise Unavailable(f"a file of the snapshot can't be read: {exc}", place=file.path) from exc
    if actual != file.checksum:
        raise CorruptData(
            f"the file has checksum {actual}, its manifest says {file.checksum} ({file.bytes} bytes)",
            place=file.path,
            hint="keep the file; roll back, or build again: stelae rollback",
        )
    return local


def _physical(table: Table, partition: PartitionFiles) -> tuple[object, ...]:
    return tuple(
        value_codec(column).from_json(value, column.name)
        for column, value in zip(table.schema.partition_columns, partition.values, strict=True)
    )


def _paths(bucket: BucketFiles) -> tuple[str, ...]:
    return tuple(file.path for file in bucket.files)


def _tablets_by_files(reader: SnapshotReader | None) -> dict[tuple[str, ...], Tablet]:
    if reader is None:
        return {}
    tablets: dict[tuple[str, ...], Tablet] = {}
    open_partitions = {partition.folder: partition for partition in reader.partitions.values()}
    for files in reader.snapshot.partitions:
        for bucket, tablet in zip(files.buckets, open_partitions[files.folder].tablets, strict=True):
            if tablet is not None:
                tablets[_paths(bucket)] = tablet
    return tablets


@contextmanager
def _ordered_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that, when its block fails, drops what has not started yet."""
    pool = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="stelae-load")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


__all__: Sequence[str] = ["latest_snapshot", "open_snapshot", "verify_file"]
