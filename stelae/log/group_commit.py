"""Group commit: concurrent requests share the flushes of a log.

    requests ──► one flush at a time, shared ──► still the owner? ──► acknowledged

For one event loop; the flushes run in a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stelae.errors import Conflict, StelaeError
from stelae.log.errors import broken_off, log_closed, repeated
from stelae.log.records import Payload, Record, encode_record
from stelae.log.writer import LogWriter


@dataclass(frozen=True, slots=True)
class _Waiting:
    payloads: list[Payload]
    future: asyncio.Future[range]


class GroupCommit:
    """Concurrent requests of one event loop share flushes of a LogWriter, which belongs to it from now on.

    While one flush runs, in a thread, what is submitted gathers for the next one. Records come into the log in the
    order in which they were submitted.
    """

    def __init__(self, writer: LogWriter, still_holds: Callable[[], bool]) -> None:
        """`still_holds` is asked in that thread after each flush, and before anybody in it gets an answer: whether the
        writer's epoch is in force. False, or an error, fails the flush like an error of the disk.
        """
        self.writer = writer
        self._still_holds = still_holds
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._executor = ThreadPoolExecutor(1, "stelae-log")

    @property
    def failure(self) -> StelaeError | None:
        """Why it takes no more records."""
        return self.writer.failure

    def submit(self, records: Sequence[Record]) -> asyncio.Future[range]:
        """Put records into the next flush. The future gives their offsets when they may be acknowledged.

        An error means that they may be in the log or not, and that the log has to be recovered before anything else is
        written. InvalidRequest for records that can't be encoded, and the failure for a log that takes no more, are
        raised here. A caller that is cancelled takes nothing back.
        """
        return self.submit_payloads([encode_record(record) for record in records])

    def submit_payloads(self, payloads: list[Payload]) -> asyncio.Future[range]:
        """`submit` of encoded records."""
        if self._closing or self.failure is not None:
            raise repeated(self.failure or log_closed(self.writer.path.parent))
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: it asks the system for the process id
        future: asyncio.Future[range] = self._loop.create_future()
        self._waiting.append(_Waiting(payloads, future))
        if self._running is None:
            self._running = self._loop.create_task(self._flush_all())
        return future

    async def close(self) -> None:
        """Wait for everything that was submitted, then close the log."""
        self._closing = True
        while self._running is not None:
            await asyncio.wait([self._running])
        self._executor.shutdown()
        self.writer.close()

    async def _flush_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                offsets = await loop.run_in_executor(self._executor, self._flush, group)
            except BaseException as exc:
                self._fail(exc, [*group, *self._waiting])
                if not isinstance(exc, Exception):
                    raise
                break
            for waiting, written in zip(group, offsets, strict=True):
                if not waiting.future.done():
                    waiting.future.set_result(written)
        self._running = None

    def _flush(self, group: Sequence[_Waiting]) -> list[range]:
        offsets = [self.writer.append_payloads(waiting.payloads) for waiting in group]
        self.writer.flush()
        if not self._still_holds():
            raise Conflict(
                f"epoch {self.writer.epoch} is over: somebody else owns the table now",
                place=str(self.writer.path),
                hint="send it to the owner; whether these records count is the owner's to say",
            )
        return offsets

    def _fail(self, exc: BaseException, group: Sequence[_Waiting]) -> None:
        self._waiting = []
        self._running = None
        failure = exc if isinstance(exc, StelaeError) else broken_off(exc, self.writer.path)
        if self.writer.failure is None:
            self.writer.failure = failure
        for waiting in group:
            if not waiting.future.done():
                error = repeated(failure)
                error.__cause__ = exc
                waiting.future.set_exception(error)
