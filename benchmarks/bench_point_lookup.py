"""Point lookups over HTTP: requests a second of one server process, 16 kept connections, random keys.

Peer: a bare ASGI app under the same uvicorn with the same settings, that parses nothing, does one RocksDB get and
answers fixed bytes. Target: at least 0.75 of it. The tablet server gives head and body of an answer to the socket in
one write (service/protocol.py), which uvicorn by itself does not; a third server shows what that is worth: the bare
app with it. The processor time of the server's process a request is measured as well: it hardly depends on what else
the machine does.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import ONE_WRITE, Running, bare_server, lookup_paths, make_users, tablet_server

KEYS = 10_000


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=100_000 if quick else 2_000_000, rounds=5 if quick else 9, seconds=2 if quick else 5)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, rounds: int, seconds: int) -> None:
    warehouse = folder / "warehouse"
    snapshot = make_users(warehouse, rows).snapshots.latest()
    assert snapshot is not None
    keys = random.Random(1).sample(range(rows), KEYS)
    paths = lookup_paths(folder, keys)
    wanted = folder / "keys.txt"
    wanted.write_text("\n".join(map(str, keys)))
    processor: dict[str, list[float]] = {}

    def measuring(name: str, server: Running) -> Callable[[], float]:
        processor[name] = []
        server.wrk(paths, 1)

        def measure() -> float:
            before = server.cpu_s()
            result = server.wrk(paths, seconds)
            assert result.failed == 0, result
            processor[name].append((server.cpu_s() - before) / result.requests * 1e6)
            return result.requests_per_s

        return measure

    with (
        tablet_server(warehouse) as ours,
        bare_server(warehouse, wanted) as bare,
        bare_server(warehouse, wanted, ONE_WRITE) as one_write,
    ):
        servers = {"stelae": ours, "bare": bare, "bare, one write": one_write}
        rates = in_turn(rounds, {name: measuring(name, server) for name, server in servers.items()})
    rate = {name: median(values) for name, values in rates.items()}
    cpu_us = {name: median(values) for name, values in processor.items()}
    note = f"{rows:,} rows of 6 columns, {snapshot.totals.bytes:,} bytes, {KEYS:,} keys; medians of {rounds}"
    show(
        "Point lookup over HTTP",
        [
            Ratio("requests a second", rate["stelae"], rate["bare"], "1/s", ">= 0.75", note=note),
            Ratio("processor time a request", cpu_us["stelae"], cpu_us["bare"], "us", "<= 1.33"),
            Ratio("requests; peer in one write, too", rate["stelae"], rate["bare, one write"], "1/s", ""),
            Ratio("processor time; peer in one write, too", cpu_us["stelae"], cpu_us["bare, one write"], "us", ""),
        ],
    )


if __name__ == "__main__":
    main()
