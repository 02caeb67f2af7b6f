"""Waiting out what is Unavailable: for jobs, which outlive a restart of a server. Sleeps, unlike
`stelae/client/retry.py`.

A client repeats a request that failed a few times within a call, and then says Unavailable; a job calls again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from stelae.errors import Unavailable

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0


def while_unavailable(call: Callable[[], T], *, wait_s: float, max_pause_s: float = MAX_PAUSE_S) -> T:
    """What `call` returns. Unavailable is waited out: it is called again, and the error raised after `wait_s`."""
    deadline = time.monotonic() + wait_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except Unavailable:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise
        # Not all workers of a job are to come back at once.
        time.sleep(min(left_s, pause_s * random.uniform(0.5, 1)))  # noqa: S311
        pause_s = min(2 * pause_s, max_pause_s)
