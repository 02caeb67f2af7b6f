"""Point lookups that are answered where their bytes arrive: `GET /v1/tables/{table}/lookup?user_id=42`.

    query bytes → key → row → JSON → head and body            no scope, no task, no await

`service/http/uvicorn_protocol.py` calls `PointLookups.answer` for each of them, and goes on with the answer or, for
None and for errors, with `LookupRoute.one` (`service/http/lookup_routes.py`), which knows all: errors, pins, HEAD.
So this is the short form for what is usual, and says what that would say, byte for byte:

    user_id=42                             one key column: digits, or a text that may be percent-encoded
    country=de&user_id=42&columns=a,b      several key columns in any order, and a selection of columns

Of a query, every byte is known to be one that a URL may have before anything is done with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes

from orjson import dumps

from stelae.read.projection import MAX_PROJECTIONS, Projection
from stelae.schema.types import BigInt
from stelae.service.tables.counts import BOUNDS_S, LOOKUP
from stelae.service.tables.served_table import OpenSnapshot, ServedTable
from stelae.wire.http_api import COLUMNS_PARAMETER, JSON, SNAPSHOT_HEADER

PLAIN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?@!$'()*,;"
"""Bytes of a query that mean themselves."""
QUERY_BYTES = PLAIN_BYTES + b"=&%+"
"""And those that separate and encode."""
MAX_DIGITS = 18
"""Digits that are a BIGINT whatever they are."""
MAX_QUERY_BYTES = 4096
NEVER = b"\n"
"""What no query begins with."""

now = perf_counter


class PointLookups:
    """Answers at once of one table."""

    def __init__(self, table: ServedTable) -> None:
        self._table = table
        self._counts = table.counts
        self._of_lookups = table.counts.operations[LOOKUP]
        self._opened: OpenSnapshot | None = None
        self._form: _Form | None = None

    def answer(self, query: bytes) -> bytes | None:
        """The whole response; None where the usual way has to answer. Raises what a wrong key raises, and
        ForwardToOwner where only another process knows.
        """
        started = now()
        serving = self._table.serving
        if serving is None:
            return None
        form = self._form
        if form is None or self._opened is not serving.current:
            form = self._form = _Form(serving.current)
            self._opened = serving.current
        text = query[form.key_at :]
        if text.isdigit() and len(text) <= MAX_DIGITS and query.startswith(form.number_is):
            key: tuple[Any, ...] = (int(text),)
            projection = form.all_columns
        else:
            parsed = form.parse(query)
            if parsed is None:
                return None
            key, projection = parsed
        row = form.find(key)
        found = None if row is None else projection.row(key, row)
        if found is None:
            self._counts.missing += 1
            answer = form.missing
        else:
            json = dumps(found)
            answer = form.found % (form.around + len(json), json)
        counts = self._of_lookups
        seconds = now() - started
        counts.seconds += seconds
        counts.durations[bisect_left(BOUNDS_S, seconds)] += 1
        return answer


class _Form:
    """What all answers from one snapshot share, and how its keys are written in queries."""

    __slots__ = (
        "_key_columns",
        "_selections",
        "_selects",
        "_table",
        "all_columns",
        "around",
        "find",
        "found",
        "key_at",
        "missing",
        "number_is",
    )  # fmt: skip

    def __init__(self, opened: OpenSnapshot) -> None:
        table = opened.reader.table
        self.find = opened.find
        self.all_columns = opened.all_columns
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: %d\r\n{SNAPSHOT_HEADER.lower()}: "
        before_body = head.encode() + b"%d\r\n\r\n" % opened.reader.id
        self.missing = before_body % len(opened.missing) + opened.missing
        self.found = before_body + b'{"found":true,"row":%b' + opened.tail
        self.around = len(b'{"found":true,"row":' + opened.tail)
        """Bytes of the body around the row."""
        self._table = table
        self._key_columns: tuple[tuple[bytes, str, Callable[[str, str], Any]], ...] = tuple(
            (_name_in_query(name), name, read) for name, read in table.key_texts
        )
        self._selects = COLUMNS_PARAMETER not in table.schema.primary_key
        self._selections: dict[bytes, Projection] = {}
        (column, *others) = table.schema.primary_key_columns
        is_number = not others and isinstance(column.type, BigInt)
        self.number_is = _name_in_query(column.name) + b"=" if is_number else NEVER
        """What a query with the digits of a key begins with."""
        self.key_at = len(self.number_is)

    def parse(self, query: bytes) -> tuple[tuple[Any, ...], Projection] | None:
        """Key and columns of a query of the usual form; None for others."""
        if len(query) > MAX_QUERY_BYTES or query.translate(None, QUERY_BYTES):
            return None
        texts: dict[bytes, bytes] = {}
        parameters = query.split(b"&")
        for parameter in parameters:
            name, equals, text = parameter.partition(b"=")
            if not equals or b"=" in text:
                return None
            texts[name] = text
        if len(texts) != len(parameters):
            return None  # a column that is there twice
        projection = self.all_columns
        if self._selects:
            columns = texts.pop(b"columns", None)
            if columns is not None:
                selected = self._selections.get(columns) or self._select(columns)
                if selected is None:
                    return None
                projection = selected
        if len(texts) != len(self._key_columns):
            return None
        key = []
        for name, column, read in self._key_columns:
            encoded = texts.get(name)
            if encoded is None:
                return None
            key.append(read(_decoded(encoded), column))
        return tuple(key), projection

    def _select(self, columns: bytes) -> Projection | None:
        if not columns:
            return None
        projection = self._table.projection(_decoded(columns).split(","))
        if len(self._selections) >= MAX_PROJECTIONS:
            self._selections.clear()
        self._selections[columns] = projection
        return projection


def _name_in_query(name: str) -> bytes:
    """How a name is written in queries; those that would have to be encoded are left to the usual way."""
    as_bytes = name.encode()
    return NEVER if as_bytes.translate(None, PLAIN_BYTES) else as_bytes


def _decoded(text: bytes) -> str:
    """A value of a query."""
    if b"%" in text or b"+" in text:
        return unquote_to_bytes(text.replace(b"+", b" ")).decode()
    return text.decode("ascii")
