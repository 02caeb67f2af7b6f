"""Point lookups over HTTP: requests a second of one server process, 16 kept connections, random keys.

Peer: a bare ASGI app under the same uvicorn that parses nothing, does one RocksDB get and answers fixed bytes. Target:
at least 0.75 of it. The processor time of the server's process a request is measured as well: it hardly depends on
what else the machine does.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import Running, bare_server, lookup_paths, make_users, tablet_server

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
    processor: dict[str, list[float]] = {"bare": [], "stelae": []}

    def measure(name: str, server: Running) -> float:
        before = server.cpu_s()
        result = server.wrk(paths, seconds)
        assert result.failed == 0, result
        processor[name].append((server.cpu_s() - before) / result.requests * 1e6)
        return result.requests_per_s

    with bare_server(warehouse, wanted) as bare, tablet_server(warehouse) as ours:
        bare.wrk(paths, 1)
        ours.wrk(paths, 1)
        rates = in_turn(rounds, {"bare": lambda: measure("bare", bare), "stelae": lambda: measure("stelae", ours)})
    note = f"{rows:,} rows of 6 columns, {snapshot.totals.bytes:,} bytes, {KEYS:,} keys; medians of {rounds}"
    show(
        "Point lookup over HTTP",
        [
            Ratio("requests a second", median(rates["stelae"]), median(rates["bare"]), "1/s", ">= 0.75", note=note),
            Ratio("the best round of each", max(rates["stelae"]), max(rates["bare"]), "1/s", ""),
            Ratio("processor time a request", median(processor["stelae"]), median(processor["bare"]), "us", "<= 1.33"),
        ],
    )


if __name__ == "__main__":
    main()
