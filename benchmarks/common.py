"""What all benchmarks share: the machine, fair rounds, one table of ratios.

A figure here is always a ratio of two things that were measured in turn, in one run, on one machine: what else the
machine was doing hits both.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


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


def quick_mode(description: str | None) -> bool:
    """Whether `--quick` was given; prints the machine."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    quick = bool(parser.parse_args().quick)
    print(machine(), flush=True)
    return quick


def machine() -> str:
    """CPU, cores, memory, versions, date and commit, on one line."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    memory = next((int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()  # fmt: skip
    date = dt.datetime.now(dt.UTC).date()
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {date}, commit {commit or 'none'}"
    )


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


def show(title: str, ratios: Sequence[Ratio]) -> None:
    """Print the ratios, and below them what there is to note."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "ours", "peer", "unit", "ratio", "target"):
        table.add_column(heading, justify="right" if heading in ("ours", "peer", "ratio") else "left")
    for ratio in ratios:
        numbers = _number(ratio.ours), _number(ratio.peer), ratio.unit, f"{ratio.value:.2f}"
        table.add_row(ratio.what, *numbers, ratio.target)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"\n{title}", style="bold")
    console.print(table)
    for ratio in ratios:
        if ratio.note:
            console.print(ratio.note)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
