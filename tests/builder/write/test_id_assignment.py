"""Goal: every key of a dictionary table gets one id, dense from 1, and keeps it whatever is built afterwards.

Method: small tables through real builds, looked at with `read` and with the claims of the table: the same keys in any
order and cut, rebuilds, more buckets, deletes, each engine, overwrites, ids that run out, rows written online, owners
that live or were killed.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import read, run_build
from stelae.builder.input.files import read_files
from stelae.builder.write.id_assignment import IdCounts, count_ids
from stelae.client.client import Client
from stelae.errors import Conflict, CorruptData, InvalidRequest, Unavailable
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import INT_LIMIT, Claim, TableClaims, id_limit
from stelae.ownership.takeover import empty_snapshot, live_owner, take_over
from stelae.read.open_snapshot import open_snapshot
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.snapshots import TableSnapshots
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.verify.verify import verify_snapshot
from tests.builder.merge.case_tables import frame_of
from tests.builder.merge.test_merge_cases import QUICK
from tests.builder.online import URL, insert_online
from tests.cases import Case, load
from tests.length import only_long
from tests.service.test_process import run
from tests.tables import all_claims, commit_rows
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stelae.builder.report import BuildReport

MINTED = "'auto-increment.fields' = 'id'"


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[None]:
    """Without compiling expressions, which takes longer than merging a few rows. Others here compile."""
    before = {name: spark.conf.get(name) or "" for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def create(folder: Path, columns: str, key: str = "word", options: str = "'bucket' = '2'", more: str = "") -> Table:
    return Warehouse(folder).create_table(
        f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) {more} WITH ({MINTED}, {options})"
    )


def dictionary(folder: Path, options: str = "'bucket' = '2'") -> Table:
    return create(folder, "word STRING, id BIGINT", options=options)


def warehouse_of(table: Table) -> Warehouse:
    return Warehouse(table.url.rsplit("/", 2)[0])


def words(spark: SparkSession, values: Sequence[str]) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "word STRING")


def add(spark: SparkSession, table: Table, frame: DataFrame, **how: Any) -> BuildReport:
    return run_build(spark, warehouse_of(table), "t", frame, **how)


def rows_of(spark: SparkSession, table: Table, snapshot: int | None = None) -> list[dict[str, Any]]:
    return [row.asDict() for row in read(spark, warehouse_of(table), "t", snapshot).collect()]


def ids_of(spark: SparkSession, table: Table, *key: str) -> dict[Any, int]:
    """Ids by key; of a key of one column, by its value."""
    names = key or table.schema.primary_key
    found = [(tuple(row[name] for name in names), row["id"]) for row in rows_of(spark, table)]
    return {values[0] if len(values) == 1 else values: number for values, number in found}


def claims_of(table: Table) -> list[Claim]:
    assert table.schema.auto_increment is not None
    return all_claims(TableClaims(table.storage, id_limit(table.schema.auto_increment)))


def owner_kind(table: Table) -> str:
    current = TableOwnership(table.storage, str(table.name)).current()
    assert current is not None
    return current.kind


# Numbering


def test_ids_are_dense_and_depend_on_the_keys_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Slots in order, keys in order inside: whatever the order of the input and its partitions."""
    values = [f"w{n}" for n in range(300)]
    results = []
    for index, partitions in enumerate((1, 5)):
        table = dictionary(tmp_path / str(index), "'bucket' = '3'")
        shuffled = values * 3
        random.Random(index).shuffle(shuffled)
        report = add(spark, table, words(spark, shuffled).repartition(partitions))
        assert (report.ids_minted, str(report.ids), report.rows_in, report.rows_merged) == (300, "1 to 300", 900, 600)
        results.append(ids_of(spark, table))
    assert results[0] == results[1]
    assert sorted(results[0].values()) == list(range(1, 301))
    assert owner_kind(table) == "free"
    assert [(c.ids.first, c.ids.last, c.purpose) for c in claims_of(table)] == [(1, 300, "build")]
    reader = open_snapshot(table, table.snapshots.read(), tmp_path / "serving")
    assert reader.lookup(("w7",), reader.table.all_columns) == {"word": "w7", "id": results[0]["w7"]}
    page = reader.prefix_lookup({}, reader.table.all_columns, limit=1000).rows
    assert [row["word"] for row in page] == sorted(values), "buckets are merged"


