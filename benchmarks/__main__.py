"""The benchmark suite: `python -m benchmarks [--quick] [--only lookup,latency]`.

All benchmarks, one after the other, each in a process of its own; what one needs that is not installed is named, and
the others go on. At the end all ratios in one table. Results go to a JSON file, and curves to a folder beside it.
docs/benchmarks.md says what is measured, and how to read it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.common import RECORD_VARIABLE, WRK_MISSING, machine
from benchmarks.peers import NotInstalled, check_packages, check_postgres, check_redis
from benchmarks.plots import can_draw, draw_all
from benchmarks.results import Benchmark, Results, new_results, read_records

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STUDIES = ("rocksdb_options",)
"""What decisions were made by: run when they are named, not with the suite."""


def main(arguments: Sequence[str] | None = None) -> int:
    names = benchmark_names()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--only", metavar="NAME,...", help=f"some of them: {', '.join(names)}")
    parser.add_argument("--results", metavar="FOLDER", type=Path, default=RESULTS, help="where results go")
    given = parser.parse_args(arguments)
    chosen = choose(names, given.only)
    say_what_is_missing()
    results = new_results(quick=given.quick)
    path = unused(given.results / f"{results.name}.json")
    started = time.monotonic()
    try:
        for name in chosen:
            print(f"\n== {name}", flush=True)
            results.benchmarks.append(run(name, path.with_suffix(".tmp"), quick=given.quick))
            results.seconds = time.monotonic() - started
            results.save(path)
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
    show_all(results)
    if can_draw():
        draw_all(results, path.with_suffix(""))
    if results.benchmarks:
        print(f"\n{path}\nas Markdown: python -m benchmarks.report {path}")
    return 1 if len(results.benchmarks) < len(chosen) else any(each.failed for each in results.benchmarks)


def check_wrk() -> None:
    if shutil.which("wrk") is None:
        raise NotInstalled(WRK_MISSING)


NEEDS: Mapping[str, Callable[[], None]] = {"point_lookup": check_wrk, "mixed_lookup": check_wrk, "swap": check_wrk}
"""What raises NotInstalled where a benchmark can do nothing at all. All others find out what they have to leave out."""


def benchmark_names() -> list[str]:
    return [path.stem.removeprefix("bench_") for path in sorted(Path(__file__).parent.glob("bench_*.py"))]


def choose(names: Sequence[str], only: str | None) -> list[str]:
    """The suite, or those that are named, in the order in which they are."""
    if only is None:
        return [name for name in names if name not in STUDIES]
    wanted = [name.strip().removeprefix("bench_") for name in only.split(",")]
    for name in wanted:
        if name not in names:
            raise SystemExit(f"there is no benchmark {name!r}; there are {', '.join(names)}")
    return wanted


def run(name: str, records: Path, *, quick: bool) -> Benchmark:
    """Run one in a process of its own. `records`: a file that it records in; it is removed afterwards."""
    try:
        NEEDS.get(name, lambda: None)()
    except NotInstalled as error:
        print(f"left out: {error}", flush=True)
        return Benchmark(name, 0.0, False, [{"kind": "left out", "what": "all of it", "why": str(error)}])
    started = time.monotonic()
    records.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", f"benchmarks.bench_{name}", *(["--quick"] if quick else [])]
    environment = {**os.environ, RECORD_VARIABLE: str(records.resolve())}
    try:
        done = subprocess.run(command, check=False, cwd=ROOT, env=environment)
        return Benchmark(name, time.monotonic() - started, done.returncode != 0, read_records(records))
    finally:
        records.unlink(missing_ok=True)


def unused(path: Path) -> Path:
    """The path, with a number if there is such a file."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate


def say_what_is_missing() -> None:
    """Peers and tools that are not installed, and what installs them."""

    checks: Sequence[Callable[[], None]] = (
        check_wrk,
        lambda: check_redis("hiredis", "msgpack"),
        check_postgres,
        lambda: check_packages("lmdb"),
        lambda: check_packages("matplotlib"),
    )
    for check in checks:
        try:
            check()
        except NotInstalled as error:
            print(f"goes without: {error}")


def show_all(results: Results) -> None:
    """All ratios, and what failed."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "of", "ratio", "target", "met"):
        table.add_column(heading, justify="right" if heading == "ratio" else "left")
    last = ""
    for benchmark, title, ratio in results.ratios():
        if title != last:
            table.add_row(f"[bold]{benchmark.name}[/bold]: {escape(title)}")
            last = title
        met = {True: "yes", False: "[bold]no[/bold]", None: ""}[ratio["met"]]
        cells = escape(ratio["unit"]), f"{ratio['value']:.2f}", ratio["target"], met
        table.add_row(f"  {escape(ratio['what'])}", *cells)
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(f"\n== all ratios\n{machine()}")
    console.print(table)
    wanted = [ratio["met"] for _, _, ratio in results.ratios() if ratio["met"] is not None]
    console.print(f"{sum(wanted)} of {len(wanted)} targets met, {results.seconds / 60:.1f} minutes")
    for benchmark in results.benchmarks:
        for record in benchmark.of_kind("left out"):
            console.print(f"left out of {benchmark.name}: {record['what']}. {record['why']}", markup=False)
    failed = [benchmark.name for benchmark in results.benchmarks if benchmark.failed]
    if failed:
        console.print(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(main())
