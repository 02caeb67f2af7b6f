"""What a build tells: its progress while it runs, and what it did when it has ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stelae.builder.plan.options import Mode
from stelae.ownership.id_claims import IdRange
from stelae.snapshot.manifest import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stelae.builder")

INTERVAL_S = 0.5
"""Between two questions to Spark how far a job is."""

Listener = Callable[["Progress"], None]
"""Told of each phase as it starts, and now and then while it runs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a build is."""

    phase: str
    tasks_done: int = 0
    tasks: int = 0
    """Spark tasks of the phase; 0 where there are none or the session does not tell."""


@dataclass
class BuildReport:
    """What a build did. `snapshot` is committed."""

    snapshot: Snapshot
    table: str
    mode: Mode
    rows_in: int
    """Change records that came in, after `ignore-delete` and its like."""
    base_rows: int
    """Stored rows of the parent that were merged, tombstones included."""
    rows_merged: int
    """Records that a later record of the same key, or a delete, took the place of."""
    ids: IdRange | None = None
    """Ids that new keys of a dictionary table got, all of them; None where none was minted."""
    ids_asked: int = 0
    """Keys that were new to the build, and whose ids the server gave that owns the table."""
    committed: bool = True
    """False when an empty input, allowed as such, left the snapshot as it was."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Per phase, in order."""

    @property
    def ids_minted(self) -> int:
        return self.ids.count if self.ids is not None else 0

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


def summary_line(report: BuildReport) -> str:
    """The report on one line, for logs."""
    totals = report.snapshot.totals
    return (
        f"{report.table}: snapshot {report.snapshot.id}: {report.rows_in:,} rows in, {report.base_rows:,} base rows, "
        f"{totals.visible_rows:,} rows, {totals.files:,} files, {totals.bytes:,} bytes, {report.total_seconds:.1f} s"
        + (f", ids {report.ids}" if report.ids is not None else "")
    )


class Phases:
    """Times the phases and tells the listener."""

    def __init__(self, spark: SparkSession, listener: Listener | None) -> None:
        self._spark = spark
        self._listener = listener
        self.seconds: dict[str, float] = {}

    @contextmanager
    def run(self, phase: str) -> Iterator[None]:
        started = time.monotonic()
        logger.debug("phase %s", phase)
        if self._listener is None:
            yield
        else:
            listener = self._listener
            listener(Progress(phase))
            with watch_job(self._spark, lambda done, tasks: listener(Progress(phase, done, tasks))):
                yield
        self.seconds[phase] = time.monotonic() - started


@contextmanager
def watch_job(spark: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Call `tell(tasks done, tasks)` twice a second from a thread until the block ends.

    Sessions without a local Spark context (Spark Connect) have no status to ask for: then nothing is told.
    """
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL_S):
            finished = total = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    finished += info.numCompletedTasks
                    total += info.numTasks
            if total:
                tell(finished, total)

    thread = threading.Thread(target=watch, name="stelae-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
