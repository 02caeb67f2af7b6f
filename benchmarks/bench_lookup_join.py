"""Lookup join: 10 million rows of a Spark frame against a table of 1 million keys behind a tablet server.

Peers, on the same Parquet files: Spark's own broadcast join and sort-merge join, with the table as Parquet; and the
naive way, a Python function a row that asks over HTTP, of a sample, extrapolated. Server, JVM and Python workers share
the machine; each of our runs begins with empty caches in the workers. Target: at most twice the broadcast join.

    python -m benchmarks.bench_lookup_join [--quick]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.servers import make_users, tablet_server
from stelae.builder import read
from stelae.builder.local.session import local_session
from stelae.snapshot.warehouse import Warehouse
from stelae.spark import LookupStats, lookup_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = "shop.users"
NAIVE_ROWS = 4_000


def main() -> None:
    quick = quick_mode(__doc__)
    keys = 100_000 if quick else 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        run(folder, keys, rounds=3)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, keys: int, rounds: int) -> None:
    spark = local_session(memory="4g")
    make_users(folder / "warehouse", keys)
    read(spark, Warehouse(folder / "warehouse"), TABLE).write.parquet(str(folder / "users"))
    rows = 10 * keys
    spark.range(0, rows, 1, 8).selectExpr(
        "id AS order_id",
        f"pmod(xxhash64(id), {keys}) AS user_id",
        "id % 7 AS quantity",
        "concat('note ', id % 1000) AS note",
    ).write.parquet(str(folder / "orders"))
    some = pq.read_table(folder / "orders").slice(0, NAIVE_ROWS)
    pq.write_table(some, folder / "some.parquet")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    # As docs/spark.md advises: Spark measures each row otherwise.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483646b")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    stats = LookupStats()
    with tablet_server(folder / "warehouse") as server:
        url = f"http://127.0.0.1:{server.port}"

        def orders() -> DataFrame:
            return spark.read.parquet(str(folder / "orders"))

        def users() -> DataFrame:
            return spark.read.parquet(str(folder / "users"))

        def ours(**options: object) -> DataFrame:
            return lookup_join(orders(), TABLE, "user_id", url, **options)  # type: ignore[arg-type]

        runs: dict[str, Callable[[], float]] = {
            "lookup_join": lambda: seconds(ours(stats=stats)),
            "lookup_join, one column": lambda: seconds(ours(columns=["score"])),
            "broadcast": lambda: seconds(orders().join(users().hint("broadcast"), "user_id", "left")),
            "broadcast, one column": lambda: seconds(
                orders().join(users().select("user_id", "score").hint("broadcast"), "user_id", "left")
            ),
            "sort-merge": lambda: seconds(orders().hint("merge").join(users().hint("merge"), "user_id", "left")),
            "scan": lambda: seconds(orders()),
        }
        in_turn(1, {f"warm-up, {name}": each for name, each in runs.items()})
        check(ours(), orders().join(users(), "user_id", "left"))
        before = server.cpu_s()
        took = {name: median(values) for name, values in in_turn(rounds, runs).items()}
        server_s = (server.cpu_s() - before) / (2 * rounds)
        naive_s = in_turn(1, {"naive": lambda: naive(spark.read.parquet(str(folder / "some.parquet")), url)})["naive"][
            0
        ]
    naive_s *= rows / NAIVE_ROWS
    print(stats)
    show(
        f"Lookup join of {rows:,} rows with {keys:,} keys, five columns, median of {rounds}",
        [
            Ratio("lookup_join / broadcast join", took["lookup_join"], took["broadcast"], "s", "<= 2"),
            Ratio("the same, one column", took["lookup_join, one column"], took["broadcast, one column"], "s", "<= 2"),
            Ratio("lookup_join / sort-merge join", took["lookup_join"], took["sort-merge"], "s", ""),
            Ratio("lookup_join / scan of the rows", took["lookup_join"], took["scan"], "s", ""),
            Ratio(
                "naive function a row / lookup_join", naive_s, took["lookup_join"], "s", "> 10",
                note=f"naive: extrapolated from {NAIVE_ROWS:,} rows; the server took {server_s:.2f} s of processor "
                "time a join",
            ),
        ],
    )  # fmt: skip


def seconds(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def naive(frame: DataFrame, url: str) -> float:
    """Seconds of a function that asks for each row by itself, over a connection that stays open."""
    from pyspark.sql.functions import udf

    @udf("score DOUBLE, name STRING", useArrow=False)
    def ask(user_id: int) -> object:
        from stelae.client import client

        if not hasattr(client, "of_naive"):
            client.of_naive = client.Client(url)  # type: ignore[attr-defined]
        row = client.of_naive.lookup(TABLE, user_id)  # type: ignore[attr-defined]
        return None if row is None else (row["score"], row["name"])

    return seconds(frame.repartition(2).withColumn("user", ask("user_id")))


def check(ours: DataFrame, peer: DataFrame) -> None:
    """Both joins give the same rows."""
    sums = [
        "count(*)",
        "count(name)",
        "sum(score)",
        "sum(xxhash64(order_id, user_id, name, city, age, updated) % 1000)",
    ]
    assert ours.selectExpr(*sums).collect() == peer.selectExpr(*sums).collect()


if __name__ == "__main__":
    main()
