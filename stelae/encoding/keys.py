"""Key codec, version 1: values in, bytes out, and comparing the bytes compares the values.

docs/format.md#keys is the contract.

    | column 1 | column 2 | ... | last column |      the key columns in order; no header, no lengths, big-endian

    BOOLEAN                    1   00 or 01
    TINYINT SMALLINT INT BIGINT    1, 2, 4, 8, sign bit flipped
    FLOAT DOUBLE               4, 8   IEEE 754; sign bit flipped if it was 0, all bits if it was 1; one NaN, one zero
    DECIMAL(p, s)              8 if p <= 18, else 16: the unscaled integer, sign bit flipped
    DATE                       4   days, sign bit flipped
    TIME TIMESTAMP TIMESTAMP_LTZ   8   nanoseconds, microseconds, sign bit flipped
    STRING BINARY              last column: its bytes; earlier: each 00 as 00 FF, then 00 01
    a nullable column          one byte in front: 01 and the value, or 00 and a value of zeros (text: of no bytes)

So the first columns of a key are a prefix of its bytes (prefix lookup is a seek), a scan is in primary-key order, and
that is the order in which Spark sorts these columns: nulls first, UTF-8 bytes unsigned, NaN above all numbers, -0.0
equal to 0.0. Null equals null; a null is as wide as a value, so that columns of fixed width stay one numpy record.

One key is encoded by closures made once for its columns; a batch by numpy and Arrow kernels, without a loop over rows.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import (
    FIXED_DTYPES,
    MAX_BATCH_BYTES,
    MAX_LONG_DIGITS,
    Bytes,
    NumpyValues,
    Offsets,
    arrow_type,
    conform,
    first_null,
    fixed_values,
    from_fixed,
    from_variable,
    variable_values,
)
from stelae.encoding.errors import CONVERSION_ERRORS, MalformedError, corrupt_bytes, shown_value
from stelae.errors import CorruptData, InvalidRequest, TooLarge
from stelae.schema.types import INTEGERS, NESTED, Binary, Boolean, DataType, Decimal, Double, Float, String

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

# On disk. Never change.
TERMINATOR = b"\x00\x01"
ESCAPED_ZERO = b"\x00\xff"
NULL, PRESENT = b"\x00", b"\x01"
"""In front of the value of a nullable column."""


class KeyCodec:
    """Encodes and decodes the keys of one table.

    `encode` and `decode` are for one key, `encode_batch`, `encode_list` and `decode_batch` for Arrow columns; they
    agree byte for byte. A value that its column cannot hold, and a null in a NOT NULL column, raise InvalidRequest
    naming the column; bytes that are no key of these columns raise CorruptData.
    """

    encode: Callable[[Sequence[Any]], bytes]
    """Key of one row, from the physical values of all key columns in order."""

    decode: Callable[[bytes], tuple[Any, ...]]
    """Physical values of all key columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        if not columns:
            raise InvalidRequest("a key needs a column", hint="a primary key has columns besides the partition columns")
        self.columns = tuple(columns)
        last = len(self.columns) - 1
        self._parts = tuple(_part(column, last=i == last) for i, column in enumerate(self.columns))
        self._runs = _runs(self._parts)
        whole = self._runs[0][1]
        self._record = whole if isinstance(whole, _Record) and len(self._runs) == 1 else None
        self.encode = self._encoder()
        self.decode = self._decoder()

    def __reduce__(self) -> tuple[object, ...]:
        # Closures do not pickle, and Spark sends codecs to executors.
        return KeyCodec, (self.columns,)

    @property
    def width(self) -> int | None:
        """Bytes of every key; None where they differ."""
        return self._record.width if self._record else None

    def encode_prefix(self, values: Sequence[Any]) -> bytes:
        """The bytes that all keys with these first values start with, and no others. No values: no bytes."""
        if len(values) >= len(self._parts):
            return self.encode(values)
        try:
            return b"".join([part.encode(value) for part, value in zip(self._parts, values, strict=False)])
        except CONVERSION_ERRORS as exc:
            self._refuse(values, exc)

    def encode_batch(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Keys of many rows, a BinaryArray. `columns`: one array a key column, of Arrow types that `conform` takes."""
        arrays = self._conformed(columns)
        if self._record:
            return _fixed_binary(self._record.pack(arrays))
        return self._joined(arrays)

    def encode_list(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Like `encode_batch`, as a list: what RocksDB takes."""
        arrays = self._conformed(columns)
        keys: list[bytes]
        if self._record:
            keys = self._record.pack(arrays).tolist()
        else:
            keys = self._joined(arrays).to_numpy(zero_copy_only=False).tolist()
        return keys

    def decode_batch(self, keys: pa.Array) -> list[pa.Array]:
        """The columns of many keys, in the Arrow types of `arrow_type`."""
        offsets, data = variable_values(conform(keys, Binary(), "key"))
        if self._record:
            return self._record.unpack(self._record.only(offsets, data))
        cursor = _Cursor(data, starts=offsets[:-1].astype(np.int64), ends=offsets[1:].astype(np.int64))
        arrays = [array for _, run in self._runs for array in run.take(cursor)]
        cursor.check(cursor.starts == cursor.ends, "bytes follow the last column")
        return arrays

    # One key.

    def _encoder(self) -> Callable[[Sequence[Any]], bytes]:
        refuse = self._refuse
        encoders = tuple(part.encode for part in self._parts)
        join, call, count = b"".join, operator.call, len(encoders)

        if len(encoders) == 1:
            encode_value = encoders[0]

            def encode_single(values: Sequence[Any]) -> bytes:
                try:
                    (value,) = values
                    return encode_value(value)
                except CONVERSION_ERRORS as exc:
                    refuse(values, exc)

            return encode_single

        def encode(values: Sequence[Any]) -> bytes:
            if len(values) != count:
                refuse(values, None)
            try:
                return join(map(call, encoders, values))  # 2/3 of a comprehension's time
            except CONVERSION_ERRORS as exc:
                refuse(values, exc)

        return encode

    def _decoder(self) -> Callable[[bytes], tuple[Any, ...]]:
        decoders = tuple(part.decode for part in self._parts)

        def decode(key: bytes) -> tuple[Any, ...]:
            values = []
            position = 0
            try:
                for decode_value in decoders:
                    value, position = decode_value(key, position)
                    values.append(value)
            except struct.error as exc:
                raise _corrupt(key, "it ends within a column") from exc
            except (UnicodeDecodeError, MalformedError) as exc:
                raise _corrupt(key, str(exc)) from exc
            if position != len(key):
                raise _corrupt(key, "bytes follow the last column")
            return tuple(values)

        return decode

    def _refuse(self, values: Sequence[Any], exc: Exception | None) -> NoReturn:
        names = ", ".join(column.name for column in self.columns)
        if len(values) > len(self._parts):
            raise InvalidRequest(f"the key has columns {names}, but {len(values)} values were given") from exc
        for column, part, value in zip(self.columns, self._parts, values, strict=False):
            try:
                part.encode(value)
            except CONVERSION_ERRORS as cause:
                raise refused_value(column, value) from cause
        raise InvalidRequest(f"the key has columns {names}, but {len(values)} values were given") from exc

    # Batches.

    def _conformed(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        if len(columns) != len(self.columns):
            raise InvalidRequest(f"the key has {len(self.columns)} columns, but {len(columns)} were given")
        rows = len(columns[0])
        arrays = []
        for column, values in zip(self.columns, columns, strict=True):
            if len(values) != rows:
                raise InvalidRequest(
                    f"column {column.name} has {len(values)} rows, column {self.columns[0].name} {rows}",
                    place=column.name,
                )
            array = conform(values, column.type, column.name)
            row = None if column.type.nullable else first_null(array)
            if row is not None:
                raise InvalidRequest(
                    f"key column {column.name} is null in row {row}", place=column.name, hint=NULL_HINT
                )
            if isinstance(column.type, String):
                _check_utf8(array, column.name)
            arrays.append(array)
        return arrays

    def _joined(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return _join([piece for columns, run in self._runs for piece in run.pieces(arrays[columns])])


def prefix_end(prefix: bytes) -> bytes | None:
    """The least bytes above everything that starts with `prefix`: the end of a prefix scan. None: there is no end."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


NULL_HINT = "it is NOT NULL, as columns of a primary key are without 'primary-key.nullable'"


def refused_value(column: Column, value: object) -> InvalidRequest:
    """The error for a value that is not a physical value of a key column."""
    if value is None:
        return InvalidRequest(f"key column {column.name} is null", place=column.name, hint=NULL_HINT)
    hint = None
    if isinstance(column.type, INTEGERS):
        bound = 1 << (column.type.bits - 1)
        hint = f"{column.type.name} holds {-bound} to {bound - 1}"
    return InvalidRequest(
        f"{shown_value(value)} is no value of column {column.name} {column.type.sql_name()}",
        place=column.name,
        hint=hint,
    )


class _Cursor:
    """What is left of each key of a batch: `data[starts[row]:ends[row]]`. A part takes its bytes off the start."""

    def __init__(self, data: Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        self.data, self.first, self.starts, self.ends = data, starts, starts, ends

    def check(self, good: npt.NDArray[np.bool_], reason: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            raise _corrupt(self.data[self.first[row] : self.ends[row]].tobytes(), reason, row)

    @cached_property
    def terminators(self) -> npt.NDArray[np.int64]:
        """Where 00 01 stands in `data`, and its end."""
        found = np.flatnonzero((self.data[:-1] == TERMINATOR[0]) & (self.data[1:] == TERMINATOR[1]))
        return np.append(found, len(self.data))

    def take_fixed(self, width: int) -> Bytes:
        """The next `width` bytes of each key, shape (rows, width)."""
        stops = self.starts + width
        self.check(stops <= self.ends, "it ends within a column")
        taken: Bytes = self.data[self.starts[:, None] + np.arange(width)]
        self.starts = stops
        return taken

    def take_escaped(self) -> pa.Array:
        """The next bytes of each key up to its terminator, still escaped."""
        # In escaped bytes FF follows 00, so the first 00 01 is the terminator; those in other columns do no harm.
        stops = self.terminators[np.searchsorted(self.terminators, self.starts)]
        self.check(stops + len(TERMINATOR) <= self.ends, "a terminator is missing")
        taken = self._between(self.starts, stops)
        self.starts = stops + len(TERMINATOR)
        return taken

    def take_rest(self) -> pa.Array:
        taken = self._between(self.starts, self.ends)
        self.starts = self.ends
        return taken

    def _between(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> pa.Array:
        """`data[starts[row]:stops[row]]` of each row. They ascend, so they and the gaps between them are one array."""
        rows = len(starts)
        if rows == 0:
            return pa.array([], pa.binary())
        bounds = np.stack([starts, stops], axis=1).reshape(-1)
        pieces_and_gaps = from_variable(pa.binary(), bounds, self.data)
        return pieces_and_gaps.take(pa.array(np.arange(0, 2 * rows - 1, 2)))


# Parts: how one column enters the key.


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A column of fixed width.

    `to_words` maps numpy's physical values to unsigned words in the same order, `from_words` back; `dtype` is how the
    words stand in the key.
    """

    type: DataType
    dtype: np.dtype[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int], tuple[Any, int]]
    to_words: Callable[[NumpyValues], NumpyValues]
    from_words: Callable[[NumpyValues], NumpyValues]
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """A column of text or bytes: raw if it is the last, else escaped and terminated."""

    type: DataType
    last: bool
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int], tuple[Any, int]]
    nullable: bool = False

    def pieces(self, arrays: Sequence[pa.Array]) -> list[pa.Array | pa.Scalar]:
        array = arrays[0].cast(pa.binary())
        presence = []
        if self.nullable:
            presence = [_fixed_binary(_valid(array).view(np.uint8))]
            array = array.fill_null(b"")
        if self.last:
            return [*presence, array]
        return [*presence, _escape(array), pa.scalar(TERMINATOR, pa.binary())]

    def take(self, cursor: _Cursor) -> list[pa.Array]:
        presence = cursor.take_fixed(1)[:, 0] if self.nullable else None
        taken = cursor.take_rest() if self.last else _unescape(cursor.take_escaped())
        if presence is not None:
            cursor.check(presence <= 1, _WRONG_PRESENCE)
            offsets, _ = variable_values(taken)
            cursor.check((presence == 1) | (np.diff(offsets) == 0), _WRONG_NULL)
            if not presence.all():
                taken = pc.if_else(pa.array(presence == 1), taken, pa.scalar(None, pa.binary()))
        try:
            return [taken.cast(arrow_type(self.type))]
        except pa.ArrowInvalid as exc:
            raise CorruptData(f"keys do not decode: {exc}") from exc


