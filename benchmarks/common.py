"""What all benchmarks share: the machine, fair rounds, one table of ratios.

A figure here is always a ratio of two things that were measured in turn, in one run, on one machine: what else the
machine was doing hits both.

    show        ratios            listing     other tables
    draw        curves            left_out    what could not be measured, and why
    facts       rows, bytes, settings

All of it is printed, and recorded, a JSON line each, in the file that the variable STELAE_BENCH_RECORD names: the suite
(`python -m benchmarks`) makes its results of it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

RECORD_VARIABLE = "STELAE_BENCH_RECORD"
WRK_MISSING = "wrk is not installed: sudo apt-get install -y --no-install-recommends wrk"


@dataclass(frozen=True)
class Ratio:
    """One line of the result: `ours` against `peer`, in `unit`."""

    what: str
    ours: float
    peer: float
    unit: str
    target: str
    """What was set out to reach, such as `<= 1.4`."""
    note: str = ""

    @property
    def value(self) -> float:
        return self.ours / self.peer

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        return meets(self.value, self.target)


@dataclass(frozen=True)
class Plot:
    """Lines to draw."""

    name: str
    """Of the file."""
    title: str
    x: str
    y: str
    """What the axes are, with units. Both are logarithmic."""
    lines: Mapping[str, Sequence[tuple[float, float]]]
    ticks: Mapping[str, float] = field(default_factory=dict)
    """Texts along the x axis, and where; otherwise its values."""


def meets(value: float, target: str) -> bool | None:
    """Whether a value is as a target such as `<= 1.4` says; None where it says nothing."""
    match = re.fullmatch(r"(<=|>=|<|>)\s*([\d.]+)", target.strip())
    if match is None:
        return None
    limit = float(match[2])
    return {"<=": value <= limit, ">=": value >= limit, "<": value < limit, ">": value > limit}[match[1]]


def quick_mode(description: str | None) -> bool:
    """Whether `--quick` was given; prints the machine."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    quick = bool(parser.parse_args().quick)
    print(machine(), flush=True)
    return quick


def machine() -> str:
    """CPU, cores, memory, versions, date and commit, on one line."""
    date = dt.datetime.now(dt.UTC).date()
    return (
        f"{processor()}, {os.cpu_count()} cores, {memory_bytes() / 2**30:.0f} GiB, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {date}, commit {commit() or 'none'}"
    )


def processor() -> str:
    return next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )


def memory_bytes() -> int:
    """Of the machine; 0 where /proc does not tell."""
    return next((int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)


def commit() -> str:
    """What is checked out; empty where nothing is."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return asked.stdout.strip()


def in_turn(rounds: int, runs: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run each of `runs` once a round, `rounds` times; what each returned, by name."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            results[name].append(run())
            print(f"  round {number + 1}: {name} {results[name][-1]:,.3f}", flush=True)
    return results


def nanoseconds(rows: int, work: Callable[[], object], repeats: int = 5) -> float:
    """Nanoseconds a row of `work`, which handles `rows` rows: the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best / rows * 1e9


def row_cost(what: str, ns: float, peer_ns: float, peer: str) -> None:
    """Print one line of a codec's benchmark: its cost a row, and the ratio to its peer's."""
    print(f"  {what:14} {ns:7.1f} ns a row   {ns / peer_ns:5.2f} of the {peer} ({peer_ns:.0f} ns)")


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
LEAST_BEYOND = 10
"""Values that must lie beyond a percentile: fewer do not tell where it is."""


def percentiles(values: npt.NDArray[Any], quantiles: Mapping[str, float] = QUANTILES) -> dict[str, float]:
    """Percentiles by name, each a value that was measured (the nearest rank). Those are left out that too few values
    lie beyond.
    """
    told = {name: share for name, share in quantiles.items() if round(len(values) * (1 - share), 6) >= LEAST_BEYOND}
    found = np.quantile(values, list(told.values()), method="inverted_cdf") if told else ()
    return {name: float(value) for name, value in zip(told, found, strict=True)}


def show(title: str, ratios: Sequence[Ratio]) -> None:
    """Print the ratios, and below them what there is to note."""
    record("ratios", title=title, ratios=[{**asdict(each), "value": each.value, "met": each.met} for each in ratios])
    table = Table(box=None, pad_edge=False)
    for heading in ("", "ours", "peer", "unit", "ratio", "target"):
        table.add_column(heading, justify="right" if heading in ("ours", "peer", "ratio") else "left")
    for ratio in ratios:
        numbers = number(ratio.ours), number(ratio.peer), ratio.unit, f"{ratio.value:.2f}"
        table.add_row(ratio.what, *numbers, ratio.target)
    console = _print(title, table)
    for ratio in ratios:
        if ratio.note:
            console.print(ratio.note)


def listing(title: str, headings: Sequence[str], rows: Sequence[Sequence[str | float]]) -> None:
    """Print a table of other figures. The first column says what a row is."""
    record("listing", title=title, headings=list(headings), rows=[list(row) for row in rows])
    table = Table(box=None, pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    _print(title, table)


def draw(plot: Plot) -> None:
    """Have lines drawn by the suite; what is in them is in a table as well."""
    record("plot", **asdict(plot))


def facts(**values: str | float) -> None:
    """Print and record what was measured with: rows, bytes, settings."""
    record("facts", facts=values)
    for name, value in values.items():
        print(f"  {name.replace('_', ' ')}: {value if isinstance(value, str) else number(value)}", flush=True)


def left_out(what: str, why: str) -> None:
    """Print and record what could not be measured, and what to do about it."""
    record("left out", what=what, why=why)
    print(f"left out: {what}. {why}", flush=True)


def record(kind: str, **content: Any) -> None:
    """Add a line to the file of the suite, if there is one."""
    path = os.environ.get(RECORD_VARIABLE)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **content}) + "\n")


def _print(title: str, table: Table) -> Console:
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = 160  # Of a file or a pipe nothing is known; rows would be cut at 80.
    console.print(f"\n{title}", style="bold")
    console.print(table)
    return console


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
