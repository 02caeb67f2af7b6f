"""What both clients are: the settings they were made with, the operations of these, and how they are pickled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from stelae.client.operations import Operations
from stelae.client.settings import ClientSettings
from stelae.client.stats import ClientStats

if TYPE_CHECKING:
    import ssl

C = TypeVar("C", bound="ClientBase")


class ClientBase(ABC):
    """`Client` and `AsyncClient`, without what carries out their operations."""

    _settings: ClientSettings
    _operations: Operations

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = ClientSettings.timeout_s,
        deadline_s: float | None = ClientSettings.deadline_s,
        retries: int = ClientSettings.retries,
        batch_size: int = ClientSettings.batch_size,
        parallel: int = ClientSettings.parallel,
        connections: int = ClientSettings.connections,
        compression: str | None = ClientSettings.compression,
        headers: Mapping[str, str] | None = ClientSettings.headers,
        tls: ssl.SSLContext | None = ClientSettings.tls,
    ) -> None:
        """`url` is the server's, with a path in front of `/v1` if a proxy adds one.

        `timeout_s` bounds each wait: to connect, to send, for an answer. `deadline_s` bounds a whole call, repetitions
        and all. `batch_size` keys go into one request, more are split; `parallel` of the requests of one lookup are
        under way at a time. At most `connections` are open at a time. `compression="zstd"` compresses requests.
        `headers` go with every request (`Authorization`, ...). `tls` says whom to trust behind https, by default whom
        this machine trusts.
        """
        self._start(
            ClientSettings(
                url=url,
                timeout_s=timeout_s,
                deadline_s=deadline_s,
                retries=retries,
                batch_size=batch_size,
                parallel=parallel,
                connections=connections,
                compression=compression,
                headers=headers,
                tls=tls,
            )
        )

    def _start(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._operations = Operations(settings)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make ready for the first request; nothing is sent."""

    @property
    def url(self) -> str:
        return self._operations.requests.url

    @property
    def stats(self) -> ClientStats:
        """What this client has done so far."""
        return self._operations.requests.counters.snapshot()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self._settings)


def _made_again(kind: type[C], settings: ClientSettings) -> C:
    client = kind.__new__(kind)
    client._start(settings)
    return client
