"""What reading needs of a table's definition: codecs, keys from JSON or text, projections. No snapshot, no files.

    key      {"user_id": 42} or 42, or user_id=42 of a URL     ──► physical values, in the order of the primary key
    prefix   {"country": "CH"}                                 ──► physical values by column
    columns  ["name", "score"]                                 ──► Projection, prepared once

InvalidRequest says what is wrong with a request, where, and what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from stelae.encoding.buckets import BucketFunction
from stelae.encoding.key_batch import KeyLayout, KeyValues
from stelae.encoding.keys import KeyCodec
from stelae.encoding.row_reader import RowReader
from stelae.encoding.value_codec import ValueCodec
from stelae.encoding.values import value_codec
from stelae.errors import InvalidRequest, TooLarge
from stelae.read.projection import MAX_PROJECTIONS, Projection
from stelae.schema.key_column_checks import check_prefix_columns, wrong_key_columns
from stelae.schema.table_schema import TableSchema


class TableReader:
    """What reading needs of a table's definition."""

    def __init__(self, schema: TableSchema, schemas: Mapping[int, TableSchema]) -> None:
        self.schema = schema
        self.schemas = schemas
        self.rows = RowReader(schemas, schema)
        self.keys = KeyCodec(schema.key_columns)
        self.buckets = BucketFunction(schema.bucket_columns)
        self.layout = KeyLayout(schema, self.keys, self.buckets)
        self.key_codecs: tuple[tuple[str, ValueCodec], ...] = tuple(
            (c.name, value_codec(c)) for c in schema.primary_key_columns
        )
        """Name and codec of every primary-key column, as declared."""
        self.key_texts: tuple[tuple[str, Callable[[str, str], Any]], ...] = tuple(
            (name, _from_text(codec)) for name, codec in self.key_codecs
        )
        """The same for text: name and what reads it, which takes the text and the name."""
        self._by_name = dict(self.key_codecs)
        self._projections: dict[tuple[str, ...], Projection] = {}
        position = {name: index for index, name in enumerate(schema.primary_key)}
        self.partition_of = _picker([position[c.name] for c in schema.partition_columns], len(position))
        self.key_of = _picker([position[c.name] for c in schema.key_columns], len(position))
        self.bucketed_of = _picker([position[c.name] for c in schema.bucket_columns], len(position))
        self.is_plain = not schema.partition_keys and self.key_of is _whole and self.bucketed_of is _whole
        """Whether the whole primary key is both encoded and hashed, as declared: the usual table has a shorter way."""
        self.all_columns = self.projection(None)

    def projection(self, columns: Sequence[str] | None) -> Projection:
        """The prepared selection of these columns; all of the table's by default."""
        wanted = self.schema.column_names if columns is None else tuple(columns)
        found = self._projections.get(wanted)
        if found is None:
            if not wanted:
                raise InvalidRequest("an empty list of columns selects nothing", place="columns")
            for name in wanted:
                self.schema.column(name)
            if len(set(wanted)) != len(wanted):
                raise InvalidRequest("a column is selected twice", place="columns")
            if len(self._projections) >= MAX_PROJECTIONS:
                self._projections.pop(next(iter(self._projections)))
            found = self._projections[wanted] = Projection(self.schema, self.rows, wanted)
        return found

    def key_from_json(self, key: object) -> KeyValues:
        """A key from JSON: an object with every primary-key column, or the bare value where the key is one column. A
        nullable column may be null, but not left out.
        """
        if type(key) is dict:
            try:
                values = [codec.from_json(key[name], name) for name, codec in self.key_codecs]
            except KeyError:
                raise self._wrong_columns(key) from None
            if len(key) != len(values):
                raise self._wrong_columns(key)
            return tuple(values)
        if len(self.key_codecs) == 1 and type(key) is not list:
            name, codec = self.key_codecs[0]
            return (codec.from_json(key, name),)
        raise InvalidRequest(
            f"a key must be an object, this one is {_json_type(key)}",
            place="keys",
            hint="such as " + orjson.dumps(dict.fromkeys(self.schema.primary_key, "...")).decode(),
        )

    def key_from_text(self, pairs: Mapping[str, str]) -> KeyValues:
        """A key from `column=value` texts, as in a URL. They can't say null."""
        try:
            values = [read(pairs[name], name) for name, read in self.key_texts]
        except KeyError:
            raise self._wrong_columns(pairs, of_text=True) from None
        if len(pairs) != len(values):
            raise self._wrong_columns(pairs)
        return tuple(values)

    def prefix_from_json(self, prefix: object) -> dict[str, Any]:
        """Physical values of a prefix: any of the partition columns, then the first so many key columns."""
        if type(prefix) is not dict:
            raise InvalidRequest(f"a prefix must be an object, this one is {_json_type(prefix)}", place="prefix")
        check_prefix_columns(self.schema, prefix)
        return {name: self._by_name[name].from_json(value, name) for name, value in prefix.items()}

    def whole_key(self, partition: KeyValues, key: KeyValues) -> KeyValues:
        """The whole primary key of partition values and key columns: the inverse of `partition_of` and `key_of`."""
        schema = self.schema
        if not schema.partition_keys:
            return key
        values = dict(zip(schema.partition_keys, partition, strict=True))
        values.update(zip((c.name for c in schema.key_columns), key, strict=True))
        return tuple(values[name] for name in schema.primary_key)

    def _wrong_columns(self, given: Mapping[str, object], *, of_text: bool = False) -> InvalidRequest:
        hint = "its first columns alone: prefix-lookup"
        if of_text and any(codec.type.nullable for name, codec in self.key_codecs if name not in given):
            hint += f"; {_NULL_HINT}"
        return wrong_key_columns(self.schema, given, hint=hint)


_NULL_HINT = "a null key column: POST the key as JSON, with null"


def _from_text(codec: ValueCodec) -> Callable[[str, str], Any]:
    """The conversion from text, with a hint for who wants to say null."""
    if not codec.type.nullable:
        return codec.from_text

    def from_text(text: str, place: str) -> Any:
        try:
            return codec.from_text(text, place)
        except InvalidRequest as exc:
            if text.lower() not in ("", "null", "none"):
                raise
            raise InvalidRequest(exc.message, place=exc.place, hint=_NULL_HINT) from None

    return from_text


def check_batch_size(count: int, most: int, what: str, option: str) -> None:
    """A batch over the limit is refused whole."""
    if count > most:
        raise TooLarge(
            f"{count:,} {what}, at most {most:,} at a time",
            place=what,
            hint=f"send several requests, or raise {option}",
        )


def _picker(positions: Sequence[int], key_length: int) -> Callable[[KeyValues], KeyValues]:
    """A function that takes these positions out of a key; the key itself where they are all of it, in order."""
    wanted = tuple(positions)
    if wanted == tuple(range(key_length)):
        return _whole
    return lambda key: tuple([key[position] for position in wanted])


def _whole(key: KeyValues) -> KeyValues:
    return key


def _json_type(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "an object")
