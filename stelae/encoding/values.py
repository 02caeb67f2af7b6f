"""Values at the doors: JSON, text and Python to physical values and back.

A `ValueCodec` is made once for a type; its functions are plain closures for the hot path:

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

import base64
import binascii
import decimal
import math
import numbers
import operator
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import orjson

from stelae.encoding import temporal
from stelae.errors import InvalidRequest
from stelae.schema.types import (
    NESTED,
    Array,
    BigInt,
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

In: TypeAlias = Callable[[Any, str], Any]
Out: TypeAlias = Callable[[Any], Any]

MAX_INTEGER_DIGITS = 40
"""Characters of an integer or decimal as text; leading zeros count. Python's int() takes quadratic time."""

INT32_BOUND = 1 << 31
INT64_BOUND = 1 << 63

SHOWN_CHARACTERS = 60
"""Of a refused value, in its error."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLOAT32 = struct.Struct("<f")
_EXACT = decimal.Context(prec=60)


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """Conversions of one type. None is null: it goes out as None, and comes in only if the type is nullable.

    `place` names the value in errors: a column, or a path within it.
    """

    type: DataType
    from_json: In
    from_text: Callable[[str, str], Any]
    """Text is never null."""
    to_json: Out
    present_to_json: Out
    """Like `to_json`, for a value that is not null; `as_is` if it does nothing."""
    from_python: In
    to_python: Out


def value_codec(column: Column) -> ValueCodec:
    """The codec of a column's type."""
    return type_codec(column.type)


@lru_cache(4096)
def type_codec(data_type: DataType) -> ValueCodec:
    """The codec of a type, made once."""
    match data_type:
        case Boolean():
            return _boolean(data_type)
        case Float() | Double():
            return _floating(data_type)
        case Decimal():
            return _decimal(data_type)
        case String():
            return _string(data_type)
        case Binary():
            return _binary(data_type)
        case Date() | Time() | Timestamp() | TimestampLtz():
            return _temporal(data_type)
        case Array():
            return _array(data_type)
        case Map():
            return _map(data_type)
        case Row():
            return _row(data_type)
    if isinstance(data_type, Integer):
        return _integer(data_type)
    raise AssertionError(f"no values of {data_type!r}")


def as_is(value: Any) -> Any:
    """The conversion that does nothing."""
    return value


# --- errors


