"""What a table is: columns, keys, options. One immutable version of it; every stored row names the version it was
written with.

`stelae/schema/sql.py` makes a schema from SQL, `stelae/schema/options.py` types its options,
`stelae/snapshot/warehouse.py` stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.option_parsing import parse_options
from stelae.schema.options import TableOptions
from stelae.schema.types import DataType, decode_type, encode_type

TABLE_FORMAT = 1  # On disk. Never renumber.
MAX_SCHEMA_ID = 0xFFFF
"""Rows name their schema in two bytes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `id` is given once and never reused, so that a renamed or dropped column is never mistaken for
    another.
    """

    id: int
    name: str
    type: DataType
    comment: str | None = None


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's definition.

    Derived, in the order in which data uses it:

        partition_columns   their values name the folder of a partition
        bucket_columns      hashed to the bucket             (by default the key columns)
        key_columns         primary key without the partition columns: the key bytes
        value_columns       all the others: the row bytes
    """

    id: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: TableOptions
    comment: str | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def primary_key_columns(self) -> tuple[Column, ...]:
        """All columns of the primary key, as declared: what a lookup must give."""
        return tuple(self.by_name[name] for name in self.primary_key)

    @cached_property
    def partition_columns(self) -> tuple[Column, ...]:
        return tuple(self.by_name[name] for name in self.partition_keys)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.primary_key_columns if column.name not in self.partition_keys)

    @cached_property
    def bucket_columns(self) -> tuple[Column, ...]:
        names = self.options.bucket_key or tuple(column.name for column in self.key_columns)
        return tuple(self.by_name[name] for name in names)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name not in self.primary_key)

    @cached_property
    def auto_increment(self) -> Column | None:
        """The column with the ids of a dictionary table."""
        return next((self.by_name[name] for name in self.options.auto_increment_fields), None)

    def column(self, name: str) -> Column:
        """The column of that name; an unknown one is the caller's mistake."""
        try:
            return self.by_name[name]
        except KeyError:
            raise InvalidRequest(
                f"unknown column {name!r}", place=name, hint=f"columns: {', '.join(self.column_names)}"
            ) from None

    def encode(self) -> dict[str, object]:
        """The JSON form, as stored in `schema/schema-N.json`."""
        return {
            "format": TABLE_FORMAT,
            "id": self.id,
            "columns": [
                {"id": c.id, "name": c.name, "type": encode_type(c.type), "comment": c.comment} for c in self.columns
            ],
            "primary_key": list(self.primary_key),
            "partition_keys": list(self.partition_keys),
            "options": dict(self.options.given),
            "comment": self.comment,
        }

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> TableSchema:
        """The schema that `encode` wrote."""
        if body.get("format") != TABLE_FORMAT:
            raise CorruptData(
                f"schema format {body.get('format')!r} is not known", hint=f"this version reads format {TABLE_FORMAT}"
            )
        try:
            return cls(
                id=body["id"],
                columns=tuple(
                    Column(c["id"], c["name"], decode_type(c["type"]), c["comment"]) for c in body["columns"]
                ),
                primary_key=tuple(body["primary_key"]),
                partition_keys=tuple(body["partition_keys"]),
                options=parse_options(body["options"]),
                comment=body["comment"],
            )
        except (KeyError, TypeError) as exc:
            raise CorruptData(f"schema lacks or garbles {exc}") from exc
