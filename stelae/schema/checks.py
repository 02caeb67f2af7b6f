"""Whether a schema can be a table: what CREATE TABLE is checked for, and what every stored schema keeps to.

Each rule is a small function with the rule as its name; `check_table` calls them all, before a schema is stored. They
look at one schema alone: no SQL, no storage. Errors are InvalidRequest with the column or the option as their place.

    column_checks.py   names and types
    here               keys, and single columns with a part of their own
    merge_checks.py    how records become rows
"""

from __future__ import annotations

from stelae.errors import InvalidRequest
from stelae.schema import types
from stelae.schema.column_checks import (
    check_column_names_differ,
    check_is_plain,
    check_name_is_free,
    check_type,
    columns_named,
)
from stelae.schema.merge_checks import check_merging
from stelae.schema.option_parsing import given_column_options
from stelae.schema.options import TableOptions
from stelae.schema.table_schema import TableSchema


def check_table(schema: TableSchema) -> None:
    """All rules, in the order in which a reader of the error would fix them."""
    check_column_names_differ(schema.columns)
    for column in schema.columns:
        check_name_is_free(column.name)
        check_type(column.type, column.name)
    check_primary_key(schema)
    check_partition_keys(schema)
    check_bucket_key(schema)
    check_sequence_fields(schema)
    check_rowkind_field(schema)
    check_auto_increment(schema)
    check_merging(schema)


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


def check_auto_increment(schema: TableSchema) -> None:
    """One column, INT or BIGINT, outside of the key, with which nothing else is done."""
    names, place = schema.options.auto_increment_fields, "option auto-increment.fields"
    if len(names) > 1:
        raise InvalidRequest(
            f"option 'auto-increment.fields' names {len(names)} columns: {', '.join(names)}",
            place=place,
            hint="a table has one column of ids",
        )
    for column in columns_named(schema, names, "option 'auto-increment.fields'"):
        if not isinstance(column.type, types.Int | types.BigInt):
            raise InvalidRequest(
                f"auto-increment column {column.name!r} is {column.type.sql_name()}",
                place=place,
                hint="it must be INT (ids up to 2,147,483,647) or BIGINT",
            )
        if column.name in schema.primary_key:
            raise InvalidRequest(
                f"auto-increment column {column.name!r} is in the primary key, so nobody could look it up",
                place=place,
                hint="the key is what gets an id: leave the column out of it",
            )
        for name in _options_naming(column.name, schema.options):
            raise InvalidRequest(
                f"option {name!r} names auto-increment column {column.name!r}",
                place=f"option {name}",
                hint="an id never changes, so it orders nothing and is not merged: leave it out",
            )


def _options_naming(column: str, options: TableOptions) -> list[str]:
    """Options by which records are ordered or merged, and that name the column."""
    of_table = {
        "sequence.field": options.sequence_field,
        "rowkind.field": (options.rowkind_field,),
        "merge-engine.versioned.ver-column": (options.version_column,),
    }
    of_columns = [option.name for option in given_column_options(options) if column in option.columns]
    members = [f"fields.{','.join(g.sequence)}.sequence-group" for g in options.sequence_groups if column in g.members]
    return [*(name for name, columns in of_table.items() if column in columns), *of_columns, *members]
