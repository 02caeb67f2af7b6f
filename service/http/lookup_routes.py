"""The routes that are hot: lookups. Plain ASGI, and little of it on the way of one key.

    GET   /v1/tables/{table}/lookup?user_id=42        LookupRoute.one     query → key → row → JSON, in one go
    POST  /v1/tables/{table}/lookup                   LookupRoute         chunk by chunk
    POST  /v1/tables/{table}/prefix-lookup            PrefixLookupRoute   step by step

What a key, a row or a prefix is, `stelae/read/table_reader.py` knows; here are bytes in, bytes out and counts.
FastAPI would take 80 of the 115 microseconds that a point lookup through it takes, so it has the other routes only, and
the documentation of these (`service/http/openapi.py`).

All requests share one thread. So whatever is long is cut: after every few hundred keys, others get a turn. A request
reads `table.serving` once: all of its answer is from one snapshot, whatever is swapped in meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pyarrow as pa

from stelae.encoding.key_batch import KeyValues
from stelae.errors import InvalidRequest, StelaeError, TooLarge
from stelae.read.prefix_scan import structs_of
from stelae.read.projection import Projection
from stelae.read.table_reader import TableReader, check_batch_size
from stelae.service.http.arrow_bodies import (
    ARROW_CONTENT,
    Parameters,
    ReadThreads,
    RowsForm,
    is_arrow,
    keys_of,
    looked_up,
    prefix_stream,
    prefixes,
)
from stelae.service.http.asgi import (
    JSON_CONTENT,
    LENGTHS,
    ClientDisconnectedError,
    MethodNotAllowed,
    Receive,
    Scope,
    Send,
    header_of,
    length_header,
    parse_json_object,
    read_body,
    send_parts,
    send_problem,
)
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import (
    BATCH_LOOKUP,
    BOUNDS_S,
    DISCONNECTED,
    LOOKUP,
    PREFIX_LOOKUP,
    OperationCounts,
    ServerCounts,
)
from stelae.service.tables.served_table import PIN, ForwardToOwner, OpenSnapshot, ServedTable, SnapshotNotOpen
from stelae.wire.http_api import COLUMNS_PARAMETER, DEFAULT_LIMIT, LIMIT_PARAMETER, PAGE_TOKEN_PARAMETER, ROWS_PARAMETER

logger = logging.getLogger("stelae.server")

CHUNK_KEYS = 256
"""Keys of a batch, or stored rows of a scan, between two turns of other requests: about a millisecond."""
MAX_QUERY_PARAMETERS = 1000

dumps = orjson.dumps


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


class LookupRoute(Route):
    """One row by its key, or many by theirs."""

    methods = "GET, HEAD, POST"
    members = ("keys", "columns")
    parameters = (COLUMNS_PARAMETER, ROWS_PARAMETER)
    operation = LOOKUP

    def __init__(self, table: ServedTable, options: ServerOptions, counts: ServerCounts, threads: ReadThreads) -> None:
        super().__init__(table, options, counts, threads)
        self._counts = table.counts
        self._one = table.counts.operations[LOOKUP]
        self._many = table.counts.operations[BATCH_LOOKUP]

    def answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        if method == "GET" or method == "HEAD":  # half the time of `in`
            return self.one(scope, send)
        if method == "POST":
            return self.answer_many(self._many, scope, receive, send)
        return self.wrong_method(scope, send)

    async def one(self, scope: Scope, send: Send) -> None:
        started = perf_counter()
        table = self.table
        try:
            serving = table.serving
            if serving is None:
                raise table.unavailable()
            opened = serving.current
            for name, value in scope["headers"]:
                if name == PIN:
                    opened = table.pinned(value)
                    break
            query: str = scope["query_string"].decode()
            column, _, text = query.partition("=")
            if text and column == opened.one_key_column and not ("&" in text or "%" in text or "+" in text):
                key = (opened.one_key_from_text(text, column),)
                shape = opened.all_columns
            else:
                key, shape = parse_query(query, opened.reader.table)
            row = opened.find(key)
            found = None if row is None else shape.row(key, row)
            body = opened.missing if found is None else b'{"found":true,"row":' + dumps(found) + opened.tail
            length = len(body)
            headers = (JSON_CONTENT, LENGTHS[length] if length < 4096 else length_header(length), opened.header)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        except OSError:
            self._one.failed[DISCONNECTED] += 1
        except Exception as exc:
            await self.failed(self._one, exc, send)
        else:
            # As `answered`, without the call.
            if found is None:
                self._counts.missing += 1
            counts = self._one
            seconds = perf_counter() - started
            counts.seconds += seconds
            counts.durations[bisect_left(BOUNDS_S, seconds)] += 1

    async def parts(self, opened: OpenSnapshot, body: dict[str, Any]) -> list[bytes]:
        reader = opened.reader
        keys = body.get("keys")
        if type(keys) is not list:
            raise InvalidRequest("keys must be an array", place="keys", hint='such as {"keys": [...]}')
        check_batch_size(len(keys), self.options.max_batch_keys, "keys", "--max-batch-keys")
        shape = shape_of(body, reader.table)
        missing = 0
        parts: list[bytes] = []
        for start in range(0, len(keys), CHUNK_KEYS):
            if start:
                await asyncio.sleep(0)
            rows = reader.lookup_many(parse_keys(keys, start, start + CHUNK_KEYS, reader.table), shape)
            missing += rows.count(None)
            parts.append(dumps(rows))
        # Not before: a follower may find out late that another process has to answer, which counts, too.
        self.table.counts.missing += missing
        self.table.counts.batch_keys += len(keys)
        return joined_rows(parts, opened.tail)

    async def arrow_parts(self, opened: OpenSnapshot, parameters: Parameters, body: bytes) -> list[bytes]:
        reader = opened.reader
        form = RowsForm(reader.table.projection(parameters.columns), parameters.encoded)
        keys = await keys_of(body, reader.table, self.options.max_body_bytes, self.threads)
        check_batch_size(len(keys), self.options.max_batch_keys, "keys", "--max-batch-keys")
        parts, missing = await looked_up(reader, keys, form, self.threads)
        counts = self.table.counts
        counts.missing += missing
        counts.batch_keys += len(keys)
        return parts


class PrefixLookupRoute(Route):
    """Rows whose keys start alike."""

    methods = "POST"
    members = ("prefix", "limit", "page_token", "columns")
    parameters = (COLUMNS_PARAMETER, LIMIT_PARAMETER, PAGE_TOKEN_PARAMETER)
    operation = PREFIX_LOOKUP

    def __init__(self, table: ServedTable, options: ServerOptions, counts: ServerCounts, threads: ReadThreads) -> None:
        super().__init__(table, options, counts, threads)
        self._counts = table.counts.operations[PREFIX_LOOKUP]

    def answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["method"] == "POST":
            return self.answer_many(self._counts, scope, receive, send)
        return self.wrong_method(scope, send)

    async def parts(self, opened: OpenSnapshot, body: dict[str, Any]) -> list[bytes]:
        reader = opened.reader
        if "prefix" not in body:
            raise InvalidRequest(
                "the body lacks prefix", place="prefix", hint='an empty one, {"prefix": {}}, is that of all rows'
            )
        prefix = reader.table.prefix_from_json(body["prefix"])
        shape = shape_of(body, reader.table)
        limit = self._limit(body.get("limit"))
        token = body.get("page_token")
        if token is not None and type(token) is not str:
            raise InvalidRequest("page_token must be a string", place="page_token")
        scan = reader.prefix_scan(prefix, shape, limit, token)
        parts: list[bytes] = []
        rows = scan.step(CHUNK_KEYS)
        while True:
            if rows:
                parts.append(dumps(rows))
            if scan.done:
                break
            await asyncio.sleep(0)
            rows = scan.step(CHUNK_KEYS)
        return joined_rows(parts, b',"next_page_token":' + dumps(scan.next_page_token) + opened.tail)

    async def arrow_parts(self, opened: OpenSnapshot, parameters: Parameters, body: bytes) -> list[bytes]:
        reader = opened.reader
        shape = reader.table.projection(parameters.columns)
        limit = self._limit(parameters.limit)
        asked = await prefixes(body, reader.table, self.options.max_body_bytes, self.threads)
        check_batch_size(len(asked), self.options.max_batch_keys, "prefixes", "--max-batch-keys")
        scan = reader.prefixes_scan(asked, limit, parameters.page_token)
        pages: list[tuple[Sequence[int], pa.Array]] = []
        while True:
            found = scan.step(CHUNK_KEYS)
            if found:
                pages.append(structs_of(reader.table, found, shape))
            if scan.done:
                break
            await asyncio.sleep(0)
        return prefix_stream(pages, shape, reader.id, scan.next_page_token)

    def _limit(self, limit: object) -> int:
        """Rows of the page."""
        if limit is None:
            limit = min(DEFAULT_LIMIT, self.options.max_page_rows)
        if type(limit) is not int:
            raise InvalidRequest("limit must be a whole number", place="limit")
        if limit > self.options.max_page_rows:
            raise TooLarge(
                f"limit is {limit:,}, at most {self.options.max_page_rows:,} rows are in a page",
                place="limit",
                hint="ask for the next page with next_page_token, or raise --max-page-rows",
            )
        return limit


def parse_query(query: str, table: TableReader) -> tuple[KeyValues, Projection]:
    """Key and columns of a point lookup."""
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except UnicodeDecodeError:
        raise
    except ValueError as exc:
        raise InvalidRequest(f"the query can't be read: {exc}", place="query", hint="expected column=value") from exc
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(
            f"{twice!r} is there twice", place=twice, hint="one value a column; several keys: POST them"
        )
    columns = None
    # A key column of that name is the key; then columns are selected by POST only.
    if COLUMNS_PARAMETER in values and COLUMNS_PARAMETER not in table.schema.primary_key:
        columns = values.pop(COLUMNS_PARAMETER)
    shape = table.projection(None if columns is None else columns.split(",") if columns else [])
    return table.key_from_text(values), shape


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


def shape_of(body: dict[str, Any], table: TableReader) -> Projection:
    """The columns that a body selects."""
    columns = body.get("columns")
    if columns is None:
        return table.all_columns
    if type(columns) is not list or not all(type(name) is str for name in columns):
        raise InvalidRequest("columns must be an array of names", place="columns")
    return table.projection(columns)


def joined_rows(arrays: list[bytes], tail: bytes) -> list[bytes]:
    """`{"rows": [...]` and the tail, of the JSON arrays of all chunks. In parts: a large copy would hold others up."""
    if not arrays:
        return [b'{"rows":[]' + tail]
    last = len(arrays) - 1
    parts = [(b"," if i else b'{"rows":[') + array[1:-1] for i, array in enumerate(arrays)]
    parts[last] += b"]" + tail
    return parts
