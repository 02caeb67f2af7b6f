"""What the calls of a client are: which requests, in which order, and what becomes of the answers. No I/O.

A call is a generator of actions. Who drives it carries them out and gives back what came of them; `Client` does so with
sockets and threads, `AsyncClient` with aiohttp and tasks, a test with nothing at all.

    call ──Send(request)──► driver ──► server        the Response, or a Failure thrown into the call
         ──Pause(seconds)─► driver                   whether there was time
         ──Together(calls)► driver                   the results of the calls, in order, some at a time
         ──return─────────► the caller's answer

Keys in lists travel as JSON and give lists of dicts; keys in tables travel as Arrow and give tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlencode

import orjson

from stelae.client.connection_pool import (
    Endpoint,
    Failure,
    Insecure,
    Late,
    NoneFree,
    NotHttp,
    PastDeadline,
    Request,
    checked_headers,
)
from stelae.client.dataframes import Frame, frame_of
from stelae.client.http1 import Response
from stelae.client.json_codec import Key, Row, TableView
from stelae.client.retry import RETRIED_STATUS, Pause, RetryBudget, Send, attempts
from stelae.client.stats import Counters
from stelae.errors import PROBLEM_TYPE_PREFIX, InvalidRequest, NotFound, StelaeError, Unavailable, from_problem
from stelae.names import TableName
from stelae.schema.table_schema import TableSchema
from stelae.version import __version__
from stelae.wire import http_api as wire

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

    from stelae.client.arrow_codec import Keys, Selection
    from stelae.wire.arrow_stream import RowsAnswer

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_RETRIES = 2
DEFAULT_BATCH_SIZE = 10_000
"""Keys of one request: what a tablet server takes unless it is told otherwise."""
DEFAULT_CONNECTIONS = 16
DEFAULT_PAGE_SIZE = 1_000
"""Rows of one request of `prefix_scan`."""

MAX_QUERY_BYTES = 4_000
"""A longer key goes into a body: servers and proxies bound the length of a URL."""
SNAPSHOT_TRIES = 3
"""How often a call of several requests starts again because its snapshot is no longer served."""
MIN_COMPRESSED_BYTES = 1_000
"""A shorter body is not worth compressing."""

_KEY_PLACE = re.compile(r"^keys\[(\d+)\]")


class Rows(list[Row | None]):
    """Rows aligned with the keys that were asked for, None where there is no row. A list that knows its snapshot."""

    snapshot: int | None
    """The snapshot that all rows were read from; None when no key was given."""

    def __init__(self, rows: Sequence[Row | None], snapshot: int | None) -> None:
        super().__init__(rows)
        self.snapshot = snapshot


class InsertedRows(Rows):
    """Rows aligned with the keys that were to be inserted; None for a key of a partition that the table does not have.

    `snapshot` is what the last part of the answer came from: earlier parts may have come from the one before.
    """

    inserted: list[bool]
    """Which rows were not there before this call, aligned with the keys."""

    def __init__(self, rows: Sequence[Row | None], inserted: Sequence[bool], snapshot: int | None) -> None:
        super().__init__(rows, snapshot)
        self.inserted = list(inserted)


class PrefixRows(list[list[Row]]):
    """The rows of each prefix that was asked for, in key order."""

    snapshot: int | None
    """The snapshot that all rows were read from; None when no prefix was given."""

    def __init__(self, rows: Sequence[list[Row]], snapshot: int | None) -> None:
        super().__init__(rows)
        self.snapshot = snapshot


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a prefix, in key order."""

    rows: list[Row]
    next_page_token: str | None
    """Asks for the rows after these; None when there are no more."""
    snapshot: int


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as a server serves it."""

    name: str
    state: str
    """READY: lookups are answered. EMPTY, LOADING, FAILED: they are not."""
    schema: TableSchema | None
    """The definition that answers follow; None when the server can't read it."""
    snapshot: int | None
    """The snapshot that lookups are answered from; None when there is none."""
    rows: int | None
    details: Mapping[str, Any]
    """All that the server says of it, as JSON: docs/http.md."""


