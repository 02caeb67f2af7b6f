"""Commands of the builder: build, demo. Added to `stelae` through the entry point `stelae.commands`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.builder.plan.options import BuildOptions
from stelae.cli import screen
from stelae.cli.arguments import JsonOption, TableArgument, WarehouseOption, open_warehouse, parse_pairs
from stelae.cli.option_flags import takes_declared_options
from stelae.declared_options import check_limits, option

if TYPE_CHECKING:
    from stelae.builder.report import BuildReport, Progress

DEMO_FOLDER = "stelae-demo"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(build)
    app.command()(demo)


@dataclass(frozen=True)
class CommandOptions:
    """What `stelae build` needs to know besides the options of a build: how files are read, and what Spark gets."""

    format: str | None = option(
        None,
        "`parquet`, `orc`, `csv`, `tsv`, `json`, or another that Spark has a reader for. The endings are `.parquet`, "
        "`.orc`, `.csv`, `.tsv`, `.json`, `.jsonl`, `.ndjson`, each also with `.gz`, `.bz2`, `.zst`, ... behind.",
        shown="by the files' endings",
    )
    reader_options: tuple[str, ...] = option(
        (),
        "An option of Spark's reader: `nullValue=NA`, `sep=;`, `multiLine=true`, `recursiveFileLookup=true`, ... "
        "Repeat it.",
        flag="--option",
        value="KEY=VALUE",
        shown="",
    )
    cores: int | None = option(
        None,
        "Cores that Spark uses. Those of the machine, also in a container that has fewer.",
        value="N",
        shown="all",
        least=1,
    )
    memory: str | None = option(None, "Memory of Spark's JVM.", value="SIZE", shown="`4g`")
    conf: tuple[str, ...] = option(
        (), "A setting of Spark: `spark.jars.packages=...`, ... Repeat it.", value="KEY=VALUE", shown=""
    )

    def __post_init__(self) -> None:
        check_limits(self)


@takes_declared_options
def build(
    context: typer.Context,
    table: TableArgument,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help="Files, folders, globs; later ones win.")],
    warehouse: WarehouseOption,
    options: BuildOptions,
    command: CommandOptions,
    json: JsonOption = False,
) -> None:
    """Merge files into a table and commit a snapshot.

    Runs Spark on this machine. On a cluster, call stelae.builder.build from a job of your own.
    """
    from stelae.builder.input.files import read_files
    from stelae.builder.job import run_build
    from stelae.builder.local.quiet_session import quiet_session

    reader_options = parse_pairs(command.reader_options, "--option")
    settings = parse_pairs(command.conf, "--conf")
    store = open_warehouse(warehouse)
    target = store.table(table)
    session = quiet_session(context.obj.debug, command.cores, command.memory, settings, screen.note)
    with status(f"building {target.name}") as tell, session as spark:
        tell("reading the input's columns")
        frame = read_files(
            spark, inputs, target.schema, format=command.format, row_kind=options.row_kind, options=reader_options
        )
        report = run_build(
            spark, store, table, frame, options, has_arrival=True,
            listener=lambda progress: tell(progress_text(progress)),
        )  # fmt: skip
        tell("stopping Spark")
    if json:
        screen.show_json(report_json(report))
    else:
        screen.show_facts(report_facts(report))


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the demo keeps its warehouse; made anew by every run.")
    ] = Path(DEMO_FOLDER),
    port: Annotated[int, typer.Option("--port", help="Port of the server; 0: a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until Ctrl-C.")] = False,
) -> None:
    """Build, serve and look up tables of real data.

    Tells what happens, with the numbers that it measures.
    """
    from stelae.builder.demo import run_demo

    run_demo(folder, port=port, keep=keep)


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is going on, where that is a terminal. Gives the way to change it."""
    console = screen.err()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(f"{text}: starting Spark") as line:
        yield lambda now: line.update(f"{text}: {now}")


def progress_text(progress: Progress) -> str:
    """Where a build is, in a few words."""
    tasks = f", {progress.tasks_done:,} of {progress.tasks:,} tasks" if progress.tasks else ""
    return f"{progress.phase}{tasks}"


def report_facts(report: BuildReport) -> list[tuple[str, str]]:
    """The summary of a build, for people."""
    snapshot, totals = report.snapshot, report.snapshot.totals
    if not report.committed:
        return [("table", report.table), ("snapshot", f"{snapshot.id}, as before: the input has no rows")]
    hidden = f", and {screen.count_text(totals.hidden_rows, 'tombstone')}" if totals.hidden_rows else ""
    buckets = sum(partition.bucket_count for partition in snapshot.partitions)
    partitioned = bool(snapshot.partitions) and bool(snapshot.partitions[0].values)
    partitions = f" in {screen.count_text(len(snapshot.partitions), 'partition')}" if partitioned else ""
    phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in report.seconds.items())
    return [
        ("table", report.table),
        ("snapshot", f"{snapshot.id} ({report.mode})"),
        ("rows in", f"{report.rows_in:,}"),
        ("rows before", f"{report.base_rows:,}"),
        ("rows merged", f"{report.rows_merged:,}"),
        ("rows now", f"{totals.visible_rows:,}{hidden}"),
        *ids_facts(report),
        ("buckets", f"{buckets:,}{partitions}"),
        ("files", f"{totals.files:,}, {screen.size_text(totals.bytes)}"),
        ("seconds", f"{report.total_seconds:.1f} ({phases})"),
    ]


def ids_facts(report: BuildReport) -> list[tuple[str, str]]:
    """What new keys of a dictionary table got."""
    told = []
    if report.ids is not None:
        told.append(f"{screen.count_text(report.ids.count, 'new id')}: {report.ids}")
    if report.ids_asked:
        told.append(f"{report.ids_asked:,} from the server that owns the table")
    return [("ids", "; ".join(told))] if told else []


def report_json(report: BuildReport) -> dict[str, Any]:
    """The summary of a build, for programs."""
    snapshot, totals = report.snapshot, report.snapshot.totals
    return {
        "table": report.table,
        "snapshot": snapshot.id,
        "committed": report.committed,
        "mode": report.mode,
        "rows_in": report.rows_in,
        "base_rows": report.base_rows,
        "rows_merged": report.rows_merged,
        "rows": totals.visible_rows,
        "hidden_rows": totals.hidden_rows,
        "ids_minted": report.ids_minted,
        "first_id": report.ids.first if report.ids is not None else None,
        "last_id": report.ids.last if report.ids is not None else None,
        "ids_asked": report.ids_asked,
        "partitions": len(snapshot.partitions),
        "buckets": sum(partition.bucket_count for partition in snapshot.partitions),
        "files": totals.files,
        "bytes": totals.bytes,
        "seconds": {phase: round(seconds, 3) for phase, seconds in report.seconds.items()},
        "total_seconds": round(report.total_seconds, 3),
    }
