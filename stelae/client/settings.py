"""What a client is made with: its settings, checked once, and the address of its server.

Both clients take the fields of `ClientSettings` as arguments, by name, with the same defaults.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from stelae.declared_options import declared, option
from stelae.errors import InvalidRequest
from stelae.version import __version__


@dataclass(frozen=True)
class ClientSettings:
    """What a client was made with. docs/client.md#settings has the table of these."""

    url: str
    timeout_s: float = option(
        10.0, "Longest wait to connect, to send, for an answer, for a free connection.", unit="seconds"
    )
    deadline_s: float | None = option(
        None,
        "Longest time for a whole call, all its requests and repetitions. A page of `prefix_scan` is a call.",
        unit="seconds",
    )
    retries: int = option(
        2,
        "How often a request is repeated when the connection fails or the server answers 429, 502, 503 or 504.",
        unit="requests",
        least=0,
    )
    batch_size: int = option(
        10_000,
        "Keys of one request: what a tablet server takes unless it is told otherwise. More keys are split.",
        unit="keys",
        shown="10,000",
        least=1,
    )
    parallel: int = option(
        1,
        "How many requests of one lookup of more than `batch_size` keys are under way at a time. Worth it where the "
        "server has several workers.",
        unit="requests",
        least=1,
    )
    connections: int = option(
        16, "Most connections at a time; threads that find none free wait.", unit="connections", least=1
    )
    compression: str | None = option(
        None, '`"zstd"` compresses requests of more than 1,000 bytes: for slow networks, not for this machine.'
    )
    headers: Mapping[str, str] | None = option(None, "Sent with every request, such as `Authorization`.")
    tls: ssl.SSLContext | None = option(
        None,
        "An `ssl.SSLContext` for `https` URLs, by default one that trusts what this machine trusts. A client that has "
        "one can't be pickled.",
    )

    def __post_init__(self) -> None:
        for each in declared(ClientSettings):
            value = getattr(self, each.name)
            if each.least is not None and not value >= each.least:
                raise InvalidRequest(f"{each.name} must be at least {each.least}, not {value}", place=each.name)
        for name in ("timeout_s", "deadline_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise InvalidRequest(f"{name} must be above 0, not {seconds}", place=name)
        if self.compression not in (None, "zstd"):
            raise InvalidRequest(
                f"compression can't be {self.compression!r}", place="compression", hint="'zstd', or None"
            )
        object.__setattr__(self, "headers", checked_headers(self.headers))

    def all_headers(self) -> dict[str, str]:
        """Those that go with every request."""
        given = dict(self.headers or {})
        own = {} if "user-agent" in map(str.lower, given) else {"User-Agent": f"stelae/{__version__}"}
        return own | given

    def __getstate__(self) -> dict[str, Any]:
        if self.tls is not None:
            raise InvalidRequest(
                "a client with tls= does not travel to another process", place="tls", hint="make one there"
            )
        return self.__dict__


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is."""

    url: str
    """As given, without a slash at its end."""
    secure: bool
    host: str
    port: int
    authority: str
    """What the header `Host` says."""
    path: str
    """In front of `/v1`, where a proxy adds one."""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        example = "such as http://localhost:8000"
        try:
            parsed = urlsplit(url)
            host, port = parsed.hostname, parsed.port
            ascii_host = host.encode("ascii" if host.isascii() else "idna").decode() if host else ""
        except (ValueError, TypeError, AttributeError) as exc:
            raise InvalidRequest(f"not a URL: {url!r}", place="url", hint=example) from exc
        if parsed.scheme not in ("http", "https") or not host or any(ord(c) <= 32 or ord(c) == 127 for c in url):
            raise InvalidRequest(f"not the URL of a tablet server: {url!r}", place="url", hint=example)
        if "?" in url or "#" in url or "@" in parsed.netloc:
            raise InvalidRequest(
                f"a tablet server has a URL without user, query and fragment, not {url!r}", place="url", hint=example
            )
        secure = parsed.scheme == "https"
        shown = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
        authority = shown if port is None else f"{shown}:{port}"
        path = quote(parsed.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        return cls(
            url.rstrip("/"), secure, ascii_host, port if port is not None else 443 if secure else 80, authority, path
        )


def checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Header fields of a caller, which must not be more than they seem."""
    checked: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidRequest(f"a header maps text to text, not {name!r} to {value!r}", place="headers")
        wrong = not name or not name.isascii() or any(c <= " " or c in ':"(),/;<=>?@[\\]{}\x7f' for c in name)
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            wrong = True
        if wrong or any(c in value for c in "\r\n\0"):
            raise InvalidRequest(f"not a header field: {name!r}", place="headers", hint="no line breaks, Latin-1 only")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise InvalidRequest(f"header {name} is the client's own", place="headers")
        checked[name] = value
    return checked
