"""When a client asks again: the policy, the budget, and the attempts of one request. No I/O, and it never waits itself.

    attempts(request)  ──SendRequest──►  driver    asks once, gives the answer or throws a Failure
                       ──Pause────────►  driver    waits
                       ◄─ the last answer

A request is repeated when the connection broke or the server said "not now", `retries` times at most. Over all requests
of a client, repetitions are bounded too, by a bucket of tokens, as in gRPC (proposal A6) and Envoy: were every client
of a server in trouble to ask three times, the trouble would stay.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from stelae.client.http1 import Response
from stelae.client.stats import Counters
from stelae.client.steps import Failure, Pause, Request, SendRequest, Steps

RETRIED_STATUS = (429, 502, 503, 504)
BACKOFF_S = 0.1
"""The first repetition comes at once, since a connection that lay idle may just have been closed; then twice this."""
MAX_BACKOFF_S = 5.0
"""Longest wait before a repetition, also where the server asks for a longer one."""

BUDGET_RATIO = 0.1
"""What a request adds to the budget of repetitions."""
BUDGET_PER_S = 1.0
"""What a second adds: a client that asks rarely may always repeat."""
BUDGET_MOST = 20.0
"""What a client starts with, and the most that it saves up."""


class RetryBudget:
    """Repetitions that a client may make, over all its requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = BUDGET_MOST
        self._since = clock()
        self._requests = 0
        self._lock = threading.Lock()

    def add_request(self) -> None:
        """A request was made, for the first time."""
        self._requests += 1

    def take(self) -> bool:
        """Whether there may be one more repetition; if so, it counts as made."""
        with self._lock:
            now = self._clock()
            earned = self._requests * BUDGET_RATIO + (now - self._since) * BUDGET_PER_S
            self._since, self._requests = now, 0
            self._tokens = min(BUDGET_MOST, self._tokens + earned)
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def after_fork(self) -> None:
        """The lock may be held by a thread that the new process does not have."""
        self._lock = threading.Lock()


def attempts(request: Request, retries: int, budget: RetryBudget, counters: Counters) -> Steps[Response]:
    """Ask until there is an answer that counts, or no repetition left: then the last answer is given, or the last
    Failure raised.
    """
    budget.add_request()
    made = 0
    fresh = False
    while True:
        failure: Failure | None = None
        retry_after: str | None = None
        counters.requests += 1
        try:
            response: Response = yield SendRequest(request, fresh)
        except Failure as exc:
            failure = exc
            if exc.stale and not fresh:
                fresh = True  # It never got there: this is no repetition.
                continue
            again = exc.repeatable
        else:
            if response.status not in RETRIED_STATUS:
                return response
            again = True
            retry_after = response.headers.get("retry-after")
        again = again and made < retries
        if again and not budget.take():
            counters.withheld += 1
            again = False
        if again:
            made += 1
            wait_s = pause_s(made, retry_after)
            again = not wait_s or (yield Pause(wait_s))
        if not again:
            if failure is not None:
                raise failure
            return response
        counters.retries += 1
        fresh = failure is not None


def pause_s(number: int, retry_after: str | None) -> float:
    """How long to wait before the nth repetition, from 1."""
    asked = None if retry_after is None else _seconds(retry_after)
    if asked is not None:
        return min(asked, MAX_BACKOFF_S)
    if number <= 1:
        return 0.0
    return float(min(BACKOFF_S * 2 ** (number - 1) + random.uniform(0, BACKOFF_S), MAX_BACKOFF_S))  # noqa: S311


def _seconds(retry_after: str) -> float | None:
    """What `Retry-After` says: seconds, or a date. None where it is neither."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
