"""Goal: a build commits exactly what it should, in the buckets it should, or nothing at all.

Method: small frames through real builds; manifests and folders looked at afterwards; everything that can be wrong
with the input; two builds on one parent.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import BuildReport, Progress, build, read, run_build
from stelae.builder.input.change_records import change_records
from stelae.builder.job import make_plan
from stelae.builder.lease.lease import BuildLease
from stelae.builder.plan.build_plan import choose_bucket_count
from stelae.encoding.buckets import BucketFunction
from stelae.encoding.keys import KeyCodec
from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.ownership.takeover import LogRange
from stelae.read.open_snapshot import open_snapshot
from stelae.schema.sql import parse_create_table
from stelae.snapshot.warehouse import Table, Warehouse
from tests.files import read_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

USERS = "CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
VISITS = """
    CREATE TABLE visits (dt STRING, id INT, pages INT, PRIMARY KEY (dt, id) NOT ENFORCED)
    PARTITIONED BY (dt) WITH ('bucket' = '2')"""


def users(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, "id BIGINT, name STRING").coalesce(1)


def content(
    spark: SparkSession, warehouse: Warehouse, table: str, snapshot: int | None = None
) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read(spark, warehouse, table, snapshot).collect())


def files_on_disk(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def served(table: Table, folder: Path) -> list[dict[str, Any]]:
    reader = open_snapshot(table, table.snapshots.read(), folder)
    return reader.prefix_lookup({}, reader.table.all_columns, limit=10_000).rows


# Modes


def test_merge_then_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    first = build(spark, warehouse, "users", users(spark, [(1, "a"), (2, "b")]))
    second = build(spark, warehouse, "users", users(spark, [(2, "B"), (3, "c")]))
    third = build(spark, warehouse, "users", users(spark, [(9, "z")]), mode="overwrite")
    assert [(s.id, s.parent, s.kind) for s in (first, second, third)] == [
        (1, None, "merge"),
        (2, 1, "merge"),
        (3, 2, "overwrite"),
    ]
    assert content(spark, warehouse, "users") == [(9, "z")]
    assert content(spark, warehouse, "users", snapshot=2) == [(1, "a"), (2, "B"), (3, "c")]
    assert content(spark, warehouse, "users", snapshot=1) == [(1, "a"), (2, "b")]


def test_the_report_counts(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    build(spark, warehouse, "users", users(spark, [(1, "a"), (2, "b")]))
    told: list[Progress] = []
    report = run_build(spark, warehouse, "users", users(spark, [(2, "x"), (2, "y"), (3, "c")]), listener=told.append)
    assert isinstance(report, BuildReport)
    assert (report.rows_in, report.base_rows, report.rows_merged) == (3, 2, 2)
    assert report.snapshot.totals.visible_rows == 3
    assert list(report.seconds) == ["plan", "write", "validate", "commit"]
    assert [progress.phase for progress in told if not progress.tasks] == list(report.seconds)
    assert set(report.snapshot.versions) == {"stelae", "spark", "pyarrow", "rocksdict"}


def test_every_row_is_in_the_bucket_and_order_that_readers_expect(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(
        "CREATE TABLE t (a STRING, b BIGINT, v DOUBLE, PRIMARY KEY (a, b) NOT ENFORCED) "
        "WITH ('bucket' = '5', 'bucket-key' = 'a')"
    )
    source = random.Random(3)
    rows = [
        (source.choice(["é", "", "x\0y", "long" * 9]) + str(source.randrange(9)), n, math.pi * n) for n in range(2000)
    ]
    frame = spark.createDataFrame(rows, "a STRING, b BIGINT, v DOUBLE").repartition(3)
    snapshot = build(spark, warehouse, "t", frame)
    codec, buckets = KeyCodec(table.schema.key_columns), BucketFunction(table.schema.bucket_columns)
    seen = []
    for bucket in snapshot.partitions[0].buckets:
        for file in bucket.files:
            local = table.storage.local_path(file.path)
            assert local is not None
            keys = [key for key, _ in read_file(local)]
            assert keys == sorted(set(keys))
            assert (keys[0], keys[-1], len(keys)) == (file.first_key, file.last_key, file.rows)
            assert {buckets.bucket(codec.decode(key)[:1], 5) for key in keys} == {bucket.bucket}
            seen += [codec.decode(key) for key in keys]
    assert sorted(seen) == sorted((a, b) for a, b, _ in rows)


def test_a_large_build_spans_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Duplicates lie across the borders of Arrow batches, all versions of one key in a row."""
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(
        "CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('bucket' = '2', 'sequence.field' = 'v')"
    )
    frame = spark.range(200_000).selectExpr("id % 1000 AS id", "id AS v")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "777")
    try:
        build(spark, warehouse, "t", frame)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert content(spark, warehouse, "t") == [(n, 199_000 + n) for n in range(1000)]


