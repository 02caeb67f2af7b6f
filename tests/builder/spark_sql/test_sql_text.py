"""Queries as text: names and literals arrive as they are, and frames that a query reads stay as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stelae.builder.spark_sql.sql_text import Query, all_of, any_of, col, fn, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_frames_of_a_query_stay_persisted(spark: SparkSession) -> None:
    rows = spark.range(10).selectExpr("id AS k", "rand() AS v").persist()
    try:
        found = (
            Query.of(rows)
            .union(Query.of(rows), ["k", "v"])
            .aggregate(["k"], {"different": fn.min(col("v")) != fn.max(col("v"))})
        )
        kept = found.frame()

        assert rows.storageLevel.useMemory
        assert not any(row.different for row in kept.collect())
        assert not [each.name for each in spark.catalog.listTables() if each.isTemporary and "stelae" in each.name]
    finally:
        rows.unpersist()


def test_names_and_texts_arrive_as_they_are(spark: SparkSession) -> None:
    odd = [
        "a.b",
        "`",
        "'",
        '"',
        "{0}",
        "{",
        "}}",
        "${spark.app.name}",
        "${x}",
        "$x",
        "\\",
        "--",
        "/*",
        "select",
        "x END",
        "é",
    ]
    rows = spark.createDataFrame([tuple(odd)], ", ".join(f"`{name.replace('`', '``')}` STRING" for name in odd))

    found = (
        Query.of(rows).select({name: fn.concat(col(name), sql(name)) for name in odd}).with_columns({"n": 1}).frame()
    )

    assert found.columns == [*odd, "n"]
    assert found.head()[:-1] == tuple(name + name for name in odd)  # type: ignore[index]
    assert spark.conf.get("spark.sql.variable.substitute") == "true"


def test_conditions_on_two_thousand_columns_can_be_parsed(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr(*[f"{number} AS c{number}" for number in range(2000)])
    conditions = [col(name) > 0 for name in rows.columns]

    found = Query.of(rows).select({"all": all_of(conditions), "any": any_of(conditions), "none": all_of([])}).frame()

    assert found.head() == (False, True, True)