def _shown(value: object) -> str:
    """What came, in the words of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            text = (
                f"number {value!r}" if not isinstance(value, int) or abs(value) < 10**50 else "a number of many digits"
            )
        case str():
            text = f"string {value!r}"
        case list():
            return f"an array of {len(value)}"
        case dict():
            return f"an object of {len(value)}"
        case _:
            text = f"{type(value).__module__}.{type(value).__qualname__} {value!r}"
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def _refuse(value: object, data_type: DataType, place: str, why: str, hint: str | None = None) -> NoReturn:
    raise InvalidRequest(f"{place}: {_shown(value)} is no {data_type.sql_name()}: {why}", place=place, hint=hint)


def _mismatch(data_type: DataType, expected: str, hint: str | None = None) -> In:
    """The end of every conversion that nothing else took: null if that may be, else the error."""

    def mismatch(value: Any, place: str) -> None:
        if value is not None:
            _refuse(value, data_type, place, f"expected {expected}", hint)
        if not data_type.nullable:
            raise InvalidRequest(f"{place} is null", place=place, hint=f"it is {data_type.sql_name()} NOT NULL")

    return mismatch


def _codec(
    data_type: DataType, from_json: In, from_text: Callable[[str, str], Any], out: Out, from_python: In, to_python: Out
) -> ValueCodec:
    return ValueCodec(data_type, from_json, from_text, _or_none(out), out, from_python, _or_none(to_python))


def _or_none(convert: Out) -> Out:
    return convert if convert is as_is else lambda value: None if value is None else convert(value)


# --- numbers


def _boolean(data_type: Boolean) -> ValueCodec:
    mismatch = _mismatch(data_type, "true or false")

    def from_json(value: Any, place: str) -> Any:
        return value if value is True or value is False else mismatch(value, place)

    def from_text(text: str, place: str) -> Any:
        if text == "true":
            return True
        return False if text == "false" else mismatch(text, place)

    def from_python(value: Any, place: str) -> Any:
        # numpy's booleans are of another class.
        return bool(value) if type(value).__name__ in ("bool", "bool_") else mismatch(value, place)

    return _codec(data_type, from_json, from_text, as_is, from_python, as_is)


def _integer(data_type: Integer) -> ValueCodec:
    bound = 1 << (data_type.bits - 1)
    low, high = -bound, bound - 1
    range_hint = f"{data_type.name} holds {low} to {high}"
    as_text = isinstance(data_type, BigInt)
    mismatch = _mismatch(data_type, "a whole number", range_hint)

    def in_range(value: int, given: Any, place: str) -> int:
        if low <= value <= high:
            return value
        _refuse(given, data_type, place, "it is out of range", range_hint)

    def from_json(value: Any, place: str) -> Any:
        if type(value) is int:
            return in_range(value, value, place)
        if as_text and isinstance(value, str):
            return from_text(value, place)
        return mismatch(value, place)

    def from_text(text: str, place: str) -> Any:
        digits = text.isdigit() or (text[:1] == "-" and text[1:].isdigit())
        if digits and text.isascii() and len(text) <= MAX_INTEGER_DIGITS:
            value = int(text)
            if low <= value <= high:
                return value
            return in_range(value, text, place)
        return mismatch(text, place)

    def from_python(value: Any, place: str) -> Any:
        if type(value) is int:
            return in_range(value, value, place)
        if isinstance(value, bool):
            return mismatch(value, place)
        try:
            return in_range(operator.index(value), value, place)
        except TypeError:
            return mismatch(value, place)

    return _codec(data_type, from_json, from_text, as_is, from_python, as_is)


def _floating(data_type: Float | Double) -> ValueCodec:
    single = isinstance(data_type, Float)
    mismatch = _mismatch(data_type, "a number", 'the others are the strings "NaN", "Infinity" and "-Infinity"')

    def rounded(value: float | int, given: Any, place: str) -> float:
        try:
            number = float(value)
            return float(_FLOAT32.unpack(_FLOAT32.pack(number))[0]) if single else number
        except OverflowError:
            _refuse(given, data_type, place, "it is out of range")

    def from_json(value: Any, place: str) -> Any:
        kind = type(value)
        if kind is float or kind is int:
            if value - value != 0:  # JSON has none, but 1e999 is parsed as one
                _refuse(value, data_type, place, "it is out of range")
            return rounded(value, value, place)
        if kind is str and value in _SPELLED:
            return _SPELLED[value]
        return mismatch(value, place)

    def from_text(text: str, place: str) -> Any:
        if text in _SPELLED:
            return _SPELLED[text]
        if not _NUMBER.fullmatch(text):
            return mismatch(text, place)
        value = float(text)
        if math.isinf(value):
            _refuse(text, data_type, place, "it is out of range")
        return rounded(value, text, place)

    def from_python(value: Any, place: str) -> Any:
        if type(value) is not bool and isinstance(value, numbers.Real):
            return rounded(float(value), value, place)
        return mismatch(value, place)

    return _codec(data_type, from_json, from_text, _float_text if single else _double_text, from_python, as_is)


def _double_text(value: float) -> Any:
    return value if value - value == 0 else _spelled(value)


def _float_text(value: float) -> Any:
    """The number of fewest digits that is this FLOAT: 0.1, where its double is 0.10000000149011612."""
    if value - value != 0:
        return _spelled(value)
    for digits in ("%.7g", "%.8g", "%.9g"):
        short = float(digits % value)
        try:
            if _FLOAT32.unpack(_FLOAT32.pack(short))[0] == value:
                return short
        except OverflowError:  # rounded up from the greatest FLOAT
            continue
    return value


def _spelled(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimal(data_type: Decimal) -> ValueCodec:
    precision, scale = data_type.precision, data_type.scale
    bound = 10**precision
    unit = 10**scale
    example = "0." + "0" * (scale - 1) + "1" if scale else "1"
    mismatch = _mismatch(
        data_type, f'a string of digits, such as "{example}"', "a JSON number is not exact: send a string"
    )

    def in_range(unscaled: int, given: Any, place: str) -> int:
        if -bound < unscaled < bound:
            return unscaled
        _refuse(given, data_type, place, f"it has more than {precision - scale} digits before the point")

    def inexact(given: Any, place: str) -> NoReturn:
        _refuse(given, data_type, place, f"it has more than {scale} digits after the point", "round it first")

    def from_json(value: Any, place: str) -> Any:
        if type(value) is str:
            return from_text(value, place)
        if type(value) is int:
            return in_range(value * unit, value, place)
        return mismatch(value, place)

    def from_text(text: str, place: str) -> Any:
        match = _DECIMAL.fullmatch(text) if len(text) <= 2 * MAX_INTEGER_DIGITS else None
        if not match:
            return mismatch(text, place)
        sign, whole, fraction = match.groups("")
        if fraction[scale:].strip("0"):
            inexact(text, place)
        unscaled = int(whole + fraction[:scale].ljust(scale, "0"))
        return in_range(-unscaled if sign else unscaled, text, place)

    def from_python(value: Any, place: str) -> Any:
        if not isinstance(value, decimal.Decimal):
            if isinstance(value, str | bool | float) or value is None:
                return from_json(value, place)
            try:
                return from_json(operator.index(value), place)
            except TypeError:
                return mismatch(value, place)
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            _refuse(value, data_type, place, "it is not finite")
        if not any(digits):
            return 0
        if value.adjusted() >= precision - scale:
            in_range(bound, value, place)
        text = "".join(map(str, digits))
        drop = -(exponent + scale)
        if drop > 0:
            if text[-drop:].strip("0") or drop >= len(text):
                inexact(value, place)
            text = text[:-drop]
        unscaled = int(text) * 10 ** max(-drop, 0)
        return in_range(-unscaled if sign else unscaled, value, place)

    def to_json(unscaled: int) -> str:
        if not scale:
            return str(unscaled)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    def to_python(unscaled: int) -> decimal.Decimal:
        return decimal.Decimal(unscaled).scaleb(-scale, _EXACT)

    return _codec(data_type, from_json, from_text, to_json, from_python, to_python)


# --- text and bytes


def _string(data_type: String) -> ValueCodec:
    length = data_type.length
    mismatch = _mismatch(data_type, "a string")

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        if length is not None and len(value) > length:
            _refuse(value, data_type, place, f"it has {len(value)} characters")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                _refuse(value, data_type, place, "half of a surrogate pair is no character")
        return value

    return _codec(data_type, from_json, from_json, as_is, from_json, as_is)


def _binary(data_type: Binary) -> ValueCodec:
    length = data_type.length
    expected = "a string of base64, padded with ="
    mismatch = _mismatch(data_type, expected)
    mismatch_python = _mismatch(data_type, "bytes")

    def checked(value: bytes, given: Any, place: str) -> bytes:
        if length is not None and len(value) > length:
            _refuse(given, data_type, place, f"it has {len(value)} bytes")
        return value

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        try:
            return checked(binascii.a2b_base64(value, strict_mode=True), value, place)
        except ValueError as exc:
            _refuse(value, data_type, place, f"expected {expected} ({exc})")

    def from_text(text: str, place: str) -> Any:
        return from_json(text.replace("-", "+").replace("_", "/"), place)

    def from_python(value: Any, place: str) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            return checked(bytes(value), value, place)
        return mismatch_python(value, place)

    return _codec(data_type, from_json, from_text, _base64, from_python, as_is)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


# --- dates and times


@dataclass(frozen=True, slots=True)
class _Calendar:
    """What differs between the types of dates and times."""

    parse: Callable[[str], int]
    to_text: Callable[[int], str]
    of_python: Callable[[Any], int]
    to_python: Callable[[int], Any]
    takes: str
    unit: int = 1
    """The least step of physical values at the type's precision."""
    bound: int = INT64_BOUND


