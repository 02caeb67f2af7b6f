"""The bytes of one value inside a row, of a type that is not nested: the cells of which rows are made.

docs/format.md#rows is the contract. All numbers are little-endian.

    BOOLEAN 1 · TINYINT 1 · SMALLINT 2 · INT 4 · BIGINT 8 · FLOAT 4 · DOUBLE 8 · DATE 4 · TIME 8 · TIMESTAMP(_LTZ) 8
    DECIMAL(p, s)   8 if p <= 18, else 16: the unscaled integer, two's complement
    STRING BINARY   UTF-8, or the bytes themselves; the length stands outside of the cell

A null value is zero bytes of its width, or length 0. A NaN is the one quiet positive NaN; -0.0 stays. So the same value
always has the same bytes.

Every cell type has two halves that agree byte for byte: `dump` and `load` take one physical value, `encode` and
`decode` an Arrow array, by numpy and Arrow kernels at any depth, without a loop over values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import (
    FIXED_DTYPES,
    MAX_LONG_DIGITS,
    Bytes,
    NumpyValues,
    Offsets,
    arrow_type,
    fixed_values,
    from_fixed,
    from_variable,
    is_ascii,
)
from stelae.encoding.byte_cursor import Mask, Positions, nulls_of
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.types import Binary, Boolean, DataType, Decimal, Double, Float, String

U32 = struct.Struct("<I")  # On disk. Never change.
FIELD_LENGTH = np.dtype("<u4")  # On disk. Never change.
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class FixedCell:
    """A type of fixed width. A word is what struct packs and unpacks; without a conversion it is the value."""

    type: DataType
    code: str
    """struct's letter."""
    dtype: np.dtype[Any]
    to_word: Callable[[Any], Any] | None = None
    from_word: Callable[[Any], Any] | None = None
    zero: Any = 0
    """The word of a null."""

    @property
    def width(self) -> int:
        return self.dtype.itemsize

    def codes(self, count: int) -> str:
        """struct's format of that many."""
        return "<" + (f"{count}{self.code}" if len(self.code) == 1 else self.code * count)

    def words(self, values: Iterable[Any]) -> list[Any]:
        """The words of physical values; None is null."""
        to_word, zero = self.to_word, self.zero
        if to_word is None:
            return [zero if value is None else value for value in values]
        return [zero if value is None else to_word(value) for value in values]

    def encode(self, array: pa.Array) -> NumpyValues:
        """numpy's view of a conformed array, as stored."""
        values = fixed_values(array, self.type)
        if array.null_count:
            null = nulls_of(array)
            values = values.copy()
            values[null] = 0
        if values.dtype.kind == "f":
            nan = np.isnan(values)
            if nan.any():
                values = np.where(nan, values.dtype.type(NAN), values)
        return values

    def decode(self, values: NumpyValues, valid: Mask | None) -> pa.Array:
        return from_fixed(self.type, values, valid)


class VariableCell(Protocol):
    """A type without a fixed width."""

    def dump(self, value: Any) -> bytes:
        """The cell of a physical value that is not null."""

    def load(self, cell: bytes) -> Any:
        """The physical value; MalformedError or another of CONVERSION_ERRORS if the bytes are no cell."""

    def encode(self, array: pa.Array, place: str) -> pa.Array:
        """BinaryArray of the cells of a conformed array, without nulls: a null has length 0."""

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        """The array of the cells `data[offsets[i]:offsets[i + 1]]`; CorruptData if they are none."""


Cell: TypeAlias = FixedCell | VariableCell


def plain_cell(data_type: DataType) -> Cell:
    """How values of a type that is not nested are stored."""
    match data_type:
        case Boolean():
            return FixedCell(data_type, "?", FIXED_DTYPES[Boolean], to_word=_boolean_word)
        case Float() | Double():
            code = "f" if isinstance(data_type, Float) else "d"
            return FixedCell(data_type, code, FIXED_DTYPES[type(data_type)], to_word=_one_nan, zero=0.0)
        case Decimal(precision=precision) if precision > MAX_LONG_DIGITS:
            halves = np.dtype(("<u8", (2,)))
            return FixedCell(data_type, "16s", halves, to_word=_wide_word, from_word=_wide_value, zero=bytes(16))
        case Decimal():
            return FixedCell(data_type, "q", np.dtype("<i8"))
        case String():
            return _StringCell(data_type)
        case Binary():
            return _BinaryCell(data_type)
    dtype = FIXED_DTYPES[type(data_type)]
    return FixedCell(data_type, {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize], dtype)


def _boolean_word(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise TypeError("not a boolean")


def _one_nan(value: Any) -> Any:
    return value if value == value else NAN  # only NaN is not itself


def _wide_word(value: int) -> bytes:
    return value.to_bytes(16, "little", signed=True)


def _wide_value(word: bytes) -> int:
    return int.from_bytes(word, "little", signed=True)


class _StringCell:
    def __init__(self, data_type: String) -> None:
        self._arrow = arrow_type(data_type)

    load = staticmethod(bytes.decode)

    def dump(self, value: Any) -> bytes:
        cell: bytes = value.encode()
        return cell

    def encode(self, array: pa.Array, place: str) -> pa.Array:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as exc:
            raise InvalidRequest(
                f"column {place} holds text that is not UTF-8: {exc}",
                place=place,
                hint="Spark lets any bytes through a STRING; declare the column BYTES to keep them",
            ) from exc
        return (array.fill_null("") if array.null_count else array).cast(pa.binary())

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        text = from_variable(self._arrow, offsets, data, valid)
        if not is_ascii(data[offsets[0] : offsets[-1]]):
            try:
                text.validate(full=True)
            except pa.ArrowInvalid as exc:
                raise CorruptData(f"a STRING in a row is not UTF-8: {exc}") from exc
        return text


class _BinaryCell:
    def __init__(self, data_type: Binary) -> None:
        self._arrow = arrow_type(data_type)

    load = staticmethod(bytes)

    def dump(self, value: Any) -> bytes:
        if not isinstance(value, bytes):  # bytes(3) and bytes([1]) would not fail
            raise TypeError("not bytes")
        return value

    def encode(self, array: pa.Array, place: str) -> pa.Array:  # noqa: ARG002 - any bytes do
        return array.fill_null(b"") if array.null_count else array

    def decode(self, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> pa.Array:
        return from_variable(self._arrow, offsets, data, valid)
