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
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.names import DEFAULT_DATABASE, TableName
from stelae.read.snapshot_reader import SnapshotReader
from stelae.schema.table_schema import TableSchema
from stelae.service.tables.counts import TableCounts
from stelae.wire.http_api import SNAPSHOT_HEADER

PIN = SNAPSHOT_HEADER.lower().encode()
"""The header as ASGI spells it."""
MAX_BACK_OFF_S = 60.0
"""Longest pause between two attempts to load the same snapshot."""
LINGER_S = 2.0
"""How long a replaced snapshot stays open for the requests that still hold it. Closing files takes milliseconds, which
the event loop would spend if a request held the last reference.
"""
TURN_KEYS = 256
"""Keys of a request, or stored rows of a scan, between two turns of other requests: about a millisecond."""


class State(StrEnum):
    """Where a table is."""

    EMPTY = "EMPTY"
    LOADING = "LOADING"
    READY = "READY"
    FAILED = "FAILED"


class OpenSnapshot:
    """A snapshot that requests are answered from, with what all its answers repeat."""

    __slots__ = (
        "all_columns", "find", "header", "missing", "one_key_column", "one_key_from_text", "opened_for_a_pin",
        "pinned_at", "reader", "tail",
    )  # fmt: skip

    def __init__(self, reader: SnapshotReader, *, opened_for_a_pin: bool = False) -> None:
        self.reader = reader
        self.opened_for_a_pin = opened_for_a_pin
        """Whether it was never current here."""
        self.pinned_at = -math.inf
        """When a request last pinned it, by the table's clock."""
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
    """Others that are open for pinned requests, by id: that were replaced, or opened because of a pin."""

    @property
    def reader(self) -> SnapshotReader:
        return self.current.reader

    @property
    def open_ids(self) -> list[int]:
        """All snapshots that can be pinned, newest first."""
        return [self.reader.id, *sorted(self.kept, reverse=True)]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which snapshots stay open behind the current one."""

    replaced: int
    """So many that were replaced last, whether they are pinned or not."""
    pinned: int = 0
    """And so many others that somebody pins."""
    idle_s: float = 0.0
    """How long after the last pin."""

    def chosen(self, candidates: Mapping[int, OpenSnapshot], now: float) -> dict[int, OpenSnapshot]:
        """Those that stay. Of too many that are pinned, the ones that were asked for last."""
        replaced = [number for number in sorted(candidates, reverse=True) if not candidates[number].opened_for_a_pin]
        kept = set(replaced[: self.replaced])
        pinned = [number for number in candidates if number not in kept and self.is_pinned(candidates[number], now)]
        kept.update(sorted(pinned, key=lambda number: candidates[number].pinned_at, reverse=True)[: self.pinned])
        return {number: candidates[number] for number in sorted(kept, reverse=True)}

    def pinned_only(self, kept: Mapping[int, OpenSnapshot]) -> list[int]:
        """Those that are open for pins alone, newest first."""
        replaced = [number for number in sorted(kept, reverse=True) if not kept[number].opened_for_a_pin]
        return sorted(set(kept) - set(replaced[: self.replaced]), reverse=True)

    def is_pinned(self, opened: OpenSnapshot, now: float) -> bool:
        return now - opened.pinned_at <= self.idle_s


class SnapshotNotOpen(Exception):
    """A request pins a snapshot that is not open here. `ServedTable.explain` says which error that is."""

    def __init__(self, number: int) -> None:
        super().__init__(f"snapshot {number} is not open")
        self.number = number


class ForwardToOwner(Exception):
    """This process can't answer, but the one that owns the tables can. No error: the request gets that one's answer."""


class ServedTable:
    """One table of the warehouse. Changed by the watcher, on the event loop; read by everybody."""

    def __init__(self, name: TableName, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = str(name)
        self.clock = clock
        self.open_pinned: Callable[[int], Awaitable[StelaeError]] | None = None
        """Opens a snapshot that a request pins, in the background, and says meanwhile why it can't be answered; None
        where nobody does.
        """
        self.schema: TableSchema | None = None
        """The newest definition; None when it can't be read, `error` then says why."""
        self.counts = TableCounts()
        self.serving: Serving | None = None
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
    def names_in_paths(self) -> Sequence[str]:
        """What requests may call it: a table of the default database by its bare name, too."""
        database, _, bare = self.name.partition(".")
        return (self.name, bare) if database == DEFAULT_DATABASE else (self.name,)

    @property
    def state(self) -> State:
        if self.serving is not None:
            return State.READY
        if self.error is not None:
            return State.FAILED
        return State.LOADING if self.loading or self.newest_id is not None else State.EMPTY

    def swap(self, reader: SnapshotReader, keeping: Keeping) -> Serving | None:
        """Serve another snapshot from now on. Returns what was served before."""
        before = self.serving
        kept: dict[int, OpenSnapshot] = {}
        opened = OpenSnapshot(reader)
        if before is not None:
            candidates = {**before.kept, before.reader.id: before.current}
            same = candidates.pop(reader.id, None)
            if same is not None:
                opened.pinned_at = same.pinned_at
            kept = keeping.chosen(candidates, self.clock())
        self.serving = Serving(opened, kept)
        return before

    def keep(self, kept: Mapping[int, OpenSnapshot]) -> Serving | None:
        """Have these open behind the current snapshot. Returns what was served before."""
        before = self.serving
        if before is not None:
            self.serving = Serving(before.current, kept)
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
        found = serving.current if number == serving.reader.id else serving.kept.get(number)
        if found is None:
            raise SnapshotNotOpen(number)
        found.pinned_at = self.clock()
        return found

    async def explain(self, number: int) -> StelaeError:
        """Why a snapshot that is not open can't be answered from. If it can be had, it is opened meanwhile."""
        if self.open_pinned is None:
            return self.not_found(f"snapshot {number} of {self.name} is not open here")
        return await self.open_pinned(number)

    def not_found(self, message: str, advice: str = "") -> NotFound:
        """The error for a snapshot that can't be had."""
        open_ids = ", ".join(map(str, self.serving.open_ids)) if self.serving else "none"
        hint = f"open are {open_ids}; leave the header out for the current one"
        return NotFound(message, place=SNAPSHOT_HEADER, hint=f"{hint}; {advice}" if advice else hint)

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
