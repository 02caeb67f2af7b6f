"""Records to rows: base rows and changes become one query of records, which the table's merge engine makes rows of.

aggregation, partial-update            aggregated to one row a key                  aggregate.py
a build with target columns            the same, without merge functions            partial_update.py
deduplicate, first-row, versioned      sorted so that the last record of a key      last_record.py
                                       is its row; the writer takes that one
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stelae.builder.input.arrival import arrival_columns
from stelae.builder.input.change_records import ChangeRecords
from stelae.builder.merge.aggregate import aggregated
from stelae.builder.merge.last_record import last_record_order, last_records
from stelae.builder.merge.position_state import no_entry, with_entries
from stelae.builder.merge.record_order import RecordOrder
from stelae.builder.merge.target_columns import patched
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.plan.placement import by_key, by_ordinal, placed
from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    FILE_COLUMN,
    HIDDEN_COLUMN,
    INSERT,
    ORDINAL_COLUMN,
)
from stelae.builder.spark_sql.sql_text import Query, Sql, col, fn, sql, when
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, state_columns, stored_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Records:
    """Stored rows and changes of a build."""

    rows: Query
    columns: Collection[str]
    """Of the rows: Spark would have to be asked."""
    retracts: bool
    """Whether there may be -U and -D among them."""


def all_records(base: Query | None, changes: ChangeRecords, plan: BuildPlan) -> Records:
    """Base rows and changes as one query of records with one order: stored rows come before all that arrives."""
    schema = plan.schema
    state = {column.name: sql(None).cast(column.type.spark()) for column in state_columns(schema)}
    added: dict[str, Sql] = dict(state)
    if HIDDEN_SINCE in state and not plan.rules.aggregates:
        added[HIDDEN_SINCE] = when(col(HIDDEN_COLUMN), plan.now_ms)
    if base is not None:
        added |= no_entry(schema)
    rows = Query.of(changes.frame).with_columns(added)
    columns = [*schema.column_names, ACTION_COLUMN, HIDDEN_COLUMN, *changes.arrival, *changes.id_columns, *added]
    if base is not None:
        rows = _base_records(base, changes, plan).union(rows, columns)
    return Records(rows, columns, changes.retracts)


def _base_records(base: Query, changes: ChangeRecords, plan: BuildPlan) -> Query:
    """Stored rows with the columns of changes."""
    schema = plan.schema
    hidden = col(HIDDEN_COLUMN)
    replaced: dict[str, Sql] = {}
    if schema.auto_increment is not None:
        # The id of a row that was removed is nobody's.
        replaced[schema.auto_increment.name] = when(~hidden, col(schema.auto_increment.name))
    if schema.options.tombstone_time_retained_ms is not None:
        # Rows of before the option was set become hidden now.
        replaced[HIDDEN_SINCE] = when(hidden, fn.coalesce(col(HIDDEN_SINCE), plan.now_ms))
    added = {name: sql(-1).cast("INT" if name == FILE_COLUMN else "BIGINT") for name in changes.arrival}
    added |= {name: sql(None).cast("BIGINT") for name in changes.id_columns}
    added[ACTION_COLUMN] = sql(INSERT).cast("TINYINT")
    return with_entries(base, {**replaced, **added}, without=replaced, schema=schema)


def merge(records: Records, plan: BuildPlan) -> DataFrame:
    """Records as the writer takes them: each on the task of its bucket, sorted by ordinal and key.

    The frame has the writer's columns: ordinal, key columns, stored columns, hidden; those of the table go by number,
    as `mapInArrow` takes a dot or a back quote in a name for syntax. Engines that compute rows give one row a key; of
    the others all records stay, in merge order, and the writer takes the last of each key.
    """
    rows, to_tasks = records.rows, partial(placed, plan=plan)
    if plan.rules.aggregates or (plan.has_keys_alone and not records.retracts):
        order = RecordOrder(records.columns, plan, retracts=records.retracts)
        return by_key(aggregated(rows, order, plan, to_tasks), plan).frame()
    if plan.targets is not None:
        order = RecordOrder(records.columns, plan, retracts=True)
        return by_key(patched(to_tasks(rows), order, plan), plan).frame()
    keys = [t.quote_name(column.name) for column in plan.schema.key_columns]
    terms = [*by_ordinal(plan), *keys, *last_record_order(arrival_columns(records.columns), plan)]
    columns = [column.name for column in (*plan.schema.key_columns, *stored_columns(plan.schema))]
    numbered = {f"_{position}": col(name) for position, name in enumerate(columns)}
    ordered = to_tasks(rows).sort_within_partitions(terms)
    last = ordered.select({ORDINAL_COLUMN: col(ORDINAL_COLUMN), **numbered, HIDDEN_COLUMN: col(HIDDEN_COLUMN)}).frame()
    return last_records(last, plan) if plan.mints else last
