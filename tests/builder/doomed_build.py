"""A build that kills its own process at a given phase: `python -m tests.builder.doomed_build WAREHOUSE PHASE`.

PHASE is a phase of the build, or `files` for the moment at which the first data file is stored. Prints COMMITTED when
it gets that far.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from stelae.builder import Progress, run_build
from stelae.builder.local.session import local_session
from stelae.snapshot.warehouse import Warehouse
from tests.light_session import LIGHT_SESSION


def main(folder: Path, phase: str) -> None:
    spark = local_session(cores=2, memory="1g", settings=LIGHT_SESSION)

    def die_at(progress: Progress) -> None:
        if progress.phase == phase:
            die()
        if phase == "files" and progress.phase == "commit":
            threading.Event().wait()  # however late the watcher is, it comes before the commit

    before = set(folder.rglob("*.sst"))
    if phase == "files":

        def watch() -> None:
            while not set(folder.rglob("bucket-*/*.sst")) - before:
                time.sleep(0.002)
            die()

        threading.Thread(target=watch, daemon=True).start()
    frame = spark.range(300_000).selectExpr("id", "concat('new', id) AS name")
    run_build(spark, Warehouse(folder), "users", frame, listener=die_at)
    print("COMMITTED", flush=True)
    die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
