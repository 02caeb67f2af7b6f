"""Cases as data: merge semantics that a reviewer reads without reading code.

`load` gives the cases of a file; README.md says what a case may have. The runners turn
values as YAML has them (DECIMAL and timestamps as text, BINARY as `0x...`, ROW as a list of its fields, a bitmap as the
list of its numbers) into Python values by the column's type.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import yaml

from stelae.encoding.values import value_codec
from stelae.schema import types as t
from stelae.schema.table_schema import Column, TableSchema

Record = list[Any]
"""Row kind, then the values in schema order, as YAML has them."""

FILES = ("deduplicate", "first_row", "versioned", "partial_update", "aggregation", "fluss")


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
    alternative_rows: list[list[Any]] | None = None
    """Acceptable as well."""
    error: str | None = None
    message: tuple[str, ...] = ()
    """Parts of the error's text."""
    loose_input: bool = False
    """Input values may have more fractional digits or be longer than their column allows."""
    input_types: Mapping[str, str] = field(default_factory=dict)
    """Columns whose input has another type than the table, as SQL."""
    encode: Mapping[str, str] = field(default_factory=dict)
    """Columns that hold bitmaps or sketches, and which: rbm32, rbm64, hll_sketch, theta_sketch."""
    unordered_columns: tuple[str, ...] = ()
    approx_columns: tuple[str, ...] = ()
    add_columns: Mapping[int, list[dict[str, str]]] = field(default_factory=dict)
    """Columns that the table gets before the batch of that index."""
    targets: Mapping[int, list[str]] = field(default_factory=dict)
    """The columns that the batch of that index sets; without an entry, all of them."""

    @property
    def rejected_at_create(self) -> bool:
        return self.error == "rejected at create"

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
    cases = []
    for case in raw:
        message = case.get("message", ())
        cases.append(
            Case(
                name=case["name"],
                columns=case["schema"],
                primary_key=case["primary_key"],
                partition_by=case.get("partition_by", []),
                options={key: str(value) for key, value in case["options"].items()},
                batches=case.get("batches") or [],
                rows=case.get("rows"),
                alternative_rows=case.get("alternative_rows"),
                error=case.get("error"),
                message=(message,) if isinstance(message, str) else tuple(message),
                loose_input=case.get("loose_input", False),
                input_types=case.get("input_types", {}),
                encode=case.get("encode", {}),
                unordered_columns=tuple(case.get("unordered_columns", ())),
                approx_columns=tuple(case.get("approx_columns", ())),
                add_columns=case.get("add_columns", {}),
                targets=case.get("targets", {}),
            )
        )
    return cases


# --- values


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


# --- comparing


def expected_rows(case: Case, types: Sequence[t.DataType], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows of a case as `comparable` values."""
    names = [column["name"] for column in (*case.columns, *(c for added in case.add_columns.values() for c in added))]
    return [
        [
            comparable(case, name, of, numbers_of(value) if name in case.encode else to_python(of, value))
            for name, of, value in zip(names, types, row, strict=True)
        ]
        for row in rows
    ]


def numbers_of(value: list[int] | None) -> frozenset[int] | None:
    """What a bitmap or sketch holds, as a case writes it."""
    return None if value is None else frozenset(value)


def comparable(case: Case, column: str, data_type: t.DataType, value: Any) -> Any:
    """A Python value in the form in which two of them are compared; lists show well when they differ."""
    if value is None:
        return None
    if column in case.encode:
        return len(value) if case.encode[column].endswith("sketch") else sorted(value)
    plain = plain_value(data_type, value)
    if column in case.unordered_columns:
        return sorted(plain, key=repr)
    if column in case.approx_columns:
        return round(plain, 3) + 0.0
    return plain


def plain_value(data_type: t.DataType, value: Any) -> Any:
    """The same value for every library that gives it: ROW as a list, MAP as sorted pairs, NaN as text."""
    match data_type, value:
        case _, None:
            return None
        case t.Array(element=element), _:
            return [plain_value(element, item) for item in value]
        case t.Map(key=key, value=of), _:
            pairs = value.items() if isinstance(value, Mapping) else value
            return sorted(([plain_value(key, k), plain_value(of, v)] for k, v in pairs), key=repr)
        case t.Row(fields=fields), _:
            cells = [value[f.name] for f in fields] if isinstance(value, Mapping) else value
            return [plain_value(f.type, cell) for f, cell in zip(fields, cells, strict=True)]
        case ((t.Float() | t.Double()), _):
            return "NaN" if math.isnan(value) else value
        case t.Decimal(scale=scale), Decimal():
            return str(value.quantize(Decimal(1).scaleb(-scale), context=Context(prec=76)))
        case t.TimestampLtz(), dt.datetime():
            return value.astimezone(dt.UTC).isoformat()
        case ((t.Timestamp() | t.Date() | t.Time()), _):
            return value.isoformat()
        case _:
            return value
