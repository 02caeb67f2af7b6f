"""The bytes of ARRAY, MAP and ROW inside a row: cells of cells.

docs/format.md#rows is the contract; `stelae/encoding/plain_fields.py` has the other types, and what a cell is.

    ARRAY           | count u32 | valid u8 a value | run of values |
    MAP             | count u32 | run of keys | valid u8 a value | run of values |
    ROW             | valid u8 a field | fixed fields | length u32 a variable field | variable bytes |

    run             of a fixed type: | cell | cell | ...   of a variable type: | length u32 | ... | bytes | bytes | ...
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import Bytes, NumpyValues, Offsets, arrow_type, from_variable, variable_values
from stelae.encoding.byte_cursor import Cursor, Mask, Positions, bounds_of, join, nulls_of
from stelae.encoding.errors import MalformedError
from stelae.encoding.plain_fields import FIELD_LENGTH, U32, Cell, FixedCell, plain_cell
from stelae.encoding.row_fields import Fields
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.types import Array, DataType, Map, Row


def cell_of(data_type: DataType) -> Cell:
    """How values of a type are stored."""
    match data_type:
        case Array():
            return _ArrayCell(data_type)
        case Map():
            return _MapCell(data_type)
        case Row():
            return _RowCell(data_type)
    return plain_cell(data_type)


class _ArrayCell:
    def __init__(self, data_type: Array) -> None:
        self._type = data_type
        self._items = _Run(data_type.element)

    def dump(self, value: Sequence[Any]) -> bytes:
        return b"".join([U32.pack(len(value)), self._items.dump_valid(value), self._items.dump(value)])

    def load(self, cell: bytes) -> list[Any]:
        (count,) = U32.unpack_from(cell)
        values, end = self._items.load_valid(cell, U32.size, count)
        _check_end(cell, end)
        return values

    def encode(self, array: pa.Array, place: str) -> pa.Array:
        bounds, (items,) = _children(array, [array.values])
        return join([_counts(array, bounds), *self._items.encode_valid(items, bounds, place)])

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        cursor = Cursor.of_cells(offsets, data, valid)
        counts = cursor.take_records(FIELD_LENGTH).astype(np.int64)
        items = self._items.decode_valid(cursor, counts)
        cursor.finish()
        return _list_array(arrow_type(self._type), counts, valid, items)


class _MapCell:
    def __init__(self, data_type: Map) -> None:
        self._type = data_type
        self._keys = _Run(data_type.key)
        self._items = _Run(data_type.value)

    def dump(self, value: Sequence[tuple[Any, Any]]) -> bytes:
        keys = [key for key, _ in value]
        items = [item for _, item in value]
        if None in keys:
            raise TypeError("a map key is null")
        return b"".join(
            [U32.pack(len(keys)), self._keys.dump(keys), self._items.dump_valid(items), self._items.dump(items)]
        )

    def load(self, cell: bytes) -> list[tuple[Any, Any]]:
        (count,) = U32.unpack_from(cell)
        keys, end = self._keys.load(cell, U32.size, count)
        items, end = self._items.load_valid(cell, end, count)
        _check_end(cell, end)
        return list(zip(keys, items, strict=True))

    def encode(self, array: pa.Array, place: str) -> pa.Array:
        bounds, (keys, items) = _children(array, [array.keys, array.items])
        if keys.null_count:
            raise InvalidRequest(f"a map key of column {place} is null", place=place)
        return join(
            [
                _counts(array, bounds),
                *self._keys.encode(keys, bounds, place),
                *self._items.encode_valid(items, bounds, place),
            ]
        )

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        cursor = Cursor.of_cells(offsets, data, valid)
        counts = cursor.take_records(FIELD_LENGTH).astype(np.int64)
        keys = self._keys.decode(cursor, counts, None)
        items = self._items.decode_valid(cursor, counts)
        cursor.finish()
        arrow = arrow_type(self._type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
        return _list_array(arrow, counts, valid, entries)


class _RowCell:
    def __init__(self, data_type: Row) -> None:
        self._type = data_type
        self._count = len(data_type.fields)
        self._fields = Fields(
            [cell_of(field.type) for field in data_type.fields], head=[("valid", np.dtype(("u1", (self._count,))))]
        )
        self._struct = struct.Struct(f"<{self._count}s{self._fields.codes}")

    def dump(self, value: Sequence[Any]) -> bytes:
        if len(value) != self._count:
            raise TypeError(f"{self._count} fields expected")
        for item, field in zip(value, self._type.fields, strict=True):
            if item is None and not field.type.nullable:
                raise TypeError(f"field {field.name} is null")
        words, cells = self._fields.dump(value)
        return b"".join([self._struct.pack(_valid_bytes(value), *words), *cells])

    def load(self, cell: bytes) -> tuple[Any, ...]:
        valid, *words = self._struct.unpack_from(cell)
        _check_valid(valid)
        values, end = self._fields.load(words, valid, cell, self._struct.size)
        _check_end(cell, end)
        return tuple(values)

    def encode(self, array: pa.Array, place: str) -> pa.Array:
        arrays = array.flatten()  # a null row has null fields
        records = np.zeros(len(array), self._fields.dtype)
        for i, (field, values) in enumerate(zip(self._type.fields, arrays, strict=True)):
            if values.null_count > array.null_count and not field.type.nullable:
                raise InvalidRequest(f"field {field.name} of column {place} is null", place=place)
            records["valid"][:, i] = ~nulls_of(values) if values.null_count else 1
        pieces = self._fields.encode(records, arrays, [place] * self._count)
        width = self._fields.dtype.itemsize
        if array.null_count:
            present = ~nulls_of(array)
            head = from_variable(pa.binary(), bounds_of(present * width), _raw(records[present]))
        else:
            head = from_variable(pa.binary(), np.arange(len(array) + 1) * width, _raw(records))
        return join([head, *pieces])

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        cursor = Cursor.of_cells(offsets, data, valid)
        records = cursor.take_records(self._fields.dtype)
        there = records["valid"]
        cursor.check(there.max(axis=1, initial=0) <= 1, "a valid byte is neither 00 nor 01")
        present = [there[:, i] != 0 for i in range(self._count)]
        arrays = self._fields.decode(records, cursor, [None if mask.all() else mask for mask in present])
        arrow = arrow_type(self._type)
        if arrays:
            rows = pa.StructArray.from_arrays(arrays, fields=list(arrow))
        else:
            rows = pa.Array.from_buffers(arrow, len(records), [None])
        if valid is None:
            return rows
        return rows.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


class _Run:
    """Values of one type, one after the other: those of an ARRAY, the keys and the values of a MAP."""

    def __init__(self, data_type: DataType) -> None:
        self._nullable = data_type.nullable
        self._cell = cell_of(data_type)

    # One cell.

    def dump_valid(self, values: Sequence[Any]) -> bytes:
        if not self._nullable and None in values:
            raise TypeError("a value is null")
        return _valid_bytes(values)

    def dump(self, values: Sequence[Any]) -> bytes:
        cell = self._cell
        if isinstance(cell, FixedCell):
            return struct.pack(cell.codes(len(values)), *cell.words(values))
        cells = [b"" if value is None else cell.dump(value) for value in values]
        return b"".join([struct.pack(f"<{len(cells)}I", *map(len, cells)), *cells])

    def load_valid(self, cell: bytes, start: int, count: int) -> tuple[list[Any], int]:
        """The valid bytes, then the run."""
        stop = start + count
        valid = cell[start:stop]
        if len(valid) != count:
            raise MalformedError("a cell ends within its valid bytes")
        _check_valid(valid)
        return self.load(cell, stop, count, valid)

    def load(self, cell: bytes, start: int, count: int, valid: bytes | None = None) -> tuple[list[Any], int]:
        kind = self._cell
        values: list[Any]
        if isinstance(kind, FixedCell):
            end = start + count * kind.width
            if end > len(cell):
                raise MalformedError("a cell ends within its values")
            values = list(struct.unpack_from(kind.codes(count), cell, start))
            if kind.from_word:
                values = [kind.from_word(word) for word in values]
            if valid is not None and 0 in valid:
                values = [value if there else None for value, there in zip(values, valid, strict=True)]
            return values, end
        end = start + count * U32.size
        if end > len(cell):
            raise MalformedError("a cell ends within its lengths")
        values = []
        for i, length in enumerate(struct.unpack_from(f"<{count}I", cell, start)):
            start, end = end, end + length
            values.append(None if valid is not None and not valid[i] else kind.load(cell[start:end]))
        return values, end

    # Many.

    def encode_valid(self, values: pa.Array, bounds: Positions, place: str) -> list[pa.Array]:
        """The valid bytes, then the run."""
        if values.null_count and not self._nullable:
            raise InvalidRequest(f"a value within column {place} is null", place=place)
        valid = ~nulls_of(values) if values.null_count else np.ones(len(values), np.bool_)
        return [from_variable(pa.binary(), bounds, valid.view(np.uint8)), *self.encode(values, bounds, place)]

    def encode(self, values: pa.Array, bounds: Positions, place: str) -> list[pa.Array]:
        """What each cell holds of `values`, its own from `bounds[i]` to `bounds[i + 1]`: BinaryArrays to be joined."""
        if isinstance(self._cell, FixedCell):
            return [from_variable(pa.binary(), bounds * self._cell.width, _raw(self._cell.encode(values)))]
        offsets, data = variable_values(self._cell.encode(values, place))
        lengths = _raw(np.diff(offsets).astype(FIELD_LENGTH))
        return [
            from_variable(pa.binary(), bounds * U32.size, lengths),
            from_variable(pa.binary(), offsets[bounds], data),
        ]

    def decode_valid(self, cursor: Cursor, counts: Positions) -> pa.Array:
        valid = cursor.take(counts)
        if valid.size and valid.max() > 1:
            raise CorruptData("a row does not decode: a valid byte is neither 00 nor 01")
        return self.decode(cursor, counts, None if valid.all() else valid != 0)

    def decode(self, cursor: Cursor, counts: Positions, valid: Mask | None) -> pa.Array:
        cell = self._cell
        if isinstance(cell, FixedCell):
            return cell.decode(_viewed(cursor.take(counts * cell.width), cell.dtype), valid)
        offsets = bounds_of(cursor.take(counts * U32.size).view(FIELD_LENGTH))
        return cell.decode(offsets, cursor.take(np.diff(offsets[bounds_of(counts)])), valid)


def _children(array: pa.Array, children: Sequence[pa.Array]) -> tuple[Positions, list[pa.Array]]:
    """The values of all lists of an array, and where those of each list start and end in them."""
    if not len(array):
        return np.zeros(1, np.int64), [child.slice(0, 0) for child in children]
    offsets = array.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    if array.null_count:
        counts[nulls_of(array)] = 0
    bounds = bounds_of(counts)
    total = int(bounds[-1])
    if total == int(offsets[-1] - offsets[0]):
        return bounds, [child.slice(int(offsets[0]), total) for child in children]
    # Some null has values under it.
    indexes = pa.array(np.repeat(offsets[:-1] - bounds[:-1], counts) + np.arange(total))
    return bounds, [child.take(indexes) for child in children]


def _counts(array: pa.Array, bounds: Positions) -> pa.Array:
    """The first bytes of ARRAY and MAP cells: their count; a null has none."""
    counts = np.diff(bounds).astype(FIELD_LENGTH)
    if not array.null_count:
        return from_variable(pa.binary(), np.arange(len(array) + 1) * U32.size, _raw(counts))
    present = ~nulls_of(array)
    return from_variable(pa.binary(), bounds_of(present * U32.size), _raw(counts[present]))


def _list_array(arrow: pa.DataType, counts: Positions, valid: Mask | None, values: pa.Array) -> pa.Array:
    """The ARRAY or MAP array of lists that are `counts` long; `counts` leaves nulls out."""
    bitmap = None
    if valid is not None:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
        all_counts = np.zeros(len(valid), np.int64)
        all_counts[valid] = counts
        counts = all_counts
    offsets = pa.py_buffer(bounds_of(counts).astype(np.int32))
    return pa.Array.from_buffers(arrow, len(counts), [bitmap, offsets], children=[values])


def _raw(values: NumpyValues) -> Bytes:
    raw: Bytes = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return raw


def _viewed(data: Bytes, dtype: np.dtype[Any]) -> NumpyValues:
    """`data` as values of that dtype, which may have a shape of its own."""
    return np.require(data.view(dtype.base).reshape(-1, *dtype.shape), requirements="A")


def _valid_bytes(values: Sequence[Any]) -> bytes:
    return bytes([value is not None for value in values])


def _check_valid(valid: bytes) -> None:
    if valid.count(0) + valid.count(1) != len(valid):
        raise MalformedError("a valid byte is neither 00 nor 01")


def _check_end(cell: bytes, end: int) -> None:
    if end != len(cell):
        _bad_end(cell, end)


def _bad_end(cell: bytes, end: int) -> NoReturn:
    raise MalformedError(f"a cell has {len(cell)} bytes, its contents {end}")