def test_keys_keep_their_ids_over_rebuilds_and_more_buckets(spark: SparkSession, tmp_path: Path) -> None:
    table = dictionary(tmp_path, "'dynamic-bucket.target-row-num' = '40'")
    known: dict[str, int] = {}
    counts = []
    for stop in (50, 80, 400):
        report = add(spark, table, words(spark, [f"w{n}" for n in range(stop)]))
        found = ids_of(spark, table)
        assert {word: found[word] for word in known} == known
        assert sorted(found.values()) == list(range(1, stop + 1))
        assert (report.ids_minted, report.rows_in, report.base_rows) == (stop - len(known), stop, len(known))
        counts.append(report.snapshot.partitions[0].bucket_count)
        known = found
    assert counts == [2, 2, 12]
    before = claims_of(table)
    assert add(spark, table, words(spark, ["w1", "w2"])).ids is None
    assert claims_of(table) == before, "no claim where nothing is new"
    assert not verify_snapshot(table, table.snapshots.read()).problems


def test_partitions_and_composite_nullable_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Ids are unique in the whole table; null, NaN and negative zero are keys like others."""
    table = create(
        tmp_path, "dt STRING NOT NULL, n DOUBLE, id INT NOT NULL, `a.b` STRING", "dt, n, `a.b`",
        "'bucket' = '2', 'primary-key.nullable' = 'true'", "PARTITIONED BY (dt)",
    )  # fmt: skip
    nan = float("nan")
    keys = [(dt, n, text) for dt in ("x", "y") for n in (None, nan, -0.0, 1.5) for text in (None, "", "t")]
    frame = spark.createDataFrame(keys * 2, "dt STRING, n DOUBLE, `a.b` STRING")
    assert add(spark, table, frame).ids_minted == 24
    first = {(row["dt"], str(row["n"]), row["a.b"]): row["id"] for row in rows_of(spark, table)}
    assert sorted(first.values()) == list(range(1, 25))
    more = spark.createDataFrame([("y", 0.0, None), ("z", nan, "t")], "dt STRING, n DOUBLE, `a.b` STRING")
    assert add(spark, table, more).ids_minted == 1
    second = {(row["dt"], str(row["n"]), row["a.b"]): row["id"] for row in rows_of(spark, table)}
    assert second == {**first, ("z", "nan", "t"): 25}


@pytest.mark.usefixtures("quick")
def test_on_top_of_a_rollback(spark: SparkSession, tmp_path: Path) -> None:
    """A rollback takes no id back, and leaves several files a bucket: what is counted are the rows that are read."""
    table = create(tmp_path, "word STRING, v INT, id BIGINT")

    def frame(*words: str, v: int) -> DataFrame:
        return spark.createDataFrame([(word, v) for word in words], "word STRING, v INT")

    add(spark, table, frame("a", "b", v=1))
    add(spark, table, frame("b", "c", v=2))
    before = ids_of(spark, table)
    warehouse_of(table).table("t").snapshots.rollback(1, now_ms=0)
    assert ids_of(spark, table) == before
    report = add(spark, table, frame("c", "d", v=3))
    assert (report.rows_in, report.base_rows, report.rows_merged, report.ids_minted) == (2, 3, 1, 1)
    assert {row["word"]: row["v"] for row in rows_of(spark, table)} == {"a": 1, "b": 1, "c": 3, "d": 3}
    assert ids_of(spark, table) == {**before, "d": 4}


# Engines

ENGINES = {
    "deduplicate": ("v INT", ""),
    "deduplicate with sequence": ("v INT, s INT", ", 'sequence.field' = 's'"),
    "first-row": ("v INT", ", 'merge-engine' = 'first-row'"),
    "versioned": ("v INT, s INT", ", 'merge-engine' = 'versioned', 'table.merge-engine.versioned.ver-column' = 's'"),
    "partial-update": ("v INT, x INT", ", 'merge-engine' = 'partial-update'"),
    "sequence groups": (
        "v INT, s INT",
        ", 'merge-engine' = 'partial-update', 'fields.s.sequence-group' = 'v', "  # noqa: ISC004 - a pair.
        "'partial-update.remove-record-on-sequence-group' = 's'",
    ),
    "aggregation": (
        "v INT",
        ", 'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
    ),
    "aggregation with sequence": (
        "v INT, s INT",
        ", 'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'last_value', 'sequence.field' = 's'",
    ),
    "keys alone": ("", ""),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Values merge as ever; ids stay. The column stands first, last, or amid the others."""
    columns, options = ENGINES[engine]
    names = [part.split()[0] for part in columns.split(", ") if part]
    table = create(tmp_path, ", ".join(["id INT", "word STRING", *([columns] if columns else [])]),
                   options=f"'bucket' = '2'{options}")  # fmt: skip
    ddl = ", ".join(["word STRING", *([columns] if columns else [])])

    def batch(values: dict[str, int]) -> DataFrame:
        return spark.createDataFrame([(w, *(n for _ in names)) for w, n in values.items()], ddl).coalesce(1)

    first = add(spark, table, batch({"a": 1, "b": 2, "c": 3}).unionByName(batch({"a": 4})))
    assert first.ids_minted == 3
    before = ids_of(spark, table)
    assert sorted(before.values()) == [1, 2, 3]
    second = add(spark, table, batch({"c": 5, "d": 6}).unionByName(batch({"d": 7})))
    assert (second.ids_minted, second.rows_in) == (1, 3)
    assert ids_of(spark, table) == {**before, "d": 4}
    if names:
        values = {row["word"]: row["v"] for row in rows_of(spark, table)}
        expected = {"first-row": (1, 2, 3, 6), "aggregation": (5, 2, 8, 13)}.get(engine, (4, 2, 5, 7))
        assert [values[word] for word in "abcd"] == list(expected)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "engine",
    ["deduplicate", "deduplicate with sequence", "sequence groups", "aggregation", "aggregation with sequence"],
)
def test_deletes(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """A key that was removed and comes back in a later build is a new one; within one build it keeps its id."""
    columns, options = ENGINES[engine]
    if engine.startswith("aggregation"):
        options += ", 'aggregation.remove-record-on-delete' = 'true'"
    names = [part.split()[0] for part in columns.split(", ")]
    table = create(tmp_path, f"word STRING, {columns}, id BIGINT", options=f"'bucket' = '1'{options}")

    def changes(*records: tuple[str, str, int]) -> DataFrame:
        rows = [(kind, word, *(n for _ in names)) for kind, word, n in records]
        return spark.createDataFrame(rows, f"op STRING, word STRING, {columns}").coalesce(1)

    add(spark, table, changes(("+I", "a", 1), ("+I", "b", 1), ("+I", "gone", 1), ("-D", "gone", 2)), row_kind="op")
    assert ids_of(spark, table) == {"a": 1, "b": 2}
    add(spark, table, changes(("-D", "a", 3), ("-D", "b", 3), ("+I", "b", 4)), row_kind="op")
    assert ids_of(spark, table) == {"b": 2}
    report = add(spark, table, changes(("+I", "a", 5), ("+I", "c", 5)), row_kind="op")
    assert str(report.ids) == "3 to 4"
    assert ids_of(spark, table) == {"a": 3, "b": 2, "c": 4}


def test_partial_updates_of_target_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, "word STRING, v INT, x INT, id BIGINT")
    frame = spark.createDataFrame([("a", 1), ("b", 1)], "word STRING, v INT")
    add(spark, table, frame, target_columns=["word", "v"])
    before = ids_of(spark, table)
    changes = spark.createDataFrame(
        [("+I", "a", 2), ("-D", "b", None), ("+I", "c", 2)], "op STRING, word STRING, v INT"
    ).coalesce(1)
    add(spark, table, changes, row_kind="op", target_columns=["v"])
    assert ids_of(spark, table) == {"a": before["a"], "c": 3}, "its id alone keeps no row"


