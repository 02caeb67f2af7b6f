"""What the calls of a client are: which requests, in which order, and what becomes of the answers. No I/O.

An operation is a generator of steps (`steps.py`), which `Client` and `AsyncClient` carry out.

    arguments, checked ──keys as JSON or Arrow──► requests, one or many ──► rows in Python types, or a table

Keys in lists travel as JSON and give lists of dicts; keys in tables travel as Arrow and give tables. A call of many
requests is answered from one snapshot: that of its first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from stelae.client.arguments import check_names_are_for_tables, column_list, key_list, lookup_url, table_name
from stelae.client.dataframes import KeyTable, as_key_table
from stelae.client.json_codec import JsonCodec, Key, Row
from stelae.client.replies import Reply, aligned, readable_schemas, reading, table_info
from stelae.client.results import InsertedRows, Page, PrefixRows, Rows, SnapshotGone, TableInfo
from stelae.client.retried_requests import RetriedRequests
from stelae.client.settings import ClientSettings
from stelae.client.steps import Steps, Together
from stelae.errors import InvalidRequest, StelaeError, Unavailable
from stelae.wire import http_api as wire

if TYPE_CHECKING:
    import pyarrow as pa

    from stelae.client.arrow_codec import ArrowKeys, Selection
    from stelae.wire.arrow_stream import RowsAnswer

T = TypeVar("T")

DEFAULT_PAGE_SIZE = 1_000
"""Rows of one request of `prefix_scan`."""

SNAPSHOT_TRIES = 3
"""How often a call of several requests starts again because its snapshot is no longer served."""

_KEY_PLACE = re.compile(r"^keys\[(\d+)\]")


class Operations:
    """The operations of one client. Holds what the client knows of tables."""

    def __init__(self, settings: ClientSettings) -> None:
        self.requests = RetriedRequests(settings)
        self._batch_size = settings.batch_size
        self._codecs: dict[str, JsonCodec] = {}

    # Tables

    def tables(self) -> Steps[list[TableInfo]]:
        answer = yield from self.requests.get(wire.TABLES_PATH)
        with reading(answer):
            return [table_info(body, answer) for body in answer.body["tables"]]

    def describe(self, table: str) -> Steps[TableInfo]:
        name = table_name(table)
        answer = yield from self.requests.get(wire.table_path(name))
        with reading(answer):
            info = table_info(answer.body, answer)
            if info.schema is not None:
                self._codecs[name] = JsonCodec(info.schema, readable_schemas(answer.body.get("schemas")))
        return info

    # Rows

    def lookup(
        self, table: str, key: Key, *, columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> Steps[Row | None]:
        name = table_name(table)
        codec = self._codecs.get(name) or (yield from self._codec(name))
        path = lookup_url(name, codec.key_to_json(key), column_list(columns))
        if path is None:
            rows: Rows = yield from self.lookup_many(name, [key], columns=columns, snapshot=snapshot)
            return rows[0]
        self.requests.counters.keys += 1
        answer = yield from self.requests.get(path, snapshot)
        with reading(answer):
            row = answer.body["row"]
        if row is None:
            return None
        [decoded] = yield from self._decoded(name, [row])
        return decoded  # type: ignore[no-any-return]

    def lookup_many(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        found: str | None = None,
    ) -> Steps[Any]:
        name = table_name(table)
        key_table = as_key_table(keys)
        if key_table is not None:
            names = column_list(columns)
            rows = yield from self._restarted(
                snapshot, lambda: self._lookup_table(name, key_table, names, snapshot, found)
            )
            return key_table.rows(rows, exact=(found,))
        check_names_are_for_tables(found=found)
        codec = self._codecs.get(name) or (yield from self._codec(name))
        keys_json = codec.keys_to_json(key_list(keys, "lookup_many"))
        self.requests.counters.keys += len(keys_json)
        return (yield from self._restarted(snapshot, lambda: self._lookup_list(name, keys_json, columns, snapshot)))

    def prefix_lookup(
        self,
        table: str,
        prefix: Mapping[str, Any],
        *,
        limit: int = wire.DEFAULT_LIMIT,
        columns: Sequence[str] | None = None,
        page_token: str | None = None,
        snapshot: int | None = None,
    ) -> Steps[Page]:
        name = table_name(table)
        if not isinstance(prefix, Mapping):
            raise InvalidRequest(f"a prefix maps columns to values, this one is {prefix!r}", place="prefix")
        codec = yield from self._codec(name)
        body = {
            "prefix": codec.key_to_json(prefix),
            "limit": limit,
            "page_token": page_token,
            "columns": column_list(columns),
        }
        if page_token is None:
            self.requests.counters.keys += 1
        answer = yield from self.requests.post(wire.prefix_lookup_path(name), body, snapshot)
        with reading(answer):
            rows, token = answer.body["rows"], answer.body["next_page_token"]
            decoded = yield from self._decoded(name, rows)
            return Page(decoded, token, answer.snapshot)

    def prefix_lookup_many(
        self,
        table: str,
        prefixes: Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        limit: int = DEFAULT_PAGE_SIZE,
        prefix_index: str = "prefix",
    ) -> Steps[Any]:
        name = table_name(table)
        key_table = as_key_table(prefixes)
        if key_table is not None:
            names = column_list(columns)
            rows = yield from self._restarted(
                snapshot, lambda: self._prefixes_table(name, key_table, names, snapshot, limit, prefix_index)
            )
            return key_table.rows(rows, aligned=False, exact=(prefix_index,))
        if isinstance(prefixes, str | bytes | Mapping):
            raise InvalidRequest(
                "prefix_lookup_many takes a sequence of prefixes", place="prefixes", hint="one prefix: prefix_scan"
            )
        listed = list(prefixes)
        return (
            yield from self._restarted(snapshot, lambda: self._prefixes_list(name, listed, columns, snapshot, limit))
        )

    def insert_if_not_exists(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        found: str | None = None,
        inserted: str | None = None,
    ) -> Steps[Any]:
        name = table_name(table)
        key_table = as_key_table(keys)
        if key_table is not None:
            rows = yield from self._insert_table(name, key_table, column_list(columns), found, inserted)
            return key_table.rows(rows, exact=(found, inserted))
        check_names_are_for_tables(found=found, inserted=inserted)
        codec = self._codecs.get(name) or (yield from self._codec(name))
        keys_json = codec.keys_to_json(key_list(keys, "insert_if_not_exists"))
        self.requests.counters.keys += len(keys_json)
        return (yield from self._insert_list(name, keys_json, columns))

    # Keys in lists: JSON

    def _lookup_list(
        self, name: str, keys: list[Any], columns: Sequence[str] | None, snapshot: int | None
    ) -> Steps[Rows]:
        path = wire.lookup_path(name)

        def part(start: int, pinned: int | None) -> Steps[tuple[list[Any], int]]:
            some = keys[start : start + self._batch_size]
            answer = yield from self._send_part(path, some, start, columns, pinned)
            rows = yield from self._decoded(name, aligned(answer, "rows", some))
            return rows, answer.snapshot

        parts = yield from self._parts(len(keys), snapshot, part)
        if len(parts) == 1:
            return Rows(*parts[0])
        return Rows([row for rows, _ in parts for row in rows], parts[0][1] if parts else snapshot)

    def _insert_list(self, name: str, keys: list[Any], columns: Sequence[str] | None) -> Steps[InsertedRows]:
        rows: list[Row | None] = []
        inserted: list[bool] = []
        snapshot: int | None = None
        for start in range(0, len(keys), self._batch_size):
            part = keys[start : start + self._batch_size]
            with _saying_what_is_done(start):
                answer = yield from self._send_part(wire.insert_path(name), part, start, columns, None)
                rows += yield from self._decoded(name, aligned(answer, "rows", part))
                inserted += aligned(answer, "inserted", part)
            snapshot = answer.snapshot
        return InsertedRows(rows, inserted, snapshot)

    def _prefixes_list(
        self, name: str, prefixes: list[Any], columns: Sequence[str] | None, snapshot: int | None, limit: int
    ) -> Steps[PrefixRows]:
        def one(number: int, pinned: int | None) -> Steps[tuple[list[Row], int]]:
            rows: list[Row] = []
            token: str | None = None
            while True:
                page: Page = yield from self.prefix_lookup(
                    name, prefixes[number], limit=limit, columns=columns, page_token=token, snapshot=pinned
                )
                rows += page.rows
                token, pinned = page.next_page_token, page.snapshot
                if token is None:
                    return rows, pinned

        parts = yield from self._parts(len(prefixes), snapshot, one, size=1)
        return PrefixRows([rows for rows, _ in parts], parts[0][1] if parts else snapshot)

    def _send_part(
        self, path: str, keys: list[Any], start: int, columns: Sequence[str] | None, snapshot: int | None
    ) -> Steps[Reply]:
        """Ask about some keys of a call, those from `start` on."""
        body = {"keys": keys, "columns": column_list(columns)}
        try:
            return (yield from self.requests.post(path, body, snapshot))
        except InvalidRequest as exc:
            if start and exc.place:
                exc.place = _KEY_PLACE.sub(lambda match: f"keys[{int(match[1]) + start}]", exc.place)
            raise

    def _decoded(self, name: str, rows: list[Any]) -> Steps[list[Any]]:
        codec = yield from self._codec(name)
        if not codec.fits(rows):
            yield from self.describe(name)
            codec = yield from self._codec(name)
            if not codec.fits(rows):
                raise self.requests.unfit(name)
        return codec.rows_to_python(rows)

    # Keys in tables: Arrow

    def _lookup_table(
        self, name: str, key_table: KeyTable, columns: list[str] | None, snapshot: int | None, found: str | None
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated, table_of

        selection, keys = yield from self._prepared(name, columns, key_table, (found,))
        self.requests.counters.keys += len(keys)
        path = wire.lookup_path(name)

        def part(start: int, pinned: int | None) -> Steps[tuple[pa.Table, int]]:
            rows = yield from self._ask_for_rows(name, path, keys, start, selection, pinned)
            table = table_of(selection, rows.arrays, [(found, rows.found)], rows.snapshot)
            return table, rows.snapshot

        parts = yield from self._parts(len(keys), snapshot, part)
        if not parts:
            return self._no_rows(name, selection, (found,), snapshot)
        return concatenated([table for table, _ in parts], parts[0][1])

    def _insert_table(
        self, name: str, key_table: KeyTable, columns: list[str] | None, found: str | None, inserted: str | None
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated, table_of

        selection, keys = yield from self._prepared(name, columns, key_table, (found, inserted))
        self.requests.counters.keys += len(keys)
        path = wire.insert_path(name)
        tables: list[pa.Table] = []
        snapshot: int | None = None
        for start in range(0, len(keys), self._batch_size):
            with _saying_what_is_done(start):
                rows = yield from self._ask_for_rows(name, path, keys, start, selection, None)
            snapshot = rows.snapshot
            tables.append(table_of(selection, rows.arrays, [(found, rows.found), (inserted, rows.inserted)], snapshot))
        if not tables:
            return self._no_rows(name, selection, (found, inserted), None)
        return concatenated(tables, snapshot)

    def _ask_for_rows(
        self, name: str, path: str, keys: ArrowKeys, start: int, selection: Selection, snapshot: int | None
    ) -> Steps[_ArrowRows]:
        """The rows of some keys of a call, those from `start` on."""
        from stelae.client.arrow_codec import UnfitError
        from stelae.wire.arrow_stream import one_array

        part = keys.part(start, min(start + self._batch_size, len(keys)))
        body = keys.body(part)
        encoded = selection.encoded
        answer = yield from self.requests.arrow_rows(path, selection.query(encoded), body, snapshot)
        self._check_aligned(answer, part.num_rows, path)
        inserted = answer.inserted
        for attempt in range(3):
            codec = yield from self._codec(name)
            try:
                arrays = codec.arrow.decode(selection, part, answer, encoded)
                break
            except UnfitError as exc:
                if attempt == 2 or (attempt == 1 and not encoded):
                    raise self.requests.unfit(name) from exc
                if attempt == 0:
                    yield from self.describe(name)
                    continue
            # The server has rows of a version that it does not describe: it has to decode them itself.
            encoded = False
            answer = yield from self.requests.arrow_rows(path, selection.query(encoded), body, snapshot)
            self._check_aligned(answer, part.num_rows, path)
        return _ArrowRows(
            arrays,
            one_array(answer.rows.is_valid()),
            None if inserted is None else one_array(inserted),
            answer.snapshot,
        )

    def _prefixes_table(
        self,
        name: str,
        key_table: KeyTable,
        columns: list[str] | None,
        snapshot: int | None,
        limit: int,
        prefix_index: str,
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated

        selection, keys = yield from self._prepared(name, columns, key_table, (prefix_index,), prefixes=True)
        self.requests.counters.keys += len(keys)

        def part(start: int, pinned: int | None) -> Steps[tuple[pa.Table, int]]:
            tables: list[pa.Table] = []
            body = keys.body(keys.part(start, min(start + self._batch_size, len(keys))))
            token: str | None = None
            while True:
                table, token, pinned = yield from self._ask_for_page(
                    name, body, selection, start, limit, token, pinned, prefix_index
                )
                tables.append(table)
                if token is None:
                    return concatenated(tables, pinned), pinned

        parts = yield from self._parts(len(keys), snapshot, part)
        if not parts:
            return self._no_rows(name, selection, (), snapshot, prefix_index)
        return concatenated([table for table, _ in parts], parts[0][1])

    def _ask_for_page(
        self,
        name: str,
        body: bytes,
        selection: Selection,
        start: int,
        limit: int,
        token: str | None,
        snapshot: int | None,
        prefix_index: str,
    ) -> Steps[tuple[pa.Table, str | None, int]]:
        """A page of the prefixes from `start` on."""
        from stelae.client.arrow_codec import UnfitError, prefixed_table

        path = wire.prefix_lookup_path(name)
        parameters = {wire.LIMIT_PARAMETER: str(limit)}
        if token is not None:
            parameters[wire.PAGE_TOKEN_PARAMETER] = token
        query = "&".join(filter(None, (selection.query(encoded=False), urlencode(parameters))))
        answer = yield from self.requests.arrow_rows(path, query, body, snapshot)
        if answer.prefixes is None:
            raise self.requests.garbled(path, "prefix")
        for attempt in range(2):
            codec = yield from self._codec(name)
            try:
                arrays = codec.arrow.decode(selection, None, answer, encoded=False)
                break
            except UnfitError as exc:
                if attempt:
                    raise self.requests.unfit(name) from exc
                yield from self.describe(name)
        table = prefixed_table(selection, arrays, answer.prefixes, start, prefix_index, answer.snapshot)
        return table, answer.next_page_token, answer.snapshot

    def _prepared(
        self,
        name: str,
        columns: list[str] | None,
        key_table: KeyTable,
        more: Sequence[str | None],
        *,
        prefixes: bool = False,
    ) -> Steps[tuple[Selection, ArrowKeys]]:
        """Columns and keys of a call, checked before anything is sent. A schema that does not have them may be old."""
        for attempt in range(2):
            codec = yield from self._codec(name)
            try:
                selection = codec.arrow.selection(columns)
                names = [*selection.names, *filter(None, more)]
                if len(set(names)) != len(names):
                    twice = next(name for name in names if names.count(name) > 1)
                    raise InvalidRequest(
                        f"two columns of the answer would be named {twice!r}", place=twice, hint="choose another name"
                    )
                keys = codec.arrow.prefixes(key_table.table) if prefixes else codec.arrow.keys(key_table.table)
                break
            except InvalidRequest as exc:
                unknown = exc.place is not None and exc.place not in codec.schema.by_name
                if attempt or not unknown or exc.place not in (*(columns or ()), *key_table.table.column_names):
                    raise
                yield from self.describe(name)
        return selection, keys

    def _no_rows(
        self,
        name: str,
        selection: Selection,
        more: Sequence[str | None],
        snapshot: int | None,
        prefix: str | None = None,
    ) -> pa.Table:
        import pyarrow as pa

        from stelae.client.arrow_codec import prefixed_table, table_of

        arrays = self._codecs[name].arrow.empty(selection)
        if prefix is not None:
            return prefixed_table(selection, arrays, pa.chunked_array([], pa.int32()), 0, prefix, snapshot)
        return table_of(selection, arrays, [(of, pa.array([], pa.bool_())) for of in more], snapshot)

    def _check_aligned(self, answer: RowsAnswer, keys: int, path: str) -> None:
        if len(answer.rows) != keys:
            raise self.requests.garbled(path, f"rows: {len(answer.rows):,} for {keys:,} keys")
        if answer.inserted is None and path.endswith(wire.INSERT_IF_NOT_EXISTS):
            raise self.requests.garbled(path, "inserted")

    # Parts of calls

    def _parts(
        self,
        count: int,
        snapshot: int | None,
        part: Callable[[int, int | None], Steps[tuple[T, int]]],
        size: int | None = None,
    ) -> Steps[list[tuple[T, int]]]:
        """All parts of a call. Those after the first ask for its snapshot, some at a time."""
        if not count:
            return []
        size = size or self._batch_size
        first = yield from part(0, snapshot)
        if count <= size:
            return [first]
        others: list[tuple[T, int]] = yield Together(part(start, first[1]) for start in range(size, count, size))
        return [first, *others]

    def _restarted(self, snapshot: int | None, work: Callable[[], Steps[T]]) -> Steps[T]:
        """Do it, again while the snapshot that it began with is closed under it."""
        for tries_left in reversed(range(SNAPSHOT_TRIES)):
            try:
                return (yield from work())
            except SnapshotGone:
                # Only parts after the first ask for a snapshot by themselves: a newer one was swapped in meanwhile.
                if snapshot is not None or not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _codec(self, name: str) -> Steps[JsonCodec]:
        if name not in self._codecs:
            info = yield from self.describe(name)
            if info.schema is None:
                raise Unavailable(
                    f"the server can't read the definition of table {name}",
                    place=self.requests.url,
                    hint=f"it says: {info.details.get('error')}",
                )
        return self._codecs[name]


@dataclass(frozen=True, slots=True)
class _ArrowRows:
    """Rows of some keys."""

    arrays: list[pa.Array]
    """The selected columns."""
    found: pa.Array
    inserted: pa.Array | None
    snapshot: int


@contextmanager
def _saying_what_is_done(keys: int) -> Iterator[None]:
    """Adds to an error how many keys of a call were inserted before it."""
    try:
        yield
    except StelaeError as exc:
        if keys:
            said = f"the first {keys:,} keys of the call are in the table; it can be repeated as it is"
            exc.hint = f"{exc.hint}; {said}" if exc.hint else said
        raise
