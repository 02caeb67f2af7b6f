"""The command `insert`: rows of keys from a server, which inserts those that are not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli import screen
from stelae.cli.arguments import (
    NOT_FOUND,
    URL_VARIABLE,
    ColumnsOption,
    JsonOption,
    NullOption,
    TableArgument,
    UrlOption,
    key_values,
    parse_names,
)
from stelae.cli.row_sources import ServerRows, open_client, row_to_json
from stelae.errors import InvalidRequest

if TYPE_CHECKING:
    from stelae.schema.table_schema import TableSchema


def register(app: typer.Typer) -> None:
    app.command()(insert)


def insert(
    table: TableArgument,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="The primary key; of one column: one or more keys, with no name."),
    ] = None,
    url: UrlOption = None,
    null: NullOption = None,
    columns: ColumnsOption = None,
    json: JsonOption = False,
) -> None:
    """Look up rows by key; insert those that are not there.

    At a tablet server. A new row has an id, if the table mints ids; its other columns are null. Exit code 1: the table
    does not have the partition of a key.
    """
    wanted = parse_names(columns, "--columns")
    if not url:
        raise InvalidRequest(
            "no server is given", place="insert", hint=f"--url http://localhost:8000; {URL_VARIABLE} does as well"
        )
    with open_client(url) as client:
        source = ServerRows(client, table, None)
        keys = insert_keys(source.schema, key or [], null or [])
        found = client.insert_if_not_exists(table, [source.python_key(each) for each in keys], columns=wanted)
    rows = [None if row is None else source.json_row(row) for row in found]
    if json:
        screen.show_json({"rows": rows, "inserted": found.inserted, "snapshot": found.snapshot})
    else:
        _show(source.schema, keys, rows, found.inserted)
    if None in rows:
        raise typer.Exit(NOT_FOUND)


def insert_keys(schema: TableSchema, texts: Sequence[str], nulls: Sequence[str]) -> list[dict[str, Any]]:
    """Physical values of the keys on a command line: one, or several where the key is one column."""
    if len(schema.primary_key) == 1 and len(texts) > 1 and not nulls:
        return [key_values(schema, [text], [], False) for text in texts]
    return [key_values(schema, texts, nulls, False)]


def _show(
    schema: TableSchema,
    keys: Sequence[Mapping[str, Any]],
    rows: Sequence[dict[str, Any] | None],
    inserted: Sequence[bool],
) -> None:
    shown = [
        # No column has an empty name.
        {"": "inserted" if new else "found"} | row
        for row, new in zip(rows, inserted, strict=True)
        if row is not None
    ]
    if shown:
        screen.show_rows(shown)
    for key, row in zip(keys, rows, strict=True):
        if row is None:
            said = " ".join(f"{name}={screen.value_text(value)}" for name, value in row_to_json(schema, key).items())
            screen.note(f"no row for {said}: the table does not have its partition; partitions come with builds")
