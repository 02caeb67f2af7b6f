"""Functions that need every input in its order: folded one record after the other, in the JVM.

    items     the inputs of a key, sorted: a list of structs of o (the order), late (whether it goes underneath),
              retract, v (the value, never null)
      → fold  an SQL expression over the list, its result in the column's type

What Spark has no exact function for is folded in the writer: `arrow_folds.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from stelae.builder.spark_sql.row_errors import raise_for_row
from stelae.builder.spark_sql.sql_text import Sql, all_of, any_of, fn, sql, struct, when
from stelae.schema import types as t
from stelae.schema.merge_rules import ColumnRule
from stelae.schema.table_schema import TableSchema

Step = Callable[[Sql, Sql], Sql]
"""Accumulator (never null) and value → accumulator."""


def fold(items: Sql, rule: ColumnRule, schema: TableSchema) -> Sql:
    """The list of inputs, folded. Null as long as there was no input but null, or only retracts."""
    add, take_back = _steps(rule, schema)
    nothing = sql(None).cast(rule.column.type.spark())
    empty = _empty(rule)

    def step(total: Sql, item: Sql) -> Sql:
        value = item.field("v")
        if rule.function.name == "last_non_null_value":
            return (
                when(item.field("retract"), nothing)
                .when(item.field("late"), fn.coalesce(total, value))
                .otherwise(value)
            )
        # A late input is what the accumulator is added to, as if it had been there first.
        start = value if empty is None else add(empty, value)
        return (
            when(item.field("retract"), when(total.is_not_null(), take_back(total, value)))
            .when(total.is_null(), start)
            .when(item.field("late"), add(start, total))
            .otherwise(add(total, value))
        )

    return fn.aggregate(items, nothing, step)


def _empty(rule: ColumnRule) -> Sql | None:
    """What the first input is added to; None: it is taken as it is."""
    match rule.function.name:
        case "nested_update" | "nested_partial_update":
            return fn.array().cast(rule.column.type.spark())
        case "merge_map_with_keytime":
            return fn.map().cast(rule.column.type.spark())
        case "collect" if rule.options.distinct:
            return fn.array().cast(rule.column.type.spark())
    return None


def _steps(rule: ColumnRule, schema: TableSchema) -> tuple[Step, Step]:
    """How a value is added, and how it is taken back."""

    def never(total: Sql, value: Sql) -> Sql:  # noqa: ARG001
        return total

    match rule.function.name:
        case "collect" if rule.options.distinct:
            return (lambda total, value: fn.array_distinct(fn.concat(total, value))), _without
        case "collect":
            return fn.concat, _without
        case "merge_map":
            return _merge_map, lambda total, value: fn.map_filter(total, lambda k, _: ~fn.map_contains_key(value, k))
        case "merge_map_with_keytime":
            return _merge_by_time(rule), never
        case "nested_update":
            keyed = _nested(rule, schema, partial=False)
            return keyed, _nested_without(rule)
        case "nested_partial_update":
            return _nested(rule, schema, partial=True), never
        case "product":
            return _product(rule, schema, "*"), _product(rule, schema, "/")
        case "last_non_null_value":
            return never, never
    raise AssertionError(rule.function.name)


def _without(total: Sql, value: Sql) -> Sql:
    """An array without one occurrence of each element of another. Nulls equal each other."""

    def boxed(array: Sql) -> Sql:
        return fn.transform(array, lambda element: struct({"e": element}))

    def remove(left: Sql, element: Sql) -> Sql:
        at = fn.array_position(left, element)
        shorter = fn.concat(
            fn.slice(left, 1, fn.greatest(at - 1, 0).cast("INT")),
            fn.slice(left, (at + 1).cast("INT"), fn.size(left)),
        )
        return when(at > 0, shorter).otherwise(left)

    left = fn.aggregate(boxed(value), boxed(total), remove)
    return fn.transform(left, lambda element: element.field("e"))


def _merge_map(total: Sql, value: Sql) -> Sql:
    return fn.map_concat(fn.map_filter(total, lambda k, _: ~fn.map_contains_key(value, k)), value)


def _merge_by_time(rule: ColumnRule) -> Step:
    """Per key the value with the greatest time, compared as text."""
    map_type = rule.column.type
    times = map_type.value.fields if isinstance(map_type, t.Map) and isinstance(map_type.value, t.Row) else ()
    time_field = rule.options.ts_field or times[-1].name

    def step(total: Sql, value: Sql) -> Sql:
        def newer(k: Sql, v: Sql) -> Sql:
            stored = fn.try_element_at(total, k)
            time = v.field(time_field)
            return time.is_not_null() & (stored.is_null() | (time > stored.field(time_field)))

        taken = fn.map_filter(value, newer)
        removed = fn.map_filter(value, lambda _, v: v.is_null())
        kept = fn.map_filter(total, lambda k, _: ~fn.map_contains_key(taken, k) & ~fn.map_contains_key(removed, k))
        return fn.map_concat(kept, taken)

    return step


def _nested(rule: ColumnRule, schema: TableSchema, *, partial: bool) -> Step:
    """ROWs of an array, added one by one: by key, or at the end."""
    options = rule.options
    element = rule.column.type.element if isinstance(rule.column.type, t.Array) else None
    fields = [field.name for field in element.fields] if isinstance(element, t.Row) else []

    def same(a: Sql, b: Sql) -> Sql:
        return all_of(a.field(name).equal_null_safe(b.field(name)) for name in options.nested_key)

    def sequence(row: Sql) -> Sql:
        return struct({name: row.field(name) for name in options.nested_sequence_field})

    def merge(old: Sql, new: Sql) -> Sql:
        if partial:
            return struct({name: fn.coalesce(new.field(name), old.field(name)) for name in fields})
        if options.nested_sequence_field:
            return when(sequence(new) >= sequence(old), new).otherwise(old)
        return new

    def add(rows: Sql, new: Sql) -> Sql:
        room = sql(True) if options.count_limit is None else fn.size(rows) < options.count_limit
        appended = when(room, fn.concat(rows, fn.array(new))).otherwise(rows)
        if not options.nested_key:
            return when(new.is_null(), rows).otherwise(appended)
        merged = fn.transform(rows, lambda old: when(same(old, new), merge(old, new)).otherwise(old))
        known = fn.exists(rows, lambda old: same(old, new))
        added = when(new.is_null(), rows)
        null_key = any_of(new.field(name).is_null() for name in options.nested_key)
        if options.nested_key_null_strategy == "ignore":
            added = added.when(null_key, rows)
        elif options.nested_key_null_strategy == "error":
            text = f"null in the nested key ({', '.join(options.nested_key)}) of column {rule.column.name}"
            added = added.when(null_key, raise_for_row(text, "", schema).cast(rule.column.type.spark()))
        return added.when(known, merged).otherwise(appended)

    return lambda total, value: fn.aggregate(value, total, add)


def _nested_without(rule: ColumnRule) -> Step:
    keys = rule.options.nested_key
    if not keys:
        return lambda total, value: _without(total, fn.filter(value, lambda row: row.is_not_null()))

    def same(a: Sql, b: Sql) -> Sql:
        return all_of(a.field(name).equal_null_safe(b.field(name)) for name in keys)

    return lambda total, value: fn.filter(
        total, lambda old: ~fn.exists(fn.filter(value, lambda row: row.is_not_null()), lambda row: same(old, row))
    )


def _product(rule: ColumnRule, schema: TableSchema, operator: str) -> Step:
    data_type = rule.column.type
    spark_type = data_type.spark()

    def floating(total: Sql, value: Sql) -> Sql:
        wide_total, wide_value = total.cast("DOUBLE"), value.cast("DOUBLE")
        if operator == "/":
            # As IEEE 754 divides, but for the sign of a zero; Spark raises an error.
            by_zero = wide_total * float("inf")
            return when(wide_value == 0, by_zero).otherwise(wide_total / wide_value).cast(spark_type)
        return (wide_total * wide_value).cast(spark_type)

    def whole(total: Sql, value: Sql) -> Sql:
        wide_total, wide_value = total.cast("DECIMAL(19,0)"), value.cast("DECIMAL(19,0)")
        if operator == "/":
            by_zero = raise_for_row(
                f"product of column {rule.column.name} can't take back ",
                value,
                schema,
                hint="nothing times 0 is undone",
            ).cast(spark_type)
            # `div` of BIGINT truncates towards zero, as Java divides; its one overflow is caught as such.
            quotient = (total.cast("DECIMAL(20,0)") // wide_value).try_cast(spark_type)
            return when(value == 0, by_zero).when(quotient.is_null(), too_big(total, value)).otherwise(quotient)
        narrow = (wide_total * wide_value).try_cast(spark_type)
        return when(narrow.is_null(), too_big(total, value)).otherwise(narrow)

    def too_big(total: Sql, value: Sql) -> Sql:
        text = f"product does not fit column {rule.column.name} {data_type.sql_name()}: "
        shown = fn.concat_ws(f" {operator} ", total.cast("STRING"), value.cast("STRING"))
        return raise_for_row(text, shown, schema, hint="a wider type has room for it").cast(spark_type)

    return floating if isinstance(data_type, t.Float | t.Double) else whole