@dataclass(frozen=True)
class Settings:
    """What a client was made with; docs/client.md#settings."""

    url: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    deadline_s: float | None = None
    retries: int = DEFAULT_RETRIES
    batch_size: int = DEFAULT_BATCH_SIZE
    parallel: int = 1
    connections: int = DEFAULT_CONNECTIONS
    compression: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        for name, least in {"batch_size": 1, "parallel": 1, "connections": 1, "retries": 0}.items():
            if getattr(self, name) < least:
                raise InvalidRequest(f"{name} must be at least {least}, not {getattr(self, name)}", place=name)
        if not self.timeout_s > 0:
            raise InvalidRequest(f"timeout_s must be above 0, not {self.timeout_s}", place="timeout_s")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InvalidRequest(f"deadline_s must be above 0, not {self.deadline_s}", place="deadline_s")
        if self.compression not in (None, "zstd"):
            raise InvalidRequest(
                f"compression can't be {self.compression!r}", place="compression", hint="'zstd', or None"
            )
        object.__setattr__(self, "headers", checked_headers(self.headers))

    def all_headers(self) -> dict[str, str]:
        """Those that go with every request."""
        own = {"User-Agent": f"stelae/{__version__}"}
        given = {name.lower() for name in self.headers}
        return {name: value for name, value in own.items() if name.lower() not in given} | dict(self.headers)

    def __getstate__(self) -> dict[str, Any]:
        if self.tls is not None:
            raise InvalidRequest(
                "a client with tls= does not travel to another process", place="tls", hint="make one there"
            )
        return self.__dict__


@dataclass(frozen=True, slots=True)
class Together:
    """Calls that may run at the same time. The driver gives their results in order, or throws the first error. It takes
    the next of them only when there is room.
    """

    calls: Iterator[Steps[Any]]


Action: TypeAlias = Send | Pause | Together
Steps: TypeAlias = Generator[Action, Any, T]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    url: str
    body: Any
    """JSON."""
    snapshot: int
    """0 where the answer is not about a snapshot."""


class SnapshotGone(NotFound):
    """The snapshot that was asked for is not open at the server (any more)."""