class _Record:
    """Adjacent columns of fixed width: one numpy record a row."""

    def __init__(self, parts: Sequence[_Fixed]) -> None:
        self.parts = {str(i): part for i, part in enumerate(parts)}
        fields: list[tuple[str, np.dtype[Any]]] = []
        for name, part in self.parts.items():
            if part.nullable:
                fields.append((_presence_of(name), np.dtype("u1")))
            fields.append((name, part.dtype))
        self.dtype = np.dtype(fields)
        self.width = self.dtype.itemsize

    def pack(self, arrays: Sequence[pa.Array]) -> NumpyValues:
        records = np.empty(len(arrays[0]), self.dtype)
        for (name, part), array in zip(self.parts.items(), arrays, strict=True):
            records[name] = part.to_words(fixed_values(array, part.type))
            if part.nullable:
                valid = _valid(array)
                records[_presence_of(name)] = valid
                records[name][~valid] = 0
        return records.view(np.dtype((np.void, self.width)))

    def unpack(self, data: Bytes) -> list[pa.Array]:
        records = data.reshape(-1).view(self.dtype)
        return [
            from_fixed(part.type, part.from_words(records[name]), self._valid(records, name) if part.nullable else None)
            for name, part in self.parts.items()
        ]

    def _valid(self, records: NumpyValues, name: str) -> npt.NDArray[np.bool_]:
        """Where a nullable column has a value, as its presence bytes say."""
        presence, words = records[_presence_of(name)], records[name]
        is_zero = (words == 0).reshape(len(words), -1).all(axis=1) if len(words) else presence == 0
        for good, reason in ((presence <= 1, _WRONG_PRESENCE), ((presence == 1) | is_zero, _WRONG_NULL)):
            if not good.all():
                row = int(np.argmin(good))
                raise _corrupt(records[row].tobytes(), reason, row)
        valid: npt.NDArray[np.bool_] = presence == 1
        return valid

    def only(self, offsets: Offsets, data: Bytes) -> Bytes:
        """The bytes of keys that are records and nothing else."""
        wrong = np.diff(offsets) != self.width
        if wrong.any():
            row = int(np.argmax(wrong))
            key = data[offsets[row] : offsets[row + 1]].tobytes()
            raise _corrupt(key, f"it has {len(key)} bytes, not {self.width}", row)
        return data[offsets[0] : offsets[-1]]

    def pieces(self, arrays: Sequence[pa.Array]) -> list[pa.Array | pa.Scalar]:
        return [_fixed_binary(self.pack(arrays))]

    def take(self, cursor: _Cursor) -> list[pa.Array]:
        return self.unpack(cursor.take_fixed(self.width))


