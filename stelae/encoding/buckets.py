"""The bucket of a row: Spark's `pmod(xxhash64(bucket key columns), bucket count)`, bit for bit.

docs/format.md#buckets is the contract, Spark's XxHash64 (XXH64.java, hash.scala) the source.

    h = 42
    for each bucket key column that is not null:   h = XXH64(bytes of the value, seed = h)
    bucket = h mod bucket count                    h signed, the result never negative

    BOOLEAN (0, 1) TINYINT SMALLINT INT DATE          4 bytes, little-endian
    BIGINT TIME TIMESTAMP TIMESTAMP_LTZ               8 bytes, little-endian
    FLOAT DOUBLE                                      their bits, 4 and 8 bytes; one zero and one NaN
    DECIMAL(p, s), unscaled                           p <= 18: 8 bytes; else the fewest bytes, big-endian
    STRING BINARY                                     UTF-8, bytes

Types matter: INT 5 and BIGINT 5 are in different buckets, so both sides hash values of the table's declared types.
Builds let Spark compute it (`spark_bucket_expression`); whoever looks a key up computes it here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from stelae.encoding.arrow import (
    FIXED_DTYPES,
    MAX_LONG_DIGITS,
    NumpyValues,
    conform,
    fixed_values,
)
from stelae.encoding.errors import CONVERSION_ERRORS
from stelae.encoding.key_columns import normal_floats, plain_bytes, text_bytes
from stelae.encoding.keys import refused_value
from stelae.errors import InvalidRequest
from stelae.schema.types import NESTED, Binary, Boolean, DataType, Decimal, Double, Float, String, quote_name

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

# On storage: rows sit in the bucket that these gave. Never change.
SEED = 42

Hashes: TypeAlias = npt.NDArray[np.uint64]

_SIGN = 1 << 63
_RANGE = 1 << 64


class BucketFunction:
    """Hashes the bucket key of one table.

    `hash` and `bucket` take the physical values of one row, the `_batch` functions Arrow columns; they agree with each
    other and with Spark. A null leaves the hash as it is, as in Spark; KeyCodec says whether a column may be null.
    """

    hash: Callable[[Sequence[Any]], int]
    """Spark's xxhash64 of one row's values: signed, 64 bits."""

    def __init__(self, columns: Sequence[Column]) -> None:
        if not columns:
            raise InvalidRequest("a bucket key needs a column")
        for column in columns:
            if isinstance(column.type, NESTED):
                raise InvalidRequest(
                    f"column {column.name} {column.type.sql_name()} cannot be part of a bucket key",
                    place=column.name,
                    hint="ARRAY, MAP and ROW are for value columns",
                )
        self.columns = tuple(columns)
        self._to_bytes = tuple(_to_bytes(column.type) for column in columns)
        self.hash = self._hasher()

    def __reduce__(self) -> tuple[object, ...]:
        # Closures do not pickle, and Spark sends bucket functions to executors.
        return BucketFunction, (self.columns,)

    def bucket(self, values: Sequence[Any], count: int) -> int:
        """Bucket of one row among `count`."""
        return self.hash(values) % count

    def hash_batch(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """`hash` of many rows. `columns`: one array a bucket key column, of Arrow types that `conform` takes.

        Fixed widths are hashed by numpy; text, bytes and DECIMAL of more than 18 digits in a Python loop.
        """
        if len(columns) != len(self.columns):
            raise InvalidRequest(f"the bucket key has {len(self.columns)} columns, but {len(columns)} were given")
        rows = len(columns[0])
        hashes: Hashes = np.full(rows, SEED, np.uint64)
        for column, values in zip(self.columns, columns, strict=True):
            if len(values) != rows:
                raise InvalidRequest(
                    f"column {column.name} has {len(values)} rows, column {self.columns[0].name} {rows}",
                    place=column.name,
                )
            array = conform(values, column.type, column.name)
            hashed = _hash_column(array, column.type, hashes)
            if array.null_count:
                hashed = np.where(array.is_null().to_numpy(zero_copy_only=False), hashes, hashed)
            hashes = hashed
        return hashes.view(np.int64)

    def bucket_batch(self, columns: Sequence[pa.Array], count: int) -> npt.NDArray[np.int32]:
        """`bucket` of many rows."""
        return np.mod(self.hash_batch(columns), count).astype(np.int32)

    def _hasher(self) -> Callable[[Sequence[Any]], int]:
        digest, refuse, converters = xxh64_intdigest, self._refuse, self._to_bytes

        if len(converters) == 1:
            to_bytes = converters[0]

            def hash_single(values: Sequence[Any]) -> int:
                try:
                    (value,) = values
                    h = SEED if value is None else digest(to_bytes(value), SEED)
                except CONVERSION_ERRORS as exc:
                    refuse(values, exc)
                return h if h < _SIGN else h - _RANGE

            return hash_single

        def hash_values(values: Sequence[Any]) -> int:
            h = SEED
            try:
                for to_bytes, value in zip(converters, values, strict=True):
                    if value is not None:
                        h = digest(to_bytes(value), h)
            except CONVERSION_ERRORS as exc:
                refuse(values, exc)
            return h if h < _SIGN else h - _RANGE

        return hash_values

    def _refuse(self, values: Sequence[Any], exc: Exception) -> NoReturn:
        if len(values) == len(self.columns):
            for column, to_bytes, value in zip(self.columns, self._to_bytes, values, strict=True):
                try:
                    if value is not None:
                        to_bytes(value)
                except CONVERSION_ERRORS as cause:
                    raise refused_value(column, value) from cause
        names = ", ".join(column.name for column in self.columns)
        raise InvalidRequest(f"the bucket key has columns {names}, but {len(values)} values were given") from exc


def spark_bucket_expression(columns: Sequence[Column], count: int | str) -> str:
    """The bucket as Spark SQL computes it, an INT; the DataFrame's columns must have the declared types."""
    names = ", ".join(quote_name(column.name) for column in columns)
    return f"CAST(pmod(xxhash64({names}), {count}) AS INT)"


