"""What the server says about its tables: the bodies of `/v1/tables`, `/v1/tables/{table}` and `/readyz`.

Pydantic models, since they are also the schemas in the OpenAPI page. docs/http.md#tables explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from stelae.errors import StelaeError
from stelae.schema.table_schema import TableSchema
from stelae.schema.types import encode_type
from stelae.service.tables.served_table import ServedTable, State
from stelae.service.writes.table_writer import TableWriter, WriteState
from stelae.snapshot.manifest import PartitionFiles, Snapshot

LISTED_PARTITIONS = 1000
"""Partitions that a description lists; a table may have many more."""


class Trouble(BaseModel):
    """Why the newest snapshot of a table is not served."""

    type: str = Field(description="Kind of the error, as in problem types.", examples=["corrupt-data"])
    detail: str
    place: str | None = None
    hint: str | None = None


class ColumnDescription(BaseModel):
    """A column."""

    id: int
    name: str = Field(examples=["user_id"])
    type: dict[str, Any] = Field(description="The type by its parts.", examples=[{"name": "BIGINT", "nullable": False}])
    sql_type: str = Field(description="The type as SQL.", examples=["BIGINT NOT NULL"])
    comment: str | None


class SchemaDescription(BaseModel):
    """The definition of a table: what its schema file says, and what is derived from it."""

    format: int
    id: int
    columns: list[ColumnDescription]
    primary_key: list[str]
    partition_keys: list[str]
    options: dict[str, str] = Field(description="As they were given; docs/options.md.")
    comment: str | None
    bucket_key: list[str] = Field(description="A prefix lookup that gives all of them asks one bucket.")


class TableSummary(BaseModel):
    """A table in the list."""

    name: str = Field(examples=["shop.users"])
    state: State
    snapshot: int | None = Field(description="The snapshot that is served.", examples=[17])
    newest_snapshot: int | None = Field(description="The newest one on storage, as far as known.", examples=[17])
    rows: int | None = Field(description="Rows of the served snapshot.", examples=[1_000_000])
    buckets: int | None = Field(description="Buckets of the served snapshot, in all partitions.", examples=[8])
    error: Trouble | None = Field(description="Why the newest snapshot is not served.")
    definition: SchemaDescription | None = Field(
        alias="schema", description="The definition that answers follow; null when it can't be read."
    )


class TableList(BaseModel):
    """All tables that are served, by name."""

    tables: list[TableSummary]


class PartitionDescription(BaseModel):
    """A partition of the served snapshot."""

    values: dict[str, Any] = Field(description="Values of the partition columns.", examples=[{"dt": "2026-11-20"}])
    buckets: int
    rows: int
    bytes: int


class SnapshotDescription(BaseModel):
    """A snapshot."""

    id: int
    schema_id: int = Field(description="The definition that it was built with.")
    build_id: str
    kind: str = Field(description="merge, overwrite, rollback or fence")
    created: str = Field(
        description="When it was built, by the builder's clock.", examples=["2026-11-20T12:34:56.789Z"]
    )
    rows: int
    files: int
    bytes: int
    partition_count: int
    partitions: list[PartitionDescription] = Field(
        description=f"The first {LISTED_PARTITIONS} of them, sorted by folder."
    )


class WritesDescription(BaseModel):
    """Online writes of a table, as far as this server has to do with them."""

    state: WriteState = Field(
        description="OPEN: inserts are taken here. IDLE: nobody has written yet. CLOSED: another server owns the "
        "table, or something failed. REFUSED: this table, or this server, takes none."
    )
    epoch: int | None = Field(description="The epoch by which this server owns the table.")
    online_rows: int | None = Field(description="Rows that were inserted online and are not in the served snapshot.")
    log_offset: int | None = Field(description="Behind the last record of the log.")
    error: Trouble | None = Field(description="Why inserts are not taken here.")


class TableDescription(TableSummary):
    """Everything about one table."""

    writes: WritesDescription | None = Field(description="Online writes.")

    schemas: list[SchemaDescription] = Field(
        description="All versions of the definition that the served rows may have: encoded rows name theirs by its id."
    )
    kept_snapshots: list[int] = Field(description="Other snapshots that are open for pins, newest first.")
    hash_index_bytes: int = Field(description="Of the hash indexes by which batches are answered; 0 without.")
    served: SnapshotDescription | None = Field(description="The snapshot that is served.")


class TableReadiness(BaseModel):
    """A table, for a probe."""

    state: State
    snapshot: int | None
    newest_snapshot: int | None
    error: Trouble | None = None


class Readiness(BaseModel):
    """Whether requests should be sent to this server."""

    ready: bool
    draining: bool = Field(description="The server is about to stop.")
    tables: dict[str, TableReadiness]

    @classmethod
    def of(cls, ready: bool, draining: bool, tables: Mapping[str, ServedTable]) -> Readiness:
        return cls(
            ready=ready,
            draining=draining,
            tables={
                name: TableReadiness(
                    state=table.state,
                    snapshot=_served_id(table),
                    newest_snapshot=table.newest_id,
                    error=_trouble(table.error),
                )
                for name, table in sorted(tables.items())
            },
        )


def summarize_table(table: ServedTable) -> TableSummary:
    """A table in the list."""
    return TableSummary(**_summary(table))


def describe_table(table: ServedTable, writer: TableWriter) -> TableDescription:
    """Everything about one table."""
    serving = table.serving
    return TableDescription(
        **_summary(table),
        schemas=[_schema(schema) for _, schema in sorted(serving.reader.table.schemas.items())] if serving else [],
        hash_index_bytes=serving.reader.hash_index_bytes if serving else 0,
        kept_snapshots=serving.open_ids[1:] if serving else [],
        writes=_writes(writer),
        served=None if serving is None else _snapshot(serving.reader.snapshot, serving.reader.table.schema),
    )


def _summary(table: ServedTable) -> dict[str, Any]:
    snapshot = table.serving.reader.snapshot if table.serving else None
    schema = table.serving.reader.table.schema if table.serving else table.schema
    return {
        "name": table.name,
        "state": table.state,
        "snapshot": _served_id(table),
        "newest_snapshot": table.newest_id,
        "rows": None if snapshot is None else snapshot.totals.visible_rows,
        "buckets": None if snapshot is None else sum(p.bucket_count for p in snapshot.partitions),
        "error": _trouble(table.error),
        "schema": None if schema is None else _schema(schema),
    }


def _writes(writer: TableWriter) -> WritesDescription:
    owner = writer.owner
    online = None if owner is None else owner.reader.online
    return WritesDescription(
        state=writer.state,
        epoch=None if owner is None else owner.takeover.epoch.number,
        online_rows=None if online is None else len(online),
        log_offset=None if owner is None else owner.applied,
        error=None if owner is not None else _trouble(writer.refusal() or writer.error),
    )


def _served_id(table: ServedTable) -> int | None:
    return table.serving.reader.id if table.serving else None


def _trouble(error: StelaeError | None) -> Trouble | None:
    if error is None:
        return None
    return Trouble(type=error.type, detail=error.message, place=error.place, hint=error.hint)


def _schema(schema: TableSchema) -> SchemaDescription:
    columns = [
        ColumnDescription(
            id=column.id,
            name=column.name,
            type=encode_type(column.type),
            sql_type=column.type.sql(),
            comment=column.comment,
        )
        for column in schema.columns
    ]
    bucket_key = [column.name for column in schema.bucket_columns]
    return SchemaDescription.model_validate({**schema.encode(), "columns": columns, "bucket_key": bucket_key})


def _snapshot(snapshot: Snapshot, schema: TableSchema) -> SnapshotDescription:
    by_folder = sorted(snapshot.partitions, key=lambda partition: partition.folder)
    return SnapshotDescription(
        id=snapshot.id,
        schema_id=snapshot.schema_id,
        build_id=snapshot.build_id,
        kind=snapshot.kind,
        created=datetime.fromtimestamp(snapshot.created_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        rows=snapshot.totals.visible_rows,
        files=snapshot.totals.files,
        bytes=snapshot.totals.bytes,
        partition_count=len(snapshot.partitions),
        partitions=[_partition(partition, schema) for partition in by_folder[:LISTED_PARTITIONS]],
    )


def _partition(partition: PartitionFiles, schema: TableSchema) -> PartitionDescription:
    totals = partition.totals
    return PartitionDescription(
        values=dict(zip(schema.partition_keys, partition.values, strict=True)),
        buckets=partition.bucket_count,
        rows=totals.visible_rows,
        bytes=totals.bytes,
    )