def _runs(parts: Sequence[_Fixed | _Text]) -> list[tuple[slice, _Record | _Text]]:
    """The parts with the columns that they cover, adjacent fixed ones as one record."""
    runs: list[tuple[slice, _Record | _Text]] = []
    fixed: list[_Fixed] = []
    for i, part in enumerate(parts):
        if isinstance(part, _Fixed):
            fixed.append(part)
            if i + 1 < len(parts) and isinstance(parts[i + 1], _Fixed):
                continue
            runs.append((slice(i + 1 - len(fixed), i + 1), _Record(fixed)))
            fixed = []
        else:
            runs.append((slice(i, i + 1), part))
    return runs


def _presence_of(name: str) -> str:
    """The field of a record that holds the presence byte of another."""
    return f"{name} is present"


_WRONG_PRESENCE = "a presence byte is neither 00 nor 01"
_WRONG_NULL = "a null is followed by a value"


def _part(column: Column, *, last: bool) -> _Fixed | _Text:
    part = _present_part(column, last=last)
    if not column.type.nullable:
        return part
    no_text = b"" if last else TERMINATOR
    absent = bytes(part.dtype.itemsize) if isinstance(part, _Fixed) else no_text
    encode, decode = _nullable(part.encode, part.decode, absent)
    return replace(part, encode=encode, decode=decode, nullable=True)


