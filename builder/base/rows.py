"""Rows that were there before a build: what its changes are merged into, and what an overwrite replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stelae.builder.base.log_rows import LoggedRows
from stelae.builder.base.snapshot_rows import stored_rows
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.plan.columns import HIDDEN_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def base_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> DataFrame | None:
    """Rows that the changes are merged into, stored ones and those of the log; None when there are none."""
    partitions = [partition.base for partition in plan.partitions if partition.base]
    stored = None
    if any(bucket.files for partition in partitions for bucket in partition.buckets):
        stored = stored_rows(spark, plan.table, plan.schema, partitions, with_state=True)
    if logged is None or not plan.log_rows:
        return stored
    if stored is None:
        return logged.rows
    return (logged.without_replaced(stored) if plan.replaced_rows else stored).unionByName(logged.rows)


def former_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> DataFrame | None:
    """Rows that were visible before, in the partitions that an overwrite writes; None when there are none."""
    stored = plan.parent.by_values if plan.parent is not None else {}
    partitions = [stored[partition.values] for partition in plan.partitions if partition.values in stored]
    frames = [stored_rows(spark, plan.table, plan.schema, partitions, with_state=True)] if partitions else []
    frames += [logged.rows] if logged is not None else []
    if not frames:
        return None
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    return rows.where(f"NOT {HIDDEN_COLUMN}")
