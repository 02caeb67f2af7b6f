"""Limits that the table's types have and Spark's have not: lengths of text and bytes, digits of a second."""

from __future__ import annotations

from collections.abc import Callable

from stelae.builder.spark_sql.sql_text import Sql, fn, struct, when
from stelae.schema import types as t


def within_limits(value: Sql, data_type: t.DataType, too_long: Callable[[Sql, str], Sql]) -> Sql:
    """The value within the limits of its type, at every depth: lengths are checked, fractional digits cut.

    `too_long` makes the error for a value, of which it gets what can be shown, and what is wrong with it.
    """
    if not _has_limits(data_type):
        return value
    match data_type:
        case t.String(length=int(length)):
            error = too_long(value, f"text longer than {data_type.sql_name()}")
            return when(fn.char_length(value) > length, error).otherwise(value)
        case t.Binary(length=int(length)):
            error = too_long(fn.hex(value), f"more bytes than {data_type.sql_name()}")
            return when(fn.octet_length(value) > length, error).otherwise(value)
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            return _floor_timestamp(value, precision, data_type)
        case t.Array(element=element):
            return fn.transform(value, lambda item: within_limits(item, element, too_long))
        case t.Map(key=key, value=of):
            if _has_limits(of):
                value = fn.transform_values(value, lambda _, item: within_limits(item, of, too_long))
            if not _has_limits(key):
                return value
            return fn.transform_keys(value, lambda item, _: within_limits(item, key, too_long))
        case t.Row(fields=fields):
            limited = {each.name: within_limits(value.field(each.name), each.type, too_long) for each in fields}
            return when(value.is_not_null(), struct(limited))
    return value


def _has_limits(data_type: t.DataType) -> bool:
    match data_type:
        case t.String(length=length) | t.Binary(length=length):
            return length is not None
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            return precision < t.MAX_TIME_PRECISION
        case t.Array(element=element):
            return _has_limits(element)
        case t.Map(key=key, value=value):
            return _has_limits(key) or _has_limits(value)
        case t.Row(fields=fields):
            return any(_has_limits(each.type) for each in fields)
    return False


def _floor_timestamp(value: Sql, precision: int, column_type: t.DataType) -> Sql:
    """Cut fractional digits that the precision has no room for, as SQL casts do."""
    step = 10 ** (t.MAX_TIME_PRECISION - precision)
    if isinstance(column_type, t.TimestampLtz):
        micros = fn.unix_micros(value)
        return fn.timestamp_micros(micros - fn.pmod(micros, step))
    # A wall clock has no unix_micros; its seconds are the same in every zone.
    rest = fn.pmod((fn.date_part("SECONDS", value) * 1_000_000).cast("BIGINT"), step)
    return value - fn.make_dt_interval(0, 0, 0, (rest / 1_000_000).cast("DECIMAL(18, 6)"))
