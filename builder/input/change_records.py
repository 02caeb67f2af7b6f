"""Input rows, made into change records: checked, typed and ordered. All of it is Spark expressions in the JVM.

Columns of the records:

    partition, key and value columns, each with exactly the table's type; the auto-increment column is null
    __stelae_id_*      BIGINT    of a bitmap column (rbm32, rbm64) whose input are ids: the id
    __stelae_action    TINYINT   what the record does by its row kind: insert, retract, remove
    __stelae_hidden    BOOLEAN   true for -D and -U
    __stelae_order_*   arrival: records with equal sequence values merge in this order; base rows come before all

Records whose row kind the table ignores are dropped here. A row that can't be stored (null key, unknown or refused row
kind, text that is too long) stops the job with its key named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stelae.builder.input.arrival import Arrival, arrival_columns, find_arrival, order_matters
from stelae.builder.input.match_columns import (
    check_ids_are_not_given,
    match_columns,
    row_kind_column,
    takes_ids,
)
from stelae.builder.input.type_limits import within_limits
from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    HIDDEN_COLUMN,
    ID_COLUMN_PREFIX,
    INSERT,
    KIND_COLUMN,
    REMOVE,
    RETRACT,
)
from stelae.builder.spark_sql.row_errors import raise_for_row
from stelae.builder.spark_sql.sql_text import Query, Sql, col, fn, sql, when
from stelae.schema.aggregate_functions import BITMAPS
from stelae.schema.merge_rules import Action, MergeRules, merge_rules
from stelae.schema.table_schema import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_KINDS = ("+I", "-U", "+U", "-D")


@dataclass(frozen=True)
class ChangeRecords:
    """The input of a build."""

    frame: DataFrame
    retracts: bool
    """Whether there may be -U and -D among the records."""
    arrival: list[str]
    """Its arrival columns, the most significant first."""
    id_columns: list[str]
    """Its columns of ids for bitmap columns."""


def change_records(
    frame: DataFrame,
    schema: TableSchema,
    row_kind: str | None,
    *,
    targets: frozenset[str] | None = None,
    allow_missing_columns: bool = False,
    ignore_extra_columns: bool = False,
    has_arrival: bool = False,
) -> ChangeRecords:
    """Change records from any frame. Columns are matched by name; `row_kind` names the column that says +I, -U, +U or
    -D. `targets`: the columns that the records set (`target_columns`). `has_arrival`: the frame is one of
    `with_arrival`.
    """
    check_ids_are_not_given(frame, schema)
    kind_column = row_kind_column(frame, schema, row_kind)
    if targets is not None:
        others = {column.name.casefold() for column in schema.columns if column.name not in targets}
        frame = frame.drop(*(name for name in frame.columns if name.casefold() in others and name != kind_column))
    sources = match_columns(
        frame, schema, kind_column, targets=targets, allow_missing_columns=allow_missing_columns,
        ignore_extra_columns=ignore_extra_columns,
    )  # fmt: skip
    if has_arrival:
        arrival = Arrival(frame, arrival_columns(frame.columns), {})
    else:
        arrival = find_arrival(frame, needed=order_matters(schema, kind_column))
    rules = merge_rules(schema)
    of_ids = _columns_of_ids(schema, sources, frame)
    rows, action = Query.of(arrival.frame).with_columns(arrival.columns), sql(INSERT)
    if kind_column:
        rows = rows.with_columns({KIND_COLUMN: _kind_expression(col(kind_column), schema, sources)})
        ignored = [kind for kind, does in _does(rules) if does == "ignore"]
        if ignored:
            rows = rows.where(~col(KIND_COLUMN).is_in(ignored))
        action = _action_expression(rules, schema, sources)
    hidden = action != INSERT
    as_stored = {name: source for name, source in sources.items() if name not in {column.name for column in of_ids}}
    columns = {column.name: _stored(column, schema, as_stored, hidden) for column in schema.columns}
    columns |= {id_column(column): _id(column, schema, sources) for column in of_ids}
    columns |= {
        ACTION_COLUMN: action.cast("TINYINT"),
        HIDDEN_COLUMN: hidden,
        **{name: col(name) for name in arrival.names},
    }
    retracts = kind_column is not None and {rules.on_delete, rules.on_update_before} != {"ignore"}
    return ChangeRecords(
        rows.select(columns).frame(), retracts, arrival.names, [id_column(column) for column in of_ids]
    )


def _does(rules: MergeRules) -> list[tuple[str, Action]]:
    return [("-D", rules.on_delete), ("-U", rules.on_update_before)]


def _action_expression(rules: MergeRules, schema: TableSchema, sources: Mapping[str, str]) -> Sql:
    """The action of each record's row kind; one that the table refuses stops the job."""
    action = when(col(KIND_COLUMN).is_in(("+I", "+U")), INSERT)
    for kind, does in _does(rules):
        if does == "refuse":
            text = f"a {kind} record, which a table with merge engine {rules.engine} refuses here,"
            refused = raise_for_row(text, "", schema, sources, hint=rules.why.get(kind, "")).cast("INT")
            action = action.when(col(KIND_COLUMN) == kind, refused)
        elif does != "ignore":
            action = action.when(col(KIND_COLUMN) == kind, REMOVE if does == "remove" else RETRACT)
    return action


