"""What a client is made with: its settings, checked once, and the address of its server.

Both clients take the fields of `ClientSettings` as arguments, by name, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from stelae.errors import InvalidRequest
from stelae.version import __version__

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class ClientSettings:
    """What a client was made with; docs/client.md#settings."""

    url: str
    timeout_s: float = 10.0
    deadline_s: float | None = None
    retries: int = 2
    batch_size: int = 10_000
    parallel: int = 1
    connections: int = 16
    compression: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        for name, least in {"batch_size": 1, "parallel": 1, "connections": 1, "retries": 0}.items():
            if getattr(self, name) < least:
                raise InvalidRequest(f"{name} must be at least {least}, not {getattr(self, name)}", place=name)
        if not self.timeout_s > 0:
            raise InvalidRequest(f"timeout_s must be above 0, not {self.timeout_s}", place="timeout_s")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InvalidRequest(f"deadline_s must be above 0, not {self.deadline_s}", place="deadline_s")
        if self.compression not in (None, "zstd"):
            raise InvalidRequest(
                f"compression can't be {self.compression!r}", place="compression", hint="'zstd', or None"
            )
        object.__setattr__(self, "headers", checked_headers(self.headers))

    def all_headers(self) -> dict[str, str]:
        """Those that go with every request."""
        own = {"User-Agent": f"stelae/{__version__}"}
        given = {name.lower() for name in self.headers}
        return {name: value for name, value in own.items() if name.lower() not in given} | dict(self.headers)

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
