"""Merging: 5 million change records onto the 1 million stored rows of a table, with the engines that people use most.

Peers: the Spark aggregations that one would write by hand for the same rows, with the same buckets, the same sort and
the same writer of sorted files. They read the same Parquet files of changes and the same stored rows, and check
nothing. Before anything is timed, both have to come to the same rows. Targets: at most 1.2 times as long for
`deduplicate`, 1.5 times for `aggregation` and `partial-update`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from stelae.builder import read, run_build
from stelae.builder.base.snapshot_rows import stored_rows
from stelae.builder.local.session import local_session
from stelae.builder.spark_sql.added_columns import HIDDEN_COLUMN, ORDINAL_COLUMN
from stelae.builder.write.bucket_report import REPORT_DDL, BucketReport
from stelae.builder.write.bucket_writer import WriteSpec
from stelae.builder.write.write_job import batches_by_rows
from stelae.encoding.buckets import spark_bucket_expression
from stelae.schema.merge_rules import state_columns
from stelae.snapshot.warehouse import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS = 4
FILES = 8
"""Files that the changes lie in."""

ByHand = Callable[["DataFrame", "DataFrame"], "DataFrame"]
"""Stored rows and changes → the table's columns and `hidden`, written by hand."""


@dataclass(frozen=True)
class Merge:
    """A table, what is stored in it, and changes to it."""

    name: str
    ddl: str
    base: tuple[str, ...]
    """Columns of stored rows, as SQL over the key `id`."""
    changes: tuple[str, ...]
    """Columns of changes, as SQL over the key `id`, a random number `r` and `at`, which is random and never twice the
    same.
    """
    by_hand: ByHand
    target: str
    row_kind: str | None = None
    by_arrival: tuple[str, ...] = ()
    """Columns in which both sides may differ: Spark reads files in an order of its own."""


def main() -> None:
    quick = quick_mode(__doc__)
    keys, changes, rounds = (100_000, 500_000, 3) if quick else (1_000_000, 5_000_000, 5)
    spark = local_session(memory="4g")
    ratios = []
    for merge in MERGES:
        folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
        try:
            ratios.append(run(spark, merge, folder, keys, changes, rounds))
        finally:
            shutil.rmtree(folder)
    show(f"Merge {changes:,} changes onto {keys:,} rows, median of {rounds}", ratios)


