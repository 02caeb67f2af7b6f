"""RocksDB's options for files that are written once and then read: each choice beside the one that tablets have.

    python -m benchmarks.bench_rocksdb_options [--quick]

One bucket of 500,000 rows, or 10 million, goes into one file for each choice and is then read in process, without the
rest of the tablet server. The first line has figures; all others are ratios to it, below 1 is better.

    bytes     of the file, a row                memory   that RocksDB holds for the open file, a row: index and filter
    write     ns a row, processor time          get      one key a call, as `uniform`
    uniform   ns a key in batches of 250, all keys equally likely
    zipf      the same, of YCSB's distribution (0.99), the hot keys spread over all blocks
    missing   the same, of keys that are not there

Lines with "small cache" have a block cache of a twentieth of the rows, so that most blocks come from the page cache of
the system; they have a first line of their own. Times are processor time, the better of two draws after a first one
that is not counted. docs/decisions/0021-rocksdb-options.md says what was chosen.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rocksdict as R  # noqa: N812 - options that are not ours to have, so not through stelae/rocksdb

from benchmarks.common import quick_mode
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.schema.options import TableOptions
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import BigInt, Double, Int, String, Timestamp

BATCH = 250
BATCHES = 200
SMALL_CACHE = 1 / 20
KINDS = {
    "lz4": R.DBCompressionType.lz4,
    "zstd": R.DBCompressionType.zstd,
    "none": R.DBCompressionType.none,
}

HEADINGS = ("bytes", "write", "memory", "uniform", "zipf", "missing", "get")

Setting = Callable[[Any], object]


@dataclass(frozen=True)
class Choice:
    """A way to write a file, and to read it."""

    name: str
    compression: str = "lz4"
    block_bytes: int = 4096
    hash_index: bool = True
    bloom_bits: int = 10
    format_version: int = 5
    level: int | None = None
    dictionary_bytes: int = 0
    mapped: bool = False
    """mmap; and no block cache, unless the file is compressed."""
    clock: bool = False
    small_cache: bool = False
    row_cache: float = 0
    """Part of the block cache that is a row cache instead."""
    table: Setting = field(default=lambda _: None)
    options: Setting = field(default=lambda _: None)
    reads: Setting | None = None


def partitioned(table: Any) -> None:
    table.set_index_type(R.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(4096)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_top_level_index_and_filter(True)


USUAL = Choice("lz4, 4 KiB")
SMALL = Choice("lz4, 4 KiB, small cache", small_cache=True)
SECTIONS: dict[str, Sequence[Choice]] = {
    "compression and block size, all in the block cache": [
        USUAL,
        *[Choice(f"lz4, {size} B", block_bytes=size) for size in (512, 1024, 2048, 16384)],
        Choice("zstd, 4 KiB", "zstd"),
        Choice("zstd level 1", "zstd", level=1),
        Choice("zstd level 9", "zstd", level=9),
        Choice("zstd, dictionary of 16 KiB", "zstd", dictionary_bytes=16384),
    ],
    "uncompressed": [
        USUAL,
        Choice("none, 4 KiB, block cache", "none"),
        *[Choice(f"none, {size} B, mmap", "none", size, mapped=True) for size in (512, 1024, 2048, 4096)],
        Choice("none, 1024 B, mmap, binary search", "none", 1024, mapped=True, hash_index=False),
        Choice(
            "none, 1024 B, mmap, unverified", "none", 1024, mapped=True, reads=lambda r: r.set_verify_checksums(False)
        ),
    ],
    "index and filter": [
        USUAL,
        Choice("binary search in blocks", hash_index=False),
        Choice("hash ratio 0.5", table=lambda t: t.set_data_block_hash_ratio(0.5)),
        Choice("format version 6", format_version=6),
        Choice("index restarts every 4", table=lambda t: t.set_index_block_restart_interval(4)),
        Choice("Bloom filter of 8 bits", bloom_bits=8),
        Choice("Bloom filter of 14 bits", bloom_bits=14),
        Choice("no Bloom filter", bloom_bits=0),
        Choice("optimize_filters_for_hits", options=lambda o: o.set_optimize_filters_for_hits(True)),
        Choice("index and filter in the cache", table=lambda t: t.set_cache_index_and_filter_blocks(True)),
        Choice("the same, partitioned", table=partitioned),
        Choice("HyperClockCache", clock=True),
    ],
    "a block cache of a twentieth of the rows": [
        SMALL,
        Choice("lz4, 1 KiB", block_bytes=1024, small_cache=True),
        Choice("lz4, 2 KiB", block_bytes=2048, small_cache=True),
        Choice("lz4, mmap", mapped=True, small_cache=True),
        Choice("lz4, a quarter of it for rows", small_cache=True, row_cache=0.25),
        Choice("lz4, three quarters for rows", small_cache=True, row_cache=0.75),
        Choice("none, 1 KiB, mmap, no cache", "none", 1024, mapped=True),
        Choice("zstd, 4 KiB", "zstd", small_cache=True),
        Choice("zstd, 1 KiB", "zstd", 1024, small_cache=True),
        Choice("zstd, dictionary of 16 KiB", "zstd", dictionary_bytes=16384, small_cache=True),
        Choice("lz4, partitioned", small_cache=True, table=partitioned),
        Choice("lz4, unverified", small_cache=True, reads=lambda r: r.set_verify_checksums(False)),
        Choice("lz4, fill_cache off", small_cache=True, reads=lambda r: r.fill_cache(False)),
        Choice("lz4, async_io", small_cache=True, reads=lambda r: r.set_async_io(True)),
        Choice("lz4, advise_random off", small_cache=True, options=lambda o: o.set_advise_random_on_open(False)),
    ],
}


@dataclass(frozen=True)
class Rows:
    """What is written and asked for."""

    keys: list[bytes]
    rows: list[bytes]
    uniform: list[list[list[bytes]]]
    """Three draws, of batches of keys."""
    zipf: list[list[list[bytes]]]
    missing: list[list[list[bytes]]]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.rows)) + len(self.keys) * len(self.keys[0])


def make_rows(count: int) -> Rows:
    """Every fourth id, so that those between are missing."""
    rng = np.random.default_rng(1)
    ids = np.arange(count) * 4
    columns = [Column(0, "user_id", BigInt(nullable=False))]
    for name, data_type in (("name", String()), ("city", String()), ("age", Int()), ("score", Double())):
        columns.append(Column(len(columns), name, data_type))
    columns.append(Column(len(columns), "updated", Timestamp()))
    schema = TableSchema(0, tuple(columns), ("user_id",), (), TableOptions())
    codec, keys_of = RowCodec(schema), KeyCodec(schema.key_columns)
    rows: list[bytes] = []
    for part in np.array_split(ids, max(1, count // 100_000)):
        numbers = pa.array(part).cast(pa.string())
        rows += codec.encode_list(
            [
                pa.compute.binary_join_element_wise("name", numbers, " "),
                pa.compute.binary_join_element_wise("city", pa.array(part % 100).cast(pa.string()), " "),
                pa.array((part % 100).astype(np.int32)),
                pa.array(part / 8),
                pa.array(1_763_640_000_000_000 + part, pa.timestamp("us")),
            ]
        )

    def batches(places: npt.NDArray[Any], step: int = 0) -> list[list[bytes]]:
        asked = keys_of.encode_list([pa.array(ids[places] + step)])
        return [asked[start : start + BATCH] for start in range(0, len(asked), BATCH)]

    weights = np.cumsum(np.arange(1, count + 1) ** -0.99)
    spread = rng.permutation(count)
    size = BATCH * BATCHES
    return Rows(
        keys_of.encode_list([pa.array(ids)]),
        rows,
        [batches(rng.integers(0, count, size)) for _ in range(3)],
        [batches(spread[np.searchsorted(weights, rng.random(size) * weights[-1])]) for _ in range(3)],
        [batches(rng.integers(0, count, size), step=1) for _ in range(3)],
    )


def measure(choice: Choice, rows: Rows, folder: Path) -> list[float]:
    """The figures of the table's columns."""
    count = len(rows.rows)
    cache_bytes = int(rows.bytes * SMALL_CACHE) if choice.small_cache else 2 * rows.bytes
    row_cache_bytes = int(cache_bytes * choice.row_cache)
    table = R.BlockBasedOptions()
    table.set_block_size(choice.block_bytes)
    if choice.bloom_bits:
        table.set_bloom_filter(choice.bloom_bits, False)
    index = R.DataBlockIndexType
    table.set_data_block_index_type(index.binary_and_hash() if choice.hash_index else index.binary_search())
    table.set_format_version(choice.format_version)
    table.set_checksum_type(R.ChecksumType.xxh3())
    if choice.mapped and choice.compression == "none":
        table.disable_cache()
    elif choice.clock:
        table.set_block_cache(R.Cache.new_hyper_clock_cache(cache_bytes, choice.block_bytes))
    else:
        table.set_block_cache(R.Cache(cache_bytes - row_cache_bytes))
    choice.table(table)
    row_cache = R.Cache(row_cache_bytes) if row_cache_bytes else None

    def options() -> Any:
        made = R.Options(raw_mode=True)
        made.set_block_based_table_factory(table)
        made.set_compression_type(KINDS[choice.compression]())
        if choice.level is not None or choice.dictionary_bytes:
            made.set_compression_options(-14, 3 if choice.level is None else choice.level, 0, choice.dictionary_bytes)
            made.set_zstd_max_train_bytes(100 * choice.dictionary_bytes)
        made.set_allow_mmap_reads(choice.mapped)
        if row_cache is not None:
            made.set_row_cache(row_cache)
        choice.options(made)
        return made

    file = folder / "rows.sst"
    writer = R.SstFileWriter(options())
    writer.open(str(file))
    started = time.process_time()
    deque(map(writer.__setitem__, rows.keys, rows.rows), maxlen=0)
    writer.finish()
    write_ns = (time.process_time() - started) / count * 1e9
    file_bytes = file.stat().st_size

    making = options()
    making.create_if_missing(True)
    db: Any = R.Rdict(str(folder / "db"), making)
    ingest = R.IngestExternalFileOptions()
    ingest.set_move_files(True)
    db.ingest_external_file([str(file)], ingest)
    db.close()
    reading = options()
    reading.set_max_open_files(-1)
    reading.set_skip_stats_update_on_db_open(True)
    access = R.AccessType.read_only()
    db = R.Rdict(str(folder / "db"), reading, column_families={"default": reading}, access_type=access)
    if choice.reads is not None:
        read_options = R.ReadOptions()
        choice.reads(read_options)
        db.set_read_options(read_options)
    memory = int(db.property_value("rocksdb.estimate-table-readers-mem") or 0)
    some = rows.keys[:: max(1, choice.block_bytes // 128)]
    for start in range(0, len(some), BATCH):  # every block once: all that fits is in the cache
        db.get(some[start : start + BATCH])
    figures = [file_bytes / count, write_ns, memory / count]
    figures += [best(draws, db.get) for draws in (rows.uniform, rows.zipf, rows.missing)]
    few = [[batch[: BATCH // 5] for batch in draw] for draw in rows.uniform]
    figures.append(best(few, lambda batch: [db.get(key) for key in batch]))
    db.close()
    return figures


def best(draws: Sequence[Sequence[list[bytes]]], get: Callable[[list[bytes]], object]) -> float:
    """Nanoseconds a key."""
    times = []
    for draw in draws:
        started = time.process_time()
        for batch in draw:
            get(batch)
        times.append((time.process_time() - started) / sum(map(len, draw)) * 1e9)
    return min(times[1:])


def main() -> None:
    rows = make_rows(500_000 if quick_mode(__doc__) else 10_000_000)
    print(f"{len(rows.rows):,} rows of {rows.bytes / len(rows.rows):.0f} bytes with their keys")
    print(f"\n{'':50}" + "".join(f"{heading:>9}" for heading in HEADINGS))
    for title, choices in SECTIONS.items():
        print(f"\n{title}")
        show_section(choices, rows)


def show_section(choices: Sequence[Choice], rows: Rows) -> None:
    first: list[float] = []
    for choice in (choices[0], *choices):  # the first one twice: to begin is slower
        folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
        try:
            figures = measure(choice, rows, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if choice is choices[0]:
            cells = [f"{figure:9.1f}" if figure < 100 else f"{figure:9.0f}" for figure in figures]
            if not first:
                first = figures
                continue
            first = figures
        else:
            cells = [f"{figure / peer:9.2f}" for figure, peer in zip(figures, first, strict=True)]
        print(f"  {choice.name:48}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
