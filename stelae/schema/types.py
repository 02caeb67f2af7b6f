"""Column types, as SQL names them.

A type is a frozen value; the modules that store, hash, order or print values dispatch on it:

    types.py    what a type is and how SQL and Spark spell it       (no library)
    arrow.py    its Arrow type                                       keys.py     its order-preserving bytes
    rows.py     its bytes in a row                                   buckets.py  its Spark hash
    values.py   its JSON and Python values

Physical values. Codecs of single keys and rows work on plain Python values, one form a type, so that the hot path never
builds an object that it does not need:

    BOOLEAN bool · TINYINT..BIGINT int · FLOAT, DOUBLE float · DECIMAL int (unscaled) · CHAR, VARCHAR, STRING str
    BINARY, VARBINARY, BYTES bytes · DATE int (days since 1970-01-01) · TIME int (nanoseconds since midnight)
    TIMESTAMP, TIMESTAMP_LTZ int (microseconds since 1970-01-01, of the wall clock or of UTC)
    ARRAY list · MAP list of (key, value) pairs · ROW tuple, each of physical values

Names and meaning follow Flink SQL, as Paimon and Fluss do: TIMESTAMP has no time zone (Spark: TIMESTAMP_NTZ),
TIMESTAMP_LTZ is an instant (Spark: TIMESTAMP).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stelae.errors import CorruptData

MAX_DECIMAL_PRECISION = 38
MAX_LENGTH = 2_147_483_647
"""Of CHAR(n), VARCHAR(n), BINARY(n) and VARBINARY(n)."""
MAX_TIME_PRECISION = 6
"""Fractional digits of TIME and TIMESTAMP: microseconds, Spark's own limit."""


@dataclass(frozen=True, slots=True)
class DataType:
    """Base of all types. `nullable` is part of the type, as in SQL."""

    nullable: bool = True

    name: ClassVar[str] = ""
    spark_name: ClassVar[str] = ""

    def sql(self) -> str:
        """The type as a user writes it, `NOT NULL` included."""
        return self._spelled(self.sql_name())

    def sql_name(self) -> str:
        """The type as a user writes it, without `NOT NULL`."""
        return self.name

    def spark(self) -> str:
        """The Spark SQL type that holds the values (nullability is Spark's own, at the column)."""
        return self.spark_name or self.name

    def _spelled(self, text: str) -> str:
        return text if self.nullable else f"{text} NOT NULL"

    def __str__(self) -> str:
        return self.sql()


@dataclass(frozen=True, slots=True)
class Boolean(DataType):
    name: ClassVar[str] = "BOOLEAN"


@dataclass(frozen=True, slots=True)
class TinyInt(DataType):
    name: ClassVar[str] = "TINYINT"
    bits: ClassVar[int] = 8


@dataclass(frozen=True, slots=True)
class SmallInt(DataType):
    name: ClassVar[str] = "SMALLINT"
    bits: ClassVar[int] = 16


@dataclass(frozen=True, slots=True)
class Int(DataType):
    name: ClassVar[str] = "INT"
    bits: ClassVar[int] = 32


@dataclass(frozen=True, slots=True)
class BigInt(DataType):
    name: ClassVar[str] = "BIGINT"
    bits: ClassVar[int] = 64


@dataclass(frozen=True, slots=True)
class Float(DataType):
    name: ClassVar[str] = "FLOAT"


@dataclass(frozen=True, slots=True)
class Double(DataType):
    name: ClassVar[str] = "DOUBLE"


