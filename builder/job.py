"""A build: change records in, a committed snapshot out.

    plan → base → merge → sort → write → validate → commit

`run_build` is that line. What it stands on, parent and owner of the table, is in `builder/base/parent.py`; rows that
were written online come into the base by `builder/base/log_rows.py`; tables that give their keys ids have them counted
and claimed before the write (`builder/write/id_assignment.py`).

Files are verified where they are written (`builder/write/bucket_writer.py`) and once more by the commit. The driver
sees counts and names of files, never rows. Nothing that readers can see changes before the last step, and the last step
is one put-if-absent: a build that is killed anywhere leaves the old snapshot being served and some files that nobody
names, which `stelae clean` removes.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

from stelae.builder.base.log_rows import LoggedRows, rows_of_log
from stelae.builder.base.owner_client import AskOwner, wait_until_served
from stelae.builder.base.parent import Ground, standing_on
from stelae.builder.base.snapshot_rows import count_overlaid, schema_order, stored_rows
from stelae.builder.input.change_records import change_records, order_columns
from stelae.builder.input.change_records import target_columns as checked_targets
from stelae.builder.local.progress import watch_job
from stelae.builder.merge.aggregate import exploded, merged, patched, without_entries
from stelae.builder.merge.functions import arrow_folds, is_folded_in_arrow
from stelae.builder.merge.last_record import winners
from stelae.builder.plan.build_plan import BuildPlan, PartitionPlan, choose_bucket_count, plan_partitions
from stelae.builder.plan.columns import (
    ACTION_COLUMN,
    HIDDEN_COLUMN,
    ID_COLUMN_PREFIX,
    INSERT,
    ORDER_COLUMN,
    ORDINAL_COLUMN,
)
from stelae.builder.plan.errors import translated
from stelae.builder.plan.options import BuildKeywords, BuildOptions, Mode
from stelae.builder.plan.partitions import count_partitions, with_folders
from stelae.builder.plan.placement import by_key, by_slot, placed
from stelae.builder.write.bucket_writer import REPORT_DDL, BucketReport, IdRanges, WriteSpec
from stelae.builder.write.id_assignment import (
    ask_owner,
    asked_slots,
    check_ids,
    claim_ids,
    count_ids,
    id_ranges,
    table_claims,
    with_former_ids,
)
from stelae.declared_options import shows_options
from stelae.errors import Conflict, CorruptData, InvalidRequest
from stelae.log.id_claims import IdRange
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, state_columns, stored_columns
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("stelae.builder")

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
DEFAULT_BATCH_BYTES = "67108864b"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_A_BATCH = 8192
"""Rows of 250 KB on average fill the 2 GiB that an Arrow column of such a batch can hold."""

DEFAULT_OPTIONS = BuildOptions()

Listener = Callable[["Progress"], None]
"""Told of each phase as it starts, and now and then while it runs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a build is."""

    phase: str
    tasks_done: int = 0
    tasks: int = 0
    """Spark tasks of the phase; 0 where there are none or the session does not tell."""


@dataclass
class BuildReport:
    """What a build did. `snapshot` is committed."""

    snapshot: Snapshot
    table: str
    mode: Mode
    rows_in: int
    """Change records that came in, after `ignore-delete` and its like."""
    base_rows: int
    """Stored rows of the parent that were merged, tombstones included."""
    rows_merged: int
    """Records that a later record of the same key, or a delete, took the place of."""
    ids: IdRange | None = None
    """Ids that new keys of a dictionary table got, all of them; None where none was minted."""
    ids_asked: int = 0
    """Keys that were new to the build, and whose ids the server gave that owns the table."""
    committed: bool = True
    """False when an empty input, allowed as such, left the snapshot as it was."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Per phase, in order."""

    @property
    def ids_minted(self) -> int:
        return self.ids.count if self.ids is not None else 0

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


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
    target = warehouse.table(table)
    check_travels(target)
    phases = _Phases(spark, listener)
    mode = options.mode
    with ExitStack() as stack:
        with phases.run("plan"):
            schema = target.schema
            targets = checked_targets(schema, options.target_columns)
            changes = change_records(
                frame, schema, options.row_kind, targets=targets, allow_missing_columns=options.allow_missing_columns,
                ignore_extra_columns=options.ignore_extra_columns, has_arrival=has_arrival,
            )  # fmt: skip
            build_id = uuid4().hex
            ground = stack.enter_context(standing_on(target, f"build-{build_id}"))
            of_log = rows_of_log(spark, target, ground) if mode == "merge" or schema.auto_increment else nullcontext()
            logged = stack.enter_context(of_log)
            plan = make_plan(
                target, schema, changes.frame, mode, targets, ground=ground, logged=logged, build_id=build_id
            )
        with phases.run("write"):
            base = base_rows(spark, plan, logged)
            records = merge_input(base, changes.frame, plan)
            rows = merge(records, plan, retracts=changes.retracts)
            if plan.mints and mode == "overwrite":
                rows = with_former_ids(rows, former_rows(spark, plan, logged), plan)
            written = write_with_ids(rows, plan, ground) if plan.mints else Written(write(rows, plan))
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
            snapshot = commit(snapshot, plan, ground, reports)
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
    log.info("%s", summary_line(report))
    return report


