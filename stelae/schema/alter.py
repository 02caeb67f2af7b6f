"""What may change in a table's definition, as `ALTER TABLE` says it: columns are added, options are set.

    AlterTable   what a statement asks for; made by stelae/schema/sql.py
    evolve       the versions that there are and a change in, the next version out: no storage

`Warehouse` (stelae/snapshot/warehouse.py) applies it: it reads the versions, and puts the next one if nobody else did.

Everything else about a table is in the bytes that it has stored: keys, buckets, how records were merged. A new column
is not: rows of before read null in it (`RowReader`), so it must be a nullable value column, and it comes last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from stelae.errors import InvalidRequest
from stelae.names import TableName
from stelae.schema.checks import check_table
from stelae.schema.option_parsing import find_option, parse_options
from stelae.schema.options import OPTIONS, TableOptions
from stelae.schema.table_schema import MAX_SCHEMA_ID, Column, TableSchema
from stelae.schema.types import DataType


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to be added; its id is given by `evolve`."""

    name: str
    type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class AlterTable:
    """A statement: what changes, and where."""

    name: TableName
    columns: tuple[NewColumn, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """As written, to be set."""
    if_exists: bool = False
    """No error where there is no such table."""
    if_not_exists: bool = False
    """Columns that are there already are left as they are."""


def evolve(
    schemas: Mapping[int, TableSchema], change: AlterTable, *, stored: Collection[int] | None = None
) -> TableSchema:
    """The next version of a definition, checked; the newest one itself if the change changes nothing.

    `schemas` are all versions by id: ids of columns that any of them had are not given again. `stored`: ids of columns
    that snapshots may have values in, by default all; the options of any other column can still be set.
    """
    newest = schemas[max(schemas)]
    added = new_columns(newest, change)
    empty = {column.name for column in newest.columns if stored is not None and column.id not in stored}
    options = with_options(newest.options, change.options, {*empty, *(column.name for column in added)})
    if not added and options == newest.options:
        return newest
    if newest.id >= MAX_SCHEMA_ID:
        raise InvalidRequest(f"schema id {newest.id + 1} does not fit a row", hint=f"ids end at {MAX_SCHEMA_ID}")
    first_id = 1 + max(column.id for schema in schemas.values() for column in schema.columns)
    columns = [Column(first_id + n, each.name, each.type, each.comment) for n, each in enumerate(added)]
    schema = replace(newest, id=newest.id + 1, columns=(*newest.columns, *columns), options=options)
    check_table(schema)
    return schema


def new_columns(schema: TableSchema, change: AlterTable) -> list[NewColumn]:
    """The columns of a change that the table has not. InvalidRequest for one that can't be new."""
    added = []
    for column in change.columns:
        if column.name in schema.by_name:
            if change.if_not_exists:
                continue
            raise InvalidRequest(
                f"column {column.name!r} exists already",
                place=column.name,
                hint="ADD COLUMN IF NOT EXISTS leaves it as it is",
            )
        if not column.type.nullable:
            raise InvalidRequest(
                f"new column {column.name!r} is NOT NULL, and rows that are stored have no value in it",
                place=column.name,
                hint="leave NOT NULL out",
            )
        added.append(column)
    return added


def with_options(options: TableOptions, changed: Mapping[str, str], empty: Collection[str]) -> TableOptions:
    """Options with some of them set. InvalidRequest, by name, for one that can't change: how a column is merged can't
    once it has values, so columns that are `empty` are free.
    """
    given: dict[str, str] = {}
    for spelling, text in changed.items():
        option = find_option(spelling)
        of_empty = option.is_of_one_column and option.columns[0] in empty
        if not option.alterable and not of_empty:
            alterable = ", ".join(each.name for each in OPTIONS if each.alterable)
            raise InvalidRequest(
                f"option {spelling!r} can't change once a table is created",
                place=f"option {spelling}",
                hint=f"these can: {alterable}",
            )
        if option.name in given:
            raise InvalidRequest(f"option {option.name!r} is given twice", place=f"option {spelling}")
        given[option.name] = text
    return parse_options({**options.given, **given}) if given else options
