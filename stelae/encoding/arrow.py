"""Arrow: the type of each column, and numpy's view of its values.

Batches come from Spark, clients and files; a batch codec takes them in three steps, none of which loops over rows:

    array = conform(array, column.type, column.name)     the one Arrow type that the column has, or InvalidRequest
    values = fixed_values(array, column.type)            numpy view of BOOLEAN, numbers, dates, times: physical values
    offsets, data = variable_values(array)               numpy views of STRING, BINARY

and back with `from_fixed` and `from_variable`. Sliced arrays work everywhere; values under a null are whatever the
buffer holds, so ask the array for its nulls first.

    BOOLEAN bool · TINYINT..BIGINT int8..int64 · FLOAT float · DOUBLE double · DECIMAL decimal128 · STRING string
    BINARY binary · DATE date32 · TIME time64[ns] · TIMESTAMP timestamp[us] · TIMESTAMP_LTZ timestamp[us, tz=UTC]
    ARRAY list · MAP map · ROW struct

These are the types that Spark gives and asks for (a scan must match them exactly, nullability included).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.errors import InvalidRequest, TooLarge
from stelae.schema.types import (
    Array,
    BigInt,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Double,
    Float,
    Int,
    Map,
    Row,
    SmallInt,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
)

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

NumpyValues: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

MAX_LONG_DIGITS = 18
"""Digits of a DECIMAL that 8 bytes hold; more take 16. Spark's own limit, so hashes depend on it."""

MAX_BATCH_BYTES = 2**31 - 1
"""Bytes of one variable column of a batch: Arrow's 32-bit offsets."""


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a column type."""
    match data_type:
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Array(element=element):
            return pa.list_(_field("element", element))
        case Map(key=key, value=value):
            return pa.map_(arrow_type(key), _field("value", value))
        case Row(fields=fields):
            return pa.struct([_field(field.name, field.type) for field in fields])
    return _SIMPLE[type(data_type)]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of these columns; `NOT NULL` becomes `nullable=False`."""
    return pa.schema([_field(column.name, column.type) for column in columns])


def _field(name: str, data_type: DataType) -> pa.Field:
    return pa.field(name, arrow_type(data_type), nullable=data_type.nullable)


def conform(array: pa.Array, data_type: DataType, place: str) -> pa.Array:
    """The array in the Arrow type of `data_type`, without a copy if it has it already. A cast one is nullable inside:
    the codec of a row knows which nulls within a ROW are its own, and refuses those.

    Takes what means the same: other widths of integers, other units and zones of time, large and view layouts,
    dictionaries, binary for STRING if it is UTF-8; doubles are rounded to FLOAT. A value that does not fit (out of
    range, more digits) and a type that means something else raise InvalidRequest naming `place`, the column. An instant
    is never taken for a wall clock, nor the other way round.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    wanted = arrow_type(data_type)
    if array.type.equals(wanted):
        return array
    if not (
        (_ACCEPTS[type(data_type)](array.type) and _same_fields(array.type, data_type)) or pa.types.is_null(array.type)
    ):
        raise InvalidRequest(
            f"column {place} is {data_type.sql_name()}, but its values are of Arrow type {array.type}",
            place=place,
            hint=f"send {wanted}",
        )
    try:
        # A null ROW has null fields, NOT NULL or not, which a cast to `wanted` would refuse.
        cast = array.cast(_nullable(wanted))
        if isinstance(data_type, Float) and not pc.is_inf(cast).equals(pc.is_inf(array)):
            raise pa.ArrowInvalid("a value is out of the range of FLOAT")
        return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise InvalidRequest(
            f"values of Arrow type {array.type} do not fit column {place} {data_type.sql_name()}: {exc}", place=place
        ) from exc


def _nullable(arrow: pa.DataType) -> pa.DataType:
    """The type without NOT NULL inside."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(pa.field(arrow.value_field.name, _nullable(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(_nullable(arrow.key_type), _nullable(arrow.item_type))
    return arrow


def _same_fields(arrow: pa.DataType, data_type: DataType) -> bool:
    """Whether ROWs have the fields that they should, at every depth: a cast would fill missing ones with null."""
    match data_type:
        case Row(fields=fields):
            return (
                pa.types.is_struct(arrow)
                and {field.name for field in arrow} == {field.name for field in fields}
                and all(_same_fields(arrow.field(field.name).type, field.type) for field in fields)
            )
        case Map(key=key, value=value):
            return not pa.types.is_map(arrow) or (
                _same_fields(arrow.key_type, key) and _same_fields(arrow.item_type, value)
            )
        case Array(element=element):
            return not hasattr(arrow, "value_type") or _same_fields(arrow.value_type, element)
        case _:
            return True