# Buckets


@pytest.mark.parametrize(
    ("rows", "current", "expected"),
    [(0, None, 1), (10, None, 1), (11, None, 2), (100, None, 10), (60, 3, 3), (61, 3, 7), (5, 3, 3), (1000, 3, 40)],
)
def test_chosen_bucket_counts(rows: int, current: int | None, expected: int) -> None:
    options = "'dynamic-bucket.target-row-num' = '10', 'dynamic-bucket.max-buckets' = '40'"
    _, schema, _ = parse_create_table(f"CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ({options})")
    assert choose_bucket_count(schema, rows, current) == expected


def test_buckets_follow_the_rows_and_readers_follow_the_manifest(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(
        "CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('dynamic-bucket.target-row-num' = '100')"
    )
    counts = []
    for start, stop in ((0, 150), (150, 300), (300, 1000)):
        frame = spark.range(start, stop).selectExpr("id", "concat('n', id) AS name")
        snapshot = build(spark, warehouse, "t", frame)
        counts.append(snapshot.partitions[0].bucket_count)
        assert [row["id"] for row in served(table, tmp_path / "serving")] == list(range(stop))
    assert counts == [2, 2, 10]


# Partitions


def test_partitions_without_changes_keep_their_files(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(VISITS)
    ddl = "dt STRING, id INT, pages INT"
    rows = [("2026-11-19", n, n) for n in range(10)] + [("a/b=c", n, n) for n in range(10)]
    first = build(spark, warehouse, "visits", spark.createDataFrame(rows, ddl))
    second = build(spark, warehouse, "visits", spark.createDataFrame([("2026-11-20", 1, 1), ("a/b=c", 1, 100)], ddl))
    assert [p.values for p in second.partitions] == [("2026-11-19",), ("2026-11-20",), ("a/b=c",)]
    assert second.by_values[("2026-11-19",)] == first.by_values[("2026-11-19",)]
    assert second.by_values[("a/b=c",)] != first.by_values[("a/b=c",)]
    assert [p.bucket_count for p in second.partitions] == [2, 2, 2]
    expected = sorted([*rows, ("2026-11-20", 1, 1)])
    expected[expected.index(("a/b=c", 1, 1))] = ("a/b=c", 1, 100)
    assert content(spark, warehouse, "visits") == expected
    assert [tuple(row.values()) for row in served(table, tmp_path / "serving")] == expected


def test_many_partitions_share_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(VISITS)
    frame = spark.range(3000).selectExpr("concat('d', id % 40) AS dt", "cast(id AS INT) AS id", "1 AS pages")
    changes = change_records(frame, table.schema, None)
    plan = make_plan(BuildLease(table, "1", None, LogRange(0, 0)), changes.frame, "merge")
    assert (plan.bucket_count, plan.task_count, plan.one_bucket_a_task) == (80, 16, False)
    snapshot = build(spark, warehouse, "visits", frame)
    assert len(snapshot.partitions) == 40
    assert content(spark, warehouse, "visits") == sorted((f"d{n % 40}", n, 1) for n in range(3000))


def test_typed_partitions(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(
        "CREATE TABLE t (d DATE, ok BOOLEAN, n DECIMAL(9, 2), id INT, PRIMARY KEY (d, ok, n, id) NOT ENFORCED) "
        "PARTITIONED BY (d, ok, n) WITH ('bucket' = '1')"
    )
    frame = spark.sql("SELECT DATE'2026-11-20' d, true ok, CAST(1.5 AS DECIMAL(9, 2)) n, 7 id")
    build(spark, warehouse, "t", frame)
    build(spark, warehouse, "t", frame)
    assert content(spark, warehouse, "t") == sorted(tuple(row) for row in frame.collect())
    assert served(table, tmp_path / "serving") == [{"d": "2026-11-20", "ok": True, "n": "1.50", "id": 7}]


def test_a_partition_outside_of_the_calendar_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table("CREATE TABLE t (d DATE, id INT, PRIMARY KEY (d, id) NOT ENFORCED) PARTITIONED BY (d)")
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        build(spark, warehouse, "t", spark.sql("SELECT date_from_unix_date(-5000000) AS d, 1 AS id"))


# Tombstones


def test_a_tombstone_keeps_its_sequence_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(
        "CREATE TABLE t (id INT, name STRING, ts INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('sequence.field' = 'ts')"
    )
    frame = spark.createDataFrame([(1, "secret", 5, "-D"), (2, "b", 1, "+I")], "id INT, name STRING, ts INT, op STRING")
    snapshot = build(spark, warehouse, "t", frame, row_kind="op")
    assert (snapshot.totals.rows, snapshot.totals.hidden_rows, snapshot.totals.visible_rows) == (2, 1, 1)
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*.sst"))


def test_without_a_sequence_field_a_delete_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS)
    build(spark, warehouse, "users", users(spark, [(1, "a")]))
    frame = spark.createDataFrame([(1, "a", "-D")], "id BIGINT, name STRING, op STRING")
    snapshot = build(spark, warehouse, "users", frame, row_kind="op")
    assert (snapshot.totals.rows, snapshot.totals.files) == (0, 0)
    assert [bucket.bucket for bucket in snapshot.partitions[0].buckets] == [0]
    assert served(table, tmp_path / "serving") == []


# Bad input: a clear error and nothing changed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1L AS id", "the input lacks columns of the table: name"),
        ("SELECT 1L AS id, 'a' AS name, 2 AS age", "the input has columns that the table has not: age"),
        ("SELECT 1L AS id, 'a' AS nmae", "is 'nmae' meant to be 'name'?"),
        ("SELECT 'x' AS id, 'a' AS name", "id is STRING, the table has BIGINT"),
        ("SELECT 1.5D AS id, 'a' AS name", "id is DOUBLE, the table has BIGINT"),
        ("SELECT CAST(1 AS DECIMAL) AS id, 'a' AS name", "the table has BIGINT"),
        ("SELECT 1L AS id, X'61' AS name", "name is BINARY, the table has STRING"),
        ("SELECT 1L AS id, 'a' COLLATE UTF8_LCASE AS name", "the table has STRING"),
        (
            "SELECT CAST(NULL AS BIGINT) AS id, 'a' AS name",
            'null in primary-key column id in the row with key {"id":null}',
        ),
        ("SELECT 1L AS id, 'a' AS name WHERE false", "the input has no rows"),
        ("SELECT 1L AS id, 'a' AS name, 1L AS __stelae_order", "a column '__stelae_order'"),
    ],
)
def test_refused_input(spark: SparkSession, tmp_path: Path, query: str, message: str) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS)
    build(spark, warehouse, "users", users(spark, [(5, "five")]))
    before = files_on_disk(tmp_path)
    with pytest.raises(InvalidRequest) as caught:
        build(spark, warehouse, "users", spark.sql(query))
    assert message in str(caught.value)
    assert table.snapshots.latest_id() == 1
    assert files_on_disk(tmp_path) == before
    assert content(spark, warehouse, "users") == [(5, "five")]


