"""Answers to insert-if-not-exists that are asked for again and again, as JSON.

Callers of a dictionary send the same keys over and over: a Zipf distribution, not a uniform one. A row that was
answered once stays the same until the next snapshot, so that its JSON is kept by the key as it came, and a batch of
known keys costs a look into a dict for each of them: no key bytes, no RocksDB, no row to decode.

Two generations bound it: what is asked for goes into the young one; when that is full it becomes the old one, and the
old one is dropped. For keys of one text or integer column, which are those of dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stelae.read.table_reader import TableReader
from stelae.schema.types import BigInt, Int, SmallInt, String, TinyInt

_KINDS: tuple[tuple[type, tuple[type, ...]], ...] = ((str, (String,)), (int, (TinyInt, SmallInt, Int, BigInt)))
"""JSON types whose values are keys as they are, and the column types for which they are."""


class RowCache:
    """JSON of rows, by their keys. About `capacity` of them at most; for one thread."""

    def __init__(self, table: TableReader, capacity: int) -> None:
        schema = table.schema
        self._kinds: set[type] = set()
        self._name = schema.primary_key[0]
        if len(schema.primary_key) == 1 and capacity:
            of = schema.primary_key_columns[0].type
            self._kinds = {kind for kind, types in _KINDS if isinstance(of, types)}
        self._most_young = max(1, capacity // 2)
        self._young: dict[Any, bytes] = {}
        self._old: dict[Any, bytes] = {}

    def values(self, keys: Sequence[Any]) -> Sequence[Any] | None:
        """The bare values of keys that all have the plain form, `"a"` or `{"name": "a"}`; None for all others."""
        kinds = set(map(type, keys))
        if kinds == {dict} and set(map(len, keys)) == {1}:
            try:
                keys = [key[self._name] for key in keys]
            except KeyError:
                return None
            kinds = set(map(type, keys))
        return keys if kinds == self._kinds else None

    def get_many(self, values: Sequence[Any]) -> list[bytes | None]:
        """What is known, aligned with the keys' values."""
        try:
            return list(map(self._young.__getitem__, values))  # mostly all of them
        except KeyError:
            found: list[bytes | None] = list(map(self._young.get, values))
        if self._old:
            old = map(self._old.get, values)
            again = [
                (index, row) for index, (one, row) in enumerate(zip(found, old, strict=True)) if one is None and row
            ]
            for index, row in again:
                found[index] = row
            self.put_many([(values[index], row) for index, row in again])
        return found

    def put_many(self, answers: Sequence[tuple[Any, bytes]]) -> None:
        """Remember the JSON of rows, by the values of their keys."""
        if len(self._young) + len(answers) > self._most_young and self._young:
            self._old, self._young = self._young, {}
        self._young.update(answers)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