@pytest.mark.usefixtures("quick")
def test_overwrite_keeps_the_ids_of_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, "dt STRING, word STRING, v INT, id BIGINT", "dt, word", more="PARTITIONED BY (dt)")
    first = [("x", f"w{n}", n) for n in range(20)] + [("y", "w1", 1)]
    add(spark, table, spark.createDataFrame(first, "dt STRING, word STRING, v INT"))
    before = ids_of(spark, table)
    online = insert_online(table, [{"dt": "x", "word": "online"}, {"dt": "x", "word": "unused"}])
    second = [("x", "w7", 70), ("x", "new", 0), ("z", "w1", 1), ("x", "online", 5)]
    report = add(spark, table, spark.createDataFrame(second, "dt STRING, word STRING, v INT"), mode="overwrite")
    after = ids_of(spark, table)
    assert set(after) == {(dt, word) for dt, word, _ in second}
    assert after["x", "w7"] == before["x", "w7"]
    assert after["x", "online"] == online["x", "online"]
    assert report.ids_minted == 2
    assert min(after["x", "new"], after["z", "w1"]) > max(before.values())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("case", load("auto_increment"), ids=lambda case: case.name)
def test_cases(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    table = Warehouse(tmp_path).create_table(case.sql("t"))
    minted = table.schema.options.auto_increment_fields[0]
    for batch in case.batches:
        add(spark, table, frame_of(spark, table.schema, batch, case).drop(minted), row_kind="record_kind")
    assert sorted(list(row.values()) for row in rows_of(spark, table)) == case.rows


# What is refused


@pytest.mark.parametrize("name", ["id", "ID"])
def test_ids_of_the_input_are_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = dictionary(tmp_path / "w")
    frame = words(spark, ["a"]).selectExpr("word", f"CAST(NULL AS BIGINT) AS {name}")
    for how in ({}, {"ignore_extra_columns": True}, {"target_columns": ["word"]}):
        with pytest.raises(InvalidRequest, match="ids are minted, not given"):
            add(spark, table, frame, **how)
    with pytest.raises(InvalidRequest, match="ids are minted, not given"):
        add(spark, table, words(spark, ["a"]), target_columns=["word", "id"])
    assert table.snapshots.latest_id() is None
    assert TableOwnership(table.storage, str(table.name)).current() is None, "refused before the table is taken over"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("a.csv", "word\nx\ny\n", False),
        ("a.csv", "word,id\nx,7\n", True),
        ("a.jsonl", '{"word": "x"}\n{"word": "y"}\n', False),
        ("a.jsonl", '{"word": "x", "id": 7}\n', True),
    ],
)
def test_files(spark: SparkSession, tmp_path: Path, name: str, content: str, refused: bool) -> None:
    table = dictionary(tmp_path / "w")
    (tmp_path / name).write_text(content)
    frame = read_files(spark, [str(tmp_path / name)], table.schema)
    if refused:
        with pytest.raises(InvalidRequest, match="ids are minted, not given"):
            add(spark, table, frame, has_arrival=True)
    else:
        add(spark, table, frame, has_arrival=True)
        assert sorted(ids_of(spark, table).values()) == [1, 2]


