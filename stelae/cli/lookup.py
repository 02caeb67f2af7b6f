"""The command `lookup`: rows by key or by prefix, from a server or straight from the files of a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from stelae.cli import screen
from stelae.cli.arguments import (
    WAREHOUSE_HELP,
    WAREHOUSE_VARIABLE,
    JsonOption,
    SnapshotOption,
    TableArgument,
    open_table,
    parse_names,
)
from stelae.errors import InvalidRequest, Unavailable
from stelae.schema import types as t
from stelae.schema.key_columns import check_key_columns, check_within_key

if TYPE_CHECKING:
    from stelae.client.client import Client
    from stelae.read.snapshot_reader import SnapshotReader
    from stelae.schema.table_schema import TableSchema
    from stelae.snapshot.manifest import PartitionFiles, Snapshot
    from stelae.snapshot.warehouse import Table

URL_VARIABLE = "STELAE_URL"
NOT_FOUND = 1
"""Exit code when there is no such row."""


def register(app: typer.Typer) -> None:
    app.command()(lookup)


def lookup(
    context: typer.Context,
    table: TableArgument,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="The primary key; a key of one column needs no name."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", envvar=URL_VARIABLE, metavar="URL", help="Ask this tablet server.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("-w", "--warehouse", envvar=WAREHOUSE_VARIABLE, metavar="WAREHOUSE", help=WAREHOUSE_HELP),
    ] = None,
    null: Annotated[
        list[str] | None, typer.Option("--null", metavar="COLUMN", help="A key column that is null. Repeatable.")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="A,B", help="Print these columns.")] = None,
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


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows as JSON, and the snapshot that they are from."""

    rows: list[dict[str, Any]]
    snapshot: int
    more: bool = False
    """Whether there are more than the limit allowed."""

    @classmethod
    def of_one(cls, row: dict[str, Any] | None, snapshot: int) -> FoundRows:
        return cls([] if row is None else [row], snapshot)


class RowSource(Protocol):
    """Where rows come from. Keys are physical values by column."""

    @property
    def schema(self) -> TableSchema: ...

    def row(self, key: Mapping[str, Any], columns: Sequence[str] | None) -> FoundRows: ...

    def rows(self, prefix: Mapping[str, Any], columns: Sequence[str] | None, limit: int) -> FoundRows: ...


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


def narrowed(table: Table, snapshot: Snapshot, key: Mapping[str, Any]) -> Snapshot:
    """The snapshot with only those files that rows of this key, or prefix, can be in: no others are opened."""
    from stelae.encoding.buckets import BucketFunction
    from stelae.encoding.values import value_codec

    schema = table.schema
    given = {
        column.name: value_codec(column).to_json(key[column.name])
        for column in schema.partition_columns
        if column.name in key
    }

    def kept(partition: PartitionFiles) -> PartitionFiles:
        values = dict(zip(schema.partition_keys, partition.values, strict=True))
        buckets = range(partition.bucket_count)
        if any(values[name] != value for name, value in given.items()):
            buckets = range(0)
        elif all(column.name in key for column in schema.bucket_columns):
            function = BucketFunction(schema.bucket_columns)
            only = function.bucket([key[column.name] for column in schema.bucket_columns], partition.bucket_count)
            buckets = range(only, only + 1)
        return replace(
            partition, buckets=tuple(b if b.bucket in buckets else replace(b, files=()) for b in partition.buckets)
        )

    return replace(snapshot, partitions=tuple(map(kept, snapshot.partitions)))


class WarehouseRows:
    """Opens the files of a snapshot in a scratch folder: those that the key can be in."""

    def __init__(self, stack: ExitStack, warehouse: str, table: str, snapshot: int | None) -> None:
        self._stack = stack
        self._table = open_table(warehouse, table)
        self._snapshot = self._table.snapshots.read(snapshot)
        self.schema = self._table.schema

    def row(self, key: Mapping[str, Any], columns: Sequence[str] | None) -> FoundRows:
        reader = self._open(key)
        values = tuple(key[name] for name in self.schema.primary_key)
        return FoundRows.of_one(reader.lookup(values, reader.table.projection(columns)), self._snapshot.id)

    def rows(self, prefix: Mapping[str, Any], columns: Sequence[str] | None, limit: int) -> FoundRows:
        from stelae.encoding.values import value_codec

        reader = self._open(prefix)
        as_json = {name: value_codec(self.schema.by_name[name]).to_json(value) for name, value in prefix.items()}
        checked = reader.table.prefix_from_json(as_json)
        page = reader.prefix_lookup(checked, reader.table.projection(columns), limit)
        return FoundRows(page.rows, self._snapshot.id, more=page.next_page_token is not None)

    def _open(self, key: Mapping[str, Any]) -> SnapshotReader:
        from stelae.read.open_snapshot import open_snapshot, scratch_folder

        folder: Path = self._stack.enter_context(scratch_folder(self._table.storage))
        return open_snapshot(self._table, narrowed(self._table, self._snapshot, key), folder)


class ServerRows:
    """Asks a tablet server."""

    def __init__(self, client: Client, table: str, snapshot: int | None) -> None:
        self._client = client
        self._table = table
        self._snapshot = snapshot
        schema = client.describe(table).schema
        if schema is None:
            raise Unavailable(f"the server can't read the definition of table {table}", place=client.url)
        self.schema = schema

    def row(self, key: Mapping[str, Any], columns: Sequence[str] | None) -> FoundRows:
        rows = self._client.lookup_many(self._table, [self.python_key(key)], columns=columns, snapshot=self._snapshot)
        return FoundRows.of_one(None if rows[0] is None else self.json_row(rows[0]), rows.snapshot or 0)

    def rows(self, prefix: Mapping[str, Any], columns: Sequence[str] | None, limit: int) -> FoundRows:
        page = self._client.prefix_lookup(
            self._table, self.python_key(prefix), limit=limit, columns=columns, snapshot=self._snapshot
        )
        rows = [self.json_row(row) for row in page.rows]
        return FoundRows(rows, page.snapshot, more=page.next_page_token is not None)

    def python_key(self, key: Mapping[str, Any]) -> dict[str, Any]:
        from stelae.encoding.values import value_codec

        return {name: value_codec(self.schema.by_name[name]).to_python(value) for name, value in key.items()}

    def json_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        from stelae.encoding.values import value_codec

        codecs = {name: value_codec(self.schema.by_name[name]) for name in row}
        return {name: codec.to_json(codec.from_python(row[name], name)) for name, codec in codecs.items()}


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


def open_client(url: str) -> Client:
    """A client of a tablet server."""
    from stelae.client.client import Client

    return Client(url)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _json(found: FoundRows, prefix: bool) -> dict[str, Any]:
    if prefix:
        return {"rows": found.rows, "more": found.more, "snapshot": found.snapshot}
    return {"found": bool(found.rows), "row": found.rows[0] if found.rows else None, "snapshot": found.snapshot}
