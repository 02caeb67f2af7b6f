"""Verifying a snapshot: all that it says is held against what is there.

    every file, its keys and rows, sampled lookups     verify_files.py
    claims of ids, epochs of ownership, ids            verify_ids.py

What is wrong is collected, not raised: one bad file does not hide another. `stelae verify` prints the report.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from stelae.read.open_snapshot import scratch_folder
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table
from stelae.verify.verify_files import FileChecks, Problem
from stelae.verify.verify_ids import id_problems, ownership_problems


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far it is."""

    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was read, and what is wrong."""

    table: str
    snapshot: int
    files: int
    rows: int
    hidden_rows: int
    bytes: int
    lookups: int
    """Sampled keys that were looked up; 0 when a bad file kept the snapshot from being opened."""
    seconds: float
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_snapshot(
    table: Table, snapshot: Snapshot, *, listener: Callable[[VerifyProgress], None] | None = None, seed: int = 0
) -> VerifyReport:
    """Read all files of a snapshot and report. `seed` chooses the sampled keys.

    Raises Unavailable when the storage can't be read: that says nothing about the snapshot.
    """
    started = time.monotonic()
    table = table.at_least(snapshot.schema_id)
    files = FileChecks(table, snapshot, random.Random(seed))  # noqa: S311 - a sample, no secret.
    done, total = 0, snapshot.totals.bytes
    with scratch_folder(table.storage) as scratch:
        for partition in snapshot.partitions:
            for bucket in partition.buckets:
                for file in bucket.files:
                    files.check_file(partition, bucket, file, scratch)
                    done += file.bytes
                    if listener:
                        listener(VerifyProgress(done, total))
        if not files.problems:
            files.check_lookups(scratch)
        problems = files.problems + ownership_problems(table)
        if not problems and table.schema.auto_increment is not None:
            problems = id_problems(table, snapshot, scratch)
    return VerifyReport(
        table=str(table.name),
        snapshot=snapshot.id,
        files=files.files,
        rows=files.rows,
        hidden_rows=files.hidden_rows,
        bytes=files.bytes_read,
        lookups=files.lookups,
        seconds=time.monotonic() - started,
        problems=tuple(problems),
    )
