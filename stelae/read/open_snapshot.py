"""Opening a snapshot: its files fetched and verified, its tablets made aside.

    manifest → each file: linked (local warehouse) or downloaded, checksum verified     stelae/read/prepare_tablets.py
             → each bucket: a tablet in a folder of its own                             stelae/read/prepare_tablets.py
             → SnapshotReader

Nothing here touches the reader that is serving: a failure leaves it as it is. Buckets whose files did not change
share the tablets of the reader before, so that opening costs what the change costs.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from stelae.encoding.values import value_codec
from stelae.read.overlay import IndexOf, PartitionTablets
from stelae.read.prepare_tablets import Preparation, prepare_tablets, prepare_tablets_apart
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.tablet import Tablet
from stelae.snapshot.manifest import BucketFiles, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table

LOAD_THREADS = 2
"""Files that are fetched and verified at a time: enough to keep a disk busy, few enough to leave a core to readers."""


def open_snapshot(
    table: Table,
    snapshot: Snapshot,
    folder: Path,
    cache: BlockCache | None = None,
    *,
    previous: SnapshotReader | Sequence[SnapshotReader] | None = None,
    threads: int = LOAD_THREADS,
    stop: Event | None = None,
    apart: bool = False,
) -> SnapshotReader:
    """Open a snapshot below `folder`, which the tablets own from then on and clean up when they are let go.

    `previous` are readers of the same table whose tablets may be shared. Raises CorruptData when a file is not what
    the manifest says and Unavailable when it can't be fetched; then nothing is left behind. Setting `stop` from another
    thread gives up soon. `apart`: another process does what takes long, so that the threads of this one go on.
    """
    table = table.at_least(snapshot.schema_id)
    reader = TableReader(table.schema, table.schemas)
    readers = [previous] if isinstance(previous, SnapshotReader) else previous or ()
    shared: dict[tuple[str, ...], Tablet] = {}
    for open_reader in readers:
        shared |= _tablets_by_files(open_reader)
    place = folder / f"snapshot-{snapshot.id}-{uuid.uuid4().hex[:8]}"
    incoming = place / "incoming"
    incoming.mkdir(parents=True)
    buckets = [bucket for partition in snapshot.partitions for bucket in partition.buckets if bucket.files]
    wanted = {
        _paths(bucket): Preparation(place / f"tablet-{number}", bucket.files)
        for number, bucket in enumerate(buckets)
        if _paths(bucket) not in shared
    }
    opened: dict[tuple[str, ...], Tablet] = {}
    try:
        if wanted:
            prepare = prepare_tablets_apart if apart else prepare_tablets
            prepare(table.storage, list(wanted.values()), incoming, threads, stop)
        for paths, preparation in wanted.items():
            opened[paths] = Tablet.reopen(preparation.directory, cache)
        indexes = _indexes_by_tablets(readers)
        partitions = []
        for partition in snapshot.partitions:
            tablets = tuple(shared.get(_paths(bucket)) or opened.get(_paths(bucket)) for bucket in partition.buckets)
            partitions.append(
                PartitionTablets(
                    partition.folder,
                    _physical(table, partition),
                    partition.bucket_count,
                    tablets,
                    sum(file.rows for bucket in partition.buckets for file in bucket.files),
                    indexes.get(tuple(map(id, tablets))) or IndexOf(),
                )
            )
    except BaseException:
        for tablet in opened.values():
            tablet.close()
        shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        # Downloads live on as hard links inside the tablets.
        shutil.rmtree(incoming, ignore_errors=True)
    return SnapshotReader(reader, snapshot, partitions)


def _physical(table: Table, partition: PartitionFiles) -> tuple[object, ...]:
    return tuple(
        value_codec(column).from_json(value, column.name)
        for column, value in zip(table.schema.partition_columns, partition.values, strict=True)
    )


def _paths(bucket: BucketFiles) -> tuple[str, ...]:
    return tuple(file.path for file in bucket.files)


def _indexes_by_tablets(readers: Sequence[SnapshotReader]) -> dict[tuple[int, ...], IndexOf]:
    """Hash indexes by the tablets that they are of, which the readers hold: a partition that did not change keeps its
    index.
    """
    return {
        tuple(map(id, partition.tablets)): partition.index
        for reader in readers
        for partition in reader.partitions.values()
    }


def _tablets_by_files(reader: SnapshotReader) -> dict[tuple[str, ...], Tablet]:
    tablets: dict[tuple[str, ...], Tablet] = {}
    open_partitions = {partition.folder: partition for partition in reader.partitions.values()}
    for files in reader.snapshot.partitions:
        for bucket, tablet in zip(files.buckets, open_partitions[files.folder].tablets, strict=True):
            if tablet is not None:
                tablets[_paths(bucket)] = tablet
    return tablets
