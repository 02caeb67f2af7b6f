"""Building a dictionary: 10 million rows of one column, a million distinct words, into a table that numbers them.

Peer: Spark's `distinct` of the same column, written as Parquet. Both read the same Parquet files. Target: at most twice
as long. Every build starts from an empty table and must number the words densely: as many ids as words, from 1.

    python -m benchmarks.bench_dictionary_build [--quick]
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Ratio, in_turn, median, quick_mode, show
from benchmarks.words import make_stream, make_words
from stelae.builder import read, run_build
from stelae.builder.local.session import local_session
from stelae.snapshot.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DICTIONARY = """CREATE TABLE words (word STRING, id BIGINT, PRIMARY KEY (word) NOT ENFORCED)
    WITH ('bucket' = '4', 'auto-increment.fields' = 'id')"""
FILES = 8
"""Files that the rows lie in."""


def main() -> None:
    quick = quick_mode(__doc__)
    words = 100_000 if quick else 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    try:
        write_rows(folder / "rows", words)
        run(folder, words, rounds=3 if quick else 5)
    finally:
        shutil.rmtree(folder)


def write_rows(folder: Path, words: int) -> None:
    """Each word once and nine times as many repeats, by Zipf's law, shuffled."""
    folder.mkdir()
    distinct = pa.array(make_words(words, seed=1))
    for i, stream in enumerate(np.array_split(make_stream(words, repeats=9 * words, seed=1), FILES)):
        pq.write_table(pa.table({"word": distinct.take(pa.array(stream))}), folder / f"{i}.parquet")


def run(folder: Path, words: int, rounds: int) -> None:
    spark = local_session(memory="4g")
    numbers = itertools.count()

    def rows() -> DataFrame:
        return spark.read.parquet(str(folder / "rows"))

    def distinct() -> float:
        started = time.perf_counter()
        rows().distinct().write.mode("overwrite").parquet(str(folder / "distinct"))
        return time.perf_counter() - started

    def stelae() -> float:
        warehouse = Warehouse(folder / f"warehouse-{next(numbers)}")
        warehouse.create_table(DICTIONARY)
        started = time.perf_counter()
        run_build(spark, warehouse, "words", rows())
        seconds = time.perf_counter() - started
        check_dense(spark, warehouse, words)
        return seconds

    in_turn(1, {"warm-up, distinct": distinct, "warm-up, Stelae": stelae})
    assert spark.read.parquet(str(folder / "distinct")).count() == words
    seconds = in_turn(rounds, {"distinct": distinct, "Stelae": stelae})
    show(
        f"Dictionary build of {10 * words:,} rows, {words:,} distinct words, median of {rounds}",
        [Ratio("build / distinct + Parquet", median(seconds["Stelae"]), median(seconds["distinct"]), "s", "<= 2")],
    )


def check_dense(spark: SparkSession, warehouse: Warehouse, words: int) -> None:
    """All words are there, numbered 1, 2, 3, ..."""
    numbered = read(spark, warehouse, "words").selectExpr(
        "count(*)", "count(DISTINCT word)", "count(DISTINCT id)", "min(id)", "max(id)"
    )
    assert tuple(numbered.first() or ()) == (words, words, words, 1, words), numbered.first()


if __name__ == "__main__":
    main()
