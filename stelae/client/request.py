"""One request of a client, and the ways in which it gets no answer. No I/O.

Whoever carries requests out (`connection_pool.py` over sockets, `async_client.py` over aiohttp) takes a `Request` and
gives a `Response` (`http1.py`) or raises a `Failure`. What a Failure says of itself is all that `retry.py` needs to
decide whether to ask again, and `exchange.py` to say what went wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    """Path and query, from `/v1` on; ASCII."""
    body: bytes | pa.Buffer | None = None
    headers: Mapping[str, str] | None = None
    """Those of this request; the transport adds those of the client."""


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
