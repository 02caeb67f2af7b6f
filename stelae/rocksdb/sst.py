"""Sorted files and tablets: the edge to RocksDB, and the only module that imports rocksdict.

    SstWriter   rows of one bucket in key order  →  one immutable sorted file
    Tablet      the sorted files of one bucket   →  get, multi_get, scan
    OnlineRows  rows that are in no file yet     →  the same, and put_many

A tablet is a RocksDB of its own, made in a folder of its own from hard links or copies of a bucket's files. The files
are ingested, not copied row by row: opening costs milliseconds, whatever the size. RocksDB numbers the ingested files
inside its own manifest and never writes to them, so a hard link to the warehouse is safe (tested).

Files are block-based tables with full Bloom filters of 10 bits a key (about 1 % false positives: a miss costs no disk
read) and a hash index inside each block. How large the blocks are, and how they are compressed, are options of the
table; a reader finds both in the file. Uncompressed files are mapped into memory and read in place, past the block
cache (docs/decisions/0021-rocksdb-options.md has the measurements).
"""

from __future__ import annotations

import os
import re
import shutil
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import rocksdict

from stelae.errors import CorruptData, InvalidRequest, Unavailable
from stelae.schema.options import FileOptions
from stelae.storage.checksum import file_checksum

MIB = 1024 * 1024
BLOCK_BYTES = 4096
UNCOMPRESSED_BLOCK_BYTES = 1024
"""Of a block that is read in place, only the lines are read that a search touches: small ones have fewer."""
BLOOM_BITS_PER_KEY = 10
DEFAULT_BLOCK_CACHE_BYTES = 256 * MIB

ONLINE_BUFFER_BYTES = 32 * MIB
"""Online rows that are kept in memory before they go to a file in the background: some 300,000."""
ONLINE_BUFFERS = 6
"""Buffers at most. A put waits, with the GIL, for one to be written when they are full: they must not get full."""

_COMPRESSION = {
    "lz4": rocksdict.DBCompressionType.lz4,
    "zstd": rocksdict.DBCompressionType.zstd,
    "none": rocksdict.DBCompressionType.none,
}


_ZLIB_WINDOW_BITS = -14
"""RocksDB's default, which has to be said; no compression of ours looks at it."""

_PROPERTIES_BYTES = 4096
"""The end of a file, where its properties are; they take some 1,000 bytes."""
_UNCOMPRESSED = b"ressionNoCompression"
"""A property and its value, as RocksDB writes it there: without what its name shares with the one before."""

KeyBytes = bytes


@dataclass(frozen=True, slots=True)
class SstInfo:
    """What a finished file is."""

    rows: int
    bytes: int
    checksum: str
    first_key: KeyBytes
    last_key: KeyBytes


