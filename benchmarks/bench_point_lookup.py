"""Point lookups over HTTP: requests a second of one server process, 16 kept connections, random keys.

Peer: a bare ASGI app under the same uvicorn with the same settings, that parses nothing, does one RocksDB get and
answers fixed bytes; once with uvicorn's own protocol, and once with head and body of an answer in one write, as the
tablet server has it (service/http/uvicorn_protocol.py). Target: at least 0.85 of both.

Keys that are there, keys that are not, keys that are texts and come percent-encoded, and requests with headers that
differ from those before. The processor time of the server's process a request is measured as well: it hardly depends
on what else the machine does.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import (
    LOOKUP,
    NAMES,
    NAMES_LOOKUP,
    ONE_WRITE,
    Running,
    bare_server,
    make_users,
    tablet_server,
)

KEYS = 10_000
HITS, MISSES, TEXTS, TRACED = "hits", "misses", "text keys", "new headers"
BARE, BARE_ONE_WRITE = "bare", "bare, one write"


def main() -> None:
    quick = quick_mode(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, rows=100_000 if quick else 2_000_000, rounds=3 if quick else 9, seconds=2 if quick else 5)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, rounds: int, seconds: int) -> None:
    warehouse = folder / "warehouse"
    snapshot = make_users(warehouse, rows).snapshots.latest()
    make_users(warehouse, rows, NAMES)
    assert snapshot is not None
    keys = random.Random(1).sample(range(rows), KEYS)
    wanted = folder / "keys.txt"
    wanted.write_text("\n".join(map(str, keys)))
    processor: dict[str, list[float]] = {}

    def paths(name: str, lines: list[str]) -> Path:
        file = folder / f"{name}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    hits = paths("hits", [f"{LOOKUP}?user_id={key}" for key in keys])
    misses = paths("misses", [f"{LOOKUP}?user_id={rows + key}" for key in keys])
    texts = paths("texts", [f"{NAMES_LOOKUP}?name=name%20{key}" for key in keys])

    def measuring(name: str, server: Running, lines: Path) -> Callable[[], float]:
        processor[name] = []
        server.wrk(lines, 1)

        def measure() -> float:
            before = server.cpu_s()
            result = server.wrk(lines, seconds, traced=name == TRACED)
            assert result.failed == 0, result
            processor[name].append((server.cpu_s() - before) / result.requests * 1e6)
            return result.requests_per_s

        return measure

    with (
        tablet_server(warehouse) as ours,
        bare_server(warehouse, wanted) as bare,
        bare_server(warehouse, wanted, ONE_WRITE) as one_write,
    ):
        runs = {HITS: (ours, hits), MISSES: (ours, misses), TEXTS: (ours, texts), TRACED: (ours, hits)}
        runs |= {BARE: (bare, hits), BARE_ONE_WRITE: (one_write, hits)}
        rates = in_turn(rounds, {name: measuring(name, *of) for name, of in runs.items()})
    rate = {name: median(values) for name, values in rates.items()}
    cpu_us = {name: median(values) for name, values in processor.items()}
    note = f"{rows:,} rows of 6 columns, {snapshot.totals.bytes:,} bytes, {KEYS:,} keys; medians of {rounds}"
    ratios = []
    for peer in (BARE, BARE_ONE_WRITE):
        for name in (HITS, MISSES, TEXTS, TRACED):
            ratios.append(Ratio(f"{name} : {peer}", rate[name], rate[peer], "1/s", ">= 0.85"))
            ratios.append(Ratio(f"{name} : {peer}, processor", cpu_us[name], cpu_us[peer], "us", "<= 1.18"))
    ratios.append(Ratio(f"{MISSES} : {HITS}, processor", cpu_us[MISSES], cpu_us[HITS], "us", "<= 1", note=note))
    show("Point lookup over HTTP", ratios)


if __name__ == "__main__":
    main()