def read(spark: SparkSession, warehouse: Warehouse, table: str, snapshot: int | None = None) -> DataFrame:
    """The merged rows of a snapshot (default: the newest) with the table's columns. Tombstones are not rows."""
    target = warehouse.table(table)
    check_travels(target)
    content = target.snapshots.read(snapshot)
    target = target.at_least(content.schema_id)
    rows = stored_rows(spark, target, target.schema, content.partitions)
    return rows.where(~rows[HIDDEN_COLUMN]).drop(HIDDEN_COLUMN)


def check_arguments(warehouse: object, frame: object) -> None:
    """What is easily mistaken: a path is no warehouse, and a frame of pandas none of Spark."""
    if not isinstance(warehouse, Warehouse):
        raise InvalidRequest(
            f"{warehouse!r} is no warehouse", place="warehouse", hint=f"stelae.Warehouse({warehouse!r})"
        )
    if not hasattr(frame, "isStreaming"):
        kind = f"{type(frame).__module__.split('.')[0]}.{type(frame).__name__}"
        raise InvalidRequest(f"{kind} is no frame of Spark", place="frame", hint="spark.createDataFrame(frame)")


def check_travels(table: Table) -> None:
    """Executors can open the table's storage. InvalidRequest where they can't: memory."""
    pickle.dumps(table.storage)


# Plan


def make_plan(
    table: Table,
    schema: TableSchema,
    changes: DataFrame,
    mode: Mode,
    targets: frozenset[str] | None = None,
    *,
    ground: Ground,
    logged: LoggedRows | None = None,
    build_id: str,
) -> BuildPlan:
    """Decide partitions, buckets and tasks. Counts the input where the plan depends on it, and only there."""
    parent = ground.parent
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
        table, schema, parent, mode, partitions, targets, kept, log_until=ground.log_until,
        log_rows=sum(log_counts.values()), replaced_rows=logged.replaced if logged is not None and log_counts else 0,
        overlaid_rows=count_overlaid(changes.sparkSession, table, schema, [p.base for p in partitions if p.base]),
        task_limit=4 * limit, build_id=build_id,
    )  # fmt: skip


def plan_whole(schema: TableSchema, changes: DataFrame, parent: Snapshot | None, log_rows: int) -> PartitionPlan:
    """The plan of a table without partitions."""
    base = parent.partitions[0] if parent else None
    rows = 0
    if schema.options.bucket is None:
        with translated("counting the input"):
            rows = changes.count() + (parent.totals.rows if parent else 0) + log_rows
    count = choose_bucket_count(schema, rows, base.bucket_count if base else None)
    return PartitionPlan((), "", count, base, first_slot=0)


# Base, merge, sort


def base_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> DataFrame | None:
    """Rows that the changes are merged into, stored ones and those of the log; None when there are none."""
    partitions = [partition.base for partition in plan.partitions if partition.base]
    stored = None
    if any(bucket.files for partition in partitions for bucket in partition.buckets):
        stored = stored_rows(spark, plan.table, plan.schema, partitions, with_state=True)
    if logged is None or not plan.log_rows:
        return stored
    if stored is None:
        return logged.rows
    return (logged.without_replaced(stored) if plan.replaced_rows else stored).unionByName(logged.rows)


def former_rows(spark: SparkSession, plan: BuildPlan, logged: LoggedRows | None) -> DataFrame | None:
    """Rows that were visible before, in the partitions that an overwrite writes; None when there are none."""
    stored = plan.parent.by_values if plan.parent is not None else {}
    partitions = [stored[partition.values] for partition in plan.partitions if partition.values in stored]
    frames = [stored_rows(spark, plan.table, plan.schema, partitions, with_state=True)] if partitions else []
    frames += [logged.rows] if logged is not None else []
    if not frames:
        return None
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    return rows.where(~rows[HIDDEN_COLUMN])


