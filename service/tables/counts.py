"""What the server counts: plain integers, which cost a request an addition each.

    routes, watcher  →  TableCounts, OperationCounts        what the leader counted
    followers        →  WorkerCounts, in their reports      what they counted

service/http/metrics_page.py makes names and labels of them when Prometheus asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

LOOKUP, BATCH_LOOKUP, PREFIX_LOOKUP = "lookup", "batch-lookup", "prefix-lookup"
INSERT = "insert-if-not-exists"
OPERATIONS = (LOOKUP, BATCH_LOOKUP, PREFIX_LOOKUP, INSERT)

BOUNDS_S = (
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0,
)  # fmt: skip
"""Upper bounds of the duration histogram: seconds from the request's head to the last byte given to the socket."""

OK = "ok"
DISCONNECTED = "disconnected"
"""Outcome of a request whose client went away. Others are `ok` and the `type` of errors: `invalid-request`, ..."""


class OperationCounts:
    """Requests of one operation on one table."""

    __slots__ = ("durations", "failed", "seconds")

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()
        self.durations = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    def answered(self, seconds: float) -> None:
        """One more request with an answer, found or not."""
        self.durations[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    @property
    def ok(self) -> int:
        """Requests with an answer."""
        return sum(self.durations)

    def add(self, other: OperationCounts) -> None:
        """What another process has counted."""
        self.failed.update(other.failed)
        self.durations = [mine + theirs for mine, theirs in zip(self.durations, other.durations, strict=True)]
        self.seconds += other.seconds


class TableCounts:
    """Everything that is counted of one table."""

    def __init__(self) -> None:
        self.operations = {operation: OperationCounts() for operation in OPERATIONS}
        self.batch_keys = 0
        """Keys that batch lookups asked for; point lookups ask for one each."""
        self.missing = 0
        """Keys of both that were not there."""
        self.inserted = 0
        """Keys that were inserted."""
        self.insert_found = 0
        """Keys that were there when they were to be inserted."""
        self.loads = 0
        self.load_failures = 0
        self.load_seconds = 0.0
        self.last_load_seconds = 0.0

    @property
    def found(self) -> int:
        """Keys that were there."""
        return self.operations[LOOKUP].ok + self.batch_keys - self.missing

    def add(self, other: TableCounts) -> None:
        """What another process has counted. Loads are those of this process."""
        for operation, counts in other.operations.items():
            self.operations[operation].add(counts)
        self.batch_keys += other.batch_keys
        self.missing += other.missing
        self.inserted += other.inserted
        self.insert_found += other.insert_found


class ServerCounts:
    """What belongs to no table."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.unknown_tables = 0
        self.poll_failures = 0
        self.polled_at = 0.0
        """When the warehouse last answered, by the wall clock."""


@dataclass(slots=True)
class WorkerCounts:
    """What a follower has counted, and how it is."""

    tables: dict[str, TableCounts] = field(default_factory=dict)
    server: ServerCounts = field(default_factory=ServerCounts)
    cpu_seconds: float = 0.0
    forwarded: int = 0
    """Requests that the leader answered."""
    cache_bytes: int = 0
    resident_bytes: int = 0
    connections: int = 0

    def add(self, other: WorkerCounts) -> None:
        """What only ever grows of another one."""
        for name, counts in other.tables.items():
            self.tables.setdefault(name, TableCounts()).add(counts)
        self.cpu_seconds += other.cpu_seconds
        self.forwarded += other.forwarded

    @property
    def requests(self) -> int:
        """Requests answered, errors included."""
        return sum(
            operation.ok + operation.failed.total()
            for counts in self.tables.values()
            for operation in counts.operations.values()
        )
