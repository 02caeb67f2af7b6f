"""Commands that show what there is: tables, describe, snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from stelae.cli import screen
from stelae.cli.arguments import JsonOption, SnapshotOption, TableArgument, WarehouseOption, open_table, open_warehouse
from stelae.errors import CorruptData, problem

if TYPE_CHECKING:
    from stelae.names import TableName
    from stelae.schema.table_schema import Column, TableSchema
    from stelae.snapshot.manifest import Snapshot
    from stelae.snapshot.warehouse import Table, Warehouse


def register(app: typer.Typer) -> None:
    app.command()(tables)
    app.command()(describe)
    app.command()(snapshots)


def tables(warehouse: WarehouseOption, json: JsonOption = False) -> None:
    """List the tables of a warehouse."""
    store = open_warehouse(warehouse)
    found = [_newest(store, name) for name in store.tables()]
    if json:
        screen.show_json([_table_json(name, newest) for name, newest in found])
    elif not found:
        screen.note("no tables; create one: stelae create FILE")
    else:
        screen.show_table(
            ["table", "snapshot", "rows", "buckets", "size", "built"],
            [_table_cells(name, newest) for name, newest in found],
            right=["snapshot", "rows", "buckets", "size"],
        )
    errors = [newest for _, newest in found if isinstance(newest, CorruptData)]
    for error in errors[:-1]:
        screen.show_error(error)
    if errors:
        raise errors[-1]


def _newest(store: Warehouse, name: TableName) -> tuple[TableName, Snapshot | CorruptData | None]:
    """The newest snapshot of a table, or why it can't be read: one damaged table hides no other."""
    try:
        return name, store.table(name).snapshots.latest()
    except CorruptData as exc:
        return name, exc


def describe(
    table: TableArgument, warehouse: WarehouseOption, snapshot: SnapshotOption = None, json: JsonOption = False
) -> None:
    """Show the definition and the contents of a table."""
    found = open_table(warehouse, table)
    shown = found.snapshots.latest() if snapshot is None else found.snapshots.read(snapshot)
    if json:
        screen.show_json(
            {
                "table": str(found.name),
                "url": found.url,
                "schema": found.schema.encode(),
                "ids": _ids_json(found),
                "owner": _owner_json(found),
                "snapshot": _snapshot_json(shown),
                "partitions": [] if shown is None else _partitions_json(shown),
            }
        )
        return
    schema = found.schema
    screen.show_facts(_definition_facts(found))
    screen.say("")
    commented = any(column.comment for column in schema.columns)
    screen.show_table(
        ["column", "type", "null", "key", *(["comment"] if commented else [])],
        [_column_cells(column, schema, commented) for column in schema.columns],
    )
    if schema.options.given:
        screen.say("")
        screen.show_table(["option", "value"], sorted(map(list, schema.options.given.items())))
    screen.say("")
    if shown is None:
        screen.say(f"no snapshot yet; build one: stelae build {found.name} INPUT")
    else:
        screen.show_facts(_snapshot_facts(shown))
        if schema.partition_keys:
            screen.say("")
            _show_partitions(shown, schema)


def snapshots(table: TableArgument, warehouse: WarehouseOption, json: JsonOption = False) -> None:
    """List the snapshots of a table, newest first.

    Those that can be read: expired ones are left out.
    """
    found = open_table(warehouse, table)
    retained = found.snapshots.retained()[::-1]
    if json:
        screen.show_json([_snapshot_json(snapshot) for snapshot in retained])
        return
    if not retained:
        screen.note(f"no snapshot yet; build one: stelae build {found.name} INPUT")
        return
    screen.show_table(
        ["snapshot", "kind", "rows", "files", "size", "built"],
        [
            [
                str(snapshot.id),
                _kind(snapshot),
                f"{snapshot.totals.visible_rows:,}",
                f"{snapshot.totals.files:,}",
                screen.size_text(snapshot.totals.bytes),
                screen.time_text(snapshot.created_ms),
            ]
            for snapshot in retained
        ],
        right=["snapshot", "rows", "files", "size"],
    )


def _table_json(name: TableName, newest: Snapshot | CorruptData | None) -> dict[str, Any]:
    if isinstance(newest, CorruptData):
        return {"table": str(name), "snapshot": None, "error": problem(newest)}
    return {"table": str(name), "snapshot": _snapshot_json(newest)}


def _table_cells(name: TableName, snapshot: Snapshot | CorruptData | None) -> list[str]:
    if snapshot is None or isinstance(snapshot, CorruptData):
        return [str(name), "-", "-", "-", "-", "not yet" if snapshot is None else "damaged"]
    return [
        str(name),
        str(snapshot.id),
        f"{snapshot.totals.visible_rows:,}",
        f"{_bucket_count(snapshot):,}",
        screen.size_text(snapshot.totals.bytes),
        screen.time_text(snapshot.created_ms),
    ]


