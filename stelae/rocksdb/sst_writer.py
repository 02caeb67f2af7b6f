"""Sorted files: rows of one bucket in key order go in, one immutable file comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rocksdict

from stelae.encoding.keys import KeyBytes
from stelae.errors import InvalidRequest
from stelae.rocksdb.database import BLOCK_BYTES, database_options, rocksdb_error, table_options
from stelae.schema.options import FileOptions
from stelae.storage.checksum import file_checksum
from stelae.units import MIB

UNCOMPRESSED_BLOCK_BYTES = 1024
"""Of a block that is read in place, only the lines are read that a search touches: small ones have fewer."""

_ZLIB_WINDOW_BITS = -14
"""RocksDB's default, which has to be said; no compression of ours looks at it."""


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
        options = database_options(table_options(None, files.block_bytes or usual), files.compression)
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
            raise rocksdb_error(exc, self._path) from exc
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
            raise rocksdb_error(exc, self._path) from exc
        return SstInfo(
            rows=self._rows,
            bytes=self._path.stat().st_size,
            checksum=file_checksum(self._path),
            first_key=self._first_key,
            last_key=self._last_key,
        )