def _nullable(
    encode_value: Callable[[Any], bytes], decode_value: Callable[[bytes, int], tuple[Any, int]], absent: bytes
) -> tuple[Callable[[Any], bytes], Callable[[bytes, int], tuple[Any, int]]]:
    """Encoder and decoder with a presence byte in front; `absent` stands in for the value of a null."""
    null = NULL + absent

    def encode(value: Any) -> bytes:
        return null if value is None else PRESENT + encode_value(value)

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        if key.startswith(PRESENT, position):
            return decode_value(key, position + 1)
        if key.startswith(null, position):
            return None, position + len(null)
        if position >= len(key):
            raise MalformedError("it ends within a column")
        raise MalformedError(_WRONG_NULL if key.startswith(NULL, position) else _WRONG_PRESENCE)

    return encode, decode


def _present_part(column: Column, *, last: bool) -> _Fixed | _Text:
    """How values that are not null enter the key."""
    data_type = column.type
    match data_type:
        case String() | Binary():
            to_bytes = text_bytes if isinstance(data_type, String) else plain_bytes
            from_bytes = _bytes_text if isinstance(data_type, String) else bytes
            if last:
                return _Text(data_type, last, to_bytes, _raw_decoder(from_bytes))
            return _Text(data_type, last, _escaping_encoder(to_bytes), _escaped_decoder(from_bytes))
        case Boolean():
            return _boolean(data_type)
        case Float():
            return _floating(data_type, np.dtype("u4"), struct.Struct(">f"), struct.Struct(">I"))
        case Double():
            return _floating(data_type, np.dtype("u8"), struct.Struct(">d"), struct.Struct(">Q"))
        case Decimal(precision=precision) if precision > MAX_LONG_DIGITS:
            return _wide_decimal(data_type)
        case Decimal():
            return _signed(data_type, np.dtype("i8"))
        case _ if isinstance(data_type, NESTED):
            raise InvalidRequest(
                f"column {column.name} {data_type.sql_name()} cannot be part of a key",
                place=column.name,
                hint="ARRAY, MAP and ROW are for value columns",
            )
    return _signed(data_type, FIXED_DTYPES[type(data_type)])


