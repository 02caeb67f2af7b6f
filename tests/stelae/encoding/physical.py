"""Physical values for tests: strategies, random samples, Arrow arrays of them, and Spark's order."""

from __future__ import annotations

import dataclasses
import decimal
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from stelae.encoding.arrow import arrow_type, fixed_values
from stelae.schema.table_schema import Column
from stelae.schema.types import (
    BigInt,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Double,
    Float,
    Int,
    SmallInt,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
)

KEY_TYPES: dict[str, DataType] = {
    "BOOLEAN": Boolean(),
    "TINYINT": TinyInt(),
    "SMALLINT": SmallInt(),
    "INT": Int(),
    "BIGINT": BigInt(),
    "FLOAT": Float(),
    "DOUBLE": Double(),
    "DECIMAL(9, 2)": Decimal(precision=9, scale=2),
    "DECIMAL(18, 4)": Decimal(precision=18, scale=4),
    "DECIMAL(19, 0)": Decimal(precision=19, scale=0),
    "DECIMAL(38, 10)": Decimal(precision=38, scale=10),
    "STRING": String(),
    "BYTES": Binary(),
    "DATE": Date(),
    "TIME": Time(precision=6),
    "TIMESTAMP": Timestamp(),
    "TIMESTAMP_LTZ": TimestampLtz(),
}
"""Every type that a key column can have."""

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
DAY_US = 86_400_000_000


def key_columns(*types: DataType, nullable: Sequence[bool] = ()) -> tuple[Column, ...]:
    """Columns c0, c1, ... of a key: NOT NULL where `nullable` does not say otherwise, whatever the types say."""
    marks = [*nullable, *[False] * (len(types) - len(nullable))]
    typed = [dataclasses.replace(of, nullable=mark) for of, mark in zip(types, marks, strict=True)]
    return tuple(Column(i, f"c{i}", data_type) for i, data_type in enumerate(typed))


def bounds(data_type: DataType) -> tuple[int, int]:
    """Least and greatest physical value of a type that is stored as an integer."""
    match data_type:
        case Decimal(precision=precision):
            return 1 - 10**precision, 10**precision - 1
        case Date():
            return FIRST_DAY, LAST_DAY
        case Time():
            return 0, 86_400_000_000_000 - 1000
        case Timestamp() | TimestampLtz():
            return FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
        case TinyInt() | SmallInt() | Int() | BigInt():
            return -(1 << (data_type.bits - 1)), (1 << (data_type.bits - 1)) - 1
    raise AssertionError(data_type)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case Boolean():
            return st.booleans()
        case Float():
            return st.floats(width=32)
        case Double():
            return st.floats()
        case String():
            return st.text(st.characters(codec="utf-8"), max_size=12) | st.text("\0\x01a\xff", max_size=6)
        case Binary():
            return st.binary(max_size=12) | st.lists(st.sampled_from([0, 1, 254, 255]), max_size=6).map(bytes)
        case Time():
            return st.integers(0, 86_399_999_999).map(lambda us: us * 1000)
    low, high = bounds(data_type)
    return st.integers(low, high) | st.integers(max(low, -2), 2)


def random_values(rng: random.Random, data_type: DataType, count: int) -> list[Any]:
    """Random values, the extremes and the odd ones among them."""
    match data_type:
        case Boolean():
            return [rng.random() < 0.5 for _ in range(count)]
        case Float() | Double():
            return [_random_float(rng, data_type) for _ in range(count)]
        case String():
            return [_random_text(rng) for _ in range(count)]
        case Binary():
            return [
                rng.choice([rng.randbytes(rng.randrange(70)), bytes(rng.choices(b"\0\1\xff", k=3))])
                for _ in range(count)
            ]
    low, high = bounds(data_type)
    step = 1000 if isinstance(data_type, Time) else 1
    odd = [low, high, 0 if low <= 0 else low, max(low, -1 * step), step]
    values = []
    for _ in range(count):
        match rng.randrange(4):
            case 0:
                values.append(rng.choice(odd))
            case 1:  # all magnitudes
                value = int(math.exp(rng.uniform(0, math.log(high)))) // step * step
                values.append(max(low, value if rng.random() < 0.5 else -value))
            case _:
                values.append(rng.randrange(low // step, high // step + 1) * step)
    return values


def _random_float(rng: random.Random, data_type: DataType) -> float:
    form, bits_form, bits = ("<f", "<I", 32) if isinstance(data_type, Float) else ("<d", "<Q", 64)
    if rng.random() < 0.3:
        tiny = 2.0**-149 if bits == 32 else 5e-324
        return rng.choice([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, tiny, -tiny, 1.0, -1.0])
    value: float
    (value,) = struct.unpack(form, struct.pack(bits_form, rng.getrandbits(bits)))  # NaNs of every payload, too
    return value


def _random_text(rng: random.Random) -> str:
    ranges = [(0, 3), (32, 127), (128, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    low, high = rng.choice(ranges)
    return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(20)))


def arrow_array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """The Arrow array of physical values; None is null."""
    if isinstance(data_type, Decimal):
        exact = decimal.Context(prec=60)
        values = [None if v is None else decimal.Decimal(v).scaleb(-data_type.scale, exact) for v in values]
    elif isinstance(data_type, Float | Double):
        dtype = np.float32 if isinstance(data_type, Float) else np.float64
        nulls = np.array([v is None for v in values], np.bool_)
        return pa.array(np.array([0.0 if v is None else v for v in values], dtype), mask=nulls)
    return pa.array(values, arrow_type(data_type))


def physical_values(array: pa.Array, data_type: DataType) -> list[Any]:
    """The inverse of `arrow_array`."""
    present = iter(_present_values(array.drop_null(), data_type))
    return [next(present) if valid else None for valid in array.is_valid().to_pylist()]


def _present_values(array: pa.Array, data_type: DataType) -> list[Any]:
    match data_type:
        case String() | Binary():
            return list(array.to_pylist())
        case Boolean():
            return [bool(v) for v in fixed_values(array, data_type)]
        case Decimal():
            exact = decimal.Context(prec=60)
            return [int(v.scaleb(data_type.scale, exact)) for v in array.to_pylist()]
    return list(fixed_values(array, data_type).tolist())


def spark_order(value: Any, data_type: DataType) -> Any:
    """What Python compares to sort a column as Spark does: nulls first."""
    return (0,) if value is None else (1, _order_of_present(value, data_type))


def _order_of_present(value: Any, data_type: DataType) -> Any:
    match data_type:
        case String():
            return value.encode()
        case Float() | Double():
            return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def same(value: Any, other: Any) -> bool:
    """Equal as key values: NaN is itself."""
    return bool(value == other) or (value != value and other != other)
