"""Values of dates, times and timestamps as JSON, text and Python; their text is `stelae/encoding/temporal.py`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from stelae.encoding import temporal
from stelae.encoding.value_codec import ValueCodec, make_codec, mismatch_of, refused
from stelae.errors import InvalidRequest
from stelae.schema.types import DataType, Date, Time, Timestamp, TimestampLtz

INT32_BOUND = 1 << 31
INT64_BOUND = 1 << 63


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


def temporal_values(data_type: Date | Time | Timestamp | TimestampLtz) -> ValueCodec:
    """The codec of DATE, TIME, TIMESTAMP and TIMESTAMP_LTZ."""
    calendar = _calendar(data_type)
    bound = calendar.bound
    mismatch = mismatch_of(data_type, "a string in ISO 8601")
    mismatch_python = mismatch_of(data_type, f"{calendar.takes}, or a string in ISO 8601")

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        try:
            physical = calendar.parse(value)
        except ValueError as exc:
            raise refused(value, data_type, place, str(exc)) from exc
        if not -bound <= physical < bound:
            raise refused(value, data_type, place, "it is out of range")
        return physical

    def from_python(value: Any, place: str) -> Any:
        if isinstance(value, str):
            return from_json(value, place)
        if not _is_python(value, data_type):
            return mismatch_python(value, place)
        if getattr(value, "nanosecond", 0):
            raise refused(value, data_type, place, "nanoseconds are more than its precision", "round it first")
        try:
            physical = calendar.of_python(value)
        except (ValueError, TypeError, AttributeError) as exc:  # pandas.NaT says it is a datetime
            raise refused(value, data_type, place, str(exc)) from exc
        if physical % calendar.unit:
            raise refused(
                value, data_type, place, "it has more digits of a second than its precision", "round it first"
            )
        return physical

    def to_python(physical: int) -> Any:
        try:
            return calendar.to_python(physical)
        except (ValueError, OverflowError) as exc:
            raise InvalidRequest(
                f"{data_type.sql_name()} {calendar.to_text(physical)} is outside of Python's years, 1 to 9999",
                hint="read it as JSON or Arrow",
            ) from exc

    return make_codec(data_type, from_json, from_json, calendar.to_text, from_python, to_python)


def _is_python(value: Any, data_type: DataType) -> bool:
    match data_type:
        case Date():
            return isinstance(value, date) and not isinstance(value, datetime)
        case Time():
            return isinstance(value, time) and value.tzinfo is None
        case Timestamp():
            return isinstance(value, datetime) and value.tzinfo is None
    return isinstance(value, datetime) and value.utcoffset() is not None
