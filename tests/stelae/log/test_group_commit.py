"""Goal: requests share flushes, in their order, and none is acknowledged that is not durable or not the owner's.

Method: flushes that a gate holds back, that fail, or after which somebody else owns the table.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stelae.errors import Conflict, InvalidRequest, StelaeError, Unavailable
from stelae.log.group_commit import GroupCommit
from stelae.log.records import Granted
from tests.stelae.log.logs import GIVEN, IO_ERROR, Faults, key, keys_of, opened
from tests.waiting import WAIT_S


@dataclass
class Gate:
    """Holds the flushes back until told."""

    faults: Faults
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.faults.before_sync = self.wait

    def wait(self) -> None:
        self.entered.release()
        assert self.allowed.acquire(timeout=WAIT_S)

    async def flush_began(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=WAIT_S)


def finish(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_requests_share_flushes_in_their_order(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        first = group.submit([GIVEN, key(0)])
        await gate.flush_began()
        others = [group.submit([key(i)]) for i in range(1, 50)]
        await asyncio.sleep(0.01)
        assert not first.done()
        gate.allowed.release()
        assert await first == range(2)
        await gate.flush_began()
        late = group.submit([key(50)])
        await asyncio.sleep(0.01)
        assert not any(other.done() for other in others)
        gate.allowed.release()
        assert await asyncio.gather(*others) == [range(i + 1, i + 2) for i in range(1, 50)]
        assert not late.done()
        gate.allowed.release()
        assert await late == range(51, 52)
        await group.close()

    finish(run())
    assert faults.syncs == 3
    assert keys_of(folder) == [str(i) for i in range(51)]


def test_what_is_submitted_in_one_turn_shares_one_flush(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        await asyncio.gather(*(group.submit([key(i)]) for i in range(100)))
        await group.close()

    finish(run())
    assert faults.syncs == 1


def test_the_owner_is_checked_after_the_flush_and_before_the_answer(folder: Path, faults: Faults) -> None:
    def still_holds() -> bool:
        faults.events.append("check")
        return True

    async def run() -> None:
        group = GroupCommit(opened(folder, open_file=faults.open), still_holds)
        for i in range(3):
            await group.submit([key(i)])
            faults.events.append("answer")
        await group.close()

    finish(run())
    assert faults.events == ["write", "sync", "check", "answer"] * 3


def lost() -> bool:
    return False


def unknown() -> bool:
    raise Unavailable("storage is out of reach")


def bug() -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("still_holds", "kind", "told"),
    [(lost, Conflict, "epoch 1 is over"), (unknown, Unavailable, "out of reach"), (bug, Unavailable, "ZeroDivision")],
)
def test_an_owner_who_was_replaced_acknowledges_nothing(
    folder: Path, still_holds: Callable[[], bool], kind: type[StelaeError], told: str
) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), still_holds)
        results = await asyncio.gather(*(group.submit([key(i)]) for i in range(3)), return_exceptions=True)
        for result in results:
            assert type(result) is kind
            assert told in str(result)
        with pytest.raises(kind, match=told):
            group.submit([key(9)])
        assert isinstance(group.failure, kind)
        await group.close()

    finish(run())


def test_a_failed_flush_fails_all_who_wait(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        gate.allowed.release()
        await group.submit([key("a")])
        await gate.flush_began()
        faults.sync_error = IO_ERROR
        cancelled = group.submit([key(0)])
        inside = [group.submit([key(i)]) for i in range(3)]
        await gate.flush_began()
        behind = [group.submit([key(i)]) for i in range(3)]
        cancelled.cancel()
        gate.allowed.release()
        results = await asyncio.gather(*inside, *behind, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 6
        assert len({id(result) for result in results}) == 6
        assert cancelled.cancelled()
        faults.sync_error = None
        with pytest.raises(Unavailable, match="Input/output error"):
            group.submit([key("b")])
        await group.close()

    finish(run())
    assert faults.syncs == 2
    assert keys_of(folder) in (["a"], ["a", "0", "0", "1", "2"])


def test_a_record_that_cannot_be_encoded_is_its_senders_alone(folder: Path) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), lambda: True)
        good = group.submit([key("a")])
        with pytest.raises(InvalidRequest):
            group.submit([key("b"), Granted(0, 2, 1)])
        assert await good == range(1)
        assert await group.submit([key("c")]) == range(1, 2)
        await group.close()

    finish(run())
    assert keys_of(folder) == ["a", "c"]


def test_who_is_cancelled_takes_nothing_back(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)

        async def request(name: str) -> range:
            return await group.submit([key(name)])

        cancelled = asyncio.create_task(request("a"))
        other = asyncio.create_task(request("b"))
        await gate.flush_began()
        cancelled.cancel()
        gate.allowed.release()
        assert await other == range(1, 2)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await group.close()

    finish(run())
    assert keys_of(folder) == ["a", "b"]


def test_closing_waits_for_what_was_submitted(folder: Path) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), lambda: True)
        futures = [group.submit([key(i)]) for i in range(3)]
        closing = asyncio.create_task(group.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="closed"):
            group.submit([key(9)])
        await closing
        assert [future.result().start for future in futures] == [0, 1, 2]
        with pytest.raises(Unavailable, match="closed"):
            group.submit([key(9)])

    finish(run())
