"""Goal: texts on a command line are read as people write them, and refused with their place.

Method: tables of texts.
"""

from __future__ import annotations

import pytest

from stelae.cli import arguments
from stelae.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86400), ("7d", 604800), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert arguments.parse_duration(text, "x") == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1 week", "1h30m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no duration"):
        arguments.parse_duration(text, "x")
