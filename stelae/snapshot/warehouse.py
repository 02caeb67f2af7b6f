"""A warehouse and its tables: names and definitions, on storage.

    warehouse = Warehouse("warehouse")                       # a folder, or a URL such as s3://bucket/path
    table = warehouse.create_table("CREATE TABLE shop.users (...)")
    table = warehouse.table("shop.users")
    table.schema, table.snapshots, table.storage
    table = warehouse.alter_table("ALTER TABLE shop.users ADD COLUMN city STRING")

There is no catalog beside the storage: a table is there as soon as its `schema/schema-0.json` is, put if absent.
Schema files are sealed (`stelae/storage/sealed_json.py`) and never changed; docs/format.md#layout is the contract. A
warehouse in a folder or an object store, and its tables, can be pickled to other processes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stelae.errors import AlreadyExists, Conflict, CorruptData, InvalidRequest, NotFound
from stelae.names import TableName
from stelae.schema.alter import AlterTable, evolve
from stelae.schema.checks import check_table
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.snapshots import TableSnapshots
from stelae.storage.open import open_storage
from stelae.storage.paths import SCHEMA_FOLDER, parse_schema_path, parse_table_folder, schema_path, table_folder
from stelae.storage.sealed_json import open_sealed_json, seal_json
from stelae.storage.storage import Storage, exists, put_or_settle
from stelae.storage.view import StorageView

FIRST_SCHEMA_ID = 0


class Warehouse:
    """All tables below one place."""

    def __init__(self, url_or_path: str | Path, storage: Storage | None = None, **options: Any) -> None:
        """`storage` replaces what the URL or path would open. `options` are for object stores (`open_storage`)."""
        self.storage = open_storage(url_or_path, **options) if storage is None else storage

    @property
    def url(self) -> str:
        return self.storage.url

    def create_table(self, definition: str | tuple[TableName, TableSchema], *, if_not_exists: bool = False) -> Table:
        """Create a table from `CREATE TABLE ...`, or from a name and a schema with id 0.

        AlreadyExists when there is one of that name. With `if_not_exists`, here or in the SQL, that one is returned
        as it is, whatever its definition, as SQL has it. InvalidRequest, with nothing changed, when the definition
        can't be a table.
        """
        if isinstance(definition, str):
            from stelae.schema.sql import parse_create_table

            name, schema, says_if_not_exists = parse_create_table(definition)
            if_not_exists = if_not_exists or says_if_not_exists
        else:
            name, schema = definition
            if schema.id != FIRST_SCHEMA_ID:
                raise InvalidRequest(
                    f"a new table starts with schema {FIRST_SCHEMA_ID}, not {schema.id}", place=str(name)
                )
            check_table(schema)
        try:
            self._table_storage(name).put_if_absent(schema_path(schema.id), encode_schema(schema))
        except AlreadyExists as exc:
            if not if_not_exists:
                raise AlreadyExists(
                    f"table {name} exists already",
                    place=f"{self.url}/{table_folder(name)}",
                    hint="CREATE TABLE IF NOT EXISTS takes it as it is",
                ) from exc
        return self.table(name)

    def alter_table(self, change: str | AlterTable) -> Table | None:
        """Change a table by `ALTER TABLE ...`, or by what that asks for. Returns the table, with its newest definition.

        A change is a new version of the definition; snapshots stay as they are, and builds write the new version from
        then on. Nothing is written if nothing changes. NotFound when there is no such table; with IF EXISTS, None.
        Conflict when somebody else changes it at the same time. InvalidRequest, with nothing changed, for a change that
        the table can't have.
        """
        if isinstance(change, str):
            from stelae.schema.sql import parse_alter_table

            change = parse_alter_table(change)
        try:
            table = self.table(change.name)
        except NotFound:
            if change.if_exists:
                return None
            raise
        schema = evolve(table.schemas, change, stored=table.stored_column_ids())
        if schema.id == table.schema.id:
            return table
        stored = put_or_settle(
            table.storage,
            schema_path(schema.id),
            encode_schema(schema),
            schema,
            lambda: read_schema(table.storage, schema.id),
            doubt=f"schema {schema.id} of {table.name} was written",
            hint="look at the table before you alter it again",
        )
        if stored != schema:  # One that is the same is as good as our own.
            raise Conflict(
                f"schema {schema.id} of {table.name} was written by somebody else meanwhile",
                place=f"{table.url}/{schema_path(schema.id)}",
                hint="nothing of this change was applied; look at the table, and alter it again",
            )
        return self.table(change.name)

    def table(self, name: str | TableName) -> Table:
        """An existing table, with its newest schema. NotFound, with names that come near, when there is none."""
        wanted = TableName.parse(name) if isinstance(name, str) else name
        schemas = read_schemas(self._table_storage(wanted))
        if not schemas:
            raise NotFound(f"there is no table {wanted}", place=self.url, hint=self._nearest(wanted))
        return Table(wanted, self._table_storage(wanted), schemas)

    def tables(self) -> list[TableName]:
        """All tables, sorted. Asks for every folder that could be one, and lists no data."""
        folders = (
            f"{database}/{table}" for database in self.storage.folders() for table in self.storage.folders(database)
        )
        names = (parse_table_folder(folder) for folder in folders)
        return sorted(
            name for name in names if name and exists(self._table_storage(name), schema_path(FIRST_SCHEMA_ID))
        )

    def _table_storage(self, name: TableName) -> StorageView:
        return StorageView(self.storage, table_folder(name))

    def _nearest(self, wanted: TableName) -> str:
        names = [str(name) for name in self.tables()]
        near = [name for name in names if name.rpartition(".")[2].casefold() == wanted.table.casefold()]
        near += [name for name in difflib.get_close_matches(str(wanted), names) if name not in near]
        if near:
            return f"did you mean {' or '.join(near[:3])}?"
        return "stelae tables lists what the warehouse has" if names else "the warehouse has no tables"


class Table:
    """One table: its definition as it was when the table was opened, and its snapshots as they are now."""

    def __init__(self, name: TableName, storage: Storage, schemas: Mapping[int, TableSchema]) -> None:
        self.name = name
        self.storage = storage
        """Rooted in the table's folder."""
        self.schemas = dict(schemas)
        """All versions of the definition, by schema id."""
        self.schema = schemas[max(schemas)]
        """The newest version."""
        self.snapshots = TableSnapshots(storage, str(name), keeps_keys=self.schema.auto_increment is not None)

    @property
    def url(self) -> str:
        return self.storage.url

    def stored_column_ids(self) -> frozenset[int]:
        """Columns that a snapshot may have values in: those of the definition that the newest one was written with."""
        latest = self.snapshots.latest_id()
        if latest is None:
            return frozenset()
        schema_id = self.snapshots.read(latest).schema_id
        return frozenset(column.id for column in self.at_least(schema_id).schemas[schema_id].columns)

    def at_least(self, schema_id: int) -> Table:
        """This table with its definition up to that version or a later one: a snapshot may have been built with a
        version that came after the table was opened. CorruptData when there is none.
        """
        missing = range(self.schema.id + 1, schema_id + 1)
        try:
            newer = {number: read_schema(self.storage, number) for number in missing}
        except NotFound as exc:
            raise CorruptData(f"schema {schema_id} of {self.name} is not there", place=exc.place) from exc
        return Table(self.name, self.storage, {**self.schemas, **newer}) if newer else self

    def __repr__(self) -> str:
        return f"Table({str(self.name)!r}, {self.url!r})"


