"""Batch lookups: a JSON batch of 1,000 keys over HTTP, batches a second from one connection.

Peer: the same rows in this process: multi-get by bucket, decode, orjson; keys are at hand as physical values, nothing
is parsed or sent. Target: at least 0.5 of it.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path

import orjson

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import LOOKUP, make_users, tablet_server
from stelae.read.open_snapshot import open_snapshot

BATCH = 1000


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=100_000 if quick else 2_000_000, rounds=3 if quick else 9, seconds=2 if quick else 5)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, rounds: int, seconds: int) -> None:
    warehouse = folder / "warehouse"
    table = make_users(warehouse, rows)
    snapshot = table.snapshots.read()
    rng = random.Random(1)
    batches = [rng.sample(range(rows), BATCH) for _ in range(50)]
    bodies = [orjson.dumps({"keys": batch}) for batch in batches]
    reader = open_snapshot(table, snapshot, folder / "tablets")
    projection = reader.table.all_columns
    keys = [[(key,) for key in batch] for batch in batches]
    size = 0

    def in_process() -> float:
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            orjson.dumps({"rows": reader.lookup_many(keys[done % len(keys)], projection), "snapshot": reader.id})
            done += 1
        return done / spent

    with tablet_server(warehouse) as server:
        connection = server.connect()

        def over_http() -> float:
            nonlocal size
            done, started = 0, time.perf_counter()
            while (spent := time.perf_counter() - started) < seconds:
                connection.request("POST", LOOKUP, bodies[done % len(bodies)], {"Content-Type": "application/json"})
                response = connection.getresponse()
                size = len(response.read())
                assert response.status == 200
                done += 1
            return done / spent

        connection.request("POST", LOOKUP, bodies[0])
        rows_found = orjson.loads(connection.getresponse().read())["rows"]
        assert rows_found == reader.lookup_many(keys[0], projection)
        rates = in_turn(rounds, {"in process": in_process, "over HTTP": over_http})
    note = f"{BATCH:,} keys, answers of {size:,} bytes; {rows:,} rows, {snapshot.totals.bytes:,} bytes"
    ours, peer = median(rates["over HTTP"]), median(rates["in process"])
    show("Batch lookup", [Ratio("batches a second", ours, peer, "1/s", ">= 0.5", note=note)])


if __name__ == "__main__":
    main()
