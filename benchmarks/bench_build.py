"""Building: 5 million TPC-H orders, deduplicated and written as a table.

Peer: what Spark itself needs to move the same rows to the same buckets, sort them by key and write them as Parquet
with zstd; no deduplication there. Both read the same Parquet file. Target: at most 1.4 times as long.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from stelae.builder import run_build
from stelae.builder.local.session import local_session
from stelae.encoding.buckets import spark_bucket_expression
from stelae.snapshot.warehouse import Warehouse

ORDERS = """
    CREATE TABLE orders (
        o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15, 2), o_orderdate DATE,
        o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING,
        PRIMARY KEY (o_orderkey) NOT ENFORCED
    ) WITH ('bucket' = '4')"""
ROWS_PER_SCALE = 1_500_000


def main() -> None:
    quick = quick_mode(__doc__)
    scale = 0.34 if quick else 3.34
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        generate = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run([generate, "parquet", "-s", str(scale), "--tables=orders", f"--output-dir={folder}"], check=True)
        run(folder, rounds=2 if quick else 5)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rounds: int) -> None:
    spark = local_session(memory="4g")
    orders = spark.read.parquet(str(folder / "orders.parquet"))
    warehouse = Warehouse(folder / "warehouse")
    table = warehouse.create_table(ORDERS)
    rows = orders.count()

    def parquet() -> float:
        bucket = spark_bucket_expression(table.schema.bucket_columns, 4)
        started = time.perf_counter()
        (
            orders.selectExpr("*", f"{bucket} AS bucket")
            .repartitionById(4, "bucket")
            .sortWithinPartitions("o_orderkey")
            .write.mode("overwrite")
            .option("compression", "zstd")
            .parquet(str(folder / "parquet"))
        )
        return time.perf_counter() - started

    def stelae() -> float:
        started = time.perf_counter()
        run_build(spark, warehouse, "orders", orders, mode="overwrite")
        return time.perf_counter() - started

    in_turn(1, {"warm-up, Parquet": parquet, "warm-up, Stelae": stelae})
    seconds = in_turn(rounds, {"Parquet": parquet, "Stelae": stelae})
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    assert snapshot.totals.visible_rows == rows
    parquet_bytes = sum(file.stat().st_size for file in (folder / "parquet").glob("*.parquet"))
    note = f"{rows:,} rows of 9 columns; {snapshot.totals.bytes:,} bytes, Parquet {parquet_bytes:,}; median of {rounds}"
    show("Build", [Ratio("build", median(seconds["Stelae"]), median(seconds["Parquet"]), "s", "<= 1.4", note=note)])


if __name__ == "__main__":
    main()
