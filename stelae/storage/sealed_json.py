"""Small sealed JSON files of flat, closed fields: claims of ids, epochs of ownership.

    FIELDS = {"format": (int,), "owner": (str,), "url": (str, NoneType)}
    fields = open_sealed_fields(data, FIELDS, 1, place)

Sealed as all JSON files are (`stelae/storage/checksum.py`), then read strictly: exactly these fields, each of one of
its types. Whole numbers are counts from 0 to 2^63 - 1; true is not 1, and neither is 1.0. Invariants are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stelae.errors import CorruptData
from stelae.storage.checksum import open_sealed_json

MAX_COUNT = (1 << 63) - 1

FieldTypes = Mapping[str, tuple[type, ...]]
"""Types that each field may have in JSON."""


def open_sealed_fields(data: bytes, types: FieldTypes, file_format: int, place: str) -> dict[str, Any]:
    """The fields of a sealed file. `place` names it in errors; anything off is CorruptData."""
    body = open_sealed_json(data, place)
    # First of all: another format has other fields.
    if type(body.get("format")) is not int or body["format"] != file_format:
        raise CorruptData(
            f"format {body.get('format')!r} is not known",
            place=place,
            hint=f"this version reads format {file_format}; a newer one may have written the file",
        )
    if body.keys() != types.keys():
        odd = [f"lacks {name}" for name in sorted(types.keys() - body.keys())]
        odd += [f"has the unknown field {name}" for name in sorted(body.keys() - types.keys())]
        raise CorruptData(f"the object {', '.join(odd)}", place=place)
    for name, value in body.items():
        if type(value) not in types[name] or (type(value) is int and not 0 <= value <= MAX_COUNT):
            expected = " or ".join(_NAMES[kind] for kind in types[name])
            raise CorruptData(f"field {name}: expected {expected}, found {value!r:.80}", place=place)
    return body


_NAMES = {int: "a whole number from 0", str: "a text", type(None): "null"}
