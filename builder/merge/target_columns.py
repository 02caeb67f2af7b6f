"""Partial updates with the engine deduplicate: records set some columns of a row, the others stay."""

from __future__ import annotations

from stelae.builder.merge.aggregate import merged_columns
from stelae.builder.merge.record_order import RecordOrder
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    HIDDEN_COLUMN,
    INSERT,
    POSITION_COLUMN,
    RECORDS_COLUMN,
    STORED_COLUMN,
    TOP_COLUMN,
)
from stelae.builder.spark_sql.sql_text import Query, Sql, any_of, col, fn, sql, struct, when
from stelae.schema.merge_rules import HIDDEN_SINCE


def patched(records: Query, order: RecordOrder, plan: BuildPlan) -> Query:
    """One row a key, as `aggregated` gives them. The records are on their tasks.

    The columns that records set are those of the last record, null after a delete; the others are the stored row's. A
    delete removes a row that has nothing else.
    """
    schema, rules = plan.schema, plan.rules
    targets = plan.targets or frozenset(schema.column_names)
    sequence = {column.name for column in rules.sequence}
    inserts, hidden, top, stored = col(ACTION_COLUMN) == INSERT, col(HIDDEN_COLUMN), col(TOP_COLUMN), col(STORED_COLUMN)
    fields: dict[str, Sql] = {
        f"v{c.id}": col(c.name) if c.name in sequence else when(inserts, col(c.name))
        for c in schema.value_columns
        if c.name in targets
    }
    fields |= {"base": order.is_base, "insert": inserts, "hidden": hidden}
    if rules.sequence:
        records = order.with_position(records)
    by = col(POSITION_COLUMN) if rules.sequence else order.arrival_value()
    others = [column for column in schema.value_columns if column.name not in targets]
    kept = struct({**{f"v{column.id}": col(column.name) for column in others}, "shown": True})
    totals = {
        TOP_COLUMN: fn.max_by(struct(fields), by),
        STORED_COLUMN: fn.max_by(kept, when(order.is_base & ~hidden, by)),
        RECORDS_COLUMN: fn.count(1),
    }
    has_since = HIDDEN_SINCE in order.columns
    if has_since:
        totals[HIDDEN_SINCE] = fn.max(col(HIDDEN_SINCE))
    rows = records.aggregate([*(column.name for column in schema.key_columns), *plan.task_columns], totals)
    # Its id alone keeps no row.
    rest = [stored.field(f"v{c.id}").is_not_null() for c in others if c != schema.auto_increment]
    by_record = top.field("insert") | (stored.is_not_null() & any_of(rest))
    shown = when(top.field("base"), ~top.field("hidden")).otherwise(by_record)
    values: list[Sql] = [col(column.name) for column in schema.key_columns]
    values += [
        when(shown | (c.name in sequence), (top if c.name in targets else stored).field(f"v{c.id}"))
        for c in schema.value_columns
    ]
    if has_since:
        values.append(when(~shown, when(top.field("base"), col(HIDDEN_SINCE)).otherwise(plan.now_ms)))
    forgotten = sql(False) if rules.sequence else ~shown
    return rows.select(merged_columns(values, ~shown, col(RECORDS_COLUMN), forgotten))
