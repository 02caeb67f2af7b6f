"""The block cache that the tablets of a process share."""

from __future__ import annotations

import rocksdict

from stelae.units import MIB

DEFAULT_BLOCK_CACHE_BYTES = 256 * MIB


class BlockCache:
    """Uncompressed blocks of all tablets that share it, least recently used first out."""

    def __init__(self, capacity_bytes: int = DEFAULT_BLOCK_CACHE_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.cache = rocksdict.Cache(capacity_bytes)

    def usage_bytes(self) -> int:
        return int(self.cache.get_usage())