@pytest.mark.usefixtures("quick")
def test_an_int_column_that_is_full(spark: SparkSession, tmp_path: Path) -> None:
    """A build gets all of its ids or none, before it writes anything; the table is as it was, and free."""
    table = create(tmp_path, "word STRING, id INT")
    add(spark, table, words(spark, ["a"]))
    claims = TableClaims(table.storage, INT_LIMIT)
    claims.claim(INT_LIMIT - 3, owner="test", epoch=9, purpose="online")
    files = {file.path for file in table.storage.list() if file.path.endswith(".sst")}
    with pytest.raises(InvalidRequest, match="2 ids are left, 3 are needed"):
        add(spark, table, words(spark, ["a", "b", "c", "d"]))
    assert {file.path for file in table.storage.list() if file.path.endswith(".sst")} == files
    assert table.snapshots.latest_id() == 1
    assert owner_kind(table) == "free"
    add(spark, table, words(spark, ["a", "b", "c"]))
    assert sorted(ids_of(spark, table).values()) == [1, INT_LIMIT - 1, INT_LIMIT]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("ids", "told"), [((1, 1), "id 1 belongs to two rows"), ((1, 9), "a row has id 9, but ids are claimed up to 3")]
)
def test_ids_that_are_wrong_are_not_carried_on(
    spark: SparkSession, tmp_path: Path, ids: tuple[int, int], told: str
) -> None:
    table = dictionary(tmp_path, "'bucket' = '1'")
    commit_rows(table, [{"word": word, "id": number} for word, number in zip("ab", ids, strict=True)])
    TableClaims(table.storage, INT_LIMIT).claim(2, owner="test", epoch=1, purpose="online")
    with pytest.raises(CorruptData, match=told):
        add(spark, table, words(spark, ["c"]))
    assert table.snapshots.latest_id() == 1
    assert owner_kind(table) == "free"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("change", [1, -1])
