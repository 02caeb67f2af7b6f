"""Arguments and options that commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.errors import InvalidRequest, NotFound
from stelae.schema import types as t
from stelae.schema.durations import parse_duration_ms
from stelae.schema.key_column_checks import check_key_columns, check_within_key

if TYPE_CHECKING:
    from stelae.schema.table_schema import TableSchema
    from stelae.snapshot.warehouse import Table, Warehouse

NOT_FOUND = 1
"""Exit code of `lookup` when there is no such row, of `insert` when there is no such partition."""

URL_VARIABLE = "STELAE_URL"
WAREHOUSE_VARIABLE = "STELAE_WAREHOUSE"
WAREHOUSE_HELP = "Where the tables are: a folder, or a URL such as s3://bucket/path."

WarehouseOption = Annotated[
    str, typer.Option("-w", "--warehouse", envvar=WAREHOUSE_VARIABLE, metavar="WAREHOUSE", help=WAREHOUSE_HELP)
]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="database.table; a bare name: database default.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SnapshotOption = Annotated[
    int | None, typer.Option("--snapshot", metavar="N", help="Id of the snapshot; the newest unless given.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar=URL_VARIABLE, metavar="URL", help="The tablet server to ask.")
]
NullOption = Annotated[
    list[str] | None, typer.Option("--null", metavar="COLUMN", help="A key column that is null. Repeatable.")
]
ColumnsOption = Annotated[str | None, typer.Option("--columns", metavar="A,B", help="Print these columns.")]


def open_warehouse(url: str) -> Warehouse:
    """The warehouse at a path or URL. A folder that is not there is a mistake, except for `create`, which makes it."""
    from stelae.snapshot.warehouse import Warehouse
    from stelae.storage.local import LocalStorage

    warehouse = Warehouse(url)
    if isinstance(warehouse.storage, LocalStorage) and not warehouse.storage.root.is_dir():
        raise NotFound("there is no warehouse", place=str(warehouse.storage.root), hint="`stelae create` makes one")
    return warehouse


def open_table(warehouse: str, name: str) -> Table:
    """A table of the warehouse."""
    return open_warehouse(warehouse).table(name)


def parse_duration(text: str, place: str) -> float:
    """Seconds of a text such as `90s`, `15m`, `1.5h`, `7d`."""
    try:
        return parse_duration_ms(text, fractions=True) / 1000
    except ValueError:
        hint = "a number with s, m, h or d: 90s, 24h, 7d"
        raise InvalidRequest(f"{text!r} is no duration", place=place, hint=hint) from None


def parse_pairs(texts: Sequence[str], place: str) -> dict[str, str]:
    """`name=value` texts as a mapping. The value may hold more `=`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{text!r} is not name=value", place=place)
        if name in pairs:
            raise InvalidRequest(f"{name!r} is given twice", place=place)
        pairs[name] = value
    return pairs


def parse_names(text: str | None, place: str) -> list[str] | None:
    """Names with commas between them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidRequest(f"{text!r}: expected names with commas between them", place=place)
    return names


def key_values(schema: TableSchema, texts: Sequence[str], nulls: Sequence[str], prefix: bool) -> dict[str, Any]:
    """Physical values of a key from the texts of a command line, and from the names of the columns that are null."""
    from stelae.encoding.values import value_codec

    values: dict[str, Any] = {}
    holds_text = isinstance(schema.key_columns[0].type, t.String | t.Binary)  # A bare value may have an = in it.
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and (name in schema.by_name or not holds_text)) and len(texts) == 1 == len(schema.primary_key):
            name, value = schema.primary_key[0], text
        elif not equals:
            hint = "the primary key is " + " ".join(f"{name}=..." for name in schema.primary_key)
            raise InvalidRequest(f"{text!r} is not column=value", place=text, hint=hint)
        _check_name(schema, name, values)
        values[name] = value_codec(schema.by_name[name]).from_text(value, name)
    for name in nulls:
        _check_name(schema, name, values)
        values[name] = value_codec(schema.by_name[name]).from_json(None, name)
    if not prefix:
        check_key_columns(schema, values, hint="some of it: --prefix")
    return values


def _check_name(schema: TableSchema, name: str, given: Mapping[str, Any]) -> None:
    check_within_key(schema, [name])
    if name in given:
        raise InvalidRequest(f"{name!r} is given twice", place=name)
