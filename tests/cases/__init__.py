"""Cases as data: merge semantics that a reviewer reads without reading code.

`load` gives the cases of a file. The runners turn values as YAML has them (DECIMAL and timestamps as text, BINARY as
`0x...`, ROW as a list of its fields) into Python values and back, by the column's type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stelae import types as t
from stelae.schema import Column, TableSchema
from stelae.values import value_codec

Record = list[Any]
"""Row kind, then the values in schema order, as YAML has them."""


@dataclass(frozen=True)
class Case:
    """One case: a table, its input, and what it holds afterwards or how it is refused."""

    name: str
    columns: list[dict[str, str]]
    primary_key: list[str]
    partition_by: list[str]
    options: dict[str, str]
    batches: list[list[Record]]
    rows: list[list[Any]] | None = None
    error: str | None = None
    message: str = ""
    loose_input: bool = False
    """Input values may have more fractional digits or be longer than their column allows."""

    def sql(self, table: str) -> str:
        columns = ", ".join(f"{t.quote_name(c['name'])} {c['type']}" for c in self.columns)
        options = ", ".join(f"'{name}' = '{value}'" for name, value in self.options.items())
        key = (
            f", PRIMARY KEY ({', '.join(map(t.quote_name, self.primary_key))}) NOT ENFORCED" if self.primary_key else ""
        )
        partition = f" PARTITIONED BY ({', '.join(map(t.quote_name, self.partition_by))})" if self.partition_by else ""
        return f"CREATE TABLE {table} ({columns}{key}){partition}" + (f" WITH ({options})" if options else "")


def load(name: str) -> list[Case]:
    """The cases of `tests/cases/<name>.yaml`."""
    raw = yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
    return [
        Case(
            name=case["name"],
            columns=case["schema"],
            primary_key=case["primary_key"],
            partition_by=case.get("partition_by", []),
            options={key: str(value) for key, value in case["options"].items()},
            batches=case["batches"] or [],
            rows=case.get("rows"),
            error=case.get("error"),
            message=case.get("message", ""),
            loose_input=case.get("loose_input", False),
        )
        for case in raw
    ]


def to_python(data_type: t.DataType, value: Any) -> Any:
    """A value as YAML has it, as the Python value that Spark takes."""
    if value is None:
        return None
    match data_type:
        case t.Binary():
            return bytes.fromhex(value.removeprefix("0x"))
        case t.Array(element=element):
            return [to_python(element, item) for item in value]
        case t.Map(key=key, value=of):
            return {to_python(key, k): to_python(of, v) for k, v in value.items()}
        case t.Row(fields=fields):
            return tuple(to_python(f.type, item) for f, item in zip(fields, value, strict=True))
        case _:
            codec = value_codec(Column(0, "value", data_type))
            return codec.to_python(codec.from_json(value, "value"))


def python_rows(schema: TableSchema, rows: Sequence[Sequence[Any]], *, loose: bool = False) -> list[tuple[Any, ...]]:
    """Rows of a case as Python values. `loose` takes values as they are, whatever the column allows."""
    columns = [loosened(c.type) if loose else c.type for c in schema.columns]
    return [tuple(to_python(of, value) for of, value in zip(columns, row, strict=True)) for row in rows]


def loosened(data_type: t.DataType) -> t.DataType:
    """The type without a limit of length or of fractional digits."""
    match data_type:
        case t.String():
            return t.String(nullable=data_type.nullable)
        case t.Timestamp():
            return t.Timestamp(nullable=data_type.nullable, precision=6)
        case t.TimestampLtz():
            return t.TimestampLtz(nullable=data_type.nullable, precision=6)
        case t.Array(element=element):
            return dataclasses.replace(data_type, element=loosened(element))
        case t.Map(key=key, value=of):
            return dataclasses.replace(data_type, key=loosened(key), value=loosened(of))
        case t.Row(fields=fields):
            return dataclasses.replace(data_type, fields=tuple(t.Field(f.name, loosened(f.type)) for f in fields))
        case _:
            return data_type