def test_rows_that_change_between_two_looks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    """As if Spark had lost the rows that it kept, and computed others: no id beyond the claim, and none unused."""
    table = dictionary(tmp_path, "'bucket' = '1'")
    monkeypatch.setattr(
        "stelae.builder.write.write_job.count_ids",
        lambda rows, plan: IdCounts({}, {0: count_ids(rows, plan).total_needed + change}),
    )
    with pytest.raises(InvalidRequest, match="other new keys than when they were counted"):
        add(spark, table, words(spark, ["a", "b", "c"]))
    assert table.snapshots.latest_id() is None


# Owners


@pytest.mark.usefixtures("quick")
def test_a_build_that_changes_nothing_lets_go(spark: SparkSession, tmp_path: Path) -> None:
    table = dictionary(tmp_path)
    add(spark, table, words(spark, ["a"]))
    with pytest.raises(InvalidRequest, match="no rows"):
        add(spark, table, words(spark, []))
    assert owner_kind(table) == "free"
    assert not add(spark, table, words(spark, []), allow_empty=True).committed
    assert owner_kind(table) == "free"
    assert len(claims_of(table)) == 1


@pytest.mark.usefixtures("quick")
def test_of_two_builds_one_is_told_of_the_other(spark: SparkSession, tmp_path: Path) -> None:
    table = dictionary(tmp_path)
    other = take_over(table, "build", "build-other")
    with pytest.raises(Conflict, match="build-other"):
        add(spark, table, words(spark, ["a"]))
    other.close()
    assert live_owner(table) is None
    add(spark, table, words(spark, ["a"]))


