"""What a lookup did: counters that tasks add to and the driver reads.

    stats = LookupStats()
    lookup_join(df, ..., stats=stats).write.parquet(...)
    stats.rows, stats.keys_asked, stats.cache_hits

They travel as a Spark accumulator, so they are there after an action. Tasks count when they succeed; a frame that is
computed twice counts twice. Spark Connect has no accumulators; there every counter is None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Counts:
    """Of one task, or the sum of many."""

    tasks: int = 0
    rows: int = 0
    null_keys: int = 0
    """Rows with a null where a key can't have one: nobody is asked."""
    keys_asked: int = 0
    found: int = 0
    """Rows that got something."""
    requests: int = 0
    retries: int = 0
    """Requests that were sent again, because no server could answer."""
    evictions: int = 0
    """How often a full cache was emptied."""
    seconds: float = 0.0
    """From the first batch of a task to its last, Spark's own work included."""
    asked_s: float = 0.0
    """Between a request and its answer, summed over requests that ran at the same time."""
    waited_s: float = 0.0
    """That tasks stood still because of that."""

    def __iadd__(self, other: Counts) -> Counts:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


class LookupStats:
    """Counters of the lookups that were given it."""

    def __init__(self) -> None:
        self._accumulator: Any = None
        self._remote = False

    def accumulator(self, remote: bool) -> Any:
        """What tasks add to; None on Spark Connect."""
        self._remote |= remote
        if self._accumulator is None and not self._remote:
            from pyspark import SparkContext
            from pyspark.accumulators import AccumulatorParam

            class Adding(AccumulatorParam[Counts]):
                def zero(self, value: Counts) -> Counts:  # noqa: ARG002
                    return Counts()

                def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802 - Spark's name
                    value1 += value2
                    return value1

            context = SparkContext._active_spark_context
            if context is not None:
                self._accumulator = context.accumulator(Counts(), Adding())
        return self._accumulator

    @property
    def counts(self) -> Counts | None:
        """All of them; None on Spark Connect."""
        return None if self._accumulator is None else self._accumulator.value

    def __getattr__(self, name: str) -> Any:
        if name in Counts.__dataclass_fields__:
            return None if self.counts is None else getattr(self.counts, name)
        raise AttributeError(name)

    @property
    def missing(self) -> int | None:
        """Rows without a row in the table, those with a null for a key among them."""
        return None if self.counts is None else self.counts.rows - self.counts.found

    @property
    def cache_hits(self) -> int | None:
        """Rows whose key had been asked for before, by the same worker."""
        counts = self.counts
        return None if counts is None else counts.rows - counts.null_keys - counts.keys_asked

    def __repr__(self) -> str:
        if self.counts is None:
            return "LookupStats(no counters on Spark Connect)" if self._remote else "LookupStats(nothing ran)"
        shown = ", ".join(f"{each.name}={getattr(self.counts, each.name):,.6g}" for each in fields(self.counts))
        return f"LookupStats({shown}, missing={self.missing:,}, cache_hits={self.cache_hits:,})"
