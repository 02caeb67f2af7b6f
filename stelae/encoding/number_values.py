"""Values of BOOLEAN, integers, FLOAT, DOUBLE and DECIMAL as JSON, text and Python."""

from __future__ import annotations

import decimal
import math
import numbers
import operator
import re
import struct
from typing import Any

from stelae.encoding.value_codec import ValueCodec, as_is, make_codec, mismatch_of, refused
from stelae.errors import InvalidRequest
from stelae.schema.types import BigInt, Boolean, Decimal, Double, Float, Integer

MAX_INTEGER_DIGITS = 40
"""Characters of an integer or decimal as text; leading zeros count. Python's int() takes quadratic time."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLOAT32 = struct.Struct("<f")
_EXACT = decimal.Context(prec=60)


def boolean_values(data_type: Boolean) -> ValueCodec:
    """The codec of BOOLEAN."""
    mismatch = mismatch_of(data_type, "true or false")

    def from_json(value: Any, place: str) -> Any:
        return value if value is True or value is False else mismatch(value, place)

    def from_text(text: str, place: str) -> Any:
        if text == "true":
            return True
        return False if text == "false" else mismatch(text, place)

    def from_python(value: Any, place: str) -> Any:
        # numpy's booleans are of another class.
        return bool(value) if type(value).__name__ in ("bool", "bool_") else mismatch(value, place)

    return make_codec(data_type, from_json, from_text, as_is, from_python, as_is)


def integer_values(data_type: Integer) -> ValueCodec:
    """The codec of TINYINT to BIGINT."""
    bound = 1 << (data_type.bits - 1)
    low, high = -bound, bound - 1
    range_hint = f"{data_type.name} holds {low} to {high}"
    as_text = isinstance(data_type, BigInt)
    mismatch = mismatch_of(data_type, "a whole number", range_hint)

    def in_range(value: int, given: Any, place: str) -> int:
        if low <= value <= high:
            return value
        raise refused(given, data_type, place, "it is out of range", range_hint)

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

    return make_codec(data_type, from_json, from_text, as_is, from_python, as_is)


def floating_values(data_type: Float | Double) -> ValueCodec:
    """The codec of FLOAT and DOUBLE."""
    single = isinstance(data_type, Float)
    mismatch = mismatch_of(data_type, "a number", 'the others are the strings "NaN", "Infinity" and "-Infinity"')

    def rounded(value: float | int, given: Any, place: str) -> float:
        try:
            number = float(value)
            return float(_FLOAT32.unpack(_FLOAT32.pack(number))[0]) if single else number
        except OverflowError as exc:
            raise refused(given, data_type, place, "it is out of range") from exc

    def from_json(value: Any, place: str) -> Any:
        kind = type(value)
        if kind is float or kind is int:
            if value - value != 0:  # JSON has none, but 1e999 is parsed as one
                raise refused(value, data_type, place, "it is out of range")
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
            raise refused(text, data_type, place, "it is out of range")
        return rounded(value, text, place)

    def from_python(value: Any, place: str) -> Any:
        if type(value) is not bool and isinstance(value, numbers.Real):
            return rounded(float(value), value, place)
        return mismatch(value, place)

    return make_codec(data_type, from_json, from_text, _float_text if single else _double_text, from_python, as_is)


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


class DecimalValues:
    """DECIMAL(p, s): physical values are unscaled integers, 12.30 of scale 2 is 1230."""

    def __init__(self, data_type: Decimal) -> None:
        self._type = data_type
        self._precision, self._scale = data_type.precision, data_type.scale
        self._bound = 10**data_type.precision
        self._unit = 10**data_type.scale
        example = "0." + "0" * (self._scale - 1) + "1" if self._scale else "1"
        self._mismatch = mismatch_of(
            data_type, f'a string of digits, such as "{example}"', "a JSON number is not exact: send a string"
        )

    def codec(self) -> ValueCodec:
        return make_codec(self._type, self.from_json, self.from_text, self.to_json, self.from_python, self.to_python)

    def _in_range(self, unscaled: int, given: Any, place: str) -> int:
        if -self._bound < unscaled < self._bound:
            return unscaled
        raise refused(
            given, self._type, place, f"it has more than {self._precision - self._scale} digits before the point"
        )

    def _inexact(self, given: Any, place: str) -> InvalidRequest:
        return refused(
            given, self._type, place, f"it has more than {self._scale} digits after the point", "round it first"
        )

    def from_json(self, value: Any, place: str) -> Any:
        if type(value) is str:
            return self.from_text(value, place)
        if type(value) is int:
            return self._in_range(value * self._unit, value, place)
        return self._mismatch(value, place)

    def from_text(self, text: str, place: str) -> Any:
        match = _DECIMAL.fullmatch(text) if len(text) <= 2 * MAX_INTEGER_DIGITS else None
        if not match:
            return self._mismatch(text, place)
        sign, whole, fraction = match.groups("")
        if fraction[self._scale :].strip("0"):
            raise self._inexact(text, place)
        unscaled = int(whole + fraction[: self._scale].ljust(self._scale, "0"))
        return self._in_range(-unscaled if sign else unscaled, text, place)

    def from_python(self, value: Any, place: str) -> Any:
        if not isinstance(value, decimal.Decimal):
            if isinstance(value, str | bool | float) or value is None:
                return self.from_json(value, place)
            try:
                return self.from_json(operator.index(value), place)
            except TypeError:
                return self._mismatch(value, place)
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise refused(value, self._type, place, "it is not finite")
        if not any(digits):
            return 0
        if value.adjusted() >= self._precision - self._scale:
            self._in_range(self._bound, value, place)
        text = "".join(map(str, digits))
        drop = -(exponent + self._scale)
        if drop > 0:
            if text[-drop:].strip("0") or drop >= len(text):
                raise self._inexact(value, place)
            text = text[:-drop]
        unscaled = int(text) * 10 ** max(-drop, 0)
        return self._in_range(-unscaled if sign else unscaled, value, place)

    def to_json(self, unscaled: int) -> str:
        scale = self._scale
        if not scale:
            return str(unscaled)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    def to_python(self, unscaled: int) -> decimal.Decimal:
        return decimal.Decimal(unscaled).scaleb(-self._scale, _EXACT)
