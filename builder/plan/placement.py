"""Where rows go: the bucket ordinal of each by partition and hash, the task of each bucket, the order inside a task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from stelae.builder.plan.build_plan import BuildPlan, PartitionPlan
from stelae.builder.plan.columns import ORDINAL_COLUMN, TASK_COLUMN
from stelae.builder.plan.errors import marked
from stelae.encoding.buckets import spark_bucket_expression
from stelae.encoding.partitions import partition_to_python
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def placed(records: DataFrame, plan: BuildPlan) -> DataFrame:
    """Records on the task of their bucket."""
    return on_tasks(with_planned_ordinals(records, plan), plan)


def with_planned_ordinals(records: DataFrame, plan: BuildPlan) -> DataFrame:
    """Records with the ordinal of their bucket. One of a partition that is not planned stops the job."""
    from pyspark.sql import functions as f

    slotted = with_places(records, plan.schema, plan.partitions, ORDINAL_COLUMN)
    if not plan.schema.partition_keys:
        return slotted
    changed = f.raise_error(f.lit(marked(_CHANGED_INPUT))).cast("int")
    return slotted.withColumn(ORDINAL_COLUMN, f.coalesce(f.col(ORDINAL_COLUMN), changed))


_CHANGED_INPUT = InvalidRequest(
    "the input has rows of a partition that it did not have when it was counted",
    hint="Spark computed it twice, with different results: write it to files, or cache it, before it is built",
)


def with_places(rows: DataFrame, schema: TableSchema, partitions: Sequence[PartitionPlan], name: str) -> DataFrame:
    """Rows with the INT column `name`: their bucket ordinal among some partitions, null in none of these."""
    from pyspark.sql import functions as f

    if not schema.partition_keys:
        count = partitions[0].bucket_count
        return rows.withColumn(name, f.expr(spark_bucket_expression(schema.bucket_columns, count)))
    places = [
        (*partition_to_python(schema.partition_columns, p.values), p.bucket_count, p.first_ordinal) for p in partitions
    ]
    names = [f"__stelae_partition_{index}" for index in range(len(schema.partition_columns))]
    ddl = ", ".join(f"{each} {c.type.spark()}" for each, c in zip(names, schema.partition_columns, strict=True))
    known = rows.sparkSession.createDataFrame(places, f"{ddl}, __stelae_buckets INT, __stelae_first INT")
    condition = reduce(
        and_,
        (
            f.col(each).eqNullSafe(f.col(t.quote_name(column)))
            for each, column in zip(names, schema.partition_keys, strict=True)
        ),
    )
    joined = rows.join(f.broadcast(known), condition, "left")
    bucket = f.expr(spark_bucket_expression(schema.bucket_columns, "__stelae_buckets"))
    return joined.withColumn(name, f.col("__stelae_first") + bucket).drop(*names, "__stelae_buckets", "__stelae_first")


def on_tasks(slotted: DataFrame, plan: BuildPlan) -> DataFrame:
    """Rows on the task of their bucket."""
    from pyspark.sql import functions as f

    if plan.one_bucket_a_task:
        return slotted.repartitionById(plan.task_count, f.col(ORDINAL_COLUMN))
    slotted = slotted.withColumn(TASK_COLUMN, f.pmod(f.col(ORDINAL_COLUMN), f.lit(plan.task_count)))
    return slotted.repartitionById(plan.task_count, f.col(TASK_COLUMN))


def by_ordinal(plan: BuildPlan) -> list[Column]:
    """What a task sorts by first: nothing if it has one bucket, as that would blunt Spark's comparison of prefixes."""
    from pyspark.sql import functions as f

    return [] if plan.one_bucket_a_task else [f.col(ORDINAL_COLUMN)]


def by_key(rows: DataFrame, plan: BuildPlan) -> DataFrame:
    """Merged rows, sorted by bucket and key inside each task."""
    from pyspark.sql import functions as f

    keys = [f.col(f"_{position}") for position in range(len(plan.schema.key_columns))]
    return rows.sortWithinPartitions(*by_ordinal(plan), *keys)
