"""Requests and answers that are Arrow streams, and the threads that answer them.

    body ──► key columns, checked once ──► parts ──► threads: key bytes, multi-get, rows, a record batch each ──► stream

RocksDB releases the GIL while it reads, and so does much of Arrow: a batch is looked up by two threads at a time, and
requests of one key are answered in between. The schema of an answer, each of its batches and the mark of its end are
messages of their own, so a thread makes the bytes of its batch.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import pyarrow as pa

from stelae.encoding.key_batch import KeyColumns, prefixes_of
from stelae.errors import InvalidRequest
from stelae.read.projection import Projection
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
from stelae.service.http.asgi import INLINE_BYTES, Header, Scope, header_of
from stelae.wire.arrow_stream import END, PREFIX, ROW, read_keys, rows_schema
from stelae.wire.http_api import (
    ARROW,
    COLUMNS_PARAMETER,
    ENCODED,
    LIMIT_PARAMETER,
    PAGE_TOKEN_PARAMETER,
    ROWS_PARAMETER,
    TYPED,
)

ARROW_CONTENT: Header = (b"content-type", ARROW.encode())

READ_THREADS = max(1, min(4, os.cpu_count() or 1))
INLINE_KEYS = 48
"""So many keys take less time than to wake a thread."""
MIN_PART_KEYS, MAX_PART_KEYS = 250, 1024
"""Keys that a thread looks up at a time: what it does with the GIL held takes a tenth of a millisecond, then."""
INDEXED_TURN_KEYS = 1024
"""Keys that are found by a hash index between two turns of other requests: a third of a millisecond, which a thread
would spend with the GIL held for the most part.
"""

P = TypeVar("P")
R = TypeVar("R")


def is_arrow(scope: Scope) -> bool:
    """Whether the body of a request is an Arrow stream."""
    content = header_of(scope, b"content-type")
    return content is not None and content.partition(b";")[0].strip().lower() == ARROW.encode()


@dataclass(frozen=True, slots=True)
class Parameters:
    """What an Arrow request has in its query."""

    columns: tuple[str, ...] | None = None
    encoded: bool = False
    limit: int | None = None
    page_token: str | None = None

    @classmethod
    def of(cls, scope: Scope, known: Sequence[str]) -> Parameters:
        """Those of a request to an operation that knows these."""
        query: str = scope["query_string"].decode()
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
        except UnicodeDecodeError:
            raise
        except ValueError as exc:
            raise InvalidRequest(f"the query can't be read: {exc}", place="query", hint="expected name=value") from exc
        values = dict(pairs)
        for name in values:
            if name not in known:
                raise InvalidRequest(
                    f"unknown parameter {name!r}",
                    place=name,
                    hint=f"known are: {', '.join(known)}; keys are in the body",
                )
        if len(values) != len(pairs):
            raise InvalidRequest("a parameter is there twice", place="query")
        columns, rows, limit = (
            values.get(COLUMNS_PARAMETER),
            values.get(ROWS_PARAMETER, TYPED),
            values.get(LIMIT_PARAMETER),
        )
        if rows not in (TYPED, ENCODED):
            raise InvalidRequest(f"rows is {rows!r}", place=ROWS_PARAMETER, hint=f"expected {TYPED} or {ENCODED}")
        if rows == ENCODED and columns is not None:
            raise InvalidRequest(
                "encoded rows are whole rows",
                place=COLUMNS_PARAMETER,
                hint=f"leave columns out, or ask for rows={TYPED}",
            )
        if limit is not None and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            raise InvalidRequest(f"limit must be a whole number, not {limit[:20]!r}", place=LIMIT_PARAMETER)
        return cls(
            None if columns is None else tuple(columns.split(",")) if columns else (),
            rows == ENCODED,
            None if limit is None else int(limit),
            values.get(PAGE_TOKEN_PARAMETER),
        )


class ReadThreads:
    """Threads that batches are looked up in, those of all tables. A request has as many parts in work as there are
    threads: one of many keys does not keep a small one waiting.
    """

    def __init__(self, count: int = READ_THREADS) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, "stelae-read")

    async def one(self, work: Callable[[], R]) -> R:
        """Do one thing."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def each(self, work: Callable[[P], R], parts: Sequence[P]) -> list[R]:
        """Do the same with each part; results in their order."""
        loop = asyncio.get_running_loop()
        results: list[R] = []
        running: deque[asyncio.Future[R]] = deque()
        try:
            for part in parts:
                if len(running) == self._count:
                    results.append(await running.popleft())
                running.append(loop.run_in_executor(self._pool, work, part))
            while running:
                results.append(await running.popleft())
        finally:
            for left in running:
                left.cancel()
        return results

    def keys_a_part(self, keys: int) -> int:
        """How many keys of a request one thread takes at a time."""
        return max(MIN_PART_KEYS, min(MAX_PART_KEYS, -(-keys // self._count)))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def keys_of(body: bytes, table: TableReader, most_bytes: int, threads: ReadThreads) -> KeyColumns:
    """The keys in a body."""

    def read() -> KeyColumns:
        return KeyColumns.of(table.layout, read_keys(body, most_bytes))

    return read() if len(body) <= INLINE_BYTES else await threads.one(read)


async def prefixes(body: bytes, table: TableReader, most_bytes: int, threads: ReadThreads) -> list[dict[str, Any]]:
    """The prefixes in a body, as `SnapshotReader.prefixes_scan` takes them."""

    def read() -> list[dict[str, Any]]:
        return prefixes_of(table.layout, read_keys(body, most_bytes))

    return read() if len(body) <= INLINE_BYTES else await threads.one(read)


@dataclass(frozen=True, slots=True)
class RowsForm:
    """The form of rows that a request asks for."""

    projection: Projection
    encoded: bool

    @property
    def type(self) -> pa.DataType:
        return pa.binary() if self.encoded else self.projection.type

    def column(self, keys: KeyColumns, rows: pa.Array) -> pa.Array:
        """The column `row` of an answer."""
        return rows if self.encoded else self.projection.structs(keys.arrays, rows)


async def looked_up(
    reader: SnapshotReader, keys: KeyColumns, form: RowsForm, threads: ReadThreads
) -> tuple[list[bytes], int]:
    """The answer to a lookup, as parts of a stream, and how many keys have no row."""
    schema = rows_schema(form.type, reader.id)

    def answer(part: KeyColumns) -> tuple[bytes, int]:
        rows = reader.rows_of(part)
        return message([form.column(part, rows)], schema), rows.null_count

    if len(keys) <= INLINE_KEYS:
        answers = [answer(keys)]
    elif reader.is_indexed:
        answers = []
        for start in range(0, len(keys), INDEXED_TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            answers.append(answer(keys[start : start + INDEXED_TURN_KEYS]))
    else:
        size = threads.keys_a_part(len(keys))
        answers = await threads.each(answer, [keys[at : at + size] for at in range(0, len(keys), size)])
    return stream(schema, [batch for batch, _ in answers]), sum(missing for _, missing in answers)


def message(columns: Sequence[pa.Array], schema: pa.Schema) -> bytes:
    """The message of one record batch."""
    encoded: bytes = pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()
    return encoded


def stream(schema: pa.Schema, messages: Sequence[bytes]) -> list[bytes]:
    """A stream, in parts."""
    return [schema.serialize().to_pybytes(), *messages, END]


def prefix_stream(
    pages: Sequence[tuple[Sequence[int], pa.Array]], projection: Projection, snapshot: int, token: str | None
) -> list[bytes]:
    """The answer to a prefix lookup: numbers of prefixes and rows, piece by piece."""
    schema = rows_schema(projection.type, snapshot, prefix=True, token=token)
    if schema.names != [PREFIX, ROW]:
        raise AssertionError(schema.names)
    return stream(schema, [message([pa.array(numbers, pa.int32()), rows], schema) for numbers, rows in pages])
