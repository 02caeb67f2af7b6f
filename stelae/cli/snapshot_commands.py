"""Commands that look after snapshots: rollback, expire, clean, verify."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stelae.cli import screen
from stelae.cli.arguments import (
    JsonOption,
    SnapshotOption,
    TableArgument,
    WarehouseOption,
    open_table,
    open_warehouse,
    parse_duration,
)
from stelae.errors import CorruptData
from stelae.snapshot import retention

MIN_GRACE_S = 3600.0
"""A shorter grace gets a warning: a build that is under way could lose its files."""


def register(app: typer.Typer) -> None:
    app.command()(rollback)
    app.command()(expire)
    app.command()(clean)
    app.command()(verify)


def rollback(
    table: TableArgument,
    to: Annotated[int, typer.Option("--to", metavar="N", help="Id of the snapshot to go back to.")],
    warehouse: WarehouseOption,
) -> None:
    """Make an older snapshot the newest again.

    Nothing is undone: the content of snapshot N is committed once more, under a new id.
    """
    found = open_table(warehouse, table)
    snapshot = found.snapshots.rollback(to, now_ms=_now_ms())
    screen.say(
        f"{found.name}: snapshot {snapshot.id} has the content of snapshot {to}, "
        f"{screen.count_text(snapshot.totals.visible_rows, 'row')}"
    )


def expire(
    table: TableArgument,
    warehouse: WarehouseOption,
    retain: Annotated[
        int | None, typer.Option("--retain", metavar="N", help="How many to keep; snapshot.num-retained unless given.")
    ] = None,
) -> None:
    """Give up all snapshots but the newest.

    `stelae clean` then removes their files.
    """
    found = open_table(warehouse, table)
    expired = retention.expire(
        found.snapshots, found.schema.options.snapshot_num_retained if retain is None else retain
    )
    kept = screen.count_text(len(found.snapshots.retained_ids()), "snapshot")
    if not expired:
        screen.say(f"{found.name}: nothing to expire, {kept} kept")
        return
    ids = f"snapshot {expired[0]}" if len(expired) == 1 else f"snapshots {expired[0]} to {expired[-1]}"
    screen.say(f"{found.name}: {ids} expired, {kept} kept; `stelae clean` frees their files once they are old enough")


def clean(
    warehouse: WarehouseOption,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="The table; all unless given.")] = None,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Younger files stay: longer than any build, rollback or load takes."),
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove files that no snapshot needs.

    They are of expired snapshots, and of builds that were killed.
    """
    grace_s = parse_duration(older_than, "--older-than")
    if grace_s < MIN_GRACE_S and not dry_run:
        screen.note(f"warning: a build that runs for longer than {older_than} would lose its files")
    store = open_warehouse(warehouse)
    for name in [table] if table else store.tables():
        found = store.table(name)
        report = retention.clean(found.snapshots, grace_s=grace_s, now_ms=_now_ms(), dry_run=dry_run)
        if dry_run:
            for file in report.files:
                screen.say(f"{found.name}: {file.path}  {screen.size_text(file.bytes)}")
        done = "would remove" if dry_run else "removed"
        young = f"; {report.kept_young:,} younger than {older_than} stay" if report.kept_young else ""
        files = screen.count_text(len(report.files), "file")
        screen.say(f"{found.name}: {done} {files}, {screen.size_text(report.bytes)}{young}")


def verify(
    table: TableArgument, warehouse: WarehouseOption, snapshot: SnapshotOption = None, json: JsonOption = False
) -> None:
    """Read every file of a snapshot and check it.

    Checksums, order of keys, counts, buckets, and that a sample of keys is found. All problems are printed; the exit
    code is then 6.
    """
    from stelae.verify.verify import verify_snapshot

    found = open_table(warehouse, table)
    wanted = found.snapshots.read(snapshot)
    with screen.progress(f"verifying {found.name}") as update:
        report = verify_snapshot(found, wanted, listener=lambda now: update(now.bytes_done, now.bytes))
    if json:
        screen.show_json(
            {
                "table": report.table,
                "snapshot": report.snapshot,
                "ok": report.ok,
                "files": report.files,
                "rows": report.rows,
                "hidden_rows": report.hidden_rows,
                "bytes": report.bytes,
                "lookups": report.lookups,
                "seconds": round(report.seconds, 3),
                "problems": [{"place": problem.place, "message": problem.message} for problem in report.problems],
            }
        )
    else:
        screen.say(
            f"{report.table}, snapshot {report.snapshot}: read {screen.count_text(report.files, 'file')}, "
            f"{screen.count_text(report.rows, 'row')}, {screen.size_text(report.bytes)} in {report.seconds:.1f} s; "
            f"looked up {screen.count_text(report.lookups, 'key')}"
        )
        for problem in report.problems:
            screen.say(f"  {problem.place}: {problem.message}")
    if not report.ok:
        raise CorruptData(
            f"{screen.count_text(len(report.problems), 'problem')} in snapshot {report.snapshot} of {report.table}",
            hint="keep the files; go back to a snapshot that verifies (stelae rollback), or build again",
        )
    if not json:
        screen.say("everything is as the manifest says")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
