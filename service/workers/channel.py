"""Messages between the processes of one server: objects, over a Unix socket that both have from birth.

    | length u32 | pickle |

Pickle, since both ends are our own, of the same version, and nobody else has the socket. Messages arrive in the order
in which they were sent. When the other process ends, however it ends, the kernel closes its end: `lost` is called once.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

MESSAGE_LENGTH = struct.Struct("<I")


class Channel(asyncio.Protocol):
    """One end."""

    def __init__(self, received: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    async def begin(self, end: socket.socket) -> None:
        """On this end of a socket pair, which it owns from then on."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def send(self, message: object) -> int:
        """Send a message; to a process that is gone, too, which changes nothing. Returns its length."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(MESSAGE_LENGTH.pack(len(data)) + data)
        return len(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= MESSAGE_LENGTH.size:
            (length,) = MESSAGE_LENGTH.unpack_from(buffer, start)
            end = start + MESSAGE_LENGTH.size + length
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                message = pickle.loads(view[start + MESSAGE_LENGTH.size : end])  # noqa: S301 (from our own process)
            start = end
            self._received(message)
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._lost()
