"""Functions that need every input in its order: folded one record after the other.

    fold        in the JVM: a Spark expression over the sorted list of a key's inputs
    ArrowFold   in the writer, once a batch: what Spark has no exact function for (DECIMAL products, Roaring bitmaps)

An input is a struct: o (its order), late (whether it goes underneath), retract, v (its value, never null).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np

from stelae.builder.plan.row_errors import raise_for_row
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.merge_rules import ColumnRule
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

Step = Callable[["Column", "Column"], "Column"]
"""Accumulator (never null) and value → accumulator."""


def is_folded_in_arrow(rule: ColumnRule) -> bool:
    """Whether the merge hands on a column's inputs as a list, for `ArrowFold`."""
    if rule.function.name in ("rbm32", "rbm64"):
        return True
    return rule.function.name == "product" and isinstance(rule.column.type, t.Decimal)


# --- in the JVM


def fold(items: Column, rule: ColumnRule, schema: TableSchema) -> Column:
    """The list of inputs, folded. Null as long as there was no input but null, or only retracts."""
    from pyspark.sql import functions as f

    add, take_back = _steps(rule, schema)
    nothing = f.lit(None).cast(rule.column.type.spark())
    empty = _empty(rule)

    def step(total: Column, item: Column) -> Column:
        value = item.getField("v")
        # A late input is what the accumulator is added to, as if it had been there first.
        start = value if empty is None else add(empty, value)
        under = start if empty is None else add(add(empty, value), total)
        if rule.function.name == "last_non_null_value":
            return (
                f.when(item.getField("retract"), nothing)
                .when(item.getField("late"), f.coalesce(total, value))
                .otherwise(value)
            )
        if empty is None:
            under = add(value, total)
        return (
            f.when(item.getField("retract"), f.when(total.isNotNull(), take_back(total, value)))
            .when(total.isNull(), start)
            .when(item.getField("late"), under)
            .otherwise(add(total, value))
        )

    return f.aggregate(items, nothing, step)


def _empty(rule: ColumnRule) -> Column | None:
    """What the first input is added to; None: it is taken as it is."""
    from pyspark.sql import functions as f

    match rule.function.name:
        case "nested_update" | "nested_partial_update":
            return f.array().cast(rule.column.type.spark())
        case "merge_map_with_keytime":
            return f.create_map().cast(rule.column.type.spark())
        case "collect" if rule.options.distinct:
            return f.array().cast(rule.column.type.spark())
    return None


def _steps(rule: ColumnRule, schema: TableSchema) -> tuple[Step, Step]:
    from pyspark.sql import functions as f

    def never(total: Column, value: Column) -> Column:  # noqa: ARG001
        return total

    match rule.function.name:
        case "collect" if rule.options.distinct:
            return (lambda total, value: f.array_distinct(f.concat(total, value))), _without
        case "collect":
            return f.concat, _without
        case "merge_map":
            return _merge_map, lambda total, value: f.map_filter(total, lambda k, _: ~f.map_contains_key(value, k))
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


def _without(total: Column, value: Column) -> Column:
    """An array without one occurrence of each element of another. Nulls equal each other."""
    from pyspark.sql import functions as f

    def boxed(array: Column) -> Column:
        return f.transform(array, lambda element: f.struct(element.alias("e")))

    def remove(left: Column, element: Column) -> Column:
        at = f.array_position(left, element)
        shorter = f.concat(
            f.slice(left, f.lit(1), f.greatest(at - 1, f.lit(0)).cast("int")),
            f.slice(left, (at + 1).cast("int"), f.size(left)),
        )
        return f.when(at > 0, shorter).otherwise(left)

    left = f.aggregate(boxed(value), boxed(total), remove)
    return f.transform(left, lambda element: element.getField("e"))


def _merge_map(total: Column, value: Column) -> Column:
    from pyspark.sql import functions as f

    return f.map_concat(f.map_filter(total, lambda k, _: ~f.map_contains_key(value, k)), value)


def _merge_by_time(rule: ColumnRule) -> Step:
    """Per key the value with the greatest time, compared as text."""
    from pyspark.sql import functions as f

    map_type = rule.column.type
    times = map_type.value.fields if isinstance(map_type, t.Map) and isinstance(map_type.value, t.Row) else ()
    time_field = rule.options.ts_field or times[-1].name

    def step(total: Column, value: Column) -> Column:
        def newer(k: Column, v: Column) -> Column:
            stored = f.try_element_at(total, k)
            time = v.getField(time_field)
            return time.isNotNull() & (stored.isNull() | (time > stored.getField(time_field)))

        taken = f.map_filter(value, newer)
        removed = f.map_filter(value, lambda _, v: v.isNull())
        kept = f.map_filter(total, lambda k, _: ~f.map_contains_key(taken, k) & ~f.map_contains_key(removed, k))
        return f.map_concat(kept, taken)

    return step