def merge_input(base: DataFrame | None, changes: DataFrame, plan: BuildPlan) -> DataFrame:
    """Base rows and changes as one frame of records with one order: stored rows come before all that arrives."""
    from pyspark.sql import functions as f

    order = order_columns(changes)
    if base is not None and plan.schema.auto_increment is not None:
        # The id of a row that was removed is nobody's.
        name = plan.schema.auto_increment.name
        base = base.withColumn(name, f.when(~f.col(HIDDEN_COLUMN), f.col(t.quote_name(name))))
    for column in state_columns(plan.schema):
        null = f.lit(None).cast(column.type.spark())
        since = column.name == HIDDEN_SINCE and not plan.rules.aggregates
        changes = changes.withColumn(column.name, f.when(f.col(HIDDEN_COLUMN), f.lit(plan.now_ms)) if since else null)
    columns = [
        *schema_order(plan.schema),
        *(c.name for c in state_columns(plan.schema)),
        ACTION_COLUMN,
        HIDDEN_COLUMN,
        *order,
    ]
    ids = [name for name in changes.columns if name.startswith(ID_COLUMN_PREFIX)]
    if base is None:
        return changes.select(*columns, *ids)
    if HIDDEN_SINCE in base.columns:
        # Rows of before the option was set become hidden now.
        known = f.coalesce(f.col(HIDDEN_SINCE), f.lit(plan.now_ms))
        base = base.withColumn(HIDDEN_SINCE, f.when(f.col(HIDDEN_COLUMN), known))
    for name in order:
        base = base.withColumn(name, f.lit(-1).cast("bigint" if name != order[0] or name == ORDER_COLUMN else "int"))
    base = exploded(
        base.withColumn(ACTION_COLUMN, f.lit(INSERT).cast("tinyint")).select(*columns, *_nulls(ids)), plan.schema
    )
    changes = without_entries(changes.select(*columns, *ids), base)
    return base.unionByName(changes)


def _nulls(names: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.lit(None).cast("bigint").alias(name) for name in names]


def merge(records: DataFrame, plan: BuildPlan, *, retracts: bool) -> DataFrame:
    """Records as the writer takes them: each on the task of its slot, sorted by slot and key.

    The frame has the writer's columns: slot, key columns, stored columns, hidden; those of the table go by number, as
    `mapInArrow` takes a dot or a back quote in a name for syntax. Engines that compute rows give one row a key; of the
    others all records stay, in merge order, and the writer takes the last of each key.
    """
    from pyspark.sql import functions as f

    if plan.rules.aggregates or (plan.has_keys_alone and not retracts):
        return by_key(merged(records, plan, partial(placed, plan=plan), retracts=retracts), plan)
    if plan.targets is not None:
        return by_key(patched(placed(records, plan), plan), plan)
    keys = [f.col(t.quote_name(column.name)) for column in plan.schema.key_columns]
    columns = [*keys, *(f.col(t.quote_name(column.name)) for column in stored_columns(plan.schema))]
    numbered = [column.alias(f"_{position}") for position, column in enumerate(columns)]
    ordered = placed(records, plan).sortWithinPartitions(*by_slot(plan), *keys, *_winner_last(records, plan))
    rows = ordered.select(ORDINAL_COLUMN, *numbered, HIDDEN_COLUMN)
    return winners(rows, plan) if plan.mints else rows


def _winner_last(records: DataFrame, plan: BuildPlan) -> list[Column]:
    """The order in which the record that wins is the last of its key: the greatest sequence (the least, under
    descending order), nulls lose; arrival decides between equals.
    """
    from pyspark.sql import functions as f

    rules = plan.rules
    arrival = [f.col(name) for name in order_columns(records)]
    if rules.engine == "first-row":
        return [column.desc() for column in arrival]
    columns = [f.col(t.quote_name(column.name)) for column in rules.sequence]
    if rules.engine == "versioned":
        least = [_least(column.type).cast(column.type.spark()) for column in rules.sequence]
        columns = [f.coalesce(column, value) for column, value in zip(columns, least, strict=True)]
    order = [c.desc_nulls_first() if rules.descending else c.asc_nulls_first() for c in columns]
    if rules.retracts_first:
        order.append(f.col(HIDDEN_COLUMN).desc())
    return [*order, *arrival]


def _least(data_type: t.DataType) -> Column:
    """The least value of a version column's type: a null version is as good."""
    from pyspark.sql import functions as f

    match data_type:
        case t.Int():
            return f.lit(-(2**31))
        case t.BigInt():
            return f.lit(-(2**63))
    return f.timestamp_micros(f.lit(-(2**63)))


