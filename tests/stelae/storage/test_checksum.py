"""Goal: the checksum of a file is xxh3-128, however its bytes arrive."""

from pathlib import Path

import pytest

from stelae.storage.checksum import CHUNK_BYTES, Checksum, checksum, file_checksum, is_checksum


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
