"""Looking into data files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.tablet import Tablet
from stelae.units import MIB


def read_file(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """All keys and rows of one sorted file in key order, with RocksDB's own block checksums verified."""
    with tempfile.TemporaryDirectory() as folder:
        tablet = Tablet.open(Path(folder) / "tablet", [path], BlockCache(8 * MIB))
        try:
            yield from tablet.scan()
        finally:
            tablet.close()