def _nested(rule: ColumnRule, schema: TableSchema, *, partial: bool) -> Step:
    """ROWs of an array, added one by one: by key, or at the end."""
    from pyspark.sql import functions as f

    options = rule.options
    element = rule.column.type.element if isinstance(rule.column.type, t.Array) else None
    fields = [field.name for field in element.fields] if isinstance(element, t.Row) else []

    def same(a: Column, b: Column) -> Column:
        return reduce(and_, (a.getField(name).eqNullSafe(b.getField(name)) for name in options.nested_key))

    def merge(old: Column, new: Column) -> Column:
        if partial:
            values = [f.coalesce(new.getField(name), old.getField(name)).alias(name) for name in fields]
            return f.struct(*values)
        if options.nested_sequence_field:
            older = [f.struct(*(x.getField(n) for n in options.nested_sequence_field)) for x in (new, old)]
            return f.when(older[0] >= older[1], new).otherwise(old)
        return new

    def add(rows: Column, new: Column) -> Column:
        room = f.lit(True) if options.count_limit is None else f.size(rows) < options.count_limit
        appended = f.when(room, f.concat(rows, f.array(new))).otherwise(rows)
        if not options.nested_key:
            return f.when(new.isNull(), rows).otherwise(appended)
        merged = f.transform(rows, lambda old: f.when(same(old, new), merge(old, new)).otherwise(old))
        known = f.exists(rows, lambda old: same(old, new))
        added = f.when(new.isNull(), rows)
        null_key = reduce(lambda a, b: a | b, (new.getField(name).isNull() for name in options.nested_key))
        if options.nested_key_null_strategy == "ignore":
            added = added.when(null_key, rows)
        elif options.nested_key_null_strategy == "error":
            text = f"null in the nested key ({', '.join(options.nested_key)}) of column {rule.column.name}"
            added = added.when(null_key, raise_for_row(text, f.lit(""), schema).cast(rule.column.type.spark()))
        return added.when(known, merged).otherwise(appended)

    return lambda total, value: f.aggregate(value, total, add)


def _nested_without(rule: ColumnRule) -> Step:
    from pyspark.sql import functions as f

    keys = rule.options.nested_key
    if not keys:
        return lambda total, value: _without(total, f.filter(value, lambda row: row.isNotNull()))

    def same(a: Column, b: Column) -> Column:
        return reduce(and_, (a.getField(name).eqNullSafe(b.getField(name)) for name in keys))

    return lambda total, value: f.filter(
        total, lambda old: ~f.exists(f.filter(value, lambda row: row.isNotNull()), lambda row: same(old, row))
    )


def _product(rule: ColumnRule, schema: TableSchema, operator: str) -> Step:
    from pyspark.sql import functions as f

    data_type = rule.column.type
    spark_type = data_type.spark()

    def floating(total: Column, value: Column) -> Column:
        wide_total, wide_value = total.cast("double"), value.cast("double")
        if operator == "/":
            # As IEEE 754 divides, but for the sign of a zero; Spark raises an error.
            by_zero = wide_total * f.lit(float("inf"))
            return f.when(wide_value == 0, by_zero).otherwise(wide_total / wide_value).cast(spark_type)
        return (wide_total * wide_value).cast(spark_type)

    def whole(total: Column, value: Column) -> Column:
        wide_total, wide_value = total.cast("decimal(19,0)"), value.cast("decimal(19,0)")
        if operator == "/":
            by_zero = raise_for_row(
                f"product of column {rule.column.name} can't take back ",
                value,
                schema,
                hint="nothing times 0 is undone",
            ).cast(spark_type)
            # `div` of BIGINT truncates towards zero, as Java divides; its one overflow is caught as such.
            quotient = f.call_function("div", total.cast("decimal(20,0)"), wide_value).try_cast(spark_type)
            return f.when(value == 0, by_zero).when(quotient.isNull(), too_big(total, value)).otherwise(quotient)
        narrow = (wide_total * wide_value).try_cast(spark_type)
        return f.when(narrow.isNull(), too_big(total, value)).otherwise(narrow)

    def too_big(total: Column, value: Column) -> Column:
        text = f"product does not fit column {rule.column.name} {data_type.sql_name()}: "
        shown = f.concat_ws(f" {operator} ", total.cast("string"), value.cast("string"))
        return raise_for_row(text, shown, schema, hint="a wider type has room for it").cast(spark_type)

    return floating if isinstance(data_type, t.Float | t.Double) else whole