@pytest.mark.usefixtures("quick")
def test_a_build_that_was_killed_behind_its_claim(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next build fences its number; what it claimed is never used, and if it comes back, it can't commit."""
    table = dictionary(tmp_path)
    add(spark, table, words(spark, ["a"]))

    with monkeypatch.context() as planted:
        planted.setattr(TableSnapshots, "commit", _lost)
        with pytest.raises(Unavailable):
            add(spark, table, words(spark, ["b", "c"]))
    assert owner_kind(table) == "build", "an unknown outcome lets nothing go"
    report = add(spark, table, words(spark, ["b", "d"]))
    assert report.snapshot.id == 3
    assert table.snapshots.read(2).kind == "fence"
    found = ids_of(spark, table)
    assert found["a"] == 1
    assert {found["b"], found["d"]} == {4, 5}


# Rows written online


def test_rows_of_the_log_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that come online and in the input have one id; the manifest says what is covered."""
    table = create(tmp_path, "dt STRING, word STRING, v INT, id BIGINT", "dt, word", more="PARTITIONED BY (dt)")
    frame = [("x", "a", 1), ("y", "a", 1), ("untouched", "a", 1)]
    add(spark, table, spark.createDataFrame(frame, "dt STRING, word STRING, v INT"))
    before = ids_of(spark, table)
    online = insert_online(table, [{"dt": dt, "word": f"o{n}"} for dt in ("x", "y") for n in range(30)], records=7)
    report = add(
        spark, table, spark.createDataFrame([("x", "o1", 5), ("x", "new", 5)], "dt STRING, word STRING, v INT")
    )
    assert (report.rows_in, report.base_rows, report.rows_merged) == (2, 62, 1)
    assert ids_of(spark, table) == {**before, **online, ("x", "new"): report.ids.first if report.ids else 0}
    assert {row["word"]: row["v"] for row in rows_of(spark, table) if row["dt"] == "x"}["o1"] == 5
    snapshot = report.snapshot
    offsets = {bucket.log_offset for partition in snapshot.partitions for bucket in partition.buckets}
    assert offsets == {snapshot.log_offset}
    assert snapshot.log_offset > 14
    assert len(snapshot.partitions) == 3
    assert (
        add(spark, table, words(spark, []).selectExpr("'x' AS dt", "word", "1 AS v"), allow_empty=True).snapshot.id == 2
    )


def test_an_empty_build_brings_the_log_into_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = dictionary(tmp_path)
    online = insert_online(table, [{"word": "a"}, {"word": "b"}])
    with pytest.raises(InvalidRequest, match="no rows"):
        add(spark, table, words(spark, []))
    report = add(spark, table, words(spark, []), allow_empty=True)
    assert (report.committed, report.rows_in, report.ids) == (True, 0, None)
    assert ids_of(spark, table) == {word: number for (word,), number in online.items()}
    assert not add(spark, table, words(spark, []), allow_empty=True).committed


def test_a_row_of_the_log_takes_the_place_of_a_hidden_one(spark: SparkSession, tmp_path: Path) -> None:
    """And none of a visible one."""
    table = create(tmp_path, "word STRING, s INT, id BIGINT", options="'bucket' = '2', 'sequence.field' = 's'")
    records = [("+I", "a", 1), ("-D", "a", 9), ("+I", "b", 1), ("-D", "gone", 9)]
    frame = spark.createDataFrame(records, "op STRING, word STRING, s INT").coalesce(1)
    first = add(spark, table, frame, row_kind="op").snapshot
    assert first.totals.hidden_rows == 2
    online = insert_online(table, [{"word": "a"}, {"word": "b"}])
    second = spark.createDataFrame([("a", 2)], "word STRING, s INT")
    report = add(spark, table, second)
    assert (report.base_rows, report.rows_merged) == (3, 1)
    rows = {row["word"]: (row["s"], row["id"]) for row in rows_of(spark, table)}
    assert rows == {"a": (2, online["a",]), "b": (1, 1)}
    assert report.snapshot.totals.hidden_rows == 1


def test_a_table_without_ids_covers_its_log(spark: SparkSession, tmp_path: Path) -> None:
    table = Warehouse(tmp_path).create_table(
        "CREATE TABLE t (word STRING, n INT, PRIMARY KEY (word) NOT ENFORCED) WITH ('merge-engine' = 'aggregation', "
        "'fields.n.aggregate-function' = 'sum')"
    )
    add(spark, table, spark.createDataFrame([("a", 1)], "word STRING, n INT"))
    insert_online(table, [{"word": "a"}, {"word": "b"}, {"word": "c"}])
    report = add(spark, table, spark.createDataFrame([("b", 4)], "word STRING, n INT"))
    assert sorted((row["word"], row["n"]) for row in rows_of(spark, table)) == [("a", 1), ("b", 4), ("c", None)]
    assert report.snapshot.log_offset > 0
    assert owner_kind(table) == "free"


# Beside a server


@contextmanager
def server(folder: Path) -> Iterator[Client]:
    with run(folder, "--poll-interval", "0.1") as process, Client(f"http://127.0.0.1:{process.port}") as client:
        yield client


def wait_for_snapshot(client: Client, number: int) -> None:
    wait_until(lambda: client.describe("t").snapshot == number)


def test_beside_a_server_its_ids_count(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of served partitions get their ids from the server, those of new partitions from a claim of the build; what
    comes online meanwhile keeps its id.
    """
    table = create(
        tmp_path, "dt STRING, n DECIMAL(10, 2), d DATE, v INT, id BIGINT", "dt, n, d", more="PARTITIONED BY (dt)"
    )
    ddl = "dt STRING, n DECIMAL(10, 2), d DATE, v INT"
    day = dt.date(2026, 11, 20)

    def key(partition: str, n: int) -> dict[str, Any]:
        return {"dt": partition, "n": Decimal(n), "d": day}

    def frame(*numbers: tuple[str, int]) -> DataFrame:
        return spark.createDataFrame([(*key(partition, n).values(), 1) for partition, n in numbers], ddl)

    add(spark, table, frame(("x", 1), ("x", 2)))
    with server(tmp_path) as client:
        client.insert_if_not_exists("t", [key("x", 3)])
        report = add(spark, table, frame(("x", 2), ("x", 3), *(("x", n) for n in range(100, 140)), ("new", 1)))
        assert (report.ids_minted, report.ids_asked) == (1, 40)  # n = 3 is in the log
        assert owner_kind(table) == "server"
        found = ids_of(spark, table)
        assert len(set(found.values())) == len(found) == 44
        wait_for_snapshot(client, 2)
        after = client.insert_if_not_exists("t", [key("x", 3), key("x", 120), key("new", 1), key("new", 2)])
        assert after.inserted == [False, False, False, True]
        ids = [row["id"] for row in after if row is not None]
        assert ids[:3] == [found[tuple(key(*k).values())] for k in (("x", 3), ("x", 120), ("new", 1))]
        assert ids[3] not in found.values()
        client.insert_if_not_exists("t", [key("x", 999)])  # By its bytes alone, the last flush may not be durable.
        covered = add(spark, table, frame(("x", 1)))
        assert covered.ids is None
        found = ids_of(spark, table)
        assert found[tuple(key("new", 2).values())] == ids[3]
        assert tuple(key("x", 999).values()) in found
    assert [(claim.purpose, claim.ids.count) for claim in claims_of(table)][::2] == [("build", 2), ("build", 1)]


def test_beside_a_server_that_does_not_load_the_parent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = dictionary(tmp_path)
    add(spark, table, words(spark, ["a", "z"]))
    with run(tmp_path, "--poll-interval", "3600") as process:
        with Client(f"http://127.0.0.1:{process.port}") as client:
            client.insert_if_not_exists("t", ["b"])
        commit_rows(table, [], onto=table.snapshots.latest())
        monkeypatch.setattr("stelae.builder.lease.owner_client.SERVER_WAIT_S", 0.3)
        with pytest.raises(Unavailable, match="serves snapshot 1; the newest is 2"):
            add(spark, table, words(spark, ["c"]))
        assert add(spark, table, words(spark, ["a"])).ids_asked == 0, "nothing to ask for"


def test_a_build_beside_an_owner_commits_behind_a_fence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that minted nothing goes behind copies of its parent; one that did must not."""
    table = dictionary(tmp_path)
    online = insert_online(table, [{"word": "a"}])
    add(spark, table, words(spark, ["a"]))
    owner = take_over(table, "server", "test", URL)
    plain = TableSnapshots.commit

    def fenced_first(snapshots: TableSnapshots, snapshot: Snapshot) -> Snapshot:
        monkeypatch.setattr(TableSnapshots, "commit", plain)
        snapshots.fence(empty_snapshot(table))
        return snapshots.commit(snapshot)

    monkeypatch.setattr(TableSnapshots, "commit", fenced_first)
    report = add(spark, table, words(spark, ["a", "a"]))
    assert (report.snapshot.id, report.snapshot.parent) == (4, 3)
    owner.close()
    monkeypatch.setattr(TableSnapshots, "commit", fenced_first)
    with pytest.raises(Conflict):
        add(spark, table, words(spark, ["a", "b"]))
    assert ids_of(spark, table) == {"a": online["a",]}


# All together


@pytest.mark.usefixtures("quick")
@pytest.mark.long
@pytest.mark.parametrize(
    "engine",
    [
        "deduplicate",
        pytest.param("deduplicate with sequence", marks=only_long),
        pytest.param("partial-update", marks=only_long),
        "aggregation",
    ],
)
def test_random_histories(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Builds, deletes, overwrites, rows written online, builds that lose their commit: a key keeps its id as long as it
    has a row, and no id is given twice.
    """
    columns, options = ENGINES[engine]
    names = [part.split()[0] for part in columns.split(", ")]
    deletes = engine.startswith("deduplicate")
    table = create(tmp_path, f"p STRING, word STRING, {columns}, id BIGINT", "p, word",
                   f"'dynamic-bucket.target-row-num' = '20'{options}", "PARTITIONED BY (p)")  # fmt: skip
    source = random.Random(engine)
    has: dict[tuple[str, str], int] = {}
    used: set[int] = set()

    def learn(found: dict[tuple[str, str], int]) -> None:
        assert len(set(found.values())) == len(found)
        fresh = {number for key, number in found.items() if has.get(key) != number}
        assert not fresh & used, "given twice"
        used.update(fresh)
        has.clear()
        has.update(found)

    for step in range(12):
        keys = [(source.choice("xyz"), f"w{source.randrange(60)}") for _ in range(source.randrange(1, 40))]
        action = source.choice(["build", "build", "build", "online", "overwrite", "lost"])
        before = dict(has)
        if action == "online":
            new = [key for key in dict.fromkeys(keys) if key not in has]
            online = insert_online(table, [{"p": p, "word": word} for p, word in new], records=3)
            learn({**has, **{(str(p), str(word)): number for (p, word), number in online.items()}})
            continue
        kinds = ["-D" if deletes and source.random() < 0.2 and action != "overwrite" else "+I" for _ in keys]
        rows = [(kind, *key, *(step for _ in names)) for kind, key in zip(kinds, keys, strict=True)]
        frame = spark.createDataFrame(rows, f"op STRING, p STRING, word STRING, {columns}").coalesce(1)
        if action == "lost":
            with pytest.MonkeyPatch.context() as planted:
                planted.setattr(TableSnapshots, "commit", _lost)
                with pytest.raises(Unavailable):
                    add(spark, table, frame, row_kind="op")
            continue
        last = dict(zip(keys, kinds, strict=True))
        add(spark, table, frame, row_kind="op", mode="overwrite" if action == "overwrite" else "merge")
        kept = {} if action == "overwrite" else {key: number for key, number in before.items() if key not in last}
        stay = {key: before[key] for key, kind in last.items() if kind == "+I" and key in before}
        found = ids_of(spark, table)
        assert set(found) == {*kept, *(key for key, kind in last.items() if kind == "+I")}, f"step {step}"
        assert {key: found[key] for key in (*kept, *stay)} == {**kept, **stay}, f"step {step}"
        learn(found)
    assert not verify_snapshot(table, table.snapshots.read()).problems


def _lost(*_: object) -> Snapshot:
    raise Unavailable("planted: nobody knows")
