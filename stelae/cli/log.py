"""The command `log`: what a table's log says, record by record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli import screen
from stelae.cli.arguments import JsonOption, TableArgument, WarehouseOption, open_table
from stelae.errors import CorruptData, InvalidRequest

if TYPE_CHECKING:
    from stelae.log.reader import Entry, LogState
    from stelae.log.records import Inserted
    from stelae.snapshot.warehouse import Table

SHOWN_KEYS = 5
"""Keys of one record that are printed for people; JSON has them all."""


def register(app: typer.Typer) -> None:
    app.command()(log)


def log(
    table: TableArgument,
    warehouse: WarehouseOption,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", help="Print records from this one on.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Most records that are printed.")] = 100,
    json: JsonOption = False,
) -> None:
    """Print what was written to a table online.

    The segments of its log, and the records with their offsets. What a damaged log has before the damage is printed,
    too; the exit code is then 6.
    """
    from itertools import islice

    from stelae.log.reader import read_log, recover
    from stelae.storage.paths import LOG_FOLDER

    if limit < 0 or (from_offset is not None and from_offset < 0):
        raise InvalidRequest("expected a number from 0", place="--limit" if limit < 0 else "--from")
    found = open_table(warehouse, table)
    folder = found.storage.local_path(LOG_FOLDER)
    if folder is None:
        raise InvalidRequest("only a warehouse in a local folder has logs", place=found.url)
    state: LogState | None = None
    damage: CorruptData | None = None
    records: list[dict[str, Any]] = []
    try:
        state = recover(folder)
    except CorruptData as exc:
        damage = exc
    describe = _describer(found)
    try:
        for entry in islice(read_log(folder, from_offset), limit):
            records.append(describe(entry))  # noqa: PERF401  (what came before an error is kept)
    except CorruptData as exc:
        damage = damage or exc
    if json:
        screen.show_json({"table": str(found.name), **_state_json(state), "records": records})
    else:
        _show(found, folder, state, records)
    if damage is not None:
        raise damage


def _show(table: Table, folder: Path, state: LogState | None, records: list[dict[str, Any]]) -> None:
    if state is not None and not state.segments:
        screen.note(f"{table.name} has no log: nothing was written to it online")
        return
    if state is not None:
        screen.show_table(
            ["segment", "epoch", "records", "size", ""],
            [
                [
                    segment.name,
                    str(segment.epoch),
                    f"{segment.base:,} to {segment.end - 1:,}" if segment.end > segment.base else "none",
                    screen.size_text(segment.bytes),
                    f"{segment.torn_bytes:,} bytes at the end are of an unfinished flush" if segment.torn_bytes else "",
                ]
                for segment in state.segments
            ],
            right=["epoch", "size"],
        )
        for name in state.ignored:
            screen.say(f"{name} does not count: another owner had taken over")
        screen.say("")
    if records:
        screen.show_table(
            ["offset", "epoch", "record", "bucket", "keys"],
            [[str(record["offset"]), str(record["epoch"]), *_cells(record, table)] for record in records],
            right=["offset", "epoch"],
        )
        screen.say("")
    if state is not None:
        claim = state.claim
        ids = "" if claim is None else f"; last claim {claim.number}: ids {claim.first:,} to {claim.last:,}"
        said = f"records {state.start:,} to {state.end - 1:,}" if state.end > state.start else "no records"
        screen.say(f"{said} in {folder}{ids}")


def _cells(record: dict[str, Any], table: Table) -> list[str]:
    match record["kind"]:
        case "granted":
            return ["granted", "", f"claim {record['claim']}: ids {record['first']:,} to {record['last']:,}"]
        case "skipped":
            return ["skipped", "", f"record {record['next']:,} comes next"]
    bucket = "/".join([*map(screen.value_text, record["partition"]), str(record["bucket"])])
    names = [column.name for column in table.schema.key_columns]
    shown = ["/".join(screen.value_text(row[name]) for name in names) for row in record["rows"][:SHOWN_KEYS]]
    more = ", ..." if len(record["rows"]) > SHOWN_KEYS else ""
    counts = f"{len(record['rows']):,} of {screen.count_text(record['asked'], 'key')}"
    return ["inserted", bucket, f"{counts}: {', '.join(shown)}{more}" if shown else counts]


def _describer(table: Table) -> Callable[[Entry], dict[str, Any]]:
    """A function that makes JSON of the records of a table's log."""
    from stelae.log.records import Granted, Skipped

    readers: dict[int, Callable[[Inserted], list[dict[str, Any]]]] = {}

    def describe(entry: Entry) -> dict[str, Any]:
        record = entry.record
        head = {"offset": entry.offset, "epoch": entry.epoch, "bytes": entry.bytes}
        match record:
            case Granted():
                return {**head, "kind": "granted", "claim": record.number, "first": record.first, "last": record.last}
            case Skipped():
                return {**head, "kind": "skipped", "next": record.next}
        read = readers.get(record.schema_id)
        if read is None:
            read = readers[record.schema_id] = _row_reader(table, record.schema_id)
        return {
            **head,
            "kind": "inserted",
            "schema_id": record.schema_id,
            "partition": list(record.partition),
            "bucket": record.bucket,
            "asked": record.asked,
            "rows": read(record),
        }

    return describe


def _row_reader(table: Table, schema_id: int) -> Callable[[Inserted], list[dict[str, Any]]]:
    """A function that makes JSON of the rows in a record that were written with a schema."""
    from stelae.encoding.keys import KeyCodec
    from stelae.encoding.row_reader import RowReader
    from stelae.encoding.values import value_codec

    known = table.at_least(schema_id)
    schema = known.schemas[schema_id]
    columns = schema.key_columns
    decode_key = KeyCodec(columns).decode
    to_json = [value_codec(column).to_json for column in columns]
    names = [column.name for column in columns]
    values = [column.name for column in schema.value_columns]
    decode_row = RowReader(known.schemas, schema).json_decoder(values)

    def read(record: Inserted) -> list[dict[str, Any]]:
        rows = []
        for key, row in zip(record.keys, record.rows, strict=True):
            physical = decode_key(key)
            found = {name: convert(value) for name, convert, value in zip(names, to_json, physical, strict=True)}
            rows.append(found | (decode_row(row) or {}))
        return rows

    return read


def _state_json(state: LogState | None) -> dict[str, Any]:
    if state is None:
        return {"segments": None}
    claim = state.claim
    return {
        "epoch": state.epoch,
        "start": state.start,
        "end": state.end,
        "claim": None if claim is None else {"number": claim.number, "first": claim.first, "last": claim.last},
        "segments": [
            {
                "name": segment.name,
                "epoch": segment.epoch,
                "base": segment.base,
                "end": segment.end,
                "bytes": segment.bytes,
                "torn_bytes": segment.torn_bytes,
            }
            for segment in state.segments
        ],
        "ignored": list(state.ignored),
    }
