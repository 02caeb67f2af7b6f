"""Goal: a server that is away is waited for, so long and no longer.

Method: calls of a few lines, with a clock that only sleeping moves.
"""

from __future__ import annotations

import pytest

from stelae import waiting
from stelae.errors import NotFound, Unavailable
from stelae.waiting import MAX_PAUSE_S, while_unavailable


class Clock:
    now_s = 0.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(waiting.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def test_what_is_back_in_time_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def call() -> str:
        if clock.now_s < 60:
            raise Unavailable("away")
        return "here"

    assert while_unavailable(call, wait_s=100) == "here"
    assert 60 <= clock.now_s < 60 + MAX_PAUSE_S
    assert max(clock.pauses) <= MAX_PAUSE_S
    assert clock.pauses[0] <= 0.1


@pytest.mark.parametrize("wait_s", [0.0, 0.3, 20.0])
def test_what_stays_away_is_asked_up_to_the_end(monkeypatch: pytest.MonkeyPatch, wait_s: float) -> None:
    clock = Clock(monkeypatch)
    asked: list[float] = []

    def call() -> None:
        asked.append(clock.now_s)
        raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        while_unavailable(call, wait_s=wait_s, max_pause_s=0.5)
    assert (asked[0], asked[-1]) == (0.0, pytest.approx(wait_s))
    assert max(clock.pauses, default=0) <= 0.5


def test_other_errors_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def call() -> None:
        raise NotFound("nothing there")

    with pytest.raises(NotFound):
        while_unavailable(call, wait_s=10)
    assert clock.pauses == []
