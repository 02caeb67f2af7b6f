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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.builder.plan.options import BuildOptions
from stelae.cli import screen
from stelae.cli.arguments import JsonOption, TableArgument, WarehouseOption, open_warehouse, parse_pairs
from stelae.cli.option_flags import takes_declared_options
from stelae.declared_options import check_limits, option, options_table
from stelae.errors import Conflict, InvalidRequest, NotFound, StelaeError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stelae.builder.report import BuildReport, Progress

DEMO_FOLDER = "stelae-demo"
EXPLAINED = (InvalidRequest, NotFound, Conflict)
"""Errors that no log explains any better."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(build)
    app.command()(demo)


@dataclass(frozen=True)
class CommandOptions:
    """What `stelae build` needs to know beside the options of a build: how files are read, and what Spark gets."""

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

    reader_options = parse_pairs(command.reader_options, "--option")
    settings = parse_pairs(command.conf, "--conf")
    store = open_warehouse(warehouse)
    target = store.table(table)
    session = spark_session(context.obj.debug, command.cores, command.memory, settings)
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


def options_page() -> str:
    """The table of docs/cli.md."""
    return options_table(BuildOptions, CommandOptions)


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


if __name__ == "__main__":
    sys.stdout.write(options_page())
