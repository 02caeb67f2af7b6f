"""Goal: a job outlives what happens to tasks and servers, or ends with one clear error. A server killed in the middle
and started again: the job finishes, with the rows of its snapshot. Tasks that fail and are tried again inserting
words: equal words have equal ids, ids are dense, no word is lost.

Method: servers as processes of their own, killed with SIGKILL while a thread runs the job; tasks that fail in their
first attempt, behind the lookup (the session tries a task three times).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from stelae import Client
from stelae.errors import InvalidRequest, Unavailable
from stelae.snapshot.warehouse import Warehouse
from stelae.spark import LookupStats, lookup_join
from tests.stelae.spark.conftest import Served
from tests.stelae.spark.tables import wait_until_served
from tests.tables import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
KEYS = 60_000


class Server:
    """A `stelae serve` process that can be killed, and started again on its port."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "stelae", "serve", "-w", self._warehouse, "--port", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert "serving" in self._process.stdout.readline()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def started(warehouse: str) -> Iterator[Server]:
    server = Server(warehouse)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("faults") / "warehouse")
    table = warehouse.create_table("CREATE TABLE shop.squares (k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED)")
    commit_rows(table, pa.table({"k": range(KEYS), "v": [k * k for k in range(KEYS)]}))
    return warehouse


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(BATCH, "500")
    yield
    spark.conf.unset(BATCH)


@pytest.mark.usefixtures("small_batches")
def test_a_server_that_is_killed_and_comes_back(spark: SparkSession, squares: Warehouse) -> None:
    with started(squares.url) as server:
        stats = LookupStats()
        joined = lookup_join(
            spark.range(0, KEYS, 1, 4).withColumnRenamed("id", "k"), "shop.squares", "k", server.url,
            batch_size=20, max_in_flight=1, stats=stats,
        )  # fmt: skip
        answers: list[Any] = []
        job = threading.Thread(target=lambda: answers.extend(joined.selectExpr("count(*)", "sum(v)").collect()))
        job.start()
        while not stats.tasks and job.is_alive():
            time.sleep(0.01)
        assert not answers, "the job was done before the server was killed"
        server.kill()
        time.sleep(1)
        server.start()
        job.join(100)
        assert tuple(answers[0]) == (KEYS, sum(k * k for k in range(KEYS)))
        assert (stats.retries or 0) > 0


def test_a_server_that_does_not_come_back(spark: SparkSession, squares: Warehouse) -> None:
    with started(squares.url) as server:
        joined = lookup_join(
            spark.range(10).withColumnRenamed("id", "k"), "shop.squares", "k", server.url, deadline_s=1
        )
        server.kill()
        with pytest.raises(Unavailable, match="no answer for 1 s: can't reach") as caught:
            joined.collect()
    assert "Traceback" not in str(caught.value)
    assert "deadline_s" in str(caught.value)


def test_of_several_servers_one_is_enough(spark: SparkSession, squares: Warehouse) -> None:
    with started(squares.url) as server:
        joined = lookup_join(
            spark.range(10).withColumnRenamed("id", "k"), "shop.squares", "k", ["http://127.0.0.1:9", server.url]
        )
        assert joined.selectExpr("sum(v)").first() == (285,)


@pytest.mark.usefixtures("small_batches")
def test_a_dictionary_is_built_by_tasks_that_fail(spark: SparkSession, served: Served) -> None:
    served.warehouse.create_table(
        "CREATE TABLE shop.words (name STRING, uid BIGINT, PRIMARY KEY (name) NOT ENFORCED) "
        "WITH ('auto-increment.fields' = 'uid')"
    )
    wait_until_served(served.url, "shop.words", None)
    words = spark.range(0, 40_000, 1, 6).selectExpr("id", "concat('w', pmod(xxhash64(id), 7000)) AS word")
    stats = LookupStats()
    numbered = lookup_join(
        words, "shop.words", {"name": "word"}, served.url, columns=["uid"], insert_if_not_exists=True,
        batch_size=1000, stats=stats,
    )  # fmt: skip

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context is not None and context.attemptNumber() == 0 and context.partitionId() % 2:
            raise OSError("this attempt is lost")

    rows = numbered.mapInArrow(fail_once, numbered.schema).collect()
    assert len(rows) == 40_000
    ids: dict[str, int] = {}
    for row in rows:
        assert ids.setdefault(row.word, row.uid) == row.uid
    assert sorted(ids.values()) == list(range(1, len(ids) + 1)), "an id a word, without gaps"
    assert len(ids) == words.select("word").distinct().count()
    with Client(served.url) as client:
        assert [row and row["uid"] for row in client.lookup_many("shop.words", list(ids))] == list(ids.values())
    assert stats.tasks == 6, "attempts that failed do not count"
    # Of 40,000 rows in Arrow batches of 500 there are 80: their new keys are gathered.
    assert (stats.requests or 0) < 50


def test_a_null_word_gets_no_id_and_one_too_wide_is_refused(spark: SparkSession, served: Served) -> None:
    served.warehouse.create_table(
        "CREATE TABLE shop.numbers (n INT, uid BIGINT, PRIMARY KEY (n) NOT ENFORCED) "
        "WITH ('auto-increment.fields' = 'uid')"
    )
    wait_until_served(served.url, "shop.numbers", None)
    frame = spark.createDataFrame([(5,), (None,)], "n BIGINT")
    joined = lookup_join(frame, "shop.numbers", "n", served.url, insert_if_not_exists=True)
    assert sorted(map(str, joined.collect())) == ["Row(n=5, uid=1)", "Row(n=None, uid=None)"]
    wide = spark.createDataFrame([(2**40,)], "n BIGINT")
    with pytest.raises(InvalidRequest, match="column n INT"):
        lookup_join(wide, "shop.numbers", "n", served.url, insert_if_not_exists=True).collect()
