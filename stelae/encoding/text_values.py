"""Values of STRING and BINARY as JSON, text and Python."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from stelae.encoding.value_codec import ValueCodec, as_is, make_codec, mismatch_of, refused
from stelae.schema.types import Binary, String


def string_values(data_type: String) -> ValueCodec:
    """The codec of STRING."""
    length = data_type.length
    mismatch = mismatch_of(data_type, "a string")

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        if length is not None and len(value) > length:
            raise refused(value, data_type, place, f"it has {len(value)} characters")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise refused(value, data_type, place, "half of a surrogate pair is no character") from exc
        return value

    return make_codec(data_type, from_json, from_json, as_is, from_json, as_is)


def binary_values(data_type: Binary) -> ValueCodec:
    """The codec of BINARY."""
    length = data_type.length
    expected = "a string of base64, padded with ="
    mismatch = mismatch_of(data_type, expected)
    mismatch_python = mismatch_of(data_type, "bytes")

    def checked(value: bytes, given: Any, place: str) -> bytes:
        if length is not None and len(value) > length:
            raise refused(given, data_type, place, f"it has {len(value)} bytes")
        return value

    def from_json(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return mismatch(value, place)
        try:
            return checked(binascii.a2b_base64(value, strict_mode=True), value, place)
        except ValueError as exc:
            raise refused(value, data_type, place, f"expected {expected} ({exc})") from exc

    def from_text(text: str, place: str) -> Any:
        return from_json(text.replace("-", "+").replace("_", "/"), place)

    def from_python(value: Any, place: str) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            return checked(bytes(value), value, place)
        return mismatch_python(value, place)

    return make_codec(data_type, from_json, from_text, _base64, from_python, as_is)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
