"""What operations and those who carry them out say to each other: steps, requests, and why there is no answer. No I/O.

An operation is a generator of steps. Its driver carries each of them out and sends back what came of it; `Client` does
so with sockets and threads, `AsyncClient` with aiohttp and tasks, a test with nothing at all.

    operation ──SendRequest(request)─► driver ──► server    the Response, or a Failure thrown into the operation
              ──Pause(seconds)───────► driver               whether there was time
              ──Together(operations)─► driver               the results of the operations, in order
              ──return───────────────► the caller's answer

What a Failure says of itself is all that `retry.py` needs to decide whether to ask again, and `retried_requests.py` to
say what went wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    """Path and query, from `/v1` on; ASCII."""
    body: bytes | pa.Buffer | None = None
    headers: Mapping[str, str] | None = None
    """Those of this request; the transport adds those of the client."""


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


# Why a request got no answer


class Failure(Exception):
    """A request got no answer."""

    repeatable = True
    """Whether a repetition may help."""
    stale = False
    """The connection had lain idle, and was closed before the request was sent: it never got to the server."""


class NotReached(Failure):
    """No connection."""


class Broken(Failure):
    """The connection broke before the answer was whole."""

    def __init__(self, reason: str, *, stale: bool = False) -> None:
        super().__init__(reason)
        self.stale = stale


class Late(Failure):
    """No answer in time. The server is busy as it is: it is not asked again."""

    repeatable = False


class LateToConnect(Late):
    """No connection in time."""

    repeatable = True


class PastDeadline(Failure):
    """The time for the whole call is over."""

    repeatable = False


class NoneFree(Failure):
    """All connections were in use for as long as a request may wait."""

    repeatable = False


class Insecure(Failure):
    """TLS failed: the certificate, or no TLS at all behind this port."""

    repeatable = False


class NotHttp(Failure):
    """Whatever answers there does not speak HTTP/1.1."""

    repeatable = False