def _to_bytes(data_type: DataType) -> Callable[[Any], bytes]:
    """What Spark hashes of a physical value."""
    match data_type:
        case String():
            return text_bytes
        case Binary():
            return plain_bytes
        case Boolean():
            return _BOOLEANS.__getitem__
        case Float():
            return _float_bytes(struct.Struct("<f"))
        case Double():
            return _float_bytes(struct.Struct("<d"))
        case Decimal(precision=precision) if precision > MAX_LONG_DIGITS:
            return _shortest_bytes
    width = 8 if isinstance(data_type, Decimal) else FIXED_DTYPES[type(data_type)].itemsize
    if width == 8:
        return struct.Struct("<q").pack
    bound = 1 << (8 * width - 1)
    pack = struct.Struct("<i").pack

    def int_bytes(value: Any) -> bytes:
        if not -bound <= value < bound:
            raise OverflowError
        return pack(value)

    return int_bytes


_BOOLEANS = {False: struct.pack("<i", 0), True: struct.pack("<i", 1)}


def _float_bytes(form: struct.Struct) -> Callable[[Any], bytes]:
    pack = form.pack
    nan = pack(float("nan"))

    def float_bytes(value: Any) -> bytes:
        return pack(value + 0.0) if value == value else nan  # + 0.0 makes 0.0 of -0.0; only NaN is not itself

    return float_bytes


def _shortest_bytes(value: int) -> bytes:
    """Java's BigInteger.toByteArray."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


# Batches: XXH64 of 4 and of 8 bytes, one seed a row. numpy's unsigned arithmetic wraps as XXH64 needs it.

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def _hash_column(array: pa.Array, data_type: DataType, seeds: Hashes) -> Hashes:
    if isinstance(data_type, String | Binary):
        return _hash_loop(_cells(array), seeds)
    if isinstance(data_type, Decimal) and data_type.precision > MAX_LONG_DIGITS:
        halves = fixed_values(array, data_type)
        pairs = zip(halves[:, 0].tolist(), halves[:, 1].view(np.int64).tolist(), strict=True)
        return _hash_loop([_shortest_bytes((high << 64) + low) for low, high in pairs], seeds)
    values = fixed_values(array, data_type)
    if isinstance(data_type, Float | Double):
        values = normal_floats(values)
        values = values.view(np.dtype(f"u{values.itemsize}"))
    if values.itemsize == 8:
        return _hash_8_bytes(values.view(np.uint64), seeds)
    if values.dtype.kind == "i":
        values = values.astype(np.int32).view(np.uint32)
    return _hash_4_bytes(values.astype(np.uint64), seeds)


def _cells(array: pa.Array) -> list[bytes]:
    array = array.cast(pa.binary())
    cells: list[bytes] = (array.fill_null(b"") if array.null_count else array).to_numpy(zero_copy_only=False).tolist()
    return cells


def _hash_loop(cells: list[bytes], seeds: Hashes) -> Hashes:
    return np.fromiter(map(xxh64_intdigest, cells, seeds.tolist()), np.uint64, len(cells))


def _hash_8_bytes(values: NumpyValues, seeds: Hashes) -> Hashes:
    h = seeds + (_PRIME_5 + np.uint64(8))
    h ^= _rotate(values * _PRIME_2, 31) * _PRIME_1
    h = _rotate(h, 27) * _PRIME_1 + _PRIME_4
    return _mix(h)


def _hash_4_bytes(values: NumpyValues, seeds: Hashes) -> Hashes:
    h = seeds + (_PRIME_5 + np.uint64(4))
    h ^= values * _PRIME_1
    h = _rotate(h, 23) * _PRIME_2 + _PRIME_3
    return _mix(h)


def _rotate(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mix(h: Hashes) -> Hashes:
    h ^= h >> np.uint64(33)
    h *= _PRIME_2
    h ^= h >> np.uint64(29)
    h *= _PRIME_3
    h ^= h >> np.uint64(32)
    return h
