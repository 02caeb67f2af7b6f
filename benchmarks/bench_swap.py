"""Swapping: snapshots of 5 million rows are loaded and swapped in while 16 connections look up without a pause.

Compared are p99 latencies of the same server with and without loads going on (target: under 3 times), requests that
failed (none), and the time from a commit to the first answer from its snapshot (target: within 3 seconds). Snapshots
alternate between two sets of files by rollback, so that each load verifies and opens all files anew, and no builder
takes part.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import Running, lookup_paths, make_users, tablet_server
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.wire.http_api import SNAPSHOT_HEADER

PAUSE_S = 0.2
"""Between a swap and the next commit."""


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=500_000 if quick else 5_000_000, rounds=2 if quick else 5, seconds=3 if quick else 8)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, rounds: int, seconds: int) -> None:
    warehouse = folder / "warehouse"
    make_users(warehouse, rows)
    make_users(warehouse, rows)
    table = Warehouse(warehouse).table("shop.users")
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    paths = lookup_paths(folder, random.Random(1).sample(range(rows), 10_000))
    loads: list[float] = []
    failed = 0

    with tablet_server(warehouse) as server:

        def quiet() -> float:
            nonlocal failed
            result = server.wrk(paths, seconds)
            failed += result.failed
            return result.p99_ms

        def swapping() -> float:
            nonlocal failed
            stop = threading.Event()
            swaps = threading.Thread(target=lambda: loads.extend(swap_until(stop, table, server, paths)))
            swaps.start()
            result = server.wrk(paths, seconds)
            stop.set()
            swaps.join()
            failed += result.failed
            return result.p99_ms

        server.wrk(paths, 1)
        latencies = in_turn(rounds, {"p99 quiet, ms": quiet, "p99 while loading, ms": swapping})
        alone = [load_once(table, server, paths) for _ in range(3)]
    note = f"{rows:,} rows of 6 columns, {snapshot.totals.bytes:,} bytes; {len(loads)} swaps, {failed} failed requests"
    quiet_p99, loading_p99 = median(latencies["p99 quiet, ms"]), median(latencies["p99 while loading, ms"])
    show(
        "Swap",
        [
            Ratio("p99 while loading / quiet", loading_p99, quiet_p99, "ms", "< 3", note=note),
            Ratio("commit to served, under load", median(loads), 3, "s (peer: the limit)", "<= 1"),
            Ratio("commit to served, idle", median(alone), 3, "s (peer: the limit)", "<= 1"),
        ],
    )
    if failed:
        raise SystemExit(f"{failed} requests failed")


def swap_until(stop: threading.Event, table: Table, server: Running, paths: Path) -> list[float]:
    """Commit and wait for the swap, over and over; seconds each took."""
    seconds = []
    while not stop.is_set():
        seconds.append(load_once(table, server, paths))
        time.sleep(PAUSE_S)
    return seconds


def load_once(table: Table, server: Running, paths: Path) -> float:
    """Seconds from a commit with other files to the first answer from it."""
    latest = table.snapshots.latest_id() or 0
    committed = table.snapshots.rollback(latest - 1, now_ms=time.time_ns() // 1_000_000)
    started = time.perf_counter()
    with paths.open() as lines:
        path = lines.readline().strip()
    connection = server.connect()
    try:
        while time.perf_counter() - started < 60:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.headers[SNAPSHOT_HEADER] == str(committed.id):
                return time.perf_counter() - started
            time.sleep(0.01)
    finally:
        connection.close()
    raise SystemExit("the snapshot was not served within a minute")


if __name__ == "__main__":
    main()
