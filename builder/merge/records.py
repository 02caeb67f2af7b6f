"""Records to rows: base rows and changes become one frame of records, which the table's merge engine makes rows of.

aggregation, partial-update                aggregated to one row a key                  aggregate.py
a build with target columns                the same, without merge functions            aggregate.py
deduplicate, first-row, versioned          sorted so that the last record of a key      last_record.py
                                           is its row; the writer takes that one
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from stelae.builder.input.change_records import order_columns
from stelae.builder.merge.aggregate import exploded, merged, patched, without_entries
from stelae.builder.merge.last_record import last_record_order, last_records
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.plan.columns import (
    ACTION_COLUMN,
    HIDDEN_COLUMN,
    ID_COLUMN_PREFIX,
    INSERT,
    ORDER_COLUMN,
    ORDINAL_COLUMN,
)
from stelae.builder.plan.placement import by_key, by_ordinal, placed
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, state_columns, stored_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def merge_input(base: DataFrame | None, changes: DataFrame, plan: BuildPlan) -> DataFrame:
    """Base rows and changes as one frame of records with one order: stored rows come before all that arrives."""
    from pyspark.sql import functions as f

    order = order_columns(changes)
    if base is not None and plan.schema.auto_increment is not None:
        # The id of a row that was removed is nobody's.
        name = plan.schema.auto_increment.name
        base = base.withColumn(name, f.when(~f.col(HIDDEN_COLUMN), f.col(t.quote_name(name))))
    for column in state_columns(plan.schema):
        null = f.lit(None).cast(column.type.spark())
        since = column.name == HIDDEN_SINCE and not plan.rules.aggregates
        changes = changes.withColumn(column.name, f.when(f.col(HIDDEN_COLUMN), f.lit(plan.now_ms)) if since else null)
    columns = [
        *(t.quote_name(name) for name in plan.schema.column_names),
        *(c.name for c in state_columns(plan.schema)),
        ACTION_COLUMN,
        HIDDEN_COLUMN,
        *order,
    ]
    ids = [name for name in changes.columns if name.startswith(ID_COLUMN_PREFIX)]
    if base is None:
        return changes.select(*columns, *ids)
    if HIDDEN_SINCE in base.columns:
        # Rows of before the option was set become hidden now.
        known = f.coalesce(f.col(HIDDEN_SINCE), f.lit(plan.now_ms))
        base = base.withColumn(HIDDEN_SINCE, f.when(f.col(HIDDEN_COLUMN), known))
    for name in order:
        base = base.withColumn(name, f.lit(-1).cast("bigint" if name != order[0] or name == ORDER_COLUMN else "int"))
    base = exploded(
        base.withColumn(ACTION_COLUMN, f.lit(INSERT).cast("tinyint")).select(*columns, *_nulls(ids)), plan.schema
    )
    changes = without_entries(changes.select(*columns, *ids), base)
    return base.unionByName(changes)


def _nulls(names: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.lit(None).cast("bigint").alias(name) for name in names]


def merge(records: DataFrame, plan: BuildPlan, *, retracts: bool) -> DataFrame:
    """Records as the writer takes them: each on the task of its bucket, sorted by bucket and key.

    The frame has the writer's columns: bucket ordinal, key columns, stored columns, hidden; those of the table go by
    number, as `mapInArrow` takes a dot or a back quote in a name for syntax. Engines that compute rows give one row a
    key; of the others all records stay, in merge order, and the writer takes the last of each key.
    """
    from pyspark.sql import functions as f

    if plan.rules.aggregates or (plan.has_keys_alone and not retracts):
        return by_key(merged(records, plan, partial(placed, plan=plan), retracts=retracts), plan)
    if plan.targets is not None:
        return by_key(patched(placed(records, plan), plan), plan)
    keys = [f.col(t.quote_name(column.name)) for column in plan.schema.key_columns]
    columns = [*keys, *(f.col(t.quote_name(column.name)) for column in stored_columns(plan.schema))]
    numbered = [column.alias(f"_{position}") for position, column in enumerate(columns)]
    ordered = placed(records, plan).sortWithinPartitions(*by_ordinal(plan), *keys, *last_record_order(records, plan))
    rows = ordered.select(ORDINAL_COLUMN, *numbered, HIDDEN_COLUMN)
    return last_records(rows, plan) if plan.mints else rows
