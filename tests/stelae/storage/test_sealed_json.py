"""Goal: a small sealed file is read exactly as it was written, or refused.

Method: fields that lack, that are too many, and values of another type, each alone.
"""

from __future__ import annotations

from types import NoneType
from typing import Any

import pytest

from stelae.errors import CorruptData
from stelae.storage.checksum import seal_json
from stelae.storage.sealed_json import open_sealed_fields

TYPES = {"format": (int,), "count": (int,), "name": (str,), "url": (str, NoneType)}
GOOD = {"format": 1, "count": 2**63 - 1, "name": "", "url": None}


def read(body: dict[str, Any]) -> dict[str, Any]:
    return open_sealed_fields(seal_json(body), TYPES, 1, "the place")


@pytest.mark.parametrize("body", [GOOD, {**GOOD, "url": "http://a"}, {**GOOD, "count": 0}])
def test_what_is_read(body: dict[str, Any]) -> None:
    assert read(body) == body


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({**GOOD, "format": 2}, "format 2 is not known"),
        ({**GOOD, "format": True}, "format True is not known"),
        ({**GOOD, "more": 1}, "has the unknown field more"),
        ({name: GOOD[name] for name in ("format", "name")}, "lacks count, lacks url"),
        ({**GOOD, "count": -1}, "count: expected a whole number from 0, found -1"),
        ({**GOOD, "count": 2**63}, "count: expected"),
        ({**GOOD, "count": 1.0}, "count: expected"),
        ({**GOOD, "count": True}, "count: expected"),
        ({**GOOD, "count": None}, "count: expected"),
        ({**GOOD, "name": None}, "name: expected a text, found None"),
        ({**GOOD, "url": 1}, "url: expected a text or null, found 1"),
    ],
)
def test_what_is_refused(body: dict[str, Any], told: str) -> None:
    with pytest.raises(CorruptData, match=told) as refused:
        read(body)
    assert refused.value.place == "the place"
