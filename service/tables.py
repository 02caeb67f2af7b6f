"""Tables as they are served: the state that changes, and nothing else.

    EMPTY     no snapshot was ever built                          lookups: 503
    LOADING   the first snapshot is being loaded                  lookups: 503
    READY     a snapshot is served                                lookups: answers
    FAILED    there is a snapshot, but none that loads            lookups: 503, with the reason

The only thing that a request reads is `ServedTable.serving`: one reference, to an object that never changes. A swap
puts another object there. Requests that began on the old one finish on it, since they hold it. A table whose newest
snapshot does not load stays READY with the one before; `error` says what is wrong.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from service.metrics import TableCounts
from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.names import TableName
from stelae.reader import SnapshotReader
from stelae.schema import TableSchema
from stelae.wire import SNAPSHOT_HEADER

if TYPE_CHECKING:
    from service.writing import TableWriter

PIN = SNAPSHOT_HEADER.lower().encode()
"""The header as ASGI spells it."""
MAX_BACK_OFF_S = 60.0
"""Longest pause between two attempts to load the same snapshot."""


class State(StrEnum):
    """Where a table is."""

    EMPTY = "EMPTY"
    LOADING = "LOADING"
    READY = "READY"
    FAILED = "FAILED"


class OpenSnapshot:
    """A snapshot that requests are answered from, with what all its answers repeat."""

    __slots__ = ("all_columns", "find", "header", "missing", "one_key_column", "one_key_from_text", "reader", "tail")

    def __init__(self, reader: SnapshotReader) -> None:
        self.reader = reader
        self.find = reader.find
        self.all_columns = reader.table.all_columns
        self.header = (PIN, b"%d" % reader.id)
        self.tail = b',"snapshot":%d}' % reader.id
        """How every JSON answer ends."""
        self.missing = b'{"found":false,"row":null' + self.tail
        """The answer for a key that is not there."""
        (name, from_text), *others = reader.table.key_texts
        self.one_key_column = None if others else name
        """The column of a key that is one column: the usual key, which has a shorter way."""
        self.one_key_from_text = from_text


@dataclass(frozen=True, slots=True)
class Serving:
    """What a table answers from at one moment."""

    current: OpenSnapshot
    kept: Mapping[int, OpenSnapshot]
    """Snapshots that were replaced and stay open for pinned requests, by id."""

    @property
    def reader(self) -> SnapshotReader:
        return self.current.reader

    @property
    def open_ids(self) -> list[int]:
        """All snapshots that can be pinned, newest first."""
        return [self.reader.id, *sorted(self.kept, reverse=True)]


class ServedTable:
    """One table of the warehouse. Changed by the watcher, on the event loop; read by everybody."""

    def __init__(self, name: TableName) -> None:
        self.name = str(name)
        self.schema: TableSchema | None = None
        """The newest definition; None when it can't be read, `error` then says why."""
        self.counts = TableCounts()
        self.serving: Serving | None = None
        self.writer: TableWriter | None = None
        """Takes online writes; None as long as nobody runs the table."""
        self.loading = False
        self.newest_id: int | None = None
        """The newest snapshot on storage, as far as known."""
        self.error: StelaeError | None = None
        """Why the newest snapshot is not served; None when it is, or when nobody tried yet."""
        self.failures = 0
        """Attempts in a row that failed."""
        self.retry_at = 0.0
        """Not before, by the watcher's clock."""

    @property
    def state(self) -> State:
        if self.serving is not None:
            return State.READY
        if self.error is not None:
            return State.FAILED
        return State.LOADING if self.loading or self.newest_id is not None else State.EMPTY

    def swap(self, reader: SnapshotReader, keep: int) -> Serving | None:
        """Serve another snapshot from now on. Returns what was served before; the newest `keep` of it stay open."""
        before = self.serving
        kept: dict[int, OpenSnapshot] = {}
        if before is not None:
            candidates = {before.reader.id: before.current, **before.kept}
            candidates.pop(reader.id, None)
            kept = {number: candidates[number] for number in sorted(candidates, reverse=True)[:keep]}
        self.serving = Serving(OpenSnapshot(reader), kept)
        return before

    def failed(self, error: StelaeError, now: float, first_pause_s: float) -> None:
        """An attempt to load failed: what is served stays; try again, less and less often."""
        self.error = error
        self.failures += 1
        self.counts.load_failures += 1
        self.retry_at = now + min(MAX_BACK_OFF_S, first_pause_s * math.ldexp(1.0, min(self.failures, 20)))

    def recovered(self) -> None:
        """The newest snapshot is served."""
        self.error = None
        self.failures = 0
        self.retry_at = 0.0

    def pinned(self, value: bytes) -> OpenSnapshot:
        """The snapshot that a request's header names."""
        text = value.decode("latin-1").strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InvalidRequest(
                f"{SNAPSHOT_HEADER} must be the id of a snapshot, not {text[:40]!r}", place=SNAPSHOT_HEADER
            )
        serving = self.serving
        if serving is None:
            raise self.unavailable()
        number = int(text)
        if number == serving.reader.id:
            return serving.current
        found = serving.kept.get(number)
        if found is None:
            raise NotFound(
                f"snapshot {number} of {self.name} is not open here",
                place=SNAPSHOT_HEADER,
                hint=f"open are {', '.join(map(str, serving.open_ids))}; leave the header out for the current one",
            )
        return found

    def unavailable(self) -> Unavailable:
        """Why nothing can be answered now."""
        match self.state:
            case State.EMPTY:
                return Unavailable(
                    f"table {self.name} has no snapshot yet",
                    place=self.name,
                    hint=f"build it: stelae build {self.name}",
                )
            case State.FAILED if self.error is not None:
                return Unavailable(
                    f"table {self.name} has no snapshot that loads: {self.error.message}",
                    place=self.error.place or self.name,
                    hint=self.error.hint,
                )
        return Unavailable(f"table {self.name} is loading", place=self.name, hint="try again in a moment")


def unknown_table(name: str, served: Iterable[str]) -> NotFound:
    """The error for a table that is not served, with the nearest names."""
    names = sorted(served)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = f"served are: {shown}" if names else "no tables are served: create one, stelae create"
    return NotFound(f"no table {name!r} is served", place=name, hint=hint)
