"""Online rows: the memtable of a table, for rows that were inserted since its snapshot was built."""

from __future__ import annotations

import shutil
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import rocksdict

from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.database import close_database, database_options, rocksdb_error, scan_database, table_options
from stelae.units import MIB

ONLINE_BUFFER_BYTES = 32 * MIB
"""Online rows that are kept in memory before they go to a file in the background: some 300,000."""
ONLINE_BUFFERS = 6
"""Buffers at most. A put waits, with the GIL, for one to be written when they are full: they must not get full."""

_ONLINE_FAMILY = "rows"


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
        options = database_options(table_options(cache), "lz4")
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
            raise rocksdb_error(exc, directory) from exc

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
            raise rocksdb_error(exc, self.directory) from exc
        self._count += len(keys)

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them, as of one moment; None where a key is not there."""
        return cast("list[bytes | None]", self._family.get(cast("list[Any]", keys)))

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order, as of the moment of the first step."""
        return scan_database(self, self._family, lower, upper)

    def close(self) -> None:
        """Remove the folder. Nothing may read or write afterwards. Happens by itself as with a Tablet."""
        self._closer()


def _close_online(db: rocksdict.Rdict, directory: Path) -> None:
    # To close means to write what is in memory, which takes a tenth of a second; but not of a dropped family.
    with suppress(Exception):
        db.drop_column_family(_ONLINE_FAMILY)
    close_database(db, directory)


def _unlogged() -> rocksdict.WriteOptions:
    options: Any = rocksdict.WriteOptions()
    options.disable_wal = True  # rocksdict's stub says that it is a method; it is none.
    return cast("rocksdict.WriteOptions", options)
