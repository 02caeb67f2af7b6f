"""How far a Spark job is, asked from the driver while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 0.5


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
