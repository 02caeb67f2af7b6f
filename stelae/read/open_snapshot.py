"""Opening a snapshot: its files fetched and verified, a RocksDB folder (tablet) made of each bucket's.

    share       buckets whose files did not change have the tablets of readers that are open
    prepare     the others: each file linked (local warehouse) or downloaded, its checksum verified, the tablet's folder
                made: `stelae/read/prepare_tablets.py`
    assemble    tablets and hash indexes, partition by partition ──► SnapshotReader

Nothing here touches the readers that are open: a failure leaves them as they are. Opening costs what the change costs.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TypeAlias

from stelae.encoding.partitions import partition_from_json
from stelae.errors import Unavailable
from stelae.read.partition_tablets import PartitionIndex, PartitionTablets
from stelae.read.prepare_tablets import Preparation, prepare_tablets, prepare_tablets_in_background
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.tablet import Tablet
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import BucketFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.storage import Storage

LOAD_THREADS = 2
"""Files that are fetched and verified at a time: enough to keep a disk busy, few enough to leave a core to readers."""

FilePaths: TypeAlias = tuple[str, ...]
"""Of the files of a bucket: tablets of the same files read alike."""
Tablets: TypeAlias = dict[FilePaths, Tablet]


def open_snapshot(
    table: Table,
    snapshot: Snapshot,
    folder: Path,
    cache: BlockCache | None = None,
    *,
    previous: SnapshotReader | Sequence[SnapshotReader] | None = None,
    threads: int = LOAD_THREADS,
    stop: Event | None = None,
    in_background: bool = False,
) -> SnapshotReader:
    """Open a snapshot below `folder`, which the tablets own from then on, and clean up when nobody holds them any more.

    `previous` are readers of the same table whose tablets may be shared. Raises CorruptData when a file is not what
    the manifest says and Unavailable when it can't be fetched; then nothing is left behind. Setting `stop` from another
    thread gives up soon. `in_background`: another process does what takes long, so that the threads of this one go on.
    """
    table = table.at_least(snapshot.schema_id)
    readers = [previous] if isinstance(previous, SnapshotReader) else previous or ()
    tablets = _shared_tablets(readers)
    home = folder / f"snapshot-{snapshot.id}-{uuid.uuid4().hex[:8]}"
    buckets = [bucket for partition in snapshot.partitions for bucket in partition.buckets if bucket.files]
    lacking = {
        _paths(bucket): Preparation(home / f"tablet-{number}", bucket.files)
        for number, bucket in enumerate(buckets)
        if _paths(bucket) not in tablets
    }
    opened: Tablets = {}
    try:
        _prepare(table.storage, list(lacking.values()), home / "incoming", threads, stop, in_background=in_background)
        for paths, preparation in lacking.items():
            opened[paths] = Tablet.reopen(preparation.directory, cache)
        tablets |= opened
        of_partitions = [tuple(tablets.get(_paths(b)) for b in partition.buckets) for partition in snapshot.partitions]
        partitions = assemble(table.schema, snapshot, of_partitions, _shared_indexes(readers))
    except BaseException:
        for tablet in opened.values():
            tablet.close()
        shutil.rmtree(home, ignore_errors=True)
        raise
    return SnapshotReader(TableReader(table.schema, table.schemas), snapshot, partitions)


@contextmanager
def scratch_folder(storage: Storage) -> Iterator[Path]:
    """A folder for opening a snapshot in, removed at the end: inside a local warehouse, so that files are linked, if it
    may be written to.
    """
    try:
        folder = storage.scratch_folder()
    except Unavailable:
        folder = Path(tempfile.mkdtemp(prefix="stelae-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shared_tablets(readers: Sequence[SnapshotReader]) -> Tablets:
    tablets: Tablets = {}
    for reader in readers:
        by_folder = {partition.folder: partition for partition in reader.partitions.values()}
        for files in reader.snapshot.partitions:
            for bucket, tablet in zip(files.buckets, by_folder[files.folder].tablets, strict=True):
                if tablet is not None:
                    tablets[_paths(bucket)] = tablet
    return tablets


def _shared_indexes(readers: Sequence[SnapshotReader]) -> dict[tuple[int, ...], PartitionIndex]:
    """Hash indexes by the ids of the tablets that they are of, which the readers hold: a partition that did not change
    keeps its index.
    """
    return {
        tuple(map(id, partition.tablets)): partition.index
        for reader in readers
        for partition in reader.partitions.values()
    }


def _prepare(
    storage: Storage,
    wanted: Sequence[Preparation],
    incoming: Path,
    threads: int,
    stop: Event | None,
    *,
    in_background: bool,
) -> None:
    incoming.mkdir(parents=True)
    try:
        if wanted:
            prepare = prepare_tablets_in_background if in_background else prepare_tablets
            prepare(storage, wanted, incoming, threads, stop)
    finally:
        # Downloads live on as hard links inside the tablets.
        shutil.rmtree(incoming, ignore_errors=True)


def assemble(
    schema: TableSchema,
    snapshot: Snapshot,
    tablets: Sequence[tuple[Tablet | None, ...]],
    indexes: Mapping[tuple[int, ...], PartitionIndex],
) -> list[PartitionTablets]:
    """The partitions of a snapshot, from the tablets of their buckets: partition by partition, in its order."""
    return [
        PartitionTablets(
            partition.folder,
            partition_from_json(schema.partition_columns, partition.values),
            partition.bucket_count,
            of_buckets,
            sum(file.rows for file in partition.files),
            indexes.get(tuple(map(id, of_buckets))) or PartitionIndex(),
        )
        for partition, of_buckets in zip(snapshot.partitions, tablets, strict=True)
    ]


def _paths(bucket: BucketFiles) -> FilePaths:
    return tuple(file.path for file in bucket.files)
