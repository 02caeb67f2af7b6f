"""Small JSON files that carry their own checksum, and are read strictly: manifests, schemas, claims of ids, epochs.

    {..., "checksum": "xxh3-128:..."}

    data = seal_json(fields)
    body = open_sealed_object(data, FIELDS, EPOCH_FORMAT, place)
    body.count("number"), body.text("owner"), body.text_or_null("url")

The seal covers bytes, not values: every byte before the comma that precedes `"checksum"`. What follows has a fixed
form. So a reader in any language verifies it without having to print JSON as Python does, and a change of any one byte
is noticed. docs/format.md#layout is the contract.

Strictly: exactly these fields, each of its type. Whole numbers are counts from 0 to 2^63 - 1; true is not 1, and
neither is 1.0. Invariants are the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

from stelae.errors import CorruptData
from stelae.storage.checksum import CHECKSUM_NAME, checksum

MAX_COUNT = (1 << 63) - 1

_SEAL_HEAD = b',\n  "checksum": "'
_SEAL_TAIL = b'"\n}\n'
_SEAL_BYTES = len(_SEAL_HEAD) + len(CHECKSUM_NAME) + 1 + 32 + len(_SEAL_TAIL)
_KEEP = "keep the file for the diagnosis; restore it from a copy, or go back to a snapshot that can be read"


def seal_json(body: Mapping[str, Any]) -> bytes:
    """A JSON object, indented for people, with its checksum as the last member. `body` must not be empty.

    A dataclass in it is an object of its fields, in their order; bytes are hexadecimal digits.
    """
    head = orjson.dumps(body, default=bytes.hex, option=orjson.OPT_INDENT_2).removesuffix(b"\n}")
    return head + _SEAL_HEAD + checksum(head).encode() + _SEAL_TAIL


def open_sealed_json(data: bytes, place: str) -> dict[str, Any]:
    """The object that `seal_json` sealed, without its checksum. Any other bytes are CorruptData."""
    head, seal = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not (seal.startswith(_SEAL_HEAD) and seal.endswith(_SEAL_TAIL)):
        raise CorruptData(f"the file does not end in its checksum ({len(data)} bytes)", place=place, hint=_KEEP)
    stored = seal[len(_SEAL_HEAD) : -len(_SEAL_TAIL)].decode(errors="replace")
    actual = checksum(head)
    if stored != actual:
        raise CorruptData(f"the file says checksum {stored}, its bytes have {actual}", place=place, hint=_KEEP)
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise CorruptData(f"the file is not JSON: {exc}", place=place, hint=_KEEP) from exc
    if not isinstance(body, dict):
        raise CorruptData(f"expected a JSON object, found {type(body).__name__}", place=place, hint=_KEEP)
    body.pop("checksum", None)
    return body


def open_sealed_object(data: bytes, names: Collection[str], file_format: int, place: str) -> JsonObject:
    """The object in a sealed file of these fields, of which `format` is one. `place` names the file in errors; anything
    off is CorruptData.
    """
    body = open_sealed_json(data, place)
    # First of all: another format has other fields.
    if type(body.get("format")) is not int or body["format"] != file_format:
        raise CorruptData(
            f"format {body.get('format')!r} is not known",
            place=place,
            hint=f"this version reads format {file_format}; a newer one may have written the file",
        )
    return JsonObject(body, names, place)


class JsonObject:
    """A JSON object with exactly the fields that it should have. Each is read as one type, or is CorruptData."""

    def __init__(self, body: Any, names: Collection[str], place: str) -> None:
        self._place = place
        if not isinstance(body, dict):
            raise self._wrong("", "an object", body)
        if body.keys() != names:
            odd = [f"lacks {name}" for name in sorted(names - body.keys())]
            odd += [f"has the unknown field {name}" for name in sorted(body.keys() - names)]
            raise CorruptData(f"the object {', '.join(odd)}", place=place)
        self._body = body

    def count(self, name: str) -> int:
        value = self._body[name]
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise self._wrong(name, "a whole number from 0", value)
        return value

    def count_or_null(self, name: str) -> int | None:
        return None if self._body[name] is None else self.count(name)

    def text(self, name: str) -> str:
        value = self._body[name]
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def text_or_null(self, name: str) -> str | None:
        value = self._body[name]
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text or null", value)
        return value

    def hex(self, name: str) -> bytes:
        """Bytes, as lower-case hexadecimal digits."""
        text = self.text(name)
        try:
            value = bytes.fromhex(text)
        except ValueError as exc:
            raise self._wrong(name, "hexadecimal digits", text) from exc
        if value.hex() != text:  # fromhex also takes spaces and capitals
            raise self._wrong(name, "lower-case hexadecimal digits", text)
        return value

    def texts(self, name: str) -> dict[str, str]:
        """An object of any names."""
        value = self._body[name]
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise self._wrong(name, "an object of texts", value)
        return value

    def scalars(self, name: str) -> tuple[str | int | float | bool, ...]:
        value = self._list(name)
        if not all(isinstance(item, str | int | float | bool) for item in value):
            raise self._wrong(name, "texts, numbers and booleans", value)
        return tuple(value)

    def child(self, name: str, names: Collection[str]) -> JsonObject:
        return JsonObject(self._body[name], names, f"{self._place}: {name}")

    def children(self, name: str, names: Collection[str]) -> Iterator[JsonObject]:
        for index, item in enumerate(self._list(name)):
            yield JsonObject(item, names, f"{self._place}: {name}[{index}]")

    def _list(self, name: str) -> list[Any]:
        value = self._body[name]
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def _wrong(self, name: str, expected: str, found: object) -> CorruptData:
        what = f"field {name}" if name else "the value"
        return CorruptData(f"{what}: expected {expected}, found {found!r:.80}", place=self._place)
