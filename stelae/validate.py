"""Whether a schema can be a table: what CREATE TABLE is checked for, and what every stored schema keeps to.

Each rule is a small function with the rule as its name; `check_table` calls them all, before a schema is stored. They
look at one schema alone: no SQL, no storage. Errors are InvalidRequest with the column or the option as their place.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from stelae import types
from stelae.errors import InvalidRequest
from stelae.schema import Column, TableSchema
from stelae.types import DataType

MAX_COLUMN_NAME_LENGTH = 255
MAX_LENGTH = 2_147_483_647
"""Of CHAR(n), VARCHAR(n), BINARY(n) and VARBINARY(n)."""

RESERVED_PREFIXES = ("__stelae_", "_key_")
RESERVED_NAMES = frozenset(
    (
        *("_bucket", "_sequence_number", "_value_kind", "_level", "_row_id"),  # builds; Paimon
        *("__offset", "__timestamp", "__bucket"),  # Fluss, beside the rows
        *("_change_type", "_log_offset", "_commit_timestamp"),  # Fluss, in changelogs
    )
)
"""Column names, in lower case, that builds, changelogs, Paimon or Fluss need for themselves."""


def check_table(schema: TableSchema) -> None:
    """All rules, in the order in which a reader of the error would fix them."""
    check_columns_are_named_apart(schema.columns)
    for column in schema.columns:
        check_name_is_free(column.name)
        check_type(column.type, column.name)
    check_primary_key(schema)
    check_partition_keys(schema)
    check_bucket_key(schema)
    check_sequence_fields(schema)
    check_rowkind_field(schema)


# --- columns


def check_columns_are_named_apart(columns: Sequence[Column]) -> None:
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
                _check_between(f"the length of {data_type.sql_name()}", length, 1, MAX_LENGTH, place)
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
            if _holds_map(key):
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


def _holds_map(data_type: DataType) -> bool:
    match data_type:
        case types.Map():
            return True
        case types.Array(element=element):
            return _holds_map(element)
        case types.Row(fields=fields):
            return any(_holds_map(field.type) for field in fields)
    return False


# --- keys


def check_primary_key(schema: TableSchema) -> None:
    """There is one; its columns exist, once each, are not nested, and not null unless the table allows it."""
    if not schema.primary_key:
        raise InvalidRequest(
            "the table has no primary key",
            hint="add PRIMARY KEY (...) NOT ENFORCED; tables without one are not supported",
        )
    for column in columns_named(schema, schema.primary_key, "the primary key"):
        check_is_plain(column, "the primary key")
        if column.type.nullable and not schema.options.primary_key_nullable:
            raise InvalidRequest(f"column {column.name!r} of the primary key is nullable", place=column.name)


def check_partition_keys(schema: TableSchema) -> None:
    """They are in the primary key and leave something of it: no key moves between partitions, as it may in Paimon."""
    for column in columns_named(schema, schema.partition_keys, "PARTITIONED BY"):
        if column.name not in schema.primary_key:
            raise InvalidRequest(
                f"partition column {column.name!r} is not in the primary key, so a key could move between partitions",
                place=column.name,
                hint="add it to the primary key; updates across partitions are not supported",
            )
        if column.type.nullable:
            raise InvalidRequest(
                f"partition column {column.name!r} is nullable: 'primary-key.nullable' is for the other key columns",
                place=column.name,
                hint=f"declare {column.name!r} NOT NULL",
            )
    if set(schema.primary_key) == set(schema.partition_keys):
        raise InvalidRequest(
            "the primary key consists of partition columns alone",
            place="primary key",
            hint="add a column to the primary key, or partition by fewer columns",
        )


def check_bucket_key(schema: TableSchema) -> None:
    """It is within the primary key, and without partition columns: all rows of a key meet in one bucket."""
    for column in columns_named(schema, schema.options.bucket_key, "option 'bucket-key'"):
        if column.name in schema.partition_keys:
            raise InvalidRequest(
                f"bucket key column {column.name!r} is a partition column",
                place="option bucket-key",
                hint="leave it out: buckets are within a partition anyway",
            )
        if column.name not in schema.primary_key:
            raise InvalidRequest(
                f"bucket key column {column.name!r} is not in the primary key",
                place="option bucket-key",
                hint="rows of one key must meet in one bucket: choose columns of the primary key",
            )


# --- columns that options name


def check_sequence_fields(schema: TableSchema) -> None:
    for column in columns_named(schema, schema.options.sequence_field, "option 'sequence.field'"):
        check_is_plain(column, "'sequence.field'")
        if column.name in schema.primary_key:
            raise InvalidRequest(
                f"column {column.name!r} of 'sequence.field' is in the primary key, so it orders nothing",
                place="option sequence.field",
                hint="all records of a key have the same value there: choose another column",
            )


def check_rowkind_field(schema: TableSchema) -> None:
    name = schema.options.rowkind_field
    if name is None:
        return
    (column,) = columns_named(schema, (name,), "option 'rowkind.field'")
    if not isinstance(column.type, types.String):
        raise InvalidRequest(
            f"column {name!r} of 'rowkind.field' is {column.type.sql_name()}",
            place="option rowkind.field",
            hint="it must be STRING: it holds +I, -U, +U or -D",
        )
    if name in schema.primary_key:
        raise InvalidRequest(
            f"column {name!r} of 'rowkind.field' is in the primary key, so no delete would meet its row",
            place="option rowkind.field",
            hint="leave it out of the primary key",
        )


# --- shared by the rules


def columns_named(schema: TableSchema, names: Sequence[str], by: str) -> list[Column]:
    """The columns that `by` names; each of them exists, and is named once."""
    for name in names:
        if name not in schema.by_name:
            near = {known.casefold(): known for known in schema.column_names}.get(name.casefold())
            near = near or next(iter(difflib.get_close_matches(name, schema.column_names, n=1)), None)
            known = f"did you mean {near!r}?" if near else f"columns: {', '.join(schema.column_names)}"
            raise InvalidRequest(f"{by} names column {name!r}, which is not declared", place=name, hint=known)
        if list(names).count(name) > 1:
            raise InvalidRequest(f"{by} names column {name!r} twice", place=name)
    return [schema.by_name[name] for name in names]


def check_is_plain(column: Column, use: str) -> None:
    """Nested values have no order and no hash that Spark and Python agree on."""
    if isinstance(column.type, types.NESTED):
        raise InvalidRequest(
            f"column {column.name!r} of {use} is {column.type.sql_name()}",
            place=column.name,
            hint="ARRAY, MAP and ROW can be value columns only",
        )
