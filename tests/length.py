"""How long the tests are: short in the gate, long in `make test-long`, which is `pytest --long`.

What finds more the longer it runs (random examples, schedules, rounds of crashes) says both lengths:

    SCHEDULES = length(short=500, long=10_000)

    @pytest.mark.long                     # it has a long form: --long runs it
    def test_schedules() -> None: ...

    pytest.param("...", marks=only_long)  # too dear for the gate: only --long runs it

With `--long`, tests that have no long form are left out.
"""

from __future__ import annotations

import sys
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_LONG = "--long" in sys.argv
"""Read from the command line, because test modules ask while they are imported."""

only_long = pytest.mark.only_long


def length(*, short: T, long: T) -> T:
    return long if IS_LONG else short


def is_chosen(item: pytest.Item) -> bool:
    """Whether a run of this length has the test."""
    marks = {mark.name for mark in item.iter_markers()}
    return bool(marks & {"long", "only_long"}) if IS_LONG else "only_long" not in marks
