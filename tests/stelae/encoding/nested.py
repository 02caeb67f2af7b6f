"""Types of columns, nested ones too, and their physical values: strategies, Arrow arrays of them and back."""

from __future__ import annotations

import dataclasses
import decimal
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from stelae.encoding.arrow import arrow_type
from stelae.schema.options import TableOptions
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import Array, BigInt, DataType, Decimal, Field, Map, Row
from tests.stelae.encoding.physical import KEY_TYPES, physical_values
from tests.stelae.encoding.physical import values_of as plain_values_of


def with_nullable(data_type: DataType, nullable: bool) -> DataType:
    return dataclasses.replace(data_type, nullable=nullable)


PLAIN_TYPES = st.builds(with_nullable, st.sampled_from(list(KEY_TYPES.values())), st.booleans())


def _nested_types(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    keys = inner.map(lambda data_type: with_nullable(data_type, False))
    fields = st.lists(inner, min_size=1, max_size=4).map(
        lambda types: tuple(Field(f"f{i}", data_type) for i, data_type in enumerate(types))
    )
    return (
        st.builds(Array, nullable=st.booleans(), element=inner)
        | st.builds(Map, nullable=st.booleans(), key=keys, value=inner)
        | st.builds(Row, nullable=st.booleans(), fields=fields)
    )


TYPES = st.recursive(PLAIN_TYPES, _nested_types, max_leaves=5)
"""Types of value columns."""


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Physical values; None, too, if the type is nullable."""
    match data_type:
        case Array(element=element):
            values: st.SearchStrategy[Any] = st.lists(values_of(element), max_size=3)
        case Map(key=key, value=value):
            pairs = st.tuples(values_of(key), values_of(value))
            values = st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))
        case Row(fields=fields):
            values = st.tuples(*[values_of(field.type) for field in fields])
        case _:
            values = plain_values_of(data_type)
    return st.none() | values if data_type.nullable else values


def arrow_array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """The Arrow array of physical values."""
    return pa.array([_for_arrow(value, data_type) for value in values], arrow_type(data_type))


def _for_arrow(value: Any, data_type: DataType) -> Any:
    if value is None:
        return None
    match data_type:
        case Decimal(scale=scale):
            return decimal.Decimal(value).scaleb(-scale, decimal.Context(prec=60))
        case Array(element=element):
            return [_for_arrow(item, element) for item in value]
        case Map(key=key, value=content):
            return [(_for_arrow(k, key), _for_arrow(v, content)) for k, v in value]
        case Row(fields=fields):
            return {f.name: _for_arrow(item, f.type) for f, item in zip(fields, value, strict=True)}
    return value


def physical(array: pa.Array, data_type: DataType) -> list[Any]:
    """The inverse of `arrow_array`."""
    there = array.is_valid().to_pylist()
    values: list[Any]
    match data_type:
        case Array(element=element):
            ends = array.offsets.to_pylist()
            items = physical(array.values, element)
            values = [items[start:end] for start, end in itertools.pairwise(ends)]
        case Map(key=key, value=value):
            ends = array.offsets.to_pylist()
            pairs = list(zip(physical(array.keys, key), physical(array.items, value), strict=True))
            values = [pairs[start:end] for start, end in itertools.pairwise(ends)]
        case Row(fields=fields):
            columns = [physical(array.field(i), field.type) for i, field in enumerate(fields)]
            values = list(zip(*columns, strict=True))
        case _:
            present = iter(physical_values(array.drop_null(), data_type))
            return [next(present) if valid else None for valid in there]
    return [value if valid else None for value, valid in zip(values, there, strict=True)]


def same(value: Any, other: Any) -> bool:
    """Equal, where NaN is itself and the zeros are two."""
    if type(value) is not type(other):
        return False
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, float):
        if math.isnan(value):
            return math.isnan(other)
        return value == other and math.copysign(1, value) == math.copysign(1, other)
    return bool(value == other)


def schema_of(*types: DataType, schema_id: int = 3) -> TableSchema:
    """A table with key column `id` and value columns `v0`, `v1`, ..."""
    columns = [Column(0, "id", BigInt(nullable=False))]
    columns += [Column(i + 1, f"v{i}", data_type) for i, data_type in enumerate(types)]
    return TableSchema(schema_id, tuple(columns), ("id",), (), TableOptions())
