"""Checksums: of data files, and of the small JSON files that describe them.

    data file     its checksum stands in the snapshot manifest:    "xxh3-128:6df41bd5aab9..."
    JSON file     carries its own, as its last member:             {..., "checksum": "xxh3-128:..."}

The seal of a JSON file covers bytes, not values: every byte before the comma that precedes `"checksum"`. What follows
has a fixed form. So a reader in any language verifies it without having to print JSON as Python does, and a change of
any one byte is noticed. docs/format.md#layout is the contract.

xxh3-128 finds accidents (bad disks, cut transfers, mixed-up files) at the speed of memory. It does not stop an
attacker who can write to the warehouse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import xxhash

from stelae.errors import CorruptData

CHECKSUM_NAME = "xxh3-128"  # On disk. Never rename.
CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""

_CHECKSUM = re.compile(r"xxh3-128:[0-9a-f]{32}")
_SEAL_HEAD = b',\n  "checksum": "'
_SEAL_TAIL = b'"\n}\n'
_SEAL_BYTES = len(_SEAL_HEAD) + len(CHECKSUM_NAME) + 1 + 32 + len(_SEAL_TAIL)


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


def seal_json(body: Mapping[str, Any]) -> bytes:
    """A JSON object, indented for people, with its checksum as the last member. `body` must not be empty."""
    head = orjson.dumps(body, option=orjson.OPT_INDENT_2).removesuffix(b"\n}")
    return head + _SEAL_HEAD + checksum(head).encode() + _SEAL_TAIL


def open_sealed_json(data: bytes, place: str) -> dict[str, Any]:
    """The object that `seal_json` sealed, without its checksum. Any other bytes are CorruptData."""
    head, seal = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not (seal.startswith(_SEAL_HEAD) and seal.endswith(_SEAL_TAIL)):
        raise CorruptData(f"the file does not end in its checksum ({len(data)} bytes)", place=place, hint=_KEEP)
    stored = seal[len(_SEAL_HEAD) : -len(_SEAL_TAIL)].decode(errors="replace")
    actual = checksum(head)
    if stored != actual:
        raise CorruptData(f"the file says checksum {stored}, its bytes have {actual}", place=place, hint=_KEEP)
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise CorruptData(f"the file is not JSON: {exc}", place=place, hint=_KEEP) from exc
    if not isinstance(body, dict):
        raise CorruptData(f"expected a JSON object, found {type(body).__name__}", place=place, hint=_KEEP)
    body.pop("checksum", None)
    return body


_KEEP = "keep the file for the diagnosis; restore it from a copy, or go back to a snapshot that can be read"
