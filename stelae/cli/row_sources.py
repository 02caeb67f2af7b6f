"""Where commands get rows: from a tablet server, or straight from the files of a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stelae.cli.arguments import open_table
from stelae.errors import Unavailable

if TYPE_CHECKING:
    from stelae.client.client import Client
    from stelae.read.snapshot_reader import SnapshotReader
    from stelae.schema.table_schema import TableSchema
    from stelae.snapshot.manifest import PartitionFiles, Snapshot
    from stelae.snapshot.warehouse import Table


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


def open_client(url: str) -> Client:
    """A client of a tablet server."""
    from stelae.client.client import Client

    return Client(url)


def narrowed(table: Table, snapshot: Snapshot, key: Mapping[str, Any]) -> Snapshot:
    """The snapshot with only those files that rows of this key, or prefix, can be in: no others are opened."""
    from stelae.encoding.buckets import BucketFunction

    schema = table.schema
    given = row_to_json(schema, {name: key[name] for name in schema.partition_keys if name in key})

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
        reader = self._open(prefix)
        checked = reader.table.prefix_from_json(row_to_json(self.schema, prefix))
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


def row_to_json(schema: TableSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Physical values by column as JSON has them."""
    from stelae.encoding.values import value_codec

    return {name: value_codec(schema.by_name[name]).to_json(value) for name, value in values.items()}
