"""Tablets: the sorted files of one bucket, open for reading.

A tablet is a RocksDB of its own, made in a folder of its own from hard links or copies of a bucket's files. The files
are ingested, not copied row by row: opening costs milliseconds, whatever the size. RocksDB numbers the ingested files
inside its own manifest and never writes to them, so a hard link to the warehouse is safe (tested).

Uncompressed files are mapped into memory and read in place, past the block cache
(docs/decisions/0021-rocksdb-options.md has the measurements).
"""

from __future__ import annotations

import os
import re
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import rocksdict

from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.database import close_database, database_options, rocksdb_error, scan_database, table_options

_PROPERTIES_BYTES = 4096
"""The end of a file, where its properties are; they take some 1,000 bytes."""
_UNCOMPRESSED = b"ressionNoCompression"
"""A property and its value, as RocksDB writes it there: without what its name shares with the one before."""


class Tablet:
    """One bucket, open for reading. Safe to read from several threads; RocksDB releases the GIL while it reads."""

    def __init__(self, directory: Path, db: rocksdict.Rdict, *, owns_folder: bool = True) -> None:
        self.directory = directory
        self._db = db
        self._closer = weakref.finalize(self, close_database, db, directory if owns_folder else None)
        self.get = db.get
        """`get(key: bytes) -> bytes | None`; the native method itself, for the hot path."""

    @classmethod
    def open(cls, directory: Path, files: Sequence[Path], cache: BlockCache | None = None) -> Tablet:
        """Make a RocksDB in `directory` (which must not exist) that holds `files`, oldest sorted run first.

        The files stay as they are: each is hard-linked, or copied where links are refused. Where runs overlap, the
        newer one answers. Raises CorruptData for a file that RocksDB can't read.
        """
        make_tablet(directory, files)
        return cls.reopen(directory, cache)

    @classmethod
    def reopen(cls, directory: Path, cache: BlockCache | None = None, *, owns_folder: bool = True) -> Tablet:
        """Open what `make_tablet` made, to read only. The tablet owns the folder from then on, and removes it at the
        end; unless it is another process's, which may remove it while this one reads on.

        If a file is uncompressed, files are mapped into memory: its blocks are then read where they are, in the page
        cache of the system. If all are, there is nothing for the block cache to hold. RocksDB verifies the checksum of
        a block each time that it reads one there. A disk that fails, or a file that someone truncates, ends the process
        (SIGBUS) where a plain read would fail; nobody writes to the files of a tablet (decision 21).
        """
        mapped = [_is_uncompressed(file) for file in sorted(directory.glob("*.sst"))]
        options = database_options(table_options(cache, no_cache=bool(mapped) and all(mapped)), "lz4")
        options.set_allow_mmap_reads(any(mapped))
        # Every file stays open with its index and filter in memory: a read never waits for a file to be opened.
        options.set_max_open_files(-1)
        options.set_skip_stats_update_on_db_open(True)
        options.set_max_file_opening_threads(1)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        try:
            db = rocksdict.Rdict(
                str(directory),
                options,
                # Of a database that is there, families get RocksDB's defaults, with no filter, if none are given here.
                column_families={"default": options},
                access_type=rocksdict.AccessType.read_only(),
            )
        except Exception as exc:
            if owns_folder:
                shutil.rmtree(directory, ignore_errors=True)
            raise rocksdb_error(exc, directory) from exc
        return cls(directory, db, owns_folder=owns_folder)

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them; None where a key is not there."""
        return cast("list[bytes | None]", self._db.get(cast("list[Any]", keys)))

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order; no `upper`: to the end."""
        return scan_database(self, self._db, lower, upper)

    def chunks(self, rows: int) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """All keys and rows in key order, `rows` at a time: the fastest way through a tablet."""
        items = iter(self._db.items())
        try:
            while some := list(islice(items, rows)):
                yield cast("tuple[Sequence[bytes], Sequence[bytes]]", tuple(zip(*some, strict=True)))
        except Exception as exc:
            raise rocksdb_error(exc, self.directory) from exc

    def raw_bytes(self) -> int:
        """Bytes of all stored keys and rows, uncompressed; about, where sorted runs overlap."""
        said = str(self._db.property_value("rocksdb.aggregated-table-properties") or "")
        return sum(int(size) for size in re.findall(r"raw (?:key|value) size=(\d+)", said))

    def close(self) -> None:
        """Release the files and remove the folder. Nothing may read afterwards.

        Happens by itself when the last reference goes: readers of a snapshot that was replaced finish in peace.
        """
        self._closer()


def make_tablet(directory: Path, files: Sequence[Path]) -> None:
    """Make the folder of a tablet: all of `Tablet.open` that writes.

    It waits for the disk a dozen times, 10 to 50 milliseconds in all, and rocksdict holds the GIL meanwhile; to reopen
    takes one. So whoever answers requests has it done by another process (`stelae/read/prepare_tablets.py`).
    """
    staging = directory.with_name(directory.name + ".incoming")
    staging.mkdir(parents=True)
    options = database_options(table_options(None), "lz4")
    options.create_if_missing(True)
    options.set_error_if_exists(True)
    options.set_disable_auto_compactions(True)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_write_buffer_size(64 * 1024)
    try:
        db = rocksdict.Rdict(str(directory), options)
        try:
            ingest = rocksdict.IngestExternalFileOptions()
            ingest.set_move_files(True)
            for index, file in enumerate(files):
                link = staging / f"{index:06d}.sst"
                _link_or_copy(file, link)
                db.ingest_external_file([str(link)], ingest)
        finally:
            db.close()
    except Exception as exc:
        shutil.rmtree(directory, ignore_errors=True)
        raise rocksdb_error(exc, directory) from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_uncompressed(file: Path) -> bool:
    """Whether a sorted file says so. A file that is taken for the other kind is read all the same, only slower."""
    try:
        with file.open("rb") as data:
            data.seek(max(0, file.stat().st_size - _PROPERTIES_BYTES))
            return _UNCOMPRESSED in data.read()
    except OSError:
        return False  # RocksDB says it better


def _link_or_copy(source: Path, target: Path) -> None:
    # RocksDB opens what it ingests for writing (it syncs it): of a file that is read-only it gets a copy of its own.
    if os.access(source, os.W_OK):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