def _definition_facts(table: Table) -> list[tuple[str, str]]:
    schema = table.schema
    facts = [("table", str(table.name)), ("url", table.url)]
    if schema.comment:
        facts.append(("comment", schema.comment))
    facts.append(("primary key", ", ".join(schema.primary_key)))
    if schema.partition_keys:
        facts.append(("partitioned by", ", ".join(schema.partition_keys)))
    facts.append(("bucketed by", ", ".join(column.name for column in schema.bucket_columns)))
    facts.append(("schema", str(schema.id)))
    ids, owner = _ids_json(table), _owner_json(table)
    if ids is not None:
        claimed = f"ids to {ids['claimed']:,} are claimed" if ids["claimed"] else "no id is claimed yet"
        facts.append(("ids", f"in column {ids['column']}; {claimed}"))
    if owner is not None:
        facts.append(("owner", owner_text(owner)))
    return facts


def _ids_json(table: Table) -> dict[str, Any] | None:
    """The column whose ids the table mints, and how far they are claimed."""
    from stelae.ownership.id_claims import TableClaims, id_limit

    column = table.schema.auto_increment
    if column is None:
        return None
    newest = TableClaims(table.storage, id_limit(column)).newest()
    return {"column": column.name, "claimed": 0 if newest is None else newest.ids.last}


def _owner_json(table: Table) -> dict[str, Any] | None:
    """Who may write to the table online, or mint its ids. None if it never had an owner."""
    from stelae.log.table_log import log_folder
    from stelae.ownership.epochs import TableOwnership
    from stelae.ownership.takeover import lives

    current = TableOwnership(table.storage, str(table.name)).current()
    if current is None:
        return None
    return {
        "kind": current.kind,
        "name": current.owner,
        "url": current.url,
        "epoch": current.number,
        "taken_ms": current.taken_ms,
        # On object stores nobody can tell.
        "lives": lives(table.storage, current) if log_folder(table.storage) is not None else None,
    }


def owner_text(owner: Mapping[str, Any]) -> str:
    """`server a:8000 at http://a:8000, epoch 3`"""
    if owner["kind"] == "free":
        return f"nobody; {owner['name']} gave it up, epoch {owner['epoch']}"
    at = f" at {owner['url']}" if owner["url"] else ""
    gone = ", which is gone" if owner["lives"] is False else ""
    return f"{owner['kind']} {owner['name']}{at}{gone}, epoch {owner['epoch']}"


def _column_cells(column: Column, schema: TableSchema, commented: bool) -> list[str]:
    roles = []
    if column.name in schema.primary_key:
        roles.append(f"primary {schema.primary_key.index(column.name) + 1}")
    if column.name in schema.partition_keys:
        roles.append("partition")
    if column == schema.auto_increment:
        roles.append("auto-increment")
    cells = [column.name, column.type.sql_name(), "yes" if column.type.nullable else "no", ", ".join(roles)]
    return [*cells, column.comment or ""] if commented else cells


def _snapshot_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    totals = snapshot.totals
    log = [("log", f"records below {snapshot.log_offset:,} are in it")] if snapshot.log_offset else []
    hidden = f", and {screen.count_text(totals.hidden_rows, 'tombstone')}" if totals.hidden_rows else ""
    return [
        ("snapshot", f"{snapshot.id} ({_kind(snapshot)}), built {screen.time_text(snapshot.created_ms)}"),
        ("rows", f"{totals.visible_rows:,}{hidden}"),
        ("buckets", f"{_bucket_count(snapshot):,}" + _partition_note(snapshot)),
        ("files", f"{totals.files:,}, {screen.size_text(totals.bytes)}"),
        *log,
        ("built with", ", ".join(f"{name} {version}" for name, version in sorted(snapshot.versions.items()))),
    ]


def _partition_note(snapshot: Snapshot) -> str:
    count = len(snapshot.partitions)
    return f" in {screen.count_text(count, 'partition')}" if count and snapshot.partitions[0].values else ""


def _show_partitions(snapshot: Snapshot, schema: TableSchema) -> None:
    screen.show_table(
        [*schema.partition_keys, "rows", "buckets", "size"],
        [
            [
                *map(screen.value_text, partition.values),
                f"{partition.totals.visible_rows:,}",
                f"{partition.bucket_count:,}",
                screen.size_text(partition.totals.bytes),
            ]
            for partition in snapshot.partitions
        ],
        right=["rows", "buckets", "size"],
    )


def _kind(snapshot: Snapshot) -> str:
    to = snapshot.properties.get("rollback.to")
    return f"rollback to {to}" if snapshot.kind == "rollback" and to else snapshot.kind


def _bucket_count(snapshot: Snapshot) -> int:
    return sum(partition.bucket_count for partition in snapshot.partitions)


def _snapshot_json(snapshot: Snapshot | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    return {
        "id": snapshot.id,
        "kind": snapshot.kind,
        "schema_id": snapshot.schema_id,
        "build_id": snapshot.build_id,
        "created_ms": snapshot.created_ms,
        "rows": snapshot.totals.visible_rows,
        "hidden_rows": snapshot.totals.hidden_rows,
        "buckets": _bucket_count(snapshot),
        "files": snapshot.totals.files,
        "bytes": snapshot.totals.bytes,
        "log_offset": snapshot.log_offset,
        "versions": dict(snapshot.versions),
        "properties": dict(snapshot.properties),
    }


def _partitions_json(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "values": list(partition.values),
            "buckets": partition.bucket_count,
            "rows": partition.totals.visible_rows,
            "files": partition.totals.files,
            "bytes": partition.totals.bytes,
        }
        for partition in snapshot.partitions
    ]