# Write


@dataclass(frozen=True)
class Written:
    """The files of a build."""

    reports: list[BucketReport]
    ids: IdRange | None = None
    """Claimed for new keys."""
    ids_asked: int = 0
    """New keys whose ids the owner of the table gave."""


def write_with_ids(rows: DataFrame, plan: BuildPlan, ground: Ground) -> Written:
    """Count the rows that need an id, claim as many, then write. The rows are merged once, and kept meanwhile."""
    from pyspark import StorageLevel

    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with batches_by_rows(rows.sparkSession, large=has_folds(plan)):
            counts, asked = count_ids(rows, plan).split(asked_slots(plan, ground))
        if ground.server is not None and (counts.needed or asked.needed):
            wait_until_served(ground.server, str(plan.table.name), plan.parent)
        ids = claim_ids(counts, plan, ground.epoch)
        reports = write(rows, plan, id_ranges(counts, ids), ask_owner(plan, ground, asked.needed))
    finally:
        rows.unpersist()
    try:
        check_ids(reports, counts, table_claims(plan))
    except CorruptData:
        discard(plan.table, reports)
        raise
    return Written(reports, ids, asked.total_needed)


def has_folds(plan: BuildPlan) -> bool:
    """Whether the writer gets lists of inputs, which may be long."""
    return any(is_folded_in_arrow(rule) for rule in plan.rules.columns)


def write(
    records: DataFrame, plan: BuildPlan, ids: IdRanges | None = None, ask: AskOwner | None = None
) -> list[BucketReport]:
    """Run the job: one action, whose result is one report a bucket."""
    retained = plan.schema.options.tombstone_time_retained_ms
    spec = WriteSpec(
        schema=plan.schema,
        storage=plan.table.storage,
        folders={slot: (partition.folder, bucket) for slot, (partition, bucket) in plan.slots.items()},
        task_count=plan.task_count,
        merged=plan.one_row_a_key,
        keeps_tombstones=plan.rules.keeps_tombstones,
        forget_before_ms=None if retained is None else plan.now_ms - retained,
        folds=arrow_folds(plan.rules.columns, [column.name for column in plan.schema.value_columns]),
        files=plan.schema.options.files,
        ids=ids,
        ask=ask,
    )
    with batches_by_rows(records.sparkSession, large=bool(spec.folds)), translated(f"building {plan.table.name}"):
        rows = records.mapInArrow(spec, REPORT_DDL).collect()
    reports = [BucketReport.decode(row[0]) for row in rows]
    slots = [report.slot for report in reports]
    if len(set(slots)) != len(slots):
        raise CorruptData(f"two tasks reported the same bucket: slots {sorted(slots)}")
    return sorted(reports, key=lambda report: report.slot)


@contextmanager
def batches_by_rows(spark: SparkSession, *, large: bool) -> Iterator[None]:
    """Arrow batches cut by rows alone, unless the session has a byte limit of its own choice or rows are `large`.

    Spark measures a batch after every row to keep to its byte limit, which costs more than all else on the way to
    Python: half of a build's CPU time in the JVM (docs/decisions/0010-arrow-batches-by-rows.md).
    """
    before = {name: spark.conf.get(name) or "" for name in (BATCH_BYTES, BATCH_ROWS)}
    if large or before[BATCH_BYTES] != DEFAULT_BATCH_BYTES:
        yield
        return
    rows = int(before[BATCH_ROWS])
    spark.conf.set(BATCH_BYTES, str(2**31 - 1))
    spark.conf.set(BATCH_ROWS, str(min(rows, ROWS_A_BATCH) if rows > 0 else ROWS_A_BATCH))
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


# Validate, commit


def assemble(plan: BuildPlan, reports: Sequence[BucketReport], engine_versions: Mapping[str, str]) -> Snapshot:
    """The manifest: every bucket of every partition, the empty ones too, and the partitions that were not touched."""
    by_slot = {report.slot: report for report in reports}
    written = []
    for partition in plan.partitions:
        buckets = tuple(
            BucketFiles(bucket, _files(by_slot.get(partition.first_slot + bucket)), plan.log_until)
            for bucket in range(partition.bucket_count)
        )
        written.append(PartitionFiles(partition.values, partition.bucket_count, buckets, partition.folder))
    kept = [
        replace(p, buckets=tuple(replace(bucket, log_offset=plan.log_until) for bucket in p.buckets)) for p in plan.kept
    ]
    partitions = sorted([*written, *kept], key=lambda partition: partition.folder)
    return Snapshot(
        table=str(plan.table.name),
        id=plan.next_id,
        parent=plan.parent.id if plan.parent else None,
        schema_id=plan.schema.id,
        build_id=plan.build_id,
        kind=plan.mode,
        created_ms=time.time_ns() // 1_000_000,
        versions=engine_versions,
        partitions=tuple(partitions),
    )


