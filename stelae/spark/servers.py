"""The servers that a lookup asks: all of one warehouse, so that any of them gives the same rows. Driver and workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stelae.errors import InvalidRequest, Unavailable
from stelae.spark.options import LookupOptions

if TYPE_CHECKING:
    from stelae.client.client import Client
    from stelae.client.results import TableInfo


@dataclass(frozen=True)
class Servers:
    """Who is asked, and how patiently."""

    urls: tuple[str, ...]
    """Servers of the same warehouse; a worker stays with one until it fails."""
    timeout_s: float
    deadline_s: float
    """How long a request is repeated while no server can answer it."""
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, url: str | Sequence[str], options: LookupOptions) -> Servers:
        urls = (url,) if isinstance(url, str) else tuple(url)
        if not urls:
            raise InvalidRequest("no URL of a tablet server", place="url", hint="such as http://localhost:8000")
        return cls(urls, options.timeout_s, options.deadline_s, tuple(sorted((options.headers or {}).items())))

    def describe(self, table: str) -> TableInfo:
        """The table, as the first server that can be reached has it."""
        last = len(self.urls) - 1
        for number in range(last):
            with suppress(Unavailable):
                return self.client(number).describe(table)
        return self.client(last).describe(table)

    def client(self, number: int) -> Client:
        """The client of one of the servers; connections stay open as long as the worker lives."""
        from stelae.client.client import Client

        url = self.urls[number % len(self.urls)]
        key = (url, self.timeout_s, self.headers)
        if key not in _clients:
            # The lookup says how large requests are: the client never splits them.
            _clients[key] = Client(url, timeout_s=self.timeout_s, headers=dict(self.headers), batch_size=1 << 30)
        return _clients[key]


_clients: dict[Any, Client] = {}


def retries_of_clients() -> int:
    """What the clients of this worker have repeated by themselves so far."""
    return sum(client.stats.retries for client in _clients.values())
