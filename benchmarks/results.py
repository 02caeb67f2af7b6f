"""The results of a run of the suite, as a JSON file: what was measured, with what, on which machine.

    {"format": 1, "started": ..., "seconds": ..., "quick": false, "commit": ...,
     "machine": {...}, "versions": {...}, "load": 0.1,
     "benchmarks": [{"name": "lookup", "seconds": ..., "failed": false, "records": [...]}]}

Records are what benchmarks/common.py recorded, each with its `kind`: ratios, listing, plot, facts, left out.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.common import commit, memory_bytes, processor
from benchmarks.peers import NotInstalled, postgres_programs, redis_program

FORMAT = 1
PACKAGES = (
    "stelae", "numpy", "pyarrow", "orjson", "rocksdict", "urllib3", "uvicorn", "uvloop", "httptools", "pyspark",
    "redis", "hiredis", "msgpack", "psycopg", "lmdb",
)  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """What one of them measured."""

    name: str
    seconds: float
    failed: bool
    records: Sequence[Mapping[str, Any]] = ()

    def of_kind(self, kind: str) -> Iterator[Mapping[str, Any]]:
        return (record for record in self.records if record["kind"] == kind)


@dataclass
class Results:
    started: str
    """In UTC, ISO 8601."""
    quick: bool
    commit: str
    machine: Mapping[str, str | float]
    versions: Mapping[str, str]
    load: float
    """What else the machine was doing when the run began: processes that wanted a core, of the last minute."""
    seconds: float = 0.0
    benchmarks: list[Benchmark] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.started[:10]}-{self.commit or 'none'}{'-quick' if self.quick else ''}"

    def ratios(self) -> Iterator[tuple[Benchmark, str, Mapping[str, Any]]]:
        """Benchmark, title and ratio of all ratios."""
        for benchmark in self.benchmarks:
            for table in benchmark.of_kind("ratios"):
                for ratio in table["ratios"]:
                    yield benchmark, str(table["title"]), ratio

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)


def new_results(*, quick: bool) -> Results:
    """Results of a run that begins now on this machine."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    return Results(now.isoformat(), quick, commit(), describe_machine(), describe_versions(), os.getloadavg()[0])


def load_results(path: Path) -> Results:
    """SystemExit when the file has no results."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError("it has another format")
        benchmarks = [Benchmark(**each) for each in content.pop("benchmarks")]
        return Results(**content, benchmarks=benchmarks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path}: no results of `python -m benchmarks`: {error}") from error


def combine(runs: Sequence[Results]) -> Results:
    """Runs of some benchmarks each as one: of a benchmark the last run counts. Machine and versions are the last run's
    as well; SystemExit when the machines differ, or some runs are quick.
    """
    last = runs[-1]
    for run in runs:
        if (run.machine, run.quick) != (last.machine, last.quick):
            raise SystemExit(f"the runs {run.name} and {last.name} are of different machines or sizes")
    benchmarks = {each.name: each for run in runs for each in run.benchmarks}
    seconds = sum(each.seconds for each in benchmarks.values())
    return replace(
        last,
        commit=", ".join(dict.fromkeys(run.commit for run in runs)),
        load=max(run.load for run in runs),
        seconds=seconds,
        benchmarks=list(benchmarks.values()),
    )


def read_records(path: Path) -> list[Mapping[str, Any]]:
    """What a benchmark recorded; a last line that was cut is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def describe_machine() -> dict[str, str | float]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_bytes": memory_bytes(),
        "system": _system(),
    }


def describe_versions() -> dict[str, str]:
    """Of Python, of packages that are installed, and of servers; what is not there is left out."""
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    versions |= {"RocksDB": _rocksdb_version(), "Redis": _redis_version(), "PostgreSQL": _postgres_version()}
    versions |= {"LMDB": _lmdb_version(), "wrk": _said("wrk", "--version")}
    return {name: found for name, found in versions.items() if found}


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, kernel {platform.release().partition('-')[0]}"


def _rocksdb_version() -> str:
    """RocksDB says it in the log of every database."""
    try:
        import rocksdict
    except ImportError:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        rocksdict.Rdict(folder).close()
        log = (Path(folder) / "LOG").read_text(errors="replace")
    found = re.search(r"RocksDB version: ([\d.]+)", log)
    return found[1] if found else ""


def _redis_version() -> str:
    try:
        return _said(redis_program(), "--version")
    except NotInstalled:
        return ""


def _postgres_version() -> str:
    try:
        return _said(postgres_programs() / "postgres", "--version")
    except NotInstalled:
        return ""


def _lmdb_version() -> str:
    try:
        import lmdb
    except ImportError:
        return ""
    return ".".join(map(str, lmdb.version()))


def _said(program: str | Path, *arguments: str) -> str:
    """The version in what a program says; empty when it is not there."""
    if shutil.which(str(program)) is None:
        return ""
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""