def _files(report: BucketReport | None) -> tuple[DataFile, ...]:
    if report is None or report.path is None:
        return ()
    return (
        DataFile(
            path=report.path,
            bytes=report.bytes,
            checksum=report.checksum,
            rows=report.rows,
            hidden_rows=report.hidden_rows,
            first_key=bytes.fromhex(report.first_key),
            last_key=bytes.fromhex(report.last_key),
        ),
    )


def check_count_change(plan: BuildPlan, snapshot: Snapshot) -> None:
    """The gate before the manifest: a build that would surprise its readers fails here and keeps its files as evidence.

    Order and uniqueness of keys and the sampled lookups were checked where the files were written.
    """
    limit = plan.schema.options.snapshot_max_count_change
    if limit is None or plan.parent is None:
        return
    before, after = plan.parent.totals.visible_rows, snapshot.totals.visible_rows
    if abs(after - before) > limit * before:
        raise InvalidRequest(
            f"the row count would go from {before:,} to {after:,}; snapshot.max-count-change allows {limit:.1%}",
            place=str(plan.table.name),
            hint="check the input; where the change is right, allow it: --allow-count-change",
        )


def commit(snapshot: Snapshot, plan: BuildPlan, ground: Ground, reports: Sequence[BucketReport]) -> Snapshot:
    """Commit, or leave nothing behind where it is known that it failed. Returns the snapshot as it is stored."""
    ground.outcome_unknown = True
    try:
        stored = commit_behind_fences(snapshot, plan, ground)
    except Conflict:
        ground.outcome_unknown = False
        discard(plan.table, reports)
        raise
    except (CorruptData, InvalidRequest):
        ground.outcome_unknown = False
        raise
    ground.outcome_unknown = False
    return stored


def commit_behind_fences(snapshot: Snapshot, plan: BuildPlan, ground: Ground) -> Snapshot:
    """Commit; behind the copies of its parent that new owners of the table have put to stop others.

    They stop a build that owned the table as well. One that leaves it to its owner has minted nothing that another
    owner could mint.
    """
    snapshots = plan.table.snapshots
    while True:
        try:
            return snapshots.commit(snapshot)
        except Conflict:
            if ground.takeover is not None or snapshots.read(snapshot.id).kind != "fence":
                raise
            snapshot = replace(snapshot, id=snapshot.id + 1, parent=snapshot.id)


def discard(table: Table, reports: Sequence[BucketReport]) -> None:
    """Remove files of a build that will not be committed; what can't be removed is left to `stelae clean`."""
    for report in reports:
        if report.path is not None:
            try:
                table.storage.delete(report.path)
            except Exception:
                log.warning("could not remove %s", report.path)


def versions(spark: SparkSession) -> dict[str, str]:
    """What made the files, for whoever has to find out later."""
    return {"stelae": __version__, "spark": spark.version, **{name: version(name) for name in ("pyarrow", "rocksdict")}}


def summary_line(report: BuildReport) -> str:
    """The report on one line, for logs."""
    totals = report.snapshot.totals
    return (
        f"{report.table}: snapshot {report.snapshot.id}: {report.rows_in:,} rows in, {report.base_rows:,} base rows, "
        f"{totals.visible_rows:,} rows, {totals.files:,} files, {totals.bytes:,} bytes, {report.total_seconds:.1f} s"
        + (f", ids {report.ids}" if report.ids is not None else "")
    )


class _Phases:
    """Times the phases and tells the listener."""

    def __init__(self, spark: SparkSession, listener: Listener | None) -> None:
        self._spark = spark
        self._listener = listener
        self.seconds: dict[str, float] = {}

    @contextmanager
    def run(self, phase: str) -> Iterator[None]:
        started = time.monotonic()
        log.debug("phase %s", phase)
        if self._listener is None:
            yield
        else:
            listener = self._listener
            listener(Progress(phase))
            with watch_job(self._spark, lambda done, tasks: listener(Progress(phase, done, tasks))):
                yield
        self.seconds[phase] = time.monotonic() - started
