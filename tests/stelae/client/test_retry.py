"""Goal: a request is repeated where that may help, as often as it was said, and never in a storm.

Method: the attempts of a request are driven by hand, with a clock that stands still: no server, no waiting.
"""

from __future__ import annotations

from email.utils import formatdate
from time import time
from typing import Any

import pytest

from stelae.client.http1 import Response
from stelae.client.retry import BUDGET_MOST, MAX_BACKOFF_S, RetryBudget, attempts, pause_s
from stelae.client.stats import Counters
from stelae.client.steps import (
    Broken,
    Failure,
    Insecure,
    Late,
    LateToConnect,
    NotReached,
    PastDeadline,
    Pause,
    Request,
    SendRequest,
)

OK = Response(200, "OK", {}, b"")
BUSY = Response(503, "Busy", {}, b"")
ASK = Request("GET", "/")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drive(
    *outcomes: Response | Failure, retries: int = 2, budget: RetryBudget | None = None, in_time: bool = True
) -> tuple[list[Any], Response | Failure, Counters]:
    """The steps of a request that has these outcomes, and what it gives in the end."""
    counters = Counters()
    steps = attempts(ASK, retries, budget or RetryBudget(Clock()), counters)
    left, taken = list(outcomes), []
    try:
        step = next(steps)
        while True:
            taken.append(step)
            if isinstance(step, Pause):
                step = steps.send(in_time)
                continue
            outcome = left.pop(0)
            step = steps.throw(outcome) if isinstance(outcome, Failure) else steps.send(outcome)
    except StopIteration as done:
        return taken, done.value, counters
    except Failure as failure:
        return taken, failure, counters


@pytest.mark.parametrize(
    ("outcomes", "sent"),
    [
        ([OK], 1),
        ([Response(404, "", {}, b"")], 1),
        ([Response(500, "", {}, b"")], 1),
        ([BUSY, OK], 2),
        ([BUSY, BUSY, BUSY], 3),
        ([Broken("x"), NotReached("x"), OK], 3),
        ([Broken("x"), BUSY, Broken("y")], 3),
        ([LateToConnect(), OK], 2),
        ([Late()], 1),
        ([Insecure("x")], 1),
        ([PastDeadline()], 1),
        ([Broken("x", stale=True), OK], 2),
    ],
)
def test_what_is_repeated(outcomes: list[Response | Failure], sent: int) -> None:
    taken, result, counters = drive(*outcomes)
    assert result is outcomes[-1]
    assert sum(isinstance(step, SendRequest) for step in taken) == sent == counters.requests
    stale = sum(isinstance(outcome, Failure) and outcome.stale for outcome in outcomes)
    assert counters.retries == sent - 1 - stale


def test_a_request_that_never_got_there_is_sent_again_without_retries() -> None:
    taken, result, _ = drive(Broken("gone", stale=True), OK, retries=0)
    assert [step.fresh for step in taken] == [False, True]
    assert result is OK
    _, result, _ = drive(Broken("gone", stale=True), Broken("gone", stale=True), retries=0)
    assert isinstance(result, Broken)


def test_after_a_failure_a_new_connection_is_used_after_an_answer_not() -> None:
    taken, _, _ = drive(Broken("x"), BUSY, OK)
    assert [step.fresh for step in taken if isinstance(step, SendRequest)] == [False, True, False]


def test_the_first_repetition_comes_at_once_later_ones_wait() -> None:
    taken, _, _ = drive(BUSY, BUSY, BUSY, OK, retries=3)
    assert [type(step) for step in taken] == [SendRequest, SendRequest, Pause, SendRequest, Pause, SendRequest]
    first, second = (step.seconds for step in taken if isinstance(step, Pause))
    assert 0.2 <= first <= 0.3
    assert 0.4 <= second <= 0.5


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("1", 1, 1),
        (" 3 ", 3, 3),
        ("3600", MAX_BACKOFF_S, MAX_BACKOFF_S),
        (formatdate(time() + 100_000, usegmt=True), MAX_BACKOFF_S, MAX_BACKOFF_S),
        (formatdate(time() - 100, usegmt=True), 0, 0),
        ("soon", 0, 0),
        ("-1", 0, 0),
    ],
)
def test_retry_after(said: str, least: float, most: float) -> None:
    assert least <= pause_s(1, said) <= most


def test_without_time_to_wait_the_last_answer_counts() -> None:
    later = Response(503, "Busy", {"retry-after": "1"}, b"")
    taken, result, counters = drive(later, OK, in_time=False)
    assert result is later
    assert len(taken) == 2
    assert counters.retries == 0


def test_repetitions_are_bounded_over_all_requests() -> None:
    """A server that fails for long gets a tenth more requests, not three times as many."""
    clock = Clock()
    budget = RetryBudget(clock)
    sent = withheld = 0
    for _ in range(1000):
        _, result, counters = drive(BUSY, BUSY, BUSY, budget=budget)
        assert result is BUSY
        sent += counters.requests
        withheld += counters.withheld
    assert 1000 + 100 <= sent <= 1000 + BUDGET_MOST + 100 + 1
    assert withheld > 800


def test_the_budget_comes_back_with_time_and_with_requests() -> None:
    clock = Clock()
    budget = RetryBudget(clock)
    while budget.take():
        pass
    clock.now += 3.5
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    for _ in range(10):
        budget.add_request()
    assert budget.take()
    clock.now += 1e6
    assert sum(budget.take() for _ in range(100)) == BUDGET_MOST