def _calendar(data_type: Date | Time | Timestamp | TimestampLtz) -> _Calendar:
    if isinstance(data_type, Date):
        return _Calendar(
            temporal.parse_date,
            temporal.date_text,
            temporal.days_of,
            temporal.date_of,
            "a datetime.date",
            bound=INT32_BOUND,
        )
    precision = data_type.precision
    match data_type:
        case Time():
            return _Calendar(
                lambda text: temporal.parse_time(text, precision),
                temporal.time_printer(precision),
                temporal.nanoseconds_of,
                temporal.time_of,
                "a datetime.time without time zone",
                unit=10 ** (9 - precision),
            )
        case Timestamp():
            return _Calendar(
                lambda text: temporal.parse_timestamp(text, precision),
                temporal.timestamp_printer(precision),
                temporal.microseconds_of,
                temporal.datetime_of,
                "a datetime.datetime without time zone",
                unit=10 ** (6 - precision),
            )
    return _Calendar(
        lambda text: temporal.parse_timestamp_ltz(text, precision),
        temporal.timestamp_printer(precision, zone="Z"),
        temporal.microseconds_of,
        temporal.datetime_utc_of,
        "a datetime.datetime with a time zone",
        unit=10 ** (6 - precision),
    )


def _temporal(data_type: Date | Time | Timestamp | TimestampLtz) -> ValueCodec:
    calendar = _calendar(data_type)
    bound = calendar.bound
    mismatch = _mismatch(data_type, "a string in ISO 8601")
    mismatch_python = _mismatch(data_type, f"{calendar.takes}, or a string in ISO 8601")

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        try:
            physical = calendar.parse(value)
        except ValueError as exc:
            _refuse(value, data_type, place, str(exc))
        if not -bound <= physical < bound:
            _refuse(value, data_type, place, "it is out of range")
        return physical

    def from_python(value: Any, place: str) -> Any:
        if isinstance(value, str):
            return from_json(value, place)
        if not _is_python(value, data_type):
            return mismatch_python(value, place)
        if getattr(value, "nanosecond", 0):
            _refuse(value, data_type, place, "nanoseconds are more than its precision", "round it first")
        try:
            physical = calendar.of_python(value)
        except (ValueError, TypeError, AttributeError) as exc:  # pandas.NaT says it is a datetime
            _refuse(value, data_type, place, str(exc))
        if physical % calendar.unit:
            _refuse(value, data_type, place, "it has more digits of a second than its precision", "round it first")
        return physical

    def to_python(physical: int) -> Any:
        try:
            return calendar.to_python(physical)
        except (ValueError, OverflowError) as exc:
            raise InvalidRequest(
                f"{data_type.sql_name()} {calendar.to_text(physical)} is outside of Python's years, 1 to 9999",
                hint="read it as JSON or Arrow",
            ) from exc

    return _codec(data_type, from_json, from_json, calendar.to_text, from_python, to_python)


