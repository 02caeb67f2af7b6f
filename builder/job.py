"""A build: change records in, a committed snapshot out.

    plan → base → merge → sort → write → validate → commit

`run_build` is that line. Who may write, which snapshot is the parent and how far the log is covered is one object, the
lease (`builder/lease/lease.py`), made at the start and handed down. Rows that were written online come into the base by
`builder/base/log_rows.py`; tables that give their keys ids have them counted and claimed before the write
(`builder/write/write_job.py`).

Files are verified where they are written (`builder/write/bucket_writer.py`); the commit looks once more whether they
are there, and of their size. The driver sees counts and names of files, never rows. Nothing that readers can see
changes before the last step, and the last step is one put-if-absent: a build that is killed anywhere leaves the old
snapshot being served and some files that nobody names, which `stelae clean` removes.
"""

from __future__ import annotations

import logging
import pickle
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

from stelae.builder.base.log_rows import LoggedRows, rows_of_log
from stelae.builder.base.rows import base_rows, former_rows
from stelae.builder.base.snapshot_rows import stored_rows, superseded_rows
from stelae.builder.input.change_records import change_records
from stelae.builder.input.match_columns import target_columns as checked_targets
from stelae.builder.lease.lease import BuildLease, acquire_lease
from stelae.builder.merge.merge import all_records, merge
from stelae.builder.plan.build_plan import BuildPlan, PartitionPlan, choose_bucket_count, plan_partitions
from stelae.builder.plan.options import BuildKeywords, BuildOptions, Mode
from stelae.builder.plan.partitions import count_partitions, with_folders
from stelae.builder.report import BuildReport, Listener, Phases, summary_line
from stelae.builder.spark_sql.added_columns import HIDDEN_COLUMN
from stelae.builder.spark_sql.spark_errors import translated
from stelae.builder.write.commit import assemble, check_count_change, commit, discard, versions
from stelae.builder.write.id_assignment import with_former_ids
from stelae.builder.write.write_job import write_rows
from stelae.declared_options import shows_options
from stelae.errors import Conflict, InvalidRequest
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("stelae.builder")

DEFAULT_OPTIONS = BuildOptions()


@shows_options(BuildOptions)
def build(
    spark: SparkSession, warehouse: Warehouse, table: str, frame: DataFrame, **options: Unpack[BuildKeywords]
) -> Snapshot:
    """Merge the rows of `frame` into `table` and commit a snapshot, which is returned.

    `row_kind` names a column with +I, -U, +U, -D; without one every row is an insert. `mode="overwrite"` starts from
    an empty table. Columns are matched by name; `target_columns` are those that the records set, with those of the
    key, while the others of a row stay as they are: a partial update (docs/merging.md). With `allow_missing_columns`,
    nullable ones that the input lacks are null in its records. An input without rows is refused unless `allow_empty`
    says that it may happen, and a row count outside of `snapshot.max-count-change` unless `allow_count_change` does.
    Raises InvalidRequest for input that the table can't take and Conflict when another build committed meanwhile; in
    either case the table is as it was. The log `stelae.builder` gets a summary.
    """
    return run_build(spark, warehouse, table, frame, **options).snapshot


@shows_options(BuildOptions)
def run_build(
    spark: SparkSession,
    warehouse: Warehouse,
    table: str,
    frame: DataFrame,
    options: BuildOptions = DEFAULT_OPTIONS,
    *,
    has_arrival: bool = False,
    listener: Listener | None = None,
    **keywords: Unpack[BuildKeywords],
) -> BuildReport:
    """`build`, with a report of what it did and a listener for its progress.

    `options` may come as one object, as keywords, or both: then the keywords count. `has_arrival`: the frame comes
    from `read_files`, which puts the order of arrival into columns of its own.
    """
    options = replace(options, **keywords)
    check_arguments(warehouse, frame)
    if frame.isStreaming:
        raise InvalidRequest(
            "the input is a stream, which has no end", hint="build its batches one by one: writeStream.foreachBatch"
        )
    spark = frame.sparkSession  # Inside of foreachBatch it is a session of its own, which does not see another's views.
    target = warehouse.table(table)
    check_travels(target)
    phases = Phases(spark, listener)
    mode = options.mode
    with ExitStack() as stack:
        with phases.run("plan"):
            schema = target.schema
            targets = checked_targets(schema, options.target_columns)
            changes = change_records(
                frame, schema, options.row_kind, targets=targets, allow_missing_columns=options.allow_missing_columns,
                ignore_extra_columns=options.ignore_extra_columns, has_arrival=has_arrival,
            )  # fmt: skip
            lease = stack.enter_context(acquire_lease(target, uuid4().hex))
            of_log = rows_of_log(spark, lease) if mode == "merge" or schema.auto_increment else nullcontext()
            logged = stack.enter_context(of_log)
            plan = make_plan(lease, changes.frame, mode, targets, logged)
        with phases.run("write"):
            base = base_rows(spark, plan, logged)
            rows = merge(all_records(base, changes, plan), plan)
            if plan.mints and mode == "overwrite":
                rows = with_former_ids(rows, former_rows(spark, plan, logged), plan)
            written = write_rows(rows, plan, lease)
        reports = written.reports
        rows_in = sum(report.rows_in for report in reports) - plan.base_rows
        # Records that ignore-delete drops are input all the same.
        if rows_in == 0 and not options.allow_empty and frame.isEmpty():
            discard(target, reports)
            raise InvalidRequest(
                "the input has no rows; nothing was changed", hint="where that is expected, allow it: --allow-empty"
            )
        if rows_in == 0 and mode == "merge" and plan.parent is not None and not plan.log_rows:
            discard(target, reports)
            return BuildReport(plan.parent, str(target.name), mode, 0, 0, 0, committed=False, seconds=phases.seconds)
        with phases.run("validate"):
            snapshot = assemble(plan, reports, versions(spark))
            if not options.allow_count_change:
                check_count_change(plan, snapshot)
        with phases.run("commit"):
            snapshot = commit(snapshot, lease, reports)
    report = BuildReport(
        snapshot=snapshot,
        table=str(target.name),
        mode=mode,
        rows_in=rows_in,
        base_rows=plan.base_rows,
        rows_merged=rows_in + plan.base_rows - sum(r.rows for r in reports),
        ids=written.ids,
        ids_asked=written.ids_asked,
        seconds=phases.seconds,
    )
    logger.info("%s", summary_line(report))
    return report


