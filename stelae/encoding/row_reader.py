"""Rows of every version of a table's schema, read as rows of one.

Rows are never rewritten when a table is altered: each keeps the id of the schema that it was written with, and is read
by that one's codec (`stelae/encoding/rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import conform
from stelae.encoding.row_decoder import Decoder
from stelae.encoding.row_header import row_headers
from stelae.encoding.rows import CACHED_DECODERS, RowCodec, distinct, past_nulls
from stelae.errors import CorruptData
from stelae.schema.merge_rules import stored_columns
from stelae.schema.types import INTEGERS, Array, Binary, DataType, Decimal, Double, Float, Map, Row

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column, TableSchema


class RowReader:
    """Reads rows of every version of a table's schema as rows of one version, `target`.

    Columns are told by their ids: a column that was renamed keeps its values, one that a row does not have yet is null,
    one that `target` no longer has is left out. The methods are RowCodec's; rows of the target's own id take no detour.
    """

    decode: Callable[[bytes], tuple[Any, ...] | None]
    """The physical values of all value columns of `target`; None if the row is hidden."""

    def __init__(self, schemas: Mapping[int, TableSchema], target: TableSchema) -> None:
        self.schemas = {**schemas, target.id: target}
        self.target = target
        self._codec = RowCodec(target)
        self._codecs = {target.id: self._codec}
        self._decoders = lru_cache(CACHED_DECODERS)(self._decoder)
        self.decode = self.decoder([column.name for column in target.value_columns])

    def __reduce__(self) -> tuple[object, ...]:
        return RowReader, (self.schemas, self.target)

    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], tuple[Any, ...] | None]:
        """A compiled projection: row bytes to the physical values of these columns; None if the row is hidden."""
        return self._decoders(tuple(columns), None)

    def json_decoder(
        self, columns: Sequence[str], names: Sequence[str] | None = None
    ) -> Callable[[bytes], dict[str, Any] | None]:
        """The same to a dict that is ready for JSON: the hot path of HTTP.

        `names` are those of the dict, in order; the columns by default. Others are None, for the caller to fill.
        """
        return self._decoders(tuple(columns), tuple(columns if names is None else names))

    def decode_batch(self, rows: pa.Array, columns: Sequence[str] | None = None) -> list[pa.Array]:
        """Like `RowCodec.decode_batch`, for rows of several schema ids."""
        wanted = self.target.value_columns if columns is None else [self._codec.column(name) for name in columns]
        rows = conform(rows, Binary(), "row")
        heads = self._codec.heads(rows)
        if heads is None:
            return past_nulls(rows, lambda present: self._decode_mixed(present, wanted))
        return self._codec.decode_heads(heads, wanted)

    def _decode_mixed(self, rows: pa.Array, columns: Sequence[Column]) -> list[pa.Array]:
        ids = row_headers(rows)["schema_id"]
        if (ids == self.target.id).all():  # of no rows, too
            return self._codec.decode_columns(rows, columns)
        groups = [np.flatnonzero(ids == schema_id) for schema_id in np.unique(ids)]
        parts = [
            self._codec_of(int(ids[group[0]])).decode_columns(rows.take(pa.array(group)), columns) for group in groups
        ]
        back = pa.array(np.argsort(np.concatenate(groups)))
        return [pa.concat_arrays(arrays).take(back) for arrays in zip(*parts, strict=True)]

    def _decoder(self, columns: tuple[str, ...], json: tuple[str, ...] | None) -> Decoder:
        wanted = distinct([self._codec.column(name) for name in columns])
        others: dict[int, Decoder] = {}

        def other_schema(schema_id: int, row: bytes) -> Any:
            decode = others.get(schema_id)
            if decode is None:
                decode = others[schema_id] = self._codec_of(schema_id).compile(wanted, json)
            return decode(row)

        return self._codec.compile(wanted, json, other_schema)

    def _codec_of(self, schema_id: int) -> RowCodec:
        codec = self._codecs.get(schema_id)
        if codec is None:
            schema = self.schemas.get(schema_id)
            if schema is None:
                known = ", ".join(map(str, sorted(self.schemas)))
                raise CorruptData(
                    f"a row has schema id {schema_id}, which is not known",
                    hint=f"schemas of this table: {known}; a newer one may have to be loaded",
                )
            _check_readable(schema, self.target)
            codec = self._codecs[schema_id] = RowCodec(schema)
        return codec


def _check_readable(old: TableSchema, new: TableSchema) -> None:
    by_id = {column.id: column for column in stored_columns(old)}
    for column in stored_columns(new):
        was = by_id.get(column.id)
        if was is not None and not _holds(column.type, was.type):
            raise CorruptData(
                f"column {column.name} was {was.type.sql_name()} in schema {old.id} and is {column.type.sql_name()} in "
                f"schema {new.id}: its rows cannot be read",
                place=column.name,
            )


def _holds(new: DataType, old: DataType) -> bool:
    """Whether every physical value of the old type is one of the new type, and the same one."""
    if isinstance(new, INTEGERS) and isinstance(old, INTEGERS):
        return new.bits >= old.bits
    if isinstance(new, Double) and isinstance(old, Float):
        return True
    match new, old:
        case Decimal(), Decimal():
            return new.scale == old.scale and new.precision >= old.precision
        case Array(), Array():
            return _holds(new.element, old.element)
        case Map(), Map():
            return _holds(new.key, old.key) and _holds(new.value, old.value)
        case Row(), Row():
            return len(new.fields) == len(old.fields) and all(
                field.name == was.name and _holds(field.type, was.type)
                for field, was in zip(new.fields, old.fields, strict=True)
            )
    return type(new) is type(old)  # lengths and precisions are limits for new values
