"""Durations as text: `30 d`, `12 h`, `90 min`, `5 s`, `500 ms`, in the spellings of units that Flink takes.

The one grammar of them, for options of tables and for the command line.
"""

from __future__ import annotations

import re

UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPELLINGS = {
    "ms": ("ms", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "second", "seconds"),
    "min": ("min", "m", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_MS = {spelling: UNITS_MS[unit] for unit, spellings in _SPELLINGS.items() for spelling in spellings}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


def parse_duration_ms(text: str, *, fractions: bool = False) -> int:
    """Milliseconds of a number and a unit, in any case; ValueError says what is taken.

    With `fractions`, `1.5 h` is taken, too, which options of tables are not: Flink would refuse them.
    """
    parts = _DURATION.fullmatch(text.strip().lower())
    if parts is None or parts[2] not in _MS or ("." in parts[1] and not fractions):
        raise ValueError("expected a number and a unit, such as '30 d', '12 h', '90 min', '5 s' or '500 ms'")
    return round(float(parts[1]) * _MS[parts[2]]) if "." in parts[1] else int(parts[1]) * _MS[parts[2]]


def show_duration(duration_ms: int) -> str:
    """The shortest text for it: in the greatest unit that it is a multiple of."""
    unit = max((unit for unit in UNITS_MS if duration_ms % UNITS_MS[unit] == 0), key=lambda unit: UNITS_MS[unit])
    return f"{duration_ms // UNITS_MS[unit]} {unit}"
