"""Spark jobs that build tables.

from builder import build, read
snapshot = build(spark, warehouse, "shop.users", frame)
frame = read(spark, warehouse, "shop.users")
"""

from __future__ import annotations

from builder.job import BuildReport, Progress, build, read, run_build

__all__ = ["BuildReport", "Progress", "build", "read", "run_build"]
