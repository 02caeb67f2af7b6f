"""How one column enters a key: its bytes for one value, and the words that numpy makes of many.

`stelae/encoding/keys.py` puts columns together and has the table of types; `stelae/encoding/vectorised_keys.py` does so
for many keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stelae.encoding.arrow import FIXED_DTYPES, MAX_LONG_DIGITS, NumpyValues
from stelae.encoding.errors import MalformedError, corrupt_bytes
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.types import NESTED, Binary, Boolean, DataType, Decimal, Double, Float, String

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

# On disk. Never change.
TERMINATOR = b"\x00\x01"
ESCAPED_ZERO = b"\x00\xff"
NULL, PRESENT = b"\x00", b"\x01"
"""In front of the value of a nullable column."""

WRONG_PRESENCE = "a presence byte is neither 00 nor 01"
WRONG_NULL = "a null is followed by a value"


@dataclass(frozen=True, slots=True)
class FixedPart:
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
class TextPart:
    """A column of text or bytes: raw if it is the last, else escaped and terminated."""

    type: DataType
    last: bool
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int], tuple[Any, int]]
    nullable: bool = False


Part: TypeAlias = FixedPart | TextPart


def part_of(column: Column, *, last: bool) -> Part:
    """How a key column enters the key. InvalidRequest for a type that no key can have."""
    part = _present_part(column, last=last)
    if not column.type.nullable:
        return part
    no_text = b"" if last else TERMINATOR
    absent = bytes(part.dtype.itemsize) if isinstance(part, FixedPart) else no_text
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
        raise MalformedError(WRONG_NULL if key.startswith(NULL, position) else WRONG_PRESENCE)

    return encode, decode


def _present_part(column: Column, *, last: bool) -> Part:
    """How values that are not null enter the key."""
    data_type = column.type
    match data_type:
        case String() | Binary():
            to_bytes = text_bytes if isinstance(data_type, String) else plain_bytes
            from_bytes = _bytes_text if isinstance(data_type, String) else bytes
            if last:
                return TextPart(data_type, last, to_bytes, _raw_decoder(from_bytes))
            return TextPart(data_type, last, _escaping_encoder(to_bytes), _escaped_decoder(from_bytes))
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


def _signed(data_type: DataType, physical: np.dtype[Any]) -> FixedPart:
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

    return FixedPart(
        data_type,
        word.newbyteorder(">"),
        encode,
        decode,
        to_words=lambda values: values.view(word) ^ sign,
        from_words=lambda words: (words.astype(word) ^ sign).view(physical),
    )


def _boolean(data_type: DataType) -> FixedPart:
    def encode(value: Any) -> bytes:
        return _BOOLEANS[value]

    def decode(key: bytes, position: int) -> tuple[Any, int]:
        if position >= len(key) or key[position] > 1:
            raise MalformedError("a BOOLEAN is neither 00 nor 01")
        return key[position] == 1, position + 1

    def from_words(words: NumpyValues) -> NumpyValues:
        if len(words) and words.max() > 1:
            row = int(np.argmax(words > 1))
            raise corrupt_key(words[row].tobytes(), "a BOOLEAN is neither 00 nor 01", row)
        return words

    return FixedPart(data_type, np.dtype("u1"), encode, decode, to_words=lambda values: values, from_words=from_words)


def _floating(data_type: DataType, word: np.dtype[Any], form: struct.Struct, bits_form: struct.Struct) -> FixedPart:
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

    return FixedPart(data_type, word.newbyteorder(">"), encode, decode, to_words, from_words)


def _wide_decimal(data_type: DataType) -> FixedPart:
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

    return FixedPart(data_type, np.dtype((">u8", (2,))), encode, decode, to_words, from_words)


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


def corrupt_key(key: bytes, reason: str, row: int | None = None) -> CorruptData:
    """The error for bytes that are no key; `row` is the number of a batch's row."""
    return corrupt_bytes("key", key, reason, row)
