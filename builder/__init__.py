"""Spark jobs that build tables.

    from stelae.builder import build, read
    snapshot = build(spark, warehouse, "shop.users", frame)
    frame = read(spark, warehouse, "shop.users")

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
