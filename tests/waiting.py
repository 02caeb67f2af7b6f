"""Waiting for what has to happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 180.0
"""When a test that waits in vain gives up. Nothing is judged by it: on an idle machine no wait takes seconds."""

PAUSE_S = 0.02


def wait_until(condition: Callable[[], object], what: str = "it did not happen") -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(PAUSE_S)