class Calls:
    """The calls of one client. Holds what it knows of tables, its budget of repetitions and its counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.endpoint = Endpoint.parse(settings.url)
        self.counters = Counters()
        self.budget = RetryBudget()
        self._views: dict[str, TableView] = {}

    @property
    def url(self) -> str:
        return self.endpoint.url

    # Tables

    def tables(self) -> Steps[list[TableInfo]]:
        answer = yield from self._get(wire.TABLES_PATH)
        with _reading(answer):
            return [_table_info(body, answer) for body in answer.body["tables"]]

    def describe(self, table: str) -> Steps[TableInfo]:
        name = table_name(table)
        answer = yield from self._get(wire.table_path(name))
        with _reading(answer):
            info = _table_info(answer.body, answer)
            if info.schema is not None:
                self._views[name] = TableView(info.schema, _schemas(answer.body.get("schemas")))
        return info

    # Rows

    def lookup(
        self, table: str, key: Key, *, columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> Steps[Row | None]:
        name = table_name(table)
        view = self._views.get(name) or (yield from self._view(name))
        path = lookup_url(name, view.key_to_json(key), _column_list(columns))
        if path is None:
            rows: Rows = yield from self.lookup_many(name, [key], columns=columns, snapshot=snapshot)
            return rows[0]
        self.counters.keys += 1
        answer = yield from self._get(path, snapshot)
        with _reading(answer):
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
        frame = frame_of(keys)
        if frame is not None:
            names = _column_list(columns)
            rows = yield from self._restarted(snapshot, lambda: self._lookup_frame(name, frame, names, snapshot, found))
            return frame.rows(rows, exact=(found,))
        _only_for_tables(found=found)
        view = self._views.get(name) or (yield from self._view(name))
        keys_json = view.keys_to_json(_key_list(keys, "lookup_many"))
        self.counters.keys += len(keys_json)
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
        view = yield from self._view(name)
        body = {
            "prefix": view.key_to_json(prefix),
            "limit": limit,
            "page_token": page_token,
            "columns": _column_list(columns),
        }
        if page_token is None:
            self.counters.keys += 1
        answer = yield from self._post(wire.prefix_lookup_path(name), body, snapshot)
        with _reading(answer):
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
        frame = frame_of(prefixes)
        if frame is not None:
            names = _column_list(columns)
            rows = yield from self._restarted(
                snapshot, lambda: self._prefixes_frame(name, frame, names, snapshot, limit, prefix_index)
            )
            return frame.rows(rows, aligned=False, exact=(prefix_index,))
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
        frame = frame_of(keys)
        if frame is not None:
            rows = yield from self._insert_frame(name, frame, _column_list(columns), found, inserted)
            return frame.rows(rows, exact=(found, inserted))
        _only_for_tables(found=found, inserted=inserted)
        view = self._views.get(name) or (yield from self._view(name))
        keys_json = view.keys_to_json(_key_list(keys, "insert_if_not_exists"))
        self.counters.keys += len(keys_json)
        return (yield from self._insert_list(name, keys_json, columns))

    # Keys in lists: JSON

    def _lookup_list(
        self, name: str, keys: list[Any], columns: Sequence[str] | None, snapshot: int | None
    ) -> Steps[Rows]:
        path = wire.lookup_path(name)

        def part(start: int, pinned: int | None) -> Steps[tuple[list[Any], int]]:
            some = keys[start : start + self.settings.batch_size]
            answer = yield from self._send_part(path, some, start, columns, pinned)
            rows = yield from self._decoded(name, _aligned(answer, "rows", some))
            return rows, answer.snapshot

        parts = yield from self._parts(len(keys), snapshot, part)
        if len(parts) == 1:
            return Rows(*parts[0])
        return Rows([row for rows, _ in parts for row in rows], parts[0][1] if parts else snapshot)

    def _insert_list(self, name: str, keys: list[Any], columns: Sequence[str] | None) -> Steps[InsertedRows]:
        rows: list[Row | None] = []
        inserted: list[bool] = []
        snapshot: int | None = None
        for start in range(0, len(keys), self.settings.batch_size):
            part = keys[start : start + self.settings.batch_size]
            with _saying_what_is_done(start):
                answer = yield from self._send_part(wire.insert_path(name), part, start, columns, None)
                rows += yield from self._decoded(name, _aligned(answer, "rows", part))
                inserted += _aligned(answer, "inserted", part)
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
    ) -> Steps[Answer]:
        """Ask about some keys of a call, those from `start` on."""
        body = {"keys": keys, "columns": _column_list(columns)}
        try:
            return (yield from self._post(path, body, snapshot))
        except InvalidRequest as exc:
            if start and exc.place:
                exc.place = _KEY_PLACE.sub(lambda match: f"keys[{int(match[1]) + start}]", exc.place)
            raise

    def _decoded(self, name: str, rows: list[Any]) -> Steps[list[Any]]:
        view = yield from self._view(name)
        if not view.fits(rows):
            yield from self.describe(name)
            view = yield from self._view(name)
            if not view.fits(rows):
                raise self._unfit(name)
        return view.rows_to_python(rows)

    # Keys in tables: Arrow

    def _lookup_frame(
        self, name: str, frame: Frame, columns: list[str] | None, snapshot: int | None, found: str | None
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated, table_of

        selection, keys = yield from self._prepared(name, columns, frame, (found,))
        self.counters.keys += len(keys)
        path = wire.lookup_path(name)

        def part(start: int, pinned: int | None) -> Steps[tuple[pa.Table, int]]:
            rows = yield from self._ask_for_rows(name, path, keys, start, selection, pinned)
            table = table_of(selection, rows.arrays, [(found, rows.found)], rows.snapshot)
            return table, rows.snapshot

        parts = yield from self._parts(len(keys), snapshot, part)
        if not parts:
            return self._no_rows(name, selection, (found,), snapshot)
        return concatenated([table for table, _ in parts], parts[0][1])

    def _insert_frame(
        self, name: str, frame: Frame, columns: list[str] | None, found: str | None, inserted: str | None
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated, table_of

        selection, keys = yield from self._prepared(name, columns, frame, (found, inserted))
        self.counters.keys += len(keys)
        path = wire.insert_path(name)
        tables: list[pa.Table] = []
        snapshot: int | None = None
        for start in range(0, len(keys), self.settings.batch_size):
            with _saying_what_is_done(start):
                rows = yield from self._ask_for_rows(name, path, keys, start, selection, None)
            snapshot = rows.snapshot
            tables.append(table_of(selection, rows.arrays, [(found, rows.found), (inserted, rows.inserted)], snapshot))
        if not tables:
            return self._no_rows(name, selection, (found, inserted), None)
        return concatenated(tables, snapshot)

    def _ask_for_rows(
        self, name: str, path: str, keys: Keys, start: int, selection: Selection, snapshot: int | None
    ) -> Steps[_ArrowRows]:
        """The rows of some keys of a call, those from `start` on."""
        from stelae.client.arrow_codec import UnfitError, one_array

        part = keys.part(start, min(start + self.settings.batch_size, len(keys)))
        body = keys.body(part)
        encoded = selection.encoded
        answer = yield from self._ask_in_arrow(path, selection.query(encoded), body, snapshot)
        self._check_aligned(answer, part.num_rows, path)
        inserted = answer.inserted
        for attempt in range(3):
            view = yield from self._view(name)
            try:
                arrays = view.arrow.decode(selection, part, answer, encoded)
                break
            except UnfitError as exc:
                if attempt == 2 or (attempt == 1 and not encoded):
                    raise self._unfit(name) from exc
                if attempt == 0:
                    yield from self.describe(name)
                    continue
            # The server has rows of a version that it does not describe: it has to decode them itself.
            encoded = False
            answer = yield from self._ask_in_arrow(path, selection.query(encoded), body, snapshot)
            self._check_aligned(answer, part.num_rows, path)
        return _ArrowRows(
            arrays,
            one_array(answer.rows.is_valid()),
            None if inserted is None else one_array(inserted),
            answer.snapshot,
        )

    def _prefixes_frame(
        self,
        name: str,
        frame: Frame,
        columns: list[str] | None,
        snapshot: int | None,
        limit: int,
        prefix_index: str,
    ) -> Steps[pa.Table]:
        from stelae.client.arrow_codec import concatenated

        selection, keys = yield from self._prepared(name, columns, frame, (prefix_index,), prefixes=True)
        self.counters.keys += len(keys)

        def part(start: int, pinned: int | None) -> Steps[tuple[pa.Table, int]]:
            tables: list[pa.Table] = []
            body = keys.body(keys.part(start, min(start + self.settings.batch_size, len(keys))))
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
        answer = yield from self._ask_in_arrow(path, query, body, snapshot)
        if answer.prefixes is None:
            raise self._garbled(path, "prefix")
        for attempt in range(2):
            view = yield from self._view(name)
            try:
                arrays = view.arrow.decode(selection, None, answer, encoded=False)
                break
            except UnfitError as exc:
                if attempt:
                    raise self._unfit(name) from exc
                yield from self.describe(name)
        table = prefixed_table(selection, arrays, answer.prefixes, start, prefix_index, answer.snapshot)
        return table, answer.next_page_token, answer.snapshot

    def _prepared(
        self,
        name: str,
        columns: list[str] | None,
        frame: Frame,
        more: Sequence[str | None],
        *,
        prefixes: bool = False,
    ) -> Steps[tuple[Selection, Keys]]:
        """Columns and keys of a call, checked before anything is sent. A schema that does not have them may be old."""
        for attempt in range(2):
            view = yield from self._view(name)
            try:
                selection = view.arrow.selection(columns)
                names = [*selection.names, *filter(None, more)]
                if len(set(names)) != len(names):
                    twice = next(name for name in names if names.count(name) > 1)
                    raise InvalidRequest(
                        f"two columns of the answer would be named {twice!r}", place=twice, hint="choose another name"
                    )
                keys = view.arrow.prefixes(frame.table) if prefixes else view.arrow.keys(frame.table)
                break
            except InvalidRequest as exc:
                unknown = exc.place is not None and exc.place not in view.schema.by_name
                if attempt or not unknown or exc.place not in (*(columns or ()), *frame.table.column_names):
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

        arrays = self._views[name].arrow.empty(selection)
        if prefix is not None:
            return prefixed_table(selection, arrays, pa.chunked_array([], pa.int32()), 0, prefix, snapshot)
        return table_of(selection, arrays, [(of, pa.array([], pa.bool_())) for of in more], snapshot)

    def _check_aligned(self, answer: RowsAnswer, keys: int, path: str) -> None:
        if len(answer.rows) != keys:
            raise self._garbled(path, f"rows: {len(answer.rows):,} for {keys:,} keys")
        if answer.inserted is None and path.endswith(wire.INSERT_IF_NOT_EXISTS):
            raise self._garbled(path, "inserted")

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
        size = size or self.settings.batch_size
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

    def _view(self, name: str) -> Steps[TableView]:
        if name not in self._views:
            info = yield from self.describe(name)
            if info.schema is None:
                raise Unavailable(
                    f"the server can't read the definition of table {name}",
                    place=self.url,
                    hint=f"it says: {info.details.get('error')}",
                )
        return self._views[name]

    # Requests

    def _get(self, path: str, snapshot: int | None = None) -> Steps[Answer]:
        """Ask; `snapshot` pins the one to answer from."""
        headers = None if snapshot is None else {wire.SNAPSHOT_HEADER: str(snapshot)}
        return self._json(Request("GET", path, None, headers))

    def _post(self, path: str, body: Mapping[str, Any], snapshot: int | None) -> Steps[Answer]:
        """Send JSON."""
        return self._json(self._with_body(path, orjson.dumps(body), wire.JSON, snapshot))

    def _json(self, request: Request) -> Steps[Answer]:
        response = yield from self._ask(request)
        url = self.url + request.path
        body = _json_body(response)
        if response.status == 200 and body is not None:
            snapshot_text = response.headers.get("stelae-snapshot", "0")
            return Answer(url, body, int(snapshot_text) if snapshot_text.isdigit() else 0)
        raise _problem(url, response, body)

    def _ask_in_arrow(self, path: str, query: str, body: bytes, snapshot: int | None) -> Steps[RowsAnswer]:
        """Send a stream, get a stream."""
        from stelae.wire.arrow_stream import read_rows

        if query:
            path = f"{path}?{query}"
        response: Response = yield from self._ask(self._with_body(path, body, wire.ARROW, snapshot))
        content = response.headers.get("content-type", "")
        if response.status != 200 or not content.startswith(wire.ARROW):
            raise _problem(self.url + path, response, _json_body(response))
        import pyarrow as pa

        try:
            return read_rows(response.body)
        except (InvalidRequest, KeyError, ValueError, pa.ArrowException) as exc:
            raise self._garbled(path, exc) from exc

    def _with_body(self, path: str, body: bytes, content: str, snapshot: int | None) -> Request:
        headers = {"Content-Type": content}
        if snapshot is not None:
            headers[wire.SNAPSHOT_HEADER] = str(snapshot)
        if self.settings.compression is not None and len(body) >= MIN_COMPRESSED_BYTES:
            import pyarrow as pa

            body = pa.compress(body, codec=self.settings.compression, asbytes=True)
            headers["Content-Encoding"] = self.settings.compression
        return Request("POST", path, body, headers)

    def _ask(self, request: Request) -> Steps[Response]:
        counters = self.counters
        if request.body is not None:
            counters.bytes_sent += len(request.body)
        withheld = counters.withheld
        try:
            response = yield from attempts(request, self.settings.retries, self.budget, counters)
        except Failure as exc:
            error = self._failure(exc, self.url + request.path)
            if counters.withheld > withheld and exc.repeatable:
                error.hint = f"{error.hint}; not repeated: too many requests of this client failed lately"
            raise error from exc.__cause__ or exc
        counters.bytes_received += len(response.body)
        return response

    # Errors

    def _failure(self, failure: Failure, url: str) -> StelaeError:
        """What a request that got no answer is."""
        settings = self.settings
        if isinstance(failure, Insecure):
            return InvalidRequest(f"no secure connection: {failure}", place=url, hint="check the URL, or give tls=")
        if isinstance(failure, NotHttp):
            return InvalidRequest(
                f"this is not the answer of a tablet server: {failure}", place=url, hint="check the URL"
            )
        if isinstance(failure, NoneFree):
            return Unavailable(
                f"no connection was free within {settings.timeout_s:g} s",
                place=url,
                hint="threads wait for each other: raise connections",
            )
        if isinstance(failure, PastDeadline):
            return Unavailable(
                f"the call was not done within {settings.deadline_s:g} s",
                place=url,
                hint="try again, or with a larger deadline_s",
            )
        if isinstance(failure, Late):
            return Unavailable(
                f"no answer within {settings.timeout_s:g} s", place=url, hint="try again, or with a larger timeout_s"
            )
        return Unavailable(
            f"can't reach the tablet server: {failure}", place=url, hint="is it running? stelae serve -w WAREHOUSE"
        )

    def _unfit(self, name: str) -> Unavailable:
        return Unavailable(
            f"an answer of table {name} does not fit the schema that the server describes",
            place=self.url,
            hint="several servers behind one address may differ while a table changes: try again",
        )

    def _garbled(self, path: str, what: object) -> Unavailable:
        return _garbled(self.url + path, what)


@dataclass(frozen=True, slots=True)
class _ArrowRows:
    """Rows of some keys."""

    arrays: list[pa.Array]
    """The selected columns."""
    found: pa.Array
    inserted: pa.Array | None
    snapshot: int


@lru_cache(1024)
def table_name(table: str) -> str:
    """The whole name of a table."""
    return str(TableName.parse(table))


def lookup_url(table: str, key: Mapping[str, Any], columns: Sequence[str] | None) -> str | None:
    """Path and query of a point lookup; None where they can't say it, and a batch of one key can."""
    if None in key.values():
        return None
    pairs = {name: _query_text(value) for name, value in key.items()}
    if columns is not None:
        if wire.COLUMNS_PARAMETER in key or any("," in name for name in columns):
            return None
        pairs[wire.COLUMNS_PARAMETER] = ",".join(columns)
    query = urlencode(pairs)
    return f"{wire.lookup_path(table)}?{query}" if len(query) <= MAX_QUERY_BYTES else None


