"""The steps of an operation: what it asks of whoever drives it, and gets back. No I/O.

An operation is a generator of steps. Its driver carries each of them out and sends back what came of it; `Client` does
so with sockets and threads, `AsyncClient` with aiohttp and tasks, a test with nothing at all.

    operation ──SendRequest(request)─► driver ──► server    the Response, or a Failure thrown into the operation
              ──Pause(seconds)───────► driver               whether there was time
              ──Together(operations)─► driver               the results of the operations, in order
              ──return───────────────► the caller's answer
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from stelae.client.request import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Ask once. The driver gives the Response, or throws a Failure."""

    request: Request
    fresh: bool = False
    """Not on a connection that lay idle."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait. The driver says whether there was time to: False when the call would pass its deadline."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Operations that may run at the same time. The driver gives their results in order, or throws the first error. It
    takes the next of them only when there is room.
    """

    operations: Iterator[Steps[Any]]


ClientStep: TypeAlias = SendRequest | Pause | Together
Steps: TypeAlias = Generator[ClientStep, Any, T]
