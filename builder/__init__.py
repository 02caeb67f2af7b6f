"""Spark jobs that build tables.

    from builder import build, read
    snapshot = build(spark, warehouse, "shop.users", frame)
    frame = read(spark, warehouse, "shop.users")

The names load on first use: commands that do not build need not wait for what building needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from builder.job import BuildReport as BuildReport
    from builder.job import Progress as Progress
    from builder.job import build as build
    from builder.job import read as read
    from builder.job import run_build as run_build

__all__ = ["BuildReport", "Progress", "build", "read", "run_build"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("builder.job"), name)
    raise AttributeError(f"module 'builder' has no attribute {name!r}")
