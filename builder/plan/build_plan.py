"""What a build will do, decided on the driver before the first row moves.

A task writes one or several buckets. A bucket's *ordinal* is its number through all partitions that the build writes:

    ordinal     0      1      2      3      4          numbered through partitions, buckets in order
    partition   dt=1   dt=1   dt=2   dt=2   dt=2
    bucket      0      1      0      1      2          bucket counts may differ between partitions
    task        ordinal modulo number of tasks

Without partitions there is one task a bucket: bucket i has ordinal i and is of task i.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stelae.builder.plan.options import Mode
from stelae.builder.spark_sql.added_columns import ORDINAL_COLUMN, TASK_COLUMN
from stelae.schema.merge_rules import MergeRules, merge_rules
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import BucketFiles, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.paths import PartitionValue

MAX_PARTITIONS = 100_000
"""Partitions that one build may touch; each is a few values on the driver."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition that the build writes in full."""

    values: tuple[PartitionValue, ...]
    """The partition's values as JSON, as the manifest holds them; () for a table without partitions."""
    folder: str
    """Its folder below the table; "" for a table without partitions."""
    bucket_count: int
    base: PartitionFiles | None
    """Its files in the parent snapshot, merged into the new ones; None: it starts empty."""
    first_ordinal: int
    """Of its bucket 0."""


@dataclass(frozen=True)
class BuildPlan:
    """Everything that the phases of a build agree on."""

    table: Table
    schema: TableSchema
    parent: Snapshot | None
    mode: Mode
    partitions: tuple[PartitionPlan, ...]
    targets: frozenset[str] | None = None
    """The columns that the records set; the others of a row stay as they are. None: all."""
    kept: tuple[PartitionFiles, ...] = ()
    """Partitions of the parent that no input row falls into: their files go into the new snapshot as they are."""
    log_until: int = 0
    """Records of the log below this offset are in the new snapshot."""
    log_rows: int = 0
    """Rows of the log that are merged like stored rows."""
    replaced_rows: int = 0
    """Hidden rows of the parent whose place they take."""
    superseded_rows: int = 0
    """Rows in files of the parent that newer files have another row for."""
    task_limit: int = 200
    build_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @cached_property
    def bucket_count(self) -> int:
        return sum(partition.bucket_count for partition in self.partitions)

    @cached_property
    def task_count(self) -> int:
        """Writer tasks: one a bucket, but no crowd of tiny tasks where a table has many partitions."""
        if not self.schema.partition_keys:
            return self.bucket_count
        return max(1, min(self.bucket_count, self.task_limit))

    @property
    def one_bucket_a_task(self) -> bool:
        return self.task_count == self.bucket_count

    @cached_property
    def buckets(self) -> Mapping[int, tuple[PartitionPlan, int]]:
        """Partition and bucket of every ordinal."""
        return {
            partition.first_ordinal + bucket: (partition, bucket)
            for partition in self.partitions
            for bucket in range(partition.bucket_count)
        }

    @property
    def task_columns(self) -> tuple[str, ...]:
        """Columns that tell the task and the bucket ordinal of a record."""
        return (ORDINAL_COLUMN,) if self.one_bucket_a_task else (TASK_COLUMN, ORDINAL_COLUMN)

    @property
    def one_row_a_key(self) -> bool:
        """Whether records are merged before they come to the writer; otherwise it takes the last of each key."""
        return self.rules.aggregates or self.targets is not None or self.mints

    @property
    def mints(self) -> bool:
        """Whether the table gives its keys ids."""
        return self.schema.auto_increment is not None

    @property
    def has_keys_alone(self) -> bool:
        """Whether rows have nothing but their key and its id, and which record of a key wins makes no difference."""
        alone = self.schema.value_columns == (self.schema.auto_increment,)
        return alone and not self.rules.sequence and not self.base_hidden_rows

    @cached_property
    def rules(self) -> MergeRules:
        return merge_rules(self.schema)

    @property
    def base_rows(self) -> int:
        """Rows that changes are merged into: of the parent, hidden ones included, and of the log."""
        stored = sum(f.rows for p in self.partitions if p.base for b in p.base.buckets for f in b.files)
        return stored - self.superseded_rows - self.replaced_rows + self.log_rows

    @property
    def base_hidden_rows(self) -> int:
        """Stored rows that are hidden."""
        return sum(f.hidden_rows for p in self.partitions if p.base for b in p.base.buckets for f in b.files)

    @property
    def next_id(self) -> int:
        return (self.parent.id if self.parent else 0) + 1


def choose_bucket_count(schema: TableSchema, rows: int, current: int | None) -> int:
    """Buckets of a partition that will hold about `rows` rows and has `current` buckets now.

    A fixed `bucket` decides alone. Otherwise one bucket for every `dynamic-bucket.target-row-num` rows; an existing
    count stays until buckets hold twice the target, so that a table that hovers around a multiple does not flap.
    """
    options = schema.options
    if options.bucket is not None:
        return options.bucket
    target = options.dynamic_bucket_target_row_num
    wanted = max(1, -(-rows // target))
    if options.dynamic_bucket_max_buckets is not None:
        wanted = min(wanted, options.dynamic_bucket_max_buckets)
    if current is not None and rows <= 2 * target * current:
        return current
    return wanted


def plan_partitions(
    schema: TableSchema,
    counts: Sequence[tuple[tuple[PartitionValue, ...], str, int]],
    parent: Snapshot | None,
) -> tuple[tuple[PartitionPlan, ...], tuple[PartitionFiles, ...]]:
    """Plans for the partitions of the input, and the parent's partitions that stay as they are.

    `counts` holds values, folder and input rows of each partition, sorted by folder; `parent` is None in overwrite
    mode.
    """
    stored = dict(parent.by_values) if parent else {}
    plans = []
    first_ordinal = 0
    for values, folder, rows in counts:
        base = stored.pop(values, None)
        base_rows = sum(f.rows for b in base.buckets for f in b.files) if base else 0
        count = choose_bucket_count(schema, rows + base_rows, base.bucket_count if base else None)
        plans.append(PartitionPlan(values, folder, count, base, first_ordinal))
        first_ordinal += count
    return tuple(plans), tuple(stored.values())


def files_of(bucket: BucketFiles) -> list[str]:
    """Paths of a bucket's files below the table folder, oldest sorted run first."""
    return [file.path for file in bucket.files]
