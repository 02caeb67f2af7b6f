"""Columns of a table and columns of Spark: which key columns a frame may bring, and what the results are in Spark.

Keys are checked on the driver, before anything runs. A type that means the same is taken, and made the table's: another
width of integers, a narrower DECIMAL. One that means something else is refused, never cast in silence: text that looks
like a number matches nothing, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.key_column_checks import check_key_columns, check_prefix_columns
from stelae.schema.table_schema import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import DataType as SparkType

HIDDEN_COLUMN = "__stelae_hidden"
"""BOOLEAN column of rows read from files: which are tombstones, or hidden in another way."""

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Decimal digits that the integers of Spark have at most."""


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


@cache
def _accepted() -> Mapping[type[t.DataType], tuple[type[SparkType], ...]]:
    """Of each type of a table, the types of Spark whose values all fit it without loss: the same, and narrower ones.

    DECIMAL and nested types depend on more than their class: `is_storable`.
    """
    from pyspark.sql import types as s

    return {
        t.Boolean: (s.BooleanType,),
        t.TinyInt: (s.ByteType,),
        t.SmallInt: (s.ShortType, s.ByteType),
        t.Int: (s.IntegerType, s.ShortType, s.ByteType),
        t.BigInt: (s.LongType, s.IntegerType, s.ShortType, s.ByteType),
        t.Float: (s.FloatType, s.ShortType, s.ByteType),
        t.Double: (s.DoubleType, s.FloatType, s.IntegerType, s.ShortType, s.ByteType),
        t.String: (s.StringType, s.VarcharType, s.CharType),
        t.Binary: (s.BinaryType,),
        t.Date: (s.DateType,),
        t.Time: (s.TimeType,),
        t.Timestamp: (s.TimestampNTZType,),
        t.TimestampLtz: (s.TimestampType,),
    }


def is_storable(source: SparkType, target: t.DataType) -> bool:
    """Whether every value of a Spark type fits a column without loss: the same type, or a wider one."""
    from pyspark.sql import types as s

    if isinstance(source, _accepted().get(type(target), ())):
        return has_binary_collation(source)
    match target:
        case t.Decimal(precision=precision, scale=scale):
            source_scale = source.scale if isinstance(source, s.DecimalType) else 0
            digits = source.precision if isinstance(source, s.DecimalType) else _DIGITS.get(source.typeName(), 1000)
            return source_scale <= scale and digits - source_scale <= precision - scale
        case t.Array(element=element):
            return isinstance(source, s.ArrayType) and is_storable(source.elementType, element)
        case t.Map(key=key, value=value):
            return (
                isinstance(source, s.MapType)
                and is_storable(source.keyType, key)
                and is_storable(source.valueType, value)
            )
        case t.Row(fields=fields):
            return (
                isinstance(source, s.StructType)
                and [field.name for field in fields] == source.names
                and all(is_storable(a.dataType, b.type) for a, b in zip(source.fields, fields, strict=True))
            )
    return False


def has_binary_collation(source: SparkType) -> bool:
    """Equal under another collation is not equal in bytes: bucket and key would disagree with Spark's grouping."""
    return getattr(source, "collation", "UTF8_BINARY") == "UTF8_BINARY"


def key_argument(column: Column, value: SparkColumn, spark_type: SparkType, name: str) -> SparkColumn:
    """A column of a frame as a key column of the table; InvalidRequest where it means something else."""
    from pyspark.sql import types as s

    wanted = column.type
    if not has_binary_collation(spark_type):
        raise InvalidRequest(
            f"{name} is {spark_type.simpleString()}, and keys are compared byte by byte",
            place=name,
            hint=f"cast it to STRING: col({name!r}).cast('string')",
        )
    if isinstance(wanted, t.INTEGERS) and isinstance(spark_type, s.IntegralType):
        return value  # Of any width: one out of the column's range matches nothing.
    if not is_storable(spark_type, wanted):
        raise InvalidRequest(
            f"column {name} is {spark_type.simpleString().upper()}, but key column {column.name} is "
            f"{wanted.sql_name()}",
            place=name,
            hint=f"if it means the same: col({name!r}).cast({wanted.spark().lower()!r})",
        )
    return value.cast(wanted.spark()) if isinstance(wanted, t.Float | t.Double | t.Decimal) else value


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