def _is_python(value: Any, data_type: DataType) -> bool:
    match data_type:
        case Date():
            return isinstance(value, date) and not isinstance(value, datetime)
        case Time():
            return isinstance(value, time) and value.tzinfo is None
        case Timestamp():
            return isinstance(value, datetime) and value.tzinfo is None
    return isinstance(value, datetime) and value.utcoffset() is not None


# --- nested types


def _json_text(from_json: In, data_type: DataType) -> Callable[[str, str], Any]:
    def from_text(text: str, place: str) -> Any:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            _refuse(text, data_type, place, f"expected JSON ({exc})")
        return from_json(value, place)

    return from_text


def _array(data_type: Array) -> ValueCodec:
    element = type_codec(data_type.element)

    def reader(convert: In, mismatch: In, kinds: Any) -> In:
        def read(value: Any, place: str) -> Any:
            if not isinstance(value, kinds):
                return mismatch(value, place)
            return [convert(item, f"{place}[{i}]") for i, item in enumerate(value)]

        return read

    from_json = reader(element.from_json, _mismatch(data_type, "an array"), (list,))
    return _codec(
        data_type,
        from_json,
        _json_text(from_json, data_type),
        _each(element.to_json),
        reader(element.from_python, _mismatch(data_type, "a list"), (list, tuple)),
        _each(element.to_python),
    )


def _each(convert: Out) -> Out:
    return as_is if convert is as_is else lambda values: [convert(value) for value in values]


