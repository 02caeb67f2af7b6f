"""A local Spark session with settings that fit small machines: what `stelae build`, the demo and the tests run on.

A job on a cluster brings its own session.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stelae.builder.local.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # TIME columns, which Spark 4.3 has but hides.
    "spark.sql.timeType.enabled": "true",
    # Returned Arrow batches are matched by name and type; without it Spark matches them by position alone.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Python workers over a socket file: a task costs 7 ms instead of 33 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    # Python workers import nothing from the folder that the command was typed in: it may have a json.py.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # A task that fails once (a full disk, a killed worker) is tried again, as on a cluster.
    "spark.task.maxFailures": "3",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Few, for one machine; adaptive execution joins what is small.
    "spark.sql.shuffle.partitions": "8",
}

JAVA_OPTIONS = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
"""What a failed task has to say reaches the driver as an exception; its stack on the screen as well helps nobody."""


def local_session(
    *, cores: int | None = None, memory: str | None = None, ui: bool = False, settings: dict[str, str] | None = None
) -> SparkSession:
    """The running session, or a new local one on `cores` cores (default: all) with `memory` for the JVM (default:
    `4g`).

    Finds or brings a Java first. `settings` are Spark settings that win over the defaults here.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.update(ensure_java())
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ.update(this_python(sys.executable, os.environ.get("PATH", os.defpath)))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # "*" is what the JVM sees, which in a container is the container's share and not the machine.
    builder = SparkSession.builder.master(f"local[{cores or '*'}, 3]").appName("stelae")
    java_options = (settings or {}).get("spark.driver.extraJavaOptions", "")
    merged = {
        **LOCAL_SETTINGS,
        "spark.ui.enabled": str(ui).lower(),
        "spark.driver.memory": memory or "4g",
        **(settings or {}),
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {java_options}".strip(),
    }
    for name, value in merged.items():
        builder = builder.config(name, value)
    # PySpark logs every error that it also raises, as a page of JSON.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return builder.getOrCreate()


def this_python(executable: str, path: str) -> dict[str, str]:
    """Variables with which Spark starts this Python, and not `python3` of the `path`, which lacks the packages of this
    environment.

    Spark asks a shell, without quotes, whether there is such a command before it looks for data sources. So a Python
    that has a space in its path is called by its name, and found by the path.
    """
    if " " not in executable:
        return {"PYSPARK_PYTHON": executable}
    folder, name = os.path.split(executable)
    return {"PYSPARK_PYTHON": name, "PATH": f"{folder}{os.pathsep}{path}"}
