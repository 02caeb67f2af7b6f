"""What all databases and files of ours have: options, scans, errors.

Files are block-based tables with full Bloom filters of 10 bits a key (about 1 % false positives: a miss costs no disk
read) and a hash index inside each block. How large the blocks are, and how they are compressed, are options of the
table; a reader finds both in the file (docs/decisions/0021-rocksdb-options.md has the measurements).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import rocksdict

from stelae.errors import CorruptData, Unavailable
from stelae.rocksdb.block_cache import BlockCache

BLOCK_BYTES = 4096
BLOOM_BITS_PER_KEY = 10

_COMPRESSION = {
    "lz4": rocksdict.DBCompressionType.lz4,
    "zstd": rocksdict.DBCompressionType.zstd,
    "none": rocksdict.DBCompressionType.none,
}


class DatabaseOwner(Protocol):
    """What holds an open database, and closes it when nobody refers to the owner any more."""

    directory: Path


def table_options(
    cache: BlockCache | None, block_bytes: int = BLOCK_BYTES, *, no_cache: bool = False
) -> rocksdict.BlockBasedOptions:
    """How blocks are written and read: whoever reads a file has to give the same filter and index as its writer."""
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


def database_options(table: rocksdict.BlockBasedOptions, compression: str) -> rocksdict.Options:
    """Options of a database or a file. `compression`: lz4, zstd, none; of files that are written."""
    options = rocksdict.Options(raw_mode=True)  # Keys and values are plain bytes.
    options.set_block_based_table_factory(table)
    options.set_compression_type(_COMPRESSION[compression]())
    return options


def scan_database(
    owner: DatabaseOwner, db: rocksdict.Rdict, lower: bytes, upper: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and rows with `lower <= key < upper` in key order; no `upper`: to the end."""
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
        raise rocksdb_error(exc, owner.directory) from exc


def close_database(db: rocksdict.Rdict, directory: Path | None) -> None:
    """Close it, then remove its folder, unless it is another process's."""
    db.close()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def rocksdb_error(exc: Exception, place: Path) -> Exception:
    """The error of ours that stands for one of rocksdict, which has one class for all: CorruptData or Unavailable. Any
    other exception is returned as it is.
    """
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
