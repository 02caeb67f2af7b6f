"""Rows that were there before a build: what its changes are merged into, and what an overwrite replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stelae.builder.base.log_rows import LoggedRows
from stelae.builder.base.snapshot_rows import stored_rows
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.added_columns import HIDDEN_COLUMN
from stelae.builder.spark_sql.sql_text import Query, col
from stelae.schema.merge_rules import state_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def base_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> Query | None:
    """Rows that the changes are merged into, stored ones and those of the log; None when there are none."""
    partitions = [partition.base for partition in plan.partitions if partition.base]
    stored = None
    if any(bucket.files for partition in partitions for bucket in partition.buckets):
        stored = Query.of(stored_rows(spark, plan.table, plan.schema, partitions, with_state=True))
    if logged is None or not plan.log_rows:
        return stored
    if stored is None:
        return logged.rows
    return (logged.without_replaced(stored) if plan.replaced_rows else stored).union(logged.rows, _columns(plan))


def former_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> Query | None:
    """Rows that were visible before, in the partitions that an overwrite writes; None when there are none."""
    stored = plan.parent.by_values if plan.parent is not None else {}
    partitions = [stored[partition.values] for partition in plan.partitions if partition.values in stored]
    rows = logged.rows if logged is not None else None
    if partitions:
        of_files = Query.of(stored_rows(spark, plan.table, plan.schema, partitions, with_state=True))
        rows = of_files if rows is None else of_files.union(rows, _columns(plan))
    return rows.where(~col(HIDDEN_COLUMN)) if rows is not None else None


def _columns(plan: BuildPlan) -> list[str]:
    """Of stored rows and of those of the log."""
    return [*plan.schema.column_names, *(column.name for column in state_columns(plan.schema)), HIDDEN_COLUMN]
