"""The write of a build: one Spark action, whose result is one report a bucket.

    a table that gives ids     rows merged once, and kept → counted → ids claimed → written → ids checked
    any other                  written

What a task does is in bucket_writer.py, who gets which id in id_assignment.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stelae.builder.lease.lease import BuildLease
from stelae.builder.lease.owner_client import AskOwner, wait_until_served
from stelae.builder.merge.arrow_folds import arrow_folds, is_folded_in_arrow
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.python_steps import map_batches
from stelae.builder.spark_sql.spark_errors import translated
from stelae.builder.write.bucket_report import REPORT_DDL, BucketReport
from stelae.builder.write.bucket_writer import WriteSpec
from stelae.builder.write.commit import discard
from stelae.builder.write.id_assignment import (
    ask_owner,
    asked_ordinals,
    check_ids,
    count_ids,
    id_ranges,
)
from stelae.errors import CorruptData
from stelae.ownership.id_claims import IdRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARROW_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
DEFAULT_BATCH_BYTES = "67108864b"
ARROW_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_A_BATCH = 8192
"""Rows of 250 KB on average fill the 2 GiB that an Arrow column of such a batch can hold."""


@dataclass(frozen=True)
class Written:
    """The files of a build."""

    reports: list[BucketReport]
    ids: IdRange | None = None
    """Claimed for new keys."""
    ids_asked: int = 0
    """New keys whose ids the owner of the table gave."""


def write_rows(rows: DataFrame, plan: BuildPlan, lease: BuildLease) -> Written:
    """Write merged rows. Those of a table that gives ids come with the ids that their keys have, and get the others."""
    with batches_by_rows(rows.sparkSession, large=has_folds(plan)):
        return _write_with_ids(rows, plan, lease) if plan.mints else Written(_write(rows, plan))


def _write_with_ids(rows: DataFrame, plan: BuildPlan, lease: BuildLease) -> Written:
    """Count the rows that need an id, claim as many, then write. The rows are merged once, and kept meanwhile."""
    rows = rows.cache()  # In memory and on disk.
    try:
        counts, asked = count_ids(rows, plan).split(asked_ordinals(plan, lease))
        if lease.server is not None and (counts.needed or asked.needed):
            wait_until_served(lease.server, str(plan.table.name), lease.parent)
        ids = lease.claim_ids(counts.total_needed)
        reports = _write(rows, plan, id_ranges(counts, ids), ask_owner(plan, lease, asked.needed))
    finally:
        rows.unpersist()
    try:
        check_ids(reports, counts, lease.claims)
    except CorruptData:
        discard(plan.table, reports)
        raise
    return Written(reports, ids, asked.total_needed)


def has_folds(plan: BuildPlan) -> bool:
    """Whether the writer gets lists of inputs, which may be long."""
    return any(is_folded_in_arrow(rule) for rule in plan.rules.columns)


def _write(
    records: DataFrame, plan: BuildPlan, ids: Mapping[int, IdRange] | None = None, ask: AskOwner | None = None
) -> list[BucketReport]:
    """Run the job: one action, whose result is one report a bucket."""
    retained = plan.schema.options.tombstone_time_retained_ms
    spec = WriteSpec(
        schema=plan.schema,
        storage=plan.table.storage,
        folders={ordinal: (partition.folder, bucket) for ordinal, (partition, bucket) in plan.buckets.items()},
        task_count=plan.task_count,
        merged=plan.one_row_a_key,
        keeps_tombstones=plan.rules.keeps_tombstones,
        forget_before_ms=None if retained is None else plan.now_ms - retained,
        folds=arrow_folds(plan.rules.columns, [column.name for column in plan.schema.value_columns]),
        files=plan.schema.options.files,
        ids=ids,
        ask=ask,
    )
    with translated(f"building {plan.table.name}"):
        rows = map_batches(records, spec, REPORT_DDL).collect()
    reports = [BucketReport.decode(row[0]) for row in rows]
    ordinals = [report.ordinal for report in reports]
    if len(set(ordinals)) != len(ordinals):
        raise CorruptData(f"two tasks reported the same bucket: {sorted(ordinals)}")
    return sorted(reports, key=lambda report: report.ordinal)


@contextmanager
def batches_by_rows(spark: SparkSession, *, large: bool) -> Iterator[None]:
    """Arrow batches cut by rows alone, unless the session has a byte limit of its own choice or rows are `large`.

    Spark measures a batch after every row to keep to its byte limit, which costs more than all else on the way to
    Python: half of a build's CPU time in the JVM (docs/decisions/0010-arrow-batches-by-rows.md).
    """
    before = {name: spark.conf.get(name) or "" for name in (ARROW_BATCH_BYTES, ARROW_BATCH_ROWS)}
    if large or before[ARROW_BATCH_BYTES] != DEFAULT_BATCH_BYTES:
        yield
        return
    rows = int(before[ARROW_BATCH_ROWS])
    spark.conf.set(ARROW_BATCH_BYTES, str(2**31 - 1))
    spark.conf.set(ARROW_BATCH_ROWS, str(min(rows, ROWS_A_BATCH) if rows > 0 else ROWS_A_BATCH))
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