def fixed_values(array: pa.Array, data_type: DataType) -> NumpyValues:
    """The physical values of a conformed array of fixed width, one a row, mostly without a copy.

    BOOLEAN uint8 of 0 and 1 · integers, FLOAT, DOUBLE their own dtype · DATE int32 · TIME, TIMESTAMP(_LTZ) int64 ·
    DECIMAL up to 18 digits int64, above uint64 of shape (rows, 2): the low and the high half of the two's complement.
    """
    rows, first, buffer = len(array), array.offset, array.buffers()[1]
    if isinstance(data_type, Boolean):
        bits = _bytes_of(buffer)[first // 8 : (first + rows + 7) // 8]
        return np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + rows]
    if isinstance(data_type, Decimal):
        halves = _bytes_of(buffer)[16 * first : 16 * (first + rows)].view("<u8").reshape(rows, 2)
        return halves[:, 0].view("<i8") if data_type.precision <= MAX_LONG_DIGITS else halves
    dtype = FIXED_DTYPES[type(data_type)]
    values: NumpyValues = _bytes_of(buffer)[dtype.itemsize * first : dtype.itemsize * (first + rows)].view(dtype)
    return values


def variable_values(array: pa.Array) -> tuple[Offsets, Bytes]:
    """Of a conformed string or binary array: ascending offsets, one more than rows, and the bytes they point into."""
    rows, first = len(array), array.offset
    _, offsets, data = array.buffers()
    if rows == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    return _bytes_of(offsets)[4 * first : 4 * (first + rows + 1)].view(np.int32), _bytes_of(data)


def from_fixed(data_type: DataType, values: NumpyValues, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The array that `fixed_values` takes apart; `valid` is False where a value is null."""
    rows = len(values)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if isinstance(data_type, Boolean):
        values = np.packbits(values.astype(np.bool_, copy=False), bitorder="little")
    elif isinstance(data_type, Decimal) and values.ndim == 1:
        low = values.astype("<i8", copy=False)
        values = np.stack([low, low >> 63], axis=1)  # sign extension to 16 bytes
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(arrow_type(data_type), rows, [nulls, buffer])


def from_variable(
    arrow: pa.DataType, offsets: npt.NDArray[Any], data: Bytes, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """The array of type `arrow` (string or binary) that `variable_values` takes apart."""
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if len(offsets) > 1 and int(offsets[-1]) > MAX_BATCH_BYTES:
        raise TooLarge(f"a batch holds {int(offsets[-1])} bytes in one column", hint="send fewer rows at a time")
    buffers = [nulls, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow, len(offsets) - 1, buffers)


def is_ascii(data: Bytes) -> bool:
    """Whether all bytes are ASCII, which is UTF-8 wherever it is cut: looked at in a tenth of a check's time."""
    return not data.size or int(data.max()) < 0x80


def first_null(array: pa.Array) -> int | None:
    """The first row that is null."""
    if array.null_count == 0:
        return None
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


FIXED_DTYPES: dict[type[DataType], np.dtype[Any]] = {
    Boolean: np.dtype("u1"),
    TinyInt: np.dtype("i1"),
    SmallInt: np.dtype("<i2"),
    Int: np.dtype("<i4"),
    BigInt: np.dtype("<i8"),
    Float: np.dtype("<f4"),
    Double: np.dtype("<f8"),
    Date: np.dtype("<i4"),
    Time: np.dtype("<i8"),
    Timestamp: np.dtype("<i8"),
    TimestampLtz: np.dtype("<i8"),
}
"""numpy's view of a physical value; DECIMAL depends on its precision and is not here."""

_SIMPLE: dict[type[DataType], pa.DataType] = {
    Boolean: pa.bool_(),
    TinyInt: pa.int8(),
    SmallInt: pa.int16(),
    Int: pa.int32(),
    BigInt: pa.int64(),
    Float: pa.float32(),
    Double: pa.float64(),
    String: pa.string(),
    Binary: pa.binary(),
    Date: pa.date32(),
    Time: pa.time64("ns"),
    Timestamp: pa.timestamp("us"),
    TimestampLtz: pa.timestamp("us", tz="UTC"),
}


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))


def _is_bytes(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )


def _is_wall_clock(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(arrow)) and arrow.tz is None


def _is_instant(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(arrow)) and arrow.tz is not None


_ACCEPTS: dict[type[DataType], Callable[[pa.DataType], bool]] = {
    Boolean: pa.types.is_boolean,
    **dict.fromkeys((TinyInt, SmallInt, Int, BigInt), pa.types.is_integer),
    Float: pa.types.is_floating,
    Double: pa.types.is_floating,
    Decimal: pa.types.is_decimal,
    String: lambda arrow: _is_text(arrow) or _is_bytes(arrow),
    Binary: _is_bytes,
    Date: pa.types.is_date,
    Time: pa.types.is_time,
    Timestamp: _is_wall_clock,
    TimestampLtz: _is_instant,
    Array: lambda arrow: pa.types.is_list(arrow) or pa.types.is_large_list(arrow),
    Map: pa.types.is_map,
    Row: pa.types.is_struct,
}


def _bytes_of(buffer: pa.Buffer | None) -> Bytes:
    return np.zeros(0, np.uint8) if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)
