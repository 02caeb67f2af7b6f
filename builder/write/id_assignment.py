"""Ids of dictionary tables: which rows have one, how many are needed, and which row gets which.

    rows, one a key, sorted by bucket and key; with the id of the stored row that was visible, if there was one
      → computed once, and kept while the build runs
      → count_ids     per bucket: rows with an id, rows that need one                      numbers for the driver
      → claim_ids     one claim of exactly that many, cut into ranges by bucket            driver
        (of keys that a server owns: builder/lease/owner_client.py)
      → id_ranges     the writer numbers the rows of its buckets in key order              executors
      → check_ids     each id once, all of them claimed, none lost                         writer and driver

So ids are dense, and depend on keys and buckets alone: not on the order of the input, nor on how Spark cuts it. A task
that is tried again gives the same ids. None is used before its claim is durable; a build that dies after that wastes
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from stelae.builder.lease.lease import BuildLease
from stelae.builder.lease.owner_client import AskOwner
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.plan.placement import by_key, on_tasks, with_ordinals
from stelae.builder.spark_sql.added_columns import (
    FORGOTTEN_COLUMN,
    FORMER_ID_COLUMN,
    FORMER_KEY_COLUMN_PREFIX,
    FORMER_ORDINAL_COLUMN,
    HIDDEN_COLUMN,
    ORDINAL_COLUMN,
    RECORDS_COLUMN,
)
from stelae.builder.spark_sql.spark_errors import translated
from stelae.builder.spark_sql.sql_text import Query, all_of, col, fn, when
from stelae.builder.write.bucket_report import BucketReport
from stelae.errors import CorruptData
from stelae.ownership.id_claims import IdRange, TableClaims
from stelae.schema.merge_rules import stored_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class IdCounts:
    """Visible rows by bucket ordinal; buckets without any are left out."""

    kept: Mapping[int, int]
    """Rows that have an id."""
    needed: Mapping[int, int]
    """Rows that need one."""

    def split(self, ordinals: Collection[int]) -> tuple[IdCounts, IdCounts]:
        """What is needed in some buckets, as if it was there already, beside all that is kept; and what they need."""
        asked = {ordinal: count for ordinal, count in self.needed.items() if ordinal in ordinals}
        kept = {ordinal: self.kept.get(ordinal, 0) + asked.get(ordinal, 0) for ordinal in {*self.kept, *asked}}
        needed = {ordinal: count for ordinal, count in self.needed.items() if ordinal not in ordinals}
        return IdCounts(kept, needed), IdCounts({}, asked)

    @property
    def total_needed(self) -> int:
        return sum(self.needed.values())

    @property
    def total_kept(self) -> int:
        return sum(self.kept.values())


def count_ids(rows: DataFrame, plan: BuildPlan) -> IdCounts:
    """One action over the merged rows."""
    has_id = col(f"_{id_position(plan)}").is_not_null()
    counts = {"kept": fn.sum(has_id.cast("BIGINT")), "needed": fn.sum((~has_id).cast("BIGINT"))}
    counted = Query.of(rows).where(~col(HIDDEN_COLUMN)).aggregate([ORDINAL_COLUMN], counts).frame()
    with translated(f"building {plan.table.name}"):
        found = counted.collect()
    return IdCounts(
        kept={row[0]: row[1] for row in found if row[1]}, needed={row[0]: row[2] for row in found if row[2]}
    )


def with_former_ids(rows: DataFrame, former: Query | None, plan: BuildPlan) -> DataFrame:
    """Merged rows of an overwrite with the ids that their keys have in `former`, rows with the table's columns."""
    if former is None or plan.schema.auto_increment is None:
        return rows
    keys = [col(column.name) for column in plan.schema.key_columns]
    ids = with_ordinals(former, plan.schema, plan.partitions, FORMER_ORDINAL_COLUMN).select(
        {
            FORMER_ORDINAL_COLUMN: col(FORMER_ORDINAL_COLUMN),
            **{f"{FORMER_KEY_COLUMN_PREFIX}{index}": key for index, key in enumerate(keys)},
            FORMER_ID_COLUMN: col(plan.schema.auto_increment.name),
        }
    )
    same = [col(ORDINAL_COLUMN) == col(FORMER_ORDINAL_COLUMN)]
    same += [col(f"_{index}").equal_null_safe(col(f"{FORMER_KEY_COLUMN_PREFIX}{index}")) for index in range(len(keys))]
    numbered = [f"_{i}" for i in range(len(keys) + len(stored_columns(plan.schema)))]
    names = [ORDINAL_COLUMN, *numbered, HIDDEN_COLUMN, RECORDS_COLUMN, FORGOTTEN_COLUMN]
    columns = {name: col(name) for name in names}
    found = {**columns, f"_{id_position(plan)}": when(~col(HIDDEN_COLUMN), col(FORMER_ID_COLUMN))}
    joined = Query.of(rows).join(ids, all_of(same), "LEFT").select(found)
    return by_key(on_tasks(joined, plan), plan).select(columns).frame()


