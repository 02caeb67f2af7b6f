"""Goal: sorted files hold what was written, in the form that the options ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stelae.errors import CorruptData, InvalidRequest
from stelae.rocksdb.sst_writer import SstInfo, SstWriter
from stelae.rocksdb.tablet import Tablet
from stelae.schema.options import FileOptions
from stelae.storage.checksum import file_checksum
from tests.files import read_file
from tests.stelae.rocksdb.sorted_files import people, some_rows, write_file


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_a_file_is_described_as_it_is(tmp_path: Path, compression: str) -> None:
    rows = some_rows(1000)
    path = tmp_path / "a.sst"
    info = write_file(path, rows, compression)
    assert info == SstInfo(len(rows), path.stat().st_size, file_checksum(path), min(rows), max(rows))
    assert dict(read_file(path)) == rows
    assert [key for key, _ in read_file(path)] == sorted(rows)


def test_keys_must_ascend_also_between_calls(tmp_path: Path) -> None:
    writer = SstWriter(tmp_path / "a.sst")
    writer.write([b"a", b"c"], [b"1", b"3"])
    for key in (b"b", b"c"):
        with pytest.raises(CorruptData, match="ascending"):
            writer.write([key], [b""])


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    writer = SstWriter(tmp_path / "a.sst")
    writer.write([], [])
    with pytest.raises(InvalidRequest, match="at least one row"):
        writer.finish()


def data_blocks(tablet: Tablet) -> int:
    properties = tablet._db.property_value("rocksdb.aggregated-table-properties") or ""
    found = re.search(r"# data blocks=(\d+)", properties)
    assert found
    return int(found[1])


def test_options_reach_the_file(tmp_path: Path) -> None:
    rows = people()
    plain_bytes = sum(map(len, rows)) + sum(map(len, rows.values()))
    bytes_of: dict[str, int] = {}
    blocks_of: dict[str, int] = {}
    for name, options in {
        "lz4": FileOptions(),
        "lz4 1 kb": FileOptions("lz4", block_bytes=1024),
        "lz4 16 kb": FileOptions("lz4", block_bytes=16_384),
        "zstd": FileOptions("zstd"),
        "zstd 1": FileOptions("zstd", zstd_level=1),
        "zstd 19": FileOptions("zstd", zstd_level=19),
        "none": FileOptions("none"),
        "none 4 kb": FileOptions("none", block_bytes=4096),
    }.items():
        path = tmp_path / f"{name}.sst"
        writer = SstWriter(path, options)
        writer.write(list(rows), list(rows.values()))
        bytes_of[name] = writer.finish().bytes
        tablet = Tablet.open(tmp_path / f"db {name}", [path])
        blocks_of[name] = data_blocks(tablet)
        assert tablet.multi_get(list(rows)[::500]) == list(rows.values())[::500]
    assert bytes_of["zstd"] < bytes_of["lz4"] < plain_bytes / 2 < plain_bytes < bytes_of["none"]
    assert bytes_of["lz4 16 kb"] < bytes_of["lz4"] < bytes_of["lz4 1 kb"]
    assert len({bytes_of["zstd"], bytes_of["zstd 1"], bytes_of["zstd 19"]}) == 3
    for name, block_bytes in (("lz4", 4096), ("lz4 1 kb", 1024), ("lz4 16 kb", 16_384), ("none", 1024)):
        assert blocks_of[name] == pytest.approx(plain_bytes / block_bytes, rel=0.25)
    assert blocks_of["none 4 kb"] == pytest.approx(blocks_of["lz4"], rel=0.01)
