"""The route of insert-if-not-exists: keys in, their rows out, those that were not there inserted durably.

POST  /v1/tables/{table}/insert-if-not-exists     {"keys": [...], "columns": [...]}

keys ─┬─ answered before ──► their JSON, as it was                        service/http/row_cache.py
      └─ others ──► physical keys ──► rows, found or inserted ──► JSON    service/writes/insertion.py
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Sequence
from typing import Any

import pyarrow as pa
from orjson import dumps

from stelae.encoding.key_batch import KeyValues
from stelae.errors import InvalidRequest
from stelae.read.projection import JsonRow, Projection
from stelae.read.table_reader import TableReader, check_batch_size
from stelae.service.http.arrow_bodies import Parameters, ReadThreads, RowsForm, keys_of, message, stream
from stelae.service.http.asgi import Receive, Scope, Send, header_of
from stelae.service.http.hot_route import Route, parse_keys, projection_of
from stelae.service.http.row_cache import RowCache
from stelae.service.options import ServerOptions
from stelae.service.tables.counts import INSERT, ServerCounts
from stelae.service.tables.served_table import PIN, TURN_KEYS, OpenSnapshot
from stelae.service.writes.insertion import InsertOutcome
from stelae.service.writes.table_writer import TableWriter
from stelae.wire.arrow_stream import rows_schema
from stelae.wire.http_api import COLUMNS_PARAMETER, ROWS_PARAMETER, SNAPSHOT_HEADER

INSERTED, FOUND = b"true", b"false"
NO_ROW = b"null"
CACHED_SELECTIONS = 2
"""Selections of columns whose rows are remembered at a time."""


class InsertRoute(Route):
    """The rows of keys, inserted where they are not there."""

    methods = "POST"
    members = ("keys", "columns")
    parameters = (COLUMNS_PARAMETER, ROWS_PARAMETER)
    operation = INSERT

    def __init__(
        self,
        writer: TableWriter,
        options: ServerOptions,
        counts: ServerCounts,
        threads: ReadThreads,
    ) -> None:
        super().__init__(writer.served, options, counts, threads)
        self._writer = writer
        self._counts = self.table.counts.operations[INSERT]
        self._hot_of: OpenSnapshot | None = None
        self._hot: dict[tuple[str, ...] | None, RowCache] = {}
        """By selected columns."""

    def answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["method"] == "POST":
            return self.answer_many(self._counts, scope, receive, send)
        return self.wrong_method(scope, send)

    async def prepare(self, scope: Scope) -> None:
        """Own the table before the body is read: a refusal is told at once."""
        if header_of(scope, PIN) is not None:
            raise InvalidRequest(
                "an insert goes into the table as it is now", place=SNAPSHOT_HEADER, hint="leave the header out"
            )
        if self._writer.owner is None:
            await self._writer.open()

    async def parts(self, opened: OpenSnapshot, body: dict[str, Any]) -> list[bytes]:
        keys = body.get("keys")
        if type(keys) is not list:
            raise InvalidRequest("keys must be an array", place="keys", hint='such as {"keys": [...]}')
        check_batch_size(len(keys), self.options.max_batch_keys, "keys", "--max-batch-keys")
        flags = [FOUND] * len(keys)
        while True:
            hot, values = self._remembered(opened, keys, body)
            rows: list[bytes | None] = [None] * len(keys) if hot is None else hot.get_many(values)
            unknown = [index for index, row in enumerate(rows) if row is None] if None in rows else []
            if not unknown:
                return self._answer(rows, flags, opened)
            try:
                outcome, others = await self._inserted([keys[index] for index in unknown], body)
            except InvalidRequest:
                await self._parsed(keys)  # says which of all keys it is
                raise
            for index, row, inserted in zip(unknown, others, outcome.inserted, strict=True):
                rows[index] = row
                if inserted:
                    flags[index] = INSERTED
            if outcome.opened is opened:
                if hot is not None:
                    new = zip(unknown, others, strict=True)
                    hot.put_many([(values[index], row) for index, row in new if row != NO_ROW])
            elif len(unknown) < len(rows):
                opened = outcome.opened  # another snapshot came, and what was remembered is of the one before
                continue
            return self._answer(rows, flags, outcome.opened)

    async def arrow_parts(
        self,
        opened: OpenSnapshot,  # noqa: ARG002 - an insert goes into the table as it is when the keys are there
        parameters: Parameters,
        body: bytes,
    ) -> list[bytes]:
        self.open_table().projection(parameters.columns)  # what can't be answered is not inserted
        keys = await keys_of(body, self.open_table(), self.options.max_body_bytes, self.threads)
        check_batch_size(len(keys), self.options.max_batch_keys, "keys", "--max-batch-keys")
        outcome = await self._writer.insert(keys)
        reader = outcome.opened.reader
        form = RowsForm(reader.table.projection(parameters.columns), parameters.encoded)
        schema = rows_schema(form.type, reader.id, inserted=True)
        size = self.threads.keys_a_part(len(keys))

        def part(start: int) -> bytes:
            rows = pa.array(outcome.rows[start : start + size], pa.binary())
            inserted = pa.array(outcome.inserted[start : start + size])
            return message([form.column(keys[start : start + size], rows), inserted], schema)

        starts = range(0, len(keys), size)
        messages = [part(0)] if len(starts) == 1 else await self.threads.each(part, starts)
        new = outcome.inserted.count(True)
        self.table.counts.inserted += new
        self.table.counts.insert_found += len(keys) - new
        return stream(schema, messages)

    def _remembered(
        self, opened: OpenSnapshot, keys: Sequence[Any], body: dict[str, Any]
    ) -> tuple[RowCache | None, Sequence[Any]]:
        """Where rows of these keys may be remembered, and by which values; None if nowhere."""
        hot = self._hot_rows(opened, body.get("columns")) if keys else None
        values = None if hot is None else hot.values(keys)
        return (None, ()) if values is None else (hot, values)

    def _answer(self, rows: list[bytes | None], flags: list[bytes], opened: OpenSnapshot) -> list[bytes]:
        """The body. By now every key has its row, or `null`."""
        new = flags.count(INSERTED)
        self.table.counts.inserted += new
        self.table.counts.insert_found += len(flags) - new
        joined = b",".join(rows)  # type: ignore[arg-type]
        return [b'{"rows":[' + joined + b'],"inserted":[' + b",".join(flags) + b"]" + opened.tail]

    async def _inserted(self, keys: list[Any], body: dict[str, Any]) -> tuple[InsertOutcome, list[bytes]]:
        """The answer for keys, and its rows as JSON."""
        projection_of(body, self.open_table())  # what can't be answered is not inserted
        if len(keys) == 1:
            parsed = parse_keys(keys, 0, 1, self.open_table())
            outcome = await self._writer.insert_one(parsed[0])
        else:
            parsed = await self._parsed(keys)
            outcome = await self._writer.insert(parsed)
        rows = await self._as_json(outcome.rows, parsed, projection_of(body, outcome.opened.reader.table))
        return outcome, rows

    def open_table(self) -> TableReader:
        """The table as it is served now."""
        serving = self.table.serving
        if serving is None:
            raise self.table.unavailable()
        return serving.reader.table

    async def _parsed(self, keys: Sequence[Any]) -> list[KeyValues]:
        table = self.open_table()
        parsed: list[KeyValues] = []
        for start in range(0, len(keys), TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            parsed += parse_keys(keys, start, start + TURN_KEYS, table)
        return parsed

    async def _as_json(
        self, rows: Sequence[bytes | None], keys: Sequence[KeyValues], projection: Projection
    ) -> list[bytes]:
        answers: list[bytes] = []
        make = projection.row
        for start in range(0, len(rows), TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            some = [
                None if row is None else make(key, row)
                for key, row in zip(keys[start : start + TURN_KEYS], rows[start : start + TURN_KEYS], strict=True)
            ]
            answers += each_as_json(some)
        return answers

    def _hot_rows(self, opened: OpenSnapshot, columns: Any) -> RowCache | None:
        """Those of this snapshot and of these columns; another snapshot may have other rows. None for columns that are
        not even a list.
        """
        if columns is not None and type(columns) is not list:
            return None
        if self._hot_of is not opened:
            self._hot_of, self._hot = opened, {}
        selected = None if columns is None else tuple(map(str, columns))
        hot = self._hot.get(selected)
        if hot is None:
            if len(self._hot) >= CACHED_SELECTIONS:
                self._hot.pop(next(iter(self._hot)))
            hot = self._hot[selected] = RowCache(opened.reader.table, self.options.hot_rows)
        return hot


def each_as_json(rows: Sequence[JsonRow | None]) -> list[bytes]:
    """The JSON of each row. Of all of them at once, cut at a text that nobody can know: a call of orjson for each row
    takes ten times as long.
    """
    if not rows:
        return []
    mixed: list[Any] = [_CUT] * (2 * len(rows) - 1)
    mixed[::2] = rows
    return dumps(mixed)[1:-1].split(_CUT_JSON)


_CUT = uuid.uuid4().hex
_CUT_JSON = b',"' + _CUT.encode() + b'",'
