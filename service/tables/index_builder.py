"""Hash indexes of partitions that batches ask for, made while the server answers.

    a table's batches have asked for enough keys ──► room left? ──► another process makes the index ──► readers use it

An index costs a microsecond a row to make, a copy of the rows on disk, and the memory that the system keeps of it; it
spares two microseconds a key. So only tables that batches ask for get one, and they are made by a process of low
priority, one at a time, after a snapshot was swapped in: until an index is there RocksDB answers, and nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from stelae.errors import StelaeError
from stelae.read.build_index import index_bytes, index_partition_in_background
from stelae.read.hash_index import HashIndex
from stelae.read.partition_tablets import PartitionTablets
from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.tables.counts import TableCounts
from stelae.service.tables.served_table import ServedTable

logger = logging.getLogger("stelae.server")

LOOK_INTERVAL_S = 0.5
LEAST_KEYS = 10_000
KEYS_A_ROW = 0.05
"""Keys that batches must have asked a table for, in all and for each of its rows, before it gets indexes."""


class IndexBuilder:
    """Makes the indexes of all tables."""

    def __init__(
        self,
        tables: Mapping[str, ServedTable],
        folder: Path,
        most_bytes: int,
        on_made: Callable[[ServedTable, SnapshotReader, PartitionTablets], None] = lambda *_: None,
        counts: Callable[[ServedTable], TableCounts] = lambda table: table.counts,
    ) -> None:
        """`most_bytes`: what all indexes may take that are open at a time. `on_made` hears of each new one. `counts`
        says what a table was asked for.
        """
        self._tables = tables
        self._folder = folder
        self._most_bytes = most_bytes
        self._on_made = on_made
        self._counts = counts
        self._open: weakref.WeakSet[HashIndex] = weakref.WeakSet()
        self._given_up: weakref.WeakSet[object] = weakref.WeakSet()
        """Places of indexes that can't be made, or that there is no room for."""
        self._thread = ThreadPoolExecutor(1, "stelae-index")
        self._stop = Event()

    @property
    def open_bytes(self) -> int:
        """Of all indexes that are in use."""
        return sum(index.bytes for index in self._open)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            for table in list(self._tables.values()):
                try:
                    await self.look(table)
                except Exception:
                    logger.exception("%s: looking after hash indexes failed in a way that was not foreseen", table.name)

    async def look(self, table: ServedTable) -> None:
        """Make the indexes that a table should have and has not."""
        serving = table.serving
        if serving is None or not self._most_bytes or not is_asked(self._counts(table), serving.reader):
            return
        reader = serving.reader
        for partition in reader.partitions.values():
            if partition.index.made is None and partition.rows and partition.index not in self._given_up:
                await self._make(table, reader, partition)
            if table.serving is None or table.serving.reader.snapshot is not reader.snapshot:
                return  # another snapshot came meanwhile

    async def _make(self, table: ServedTable, reader: SnapshotReader, partition: PartitionTablets) -> None:
        needed = index_bytes(partition)
        free = self._most_bytes - self.open_bytes
        where = f"{table.name} {partition.folder}".strip()
        if needed > free:
            self._given_up.add(partition.index)
            logger.info(
                "%s: a hash index would take %s bytes, %s are left of --hash-index-bytes; RocksDB answers batches",
                where, f"{needed:,}", f"{free:,}",
            )  # fmt: skip
            return
        directory = self._folder / f"index-{uuid.uuid4().hex[:12]}"
        started = time.perf_counter()

        def make() -> HashIndex:
            index_partition_in_background(partition, directory, reader.table.keys.width, self._stop)
            return HashIndex(directory)

        try:
            index = await asyncio.get_running_loop().run_in_executor(self._thread, make)
        except (StelaeError, OSError, ValueError) as exc:
            self._given_up.add(partition.index)
            logger.warning("%s: no hash index, RocksDB answers batches: %s", where, exc)
            return
        self._open.add(index)
        partition.index.made = index
        self._on_made(table, reader, partition)
        logger.info(
            "%s: hash index of %s rows, %s bytes, made in %.1f s",
            where, f"{index.rows:,}", f"{index.bytes:,}", time.perf_counter() - started,
        )  # fmt: skip

    def close(self) -> None:
        self._stop.set()
        self._thread.shutdown(wait=False, cancel_futures=True)


def is_asked(counts: TableCounts, reader: SnapshotReader) -> bool:
    """Whether batches have asked a table for so many keys that indexes pay."""
    keys = counts.batch_keys + counts.inserted + counts.insert_found
    return keys >= max(LEAST_KEYS, KEYS_A_ROW * reader.snapshot.totals.rows)