def _signed(data_type: DataType, physical: np.dtype[Any]) -> _Fixed:
    """Integers, and what is stored as one: the sign bit flipped, which is adding half the range."""
    width = physical.itemsize
    word = np.dtype(f"u{width}")
    form = struct.Struct(">" + {1: "B", 2: "H", 4: "I", 8: "Q"}[width])
    bias = 1 << (8 * width - 1)
    sign = word.type(bias)
    pack, unpack_from = form.pack, form.unpack_from

    def encode(value: Any) -> bytes:
        return pack(value + bias)

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        return unpack_from(key, position)[0] - bias, position + width

    return _Fixed(
        data_type,
        word.newbyteorder(">"),
        encode,
        decode,
        to_words=lambda values: values.view(word) ^ sign,
        from_words=lambda words: (words.astype(word) ^ sign).view(physical),
    )


def _boolean(data_type: DataType) -> _Fixed:
    def encode(value: Any) -> bytes:
        return _BOOLEANS[value]

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        if position >= len(key) or key[position] > 1:
            raise MalformedError("a BOOLEAN is neither 00 nor 01")
        return key[position] == 1, position + 1

    def from_words(words: NumpyValues) -> NumpyValues:
        if len(words) and words.max() > 1:
            row = int(np.argmax(words > 1))
            raise _corrupt(words[row].tobytes(), "a BOOLEAN is neither 00 nor 01", row)
        return words

    return _Fixed(data_type, np.dtype("u1"), encode, decode, to_words=lambda values: values, from_words=from_words)