# --- in the writer


@dataclass(frozen=True)
class ArrowFold:
    """Folds one column of merged rows. Pickled with the writer's tasks."""

    rule: ColumnRule

    def __call__(self, inputs: pa.Array, key_of: Callable[[int], str]) -> pa.Array:
        """The column's values; `key_of` shows the key of a row for errors."""
        if self.rule.function.name == "product":
            return _decimal_products(inputs, self.rule, key_of)
        return _bitmaps(inputs, self.rule, key_of)


def arrow_folds(rules: Sequence[ColumnRule], value_names: Sequence[str]) -> dict[int, ArrowFold]:
    """By position among the value columns."""
    return {
        value_names.index(rule.column.name): ArrowFold(rule) for rule in rules if is_folded_in_arrow(rule)
    }  # fmt: skip


_EXACT = decimal.Context(prec=2 * t.MAX_DECIMAL_PRECISION + 2, rounding=decimal.ROUND_HALF_UP)


def _decimal_products(inputs: pa.Array, rule: ColumnRule, key_of: Callable[[int], str]) -> pa.Array:
    """Each step is rounded half up to the column's scale, as Paimon does it."""
    import pyarrow as pa

    from stelae.encoding.arrow import arrow_type

    data_type = rule.column.type
    if not isinstance(data_type, t.Decimal):
        raise TypeError(data_type)
    step = decimal.Decimal(1).scaleb(-data_type.scale)
    limit = decimal.Decimal(10) ** (data_type.precision - data_type.scale)
    offsets = inputs.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    items = inputs.values.slice(first, last - first)
    retracts = items.field(0).to_numpy(zero_copy_only=False).tolist()
    values = items.field(1).to_pylist()
    products: list[decimal.Decimal | None] = []
    for row, (start, stop) in enumerate(zip(offsets[:-1] - first, offsets[1:] - first, strict=True)):
        total: decimal.Decimal | None = None
        for retract, value in zip(retracts[start:stop], values[start:stop], strict=True):
            if total is None:
                total = None if retract else value
                continue
            if retract and not value:
                raise InvalidRequest(
                    f"product of column {rule.column.name} can't take back 0 in the row with key {key_of(row)}",
                    place=rule.column.name,
                    hint="nothing times 0 is undone",
                )
            exact = _EXACT.divide(total, value) if retract else _EXACT.multiply(total, value)
            total = exact.quantize(step, context=_EXACT)
            if abs(total) >= limit:
                raise InvalidRequest(
                    f"product does not fit column {rule.column.name} {data_type.sql_name()}: {total} in the row with "
                    f"key {key_of(row)}",
                    place=rule.column.name,
                    hint="a wider type has room for it",
                )
        products.append(total)
    return pa.array(products, arrow_type(data_type))


def _bitmaps(inputs: pa.Array, rule: ColumnRule, key_of: Callable[[int], str]) -> pa.Array:
    """Unions of serialized bitmaps and of ids; null where there is neither."""
    import pyarrow as pa
    from pyroaring import BitMap, BitMap64

    kind: Any = BitMap if rule.function.name == "rbm32" else BitMap64
    bitmaps, ids = inputs.field(0), inputs.field(1)
    bitmap_offsets, id_offsets = bitmaps.offsets.to_numpy(), ids.offsets.to_numpy()
    serialized = bitmaps.values
    numbers = ids.values.to_numpy(zero_copy_only=False)
    numbers = numbers.astype(np.uint32 if kind is BitMap else np.uint64, copy=False)
    results: list[bytes | None] = []
    for row in range(len(inputs)):
        start, stop = int(bitmap_offsets[row]), int(bitmap_offsets[row + 1])
        first, last = int(id_offsets[row]), int(id_offsets[row + 1])
        if start == stop and first == last:
            results.append(None)
            continue
        union = kind(numbers[first:last])
        for index in range(start, stop):
            try:
                union |= kind.deserialize(serialized[index].as_py())
            except Exception as exc:
                name = rule.function.name
                raise InvalidRequest(
                    f"column {rule.column.name} has bytes that are no portable {name[3:]}-bit Roaring bitmap, in the "
                    f"row with key {key_of(row)}: {exc}",
                    place=rule.column.name,
                    hint="serialize it with CRoaring, pyroaring, or RoaringBitmap's portable format; or give ids",
                ) from exc
        if hasattr(union, "run_optimize"):
            union.run_optimize()
        results.append(union.serialize())
    return pa.array(results, pa.binary())
