"""Rows, and sorted files of them."""

from __future__ import annotations

import random
from pathlib import Path

from stelae.rocksdb.sst_writer import SstInfo, SstWriter
from stelae.schema.options import FileOptions


def write_file(path: Path, rows: dict[bytes, bytes], compression: str = "lz4", **options: int) -> SstInfo:
    writer = SstWriter(path, FileOptions(compression, **options))
    writer.write(sorted(rows), [rows[key] for key in sorted(rows)])
    return writer.finish()


def some_rows(count: int, seed: int = 7) -> dict[bytes, bytes]:
    source = random.Random(seed)
    return {source.randbytes(source.randrange(1, 20)): source.randbytes(source.randrange(60)) for _ in range(count)}


def people(count: int = 20_000) -> dict[bytes, bytes]:
    return {f"{i:09}".encode(): f"name {i} city {i % 100}".encode() * 2 for i in range(count)}
