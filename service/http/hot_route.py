"""What the hot routes share: one path of one table, as plain ASGI.

    request ──► body within its limit ──► JSON or Arrow ──► `parts` of the route ──► answer, or problem details; counted

All requests share one thread. So whatever is long is cut: after every few hundred keys, others get a turn. A request
reads `table.serving` once: all of its answer is from one snapshot, whatever is swapped in meanwhile.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import Any

from stelae.encoding.key_batch import KeyValues
from stelae.errors import InvalidRequest, StelaeError
from stelae.read.projection import Projection
from stelae.read.table_reader import TableReader
from stelae.service.http.arrow_bodies import ARROW_CONTENT, Parameters, ReadThreads, is_arrow
from stelae.service.http.asgi import (
    JSON_CONTENT,
    ClientDisconnectedError,
    MethodNotAllowed,
    Receive,
    Scope,
    Send,
    header_of,
    parse_json_object,
    read_body,
    send_parts,
    send_problem,
)
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import DISCONNECTED, OperationCounts, ServerCounts
from stelae.service.tables.served_table import PIN, ForwardToOwner, OpenSnapshot, ServedTable, SnapshotNotOpen

logger = logging.getLogger("stelae.server")


class Route(ABC):
    """One path of one table."""

    methods: str
    members: Sequence[str]
    """What a JSON body may have."""
    parameters: Sequence[str]
    """What the query of an Arrow request may have."""
    operation: str

    def __init__(self, table: ServedTable, options: ServerOptions, counts: ServerCounts, threads: ReadThreads) -> None:
        self.table = table
        self.options = options
        self.counts = counts
        self.threads = threads

    @abstractmethod
    def answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The coroutine that answers."""

    async def answer_many(self, counts: OperationCounts, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with a body by `parts`, and count it."""
        started = perf_counter()
        self.counts.in_flight += 1
        try:
            await self.prepare(scope)
            body = await read_body(scope, receive, self.options.max_body_bytes)
            opened = self.open_snapshot(scope)  # the one that is current now: a body may take long to come
            if is_arrow(scope):
                content = ARROW_CONTENT
                parts = await self.arrow_parts(opened, Parameters.of(scope, self.parameters), body)
            else:
                content = JSON_CONTENT
                parts = await self.parts(opened, parse_json_object(scope, body, self.members))
            await send_parts(send, (content, opened.header), parts)
        except Exception as exc:
            await self.failed(counts, exc, send)
        else:
            counts.answered(perf_counter() - started)
        finally:
            self.counts.in_flight -= 1

    async def prepare(self, scope: Scope) -> None:
        """A request that can't be answered needs no body."""
        self.open_snapshot(scope)

    @abstractmethod
    async def parts(self, opened: OpenSnapshot, body: dict[str, Any]) -> list[bytes]:
        """The answer to a request with a body, in pieces."""

    @abstractmethod
    async def arrow_parts(self, opened: OpenSnapshot, parameters: Parameters, body: bytes) -> list[bytes]:
        """The same for a body that is an Arrow stream."""

    def open_snapshot(self, scope: Scope) -> OpenSnapshot:
        """The snapshot that the request gets: the one that it pins, or the current one."""
        pin = header_of(scope, PIN)
        if pin is not None:
            return self.table.pinned(pin)
        serving = self.table.serving
        if serving is None:
            raise self.table.unavailable()
        return serving.current

    async def wrong_method(self, scope: Scope, send: Send) -> None:
        error = MethodNotAllowed(
            f"{scope['method']} is no method of this path", place=scope["path"], hint=f"it has {self.methods}"
        )
        await self.failed(self.table.counts.operations[self.operation], error, send)

    async def failed(self, counts: OperationCounts, exc: Exception, send: Send) -> None:
        """Count what went wrong, and say it."""
        if isinstance(exc, ForwardToOwner):
            raise exc
        if isinstance(exc, SnapshotNotOpen):
            exc = await self.table.explain(exc.number)
        if isinstance(exc, UnicodeDecodeError):  # of the query string
            exc = InvalidRequest("the query is not UTF-8", place="query")
        if isinstance(exc, ClientDisconnectedError):
            counts.failed[DISCONNECTED] += 1
            return
        if not isinstance(exc, StelaeError):
            logger.error("%s: a request failed in a way that was not foreseen", self.table.name, exc_info=exc)
            exc = StelaeError("the server failed; its log says why", place=self.table.name)
        counts.failed[exc.type] += 1
        try:
            await send_problem(
                send,
                exc,
                retry_after_s=max(1, round(self.options.poll_interval_s)),
                allow=self.methods if isinstance(exc, MethodNotAllowed) else None,
            )
        except ClientDisconnectedError:
            counts.failed[DISCONNECTED] += 1


def parse_keys(keys: Sequence[object], start: int, stop: int, table: TableReader) -> list[KeyValues]:
    """Some keys of a batch; an error names the position of the key, `keys[3].user_id`."""
    from_json = table.key_from_json
    try:
        return [from_json(key) for key in keys[start:stop]]
    except InvalidRequest as first:
        for index in range(start, min(stop, len(keys))):
            try:
                from_json(keys[index])
            except InvalidRequest as exc:
                place = f"keys[{index}]"
                if exc.place and exc.place != "keys":
                    place += f".{exc.place}"
                raise InvalidRequest(exc.message, place=place, hint=exc.hint) from exc
        raise first from None


def projection_of(body: dict[str, Any], table: TableReader) -> Projection:
    """The columns that a body selects."""
    columns = body.get("columns")
    if columns is None:
        return table.all_columns
    if type(columns) is not list or not all(type(name) is str for name in columns):
        raise InvalidRequest("columns must be an array of names", place="columns")
    return table.projection(columns)