class SstWriter:
    """Writes one sorted file at `path`. Keys come in strictly ascending order over all calls of `write`."""

    def __init__(self, path: Path, files: FileOptions = FileOptions()) -> None:  # noqa: B008 - it is frozen
        self._path = path
        usual = UNCOMPRESSED_BLOCK_BYTES if files.compression == "none" else BLOCK_BYTES
        options = _options(_table_options(None, files.block_bytes or usual), files.compression)
        if files.zstd_level is not None:
            options.set_compression_options(_ZLIB_WINDOW_BITS, files.zstd_level, 0, 0)
        # Pages go to the disk while rows still come in: the fsync that makes the file durable has little left to do.
        options.set_bytes_per_sync(4 * MIB)
        self._writer = rocksdict.SstFileWriter(options)
        self._writer.open(str(path))
        self._rows = 0
        self._first_key = b""
        self._last_key = b""

    def write(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Append rows. Raises CorruptData where a key does not follow the one before it; the file is then of no use."""
        if not keys:
            return
        try:
            # One C-level loop: the cheapest way through the writer's one-row interface.
            deque(map(self._writer.__setitem__, keys, rows), maxlen=0)
        except Exception as exc:
            raise _translate(exc, self._path) from exc
        if not self._rows:
            self._first_key = keys[0]
        self._last_key = keys[-1]
        self._rows += len(keys)

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._rows

    def finish(self) -> SstInfo:
        """Close the file and describe it. A file without rows can't be: RocksDB refuses it, and so does this."""
        if not self._rows:
            raise InvalidRequest("a sorted file needs at least one row", place=str(self._path))
        try:
            self._writer.finish()
        except Exception as exc:
            raise _translate(exc, self._path) from exc
        return SstInfo(
            rows=self._rows,
            bytes=self._path.stat().st_size,
            checksum=file_checksum(self._path),
            first_key=self._first_key,
            last_key=self._last_key,
        )


class BlockCache:
    """Uncompressed blocks of all tablets that share it, least recently used first out."""

    def __init__(self, capacity_bytes: int = DEFAULT_BLOCK_CACHE_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.cache = rocksdict.Cache(capacity_bytes)

    def usage_bytes(self) -> int:
        return int(self.cache.get_usage())


class Tablet:
    """One bucket, open for reading. Safe to read from several threads; RocksDB lets go of the GIL while it reads."""

    def __init__(self, directory: Path, db: rocksdict.Rdict, *, owns_folder: bool = True) -> None:
        self.directory = directory
        self._db = db
        self._closer = weakref.finalize(self, _close, db, directory if owns_folder else None)
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
        options = _options(_table_options(cache, no_cache=bool(mapped) and all(mapped)), "lz4")
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
            raise _translate(exc, directory) from exc
        return cls(directory, db, owns_folder=owns_folder)

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them; None where a key is not there."""
        return cast("list[bytes | None]", self._db.get(cast("list[Any]", keys)))

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order; no `upper`: to the end."""
        return _scan(self, self._db, lower, upper)

    def chunks(self, rows: int) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """All keys and rows in key order, `rows` at a time: the fastest way through a tablet."""
        items = iter(self._db.items())
        try:
            while some := list(islice(items, rows)):
                yield cast("tuple[Sequence[bytes], Sequence[bytes]]", tuple(zip(*some, strict=True)))
        except Exception as exc:
            raise _translate(exc, self.directory) from exc

    def raw_bytes(self) -> int:
        """Bytes of all stored keys and rows, uncompressed; about, where sorted runs overlap."""
        said = str(self._db.property_value("rocksdb.aggregated-table-properties") or "")
        return sum(int(size) for size in re.findall(r"raw (?:key|value) size=(\d+)", said))

    def close(self) -> None:
        """Let go of the files and remove the folder. Nothing may read afterwards.

        Happens by itself when the last reference goes: readers of a snapshot that was replaced finish in peace.
        """
        self._closer()


class OnlineRows:
    """Rows that no sorted file has yet: a RocksDB of its own that can be written.

    There is no write-ahead log, for what is here can be put again from the table's log: a folder that a killed process
    left is of no use. Safe to use from several threads.
    """

    def __init__(self, directory: Path, db: rocksdict.Rdict, family: rocksdict.Rdict) -> None:
        self.directory = directory
        self._db = db
        self._family = family
        self._handle = db.get_column_family_handle(_ONLINE_FAMILY)
        self._write_options = _unlogged()
        self._count = 0
        self._closer = weakref.finalize(self, _close_online, db, directory)
        self.get = family.get
        """`get(key: bytes) -> bytes | None`; the native method itself."""

    @classmethod
    def open(cls, directory: Path, cache: BlockCache | None = None) -> OnlineRows:
        """Make an empty one in `directory`, which must not exist, and which it owns from then on."""
        directory.mkdir(parents=True)
        options = _options(_table_options(cache), "lz4")
        options.create_if_missing(True)
        options.set_error_if_exists(True)
        options.set_max_open_files(-1)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        options.set_max_background_jobs(2)
        options.set_write_buffer_size(ONLINE_BUFFER_BYTES)
        options.set_max_write_buffer_number(ONLINE_BUFFERS)
        # Most keys that are asked for are not here: a Bloom filter of the buffer says so in a fifth of the time.
        options.set_memtable_prefix_bloom_ratio(0.05)
        options.set_memtable_whole_key_filtering(True)
        # rocksdict holds the GIL while it writes, so that a write which RocksDB slows down would stop all threads.
        options.set_level_zero_slowdown_writes_trigger(1 << 20)
        options.set_level_zero_stop_writes_trigger(1 << 20)
        options.set_soft_pending_compaction_bytes_limit(0)
        options.set_hard_pending_compaction_bytes_limit(0)
        try:
            db = rocksdict.Rdict(str(directory), options)
            return cls(directory, db, db.create_column_family(_ONLINE_FAMILY, options))
        except Exception as exc:
            shutil.rmtree(directory, ignore_errors=True)
            raise _translate(exc, directory) from exc

    def __len__(self) -> int:
        """Rows put; a key that was put twice counts twice."""
        return self._count

    def put_many(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Put rows; of equal keys the last counts. Readers see all of them or none."""
        if not keys:
            return
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._handle)
        try:
            deque(map(batch.__setitem__, keys, rows), maxlen=0)
            self._db.write(batch, self._write_options)
        except Exception as exc:
            raise _translate(exc, self.directory) from exc
        self._count += len(keys)

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them, as of one moment; None where a key is not there."""
        return cast("list[bytes | None]", self._family.get(cast("list[Any]", keys)))

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order, as of the moment of the first step."""
        return _scan(self, self._family, lower, upper)

    def close(self) -> None:
        """Remove the folder. Nothing may read or write afterwards. Happens by itself as with a Tablet."""
        self._closer()


def make_tablet(directory: Path, files: Sequence[Path]) -> None:
    """Make the folder of a tablet: all of `Tablet.open` that writes.

    It waits for the disk a dozen times, 10 to 50 milliseconds in all, and rocksdict holds the GIL meanwhile; to reopen
    takes one. So whoever answers requests has it done by another process (`stelae/read/prepare_tablets.py`).
    """
    staging = directory.with_name(directory.name + ".incoming")
    staging.mkdir(parents=True)
    options = _options(_table_options(None), "lz4")
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
        raise _translate(exc, directory) from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)


_ONLINE_FAMILY = "rows"


def _close(db: rocksdict.Rdict, directory: Path | None) -> None:
    db.close()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _close_online(db: rocksdict.Rdict, directory: Path) -> None:
    # To close means to write what is in memory, which takes a tenth of a second; but not of a dropped family.
    with suppress(Exception):
        db.drop_column_family(_ONLINE_FAMILY)
    _close(db, directory)


def _unlogged() -> rocksdict.WriteOptions:
    options: Any = rocksdict.WriteOptions()
    options.disable_wal = True  # rocksdict's stub says that it is a method; it is none.
    return cast("rocksdict.WriteOptions", options)


def _scan(
    owner: Tablet | OnlineRows, db: rocksdict.Rdict, lower: bytes, upper: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    # Holds the owner, who closes the database when nobody holds it any more.
    iterator = db.iter()
    iterator.seek(lower)
    try:
        while iterator.valid():
            key = iterator.key()
            if upper is not None and key >= upper:
                return
            yield key, iterator.value()
            iterator.next()
        iterator.status()  # An iterator that meets a bad block just ends: ask why it ended.
    except Exception as exc:
        raise _translate(exc, owner.directory) from exc


def _is_uncompressed(file: Path) -> bool:
    """Whether a sorted file says so. A file that is taken for the other kind is read all the same, only slower."""
    try:
        with file.open("rb") as data:
            data.seek(max(0, file.stat().st_size - _PROPERTIES_BYTES))
            return _UNCOMPRESSED in data.read()
    except OSError:
        return False  # RocksDB says it better


def _table_options(
    cache: BlockCache | None, block_bytes: int = BLOCK_BYTES, *, no_cache: bool = False
) -> rocksdict.BlockBasedOptions:
    table = rocksdict.BlockBasedOptions()
    table.set_block_size(block_bytes)
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)  # False: one filter a file, not one a block.
    table.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.xxh3())
    if no_cache:
        table.disable_cache()
    elif cache is not None:
        table.set_block_cache(cache.cache)
    return table


def _options(table: rocksdict.BlockBasedOptions, compression: str) -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)  # Keys and values are plain bytes.
    options.set_block_based_table_factory(table)
    options.set_compression_type(_COMPRESSION[compression]())
    return options


def _link_or_copy(source: Path, target: Path) -> None:
    # RocksDB opens what it ingests for writing (it syncs it): of a file that is read-only it gets a copy of its own.
    if os.access(source, os.W_OK):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _translate(exc: Exception, place: Path) -> Exception:
    text = str(exc)
    if "strict ascending order" in text:
        return CorruptData("keys are not in strictly ascending order", place=str(place))
    if "No space left" in text:
        return Unavailable("the disk is full", place=str(place), hint="free some space, then try again")
    if text.startswith("Corruption") or "Bad table magic" in text or "file is too short" in text:
        return CorruptData(f"RocksDB can't read a sorted file: {text}", place=str(place))
    if text.startswith(("IO error", "No such file")):
        return Unavailable(f"RocksDB can't read or write: {text}", place=str(place))
    return exc
