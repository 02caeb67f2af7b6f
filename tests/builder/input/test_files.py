"""Goal: files are read in the order given, each value in its column's type; and a file that does not fit is refused by
name, never read in part.

Method: small files of every format through `read_files`; rows are compared in arrival order.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from stelae.builder.input.arrival import arrival_columns, with_arrival
from stelae.builder.input.change_records import change_records
from stelae.builder.input.files import escape_glob, format_of, read_files
from stelae.builder.spark_sql.added_columns import ORDER_COLUMN
from stelae.builder.spark_sql.spark_errors import translated
from stelae.errors import InvalidRequest, StelaeError
from stelae.schema.sql import parse_create_table
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def schema_of(columns: str, key: str = "id", more: str = "") -> TableSchema:
    return parse_create_table(f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) {more}")[1]


PAIRS = schema_of("id INT, v STRING")
TYPES = schema_of(
    "id BIGINT, s STRING, d DATE, t TIMESTAMP(3), z TIMESTAMP_LTZ(3),"
    " m DECIMAL(8, 2), f DOUBLE, b BOOLEAN, v VARCHAR(3)"
)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows in arrival order, without the arrival columns."""
    order = arrival_columns(frame.columns)
    with translated("reading"):
        collected = frame.orderBy(*order).drop(*order).collect()
    return [row.asDict(recursive=True) for row in collected]


def ids(frame: DataFrame) -> list[int]:
    return [row["id"] for row in rows(frame)]