MEASURED = """
    CREATE TABLE t (id INT, a STRING NOT NULL, b INT, c ARRAY<STRING>, op STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('rowkind.field' = 'op')"""


def test_columns_that_may_be_null_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(MEASURED)
    build(spark, warehouse, "t", spark.sql("SELECT 1 AS id, 'a' AS a, 1 AS b, array('x') AS c, '+I' AS op"))
    lacking = spark.sql("SELECT 2 AS id, 'b' AS a, '+I' AS op")
    with pytest.raises(InvalidRequest, match=r"lacks columns of the table: b, c(.|\n)*--allow-missing-columns"):
        build(spark, warehouse, "t", lacking)
    build(spark, warehouse, "t", lacking, allow_missing_columns=True)
    assert content(spark, warehouse, "t") == [(1, "a", 1, ["x"], "+I"), (2, "b", None, None, "+I")]
    build(spark, warehouse, "t", spark.sql("SELECT 1 AS id, 'A' AS a, '-D' AS op"), allow_missing_columns=True)
    assert [row[0] for row in content(spark, warehouse, "t")] == [2]


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("SELECT 'a' AS a, '+I' AS op", "id"),
        ("SELECT 1 AS id, '+I' AS op", "a"),
        ("SELECT 1 AS id, 'a' AS a", "op"),
    ],
)
def test_columns_that_are_never_missing(spark: SparkSession, tmp_path: Path, query: str, missing: str) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(MEASURED)
    with pytest.raises(InvalidRequest, match=f"lacks columns of the table: {missing}$") as caught:
        build(spark, warehouse, "t", spark.sql(query), allow_missing_columns=True)
    assert "--allow-missing-columns" not in str(caught.value)


