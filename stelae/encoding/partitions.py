"""Values of a partition in three forms: as the manifest and the log print them for JSON, as codecs take them, as Python
has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stelae.encoding.values import value_codec

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column


def partition_from_json(columns: Sequence[Column], values: Sequence[Any]) -> tuple[Any, ...]:
    """As codecs take them. `columns` are the partition columns; InvalidRequest for a value that its column can't have.
    ValueError if there is not one for each.
    """
    return tuple(
        value_codec(column).from_json(value, column.name) for column, value in zip(columns, values, strict=True)
    )


def partition_to_python(columns: Sequence[Column], values: Sequence[Any]) -> tuple[Any, ...]:
    """As Python has them, from JSON."""
    stored = partition_from_json(columns, values)
    return tuple(value_codec(column).to_python(value) for column, value in zip(columns, stored, strict=True))


def partition_from_python(columns: Sequence[Column], values: Sequence[Any]) -> tuple[Any, ...]:
    """As JSON has them, from Python. InvalidRequest for a value that its column can't have."""
    codecs = [(value_codec(column), column.name) for column in columns]
    return tuple(
        codec.to_json(codec.from_python(value, name)) for (codec, name), value in zip(codecs, values, strict=True)
    )
