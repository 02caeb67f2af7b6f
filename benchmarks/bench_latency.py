"""Latency of point lookups: how long single keys take, of Stelae, Redis (GET) and PostgreSQL (a prepared SELECT).

    python -m benchmarks.bench_latency [--quick]

One client for all three, over plain sockets (benchmarks/load.py): a closed loop with 1 and with 16 connections, and an
open loop, in which requests come at a constant rate and count from the moment when they were due. Answers are
received whole and not decoded. 2 million rows of five typed columns, or 200,000 in quick mode, keys uniform. Figures
are medians of the rounds; the curves are of all rounds together.

Then two worker processes (`stelae serve --workers 2`) against one, with wrk. Where the machine has two cores, wrk takes
a part of what two workers need; so there is also the capacity: what the cores that workers have could answer by the
processor time that a request costs them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket

import numpy as np

from benchmarks import load
from benchmarks.common import (
    QUANTILES,
    WRK_MISSING,
    Plot,
    Ratio,
    draw,
    facts,
    in_turn,
    left_out,
    listing,
    median,
    percentiles,
    quick_mode,
    show,
)
from benchmarks.distributions import uniform
from benchmarks.load import Load, Protocol
from benchmarks.peers import POSTGRES_USER, NotInstalled, disk_folder
from benchmarks.people import ids_of
from benchmarks.processes import cpu_s, pinned
from benchmarks.servers import Running, tablet_server
from benchmarks.stores import Store, people_table, postgres_store, redis_store, stelae_store
from stelae.snapshot.warehouse import Table

TABLE = "bench.people"
TABLE_OPTIONS = {"bucket": "4", "file.compression": "none"}
SELECT = "SELECT user_id, name, city, age, score, updated FROM people WHERE user_id = $1"
KEYS = 20_000
CONNECTIONS = 16
WORKERS = 2
WARM_UP_S = 0.5

STELAE, REDIS, POSTGRES = "Stelae", "Redis", "PostgreSQL"
CURVE = {"0 %": 0.0, "50 %": 0.5, "75 %": 0.75, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99, "99.5 %": 0.995,
         "99.9 %": 0.999, "99.95 %": 0.9995, "99.99 %": 0.9999}  # fmt: skip

TICKS = ("0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %")


@dataclass(frozen=True)
class Size:
    rows: int
    rounds: int
    seconds: float
    rate: float
    """Requests a second of the open loop."""
    shared_buffers: str


QUICK = Size(200_000, rounds=3, seconds=1, rate=3_000, shared_buffers="256MB")
FULL = Size(2_000_000, rounds=9, seconds=4, rate=3_000, shared_buffers="1GB")


@dataclass(frozen=True)
class Server:
    """A store and how it is asked for single keys."""

    store: Store
    port: int
    protocol: Protocol


def main() -> None:
    quick = quick_mode(__doc__)
    size = QUICK if quick else FULL
    facts(rows=size.rows, keys=KEYS, open_loop_requests_a_second=size.rate, table=str(TABLE_OPTIONS))
    with disk_folder() as folder:
        table, made_s = people_table(folder / "warehouse", TABLE, TABLE_OPTIONS, size.rows)
        keys: list[int] = ids_of(uniform(size.rows, KEYS, seed=1)).tolist()
        with ExitStack() as stack:
            servers = open_all(folder, table, made_s, keys, size, stack)
            for name, connections, rate in (
                ("1 connection", 1, None),
                (f"{CONNECTIONS} connections", CONNECTIONS, None),
                (f"{size.rate:,.0f} requests a second, {CONNECTIONS} connections", CONNECTIONS, size.rate),
            ):
                measure(name, servers, connections, rate, size)
        measure_workers(folder, keys, size)


def open_all(
    folder: Path, table: Table, made_s: float, keys: Sequence[int], size: Size, stack: ExitStack
) -> dict[str, Server]:
    """Ours and the peers that are installed."""

    def ours() -> Server:
        store = stack.enter_context(stelae_store(folder / "warehouse", table, load_s=made_s))
        port = int(store.address.split()[0].rpartition(":")[2])
        return Server(store, port, load.http(paths(keys)))

    def redis() -> Server:
        store = stack.enter_context(redis_store(folder / "redis", size.rows))
        return Server(store, int(store.address), load.redis([b"%d" % key for key in keys]))

    def postgres() -> Server:
        store = stack.enter_context(postgres_store(folder / "postgres", size.rows, size.shared_buffers))
        return Server(store, int(store.address), load.postgres(POSTGRES_USER, SELECT, keys))

    servers = {}
    for name, opened in {STELAE: ours, REDIS: redis, POSTGRES: postgres}.items():
        try:
            servers[name] = opened()
        except NotInstalled as error:
            left_out(name, str(error))
    return servers


def paths(keys: Sequence[int]) -> list[str]:
    return [f"/v1/tables/{TABLE}/lookup?user_id={key}" for key in keys]


def measure(title: str, servers: Mapping[str, Server], connections: int, rate: float | None, size: Size) -> None:
    """Percentiles of all servers, which take turns."""
    print(title, flush=True)
    loads: dict[str, list[Load]] = {name: [] for name in servers}
    cpu_us: dict[str, list[float]] = {name: [] for name in servers}
    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        for name, server in servers.items():
            opened = load.connect(server.port, server.protocol, connections)
            for connection in opened:
                stack.enter_context(connection)
            load.closed_loop(opened, server.protocol, WARM_UP_S)

            def run(name: str = name, server: Server = server, opened: list[socket] = opened) -> float:
                before = server.store.cpu_s()
                if rate is None:
                    done = load.closed_loop(opened, server.protocol, size.seconds)
                else:
                    done = load.open_loop(opened, server.protocol, rate, size.seconds)
                loads[name].append(done)
                cpu_us[name].append((server.store.cpu_s() - before) / len(done.latencies_us) * 1e6)
                return percentiles(done.latencies_us)["p50"]

            runs[name] = run
        in_turn(size.rounds, runs)
    show_latencies(title, loads, cpu_us)


def show_latencies(title: str, loads: Mapping[str, Sequence[Load]], cpu_us: Mapping[str, Sequence[float]]) -> None:
    found = {name: _medians([percentiles(each.latencies_us) for each in done]) for name, done in loads.items()}
    headings = ["microseconds", *QUANTILES, "requests/s", "server's processor time a request"]
    listing(
        f"Point lookups, {title}",
        headings,
        [
            [
                name,
                *(each.get(quantile, "-") for quantile in QUANTILES),
                median([done.per_second for done in loads[name]]),
                median(cpu_us[name]),
            ]
            for name, each in found.items()
        ],
    )
    ratios = [
        Ratio(f"{quantile} / {peer}", found[STELAE][quantile], each[quantile], "us", "")
        for peer, each in found.items()
        if peer != STELAE
        for quantile in ("p50", "p99", "p99.9")
        if quantile in each and quantile in found[STELAE]
    ]
    if ratios:
        show(f"Point lookups, {title}", ratios)
    lines = {}
    for name, done in loads.items():
        curve = percentiles(np.concatenate([each.latencies_us for each in done]), CURVE)
        lines[name] = [(1 / (1 - CURVE[share]), value) for share, value in curve.items()]
    ticks = {share: 1 / (1 - CURVE[share]) for share in TICKS}
    file = "latency-" + "".join(c if c.isalnum() else "-" for c in title.replace(",", ""))
    draw(Plot(file, f"Point lookups, {title}", "share of requests", "at most so many microseconds", lines, ticks))


def _medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median([each[name] for each in found]) for name in found[0] if all(name in each for each in found)}


def measure_workers(folder: Path, keys: Sequence[int], size: Size) -> None:
    """Requests a second of several worker processes, and of one."""
    if shutil.which("wrk") is None:
        left_out("worker processes", WRK_MISSING)
        return
    lines = folder / "paths.txt"
    lines.write_text("".join(f"{path}\n" for path in paths(keys)))
    cores = sorted(os.sched_getaffinity(0))
    processor_us: dict[int, list[float]] = {}
    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        for workers in (1, WORKERS):
            server = stack.enter_context(
                tablet_server(folder / "warehouse", "--table", TABLE, "--workers", str(workers))
            )
            processor_us[workers] = []
            runs[f"{workers} workers"] = partial(ask, server, lines, size.seconds, cores, processor_us[workers])
            ask(server, lines, 1, cores, [])
        rates = in_turn(size.rounds, runs)
    one, many = (median(rates[f"{workers} workers"]) for workers in (1, WORKERS))
    one_us, many_us = (median(processor_us[workers]) for workers in (1, WORKERS))
    show(
        f"{WORKERS} workers / 1 worker, wrk on the last of {len(cores)} cores, 64 connections",
        [
            Ratio("requests a second", many, one, "1/s", "", note="wrk shares a core with a worker"),
            Ratio("processor time a request", many_us, one_us, "us", ""),
            Ratio("capacity: cores / processor time", WORKERS / many_us * 1e6, 1 / one_us * 1e6, "1/s", ">= 1.6"),
        ],
    )


def ask(server: Running, lines: Path, seconds: float, cores: Sequence[int], processor_us: list[float]) -> float:
    """Requests a second that wrk gets answered."""
    before = cpu_s(server.process.pid)
    with pinned(cores[-1:]):
        result = server.wrk(lines, max(1, round(seconds)), 64)
    assert result.failed == 0, result
    processor_us.append((cpu_s(server.process.pid) - before) / result.requests * 1e6)
    return float(result.requests_per_s)


if __name__ == "__main__":
    main()
