"""The routes that are hot: lookups. Plain ASGI, and little of it on the way of one key.

    GET   /v1/tables/{table}/lookup?user_id=42        LookupRoute.one     query → key → row → JSON, in one go
    POST  /v1/tables/{table}/lookup                   LookupRoute         chunk by chunk
    POST  /v1/tables/{table}/prefix-lookup            PrefixLookupRoute   step by step

What a key, a row or a prefix is, `stelae/read/table_reader.py` knows; here are bytes in, bytes out and counts.
FastAPI would take 80 of the 115 microseconds that a point lookup through it takes, so it has the other routes only, and
the documentation of these (`service/http/openapi.py`).

What other hot routes do, too, is in `service/http/hot_route.py`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from orjson import dumps

from stelae.encoding.key_batch import KeyValues
from stelae.errors import InvalidRequest, TooLarge
from stelae.read.prefix_scan import structs_of
from stelae.read.projection import Projection
from stelae.read.table_reader import TableReader, check_batch_size
from stelae.service.http.arrow_bodies import (
    Parameters,
    ReadThreads,
    RowsForm,
    keys_of,
    looked_up,
    prefix_stream,
    prefixes,
)
from stelae.service.http.asgi import (
    JSON_CONTENT,
    LENGTHS,
    Receive,
    Scope,
    Send,
    length_header,
)
from stelae.service.http.hot_route import Route, parse_keys, projection_of
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import (
    BATCH_LOOKUP,
    BOUNDS_S,
    DISCONNECTED,
    LOOKUP,
    PREFIX_LOOKUP,
    ServerCounts,
)
from stelae.service.tables.served_table import PIN, TURN_KEYS, OpenSnapshot, ServedTable
from stelae.wire.http_api import COLUMNS_PARAMETER, DEFAULT_LIMIT, LIMIT_PARAMETER, PAGE_TOKEN_PARAMETER, ROWS_PARAMETER

MAX_QUERY_PARAMETERS = 1000


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
                projection = opened.all_columns
            else:
                key, projection = parse_query(query, opened.reader.table)
            row = opened.find(key)
            found = None if row is None else projection.row(key, row)
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
        projection = projection_of(body, reader.table)
        missing = 0
        parts: list[bytes] = []
        for start in range(0, len(keys), TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            rows = reader.lookup_many(parse_keys(keys, start, start + TURN_KEYS, reader.table), projection)
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
        projection = projection_of(body, reader.table)
        limit = self._limit(body.get("limit"))
        token = body.get("page_token")
        if token is not None and type(token) is not str:
            raise InvalidRequest("page_token must be a string", place="page_token")
        scan = reader.prefix_scan(prefix, projection, limit, token)
        parts: list[bytes] = []
        rows = scan.step(TURN_KEYS)
        while True:
            if rows:
                parts.append(dumps(rows))
            if scan.done:
                break
            await asyncio.sleep(0)
            rows = scan.step(TURN_KEYS)
        return joined_rows(parts, b',"next_page_token":' + dumps(scan.next_page_token) + opened.tail)

    async def arrow_parts(self, opened: OpenSnapshot, parameters: Parameters, body: bytes) -> list[bytes]:
        reader = opened.reader
        projection = reader.table.projection(parameters.columns)
        limit = self._limit(parameters.limit)
        asked = await prefixes(body, reader.table, self.options.max_body_bytes, self.threads)
        check_batch_size(len(asked), self.options.max_batch_keys, "prefixes", "--max-batch-keys")
        scan = reader.prefixes_scan(asked, limit, parameters.page_token)
        pages: list[tuple[Sequence[int], pa.Array]] = []
        while True:
            found = scan.step(TURN_KEYS)
            if found:
                pages.append(structs_of(reader.table, found, projection))
            if scan.done:
                break
            await asyncio.sleep(0)
        return prefix_stream(pages, projection, reader.id, scan.next_page_token)

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
    projection = table.projection(None if columns is None else columns.split(",") if columns else [])
    return table.key_from_text(values), projection


def joined_rows(arrays: list[bytes], tail: bytes) -> list[bytes]:
    """`{"rows": [...]` and the tail, of the JSON arrays of all chunks. In parts: a large copy would hold others up."""
    if not arrays:
        return [b'{"rows":[]' + tail]
    last = len(arrays) - 1
    parts = [(b"," if i else b'{"rows":[') + array[1:-1] for i, array in enumerate(arrays)]
    parts[last] += b"]" + tail
    return parts