def write(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def parquet(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


# Which files, in which order


def test_files_come_in_the_order_given(spark: SparkSession, tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{name}.csv", f"id,v\n{i},x\n{i + 1},x\n") for i, name in ((1, "z"), (10, "a"), (20, "m"))
    ]
    assert ids(read_files(spark, paths, PAIRS)) == [1, 2, 10, 11, 20, 21]
    assert ids(read_files(spark, paths[::-1], PAIRS)) == [20, 21, 10, 11, 1, 2]


def test_folders_and_globs_come_in_name_order(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number, name in enumerate(["c.csv", "a.csv", "b.csv"]):
        write(folder / name, f"id,v\n{number},x\n")
    write(folder / "_ignored.csv", "nonsense")
    write(folder / ".hidden.csv", "nonsense")
    last = write(tmp_path / "last.csv", "id,v\n9,x\n")
    assert ids(read_files(spark, [str(folder), last], PAIRS)) == [1, 2, 0, 9]
    assert ids(read_files(spark, [last, f"{folder}/[ac].csv"], PAIRS)) == [9, 1, 0]
    assert ids(read_files(spark, [f"{folder}/{{a,b}}.csv"], PAIRS)) == [1, 2]


@pytest.mark.parametrize("name", ["we[ir]d {x}*?.csv", "ä ü+%20.csv", "100%.csv"])
def test_names_are_taken_literally(spark: SparkSession, tmp_path: Path, name: str) -> None:
    odd = write(tmp_path / name, "id,v\n1,x\n")
    other = write(tmp_path / "weid x.csv", "id,v\n2,x\n")
    assert ids(read_files(spark, [other, odd], PAIRS)) == [2, 1]


def test_relative_paths(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv", "id,v\n1,x\n")
    write(tmp_path / "b.csv", "id,v\n2,x\n")
    monkeypatch.chdir(tmp_path)
    assert ids(read_files(spark, ["b.csv", "./a.csv"], PAIRS)) == [2, 1]


def test_folders_below_are_an_option(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in/deep/a.csv", "id,v\n1,x\n")
    folder = str(tmp_path / "in")
    assert ids(read_files(spark, [folder], PAIRS, options={"recursiveFileLookup": "true"})) == [1]
    with pytest.raises(InvalidRequest, match="no files") as caught:
        read_files(spark, [folder], PAIRS)
    assert "recursiveFileLookup" in (caught.value.hint or "")


def test_a_file_is_named_once(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "in/a.csv", "id,v\n1,x\n")
    with pytest.raises(InvalidRequest, match="twice"):
        read_files(spark, [path, str(tmp_path / "in")], PAIRS)


@pytest.mark.parametrize("path", ["nope.csv", "nope/*.csv", "file:///nope/nope.csv"])
def test_input_that_is_not_there(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_files(spark, [path], PAIRS)
    assert "nope" in str(caught.value)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["/a/x.parquet"], "parquet"),
        (["/a/x.csv.gz", "/a/y.CSV"], "csv"),
        (["/a/part-0000.snappy.parquet"], "parquet"),
        (["/a/x.jsonl.zst", "/a/x.ndjson", "/a/x.json"], "json"),
        (["/a/x.tsv"], "tsv"),
    ],
)
def test_the_format_is_in_the_ending(files: Sequence[str], found: str) -> None:
    assert format_of(files) == found


@pytest.mark.parametrize("files", [["/a/x"], ["/a/x.gz"], ["/a/x.csv", "/a/y.parquet"], ["/a.csv/x"]])
def test_an_ending_that_does_not_tell(files: Sequence[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        format_of(files)
    assert "--format" in (caught.value.hint or "")


def test_a_format_may_be_given(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "data", "id,v\n1,x\n")
    assert ids(read_files(spark, [path], PAIRS, format="CSV")) == [1]


def test_globs_are_escaped() -> None:
    assert escape_glob("/a[1]{b}*?\\") == r"/a\[1\]\{b\}\*\?\\"


# CSV


def test_csv_has_the_types_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "b,id,s,d,t,z,m,f,v,extra\n"
        'true,1,"a, ""b""",2026-11-20,2026-11-20 12:34:56.789,2026-11-20T12:34:56+02:00,10.5,1e3,äöü,7\n'
        'false,2,"",,,,,NaN,,\n'
        ",3,,,,,,,,\n",
    )
    frame = read_files(spark, [path], TYPES)
    got = rows(frame.selectExpr("*", "unix_micros(z) AS z_us").drop("z"))
    assert got[0] == {
        "b": True, "id": 1, "s": 'a, "b"', "d": date(2026, 11, 20), "m": Decimal("10.50"), "f": 1000.0, "v": "äöü",
        "t": datetime.fromisoformat("2026-11-20 12:34:56.789"), "z_us": 1_795_170_896_000_000, "extra": "7",
    }  # fmt: skip
    assert [name for name, value in got[1].items() if value is None] == ["s", "d", "t", "m", "v", "extra", "z_us"]
    assert [name for name, value in got[2].items() if value is not None] == ["id"]
    records = change_records(frame, TYPES, None, ignore_extra_columns=True, has_arrival=True)
    assert records.frame.columns[: len(TYPES.columns)] == [column.name for column in TYPES.columns]


def test_csv_options_go_to_the_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id;v\n1;NA\n2;b\n3;""\n')
    got = rows(read_files(spark, [path], PAIRS, options={"sep": ";", "nullValue": "NA"}))
    assert got == [{"id": 1, "v": None}, {"id": 2, "v": "b"}, {"id": 3, "v": ""}]


def test_csv_without_a_header_has_the_columns_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1,x\n2,y\n")
    assert rows(read_files(spark, [path], PAIRS, options={"header": "false"})) == [
        {"id": 1, "v": "x"}, {"id": 2, "v": "y"},
    ]  # fmt: skip


def test_tsv_and_compressed_files(spark: SparkSession, tmp_path: Path) -> None:
    tsv = write(tmp_path / "a.tsv", "id\tv\n1\tx,y\n")
    assert rows(read_files(spark, [tsv], PAIRS)) == [{"id": 1, "v": "x,y"}]
    packed = write(tmp_path / "a.csv.gz", gzip.compress(b"id,v\n1,x\n"))
    assert rows(read_files(spark, [packed], PAIRS)) == [{"id": 1, "v": "x"}]


def test_an_empty_csv_file_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    empty, full = write(tmp_path / "a.csv", ""), write(tmp_path / "b.csv", "id,v\n1,x\n")
    assert ids(read_files(spark, [empty, full], PAIRS)) == [1]
    with pytest.raises(InvalidRequest, match="empty"):
        read_files(spark, [empty], PAIRS)


@pytest.mark.parametrize(
    "text",
    ["id,v\none,x\n", "id,v\n1.0,x\n", "id,v\n99999999999,x\n", "id,v\n1\n", "id,v\n1,2,3\n"],
    ids=["text", "fraction", "range", "short", "long"],
)
def test_a_csv_value_that_does_not_fit_stops_the_build(spark: SparkSession, tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.csv", "id,v\n0,x\n" + text.removeprefix("id,v\n"))
    with pytest.raises(InvalidRequest):
        rows(read_files(spark, [path], PAIRS))


def test_csv_files_with_other_headers_stop_the_build(spark: SparkSession, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", "id,v\n1,x\n"), write(tmp_path / "b.csv", "v,id\nx,1\n")
    with pytest.raises(StelaeError, match=r"b\.csv|header"):
        rows(read_files(spark, [first, second], PAIRS))


def test_csv_cannot_hold_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,tags\n1,x\n")
    with pytest.raises(InvalidRequest, match="CSV can't hold column tags"):
        read_files(spark, [path], schema_of("id INT, tags ARRAY<STRING>"))


# JSON


def test_json_has_the_types_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    schema = schema_of(
        "id BIGINT, d DATE, m DECIMAL(8, 2), tags ARRAY<INT>, home ROW<city STRING, zip INT>, photo BYTES"
    )
    path = write(
        tmp_path / "a.jsonl",
        '{"id": 9007199254740993, "m": 10.5, "tags": [1, null], "home": {"city": "Bern"}, "photo": "AP8="}\n'
        '{"d": "2026-11-20", "id": 2, "more": {"x": 1}}\n',
    )
    assert rows(read_files(spark, [path], schema)) == [
        {
            "id": 9007199254740993, "d": None, "m": Decimal("10.50"), "tags": [1, None],
            "home": {"city": "Bern", "zip": None}, "photo": bytearray(b"\x00\xff"), "more": None,
        },
        {"id": 2, "d": date(2026, 11, 20), "m": None, "tags": None, "home": None, "photo": None, "more": '{"x": 1}'},
    ]  # fmt: skip


def test_a_json_column_that_occurs_nowhere_is_null(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"id": 1, "op": "+I"}\n')
    frame = read_files(spark, [path], PAIRS, row_kind="op")
    assert rows(frame) == [{"id": 1, "op": "+I", "v": None}]


def test_a_json_column_that_is_misspelled_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = schema_of("id INT, name STRING, city STRING")
    frame = read_files(spark, [write(tmp_path / "a.json", '{"id": 1, "nmae": "x"}\n')], schema)
    with pytest.raises(InvalidRequest, match="lacks columns of the table: name") as caught:
        change_records(frame, schema, None)
    assert caught.value.hint == "is 'nmae' meant to be 'name'?"


@pytest.mark.parametrize("text", ['{"id": "x"}\n', '{"id": 1.5}\n', '{"id": 1\n', '{"id": 99999999999}\n'])
def test_a_json_value_that_does_not_fit_stops_the_build(spark: SparkSession, tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.json", '{"id": 1, "v": "x"}\n' + text)
    with pytest.raises(InvalidRequest):
        rows(read_files(spark, [path], PAIRS))


# Parquet, ORC, others


def test_parquet_and_orc_keep_their_types(spark: SparkSession, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", id=pa.array([1, 2], pa.int32()), v=["x", None])
    assert rows(read_files(spark, [path], PAIRS)) == [{"id": 1, "v": "x"}, {"id": 2, "v": None}]
    orc.write_table(pa.table({"id": pa.array([3], pa.int64()), "v": ["y"]}), tmp_path / "a.orc")
    frame = read_files(spark, [str(tmp_path / "a.orc")], PAIRS)
    assert dict(frame.drop(*arrival_columns(frame.columns)).dtypes) == {"id": "bigint", "v": "string"}
    with pytest.raises(InvalidRequest, match="id is BIGINT, the table has INT"):
        change_records(frame, PAIRS, None)


def test_parquet_files_must_have_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    first = parquet(tmp_path / "a.parquet", id=[1], v=["x"])
    second = parquet(tmp_path / "b.parquet", id=[1], w=["x"])
    with pytest.raises(InvalidRequest, match="differ in their columns: this one lacks v and has w besides") as caught:
        read_files(spark, [first, second], PAIRS)
    assert caught.value.place == second


def test_a_file_that_is_no_parquet_is_named(spark: SparkSession, tmp_path: Path) -> None:
    good = parquet(tmp_path / "a.parquet", id=[1], v=["x"])
    bad = write(tmp_path / "b.parquet", b"PAR1 and nothing else")
    with pytest.raises(InvalidRequest) as caught:
        read_files(spark, [good, bad], PAIRS)
    assert caught.value.place == bad
    with pytest.raises(InvalidRequest):
        rows(read_files(spark, [bad], PAIRS))


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_partition_values_stand_in_folder_names(spark: SparkSession, tmp_path: Path, ending: str) -> None:
    schema = schema_of("id INT, v STRING, dt STRING", "id, dt", "PARTITIONED BY (dt)")
    for number, day in enumerate(["01", "02"]):
        path = tmp_path / f"in/dt={day}/a.{ending}"
        match ending:
            case "csv":
                write(path, f"id,v\n{number},x\n")
            case "json":
                write(path, f'{{"id": {number}, "v": "x"}}\n')
            case _:
                parquet(path, id=pa.array([number], pa.int32()), v=["x"])
    got = rows(read_files(spark, [str(tmp_path / "in")], schema))
    assert sorted((row["id"], row["v"], row["dt"]) for row in got) == [(0, "x", "01"), (1, "x", "02")]


def test_an_unknown_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.xyz", "x")
    with pytest.raises(StelaeError, match="nonsense"):
        read_files(spark, [path], PAIRS, format="nonsense")


def test_rows_know_their_place(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,v\n" + "".join(f"{i},x\n" for i in range(1000)))
    frame = read_files(spark, [path], PAIRS)
    assert ORDER_COLUMN in frame.columns
    assert ids(frame) == list(range(1000))


def test_rows_of_parquet_files_are_numbered_through(spark: SparkSession, tmp_path: Path) -> None:
    numbers = [pa.array(range(start, start + 1000), pa.int32()) for start in (0, 1000, 2000)]
    names = ["b.parquet", "a ü+%20.parquet", "100%.parquet"]
    files = [
        parquet(tmp_path / name, id=ids_, v=["x"] * 1000) for name, ids_ in zip(names, numbers, strict=True)
    ]  # fmt: skip
    frame = read_files(spark, files, PAIRS)
    assert arrival_columns(frame.columns) == [ORDER_COLUMN]
    assert ids(frame) == list(range(3000))
    assert ids(with_arrival(spark.read.parquet(*files))) == [*range(2000, 3000), *range(1000, 2000), *range(1000)]
