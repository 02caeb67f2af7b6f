"""Checksums: of data files, and of the small JSON files that describe them.

    data file     its checksum stands in the snapshot manifest:    "xxh3-128:6df41bd5aab9..."
    JSON file     carries its own (`stelae/storage/sealed_json.py`)

xxh3-128 finds accidents (bad disks, cut transfers, mixed-up files) at the speed of memory. It does not stop an
attacker who can write to the warehouse.
"""

from __future__ import annotations

import re
from pathlib import Path

import xxhash

CHECKSUM_NAME = "xxh3-128"  # On disk. Never rename.
CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""

_CHECKSUM = re.compile(r"xxh3-128:[0-9a-f]{32}")


class Checksum:
    """The checksum of bytes that come piece by piece."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def add(self, data: bytes | bytearray | memoryview) -> None:
        self._hash.update(data)

    def text(self) -> str:
        """`xxh3-128:` and 32 hexadecimal digits."""
        return f"{CHECKSUM_NAME}:{self._hash.hexdigest()}"


def checksum(data: bytes) -> str:
    """The checksum of bytes in memory."""
    return f"{CHECKSUM_NAME}:{xxhash.xxh3_128_hexdigest(data)}"


def file_checksum(path: Path) -> str:
    """The checksum of a local file, read once from start to end. Errors of the file are the caller's (OSError)."""
    total = Checksum()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total.add(view[:count])
    return total.text()


def is_checksum(text: object) -> bool:
    """Whether `text` is a checksum in the form that this version writes."""
    return isinstance(text, str) and _CHECKSUM.fullmatch(text) is not None
