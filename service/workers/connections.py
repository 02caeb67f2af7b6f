"""Connections of one port, handed out to the processes of a server.

    listening socket ──► Acceptor, in the leader ──► the process that has the fewest ──► sendmsg(SCM_RIGHTS)
                                                                                    └──► its event loop

The leader accepts, and passes the file descriptor on over a Unix socket; the other end answers with how many it has
closed. So connections are even to within one, whatever the kernel does: a shared listening socket gives most to the
process that happens to be awake, SO_REUSEPORT throws dice, and loses what is in the queue of a process that dies
(docs/decisions/0020-workers.md has the figures). Passing one takes some 20 microseconds, once a connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import uvicorn

logger = logging.getLogger("stelae.server")

ACCEPTS_AT_A_TIME = 64
"""Connections that are accepted before others get a turn."""
OUT_OF_FILES_S = 0.5
"""How long nobody is accepted when this process has no file descriptors left."""
AGAIN_S = 0.01
CLOSED = struct.Struct("<I")


class Target(Protocol):
    """Where connections can go."""

    @property
    def connections(self) -> int:
        """How many it has."""

    def take(self, connection: socket.socket) -> bool:
        """Take one more, which is this target's from then on; False if it can't."""


class OwnTarget:
    """The event loop of this process."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._server = server
        self._beginning: set[asyncio.Task[Any]] = set()

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections) + len(self._beginning)

    def take(self, connection: socket.socket) -> bool:
        config = self._server.config
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self._server.server_state, app_state=self._server.lifespan.state
            )
            return made

        task = asyncio.create_task(_begin(loop, protocol, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return True


class FollowerTarget:
    """The leader's end to a follower."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._connections = 0
        self._end = end
        asyncio.get_running_loop().add_reader(end, self._closed)

    @property
    def connections(self) -> int:
        return self._connections

    def take(self, connection: socket.socket) -> bool:
        try:
            socket.send_fds(self._end, [b"\0"], [connection.fileno()])
        except OSError:
            return False  # it is gone, or does not read
        connection.close()
        self._connections += 1
        return True

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()

    def _closed(self) -> None:
        """The follower says how many it has closed."""
        while True:
            try:
                message = self._end.recv(CLOSED.size)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if len(message) < CLOSED.size:
                asyncio.get_running_loop().remove_reader(self._end)  # it ended; who started it sees to that
                return
            self._connections -= CLOSED.unpack(message)[0]


class ReceivedConnections:
    """The follower's end."""

    def __init__(self, end: socket.socket, target: OwnTarget, lost: Callable[[], None]) -> None:
        end.setblocking(False)
        self._end = end
        self._target = target
        self._lost = lost
        self._unsaid = 0
        asyncio.get_running_loop().add_reader(end, self.take_all)

    def take_all(self) -> None:
        """Take what has come."""
        while True:
            try:
                message, files, _, _ = socket.recv_fds(self._end, 1, 1)
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in (errno.EMFILE, errno.ENFILE):
                    logger.error("no file descriptor is left for a connection")
                    return
                message, files = b"", []
            if files:
                self._target.take(socket.socket(fileno=files[0]))
            elif message:
                self.closed()  # the kernel had no descriptor for it
            else:
                self._lost()
                return

    def stop(self) -> None:
        """Take no more."""
        self.take_all()
        asyncio.get_running_loop().remove_reader(self._end)

    def closed(self) -> None:
        """A connection ended."""
        self._unsaid += 1
        if self._unsaid == 1:
            asyncio.get_running_loop().call_soon(self._say)

    def _say(self) -> None:
        try:
            self._end.send(CLOSED.pack(self._unsaid))
        except BlockingIOError:
            asyncio.get_running_loop().call_later(AGAIN_S, self._say)
        except OSError:
            pass  # the leader is gone, which its control socket says
        else:
            self._unsaid = 0


class Acceptor:
    """Accepts connections of a listening socket and hands them out."""

    def __init__(self, listening: socket.socket, own: OwnTarget, others: Callable[[], Sequence[Target]]) -> None:
        """`others` says which targets there are now, besides this process."""
        listening.setblocking(False)
        self._listening = listening
        self._own = own
        self._others = others
        self._turn = 0
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more."""
        self._open = False
        self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_A_TIME):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as exc:
                logger.error("connections can't be accepted: %s", exc)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(OUT_OF_FILES_S, self._again)
                return
            self._hand_out(connection)

    def _again(self) -> None:
        if self._open:
            self._loop.add_reader(self._listening, self._accept)

    def _hand_out(self, connection: socket.socket) -> None:
        targets: list[Target] = [self._own, *self._others()]
        self._turn += 1
        first = self._turn % len(targets)  # of those with equally many
        for target in sorted(targets[first:] + targets[:first], key=lambda target: target.connections):
            if target.take(connection):
                return


async def _begin(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], asyncio.Protocol], connection: socket.socket
) -> None:
    try:
        await loop.connect_accepted_socket(protocol, connection)
    except OSError:
        connection.close()
