"""Goal: a column of Spark is taken for a column of a table only where every value of it fits there without loss.

Method: for each type of a table, all types of Spark that are taken, as a table; all others have to be refused. No
session.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as s

from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.table_schema import Column
from stelae.spark.column_types import is_storable, key_argument

SPARK: dict[str, s.DataType] = {
    "byte": s.ByteType(), "short": s.ShortType(), "int": s.IntegerType(), "long": s.LongType(),
    "float": s.FloatType(), "double": s.DoubleType(), "9.2": s.DecimalType(9, 2), "10.2": s.DecimalType(10, 2),
    "12.2": s.DecimalType(12, 2), "10.0": s.DecimalType(10, 0), "9.3": s.DecimalType(9, 3), "bool": s.BooleanType(),
    "text": s.StringType(), "varchar": s.VarcharType(3), "char": s.CharType(3), "bytes": s.BinaryType(),
    "date": s.DateType(), "time": s.TimeType(), "stamp": s.TimestampNTZType(), "instant": s.TimestampType(),
    "folded": s.StringType("UTF8_LCASE"), "ints": s.ArrayType(s.IntegerType()), "longs": s.ArrayType(s.LongType()),
    "by text": s.MapType(s.StringType(), s.ShortType()), "by int": s.MapType(s.IntegerType(), s.ShortType()),
    "row": s.StructType([s.StructField("a", s.ByteType())]),
    "other row": s.StructType([s.StructField("b", s.ByteType())]),
    "null": s.NullType(),
}  # fmt: skip
TAKEN: list[tuple[t.DataType, str]] = [
    (t.TinyInt(), "byte"),
    (t.SmallInt(), "byte short"),
    (t.Int(), "byte short int"),
    (t.BigInt(), "byte short int long"),
    (t.Float(), "byte short float"),
    (t.Double(), "byte short int float double"),
    (t.Decimal(precision=10, scale=2), "byte short 9.2 10.2"),
    (t.Decimal(precision=12, scale=2), "byte short int 9.2 10.2 12.2 10.0"),
    (t.Boolean(), "bool"),
    (t.String(), "text varchar char"),
    (t.Binary(), "bytes"),
    (t.Date(), "date"),
    (t.Time(precision=0), "time"),
    (t.Timestamp(precision=3), "stamp"),
    (t.TimestampLtz(precision=3), "instant"),
    (t.Array(element=t.Int()), "ints"),
    (t.Map(key=t.String(), value=t.Int()), "by,text"),
    (t.Row(fields=(t.Field("a", t.Int()),)), "row"),
]


@pytest.mark.parametrize(("target", "taken"), TAKEN, ids=[target.sql() for target, _ in TAKEN])
def test_types_that_fit(target: t.DataType, taken: str) -> None:
    expected = {name.replace(",", " ") for name in taken.split()}
    assert {name for name, source in SPARK.items() if is_storable(source, target)} == expected


class AnyColumn:
    """A column of a frame, of which only casts are seen."""

    def cast(self, to: str) -> str:
        return to


@pytest.mark.parametrize(
    ("source", "target", "cast"),
    [
        ("long", t.TinyInt(), None), ("byte", t.BigInt(), None), ("text", t.String(), None),
        ("float", t.Double(), "DOUBLE"), ("int", t.Double(), "DOUBLE"),
        ("9.2", t.Decimal(precision=12, scale=2), "DECIMAL(12, 2)"),
    ],
)  # fmt: skip
def test_keys_of_lookups_are_made_the_type_of_the_table(source: str, target: t.DataType, cast: str | None) -> None:
    value: Any = AnyColumn()
    given = key_argument(Column(1, "k", target), value, SPARK[source], "c")
    assert given is value if cast is None else str(given).upper() == cast


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("text", t.Int(), "c is STRING, but key column k is INT"),
        ("date", t.Timestamp(precision=3), "c is DATE"),
        ("12.2", t.Decimal(precision=10, scale=2), "c is DECIMAL"),
        ("folded", t.String(), "byte by byte"),
    ],
)
def test_keys_that_mean_something_else(source: str, target: t.DataType, told: str) -> None:
    value: Any = AnyColumn()
    with pytest.raises(InvalidRequest, match=told) as caught:
        key_argument(Column(1, "k", target), value, SPARK[source], "c")
    assert caught.value.place == "c"
