"""Which columns a key, or a prefix of one, has to give: one rule, and one message, for the server, its clients, Spark
and the command line.

    check_key_columns      exactly those of the primary key, in any order
    wrong_key_columns      the error of the above, for who noticed on its own that they differ
    check_within_key       some of the primary key
    check_prefix_columns   any partition columns, then the first so many key columns
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from stelae.errors import InvalidRequest

if TYPE_CHECKING:
    from stelae.schema.table_schema import TableSchema  # reads all declarations of options: not for `stelae --help`


def check_key_columns(
    schema: TableSchema, given: Collection[str], *, table: str = "", place: str | None = None, hint: str = ""
) -> None:
    """InvalidRequest unless `given` are the columns of the primary key, once each, in any order.

    `table` is named in the message, where it is not clear which table is meant. `place` is that of the error, by
    default the columns in question. `hint` says what else may be done where columns are missing.
    """
    if sorted(given) != sorted(schema.primary_key):
        raise wrong_key_columns(schema, given, table=table, place=place, hint=hint)


def wrong_key_columns(
    schema: TableSchema, given: Collection[str], *, table: str = "", place: str | None = None, hint: str = ""
) -> InvalidRequest:
    """The error for columns that are not those of the primary key: all that is wrong with them."""
    of = f" of {table}" if table else ""
    unknown = [name for name in given if name not in schema.primary_key]
    missing = [name for name in schema.primary_key if name not in given]
    wrong = []
    if unknown:
        wrong.append(_not_in_key(schema, unknown[0], of))
    if missing:
        wrong.append(f"the key{of} lacks {', '.join(missing)}")
    if not wrong:
        wrong.append(f"a column of the key{of} is given twice")
    return InvalidRequest(
        "; ".join(wrong),
        place=place or (unknown[0] if unknown else ", ".join(missing) or None),
        hint="; ".join(filter(None, (_key_hint(schema), hint if missing else ""))),
    )


def check_within_key(schema: TableSchema, given: Collection[str], *, table: str = "", place: str | None = None) -> None:
    """InvalidRequest unless all of `given` are columns of the primary key."""
    of = f" of {table}" if table else ""
    for name in given:
        if name not in schema.primary_key:
            raise InvalidRequest(_not_in_key(schema, name, of), place=place or name, hint=_key_hint(schema))


def check_prefix_columns(
    schema: TableSchema, given: Collection[str], *, table: str = "", place: str = "prefix"
) -> None:
    """InvalidRequest unless rows can be found by `given`: any of the partition columns, then key columns without a gap.

    A prefix without columns is that of all rows.
    """
    check_within_key(schema, given, table=table)
    names = [column.name for column in schema.key_columns]
    last = max((names.index(name) for name in given if name in names), default=0)
    gap = next((name for name in names[:last] if name not in given), None)
    if gap is not None:
        raise InvalidRequest(
            f"not a prefix of the key{f' of {table}' if table else ''}: {gap!r} is missing before {names[last]!r}",
            place=place,
            hint=f"the key is {', '.join(names)}; give its first columns",
        )


def _not_in_key(schema: TableSchema, name: str, of: str) -> str:
    if name not in schema.by_name:
        return f"unknown column {name!r}{of}"
    return f"not a primary-key column{of}: {name!r}"


def _key_hint(schema: TableSchema) -> str:
    return f"the primary key is {', '.join(schema.primary_key)}"
