"""Values that come in and go out: JSON, text and Python to physical values and back.

A `ValueCodec` (`stelae/encoding/value_codec.py`) is made once for a type:

    JSON    true 42 1.5 "text" [...] {...}      from_json, to_json      HTTP bodies
    text    42                                  from_text               URLs and the command line
    Python  42 Decimal date datetime bytes      from_python, to_python  the client

                JSON                                   Python
    BOOLEAN     true, false                            bool
    integers    number; BIGINT also "42"               int
    FLOAT       number, "NaN", "Infinity",             float
    DOUBLE      "-Infinity"
    DECIMAL     "12.30", all digits of the scale;      decimal.Decimal
                takes whole numbers, too
    STRING      string                                 str
    BINARY      string of base64                       bytes
    DATE TIME   "2026-11-20", "12:34:56"               datetime.date, time
    TIMESTAMP   "2026-11-20T12:34:56.5"                datetime.datetime, naive
    ..._LTZ     "2026-11-20T12:34:56.5Z"               datetime.datetime, in UTC
    ARRAY       array                                  list
    MAP         object if the key is STRING, else      dict; a list of pairs if keys
                an array of [key, value]               are ARRAY, MAP or ROW
    ROW         object; a field left out is null       dict

What comes in is checked, never bent: no rounding (except of numbers to FLOAT), no bool for an integer, no 1.0 for 1, no
text cut to fit. InvalidRequest says what came, what was expected and where: `tags[3]`, `address.city`. What goes out
never fails in JSON; Python's dates end with the year 9999.

Text is the JSON value without its quotes: integers are ASCII digits with an optional `-`, no `+`, no spaces, no `_`;
base64 may have the letters of URLs, `-_`; ARRAY, MAP and ROW are JSON.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from stelae.encoding.nested_values import array_values, map_values, row_values
from stelae.encoding.number_values import DecimalValues, boolean_values, floating_values, integer_values
from stelae.encoding.temporal_values import temporal_values
from stelae.encoding.text_values import binary_values, string_values
from stelae.encoding.value_codec import ValueCodec
from stelae.schema.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Double,
    Float,
    Integer,
    Map,
    Row,
    String,
    Time,
    Timestamp,
    TimestampLtz,
)

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column


def value_codec(column: Column) -> ValueCodec:
    """The codec of a column's type."""
    return type_codec(column.type)


@lru_cache(4096)
def type_codec(data_type: DataType) -> ValueCodec:
    """The codec of a type, made once."""
    match data_type:
        case Boolean():
            return boolean_values(data_type)
        case Float() | Double():
            return floating_values(data_type)
        case Decimal():
            return DecimalValues(data_type).codec()
        case String():
            return string_values(data_type)
        case Binary():
            return binary_values(data_type)
        case Date() | Time() | Timestamp() | TimestampLtz():
            return temporal_values(data_type)
        case Array():
            return array_values(data_type, type_codec(data_type.element))
        case Map():
            return map_values(data_type, type_codec(data_type.key), type_codec(data_type.value))
        case Row():
            return row_values(data_type, [type_codec(field.type) for field in data_type.fields])
    if isinstance(data_type, Integer):
        return integer_values(data_type)
    raise AssertionError(f"no values of {data_type!r}")
