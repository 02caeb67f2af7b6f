"""Goal: a lookup join gives what Spark's join of the same data gives, for keys and columns of all types, with nulls,
duplicates and misses; whatever the sizes of batches, requests and caches; and what can't work is refused early.

Method: random tables behind a server in this process, joined both ways; small Arrow batches, requests and caches, so
that all of them are crossed.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.snapshot import retention
from stelae.spark import LookupStats, lookup, lookup_join, register
from tests.stelae.spark.conftest import Served
from tests.stelae.spark.tables import wait_until_served
from tests.tables import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

VALUES = """s STRING, i INT, d DECIMAL(12, 3), t TIMESTAMP(6), z TIMESTAMP_LTZ(6), f DOUBLE, b BOOLEAN, raw BYTES,
    day DATE, clock TIME(6), many ARRAY<INT>, pairs MAP<STRING, INT>, place ROW<street STRING, house INT>"""
VALUE_NAMES = ["s", "i", "d", "t", "z", "f", "b", "raw", "day", "clock", "many", "pairs", "place"]

KEYS: dict[str, tuple[str, str, list[Any]]] = {
    # name: type in the table, type in the frame, values
    "bigint": ("BIGINT", "BIGINT", [0, -1, 2**62, *range(40)]),
    "narrower": ("BIGINT", "SMALLINT", [0, -1, *range(60)]),
    "wider": ("INT", "BIGINT", [0, -1, 2**31 - 1, -(2**31), *range(40)]),
    "string": ("STRING", "STRING", ["", "a", "ä", "x" * 300, "a\0b", *map(str, range(40))]),
    "decimal": ("DECIMAL(10, 2)", "DECIMAL(8, 1)", [Decimal(i) / 2 for i in range(-20, 40)]),
    "of integers": ("DECIMAL(12, 2)", "INT", [Decimal(i) for i in range(50)]),
    "long decimal": ("DECIMAL(30, 2)", "DECIMAL(30, 2)", [Decimal(i) / 4 for i in range(50)]),
    "date": ("DATE", "DATE", [dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(50)]),
    "instant": ("TIMESTAMP_LTZ(6)", "TIMESTAMP", [dt.datetime(2026, 1, 1, i % 24, tzinfo=dt.UTC) for i in range(24)]),
    "double": ("DOUBLE", "FLOAT", [0.0, 0.5, float("inf"), *(i / 8 for i in range(40))]),
    "binary": ("BYTES", "BINARY", [b"", b"\0", b"\0\1", *(b"%d" % i for i in range(40))]),
    "boolean": ("BOOLEAN", "BOOLEAN", [True, False]),
}


def value_row(chosen: random.Random, i: int) -> dict[str, Any]:
    def or_null(value: Any) -> Any:
        return value if chosen.random() < 0.8 else None

    at = dt.datetime.fromisoformat("2026-01-01") + dt.timedelta(seconds=i)
    return {
        "s": or_null(f"s{i}"),
        "i": or_null(i),
        "d": or_null(Decimal(i) / 8),
        "t": or_null(at),
        "z": or_null(at.replace(tzinfo=dt.UTC)),
        "f": or_null(i / 3),
        "b": or_null(i % 2 == 0),
        "raw": or_null(b"\0" * (i % 5)),
        "day": or_null(at.date()),
        "clock": or_null(at.time()),
        "many": or_null([i, None]),
        "pairs": or_null({"k": i}),
        "place": or_null({"street": "x", "house": i}),
    }


class Data:
    """A table, and its rows as Spark has them."""

    def __init__(self, spark: SparkSession, served: Served, name: str, ddl: str, rows: list[Mapping[str, Any]]) -> None:
        self.name, self.url = f"shop.{name}", served.url
        table = served.warehouse.create_table(f"CREATE TABLE {self.name} ({ddl}")
        snapshot = commit_rows(table, rows)
        wait_until_served(served.url, self.name, snapshot.id)
        columns = ", ".join(f"{c.name} {c.type.spark()}" for c in table.schema.columns)
        self.frame = spark.createDataFrame(
            [tuple(row.get(c) for c in table.schema.column_names) for row in rows], columns
        )

    def join(self, df: DataFrame, on: Any, **options: Any) -> DataFrame:
        return lookup_join(df, self.name, on, self.url, **options)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(BATCH, "64")
    yield
    spark.conf.unset(BATCH)


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.usefixtures("small_batches")
def test_keys_of_all_types(spark: SparkSession, served: Served, name: str) -> None:
    chosen = random.Random(name)
    in_table, in_frame, values = KEYS[name]
    keys = list(dict.fromkeys(values))
    there = [key for i, key in enumerate(keys) if i % 4 or len(keys) < 4]
    table = f"k_{name.replace(' ', '_')}"
    data = Data(
        spark, served, table, f"k {in_table}, {VALUES}, PRIMARY KEY (k) NOT ENFORCED)",
        [{"k": key, **value_row(chosen, i)} for i, key in enumerate(there)],
    )  # fmt: skip
    asked = [(i, chosen.choice([*keys, None])) for i in range(700)]
    if name == "wider":
        asked += [(9000, 2**31), (9001, -(2**40))]
    if name == "of integers":
        asked = [(i, None if key is None else int(key)) for i, key in asked]
    df = spark.createDataFrame(asked, f"n INT, id {in_frame}").repartition(3)
    for how in ("left", "inner"):
        expected = df.join(data.frame, df.id == data.frame.k, how).drop("k")
        got = data.join(df, {"k": "id"}, how=how, batch_size=20)
        assert got.dtypes == expected.dtypes
        assert rows(got) == rows(expected)


@pytest.fixture(scope="module")
def lines(spark: SparkSession, served: Served) -> Data:
    """Of a partitioned table with a key of several columns."""
    chosen = random.Random(1)
    keys = {
        (f"r{chosen.randrange(3)}", chosen.randrange(60), chosen.choice(["", "a", "b\0", "ccc"])) for _ in range(300)
    }
    return Data(
        spark,
        served,
        "lines",
        f"region STRING, number INT, line STRING, {VALUES}, PRIMARY KEY (region, number, line) NOT ENFORCED) "
        "PARTITIONED BY (region) WITH ('bucket' = '3')",
        [{"region": r, "number": n, "line": li, **value_row(chosen, i)} for i, (r, n, li) in enumerate(sorted(keys))],
    )


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> DataFrame:
    chosen = random.Random(2)

    def some(*values: Any) -> Any:
        return chosen.choice([*values, None]) if chosen.random() < 0.3 else chosen.choice(values)

    everything = [
        (i, some("r0", "r1", "r2", "nowhere"), some(*range(70)), some("", "a", "b\0", "ccc", "not"))
        for i in range(1500)
    ]
    return spark.createDataFrame(everything, "n INT, region STRING, nr BIGINT, line STRING").repartition(3).cache()


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 1},
        {"batch_size": 7, "max_in_flight": 1},
        {"cache_bytes": 0, "batch_size": 50},
        {"cache_bytes": 1, "batch_size": 50},
        {"columns": ["i"]},
        {"columns": ["line", "s"], "rename": {"line": "its_line"}},
    ],
    ids=str,
)
@pytest.mark.usefixtures("small_batches")
def test_keys_of_several_columns(lines: Data, asked: DataFrame, how: str, options: dict[str, Any]) -> None:
    on = {"region": "region", "line": "line", "number": "nr"}  # in any order
    table = lines.frame
    condition = (table.region == asked.region) & (table.line == asked.line) & (table.number == asked.nr)
    selected = options.get("columns") or VALUE_NAMES
    renamed = options.get("rename") or {}
    expected = asked.join(table, condition, how).select(
        asked["*"], *[table[name].alias(renamed.get(name, name)) for name in selected]
    )
    assert rows(lines.join(asked, on, how=how, **options)) == rows(expected)


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("on", [{"region": "region", "number": "nr"}, {"number": "nr"}, ["region"]], ids=str)
@pytest.mark.usefixtures("small_batches")
def test_prefixes(lines: Data, asked: DataFrame, how: str, on: Any) -> None:
    few = asked.limit(200)
    table, pairs = lines.frame, on if isinstance(on, dict) else {name: name for name in on}
    condition = None
    for key, name in pairs.items():
        equal = table[key] == few[name]
        condition = equal if condition is None else condition & equal
    expected = few.join(table, condition, how).select(
        few["*"], table.line.alias("its_line"), table.s, table.i, table.many
    )
    got = lines.join(
        few, on, how=how, prefix=True, columns=["line", "s", "i", "many"], rename={"line": "its_line"}, batch_size=30
    )
    assert rows(got) == rows(expected)


@pytest.mark.usefixtures("small_batches")
def test_each_key_is_asked_for_once_by_a_worker(spark: SparkSession, served: Served) -> None:
    data = Data(
        spark, served, "counted", "k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED)",
        [{"k": k, "v": k * k} for k in range(0, 500, 2)],
    )  # fmt: skip
    df = spark.range(0, 20_000, 1, 4).selectExpr("CASE WHEN id % 100 < 99 THEN id % 500 END AS k")
    stats = LookupStats()
    joined = data.join(df, "k", stats=stats, batch_size=100)
    assert stats.rows == 0, "nothing ran"
    assert joined.selectExpr("sum(v)").collect() == df.where("k % 2 = 0").selectExpr("sum(k * k)").collect()
    asked = df.select("k").distinct().count() - 1
    assert stats.rows == 20_000
    assert stats.null_keys == 200
    # Every task has all keys; Spark runs them on as many workers as are free at the moment, two to four.
    assert stats.keys_asked in [asked * workers for workers in range(1, stats.tasks + 1)]
    assert stats.found == df.where("k % 2 = 0").count()
    assert stats.missing == 20_000 - stats.found
    assert stats.cache_hits == 20_000 - 200 - stats.keys_asked
    assert stats.keys_asked / 100 <= stats.requests < 4 * stats.keys_asked / 100
    assert stats.retries == 0
    assert "requests=" in repr(stats)


def test_as_a_column_and_in_sql(spark: SparkSession, lines: Data, asked: DataFrame) -> None:
    from pyspark.sql import functions as f

    expected = lines.join(asked, {"region": "region", "number": "nr", "line": "line"}, columns=["i", "s"])
    keys: dict[str, Any] = {"region": "region", "number": f.col("nr"), "line": f.col("line")}
    one = asked.withColumn("i", lookup(lines.name, "i", url=lines.url, **keys))
    assert rows(one) == rows(expected.drop("s"))
    two = asked.withColumn("both", lookup(lines.name, ["i", "s"], url=[lines.url], batch_size=50, **keys))
    assert rows(two.select("*", "both.i", "both.s").drop("both")) == rows(expected)
    register(spark, "line_i", lines.name, "i", url=lines.url)
    asked.createOrReplaceTempView("asked")
    assert rows(spark.sql("SELECT *, line_i(region, nr, line) AS i FROM asked")) == rows(expected.drop("s"))
    filtered = spark.sql("SELECT count(*) FROM asked WHERE line_i(region, nr, line) > 100").first()
    assert filtered == expected.where("i > 100").selectExpr("count(*)").first()


def test_null_is_a_value_of_a_nullable_key(spark: SparkSession, served: Served) -> None:
    data = Data(
        spark, served, "nullable",
        "a INT, b STRING, v INT, PRIMARY KEY (a, b) NOT ENFORCED) WITH ('primary-key.nullable' = 'true')",
        [{"a": 1, "b": None, "v": 1}, {"a": 1, "b": "x", "v": 2}],
    )  # fmt: skip
    df = spark.createDataFrame([(1, None), (1, "x"), (2, None), (None, None)], "a INT, b STRING")
    assert rows(data.join(df, ["a", "b"])) == sorted(
        ["Row(a=1, b=None, v=1)", "Row(a=1, b='x', v=2)", "Row(a=2, b=None, v=None)", "Row(a=None, b=None, v=None)"]
    )


def test_a_snapshot_is_pinned(spark: SparkSession, served: Served) -> None:
    data = Data(spark, served, "pinned", "k INT, v INT, PRIMARY KEY (k) NOT ENFORCED)", [{"k": 1, "v": 1}])
    df = spark.createDataFrame([(1,), (2,)], "k INT")
    joined = data.join(df, "k")
    table = served.warehouse.table(data.name)
    second = commit_rows(table, [{"k": 1, "v": 5}, {"k": 2, "v": 6}])
    wait_until_served(served.url, data.name, second.id)
    assert rows(joined) == ["Row(k=1, v=1)", "Row(k=2, v=None)"]
    assert rows(data.join(df, "k")) == ["Row(k=1, v=5)", "Row(k=2, v=6)"]
    assert rows(data.join(df, "k", snapshot=1)) == rows(joined)
    for number in (3, 4):
        last = commit_rows(table, [{"k": 1, "v": number}])
        wait_until_served(served.url, data.name, last.id)
    retention.expire(table.snapshots, 1)
    gone = data.join(df, "k", snapshot=99)
    with pytest.raises(NotFound, match=r"snapshot 99 of shop\.pinned is gone"):
        gone.collect()


WRONG: list[tuple[str, dict[str, Any], type[StelaeError], str]] = [
    (
        "text for a number",
        {"on": {"region": "region", "number": "line", "line": "line"}},
        InvalidRequest,
        r"cast\('int'\)",
    ),
    ("number for text", {"on": {"region": "nr", "number": "nr", "line": "line"}}, InvalidRequest, "region is STRING"),
    ("part of the key", {"on": ["region", "line"]}, InvalidRequest, "lacks number"),
    ("no key column", {"on": {"i": "nr"}}, InvalidRequest, "not a primary-key column"),
    ("not of the frame", {"on": "number"}, InvalidRequest, "the frame has no column number"),
    (
        "no prefix",
        {"on": ["line"], "prefix": True},
        InvalidRequest,
        "not a prefix .*number. is missing",
    ),
    ("nothing", {"on": []}, InvalidRequest, "on is empty"),
    ("no such table", {"table": "shop.line"}, NotFound, "shop.line"),
    ("no such column", {"columns": ["colour"]}, InvalidRequest, "colour"),
    ("column twice", {"columns": ["i", "i"]}, InvalidRequest, "twice"),
    ("text for columns", {"columns": "i"}, InvalidRequest, r"\['i'\]"),
    ("the frame has it", {"columns": ["line"]}, InvalidRequest, "rename"),
    ("rename of nothing", {"columns": ["i"], "rename": {"s": "x"}}, InvalidRequest, "not looked up"),
    ("how", {"how": "outer"}, InvalidRequest, "'outer'"),
    ("nobody there", {"url": "http://127.0.0.1:9"}, Unavailable, "can't reach"),
    ("no URL", {"url": "localhost"}, InvalidRequest, "URL"),
    ("batch", {"batch_size": 0}, InvalidRequest, "batch_size"),
    ("cache", {"cache_bytes": "1g"}, InvalidRequest, "cache_bytes"),
    ("a pinned insert", {"insert_if_not_exists": True, "snapshot": 1}, InvalidRequest, "snapshot"),
]


@pytest.mark.parametrize(("options", "error", "said"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_what_can_not_work_is_refused_before_it_runs(
    lines: Data, asked: DataFrame, options: dict[str, Any], error: type[StelaeError], said: str
) -> None:
    arguments = {
        "table": lines.name, "on": {"region": "region", "number": "nr", "line": "line"}, "url": lines.url, **options,
    }  # fmt: skip
    with pytest.raises(error, match=said):
        lookup_join(asked, **arguments)


def test_a_column_is_checked_when_it_runs(lines: Data, asked: DataFrame) -> None:
    wrong = asked.withColumn("i", lookup(lines.name, "i", url=lines.url, region="region", number="line", line="line"))
    with pytest.raises(InvalidRequest, match="number is INT") as caught:
        wrong.collect()
    assert "Traceback" not in str(caught.value)
