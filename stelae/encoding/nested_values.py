"""Values of ARRAY, MAP and ROW as JSON, text and Python, made of the codecs of what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from stelae.encoding.value_codec import Read, ValueCodec, Write, as_is, make_codec, mismatch_of, refused
from stelae.errors import InvalidRequest
from stelae.schema.types import NESTED, Array, DataType, Map, Row, String


def array_values(data_type: Array, element: ValueCodec) -> ValueCodec:
    """The codec of an ARRAY."""

    def reader(convert: Read, mismatch: Read, kinds: Any) -> Read:
        def read(value: Any, place: str) -> Any:
            if not isinstance(value, kinds):
                return mismatch(value, place)
            return [convert(item, f"{place}[{i}]") for i, item in enumerate(value)]

        return read

    from_json = reader(element.from_json, mismatch_of(data_type, "an array"), (list,))
    return make_codec(
        data_type,
        from_json,
        _json_text(from_json, data_type),
        _each(element.to_json),
        reader(element.from_python, mismatch_of(data_type, "a list"), (list, tuple)),
        _each(element.to_python),
    )


def _each(convert: Write) -> Write:
    return as_is if convert is as_is else lambda values: [convert(value) for value in values]


def map_values(data_type: Map, key: ValueCodec, item: ValueCodec) -> ValueCodec:
    """The codec of a MAP. Physical values are lists of pairs, in the order in which they came."""
    text_keys = isinstance(data_type.key, String)
    read_json = _MapReader(data_type, key.from_json, item.from_json)
    read_python = _MapReader(data_type, key.from_python, item.from_python)
    pairs = "an array of [key, value]"
    no_object = mismatch_of(data_type, pairs, "an object has keys of type STRING only")
    no_json = mismatch_of(data_type, f"an object or {pairs}" if text_keys else pairs)
    no_python = mismatch_of(data_type, "a dict or a list of pairs")

    def from_json(value: Any, place: str) -> Any:
        if isinstance(value, dict) and not text_keys:
            return no_object(value, place)
        return read_json.pairs(value, place) if isinstance(value, dict | list) else no_json(value, place)

    def from_python(value: Any, place: str) -> Any:
        return read_python.pairs(value, place) if isinstance(value, Mapping | list | tuple) else no_python(value, place)

    return make_codec(
        data_type,
        from_json,
        _json_text(from_json, data_type),
        _map_to_json(key.to_json, item.to_json, text_keys=text_keys),
        from_python,
        _map_to_python(key.to_python, item.to_python, hashable=not isinstance(data_type.key, NESTED)),
    )


class _MapReader:
    """Reads the entries of one form. Each key comes once, and is not null."""

    def __init__(self, data_type: Map, read_key: Read, read_item: Read) -> None:
        self._type, self._read_key, self._read_item = data_type, read_key, read_item

    def pairs(self, entries: Any, place: str) -> list[tuple[Any, Any]]:
        pairs = []
        read_key, read_item = self._read_key, self._read_item
        seen = set()
        listed: Iterable[Any] = entries.items() if isinstance(entries, Mapping) else entries
        for i, entry in enumerate(listed):
            if not isinstance(entry, list | tuple) or len(entry) != 2:
                raise refused(entry, self._type, f"{place}[{i}]", "expected a key and a value")
            name, content = entry
            if name is None:
                raise InvalidRequest(f"{place}[{i}]: a map key is null", place=f"{place}[{i}]")
            physical = read_key(name, f"{place}[{i}] key")
            mark = repr(physical)  # lists are no members of sets
            if mark in seen:
                raise refused(name, self._type.key, place, "the map has this key twice")
            seen.add(mark)
            pairs.append((physical, read_item(content, f"{place}[{name!r}]")))
        return pairs


def _map_to_json(key: Write, item: Write, *, text_keys: bool) -> Write:
    def to_json(pairs: Sequence[tuple[Any, Any]]) -> Any:
        if text_keys:
            whole = {name: item(content) for name, content in pairs}
            if len(whole) == len(pairs):  # Arrow allows a key twice, and nothing may be lost
                return whole
        return [[key(name), item(content)] for name, content in pairs]

    return to_json


def _map_to_python(key: Write, item: Write, *, hashable: bool) -> Write:
    def to_python(pairs: Sequence[tuple[Any, Any]]) -> Any:
        python = [(key(name), item(content)) for name, content in pairs]
        return dict(python) if hashable else python

    return to_python


def row_values(data_type: Row, codecs: Sequence[ValueCodec]) -> ValueCodec:
    """The codec of a ROW. Physical values are tuples of all fields."""
    names = [field.name for field in data_type.fields]
    known = set(names)
    fields_hint = f"fields: {', '.join(names)}"

    def reader(converts: Sequence[Read], mismatch: Read, positional: bool) -> Read:
        def read(value: Any, place: str) -> Any:
            if positional and isinstance(value, tuple) and len(value) == len(names):
                items: Sequence[Any] = value
            elif isinstance(value, Mapping):
                for name in value:
                    if name not in known:
                        raise InvalidRequest(f"{place}: unknown field {name!r}", place=place, hint=fields_hint)
                items = [value.get(name) for name in names]
            else:
                return mismatch(value, place)
            return tuple(
                [convert(item, f"{place}.{name}") for convert, item, name in zip(converts, items, names, strict=True)]
            )

        return read

    def writer(converts: Sequence[Write]) -> Write:
        named = list(zip(names, converts, strict=True))
        return lambda values: {name: convert(value) for (name, convert), value in zip(named, values, strict=True)}

    from_json = reader(
        [c.from_json for c in codecs], mismatch_of(data_type, "an object", fields_hint), positional=False
    )
    return make_codec(
        data_type,
        from_json,
        _json_text(from_json, data_type),
        writer([codec.to_json for codec in codecs]),
        reader(
            [c.from_python for c in codecs],
            mismatch_of(data_type, "a dict or a tuple of all fields", fields_hint),
            True,
        ),
        writer([codec.to_python for codec in codecs]),
    )


def _json_text(from_json: Read, data_type: DataType) -> Callable[[str, str], Any]:
    def from_text(text: str, place: str) -> Any:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            raise refused(text, data_type, place, f"expected JSON ({exc})") from exc
        return from_json(value, place)

    return from_text