def encode_schema(schema: TableSchema) -> bytes:
    """The content of a schema file."""
    return seal_json(schema.encode())


def decode_schema(data: bytes, place: str) -> TableSchema:
    """The schema in the bytes of a schema file. Anything off is CorruptData; `place` names the file."""
    body = open_sealed_json(data, place)
    try:
        return TableSchema.decode(body)
    except (CorruptData, InvalidRequest) as exc:
        hint = exc.hint or "a newer version of Stelae may have written it"
        raise CorruptData(f"the schema cannot be read: {exc.message}", place=place, hint=hint) from exc


def read_schema(storage: Storage, schema_id: int) -> TableSchema:
    """One version of a table's definition; `storage` is rooted in the table's folder."""
    path = schema_path(schema_id)
    place = f"{storage.url}/{path}"
    schema = decode_schema(storage.get(path), place)
    if schema.id != schema_id:
        raise CorruptData(f"the file holds schema {schema.id}", place=place)
    return schema


def read_schemas(storage: Storage) -> dict[int, TableSchema]:
    """All versions of a table's definition by id, in order; none when there is no table."""
    ids = (parse_schema_path(file.path) for file in storage.list(SCHEMA_FOLDER))
    return {schema_id: read_schema(storage, schema_id) for schema_id in sorted(i for i in ids if i is not None)}