def run(spark: SparkSession, merge: Merge, folder: Path, keys: int, changes: int, rounds: int) -> Ratio:
    print(merge.name, flush=True)
    warehouse = Warehouse(folder / "warehouse")
    table = warehouse.create_table(merge.ddl)
    name = str(table.name)
    write_changes(spark, merge, folder / "changes", keys, changes)
    first = run_build(spark, warehouse, name, spark.range(keys).selectExpr("id", *merge.base)).snapshot

    def rows_by_hand() -> DataFrame:
        base = stored_rows(spark, table, table.schema, first.partitions)
        return merge.by_hand(base, spark.read.parquet(str(folder / "changes")))

    def by_hand() -> float:
        started = time.perf_counter()
        reports = write(rows_by_hand(), table)
        seconds = time.perf_counter() - started
        for report in reports:
            table.storage.delete(str(report.path))
        return seconds

    def stelae() -> float:
        if table.snapshots.latest_id() != first.id:
            table.snapshots.rollback(first.id, now_ms=time.time_ns() // 1_000_000)
        started = time.perf_counter()
        run_build(spark, warehouse, name, spark.read.parquet(str(folder / "changes")), row_kind=merge.row_kind)
        return time.perf_counter() - started

    in_turn(1, {"warm-up, by hand": by_hand, "warm-up, Stelae": stelae})
    check_same(read(spark, warehouse, name).drop(*merge.by_arrival), rows_by_hand())
    seconds = in_turn(rounds, {"by hand": by_hand, "Stelae": stelae})
    return Ratio(merge.name, median(seconds["Stelae"]), median(seconds["by hand"]), "s", merge.target)


def write_changes(spark: SparkSession, merge: Merge, folder: Path, keys: int, changes: int) -> None:
    numbers = spark.range(0, changes, 1, FILES).selectExpr(
        f"pmod(xxhash64(id), {keys}) AS id",
        "pmod(xxhash64(id, 1), 1000000) AS r",
        f"1 + (id * 7919) % {changes} AS at",
    )
    numbers.selectExpr("id", *merge.changes).write.parquet(str(folder))


def write(rows: DataFrame, table: Table) -> list[BucketReport]:
    """Bucket, sort and write as a build does it, without a look at what the rows are."""
    from pyspark.sql import functions as f

    bucket = f.expr(spark_bucket_expression(table.schema.bucket_columns, BUCKETS))
    columns = [f.col(column.name) for column in (*table.schema.key_columns, *table.schema.value_columns)]
    columns += [f.lit(None).cast(column.type.spark()) for column in state_columns(table.schema)]
    numbered = [column.alias(f"_{i}") for i, column in enumerate(columns)]
    placed = rows.select(bucket.alias(ORDINAL_COLUMN), *numbered, f.col("hidden").alias(HIDDEN_COLUMN))
    spec = WriteSpec(
        schema=table.schema,
        storage=table.storage,
        folders={bucket: ("", bucket) for bucket in range(BUCKETS)},
        task_count=BUCKETS,
        merged=False,
        keeps_tombstones=True,
        forget_before_ms=None,
        folds={},
        files=table.schema.options.files,
    )
    with batches_by_rows(rows.sparkSession, large=False):
        reports = (
            placed.repartitionById(BUCKETS, ORDINAL_COLUMN).sortWithinPartitions("_0").mapInArrow(spec, REPORT_DDL)
        )
        return [BucketReport.decode(row[0]) for row in reports.collect()]


def check_same(ours: DataFrame, by_hand: DataFrame) -> None:
    by_hand = by_hand.where("NOT hidden").select(*ours.columns)
    differences = ours.exceptAll(by_hand).limit(3).collect() + by_hand.exceptAll(ours).limit(3).collect()
    if differences:
        raise SystemExit(f"Stelae and the aggregation by hand differ: {differences}")


# --- by hand


def deduplicate_by_hand(base: DataFrame, changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    records = base.drop(HIDDEN_COLUMN).withColumn("kind", f.lit("+I")).unionByName(changes)
    newest = f.max_by(f.struct("name", "city", "score", "visits", "changed", "kind"), "changed")
    rows = records.groupBy("id").agg(newest.alias("row"))
    return rows.select("id", "row.*", (f.col("row.kind") == "-D").alias("hidden"))


def aggregation_by_hand(base: DataFrame, changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    base = base.drop(HIDDEN_COLUMN).withColumn("arrival", f.lit(-1).cast("bigint"))
    records = base.unionByName(changes.withColumn("arrival", f.monotonically_increasing_id()))
    return records.groupBy("id").agg(
        f.sum("total").alias("total"),
        f.max("peak").alias("peak"),
        f.max_by("status", "arrival").alias("status"),
        f.min("since").alias("since"),
        f.lit(False).alias("hidden"),
    )


def ordered_aggregation_by_hand(base: DataFrame, changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    records = base.drop(HIDDEN_COLUMN).unionByName(changes)
    return records.groupBy("id").agg(
        f.sum("total").alias("total"),
        f.max("peak").alias("peak"),
        f.max_by("status", "changed").alias("status"),
        f.min("since").alias("since"),
        f.max("changed").alias("changed"),
        f.lit(False).alias("hidden"),
    )


def partial_update_by_hand(base: DataFrame, changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    records = base.drop(HIDDEN_COLUMN).unionByName(changes)
    merged = records.groupBy("id").agg(
        f.max_by(f.struct("moved", "name", "city"), "moved").alias("profile"),
        f.max_by(f.struct("seen", "page", "visits"), "seen").alias("visit"),
    )
    return merged.select("id", "profile.*", "visit.*", f.lit(False).alias("hidden"))


# --- tables


SALES = """CREATE TABLE sales (
        id BIGINT, total BIGINT, peak INT, status STRING, since DATE{columns}, PRIMARY KEY (id) NOT ENFORCED
    ) WITH (
        'bucket' = '4', 'merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum',
        'fields.peak.aggregate-function' = 'max', 'fields.status.aggregate-function' = 'last_value',
        'fields.since.aggregate-function' = 'min'{options}
    )"""
SALE = (
    "r % 1000 AS total",
    "CAST(r AS INT) AS peak",
    "concat('status ', r % 100) AS status",
    "date_from_unix_date(CAST(r % 20000 AS INT)) AS since",
)
STORED_SALE = tuple(column.replace("CAST(r ", "CAST(id ").replace("r % ", "id % ") for column in SALE)

MERGES = (
    Merge(
        "deduplicate",
        """CREATE TABLE users (
            id BIGINT, name STRING, city STRING, score DOUBLE, visits INT, changed BIGINT,
            PRIMARY KEY (id) NOT ENFORCED
        ) WITH ('bucket' = '4', 'sequence.field' = 'changed')""",
        base=(
            "concat('user ', id) AS name",
            "concat('city ', id % 1000) AS city",
            "id / 7 AS score",
            "CAST(id % 100 AS INT) AS visits",
            "-id AS changed",
        ),
        changes=(
            "concat('user ', r) AS name",
            "concat('city ', r % 1000) AS city",
            "r / 7 AS score",
            "CAST(r % 100 AS INT) AS visits",
            "at AS changed",
            "CASE WHEN r % 20 = 0 THEN '-D' WHEN r % 4 = 0 THEN '+I' ELSE '+U' END AS kind",
        ),
        by_hand=deduplicate_by_hand,
        target="<= 1.2",
        row_kind="kind",
    ),
    Merge(
        "aggregation",
        SALES.format(columns="", options=""),
        base=STORED_SALE,
        changes=SALE,
        by_hand=aggregation_by_hand,
        target="<= 1.5",
        by_arrival=("status",),
    ),
    Merge(
        "aggregation, sequence field",
        SALES.format(columns=", changed BIGINT", options=", 'sequence.field' = 'changed'"),
        base=(*STORED_SALE, "-id AS changed"),
        changes=(*SALE, "at AS changed"),
        by_hand=ordered_aggregation_by_hand,
        target="<= 1.5",
    ),
    Merge(
        "partial-update, 2 sequence groups",
        """CREATE TABLE visitors (
            id BIGINT, moved BIGINT, name STRING, city STRING, seen BIGINT, page STRING, visits INT,
            PRIMARY KEY (id) NOT ENFORCED
        ) WITH (
            'bucket' = '4', 'merge-engine' = 'partial-update', 'fields.moved.sequence-group' = 'name,city',
            'fields.seen.sequence-group' = 'page,visits'
        )""",
        base=(
            "-id AS moved",
            "concat('user ', id) AS name",
            "concat('city ', id % 1000) AS city",
            "-id AS seen",
            "concat('/shop/', id % 10000) AS page",
            "CAST(id % 100 AS INT) AS visits",
        ),
        # Two streams: each has the columns of one group.
        changes=(
            "IF(r % 2 = 0, at, NULL) AS moved",
            "IF(r % 2 = 0, concat('user ', r), NULL) AS name",
            "IF(r % 2 = 0, concat('city ', r % 1000), NULL) AS city",
            "IF(r % 2 = 1, at, NULL) AS seen",
            "IF(r % 2 = 1, concat('/shop/', r % 10000), NULL) AS page",
            "IF(r % 2 = 1, CAST(r % 100 AS INT), NULL) AS visits",
        ),
        by_hand=partial_update_by_hand,
        target="<= 1.5",
    ),
)


if __name__ == "__main__":
    main()
