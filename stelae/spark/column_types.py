"""Columns of a table and columns of Spark: which key columns a frame may bring, and what the results are in Spark.

Keys are checked on the driver, before anything runs. A type that means the same is taken, and made the table's: another
width of integers, a narrower DECIMAL. One that means something else is refused, never cast in silence: text that looks
like a number matches nothing, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.key_columns import check_key_columns, check_prefix_columns
from stelae.schema.table_schema import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import DataType as SparkType

HIDDEN_COLUMN = "__stelae_hidden"
"""BOOLEAN column of rows read from files: which are tombstones, or hidden in another way."""

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def as_arrow_has_it(data_type: t.DataType) -> t.DataType:
    """The type that Spark sees in Arrow data: TIME has no precision there, so Spark takes it for the finest."""
    match data_type:
        case t.Time():
            return t.Time(precision=t.MAX_TIME_PRECISION)
        case t.Array(element=element):
            return t.Array(element=as_arrow_has_it(element))
        case t.Map(key=key, value=value):
            return t.Map(key=as_arrow_has_it(key), value=as_arrow_has_it(value))
        case t.Row(fields=fields):
            return t.Row(fields=tuple(t.Field(each.name, as_arrow_has_it(each.type)) for each in fields))
    return data_type


def struct_ddl(columns: Sequence[Column]) -> str:
    """A struct of these columns as they come in Arrow."""
    fields = ", ".join(f"{t.quote_name(c.name)}: {as_arrow_has_it(c.type).spark()}" for c in columns)
    return f"struct<{fields}>"


def key_columns(schema: TableSchema, given: Sequence[str], table: str, *, prefix: bool) -> tuple[Column, ...]:
    """The columns that a lookup gives values for: the whole primary key, or what a prefix may be made of."""
    if not prefix:
        check_key_columns(
            schema, given, table=table, place="on", hint="with prefix=True the first columns of it will do"
        )
    elif not given:
        raise InvalidRequest(f"nothing is no prefix of the key of {table}", place="on", hint="give its first columns")
    else:
        check_prefix_columns(schema, given, table=table, place="on")
    return tuple(schema.column(name) for name in given)


def key_argument(column: Column, value: SparkColumn, spark_type: SparkType, name: str) -> SparkColumn:
    """A column of a frame as a key column of the table; InvalidRequest where it means something else."""
    from pyspark.sql import types as s

    given = spark_type.simpleString()
    wanted = column.type
    same: Mapping[type[t.DataType], tuple[type[Any], ...]] = {
        **dict.fromkeys(t.INTEGERS, (s.ByteType, s.ShortType, s.IntegerType, s.LongType)),
        t.Boolean: (s.BooleanType,),
        t.Float: (s.FloatType,),
        t.Double: (s.DoubleType,),
        t.String: (s.StringType, s.VarcharType, s.CharType),
        t.Binary: (s.BinaryType,),
        t.Date: (s.DateType,),
        t.Time: (s.TimeType,),
        t.Timestamp: (s.TimestampNTZType,),
        t.TimestampLtz: (s.TimestampType,),
    }
    if isinstance(spark_type, same.get(type(wanted), ())):
        if " collate " in given:
            raise InvalidRequest(
                f"{name} is {given}, and keys are compared byte by byte",
                place=name,
                hint=f"cast it to STRING: col({name!r}).cast('string')",
            )
        return value
    if isinstance(wanted, t.Double) and isinstance(spark_type, s.FloatType):
        return value.cast(wanted.spark())
    if isinstance(wanted, t.Decimal):
        scale = int(getattr(spark_type, "scale", 0))
        precision: int = getattr(spark_type, "precision", 99)
        digits = _INTEGER_DIGITS.get(given, precision)
        if scale <= wanted.scale and digits - scale <= wanted.precision - wanted.scale:
            return value.cast(wanted.spark())
    raise InvalidRequest(
        f"column {name} is {given.upper()}, but key column {column.name} is {wanted.sql_name()}",
        place=name,
        hint=f"if it means the same: col({name!r}).cast({wanted.spark().lower()!r})",
    )


def selected_columns(
    schema: TableSchema, columns: Sequence[str] | None, on: Sequence[str], table: str
) -> tuple[Column, ...]:
    """What is looked up: the columns asked for, or all that the frame does not bring."""
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is one text: {columns!r}", place="columns", hint=f"a list: [{columns!r}]")
    if columns is None:
        chosen = [column for column in schema.columns if column.name not in on]
        if not chosen:
            raise InvalidRequest(
                f"{table} has no columns besides {_listed(list(on))}",
                place="columns",
                hint=f"to find out which keys are there: columns=[{on[0]!r}], rename={{{on[0]!r}: 'found'}}",
            )
        return tuple(chosen)
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated or not columns:
        raise InvalidRequest(
            f"columns names {_listed(repeated)} twice" if repeated else "columns is empty",
            place="columns",
            hint="leave it out for all columns",
        )
    return tuple(schema.column(name) for name in columns)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
