"""What a codec of values is, and how a value that it can't take is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from stelae.errors import InvalidRequest
from stelae.schema.types import DataType

Read: TypeAlias = Callable[[Any, str], Any]
"""A value, and its place in errors, to the physical value."""
Write: TypeAlias = Callable[[Any], Any]
"""A physical value to that of JSON or Python."""

SHOWN_CHARACTERS = 60
"""Of a refused value, in its error."""


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """Conversions of one type. None is null: it goes out as None, and comes in only if the type is nullable.

    `place` names the value in errors: a column, or a path within it.
    """

    type: DataType
    from_json: Read
    from_text: Callable[[str, str], Any]
    """Text is never null."""
    to_json: Write
    present_to_json: Write
    """Like `to_json`, for a value that is not null; `as_is` if it does nothing."""
    from_python: Read
    to_python: Write


def make_codec(
    data_type: DataType,
    from_json: Read,
    from_text: Callable[[str, str], Any],
    out: Write,
    from_python: Read,
    to_python: Write,
) -> ValueCodec:
    """`out` goes to JSON, from a value that is not null, as does `to_python`."""
    return ValueCodec(data_type, from_json, from_text, _or_none(out), out, from_python, _or_none(to_python))


def _or_none(convert: Write) -> Write:
    return convert if convert is as_is else lambda value: None if value is None else convert(value)


def as_is(value: Any) -> Any:
    """The conversion that does nothing."""
    return value


def refused(value: object, data_type: DataType, place: str, why: str, hint: str | None = None) -> InvalidRequest:
    """The error for a value that `data_type` can't have."""
    return InvalidRequest(f"{place}: {_shown(value)} is no {data_type.sql_name()}: {why}", place=place, hint=hint)


def mismatch_of(data_type: DataType, expected: str, hint: str | None = None) -> Read:
    """The end of every conversion that nothing else took: null if that may be, else the error."""

    def mismatch(value: Any, place: str) -> None:
        if value is not None:
            raise refused(value, data_type, place, f"expected {expected}", hint)
        if not data_type.nullable:
            raise InvalidRequest(f"{place} is null", place=place, hint=f"it is {data_type.sql_name()} NOT NULL")

    return mismatch


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
