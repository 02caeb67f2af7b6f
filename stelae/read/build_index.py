"""Making the hash index of a partition that is open.

index_partition                  in this process: a microsecond a row, most of it with the GIL held
index_partition_in_background    the same in a process of its own, of low priority
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from stelae.errors import Unavailable
from stelae.read.background_process import run_in_background_process
from stelae.read.hash_index import build_hash_index, needed_bytes
from stelae.read.partition_tablets import PartitionTablets
from stelae.rocksdb.tablet import Tablet

SCANNED_ROWS = 65_536
"""Rows that are read of a tablet at a time."""


def index_bytes(partition: PartitionTablets) -> int:
    """What an index of a partition would take, about. 0 where there are no rows."""
    tablets = [tablet for tablet in partition.tablets if tablet is not None]
    return needed_bytes(partition.rows, sum(tablet.raw_bytes() for tablet in tablets)) if partition.rows else 0


def index_partition(folders: Sequence[Path], directory: Path, width: int | None) -> None:
    """Make an index in `directory` of the tablets in these folders. Unavailable when it can't be written."""
    try:
        build_hash_index(_chunks(folders), directory, width)
    except OSError as exc:
        raise Unavailable(f"a hash index can't be written: {exc}", place=str(directory)) from exc


def index_partition_in_background(partition: PartitionTablets, directory: Path, width: int | None, stop: Event) -> None:
    """The same of an open partition, by another process."""
    folders = [tablet.directory for tablet in partition.tablets if tablet is not None]
    run_in_background_process(index_partition, folders, directory, width, stop=stop)


def _chunks(folders: Sequence[Path]) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    for folder in folders:
        yield from Tablet.reopen(folder, owns_folder=False).chunks(SCANNED_ROWS)