def id_position(plan: BuildPlan) -> int:
    """Of the auto-increment column among the numbered columns of merged rows."""
    if plan.schema.auto_increment is None:
        raise ValueError("the table gives no ids")
    return len(plan.schema.key_columns) + stored_columns(plan.schema).index(plan.schema.auto_increment)


def asked_ordinals(plan: BuildPlan, lease: BuildLease) -> frozenset[int]:
    """Ordinals of the buckets whose new keys get their ids from the server that owns the table: buckets of partitions
    that it may serve.
    """
    if lease.server is None or plan.parent is None:
        return frozenset()
    known = plan.parent.by_values
    return frozenset(ordinal for ordinal, (partition, _) in plan.buckets.items() if partition.values in known)


def ask_owner(plan: BuildPlan, lease: BuildLease, ordinals: Collection[int]) -> AskOwner | None:
    """What the writer asks for the ids of new keys in some buckets; None where there are none."""
    if lease.server is None or not ordinals:
        return None
    partitions = {ordinal: plan.buckets[ordinal][0].values for ordinal in ordinals}
    at_hidden = 1 + len(plan.schema.key_columns) + len(stored_columns(plan.schema))
    return AskOwner(plan.schema, str(plan.table.name), lease.server, partitions, 1 + id_position(plan), at_hidden)


def id_ranges(counts: IdCounts, ids: IdRange | None) -> dict[int, IdRange]:
    """The ids cut into one range a bucket, in order of the ordinals."""
    if ids is None:
        return {}
    ordinals = sorted(counts.needed)
    ends = list(accumulate(counts.needed[ordinal] for ordinal in ordinals))
    firsts = [ids.first, *(ids.first + end for end in ends[:-1])]
    return {
        ordinal: IdRange(first, first + counts.needed[ordinal] - 1)
        for ordinal, first in zip(ordinals, firsts, strict=True)
    }


def check_ids(reports: Sequence[BucketReport], counts: IdCounts, claims: TableClaims) -> None:
    """The gate for ids, on the driver: as many rows kept and got an id as were counted, and every id was claimed.

    That no two rows of a bucket have one id was checked where it was written.
    """
    kept, minted = sum(report.ids_kept for report in reports), sum(report.ids_minted for report in reports)
    if (kept, minted) != (counts.total_kept, counts.total_needed):
        raise CorruptData(
            f"{kept:,} rows kept their id and {minted:,} got one; counted were {counts.total_kept:,} and "
            f"{counts.total_needed:,}",
            hint="nothing was committed; does the input have the same rows each time that Spark reads it?",
        )
    newest = claims.newest()
    last = newest.ids.last if newest else 0
    for report in reports:
        if report.last_id > last:
            raise CorruptData(
                f"a row has id {report.last_id:,}, but ids are claimed up to {last:,}",
                place=report.path,
                hint="nothing was committed; run: stelae verify",
            )
