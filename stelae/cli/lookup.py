"""The command `lookup`: rows by key or by prefix, from a server or straight from the files of a warehouse."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import typer

from stelae.cli import screen
from stelae.cli.arguments import (
    NOT_FOUND,
    URL_VARIABLE,
    WAREHOUSE_HELP,
    WAREHOUSE_VARIABLE,
    ColumnsOption,
    JsonOption,
    NullOption,
    SnapshotOption,
    TableArgument,
    UrlOption,
    key_values,
    parse_names,
)
from stelae.cli.row_sources import FoundRows, RowSource, ServerRows, WarehouseRows, open_client
from stelae.errors import InvalidRequest


def register(app: typer.Typer) -> None:
    app.command()(lookup)


def lookup(
    context: typer.Context,
    table: TableArgument,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="The primary key; a key of one column needs no name."),
    ] = None,
    url: UrlOption = None,
    warehouse: Annotated[
        str | None,
        typer.Option("-w", "--warehouse", envvar=WAREHOUSE_VARIABLE, metavar="WAREHOUSE", help=WAREHOUSE_HELP),
    ] = None,
    null: NullOption = None,
    columns: ColumnsOption = None,
    prefix: Annotated[bool, typer.Option("--prefix", help="All rows whose key starts with the given columns.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Most rows of a prefix.")] = 100,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Look up a row by its key, or rows by a prefix.

    In files of a warehouse, or at a tablet server. Exit code 1: there is no such row.
    """
    wanted = parse_names(columns, "--columns")
    with ExitStack() as stack:
        source = _row_source(context, stack, table, url, warehouse, snapshot)
        values = key_values(source.schema, key or [], null or [], prefix)
        found = source.rows(values, wanted, limit) if prefix else source.row(values, wanted)
    if json:
        screen.show_json(_json(found, prefix))
    elif found.rows:
        screen.show_rows(found.rows)
    else:
        screen.note(f"no row of {table} (snapshot {found.snapshot}) has this {'prefix' if prefix else 'key'}")
    if found.more and not json:
        screen.note(f"there are more than {limit:,} rows: --limit")
    if not found.rows:
        raise typer.Exit(NOT_FOUND)


def _row_source(
    context: typer.Context, stack: ExitStack, table: str, url: str | None, warehouse: str | None, snapshot: int | None
) -> RowSource:
    """The server or the warehouse. What is typed wins over what the environment says."""
    if url and warehouse:
        typed = [name for name in ("url", "warehouse") if _is_typed(context, name)]
        if len(typed) != 1:
            raise InvalidRequest("give either --url or --warehouse", place="lookup")
        url, warehouse = (url, None) if typed == ["url"] else (None, warehouse)
    if url:
        return ServerRows(stack.enter_context(open_client(url)), table, snapshot)
    if warehouse:
        return WarehouseRows(stack, warehouse, table, snapshot)
    raise InvalidRequest(
        "neither a server nor a warehouse is given",
        place="lookup",
        hint=f"--url http://localhost:8000, or -w WAREHOUSE; {URL_VARIABLE} and {WAREHOUSE_VARIABLE} do as well",
    )


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _json(found: FoundRows, prefix: bool) -> dict[str, Any]:
    if prefix:
        return {"rows": found.rows, "more": found.more, "snapshot": found.snapshot}
    return {"found": bool(found.rows), "row": found.rows[0] if found.rows else None, "snapshot": found.snapshot}
