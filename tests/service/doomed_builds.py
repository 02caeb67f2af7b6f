"""Spark builds of shop.uids in a process that is going to be killed: `python -m tests.service.doomed_builds WAREHOUSE`.

Takes lines `FIRST COUNT` and builds COUNT keys from k<FIRST> on, one line after the other. Prints `phase NAME` for
each phase as it starts, and at the end `built SNAPSHOT` or `refused REASON`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stelae.builder import Progress, run_build
from stelae.builder.local.session import local_session
from stelae.errors import StelaeError
from stelae.snapshot.warehouse import Warehouse
from tests.light_session import LIGHT_SESSION


def main(folder: Path) -> None:
    spark = local_session(cores=2, memory="1g", settings=LIGHT_SESSION)
    phase = ""

    def tell(progress: Progress) -> None:
        nonlocal phase
        if progress.phase != phase:
            phase = progress.phase
            print(f"phase {phase}", flush=True)

    print("started", flush=True)
    for line in sys.stdin:
        first, count = line.split()
        frame = spark.range(int(first), int(first) + int(count)).selectExpr("concat('k', id) AS name")
        try:
            report = run_build(spark, Warehouse(folder), "shop.uids", frame, allow_missing_columns=True, listener=tell)
        except StelaeError as exc:
            print(f"refused {type(exc).__name__}: {exc.message}".replace("\n", " "), flush=True)
        else:
            print(f"built {report.snapshot.id}", flush=True)
        phase = ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
