"""Pins that last: a snapshot that a request names stays open, or is opened again, as long as it is on storage.

    a pin on a snapshot that is ...

    open                              answered; noted, so that it stays open           ServedTable.pinned
    retained on storage, not open     opened in the background, 503 meanwhile          Pins.explain
    the same, as many as may be open  503, with which are
    expired, or never there           404, which of both, and what is open

A job pins one snapshot for hours, while newer ones come and servers restart. So a snapshot stays open as long as it is
pinned again within `--pin-idle`, and at most `--pinned-snapshots` a table are open for that alone.

When as many are open as may be, the newcomer waits. Were the idlest closed instead, a job between two of its stages
would lose its snapshot to another one, get it back by closing that one's, and both would do nothing but open files.
Only where a swap leaves more pinned ones than may be, the idlest goes: that one is asked for least.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from stelae.errors import StelaeError, Unavailable
from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.tables.served_table import MAX_BACK_OFF_S, Keeping, OpenSnapshot, ServedTable, Serving
from stelae.snapshot.warehouse import Table
from stelae.wire.http_api import SNAPSHOT_HEADER

logger = logging.getLogger("stelae.server")

LOOK_S = 10.0
"""How long a request waits for the storage to say which snapshots there are."""

Open = Callable[[Table, int, list[SnapshotReader]], Awaitable[SnapshotReader]]
"""Opens a snapshot, sharing the tablets of these readers."""
Announced = Callable[[ServedTable, SnapshotReader], AbstractAsyncContextManager[None]]
"""In its context a snapshot may be begun to be served."""


@dataclass(frozen=True, slots=True)
class _Failure:
    error: StelaeError
    until: float


class Pins:
    """Pinned snapshots of all tables. Lives on the event loop."""

    def __init__(
        self,
        keeping: Keeping,
        definition: Callable[[ServedTable], Table | None],
        open_snapshot: Open,
        announced: Announced,
        changed: Callable[[ServedTable, Serving], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        """`changed` is told what was served before, whenever it differs."""
        self._keeping = keeping
        self._definition = definition
        self._open_snapshot = open_snapshot
        self._announced = announced
        self._changed = changed
        self._clock = clock
        self._threads = ThreadPoolExecutor(1, "stelae-pins")
        self._looks: dict[str, asyncio.Task[range]] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._failures: dict[tuple[str, int], _Failure] = {}

    async def explain(self, table: ServedTable, number: int) -> StelaeError:
        """Why this snapshot is not answered from. Begins to open it, if that is to be had."""
        if table.serving is None:
            return table.unavailable()
        answer = self._known(table, number)
        if answer is not None:
            return answer
        try:
            retained = await asyncio.wait_for(asyncio.shield(self._retained(table)), LOOK_S)
        except StelaeError as exc:
            return exc
        except TimeoutError:
            return Unavailable(
                f"the storage does not say whether there is a snapshot {number} of {table.name}", place=SNAPSHOT_HEADER
            )
        return self._known(table, number) or self._of_storage(table, number, retained)

    def close_unpinned(self, table: ServedTable) -> None:
        """Close those that nobody has pinned for a while."""
        serving = table.serving
        if serving is None or not serving.kept:
            return
        kept = self._keeping.chosen(serving.kept, self._clock())
        if len(kept) < len(serving.kept):
            gone = ", ".join(str(number) for number in serving.kept if number not in kept)
            logger.info("%s: snapshot %s is not pinned any more", table.name, gone)
            table.keep(kept)
            self._changed(table, serving)

    async def settled(self) -> None:
        """Wait until nothing is being opened."""
        while self._opening:
            await asyncio.wait(list(self._opening.values()))

    def stop(self) -> None:
        for task in (*self._looks.values(), *self._opening.values()):
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _known(self, table: ServedTable, number: int) -> StelaeError | None:
        """The answer, as far as no storage has to be asked."""
        serving = table.serving
        if serving is not None and number in serving.open_ids:
            return Unavailable(f"snapshot {number} of {table.name} was just opened", place=SNAPSHOT_HEADER)
        if (table.name, number) in self._opening:
            return _being_opened(table, number)
        failure = self._failures.get((table.name, number))
        return failure.error if failure is not None and self._clock() < failure.until else None

    def _of_storage(self, table: ServedTable, number: int, retained: range) -> StelaeError:
        serving = table.serving
        if serving is None:
            return table.unavailable()
        if number < 1 or number >= retained.stop:
            there = f"it has {retained.start} to {retained.stop - 1}" if retained else "it has none"
            return table.not_found(f"there never was a snapshot {number} of {table.name}: {there}")
        if number < retained.start:
            return table.not_found(
                f"snapshot {number} of {table.name} is expired, and not open here",
                "the option snapshot.num-retained says how many are kept on storage",
            )
        if number > serving.reader.id and number + 1 == retained.stop:
            return table.error or _being_opened(table, number)  # the newest one: it is not only opened, but served
        return self._begin(table, serving, number)

    def _begin(self, table: ServedTable, serving: Serving, number: int) -> StelaeError:
        now = self._clock()
        used = [
            one for one in self._keeping.pinned_only(serving.kept) if self._keeping.is_pinned(serving.kept[one], now)
        ]
        under_way = [one for name, one in self._opening if name == table.name]
        if not self._keeping.pinned:
            return table.not_found(
                f"snapshot {number} of {table.name} is not open here", "this server opens no others: --pinned-snapshots"
            )
        if len(used) + len(under_way) >= self._keeping.pinned:
            taken = ", ".join(map(str, sorted([*used, *under_way])))
            return Unavailable(
                f"snapshot {number} of {table.name} can't be opened: as many others as may be are pinned, {taken}",
                place=SNAPSHOT_HEADER,
                hint=f"try again when nobody has pinned one of them for {self._keeping.idle_s:g} s, or raise "
                "--pinned-snapshots",
            )
        task = asyncio.create_task(self._open(table, number))
        self._opening[table.name, number] = task
        return _being_opened(table, number)

    async def _open(self, table: ServedTable, number: int) -> None:
        started = self._clock()
        try:
            definition, serving = self._definition(table), table.serving
            if definition is None or serving is None:
                return
            sharing = [serving.reader, *(opened.reader for opened in serving.kept.values())]
            reader = await self._open_snapshot(definition, number, sharing)
            del sharing
            async with self._announced(table, reader):
                self._opened(table, OpenSnapshot(reader, opened_for_a_pin=True))
            logger.info("%s: snapshot %d is open for pins (%.2f s)", table.name, number, self._clock() - started)
        except Exception as exc:
            if not isinstance(exc, StelaeError):
                logger.exception("%s: snapshot %d could not be opened, unforeseen", table.name, number)
                exc = StelaeError(f"{type(exc).__name__}: {exc}", place=table.name)
            exc.__traceback__ = exc.__cause__ = exc.__context__ = None  # they hold readers
            logger.error("%s: snapshot %d, which is pinned, can't be opened: %s", table.name, number, exc)
            now = self._clock()
            self._failures = {one: failure for one, failure in self._failures.items() if failure.until > now}
            self._failures[table.name, number] = _Failure(exc, now + MAX_BACK_OFF_S)
        finally:
            self._opening.pop((table.name, number), None)

    def _opened(self, table: ServedTable, opened: OpenSnapshot) -> None:
        serving = table.serving
        if serving is None or opened.reader.id in serving.open_ids:
            return
        opened.pinned_at = self._clock()  # by the request that asked for it
        table.keep(self._keeping.chosen({**serving.kept, opened.reader.id: opened}, self._clock()))
        self._changed(table, serving)

    def _retained(self, table: ServedTable) -> asyncio.Task[range]:
        """Snapshots on storage. However many ask: one look at a time."""
        look = self._looks.get(table.name)
        if look is None:
            look = self._looks[table.name] = asyncio.create_task(self._look(table))
            look.add_done_callback(lambda _: self._looks.pop(table.name, None))
            look.add_done_callback(lambda done: done.cancelled() or done.exception())
        return look

    async def _look(self, table: ServedTable) -> range:
        definition = self._definition(table)
        if definition is None:
            raise table.unavailable()
        ids = await asyncio.get_running_loop().run_in_executor(self._threads, definition.snapshots.retained_ids)
        return range(ids[0], ids[-1] + 1) if ids else range(0)


def _being_opened(table: ServedTable, number: int) -> Unavailable:
    return Unavailable(
        f"snapshot {number} of {table.name} is being opened", place=SNAPSHOT_HEADER, hint="try again in a moment"
    )
