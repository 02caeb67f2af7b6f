"""Point lookups while large batches are answered: how long the slowest one in a hundred takes.

One server process; wrk asks for single keys over 4 connections. Beside it, one client sends batches of 10,000 keys one
after the other and reads the answers, in JSON and in Arrow. Peer: the same point lookups, with nobody else there, in
turn. The server has a core to itself, where there are two. Target: a p99 under five times that.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson
import pyarrow as pa

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import LOOKUP, Running, lookup_paths, make_users, tablet_server
from stelae.wire.http_api import ARROW, JSON

KEYS = 10_000
BATCH_KEYS = 10_000
CONNECTIONS = 4
ALONE = "alone"


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=100_000 if quick else 2_000_000, rounds=3 if quick else 9, seconds=2 if quick else 5)
    finally:
        shutil.rmtree(folder)


def bodies(rows: int) -> Mapping[str, tuple[str, bytes]]:
    """A batch in each form: content type and body."""
    keys = random.Random(2).choices(range(rows), k=BATCH_KEYS)
    table = pa.table({"user_id": pa.array(keys, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"JSON": (JSON, orjson.dumps({"keys": keys})), "Arrow": (ARROW, sink.getvalue().to_pybytes())}


def run(folder: Path, rows: int, rounds: int, seconds: int) -> None:
    warehouse = folder / "warehouse"
    snapshot = make_users(warehouse, rows).snapshots.latest()
    assert snapshot is not None
    paths = lookup_paths(folder, random.Random(1).sample(range(rows), KEYS))
    p99: dict[str, list[float]] = {}
    batches: dict[str, list[float]] = {}
    with tablet_server(warehouse) as server:
        index_made(server, bodies(rows)["Arrow"])
        pin_apart(server)
        server.wrk(paths, 1, CONNECTIONS)

        def measuring(name: str, batch: tuple[str, bytes] | None) -> Callable[[], float]:
            p99[name], batches[name] = [], []

            def measure() -> float:
                with batches_beside(server, batch) as answered:
                    result = server.wrk(paths, seconds, CONNECTIONS)
                assert result.failed == 0, result
                p99[name].append(result.p99_ms)
                batches[name].append(len(answered) / seconds)
                return result.p99_ms

            return measure

        rates = in_turn(
            rounds,
            {ALONE: measuring(ALONE, None)} | {name: measuring(name, batch) for name, batch in bodies(rows).items()},
        )
    ours = {name: median(values) for name, values in rates.items()}
    ratios = []
    for name in batches:
        if name != ALONE:
            note = f"{median(batches[name]) * BATCH_KEYS:,.0f} keys a second in batches meanwhile"
            ratios.append(Ratio(f"p99 beside {name} batches", ours[name], ours[ALONE], "ms", "< 5", note=note))
    show(f"Point lookups beside batches of {BATCH_KEYS:,} keys; {rows:,} rows, {CONNECTIONS} connections", ratios)


def index_made(server: Running, batch: tuple[str, bytes]) -> None:
    """Ask until the server has made the hash index that it makes of tables which batches ask for."""
    connection = server.connect()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        connection.request("POST", LOOKUP, batch[1], {"Content-Type": batch[0]})
        connection.getresponse().read()
        connection.request("GET", LOOKUP.rpartition("/")[0])
        if orjson.loads(connection.getresponse().read())["hash_index_bytes"]:
            return
    raise SystemExit("the server made no hash index")


def pin_apart(server: Running) -> None:
    """The server on a core, and who asks on the others: otherwise it is the system's scheduler that is measured, which
    lets one of three busy processes wait for another on two cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[:1])
        os.sched_setaffinity(0, cores[1:])


@contextmanager
def batches_beside(server: Running, batch: tuple[str, bytes] | None) -> Iterator[list[int]]:
    """A client that sends the batch again and again; the lengths of its answers."""
    answered: list[int] = []
    ended = threading.Event()

    def send() -> None:
        assert batch is not None
        content, body = batch
        connection = server.connect()
        while not ended.is_set():
            connection.request("POST", LOOKUP, body, {"Content-Type": content})
            response = connection.getresponse()
            length = len(response.read())
            assert response.status == 200, response.status
            answered.append(length)
        connection.close()

    thread = threading.Thread(target=send)
    if batch is not None:
        thread.start()
    try:
        yield answered
    finally:
        ended.set()
        if batch is not None:
            thread.join()
            assert answered


if __name__ == "__main__":
    main()