def test_partial_updates_may_lack_all_but_keys_and_order(spark: SparkSession) -> None:
    _, schema, _ = parse_create_table(
        "CREATE TABLE t (id INT, a INT, ts INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('sequence.field' = 'ts')"
    )
    schema = replace(schema, options=replace(schema.options, merge_engine="partial-update"))
    assert change_records(spark.sql("SELECT 1 AS id, 2 AS ts"), schema, None).frame.columns[:3] == ["id", "a", "ts"]
    with pytest.raises(InvalidRequest, match="lacks columns of the table: ts"):
        change_records(spark.sql("SELECT 1 AS id, 2 AS a"), schema, None)
    with pytest.raises(InvalidRequest, match="lacks columns of the table: id"):
        change_records(spark.sql("SELECT 2 AS a, 1 AS ts"), schema, None)


def test_narrower_types_are_widened(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table("CREATE TABLE t (id BIGINT, d DECIMAL(12, 3), f DOUBLE, PRIMARY KEY (id) NOT ENFORCED)")
    frame = spark.sql("SELECT CAST(-7 AS TINYINT) AS ID, CAST(1.25 AS DECIMAL(3, 2)) AS d, CAST(0.5 AS FLOAT) AS f")
    build(spark, warehouse, "t", frame)
    assert [tuple(map(str, row)) for row in read(spark, warehouse, "t").collect()] == [("-7", "1.250", "0.5")]


def test_columns_that_differ_only_in_case_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    with pytest.raises(InvalidRequest, match="differ only in case"):
        build(spark, warehouse, "users", spark.createDataFrame([(1, 2, "a")], "id BIGINT, ID BIGINT, name STRING"))


def test_an_empty_input_may_be_allowed(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS)
    nothing = users(spark, [])
    first = build(spark, warehouse, "users", nothing, allow_empty=True)
    assert (first.id, first.totals.rows) == (1, 0)
    assert served(table, tmp_path / "serving") == []
    build(spark, warehouse, "users", users(spark, [(1, "a")]))
    report = run_build(spark, warehouse, "users", nothing, allow_empty=True)
    assert (report.committed, report.snapshot.id) == (False, 2)
    emptied = build(spark, warehouse, "users", nothing, mode="overwrite", allow_empty=True)
    assert (emptied.id, emptied.totals.rows) == (3, 0)


def test_bad_arguments(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    frame = users(spark, [(1, "a")])
    with pytest.raises(NotFound, match="user"):
        build(spark, warehouse, "user", frame)
    with pytest.raises(InvalidRequest, match="unknown mode 'append'"):
        build(spark, warehouse, "users", frame, mode="append")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no column 'op'"):
        build(spark, warehouse, "users", frame, row_kind="op")
    with pytest.raises(NotFound, match="no snapshot"):
        read(spark, warehouse, "users")


def test_the_gate_stops_a_surprising_count(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS + " WITH ('snapshot.max-count-change' = '20%')")
    build(spark, warehouse, "users", spark.range(10).selectExpr("id", "'a' AS name"))
    build(spark, warehouse, "users", spark.range(12).selectExpr("id", "'b' AS name"))
    with pytest.raises(InvalidRequest, match=r"from 12 to 9.*max-count-change allows 20"):
        build(spark, warehouse, "users", spark.range(9).selectExpr("id", "'c' AS name"), mode="overwrite")
    assert table.snapshots.latest_id() == 2
    assert {row[1] for row in content(spark, warehouse, "users")} == {"b"}
    allowed = users(spark, [(1, "d")])
    assert build(spark, warehouse, "users", allowed, mode="overwrite", allow_count_change=True).id == 3
    assert content(spark, warehouse, "users") == [(1, "d")]


# Two builds at once


def test_of_two_builds_on_one_parent_one_commits(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS)
    build(spark, warehouse, "users", users(spark, [(1, "a")]))

    def other_commits_first(progress: Progress) -> None:
        if progress.phase == "validate":
            build(spark, warehouse, "users", users(spark, [(2, "other")]))

    with pytest.raises(Conflict, match="snapshot 2"):
        run_build(spark, warehouse, "users", users(spark, [(3, "late")]), listener=other_commits_first)
    assert content(spark, warehouse, "users") == [(1, "a"), (2, "other")]
    named = {file.path for snapshot in table.snapshots.retained() for file in snapshot.files}
    assert {file.path for file in table.storage.list() if file.path.endswith(".sst")} == named
    again = build(spark, warehouse, "users", users(spark, [(3, "late")]))
    assert again.id == 3


# Damage


def test_a_damaged_base_stops_the_build(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(USERS)
    build(spark, warehouse, "users", users(spark, [(n, "a" * 50) for n in range(1000)]))
    path = next(tmp_path.rglob("*.sst"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData):
        build(spark, warehouse, "users", users(spark, [(1, "b")]))
    assert table.snapshots.latest_id() == 1


def test_files_order_the_input(spark: SparkSession, tmp_path: Path) -> None:
    """Of equal keys the last row of the last file by name wins, however Spark packs the files into tasks."""
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.create_table(USERS)
    folder = tmp_path / "in put %"
    for name, rows in (
        ("b", [(1, "b1"), (2, "b2")]),
        ("a", [(1, "a1"), (3, "a3")] * 500),
        ("c+ü", [(3, "c1"), (3, "c2")]),
    ):
        users(spark, rows).write.mode("append").json(str(folder / name))
    paths = [str(folder / name) for name in ("a", "b", "c+ü")]
    for order in (paths, paths[::-1]):
        frame = spark.read.schema("id BIGINT, name STRING").json(order)
        build(spark, warehouse, "users", frame, mode="overwrite")
        assert content(spark, warehouse, "users") == [(1, "b1"), (2, "b2"), (3, "c2")]


def test_rows_of_one_file_keep_their_order_in_any_number_of_splits(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.create_table(USERS)
    rows = [(n % 50, f"{n:06d}") for n in range(20_000)]
    users(spark, rows).write.json(str(tmp_path / "one"))
    (path,) = (tmp_path / "one").glob("*.json")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "9999")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        frame = spark.read.schema("id BIGINT, name STRING").json(str(path))
        build(spark, warehouse, "users", frame)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert content(spark, warehouse, "users") == [(n, f"{19_950 + n:06d}") for n in range(50)]


def test_a_frame_that_moves_rows_has_its_own_order(spark: SparkSession, tmp_path: Path) -> None:
    """Sorted, the last row wins, whatever file it is from; joined, rows may be from no file at all."""
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.create_table(USERS)
    for n in range(9):
        users(spark, [(1, f"n{9 - n}")]).write.mode("append").json(str(tmp_path / "in"))
    frame = spark.read.schema("id BIGINT, name STRING").json(str(tmp_path / "in"))
    assert len(frame.inputFiles()) == 9
    build(spark, warehouse, "users", frame.orderBy("name"))
    assert content(spark, warehouse, "users") == [(1, "n9")]
    renamed = frame.withColumnRenamed("id", "other")
    everyone = spark.range(3)
    joined = everyone.join(renamed, everyone.id == renamed.other, "left").select("id", "name")
    build(spark, warehouse, "users", joined, mode="overwrite")
    assert [row[0] for row in content(spark, warehouse, "users")] == [0, 1, 2]


# Jobs that can't succeed


def test_an_input_that_changes_between_two_looks(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    warehouse = Warehouse(tmp_path)
    warehouse.create_table(VISITS)
    random_text = f.udf(lambda: str(random.SystemRandom().random())).asNondeterministic()
    frame = spark.range(5).select(random_text().alias("dt"), f.col("id").cast("int"), f.lit(1).alias("pages"))
    with pytest.raises(InvalidRequest, match="rows of a partition that it did not have when it was counted"):
        build(spark, warehouse, "visits", frame)


def test_a_stream_and_a_warehouse_in_memory_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "'a' AS name")
    with pytest.raises(InvalidRequest, match="the input is a stream"):
        build(spark, warehouse, "users", stream)
    in_memory = Warehouse("memory:")
    in_memory.create_table(USERS)
    with pytest.raises(InvalidRequest, match="in memory lives in one process"):
        build(spark, in_memory, "users", users(spark, [(1, "a")]))


def test_an_error_in_the_users_own_code_is_told(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    def fail(_: int) -> str:
        raise ValueError("no name for this one")

    warehouse = Warehouse(tmp_path)
    warehouse.create_table(USERS)
    with pytest.raises(Unavailable, match="ValueError: no name for this one"):
        build(spark, warehouse, "users", spark.range(1).withColumn("name", f.udf(fail, useArrow=False)("id")))


def test_a_failed_writer_leaves_no_scratch(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table("CREATE TABLE t (id INT, a ARRAY<INT NOT NULL>, PRIMARY KEY (id) NOT ENFORCED)")
    before = files_on_disk(tmp_path)
    with pytest.raises(InvalidRequest, match="a value within column a is null"):
        build(spark, warehouse, "t", spark.sql("SELECT 1 AS id, array(1, NULL) AS a"))
    assert files_on_disk(tmp_path) == before


def test_arguments_of_the_wrong_kind_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS id")
    with pytest.raises(InvalidRequest, match=r"stelae\.Warehouse\('shop'\)"):
        build(spark, "shop", "t", frame)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"pandas\.DataFrame is no frame of Spark"):
        build(spark, Warehouse(tmp_path), "t", frame.toPandas())  # type: ignore[arg-type]


def test_errors_keep_their_kind_through_spark() -> None:
    from stelae.builder.spark_sql.spark_errors import marked, translated

    def fail(error: StelaeError) -> None:
        with translated("building"):
            raise RuntimeError(f"Job aborted\n{marked(error)}\nat org.apache.spark")

    with pytest.raises(CorruptData) as caught:
        fail(CorruptData("a } brace and\na line", place="here", hint="do {this}"))
    assert (caught.value.message, caught.value.place, caught.value.hint) == (
        "a } brace and\na line",
        "here",
        "do {this}",
    )


def test_a_merge_that_empties_a_not_null_column_names_the_key(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.create_table(
        "CREATE TABLE t (k INT, v INT NOT NULL, PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'fields.v.agg' = 'last_value')"
    )
    frame = spark.createDataFrame([(7, 2, "+I"), (7, 2, "-U")], "k INT, v INT, op STRING").coalesce(1)
    with pytest.raises(InvalidRequest, match=r'null in NOT NULL column v in the row with key \{"k":7\}'):
        build(spark, warehouse, "t", frame, row_kind="op")
    assert warehouse.table("t").snapshots.latest_id() is None
