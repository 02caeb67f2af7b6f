"""Commands of the builder: build, demo. Added to `stelae` through the entry point `stelae.commands`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli import screen
from stelae.cli.arguments import JsonOption, TableArgument, WarehouseOption, open_warehouse, parse_pairs
from stelae.errors import Conflict, InvalidRequest, NotFound, StelaeError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stelae.builder.job import BuildReport, Progress

DEMO_FOLDER = "stelae-demo"
EXPLAINED = (InvalidRequest, NotFound, Conflict)
"""Errors that no log explains any better."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(build)
    app.command()(demo)


def build(
    context: typer.Context,
    table: TableArgument,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help="Files, folders, globs; later ones win.")],
    warehouse: WarehouseOption,
    format: Annotated[  # noqa: A002
        str | None, typer.Option("--format", help="parquet, orc, csv, tsv, json, ...; by the endings unless given.")
    ] = None,
    row_kind: Annotated[
        str | None, typer.Option("--row-kind", metavar="COLUMN", help="Column that says +I, -U, +U or -D.")
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help="merge: into the rows there are; overwrite: instead.")] = "merge",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="KEY=VALUE", help="Option of Spark's reader, such as nullValue=NA. Repeat it."
        ),
    ] = None,
    target_columns: Annotated[
        str | None,
        typer.Option("--target-columns", metavar="A,B", help="Set these columns, let the others of a row be."),
    ] = None,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="An input without rows is no error.")] = False,
    allow_missing_columns: Annotated[
        bool, typer.Option("--allow-missing-columns", help="Nullable columns that the input lacks are null.")
    ] = False,
    allow_count_change: Annotated[
        bool, typer.Option("--allow-count-change", help="Commit in spite of snapshot.max-count-change.")
    ] = False,
    ignore_extra_columns: Annotated[
        bool, typer.Option("--ignore-extra-columns", help="Leave out columns that the table has not.")
    ] = False,
    cores: Annotated[int | None, typer.Option("--cores", min=1, metavar="N", help="All unless given.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="For Spark; 4g unless given.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark. Repeat it.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Merge files into a table and commit a snapshot.

    Runs Spark on this machine. On a cluster, call stelae.builder.build from a job of your own.
    """
    from stelae.builder.input.files import read_files
    from stelae.builder.job import run_build
    from stelae.builder.plan.build_plan import MODES, Mode

    modes: dict[str, Mode] = {name: name for name in MODES}
    if mode not in modes:
        raise InvalidRequest(f"unknown mode {mode!r}", place="--mode", hint=f"modes: {', '.join(modes)}")
    reader_options = parse_pairs(option or [], "--option")
    settings = parse_pairs(conf or [], "--conf")
    store = open_warehouse(warehouse)
    target = store.table(table)
    with status(f"building {target.name}") as tell, spark_session(context.obj.debug, cores, memory, settings) as spark:
        tell("reading the input's columns")
        frame = read_files(spark, inputs, target.schema, format=format, row_kind=row_kind, options=reader_options)
        report = run_build(
            spark,
            store,
            table,
            frame,
            row_kind=row_kind,
            mode=modes[mode],
            target_columns=None if target_columns is None else [name.strip() for name in target_columns.split(",")],
            allow_empty=allow_empty,
            allow_missing_columns=allow_missing_columns,
            allow_count_change=allow_count_change,
            ignore_extra_columns=ignore_extra_columns,
            has_arrival=True,
            listener=lambda progress: tell(progress_text(progress)),
        )
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
    from stelae.builder.demo import run

    run(folder, port=port, keep=keep)


@contextmanager
def spark_session(
    debug: bool, cores: int | None, memory: str | None, settings: dict[str, str]
) -> Iterator[SparkSession]:
    """A local session whose log stays off the screen, unless `debug`: what matters of it is in the errors.

    A session that runs already is used and left running.
    """
    from pyspark.sql import SparkSession

    from stelae.builder.local.session import local_session

    if SparkSession.getActiveSession() is not None:
        yield local_session(cores=cores, memory=memory, settings=settings)
        return
    with spark_log(debug) as log:
        with standard_error_in(log):
            spark = start(lambda: local_session(cores=cores, memory=memory, settings=settings))
        with quiet_interrupts(debug):
            try:
                yield spark
            finally:
                spark.stop()


@contextmanager
def quiet_interrupts(debug: bool) -> Iterator[None]:
    """Ctrl-C ends a build without stack traces of the connection to Spark, unless `debug`.

    PySpark's own handler asks Spark over the connection that is waiting for an answer, which fails; stopping Spark ends
    all jobs as well. py4j logs whatever interrupts it, to the root logger.
    """
    if debug:
        yield
        return

    def wanted(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(wanted)
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    try:
        yield
    finally:
        root.removeFilter(wanted)
        if main:
            signal.signal(signal.SIGINT, before)


def start(session: Callable[[], SparkSession]) -> SparkSession:
    """A new session. That there is no Java is an error of its own; all else becomes one here."""
    try:
        return session()
    except StelaeError:
        raise
    except Exception as exc:
        raise Unavailable(f"Spark does not start: {exc}", hint="its log may say why") from exc


@contextmanager
def spark_log(debug: bool) -> Iterator[Path | None]:
    """A file for what Spark's processes say. It is kept, and named, when something fails that it may explain."""
    if debug:
        yield None
        return
    handle, name = tempfile.mkstemp(prefix="stelae-spark-", suffix=".log")
    os.close(handle)
    log = Path(name)
    try:
        yield log
    except Exception as exc:
        if isinstance(exc, EXPLAINED) or not log.stat().st_size:
            log.unlink()
        else:
            screen.note(f"Spark's log: {log}")
        raise
    except BaseException:
        log.unlink()
        raise
    log.unlink()


@contextmanager
def standard_error_in(log: Path | None) -> Iterator[None]:
    """Processes that are started now write to the file what they would to standard error, as long as they live.

    Spark says a dozen things before its log can be set up, and Python workers print stack traces of errors that are
    reported anyway.
    """
    if log is None:
        yield
        return
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


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
