"""A local Spark for commands: what it says on standard error goes to a file, which is named when something fails."""

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
from typing import TYPE_CHECKING

from stelae.builder.local.session import local_session
from stelae.errors import Conflict, InvalidRequest, NotFound, StelaeError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPLAINED = (InvalidRequest, NotFound, Conflict)
"""Errors that no log explains any better."""


@contextmanager
def quiet_session(
    debug: bool,
    cores: int | None,
    memory: str | None,
    settings: dict[str, str],
    note: Callable[[str], None],
) -> Iterator[SparkSession]:
    """A local session whose log stays off the screen, unless `debug`: what matters of it is in the errors.

    A session that runs already is used and left running. `note` is told where the log is when it may explain a failure.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        yield local_session(cores=cores, memory=memory, settings=settings)
        return
    with spark_log(debug, note) as log:
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
def spark_log(debug: bool, note: Callable[[str], None]) -> Iterator[Path | None]:
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
            note(f"Spark's log: {log}")
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