def _map(data_type: Map) -> ValueCodec:
    key, item = type_codec(data_type.key), type_codec(data_type.value)
    text_keys = isinstance(data_type.key, String)
    no_object = _mismatch(data_type, "an array of [key, value]", "an object has keys of type STRING only")

    def pairs_of(entries: Any, place: str, read_key: In, read_item: In) -> list[tuple[Any, Any]]:
        pairs = []
        seen = set()
        listed: Iterable[Any] = entries.items() if isinstance(entries, Mapping) else entries
        for i, entry in enumerate(listed):
            if not isinstance(entry, list | tuple) or len(entry) != 2:
                _refuse(entry, data_type, f"{place}[{i}]", "expected a key and a value")
            name, content = entry
            if name is None:
                raise InvalidRequest(f"{place}[{i}]: a map key is null", place=f"{place}[{i}]")
            physical = read_key(name, f"{place}[{i}] key")
            mark = repr(physical)  # lists are no members of sets
            if mark in seen:
                _refuse(name, data_type.key, place, "the map has this key twice")
            seen.add(mark)
            pairs.append((physical, read_item(content, f"{place}[{name!r}]")))
        return pairs

    json_mismatch = _mismatch(
        data_type, "an object or an array of [key, value]" if text_keys else "an array of [key, value]"
    )

    def from_json(value: Any, place: str) -> Any:
        if isinstance(value, dict) and not text_keys:
            return no_object(value, place)
        if not isinstance(value, dict | list):
            return json_mismatch(value, place)
        return pairs_of(value, place, key.from_json, item.from_json)

    python_mismatch = _mismatch(data_type, "a dict or a list of pairs")

    def from_python(value: Any, place: str) -> Any:
        if not isinstance(value, Mapping | list | tuple):
            return python_mismatch(value, place)
        return pairs_of(value, place, key.from_python, item.from_python)

    key_json, item_json = key.to_json, item.to_json
    key_python, item_python = key.to_python, item.to_python
    hashable = not isinstance(data_type.key, NESTED)

    def to_json(pairs: Sequence[tuple[Any, Any]]) -> Any:
        if text_keys:
            whole = {name: item_json(content) for name, content in pairs}
            if len(whole) == len(pairs):  # Arrow allows a key twice, and nothing may be lost
                return whole
        return [[key_json(name), item_json(content)] for name, content in pairs]

    def to_python(pairs: Sequence[tuple[Any, Any]]) -> Any:
        python = [(key_python(name), item_python(content)) for name, content in pairs]
        return dict(python) if hashable else python

    return _codec(data_type, from_json, _json_text(from_json, data_type), to_json, from_python, to_python)


def _row(data_type: Row) -> ValueCodec:
    names = [field.name for field in data_type.fields]
    known = set(names)
    codecs = [type_codec(field.type) for field in data_type.fields]
    fields_hint = f"fields: {', '.join(names)}"

    def reader(converts: Sequence[In], mismatch: In, positional: bool) -> In:
        def read(value: Any, place: str) -> Any:
            if positional and isinstance(value, tuple) and len(value) == len(names):
                items: Sequence[Any] = value
            elif isinstance(value, Mapping):
                for name in value:
                    if name not in known:
                        raise InvalidRequest(f"{place}: unknown field {name!r}", place=place, hint=fields_hint)
                items = [value.get(name) for name in names]
            else:
                return mismatch(value, place)
            return tuple(
                [convert(item, f"{place}.{name}") for convert, item, name in zip(converts, items, names, strict=True)]
            )

        return read

    def writer(converts: Sequence[Out]) -> Out:
        named = list(zip(names, converts, strict=True))
        return lambda values: {name: convert(value) for (name, convert), value in zip(named, values, strict=True)}

    from_json = reader([c.from_json for c in codecs], _mismatch(data_type, "an object", fields_hint), positional=False)
    return _codec(
        data_type,
        from_json,
        _json_text(from_json, data_type),
        writer([codec.to_json for codec in codecs]),
        reader(
            [c.from_python for c in codecs], _mismatch(data_type, "a dict or a tuple of all fields", fields_hint), True
        ),
        writer([codec.to_python for codec in codecs]),
    )