def _query_text(value: Any) -> str:
    """A JSON value of a key column as `from_text` of `stelae/encoding/values.py` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _column_list(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is one text: {columns!r}", place="columns", hint=f"a list: [{columns!r}]")
    return None if columns is None else list(columns)


def _key_list(keys: Any, call: str) -> list[Any]:
    """Keys as a list. An Arrow array or a series becomes a list of Python values."""
    if isinstance(keys, str | bytes | Mapping):
        hint = "one key: lookup" if call == "lookup_many" else "one key: [key]"
        raise InvalidRequest(f"{call} takes a sequence of keys", place="keys", hint=hint)
    if hasattr(keys, "to_pylist"):
        return list(keys.to_pylist())
    return list(keys)


def _only_for_tables(**names: str | None) -> None:
    for option, name in names.items():
        if name is not None:
            raise InvalidRequest(
                f"{option} names a column of an answer that is a table; these keys are a list",
                place=option,
                hint="give the keys as an Arrow table or a DataFrame",
            )


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


def _json_body(response: Response) -> Any:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None


def _problem(url: str, response: Response, body: Any) -> StelaeError:
    """The error that a response is: the server's own, or what is to be said of a server that is not one of ours."""
    if isinstance(body, dict) and str(body.get("type", "")).startswith(PROBLEM_TYPE_PREFIX):
        error = from_problem(body)
        if isinstance(error, NotFound) and error.place == wire.SNAPSHOT_HEADER:
            return SnapshotGone(error.message, place=error.place, hint=error.hint)
        return error
    said = f"{response.status} {response.reason or ''}".strip()
    if response.status in RETRIED_STATUS or response.status >= 500:
        return Unavailable(f"the server answered {said}", place=url, hint="a proxy may have answered; try again later")
    return InvalidRequest(
        f"this is not the answer of a tablet server: {said}", place=url, hint="check the URL, and what answers there"
    )


