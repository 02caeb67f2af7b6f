"""uvicorn's HTTP protocol, with head and body of an answer in one write.

uvicorn gives the transport the head of a response and then its body, and uvloop makes a system call of each. For an
answer of some hundred bytes the second call is a tenth of all the work. So the head is held back until the body
follows, which in this server is at once.

Only what passes through the transport is changed; should uvicorn write otherwise one day, it is passed on as it comes.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

JOINED_BYTES = 64 * 1024
"""Bodies above that are not worth a copy; the transport takes both parts at once, too."""


class OneWriteProtocol(HttpToolsProtocol):
    """A connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _OneWriteTransport(transport)))

    def on_response_complete(self) -> None:
        cast("_OneWriteTransport", self.transport).flush()  # a response without a body
        super().on_response_complete()


class _OneWriteTransport:
    """A transport that joins the head of a response with what follows it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: bytes | None = None
        # What uvicorn asks for with each request, without a detour.
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        held = self._held
        if held is not None:
            self._held = None
            if len(data) < JOINED_BYTES:
                self._transport.write(held + data)
            else:
                self._transport.writelines((held, data))
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # 100: the client waits for it
            self._held = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send what is held."""
        if self._held is not None:
            held, self._held = self._held, None
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
