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

One key is encoded by closures made once for its columns (`stelae/encoding/key_columns.py`); a batch by numpy and Arrow
kernels, without a loop over rows (`stelae/encoding/vectorised_keys.py`).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import conform, first_null, variable_values
from stelae.encoding.errors import CONVERSION_ERRORS, MalformedError, shown_value
from stelae.encoding.key_columns import corrupt_key, part_of
from stelae.encoding.vectorised_keys import FixedRun, KeyCursor, fixed_binary, joined, runs_of
from stelae.errors import InvalidRequest
from stelae.schema.types import INTEGERS, Binary, String

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

KeyBytes = bytes
"""An encoded key, as in the sorted files."""


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
        self._parts = tuple(part_of(column, last=i == last) for i, column in enumerate(self.columns))
        self._runs = runs_of(self._parts)
        whole = self._runs[0][1]
        self._record = whole if isinstance(whole, FixedRun) and len(self._runs) == 1 else None
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
            return fixed_binary(self._record.pack(arrays))
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
        cursor = KeyCursor(data, starts=offsets[:-1].astype(np.int64), ends=offsets[1:].astype(np.int64))
        arrays = [array for _, run in self._runs for array in run.take(cursor)]
        cursor.finish()
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
                raise corrupt_key(key, "it ends within a column") from exc
            except (UnicodeDecodeError, MalformedError) as exc:
                raise corrupt_key(key, str(exc)) from exc
            if position != len(key):
                raise corrupt_key(key, "bytes follow the last column")
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
        return joined([piece for columns, run in self._runs for piece in run.pieces(arrays[columns])])


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


def _check_utf8(array: pa.Array, place: str) -> None:
    """Text of a key must be UTF-8: no request could ever name it otherwise. Spark lets other bytes through."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise InvalidRequest(f"key column {place} holds text that is not UTF-8: {exc}", place=place) from exc