def _garbled(url: str, what: object) -> Unavailable:
    return Unavailable(
        f"the answer lacks or garbles {what}",
        place=url,
        hint="client and server may be of versions that do not fit together",
    )


class _reading:  # noqa: N801 - reads as a statement.
    """Makes an error of an answer that lacks what it should have."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyError | TypeError | AttributeError):
            raise _garbled(self._answer.url, error) from error


def _aligned(answer: Answer, member: str, keys: Sequence[Any]) -> list[Any]:
    """A list of an answer that has an item for each key."""
    with _reading(answer):
        items = answer.body[member]
        if len(items) != len(keys):
            raise TypeError(f"{member}: {len(items):,} for {len(keys):,} keys")
    return list(items)


def _table_info(body: Mapping[str, Any], answer: Answer) -> TableInfo:
    schema = body["schema"]
    try:
        definition = None if schema is None else TableSchema.decode(schema)
    except StelaeError as exc:
        raise Unavailable(
            f"the schema in the answer can't be read: {exc.message}",
            place=answer.url,
            hint="the server may be of a newer version than this client",
        ) from exc
    return TableInfo(body["name"], body["state"], definition, body["snapshot"], body["rows"], body)


def _schemas(bodies: Any) -> list[TableSchema]:
    """All versions of a definition that can be read. Rows of another one are left to the server."""
    schemas = []
    for body in bodies or ():
        try:
            schemas.append(TableSchema.decode(body))
        except StelaeError:
            continue
    return schemas