def read(spark: SparkSession, warehouse: Warehouse, table: str, snapshot: int | None = None) -> DataFrame:
    """The merged rows of a snapshot (default: the newest) with the table's columns. Tombstones are not rows."""
    target = warehouse.table(table)
    check_travels(target)
    content = target.snapshots.read(snapshot)
    target = target.at_least(content.schema_id)
    rows = stored_rows(spark, target, target.schema, content.partitions)
    return rows.where(f"NOT {HIDDEN_COLUMN}").drop(HIDDEN_COLUMN)


def check_arguments(warehouse: object, frame: object) -> None:
    """What is easily mistaken: a path is no warehouse, and a frame of pandas none of Spark."""
    if not isinstance(warehouse, Warehouse):
        raise InvalidRequest(
            f"{warehouse!r} is no warehouse", place="warehouse", hint=f"stelae.Warehouse({warehouse!r})"
        )
    if not hasattr(type(frame), "isStreaming"):  # Of a frame itself, Spark would be asked.
        kind = f"{type(frame).__module__.split('.')[0]}.{type(frame).__name__}"
        raise InvalidRequest(f"{kind} is no frame of Spark", place="frame", hint="spark.createDataFrame(frame)")


def check_travels(table: Table) -> None:
    """Executors can open the table's storage. InvalidRequest where they can't: memory."""
    pickle.dumps(table.storage)


# Plan


def make_plan(
    lease: BuildLease,
    changes: DataFrame,
    mode: Mode,
    targets: frozenset[str] | None = None,
    logged: LoggedRows | None = None,
) -> BuildPlan:
    """Decide partitions, buckets and tasks. Counts the input where the plan depends on it, and only there."""
    table, schema, parent = lease.table, lease.table.schema, lease.parent
    if parent is not None and parent.schema_id > schema.id:
        raise Conflict(
            f"the table was altered meanwhile: its newest snapshot has schema {parent.schema_id}, not {schema.id}",
            place=str(table.name),
            hint="build again",
        )
    merged_parent = parent if mode == "merge" else None
    log_counts = logged.counts if logged is not None and mode == "merge" else {}
    if schema.partition_keys:
        counts = dict(count_partitions(schema, changes))
        for values, rows in log_counts.items():
            counts[values] = counts.get(values, 0) + rows
        partitions, kept = plan_partitions(schema, with_folders(schema, counts), merged_parent)
    else:
        partitions, kept = (plan_whole(schema, changes, merged_parent, sum(log_counts.values())),), ()
    limit = int(changes.sparkSession.conf.get("spark.sql.shuffle.partitions") or "200")
    return BuildPlan(
        table, schema, parent, mode, partitions, targets, kept, log_until=lease.log.until,
        log_rows=sum(log_counts.values()), replaced_rows=logged.replaced if logged is not None and log_counts else 0,
        superseded_rows=superseded_rows(changes.sparkSession, table, schema, [p.base for p in partitions if p.base]),
        task_limit=4 * limit, build_id=lease.build_id,
    )  # fmt: skip


def plan_whole(schema: TableSchema, changes: DataFrame, parent: Snapshot | None, log_rows: int) -> PartitionPlan:
    """The plan of a table without partitions."""
    base = parent.partitions[0] if parent else None
    rows = 0
    if schema.options.bucket is None:
        with translated("counting the input"):
            rows = changes.count() + (parent.totals.rows if parent else 0) + log_rows
    count = choose_bucket_count(schema, rows, base.bucket_count if base else None)
    return PartitionPlan((), "", count, base, first_ordinal=0)
