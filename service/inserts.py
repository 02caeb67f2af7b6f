"""The route of insert-if-not-exists: keys in, their rows out, those that were not there inserted durably.

    POST  /v1/tables/{table}/insert-if-not-exists     {"keys": [...], "columns": [...]}

    keys ── all of them answered before? ──► their JSON, as it was            service/hot_rows.py
         └─ no ──► physical keys ──► rows, found or inserted ──► JSON         service/writing.py

Of a batch with new keys, every key is looked up again: the first way is for batches that bring nothing new, which are
nearly all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from service.asgi import Receive, Scope, Send, header_of
from service.endpoints import CHUNK_KEYS, Endpoint, dumps, parse_keys, shape_of
from service.hot_rows import HotRows
from service.metrics import INSERT, ServerCounts
from service.options import ServerOptions
from service.tables import PIN, OpenSnapshot, ServedTable
from stelae.errors import InvalidRequest
from stelae.reader import Key, Shape, TableReader, check_batch_size
from stelae.wire import SNAPSHOT_HEADER

INSERTED, FOUND = b"true", b"false"
NO_ROW = b"null"
MAX_SELECTIONS = 2
"""Selections of columns whose rows are remembered at a time."""


class InsertIfNotExists(Endpoint):
    """The rows of keys, inserted where they are not there."""

    methods = "POST"
    members = ("keys", "columns")
    operation = INSERT

    def __init__(
        self,
        table: ServedTable,
        options: ServerOptions,
        counts: ServerCounts,
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(table, options, counts)
        self._counts = table.counts.operations[INSERT]
        self._reload = reload
        self._hot_of: OpenSnapshot | None = None
        self._hot: dict[tuple[str, ...] | None, HotRows] = {}
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
        writer = self.table.writer
        if writer is None:
            raise self.table.unavailable()
        if writer.owner is None:
            await writer.open(self._reload)

    async def parts(self, opened: OpenSnapshot, body: dict[str, Any]) -> list[bytes]:
        keys = body.get("keys")
        if type(keys) is not list:
            raise InvalidRequest("keys must be an array", place="keys", hint='such as {"keys": [...]}')
        check_batch_size(len(keys), self.options.max_batch_keys, "keys", "--max-batch-keys")
        hot = self._hot_rows(opened, body.get("columns"))
        values = hot.values(keys) if hot is not None and keys else None
        if hot is not None and values is not None:
            known = hot.get_many(values)
            if None not in known:
                self.table.counts.insert_found += len(known)
                return _answer(known, [FOUND] * len(known), opened)  # type: ignore[arg-type]
        return await self._insert(keys, values, body)

    async def _insert(self, keys: list[Any], values: Sequence[Any] | None, body: dict[str, Any]) -> list[bytes]:
        """`values`: bare values of the keys by which their rows may be remembered."""
        writer = self.table.writer
        if writer is None:
            raise self.table.unavailable()
        parsed = await self._parsed(keys)
        shape_of(body, self.open_table())  # what can't be answered is not inserted
        answer = await writer.insert(parsed, self._reload)
        opened = answer.opened
        rows = await self._as_json(answer.rows, parsed, shape_of(body, opened.reader.table))
        new = sum(answer.inserted)
        self.table.counts.inserted += new
        self.table.counts.insert_found += len(rows) - new
        hot = None if values is None else self._hot_rows(opened, body.get("columns"))
        if hot is not None and values is not None:
            for value, row in zip(values, rows, strict=True):
                if row != NO_ROW:
                    hot.put(value, row)
        return _answer(rows, [INSERTED if inserted else FOUND for inserted in answer.inserted], opened)

    def open_table(self) -> TableReader:
        """The table as it is served now."""
        serving = self.table.serving
        if serving is None:
            raise self.table.unavailable()
        return serving.reader.table

    async def _parsed(self, keys: Sequence[Any]) -> list[Key]:
        table = self.open_table()
        parsed: list[Key] = []
        for start in range(0, len(keys), CHUNK_KEYS):
            if start:
                await asyncio.sleep(0)
            parsed += parse_keys(keys, start, start + CHUNK_KEYS, table)
        return parsed

    async def _as_json(self, rows: Sequence[bytes | None], keys: Sequence[Key], shape: Shape) -> list[bytes]:
        answers: list[bytes] = []
        make = shape.row
        for start in range(0, len(rows), CHUNK_KEYS):
            if start:
                await asyncio.sleep(0)
            for index in range(start, min(start + CHUNK_KEYS, len(rows))):
                row = rows[index]
                answers.append(NO_ROW if row is None else dumps(make(keys[index], row)))
        return answers

    def _hot_rows(self, opened: OpenSnapshot, columns: Any) -> HotRows | None:
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
            if len(self._hot) >= MAX_SELECTIONS:
                self._hot.pop(next(iter(self._hot)))
            hot = self._hot[selected] = HotRows(opened.reader.table, self.options.hot_rows)
        return hot


def _answer(rows: Sequence[bytes], inserted: Sequence[bytes], opened: OpenSnapshot) -> list[bytes]:
    return [b'{"rows":[' + b",".join(rows) + b'],"inserted":[' + b",".join(inserted) + b"]" + opened.tail]
