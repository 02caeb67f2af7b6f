"""Commands that define tables by SQL: create, alter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stelae.cli import screen
from stelae.cli.arguments import WarehouseOption, open_warehouse
from stelae.errors import AlreadyExists, InvalidRequest, NotFound


def register(app: typer.Typer) -> None:
    app.command()(create)
    app.command()(alter)


def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with CREATE TABLE ...; - reads standard input.")],
    warehouse: WarehouseOption,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave a table that exists as it is.")] = False,
) -> None:
    """Create a table from SQL."""
    from stelae.schema.sql import parse_create_table
    from stelae.snapshot.warehouse import Warehouse

    name, schema, says_if_not_exists = parse_create_table(_read_sql(file))
    try:
        table = Warehouse(warehouse).create_table((name, schema))
    except AlreadyExists:
        if not (if_not_exists or says_if_not_exists):
            raise
        screen.say(f"{name} exists already; it was left as it is")
        return
    screen.say(f"created {name} in {table.url}")


def alter(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with ALTER TABLE ...; - reads standard input.")],
    warehouse: WarehouseOption,
) -> None:
    """Add columns to a table, or set its options, by SQL."""
    from stelae.schema.sql import parse_alter_table

    store = open_warehouse(warehouse)
    change = parse_alter_table(_read_sql(file))
    before = None if change.if_exists and change.name not in store.tables() else store.table(change.name)
    table = store.alter_table(change)
    if table is None:
        screen.say(f"there is no table {change.name}; nothing was changed")
    elif before is not None and before.schema.id == table.schema.id:
        screen.say(f"{change.name} has all of it already; nothing was changed")
    else:
        screen.say(f"altered {change.name}: schema {table.schema.id}")


def _read_sql(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise NotFound("the file does not exist", place=file) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidRequest(f"the file can't be read: {exc}", place=file) from exc
