"""Dates and times as ISO 8601 text: physical integers to text and back.

    DATE              days since 1970-01-01             2026-11-20
    TIME              nanoseconds since midnight        12:34:56[.ffffff]
    TIMESTAMP         microseconds since 1970-01-01     2026-11-20T12:34:56[.ffffff]
    TIMESTAMP_LTZ     the same, in UTC                  2026-11-20T12:34:56[.ffffff]Z

Printing never fails: years after 9999 are written `+10000-01-01`, years before 0 `-0001-12-31`, as Java and Spark do. A
fraction of zero is left out, others have as many digits as the type's precision, or more if a value has them.

Parsing is strict: these forms, a space for the `T`, and for TIMESTAMP_LTZ any offset `+hh:mm` besides `Z`. Digits after
the precision must be zeros, so that nothing is rounded. It raises ValueError with the reason.

The calendar is the proleptic Gregorian one, as in Spark 3 and later; it repeats every 400 years, which carries Python's
`date` (years 1 to 9999) to all the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MAX_ORDINAL = date.max.toordinal()

DAY_US = 86_400_000_000

CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
CYCLE_START = date(2000, 1, 1).toordinal()
CYCLE_START_YEAR = 2000

CACHED_DAYS = 50_000
"""Days whose text is kept: 137 years, 5 MB."""

_DATE = r"(?P<year>\d{4}|[+-]\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(\.(?P<fraction>\d{1,9}))?"
_DATE_PATTERN = re.compile(_DATE, re.ASCII)
_TIME_PATTERN = re.compile(_TIME, re.ASCII)
_TIMESTAMP_PATTERN = re.compile(rf"{_DATE}[T ]{_TIME}(?P<zone>Z|[+-]\d\d:\d\d)?", re.ASCII)


# --- text


class _DayTexts(dict[int, str]):
    """Text of each day, made once: most rows share few days."""

    def __missing__(self, days: int) -> str:
        if len(self) >= CACHED_DAYS:
            self.clear()
        text = self[days] = _day_text(days)
        return text


def _day_text(days: int) -> str:
    ordinal = days + EPOCH_ORDINAL
    if 1 <= ordinal <= MAX_ORDINAL:
        return date.fromordinal(ordinal).isoformat()
    cycles, rest = divmod(ordinal - CYCLE_START, CYCLE_DAYS)
    day = date.fromordinal(CYCLE_START + rest)
    year = day.year + cycles * CYCLE_YEARS
    year_text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{year_text}-{day.month:02d}-{day.day:02d}"


_DAYS = _DayTexts()
_MINUTES = [f"T{minute // 60:02d}:{minute % 60:02d}:" for minute in range(24 * 60)]
_SECONDS = [f"{second:02d}" for second in range(60)]
_THREE_DIGITS = [f"{number:03d}" for number in range(1000)]


def date_text(days: int) -> str:
    return _DAYS[days]


def timestamp_printer(precision: int, zone: str = "") -> Callable[[int], str]:
    """Prints timestamps of a precision. Half the time of datetime arithmetic and isoformat."""
    unsaid = "0" * (6 - precision)

    def text(us: int) -> str:
        minute = us // 60_000_000
        us -= minute * 60_000_000
        day = minute // 1440
        second = us // 1_000_000
        us -= second * 1_000_000
        if us:
            ms = us // 1000
            fraction = f"{_THREE_DIGITS[ms]}{_THREE_DIGITS[us - ms * 1000]}".removesuffix(unsaid)
            return f"{_DAYS[day]}{_MINUTES[minute - day * 1440]}{_SECONDS[second]}.{fraction}{zone}"
        return f"{_DAYS[day]}{_MINUTES[minute - day * 1440]}{_SECONDS[second]}{zone}"

    return text


def time_printer(precision: int) -> Callable[[int], str]:
    """Prints times of day of a precision."""
    unsaid = "0" * (9 - precision)

    def text(ns: int) -> str:
        second, ns = divmod(ns, 1_000_000_000)
        minute, second = divmod(second, 60)
        whole = f"{minute // 60:02d}:{minute % 60:02d}:{second:02d}"
        if not ns:
            return whole
        digits = f"{ns:09d}"
        return f"{whole}.{digits[:precision] if digits.endswith(unsaid) else digits.removesuffix('000')}"

    return text


# --- parsing


def parse_date(text: str) -> int:
    match = _DATE_PATTERN.fullmatch(text)
    if not match:
        raise ValueError("expected yyyy-mm-dd")
    return _days(match)


def parse_time(text: str, precision: int) -> int:
    match = _TIME_PATTERN.fullmatch(text)
    if not match:
        raise ValueError("expected hh:mm:ss with an optional fraction")
    return _microseconds(match, precision) * 1000


def parse_timestamp(text: str, precision: int) -> int:
    match = _TIMESTAMP_PATTERN.fullmatch(text)
    if not match:
        raise ValueError("expected yyyy-mm-ddThh:mm:ss with an optional fraction")
    if match["zone"]:
        raise ValueError(f"expected a wall-clock time without time zone, but it ends with {match['zone']}")
    return _days(match) * DAY_US + _microseconds(match, precision)


def parse_timestamp_ltz(text: str, precision: int) -> int:
    match = _TIMESTAMP_PATTERN.fullmatch(text)
    if not match:
        raise ValueError("expected yyyy-mm-ddThh:mm:ss with an optional fraction, then Z or an offset +hh:mm")
    zone = match["zone"]
    if not zone:
        raise ValueError("expected an instant, but it has no time zone: append Z or an offset +hh:mm")
    us = _days(match) * DAY_US + _microseconds(match, precision)
    if zone == "Z":
        return us
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 18 or minutes > 59:
        raise ValueError(f"no time zone has the offset {zone}")
    offset = (hours * 60 + minutes) * 60_000_000
    return us + offset if zone[0] == "-" else us - offset


def _days(match: re.Match[str]) -> int:
    year = int(match["year"])
    cycles, rest = divmod(year - CYCLE_START_YEAR, CYCLE_YEARS)
    try:
        day = date(CYCLE_START_YEAR + rest, int(match["month"]), int(match["day"]))
    except ValueError as exc:
        raise ValueError(f"no such day: {exc}") from None
    return day.toordinal() + cycles * CYCLE_DAYS - EPOCH_ORDINAL


def _microseconds(match: re.Match[str], precision: int) -> int:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time of day: hours end at 23, minutes and seconds at 59")
    fraction = match["fraction"] or ""
    if fraction[precision:].strip("0"):
        raise ValueError(f"{len(fraction)} digits of a second are more than the precision {precision}: round it first")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


# --- Python's own values


def days_of(day: date) -> int:
    return day.toordinal() - EPOCH_ORDINAL


def date_of(days: int) -> date:
    """OverflowError or ValueError outside of the years 1 to 9999."""
    return date.fromordinal(days + EPOCH_ORDINAL)


def nanoseconds_of(moment: time) -> int:
    return (((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond) * 1000


def time_of(ns: int) -> time:
    """ValueError if it is no time of day. Python has no nanoseconds: they are cut."""
    us = ns // 1000
    second, us = divmod(us, 1_000_000)
    minute, second = divmod(second, 60)
    return time(minute // 60, minute % 60, second, us)


def microseconds_of(moment: datetime) -> int:
    """Of a wall clock if the datetime is naive, else of UTC."""
    passed = moment - (EPOCH if moment.tzinfo is None else EPOCH_UTC)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def datetime_of(us: int) -> datetime:
    """OverflowError outside of the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=us)


def datetime_utc_of(us: int) -> datetime:
    """OverflowError outside of the years 1 to 9999."""
    return EPOCH_UTC + timedelta(microseconds=us)
