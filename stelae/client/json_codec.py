"""What a client knows of a table, for JSON: how its keys are sent, and what its rows are in Python.

Values are typed by the schema (`stelae/encoding/values.py`), so a DECIMAL is a `Decimal` and a DATE a `date`. Text and
integers are JSON as they are: keys of such columns are checked all at once, and rows of such columns are not touched.
The same for Arrow is in `stelae/client/arrow_codec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from stelae.encoding.value_codec import as_is
from stelae.encoding.values import type_codec
from stelae.errors import InvalidRequest
from stelae.schema.key_column_checks import wrong_key_columns
from stelae.schema.table_schema import TableSchema
from stelae.schema.types import Integer, String

if TYPE_CHECKING:
    from stelae.client.arrow_codec import ArrowCodec
    from stelae.schema.table_schema import Column

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = Any
"""A mapping of every primary-key column to its value; of a key of one column also the bare value."""


class JsonCodec:
    """What the client knows of a table: how its values look in JSON and in Python."""

    def __init__(self, schema: TableSchema, schemas: Sequence[TableSchema] = ()) -> None:
        """`schemas` are all versions of `schema` that rows may be of."""
        self.schema = schema
        self.schemas = {version.id: version for version in (*schemas, schema)}
        self._single = schema.primary_key[0] if len(schema.primary_key) == 1 else None
        self._to_json = {column.name: _to_json(column.name, column.type) for column in schema.columns}
        converts = {column.name: _to_python(column.name, column.type) for column in schema.columns}
        self._to_python = [(name, convert) for name, convert in converts.items() if convert is not None]
        self._plain = _PlainKeys.of(schema.primary_key_columns)

    @cached_property
    def arrow(self) -> ArrowCodec:
        """The same for Arrow."""
        from stelae.client.arrow_codec import ArrowCodec

        return ArrowCodec(self.schema, self.schemas)

    def keys_to_json(self, keys: list[Any]) -> list[Any]:
        """Keys as JSON. An error says which of them is wrong, as a server does."""
        if self._plain is not None:
            plain = self._plain.to_json(keys)
            if plain is not None:
                return plain
        converted: list[dict[str, Any]] = []
        wanted = set(self.schema.primary_key)
        try:
            for key in keys:
                values_json = self.key_to_json(key)
                if values_json.keys() != wanted:
                    raise wrong_key_columns(self.schema, values_json, place="key")
                converted.append(values_json)
        except InvalidRequest as exc:
            place = f"keys[{len(converted)}]" + (f".{exc.place}" if exc.place and exc.place != "key" else "")
            raise InvalidRequest(exc.message, place=place, hint=exc.hint) from exc
        return converted

    def key_to_json(self, key: object) -> dict[str, Any]:
        """A key, or a prefix of one, as JSON. What it lacks is for the server to say."""
        if not isinstance(key, Mapping):
            if self._single is None or isinstance(key, list | tuple):
                raise InvalidRequest(
                    f"a key of this table maps {', '.join(self.schema.primary_key)} to values, this one is {key!r}",
                    place="key",
                    hint=f"such as {{{', '.join(f'{name!r}: ...' for name in self.schema.primary_key)}}}",
                )
            return {self._single: self._to_json[self._single](key)}
        try:
            return {name: self._to_json[name](value) for name, value in key.items()}
        except KeyError as exc:
            self.schema.column(exc.args[0])  # Says what columns there are.
            raise

    def fits(self, rows: list[Any]) -> bool:
        """Whether rows of an answer are of this schema. All rows of an answer have the same columns."""
        first: Row = next((row for row in rows if row is not None), {})
        return all(name in self._to_json for name in first)

    def rows_to_python(self, rows: list[Any]) -> list[Any]:
        """The rows with Python values, changed in place."""
        if not self._to_python:
            return rows
        for row in rows:
            if row is not None:
                for name, convert in self._to_python:
                    value = row.get(name)
                    if value is not None:
                        row[name] = convert(value)
        return rows


@dataclass(frozen=True, slots=True)
class _PlainColumn:
    """A key column of text or integers, which are JSON as they are."""

    name: str
    kind: type
    length: int | None
    """Most characters of a text."""
    bounds: tuple[int, int]
    """Least and greatest integer."""

    @classmethod
    def of(cls, column: Column) -> _PlainColumn | None:
        """None for a column of another type."""
        if isinstance(column.type, String):
            return cls(column.name, str, column.type.length, (0, 0))
        if isinstance(column.type, Integer):
            bound = 1 << (column.type.bits - 1)
            return cls(column.name, int, None, (-bound, bound - 1))
        return None

    def fits(self, values: list[Any]) -> bool:
        """Whether all of some values may be sent as they are; at least one."""
        if set(map(type, values)) != {self.kind}:
            return False
        if self.kind is int:
            return bool(self.bounds[0] <= min(values) and max(values) <= self.bounds[1])
        if self.length is not None and max(map(len, values)) > self.length:
            return False
        text = "".join(values)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                return False
        return True


class _PlainKeys:
    """Keys of text and integers: checked all at once, with no call a key."""

    def __init__(self, columns: Sequence[_PlainColumn]) -> None:
        self._columns = columns

    @classmethod
    def of(cls, columns: Sequence[Column]) -> _PlainKeys | None:
        """None where a column is of another type."""
        plain = [of for column in columns if (of := _PlainColumn.of(column)) is not None]
        return cls(plain) if len(plain) == len(columns) else None

    def to_json(self, keys: list[Any]) -> list[Any] | None:
        """Keys that are all bare values, or all whole mappings. None where one is of another form, or wrong."""
        single = self._columns[0] if len(self._columns) == 1 else None
        kinds = set(map(type, keys))
        if kinds != {dict}:
            return keys if single is not None and keys and single.fits(keys) else None
        if set(map(len, keys)) != {len(self._columns)}:
            return None
        try:
            values = [list(map(itemgetter(column.name), keys)) for column in self._columns]
        except KeyError:
            return None
        if not all(map(_PlainColumn.fits, self._columns, values)):
            return None
        return keys if single is None else values[0]


def _to_json(name: str, data_type: Any) -> Callable[[Any], Any]:
    codec = type_codec(data_type)
    from_python, to_json = codec.from_python, codec.to_json
    if to_json is as_is:
        return lambda value: from_python(value, name)
    return lambda value: to_json(from_python(value, name))


def _to_python(name: str, data_type: Any) -> Callable[[Any], Any] | None:
    """The conversion of a JSON value that is not null; None where there is nothing to do."""
    codec = type_codec(data_type)
    if codec.to_json is as_is and codec.to_python is as_is:
        return None
    from_json, to_python = codec.from_json, codec.to_python
    return lambda value: to_python(from_json(value, name))
