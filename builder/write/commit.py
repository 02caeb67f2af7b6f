"""The end of a build: its reports become a manifest, which is checked and committed, or its files are removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from stelae.builder.lease.lease import BuildLease
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.write.bucket_report import BucketReport
from stelae.errors import Conflict, InvalidRequest
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stelae.builder")


def assemble(plan: BuildPlan, reports: Sequence[BucketReport], engine_versions: Mapping[str, str]) -> Snapshot:
    """The manifest: every bucket of every partition, the empty ones too, and the partitions that were not touched."""
    by_ordinal = {report.ordinal: report for report in reports}
    written = []
    for partition in plan.partitions:
        buckets = tuple(
            BucketFiles(bucket, _files(by_ordinal.get(partition.first_ordinal + bucket)), plan.log_until)
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


def commit(snapshot: Snapshot, lease: BuildLease, reports: Sequence[BucketReport]) -> Snapshot:
    """Commit, or leave nothing behind where somebody else was first. Returns the snapshot as it is stored."""
    try:
        return lease.commit(snapshot)
    except Conflict:
        discard(lease.table, reports)
        raise


def discard(table: Table, reports: Sequence[BucketReport]) -> None:
    """Remove files of a build that will not be committed; what can't be removed is left to `stelae clean`."""
    for report in reports:
        if report.path is not None:
            try:
                table.storage.delete(report.path)
            except Exception:
                logger.warning("could not remove %s", report.path)


def versions(spark: SparkSession) -> dict[str, str]:
    """What made the files, for whoever has to find out later."""
    return {"stelae": __version__, "spark": spark.version, **{name: version(name) for name in ("pyarrow", "rocksdict")}}
