"""Where rows go: the bucket ordinal of each by partition and hash, the task of each bucket, the order inside a task."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.builder.plan.build_plan import BuildPlan, PartitionPlan
from stelae.builder.plan.partitions import has_plain_partitions
from stelae.builder.spark_sql.added_columns import (
    BUCKETS_COLUMN,
    FIRST_ORDINAL_COLUMN,
    ORDINAL_COLUMN,
    PARTITION_COLUMN_PREFIX,
    TASK_COLUMN,
)
from stelae.builder.spark_sql.spark_errors import marked
from stelae.builder.spark_sql.sql_text import Query, Sql, all_of, col, fn
from stelae.encoding.buckets import spark_bucket_expression
from stelae.encoding.partitions import partition_to_python
from stelae.errors import InvalidRequest
from stelae.schema.table_schema import TableSchema

MAX_LISTED = 200
"""Partitions that are listed in the query itself. More of them come as a frame, which is 35 round trips more."""


def placed(records: Query, plan: BuildPlan) -> Query:
    """Records on the task of their bucket."""
    return on_tasks(with_planned_ordinals(records, plan), plan)


def with_planned_ordinals(records: Query, plan: BuildPlan) -> Query:
    """Records with the ordinal of their bucket. One of a partition that is not planned stops the job."""
    numbered = with_ordinals(records, plan.schema, plan.partitions, ORDINAL_COLUMN)
    if not plan.schema.partition_keys:
        return numbered
    known = fn.coalesce(col(ORDINAL_COLUMN), fn.raise_error(marked(_CHANGED_INPUT)).cast("INT"))
    return numbered.with_columns({ORDINAL_COLUMN: known}, without=[ORDINAL_COLUMN])


_CHANGED_INPUT = InvalidRequest(
    "the input has rows of a partition that it did not have when it was counted",
    hint="Spark computed it twice, with different results: write it to files, or cache it, before it is built",
)


def with_ordinals(rows: Query, schema: TableSchema, partitions: Sequence[PartitionPlan], name: str) -> Query:
    """Rows with the INT column `name`: their bucket ordinal among some partitions, null in none of these."""
    if not schema.partition_keys:
        count = partitions[0].bucket_count
        return rows.with_columns({name: Sql(spark_bucket_expression(schema.bucket_columns, count))})
    listed = [
        (*partition_to_python(schema.partition_columns, p.values), p.bucket_count, p.first_ordinal) for p in partitions
    ]
    names = [f"{PARTITION_COLUMN_PREFIX}{index}" for index in range(len(schema.partition_columns))]
    types = {each: c.type.spark() for each, c in zip(names, schema.partition_columns, strict=True)}
    added = [*names, BUCKETS_COLUMN, FIRST_ORDINAL_COLUMN]
    types |= {BUCKETS_COLUMN: "INT", FIRST_ORDINAL_COLUMN: "INT"}
    if len(listed) <= MAX_LISTED and has_plain_partitions(schema):
        known = Query.values(types, listed)
    else:
        session = next(iter(rows.frames.values())).sparkSession
        ddl = ", ".join(f"{each} {of}" for each, of in types.items())
        known = Query.of(session.createDataFrame(listed, ddl))
    same = all_of(
        col(each).equal_null_safe(col(column)) for each, column in zip(names, schema.partition_keys, strict=True)
    )
    joined = rows.join(known, same, "LEFT", broadcast=True)
    bucket = Sql(spark_bucket_expression(schema.bucket_columns, BUCKETS_COLUMN))
    return joined.with_columns({name: col(FIRST_ORDINAL_COLUMN) + bucket}, without=added)


def on_tasks(numbered: Query, plan: BuildPlan) -> Query:
    """Rows on the task of their bucket."""
    if not plan.one_bucket_a_task:
        numbered = numbered.with_columns({TASK_COLUMN: fn.pmod(col(ORDINAL_COLUMN), plan.task_count)})
    task = ORDINAL_COLUMN if plan.one_bucket_a_task else TASK_COLUMN
    return Query.of(numbered.frame().repartitionById(plan.task_count, task))


def by_ordinal(plan: BuildPlan) -> list[str]:
    """What a task sorts by first: nothing if it has one bucket, as that would blunt Spark's comparison of prefixes."""
    return [] if plan.one_bucket_a_task else [ORDINAL_COLUMN]


def by_key(rows: Query, plan: BuildPlan) -> Query:
    """Merged rows, sorted by bucket and key inside each task."""
    keys = [f"_{position}" for position in range(len(plan.schema.key_columns))]
    return rows.sort_within_partitions([*by_ordinal(plan), *keys])
