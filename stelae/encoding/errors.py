"""What goes wrong in a codec, and how it is said: keys, rows and buckets share it."""

from __future__ import annotations

import struct

from stelae.errors import CorruptData

CONVERSION_ERRORS = (TypeError, ValueError, OverflowError, AttributeError, LookupError, struct.error)
"""What Python raises when a value is not of the physical type of its column, or when bytes are not what was encoded."""

_SHOWN_CHARACTERS = 80
_SHOWN_BYTES = 64


class MalformedError(ValueError):
    """Bytes that are not what was encoded; becomes CorruptData where the whole key or row is known."""


def shown_value(value: object) -> str:
    """The value as Python prints it, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 3] + "..."


def corrupt_bytes(what: str, data: bytes, reason: str, row: int | None = None) -> CorruptData:
    """`what` is key or row; `row` the number of a batch's row, where there is a batch."""
    shown = data.hex() if len(data) <= _SHOWN_BYTES else data[:_SHOWN_BYTES].hex() + "..."
    where = "" if row is None else f" in row {row}"
    return CorruptData(f"{what} bytes {shown}{where} do not decode: {reason}")
