"""Goal: columns may have any name, and partitions any text, whatever it means to SQL and by its settings.

Method: tables whose columns have such names, through builds of each family of engines, into an empty table and into
stored rows, and read back; under the settings that change how Spark reads a query.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stelae.builder import build, read
from stelae.schema.types import quote_name
from stelae.snapshot.warehouse import Warehouse
from tests.builder.merge.test_merge_cases import QUICK
from tests.length import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY, PARTITION = "${spark.app.name}", "a.b `c`"
VALUES = ['it\'s \\ "x"', "${env:HOME} ${a}${b}", "naïve – 日本", "select", "{frame} $ {", "-- /* x", "'"]
RAW = "it's ${env:HOME} \\"
"""Not under escapedStringLiterals."""
TEXTS = ["${spark.app.name}", "`", "'", "\\", '"', "{x}", "a\nb", "naïve – 日本", "%2F/", " x "]
ENGINES = {
    "deduplicate": "",
    "some columns": "",
    "first-row": ", 'merge-engine' = 'first-row'",
    "partial-update": ", 'merge-engine' = 'partial-update'",
    "aggregation": ", 'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'last_non_null_value'",
    "listagg": ", 'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'listagg'",
    "dictionary": ", 'auto-increment.fields' = 'the ${id}'",
}
SETTINGS = [
    {},
    {"spark.sql.ansi.enforceReservedKeywords": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.parser.escapedStringLiterals": "true", "spark.sql.caseSensitive": "true"},
]


GATE = {0: tuple(ENGINES), 1: ("listagg", "dictionary"), 2: ("some columns", "aggregation")}
"""By settings: engines that the gate has. All with all is for `make test-long`."""


@pytest.fixture
def session(spark: SparkSession, settings: int) -> SparkSession:
    # One of its own, so that others keep their settings.
    own = spark.newSession()
    for name, value in {**QUICK, **SETTINGS[settings]}.items():
        own.conf.set(name, value)
    return own


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        pytest.param(engine, number, marks=() if engine in GATE[number] else only_long)
        for number in GATE
        for engine in ENGINES
    ],
)
def test_any_name_is_a_column(engine: str, session: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    escaped = session.conf.get("spark.sql.parser.escapedStringLiterals") == "true"
    values = VALUES if escaped else [*VALUES, RAW]
    minted = engine == "dictionary"
    columns = [f"{quote_name(KEY)} STRING NOT NULL", f"{quote_name(PARTITION)} STRING NOT NULL"]
    columns += [f"{quote_name(name)} STRING" for name in values]
    columns += [f"{quote_name('the ${id}')} BIGINT"] if minted else []
    keys = f"{quote_name(PARTITION)}, {quote_name(KEY)}"
    warehouse.create_table(
        f"CREATE TABLE t ({', '.join(columns)}, PRIMARY KEY ({keys}) NOT ENFORCED) "
        f"PARTITIONED BY ({quote_name(PARTITION)}) WITH ('bucket' = '2'{ENGINES[engine]})"
    )
    names = [KEY, PARTITION, *values]
    rows = [(text, f"p{text}", *(f"{text}{index}" for index in range(len(values)))) for text in TEXTS]
    frame = session.createDataFrame(rows, [f"c{i}" for i in range(len(names))]).toDF(*names)
    targets = [KEY, PARTITION, *values[:3]] if engine == "some columns" else None
    given = frame.drop(*values[3:]) if targets else frame
    for _ in range(2):
        build(session, warehouse, "t", given, target_columns=targets)
    found = read(session, warehouse, "t")
    assert found.columns == [*names, *(["the ${id}"] if minted else [])]
    expected = {
        row[:2] + tuple(
            None if targets and name not in targets else f"{value},{value}" if engine == "listagg" else value
            for name, value in zip(values, row[2:], strict=True)
        )
        for row in rows
    }  # fmt: skip
    assert {tuple(row)[: len(names)] for row in found.collect()} == expected
    assert session.catalog.listTables() == []
