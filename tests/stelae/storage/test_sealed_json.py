"""Goal: a small sealed file is read exactly as it was written, or refused.

Method: every single-byte change and every cut; fields that lack, that are too many, and values of another type, each
alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from stelae.errors import CorruptData
from stelae.storage.checksum import checksum
from stelae.storage.sealed_json import open_sealed_json, open_sealed_object, seal_json

BODY = {"format": 1, "name": "über", "list": [1, {"a": None}], "empty": {}}
SEALED = (
    b'{\n  "format": 1,\n  "name": "\xc3\xbcber",\n  "list": [\n    1,\n    {\n      "a": null\n    }\n  ],\n'
    b'  "empty": {},\n'
    b'  "checksum": "xxh3-128:60a74604f3f8fe3f0ac1afb58dd1c30b"\n}\n'
)

GOOD = {"format": 1, "count": 2**63 - 1, "name": "", "url": None}


def read(body: dict[str, Any]) -> dict[str, Any]:
    found = open_sealed_object(seal_json(body), GOOD.keys(), 1, "the place")
    return {
        "format": found.count("format"),
        "count": found.count("count"),
        "name": found.text("name"),
        "url": found.text_or_null("url"),
    }


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


def test_seal_golden_bytes() -> None:
    assert seal_json(BODY) == SEALED
    assert open_sealed_json(SEALED, "here") == BODY


def test_every_changed_byte_is_noticed() -> None:
    for position in range(len(SEALED)):
        for flip in (0x01, 0x20, 0x80):
            broken = bytearray(SEALED)
            broken[position] ^= flip
            with pytest.raises(CorruptData):
                open_sealed_json(bytes(broken), "here")


def test_every_cut_is_noticed() -> None:
    for size in range(len(SEALED)):
        with pytest.raises(CorruptData):
            open_sealed_json(SEALED[:size], "here")


def test_sealed_non_objects_are_refused() -> None:
    head = b"[1"
    with pytest.raises(CorruptData):
        open_sealed_json(head + b',\n  "checksum": "' + checksum(head).encode() + b'"\n}\n', "here")
