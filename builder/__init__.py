"""Spark jobs that build tables.

    from stelae.builder import build, read
    snapshot = build(spark, warehouse, "shop.users", frame)
    frame = read(spark, warehouse, "shop.users")

job.py          a build from its first step to its commit: read it first
report.py       what a build tells while it runs, and when it has ended
plan/           buckets, tasks, names of columns; errors
input/          files and frames to checked change records
lease/          who may write, what the parent is; the way to the table's owner
base/           the rows that the parent and the log have
merge/          records of a key to one row
write/          rows to sorted files, ids, the commit
spark_sql/      expressions and queries as text, and our errors on their way back
local/          a Spark of our own, for the command line and the demo
cli.py, demo.py the commands `stelae build` and `stelae demo`

Nothing here imports stelae.service; what both need is in stelae/.

The names load on first use: commands that do not build need not wait for what building needs.

`from builder import ...`, which works where a checkout is the working folder, is deprecated.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stelae.builder.job import build as build
    from stelae.builder.job import read as read
    from stelae.builder.job import run_build as run_build
    from stelae.builder.report import BuildReport as BuildReport
    from stelae.builder.report import Progress as Progress

_MODULES = {
    "build": "stelae.builder.job",
    "read": "stelae.builder.job",
    "run_build": "stelae.builder.job",
    "BuildReport": "stelae.builder.report",
    "Progress": "stelae.builder.report",
}

__all__ = ["BuildReport", "Progress", "build", "read", "run_build"]


if __name__ != "stelae.builder":
    warnings.warn("import stelae.builder instead of builder", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