def _floating(data_type: DataType, word: np.dtype[Any], form: struct.Struct, bits_form: struct.Struct) -> _Fixed:
    """IEEE 754 numbers: positive ones sort as their bits, negative ones the other way round and below."""
    width = word.itemsize
    top = 8 * width - 1
    sign, mask = 1 << top, (1 << 8 * width) - 1
    nan = bits_form.pack(bits_form.unpack(form.pack(float("nan")))[0] | sign)
    pack, unpack = form.pack, form.unpack
    pack_bits, bits_from, unpack_bits = bits_form.pack, bits_form.unpack_from, bits_form.unpack
    physical = np.dtype(f"f{width}")

    def encode(value: Any) -> bytes:
        if value != value:  # only NaN is not itself
            return nan
        (bits,) = unpack_bits(pack(value + 0.0))  # + 0.0 makes 0.0 of -0.0
        return pack_bits(bits ^ mask if bits & sign else bits | sign)

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        (bits,) = bits_from(key, position)
        return unpack(pack_bits(bits ^ sign if bits & sign else bits ^ mask))[0], position + width

    def to_words(values: NumpyValues) -> NumpyValues:
        bits: NumpyValues = normal_floats(values).view(word)
        flips: NumpyValues = np.where(bits >> word.type(top), word.type(mask), word.type(sign))
        return bits ^ flips

    def from_words(words: NumpyValues) -> NumpyValues:
        bits: NumpyValues = words.astype(word)
        flips: NumpyValues = np.where(bits >> word.type(top), word.type(sign), word.type(mask))
        return (bits ^ flips).view(physical)

    return _Fixed(data_type, word.newbyteorder(">"), encode, decode, to_words, from_words)


def _wide_decimal(data_type: DataType) -> _Fixed:
    """DECIMAL of more than 18 digits: two's complement of 16 bytes, the sign bit flipped."""
    bias = 1 << 127
    sign = np.uint64(1 << 63)

    def encode(value: Any) -> bytes:
        return int.to_bytes(value + bias, 16, "big")

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        if position + 16 > len(key):
            raise MalformedError("it ends within a column")
        return int.from_bytes(key[position : position + 16], "big") - bias, position + 16

    def to_words(halves: NumpyValues) -> NumpyValues:
        return np.stack([halves[:, 1] ^ sign, halves[:, 0]], axis=1)

    def from_words(words: NumpyValues) -> NumpyValues:
        halves = words.astype(np.uint64)
        return np.stack([halves[:, 1], halves[:, 0] ^ sign], axis=1)

    return _Fixed(data_type, np.dtype((">u8", (2,))), encode, decode, to_words, from_words)


