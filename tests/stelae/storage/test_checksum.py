"""Goal: no accident to a file goes unnoticed. Method: known values, and every single-byte change of a sealed file."""

from pathlib import Path

import pytest

from stelae.errors import CorruptData
from stelae.storage.checksum import (
    CHUNK_BYTES,
    Checksum,
    checksum,
    file_checksum,
    is_checksum,
    open_sealed_json,
    seal_json,
)

BODY = {"format": 1, "name": "über", "list": [1, {"a": None}], "empty": {}}
SEALED = (
    b'{\n  "format": 1,\n  "name": "\xc3\xbcber",\n  "list": [\n    1,\n    {\n      "a": null\n    }\n  ],\n'
    b'  "empty": {},\n'
    b'  "checksum": "xxh3-128:60a74604f3f8fe3f0ac1afb58dd1c30b"\n}\n'
)


def test_checksum_is_xxh3_128_in_its_canonical_form() -> None:
    # From the test vectors of xxHash: XXH3_128bits of no bytes.
    assert checksum(b"") == "xxh3-128:99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
def test_file_bytes_and_pieces_agree(tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    (tmp_path / "file").write_bytes(data)
    pieces = Checksum()
    pieces.add(data[:7])
    pieces.add(memoryview(data)[7:])
    assert file_checksum(tmp_path / "file") == checksum(data) == pieces.text()
    assert is_checksum(checksum(data))


@pytest.mark.parametrize("text", ["", "xxh3-128:", "md5:" + "0" * 32, "xxh3-128:" + "A" * 32, None, 7])
def test_is_checksum_refuses(text: object) -> None:
    assert not is_checksum(text)


def test_seal_golden_bytes() -> None:
    assert seal_json(BODY) == SEALED
    assert open_sealed_json(SEALED, "here") == BODY


def test_every_changed_byte_is_noticed() -> None:
    for position in range(len(SEALED)):
        for flip in (0x01, 0x20, 0x80):
            broken = bytearray(SEALED)
            broken[position] ^= flip
            with pytest.raises(CorruptData):
                open_sealed_json(bytes(broken), "here")


def test_every_cut_is_noticed() -> None:
    for size in range(len(SEALED)):
        with pytest.raises(CorruptData):
            open_sealed_json(SEALED[:size], "here")


def test_sealed_non_objects_are_refused() -> None:
    head = b"[1"
    with pytest.raises(CorruptData):
        open_sealed_json(head + b',\n  "checksum": "' + checksum(head).encode() + b'"\n}\n', "here")
