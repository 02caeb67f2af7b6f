"""Which partitions rows fall into, counted by Spark: values and counts on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stelae.builder.plan.build_plan import MAX_PARTITIONS
from stelae.builder.spark_sql.added_columns import SUM_COLUMN_PREFIX
from stelae.builder.spark_sql.spark_errors import translated
from stelae.builder.spark_sql.sql_text import Query, Sql, fn, sql
from stelae.encoding.partitions import partition_from_python
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.table_schema import TableSchema
from stelae.storage.paths import PartitionValue, partition_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Values = tuple[PartitionValue, ...]
"""The values of a partition's columns as JSON, as the manifest has them."""


def count_partitions(schema: TableSchema, rows: DataFrame) -> list[tuple[Values, int]]:
    """Values and rows of each partition. Without partition columns, there is one."""
    return [(values, count) for values, (count,) in sum_partitions(schema, rows, sql(1))]


def sum_partitions(schema: TableSchema, rows: DataFrame, *numbers: Sql) -> list[tuple[Values, tuple[int, ...]]]:
    """Values of each partition, and sums of some numbers over its rows."""
    sums = {f"{SUM_COLUMN_PREFIX}{i}": fn.coalesce(fn.sum(n), 0).cast("BIGINT") for i, n in enumerate(numbers)}
    summed = Query.of(rows).aggregate(schema.partition_keys, sums).frame()
    some = summed.limit(MAX_PARTITIONS + 1)
    try:
        with translated("counting the input"):
            table = _collected(some, plain=has_plain_partitions(schema))
    except (ValueError, OverflowError) as exc:
        raise InvalidRequest(
            f"a partition is outside of the years 1 to 9999: {exc}", place=", ".join(schema.partition_keys)
        ) from exc
    if len(table) > MAX_PARTITIONS:
        raise InvalidRequest(
            f"the input falls into more than {MAX_PARTITIONS:,} partitions",
            place=", ".join(schema.partition_keys),
            hint="partition by a column with fewer values",
        )
    columns = schema.partition_columns
    return [(partition_from_python(columns, row[: len(columns)]), tuple(row[len(columns) :])) for row in table]


def _collected(rows: DataFrame, *, plain: bool) -> list[tuple[Any, ...]]:
    if plain:
        return [tuple(row) for row in rows.collect()]
    # `collect` gives instants as wall clocks of this machine's zone. Arrow takes four times the round trips.
    return list(zip(*(column.to_pylist() for column in rows.toArrow().columns), strict=True))


def has_plain_partitions(schema: TableSchema) -> bool:
    """Whether partition values are integers, text and truth values alone: Python, Arrow and SQL write them alike."""
    return all(isinstance(column.type, (*t.INTEGERS, t.String, t.Boolean)) for column in schema.partition_columns)


def with_folders(schema: TableSchema, counts: Mapping[Values, int]) -> list[tuple[Values, str, int]]:
    """Values, folder and rows of each partition, sorted by folder."""
    found = [(values, partition_folder(schema.partition_keys, values), rows) for values, rows in counts.items()]
    return sorted(found, key=lambda partition: partition[1])
