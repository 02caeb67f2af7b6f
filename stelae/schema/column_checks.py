"""Whether columns can be columns: their names and types; and what other checks ask of the columns that they name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from stelae.errors import InvalidRequest
from stelae.schema import types
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import DataType

MAX_COLUMN_NAME_LENGTH = 255

RESERVED_PREFIXES = ("__stelae_", "_key_")
RESERVED_NAMES = frozenset(
    (
        *("_bucket", "_sequence_number", "_value_kind", "_level", "_row_id"),  # builds; Paimon
        *("__offset", "__timestamp", "__bucket"),  # Fluss, next to the columns of rows
        *("_change_type", "_log_offset", "_commit_timestamp"),  # Fluss, in changelogs
    )
)
"""Column names, in lower case, that builds, changelogs, Paimon or Fluss need for themselves."""


# --- columns


def check_column_names_differ(columns: Sequence[Column]) -> None:
    """At least one column; no id twice; no two names that differ only in case, which Spark takes for one."""
    if not columns:
        raise InvalidRequest("the table has no columns")
    if len({column.id for column in columns}) != len(columns):
        raise InvalidRequest("two columns have the same id")
    check_names_differ([column.name for column in columns], "column")


def check_names_differ(names: Sequence[str], kind: str, place: str | None = None) -> None:
    seen: dict[str, str] = {}
    for name in names:
        first = seen.get(name.casefold())
        if first == name:
            raise InvalidRequest(
                f"{kind} {name!r} is declared twice", place=place or name, hint="rename one of the two"
            )
        if first is not None:
            raise InvalidRequest(
                f"{kind}s {first!r} and {name!r} differ only in upper and lower case, which Spark takes for one",
                place=place or name,
                hint="rename one of the two",
            )
        seen[name.casefold()] = name


def check_name_is_free(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable() or len(name) > MAX_COLUMN_NAME_LENGTH:
        raise InvalidRequest(
            f"{name!r} cannot be a column name",
            place=name,
            hint=f"1 to {MAX_COLUMN_NAME_LENGTH} printable characters, without spaces at the ends",
        )
    lower = name.lower()
    if lower in RESERVED_NAMES or lower.startswith(RESERVED_PREFIXES):
        raise InvalidRequest(f"column name {name!r} is reserved", place=name, hint="choose another name")


# --- types


def check_type(data_type: DataType, place: str) -> None:
    """Lengths and precisions within their limits, also of the types inside."""
    match data_type:
        case types.Decimal(precision=precision, scale=scale):
            _check_between("the precision of DECIMAL", precision, 1, types.MAX_DECIMAL_PRECISION, place)
            _check_between("the scale of DECIMAL", scale, 0, precision, place)
        case types.String(length=length) | types.Binary(length=length):
            if length is not None:
                _check_between(f"the length of {data_type.sql_name()}", length, 1, types.MAX_LENGTH, place)
        case (
            types.Time(precision=precision)
            | types.Timestamp(precision=precision)
            | types.TimestampLtz(precision=precision)
        ):
            if precision > types.MAX_TIME_PRECISION:
                raise InvalidRequest(
                    f"{data_type.sql_name()} is finer than microseconds, which is what is kept",
                    place=place,
                    hint=f"write {data_type.name}({types.MAX_TIME_PRECISION}), or keep nanoseconds in a BIGINT",
                )
            _check_between(f"the precision of {data_type.name}", precision, 0, types.MAX_TIME_PRECISION, place)
        case types.Array(element=element):
            check_type(element, place)
        case types.Map(key=key, value=value):
            if types.holds_map(key):
                raise InvalidRequest("the key of a MAP holds a MAP, which Spark refuses", place=place)
            check_type(key, place)
            check_type(value, place)
        case types.Row(fields=fields):
            if not fields:
                raise InvalidRequest("a ROW has no fields", place=place)
            check_names_differ([field.name for field in fields], "field", place)
            for field in fields:
                check_type(field.type, f"{place}.{field.name}")


def _check_between(what: str, value: int, low: int, high: int, place: str) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{what} is {value}: expected {low} to {high}", place=place)


# --- columns that something names


def columns_named(schema: TableSchema, names: Sequence[str], by: str) -> list[Column]:
    """The columns that `by` names; each of them exists, and is named once."""
    for name in names:
        if name not in schema.by_name:
            hint = nearest_hint(name, schema.column_names, "columns")
            raise InvalidRequest(f"{by} names column {name!r}, which is not declared", place=name, hint=hint)
        if list(names).count(name) > 1:
            raise InvalidRequest(f"{by} names column {name!r} twice", place=name)
    return [schema.by_name[name] for name in names]


def nearest_hint(name: str, names: Sequence[str], kind: str) -> str:
    near = {known.casefold(): known for known in names}.get(name.casefold())
    near = near or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    return f"did you mean {near!r}?" if near else f"{kind}: {', '.join(names)}"


def check_is_plain(column: Column, use: str) -> None:
    """Nested values have no order and no hash that Spark and Python agree on."""
    if isinstance(column.type, types.NESTED):
        raise InvalidRequest(
            f"column {column.name!r} of {use} is {column.type.sql_name()}",
            place=column.name,
            hint="ARRAY, MAP and ROW can be value columns only",
        )