@dataclass(frozen=True, slots=True)
class Decimal(DataType):
    """Exact numbers; a precision up to 18 fits 8 bytes, above that 16."""

    precision: int = 10
    scale: int = 0

    name: ClassVar[str] = "DECIMAL"

    def sql_name(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    def spark(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class String(DataType):
    """CHAR(n), VARCHAR(n) and STRING. A length counts characters and is a limit, never padding."""

    length: int | None = None
    fixed: bool = False

    name: ClassVar[str] = "STRING"

    def sql_name(self) -> str:
        if self.length is None:
            return "STRING"
        return f"{'CHAR' if self.fixed else 'VARCHAR'}({self.length})"


@dataclass(frozen=True, slots=True)
class Binary(DataType):
    """BINARY(n), VARBINARY(n) and BYTES. A length counts bytes and is a limit, never padding."""

    length: int | None = None
    fixed: bool = False

    name: ClassVar[str] = "BYTES"
    spark_name: ClassVar[str] = "BINARY"

    def sql_name(self) -> str:
        if self.length is None:
            return "BYTES"
        return f"{'BINARY' if self.fixed else 'VARBINARY'}({self.length})"


@dataclass(frozen=True, slots=True)
class Date(DataType):
    name: ClassVar[str] = "DATE"


@dataclass(frozen=True, slots=True)
class Time(DataType):
    precision: int = 0

    name: ClassVar[str] = "TIME"

    def sql_name(self) -> str:
        return f"TIME({self.precision})"

    def spark(self) -> str:
        return f"TIME({self.precision})"


@dataclass(frozen=True, slots=True)
class Timestamp(DataType):
    """A wall-clock date and time, without time zone."""

    precision: int = 6

    name: ClassVar[str] = "TIMESTAMP"
    spark_name: ClassVar[str] = "TIMESTAMP_NTZ"

    def sql_name(self) -> str:
        return f"TIMESTAMP({self.precision})"


@dataclass(frozen=True, slots=True)
class TimestampLtz(DataType):
    """An instant; shown in UTC."""

    precision: int = 6

    name: ClassVar[str] = "TIMESTAMP_LTZ"
    spark_name: ClassVar[str] = "TIMESTAMP"

    def sql_name(self) -> str:
        return f"TIMESTAMP_LTZ({self.precision})"


@dataclass(frozen=True, slots=True)
class Array(DataType):
    element: DataType = DataType()

    name: ClassVar[str] = "ARRAY"

    def sql_name(self) -> str:
        return f"ARRAY<{self.element.sql()}>"

    def spark(self) -> str:
        return f"ARRAY<{self.element.spark()}>"


@dataclass(frozen=True, slots=True)
class Map(DataType):
    key: DataType = DataType()
    value: DataType = DataType()

    name: ClassVar[str] = "MAP"

    def sql_name(self) -> str:
        return f"MAP<{self.key.sql()}, {self.value.sql()}>"

    def spark(self) -> str:
        return f"MAP<{self.key.spark()}, {self.value.spark()}>"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a ROW."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Row(DataType):
    fields: tuple[Field, ...] = ()

    name: ClassVar[str] = "ROW"

    def sql_name(self) -> str:
        return f"ROW<{', '.join(f'{quote_name(f.name)} {f.type.sql()}' for f in self.fields)}>"

    def spark(self) -> str:
        return f"STRUCT<{', '.join(f'{quote_name(f.name)}: {f.type.spark()}' for f in self.fields)}>"


Integer = TinyInt | SmallInt | Int | BigInt
INTEGERS = (TinyInt, SmallInt, Int, BigInt)
NESTED = (Array, Map, Row)


def holds_map(data_type: DataType) -> bool:
    """Whether there is a MAP in the type, at any depth. MAPs have no equality in Spark."""
    match data_type:
        case Map():
            return True
        case Array(element=element):
            return holds_map(element)
        case Row(fields=fields):
            return any(holds_map(field.type) for field in fields)
    return False


def quote_name(name: str) -> str:
    """A name as SQL takes it: back-quoted always, so that any name works."""
    return "`" + name.replace("`", "``") + "`"


def encode_type(data_type: DataType) -> dict[str, object]:
    """The JSON form of a type, in schema files and table descriptions: `{"name": "DECIMAL", "precision": 10, ...}`."""
    body: dict[str, object] = {"name": data_type.name, "nullable": data_type.nullable}
    for part in _PARTS[type(data_type)]:
        value = getattr(data_type, part)
        if isinstance(value, DataType):
            body[part] = encode_type(value)
        elif isinstance(value, tuple):
            body[part] = [{"name": field.name, "type": encode_type(field.type)} for field in value]
        elif value is not None:
            body[part] = value
    return body


def decode_type(body: Mapping[str, Any]) -> DataType:
    """The type that `encode_type` described."""
    kind = _BY_NAME.get(body.get("name", ""))
    if kind is None:
        raise CorruptData(f"unknown type {body.get('name')!r}", hint=f"known types: {', '.join(sorted(_BY_NAME))}")
    parts: dict[str, Any] = {"nullable": bool(body["nullable"])}
    for part in _PARTS[kind]:
        value = body.get(part)
        if isinstance(value, dict):
            parts[part] = decode_type(value)
        elif isinstance(value, list):
            parts[part] = tuple(Field(field["name"], decode_type(field["type"])) for field in value)
        elif value is not None:
            parts[part] = value
    return kind(**parts)


_PARTS: dict[type[DataType], tuple[str, ...]] = {
    kind: tuple(part.name for part in dataclasses.fields(kind) if part.name != "nullable")
    for kind in (
        *INTEGERS, Boolean, Float, Double, Decimal, String, Binary, Date, Time, Timestamp, TimestampLtz, *NESTED,
    )
}  # fmt: skip
_BY_NAME: dict[str, type[DataType]] = {kind.name: kind for kind in _PARTS}
