"""What the text of an option may be: each kind of value, with how it is read, shown and described.

    OptionKind                              name, parse, show, and how spaces and None are taken
    whole_numbers, sizes, choice, choices   make kinds
    BOOLEAN, COLUMNS, DURATION, ...         the others

stelae/schema/options.py declares the options of tables with them.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stelae.errors import InvalidRequest
from stelae.schema.aggregate_functions import find_function
from stelae.schema.durations import parse_duration_ms, show_duration

MAX_BUCKETS = 65_536
"""Buckets of one partition: the manifest names every one of them."""


@dataclass(frozen=True, slots=True)
class OptionKind:
    """A type of option values."""

    name: str
    parse: Callable[[str], Any]
    """The value of a text; ValueError, with a sentence on what it takes, where it is none."""
    text: Callable[[Any], str] = str
    """The inverse, of a value that is set."""
    unset: str = "none"
    """What stands for None, and for no names."""
    verbatim: bool = False
    """Whether spaces at the ends are a part of the value."""

    def show(self, value: Any) -> str:
        """The text of a value."""
        return self.unset if value is None or value == () else self.text(value)


# --- words and names


def plain_word(text: str) -> str:
    """Values of enumerations are compared in lower case, and - is _ (Paimon writes first-row, Fluss first_row)."""
    return text.strip().lower().replace("_", "-")


def choice(*values: str) -> OptionKind:
    """One of `values`, in any case and with - or _."""

    def parse(text: str) -> str:
        value = plain_word(text)
        if value in values:
            return value
        near = difflib.get_close_matches(value, values, n=1)
        raise ValueError(f"expected {' or '.join(values)}" + (f"; did you mean {near[0]}?" if near else ""))

    return OptionKind(", ".join(values), parse)


def choices(*values: str) -> OptionKind:
    """Some of `values`, with commas between them."""
    one = choice(*values)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.parse(word) for word in text.split(",")))

    return OptionKind(f"{one.name}, or several with commas between them", parse, ",".join)


def _name(of: str) -> OptionKind:
    def parse(text: str) -> str:
        if not text or "," in text:
            raise ValueError(f"expected one {of} name")
        return text

    return OptionKind(f"a {of} name", parse)


def _names(of: str) -> OptionKind:
    """Names of columns, or of the fields of a ROW; none is the empty tuple."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise ValueError(f"expected {of} names, with commas between them")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"it names {of} {name!r} twice")
        return names

    return OptionKind(f"{of} names with commas between them", parse, ",".join)


def _parse_boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _parse_sort_order(text: str) -> bool:
    """Whether it is descending."""
    return bool(_SORT_ORDER.parse(text) == "descending")


def _parse_function(text: str) -> str:
    try:
        return find_function(text, "").name
    except InvalidRequest as exc:
        raise ValueError(f"{exc.message}; {exc.hint}") from None


def _parse_delimiter(text: str) -> str:
    if not text:
        raise ValueError("expected at least one character")
    return text


_SORT_ORDER = choice("ascending", "descending")

BOOLEAN = OptionKind("true, false", _parse_boolean, lambda value: str(value).lower())
COLUMN = _name("column")
COLUMNS = _names("column")
FIELD = _name("field")
FIELDS = _names("field")
MERGE_ENGINE = choice("deduplicate", "first-row", "versioned", "partial-update", "aggregation")
SORT_ORDER = OptionKind(_SORT_ORDER.name, _parse_sort_order, lambda value: "descending" if value else "ascending")
FUNCTION = OptionKind("a function of docs/merging.md", _parse_function)
DELIMITER = OptionKind("any text but the empty one", _parse_delimiter, verbatim=True)


# --- numbers


def whole_numbers(low: int, high: int | None = None, none: int | None = None) -> OptionKind:
    """Whole numbers from `low` to `high`; the number `none` stands for "not set"."""
    limits = f"at least {low}" if high is None else f"{low} to {high}"
    limits += "" if none is None else f", or {none}"

    def parse(text: str) -> int | None:
        if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
            raise ValueError("expected a whole number")
        number = int(text)
        if number == none:
            return None
        if number < low or (high is not None and number > high):
            raise ValueError(f"expected {limits}")
        return number

    return OptionKind(f"number, {limits}", parse, unset="none" if none is None else str(none))


_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1024),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1024 * 1024),
}
"""Bytes of a unit, in the spellings that Flink takes."""


def sizes(low: int, high: int) -> OptionKind:
    """Sizes from `low` to `high` bytes."""

    def text_of(size: int) -> str:
        return f"{size // 1024} kb" if size % 1024 == 0 else f"{size} b"

    def parse(text: str) -> int:
        parts = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.lower(), re.ASCII)
        if parts is None or parts[2] not in _SIZE_UNITS:
            raise ValueError("expected a size, such as '4 kb', '16 kb' or '512 b'")
        size = int(parts[1]) * _SIZE_UNITS[parts[2]]
        if not low <= size <= high:
            raise ValueError(f"expected {text_of(low)} to {text_of(high)}")
        return size

    return OptionKind(f"a size in b or kb, {text_of(low)} to {text_of(high)}", parse, text_of)


def _parse_duration_ms(text: str) -> int:
    duration_ms = parse_duration_ms(text)
    if duration_ms == 0:
        raise ValueError("expected more than nothing")
    return duration_ms


def _parse_fraction(text: str) -> float:
    number, divisor = (text[:-1].rstrip(), 100) if text.endswith("%") else (text, 1)
    if not re.fullmatch(r"\d{1,9}(\.\d+)?|\.\d+", number, re.ASCII):
        raise ValueError("expected a fraction such as 0.2, or a percentage such as 20%")
    return float(number) / divisor


def _parse_bucket(text: str) -> Any:
    if text == "-2":
        raise ValueError("known (postponed buckets), but this version does not apply it yet")
    return BUCKETS.parse(text)


BUCKETS = whole_numbers(1, MAX_BUCKETS, none=-1)
BUCKET = dataclasses.replace(BUCKETS, parse=_parse_bucket)
DURATION = OptionKind("a number and a unit: d, h, min, s or ms", _parse_duration_ms, show_duration)
FRACTION = OptionKind("a fraction or a percentage", _parse_fraction, repr)
