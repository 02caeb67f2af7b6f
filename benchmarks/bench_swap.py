"""A swap under load: what lookups notice while a new snapshot loads, and how soon it is served.

16 connections ask without pause. Peer: the 99th percentile of their latency in the seconds before. Targets: no request fails,
p99 stays under 3 times that before, and the snapshot is served within 3 seconds after its commit.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import orjson

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import LOOKUP, Running, WrkResult, lookup_paths, make_users, tablet_server
from stelae.paths import sst_path
from stelae.warehouse import Table

KEYS = 10_000
QUIET_S = 3
AFTER_S = 1


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=500_000 if quick else 5_000_000, rounds=3 if quick else 7)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, rounds: int) -> None:
    warehouse = folder / "warehouse"
    table = make_users(warehouse, rows)
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    paths = lookup_paths(folder, random.Random(1).sample(range(rows), KEYS))
    before: list[WrkResult] = []
    during: list[WrkResult] = []

    with tablet_server(warehouse) as server:
        server.wrk(paths, 1)

        def swap() -> float:
            """Seconds from the commit to the first answer from the new snapshot."""
            before.append(server.wrk(paths, QUIET_S))
            commit = copy_of_newest(table)
            asker = threading.Thread(target=lambda: during.append(server.wrk(paths, QUIET_S)))
            asker.start()
            time.sleep(0.2)
            started = time.perf_counter()
            committed = commit()
            while served_snapshot(server) != committed:
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            asker.join()
            return seconds

        seconds = in_turn(rounds, {"commit to answer, s": swap})["commit to answer, s"]
    failed = sum(result.failed for result in (*before, *during))
    note = f"{rows:,} rows, {snapshot.totals.bytes:,} bytes, 4 buckets; medians of {rounds}; {failed} requests failed"
    show(
        "Swap under load",
        [
            Ratio(
                "p99 of lookups",
                median([result.p99_ms for result in during]),
                median([result.p99_ms for result in before]),
                "ms",
                "<= 3",
                note=note,
            ),
            Ratio(
                "lookups a second",
                median([result.requests_per_s for result in during]),
                median([result.requests_per_s for result in before]),
                "1/s",
                "",
            ),
            Ratio("commit to answer", median(seconds), 3.0, "s", "<= 1", note="peer: the 3 seconds of the target"),
        ],
    )


def copy_of_newest(table: Table) -> Callable[[], int]:
    """Files of the newest snapshot copied under new names, so that a load shares nothing; the commit is still to do."""
    newest = table.snapshots.latest()
    assert newest is not None
    partitions = []
    for partition in newest.partitions:
        buckets = []
        for bucket in partition.buckets:
            files = []
            for file in bucket.files:
                path = sst_path(partition.folder, bucket.bucket, uuid4().hex)
                source, target = table.storage.local_path(file.path), table.storage.local_path(path)
                assert source is not None
                assert target is not None
                shutil.copyfile(source, target)
                files.append(replace(file, path=path))
            buckets.append(replace(bucket, files=tuple(files)))
        partitions.append(replace(partition, buckets=tuple(buckets)))
    snapshot = replace(newest, id=newest.id + 1, parent=newest.id, build_id=uuid4().hex, partitions=tuple(partitions))
    return lambda: table.snapshots.commit(snapshot).id


def served_snapshot(server: Running) -> int:
    connection = server.connect()
    connection.request("GET", f"{LOOKUP}?user_id=1")
    snapshot: int = orjson.loads(connection.getresponse().read())["snapshot"]
    connection.close()
    return snapshot


if __name__ == "__main__":
    main()