def id_column(column: Column) -> str:
    """The column of records that holds ids for a bitmap column."""
    return f"{ID_COLUMN_PREFIX}{column.id}"


def _columns_of_ids(schema: TableSchema, sources: Mapping[str, str], frame: DataFrame) -> list[Column]:
    from pyspark.sql import types as s

    integers = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
    types = {field.name: field.dataType for field in frame.schema.fields}
    return [
        column
        for column in schema.value_columns
        if column.name in sources and takes_ids(column, schema) and isinstance(types[sources[column.name]], integers)
    ]


def _id(column: Column, schema: TableSchema, sources: Mapping[str, str]) -> Sql:
    """Ids for a bitmap column, checked for what the bitmap can hold."""
    rule = next(rule for rule in merge_rules(schema).columns if rule.column.id == column.id)
    largest = BITMAPS[rule.function.name]
    value = col(sources[column.name]).cast("BIGINT")
    text = f"an id out of the range of {rule.function.name} (0 to {largest}) in column {column.name}: "
    wrong = raise_for_row(text, value, schema, sources).cast("BIGINT")
    return when((value < 0) | (value > largest), wrong).otherwise(value)


def _kind_expression(given: Sql, schema: TableSchema, sources: Mapping[str, str]) -> Sql:
    kind = when(given.is_in(ROW_KINDS), given).otherwise(fn.upper(fn.trim(given)))
    wrong = raise_for_row(
        "unknown row kind ", fn.coalesce(given.cast("STRING"), "null"), schema, sources,
        hint="row kinds are +I (insert), -U (update before), +U (update after), -D (delete)",
    )  # fmt: skip
    return when(kind.is_in(ROW_KINDS), kind).otherwise(wrong)


def _stored(column: Column, schema: TableSchema, sources: Mapping[str, str], hidden: Sql) -> Sql:
    """The column as it is stored: the table's type, checks included."""

    def too_long(shown: Sql, what: str) -> Sql:
        return raise_for_row(f"{what} in column {column.name}: ", shown, schema, sources)

    if column.name not in sources:
        return sql(None).cast(column.type.spark())
    source = col(sources[column.name])
    value = within_limits(source.cast(column.type.spark()), column.type, too_long)
    if column.name in schema.primary_key and not column.type.nullable:
        null = raise_for_row(f"null in primary-key column {column.name}", "", schema, sources)
        value = fn.coalesce(value, null.cast(column.type.spark()))
    elif not column.type.nullable:
        null = raise_for_row(f"null in NOT NULL column {column.name}", "", schema, sources)
        value = when(value.is_null() & ~hidden, null.cast(column.type.spark())).otherwise(value)
    return value