def normal_floats(values: NumpyValues) -> NumpyValues:
    """Floats with one zero and one NaN, as Spark compares and hashes them."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        normal: NumpyValues = values + values.dtype.type(0)  # makes 0.0 of -0.0
    nans = np.isnan(normal)
    if nans.any():
        normal[nans] = np.nan
    return normal


_BOOLEANS = {False: b"\x00", True: b"\x01"}


def text_bytes(value: Any) -> bytes:
    """A STRING value as UTF-8, and nothing that merely looks like text."""
    encoded: bytes = value.encode()
    return encoded


def _bytes_text(value: bytes) -> str:
    return value.decode()


def plain_bytes(value: Any) -> bytes:
    """A BINARY value, and nothing that merely converts to bytes."""
    if not isinstance(value, bytes):
        raise TypeError
    return value


def _raw_decoder(from_bytes: Callable[[bytes], Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    def decode(key: bytes, position: int) -> tuple[Any, int]:
        return from_bytes(key[position:]), len(key)

    return decode


def _escaping_encoder(to_bytes: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        return to_bytes(value).replace(b"\x00", ESCAPED_ZERO) + TERMINATOR

    return encode


def _escaped_decoder(from_bytes: Callable[[bytes], Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    def decode(key: bytes, position: int) -> tuple[Any, int]:
        stop = key.find(TERMINATOR, position)
        if stop < 0:
            raise MalformedError("a terminator is missing")
        escaped = key[position:stop]
        if 0 in escaped:
            if escaped.count(b"\x00") != escaped.count(ESCAPED_ZERO):
                raise MalformedError("00 is not followed by FF")
            escaped = escaped.replace(ESCAPED_ZERO, b"\x00")
        return from_bytes(escaped), stop + len(TERMINATOR)

    return decode


# Bytes of batches.


def _fixed_binary(records: NumpyValues) -> pa.Array:
    """BinaryArray of records, without a copy."""
    rows, width = len(records), records.dtype.itemsize
    return from_variable(pa.binary(), np.arange(rows + 1, dtype=np.int64) * width, records.view(np.uint8))


def _join(pieces: list[pa.Array | pa.Scalar]) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    size = sum(_byte_size(piece) for piece in pieces if isinstance(piece, pa.Array))
    rows = max(len(piece) for piece in pieces if isinstance(piece, pa.Array))
    if size + rows * len(pieces) * len(TERMINATOR) > MAX_BATCH_BYTES:
        raise TooLarge(f"the keys of a batch take {size} bytes", hint="send fewer rows at a time")
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _byte_size(array: pa.Array) -> int:
    offsets, _ = variable_values(array)
    return int(offsets[-1]) - int(offsets[0])


def _escape(array: pa.Array) -> pa.Array:
    """Each 00 becomes 00 FF. Mostly there is none, and nothing is copied."""
    offsets, data = variable_values(array)
    used = data[offsets[0] : offsets[-1]]
    if used.size == 0 or used.min() != 0:
        return array.cast(pa.binary())
    zeros = np.flatnonzero(used == 0)
    starts = offsets.astype(np.int64) - offsets[0]
    return from_variable(pa.binary(), starts + np.searchsorted(zeros, starts), np.insert(used, zeros + 1, 0xFF))


def _unescape(array: pa.Array) -> pa.Array:
    offsets, data = variable_values(array)
    used = data[offsets[0] : offsets[-1]]
    if used.size == 0 or used.min() != 0:
        return array
    starts = offsets.astype(np.int64) - offsets[0]
    zeros = np.flatnonzero(used == 0)
    # The FF must belong to the same row: no row may start right after a 00.
    bad = np.append(used, 0)[zeros + 1] != ESCAPED_ZERO[1]
    bad |= np.isin(zeros + 1, starts)
    if bad.any():
        row = int(np.searchsorted(starts, zeros[np.argmax(bad)], side="right")) - 1
        raise _corrupt(used[starts[row] : starts[row + 1]].tobytes(), "00 is not followed by FF", row)
    return from_variable(pa.binary(), starts - np.searchsorted(zeros, starts), np.delete(used, zeros + 1))


def _check_utf8(array: pa.Array, place: str) -> None:
    """Text of a key must be UTF-8: no request could ever name it otherwise. Spark lets other bytes through."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise InvalidRequest(f"key column {place} holds text that is not UTF-8: {exc}", place=place) from exc


def _corrupt(key: bytes, reason: str, row: int | None = None) -> CorruptData:
    return corrupt_bytes("key", key, reason, row)
