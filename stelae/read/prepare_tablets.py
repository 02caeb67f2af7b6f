"""Preparing tablets: files fetched and verified, folders made. All of a load that takes long or waits for a disk.

    prepare_tablets                  in this process
    prepare_tablets_in_background    the same in a process of low priority (stelae/read/background_process.py)

Making a RocksDB waits for the disk a dozen times with the GIL held, and verifying hands the GIL to and fro a thousand
times: in a process that answers requests, all of them would wait. From a process of its own they get nothing but
folders, which open in a millisecond each.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from stelae.errors import CorruptData, NotFound, Unavailable
from stelae.read.background_process import NotPortableError, run_in_background_process
from stelae.rocksdb.tablet import make_tablet
from stelae.snapshot.manifest import DataFile
from stelae.storage.checksum import file_checksum
from stelae.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Preparation:
    """A tablet to be made."""

    directory: Path
    """Must not exist."""
    files: tuple[DataFile, ...]
    """Sorted runs, oldest first."""


def prepare_tablets(
    storage: Storage, wanted: Sequence[Preparation], incoming: Path, threads: int, stop: Event | None = None
) -> None:
    """Make tablets. `incoming` is for downloads, and of no use afterwards: tablets have links of their own.

    `threads` files are fetched and verified at a time. Raises CorruptData when a file is not what the manifest says,
    Unavailable when it can't be fetched; some tablets may be made then. Setting `stop` gives up between two files.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="stelae-fetch")
    try:
        fetched = [[pool.submit(fetch_file, storage, file, incoming, stop) for file in each.files] for each in wanted]
        for each, files in zip(wanted, fetched, strict=True):
            paths = [future.result() for future in files]
            try:
                make_tablet(each.directory, paths)
            except OSError as exc:
                raise Unavailable(f"can't make a tablet: {exc}", place=str(each.directory)) from exc
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def prepare_tablets_in_background(
    storage: Storage, wanted: Sequence[Preparation], incoming: Path, threads: int, stop: Event | None = None
) -> None:
    """The same in a process of its own. A storage that lives in this process only (memory) is read in this process."""
    try:
        run_in_background_process(prepare_tablets, storage, list(wanted), incoming, threads, stop=stop)
    except NotPortableError:
        prepare_tablets(storage, wanted, incoming, threads, stop)


def fetch_file(storage: Storage, file: DataFile, incoming: Path, stop: Event | None = None) -> Path:
    """A data file on this machine, with the checksum that its manifest says."""
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
