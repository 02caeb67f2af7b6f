"""Goal: one grammar of durations, for options and the command line; what is shown is read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.schema.durations import UNITS_MS, parse_duration_ms, show_duration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("30 d", 2_592_000_000), ("1day", 86_400_000), (" 12 H ", 43_200_000), ("90 min", 5_400_000), ("15m", 900_000),
     ("5s", 5_000), ("500 millis", 500), ("0 s", 0)],
)  # fmt: skip
def test_a_duration_is_a_number_and_a_unit(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == parse_duration_ms(text, fractions=True) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1 week", "1h30m", "1.h", ".5h", "1e3 s", "1 h h", "٤ h"])
def test_nothing_else_is(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number and a unit"):
        parse_duration_ms(text, fractions=True)


def test_fractions_are_for_who_asks() -> None:
    assert parse_duration_ms("1.5 h", fractions=True) == 5_400_000
    assert parse_duration_ms("0.001s", fractions=True) == 1
    with pytest.raises(ValueError, match="expected a number and a unit"):
        parse_duration_ms("1.5 h")


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS_MS)))
def test_what_is_shown_is_read_back(number: int, unit: str) -> None:
    duration_ms = number * UNITS_MS[unit]
    assert parse_duration_ms(show_duration(duration_ms)) == duration_ms
