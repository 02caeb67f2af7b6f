"""Expressions over the inputs of one column: the greatest record, exact sums, texts put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stelae.builder.spark_sql.sql_text import Sql, fn, sql, struct, when
from stelae.schema import types as t
from stelae.schema.merge_rules import ColumnRule


def newest(order: Mapping[str, Sql], values: Mapping[str, Sql], part: Sql, *, comparable: bool) -> Sql:
    """Order and values of the record with the greatest order, as one struct."""
    return _extreme(fn.max, fn.max_by, order, values, part, comparable=comparable)


def oldest(order: Mapping[str, Sql], values: Mapping[str, Sql], part: Sql, *, comparable: bool) -> Sql:
    """Order and values of the record with the least order, as one struct."""
    return _extreme(fn.min, fn.min_by, order, values, part, comparable=comparable)


def _extreme(
    function: Callable[..., Sql],
    function_by: Callable[..., Sql],
    order: Mapping[str, Sql],
    values: Mapping[str, Sql],
    part: Sql,
    *,
    comparable: bool,
) -> Sql:
    # No two records have the same order, so that Spark may as well compare values, which saves a copy of the order.
    if comparable:
        return function(when(part, struct({**order, **values})))
    return function_by(struct({**order, **values}), when(part, struct(order)))


def is_comparable(data_type: t.DataType) -> bool:
    """Whether Spark can compare values of the type: not if there is a MAP in it."""
    match data_type:
        case t.Map():
            return False
        case t.Array(element=element):
            return is_comparable(element)
        case t.Row(fields=fields):
            return all(is_comparable(each.type) for each in fields)
    return True


def in_order(items: Sql, rule: ColumnRule) -> Sql:
    """Items in the order of their field o. The natural order of structs is quicker, but MAPs have none."""
    if not isinstance(rule.column.type, t.Map):
        return fn.array_sort(items)

    def compare(a: Sql, b: Sql) -> Sql:
        return when(a.field("o") < b.field("o"), -1).when(a.field("o") > b.field("o"), 1).otherwise(0)

    return fn.array_sort(items, compare)


def sum_of(value: Sql, retract: Sql | None, data_type: t.DataType) -> Sql:
    """A sum that can't overflow on the way: of BIGINT in two halves, of DECIMAL in the widest one."""

    def signed(part: Sql) -> Sql:
        return part if retract is None else when(retract, -part).otherwise(part)

    match data_type:
        case t.BigInt():
            low, high = value.bit_and(0xFFFFFFFF), fn.shiftright(value, 32)
            return struct({"high": fn.sum(signed(high)), "low": fn.sum(signed(low))})
        case t.TinyInt() | t.SmallInt() | t.Int():
            return fn.sum(signed(value.cast("BIGINT")))
        case t.Float() | t.Double():
            return fn.sum(signed(value.cast("DOUBLE")))
        case _:
            # Null where DECIMAL(38) overflows: then there are values, and no sum of them.
            return struct({"sum": fn.try_sum(signed(value)), "any": fn.max(value.is_not_null())})


def sum_total(total: Sql, data_type: t.DataType) -> Sql:
    """What `sum_of` gives, as one number."""
    if isinstance(data_type, t.BigInt):
        high, low = total.field("high").cast("DECIMAL(20,0)"), total.field("low").cast("DECIMAL(20,0)")
        return high * sql(4294967296).cast("DECIMAL(11,0)") + low
    if isinstance(data_type, t.Decimal):
        return total.field("sum")
    return total


def is_text(value: Sql) -> Sql:
    """Whether a text has more than white space."""
    return fn.rlike(value, r"(?U)\S")


def joined(items: Sql, rule: ColumnRule) -> Sql:
    """Texts of items, in their order, with delimiters between them; null if there are none."""
    delimiter = rule.options.delimiter if rule.options.delimiter is not None else ","
    texts = fn.transform(items, lambda item: item.field("v"))
    if not rule.options.distinct:
        return when(fn.size(texts) > 0, fn.array_join(texts, delimiter))
    quoted = "\\Q" + delimiter.replace("\\E", "\\E\\\\E\\Q") + "\\E"

    def tokens(text: Sql) -> Sql:
        return fn.filter(fn.split(text, quoted), is_text)

    first = fn.try_element_at(texts, 1)
    rest = fn.flatten(fn.transform(fn.slice(texts, 2, fn.size(texts)), tokens))
    added = fn.array_except(rest, tokens(first))
    return when(fn.size(texts) > 0, fn.array_join(fn.concat(fn.array(first), added), delimiter))
