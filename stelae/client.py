"""The client: lookups and inserts over HTTP, in Python values.

    keys, Python values ──TableView──► JSON ──Connection──► tablet server
    rows, Python values ◄─TableView─── JSON ◄─Connection─── tablet server

`Connection` speaks HTTP: connections are kept alive, tries repeated, failures made errors of `stelae/errors.py`.
`TableView` knows a table's schema: values are typed by it (`stelae/values.py`), so a DECIMAL is a `Decimal` and a DATE
a `date`. It is fetched once a table, and again when an answer does not fit it. Text and integers are JSON as they are:
keys of one such column are checked all at once, and rows of such columns are not touched.

docs/client.md tells how to use the client, docs/http.md what goes over the wire.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    EmptyPoolError,
    HTTPError,
    LocationParseError,
    MaxRetryError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import Retry, parse_url

from stelae import __version__, wire
from stelae.errors import (
    PROBLEM_TYPE_PREFIX,
    InvalidRequest,
    NotFound,
    StelaeError,
    Unavailable,
    from_problem,
)
from stelae.names import TableName
from stelae.schema import TableSchema
from stelae.types import Integer, String
from stelae.values import as_is, type_codec

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

    from stelae.schema import Column

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = Any
"""A mapping of every primary-key column to its value; of a key of one column also the bare value."""

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_RETRIES = 2
DEFAULT_BATCH_SIZE = 10_000
"""Keys of one request: what a tablet server takes unless it is told otherwise."""
DEFAULT_CONNECTIONS = 16
DEFAULT_PAGE_SIZE = 1_000
"""Rows of one request of `prefix_scan`."""

MAX_QUERY_BYTES = 4_000
"""A longer key goes into a body: servers and proxies bound the length of a URL."""

RETRIED_STATUS = (429, 502, 503, 504)
BACKOFF_S = 0.1
"""The first repetition comes at once, since a connection that lay idle may just have been closed; then twice this."""
MAX_BACKOFF_S = 5
"""Longest wait before a repetition, also where the server asks for a longer one."""

_KEY_PLACE = re.compile(r"^keys\[(\d+)\]")

SNAPSHOT_TRIES = 3
"""How often a batch of several requests starts again because its snapshot is no longer served."""


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


class Client:
    """Looks up and inserts rows at a tablet server. Safe to share between threads; one a process is enough.

        with Client("http://localhost:8000") as client:
            client.lookup("shop.users", {"user_id": 42})

    Errors are those of `stelae.errors`. A key that has no row is no error. A server that is out of reach, or says that
    it is not ready, is asked `retries` times more before Unavailable is raised: all calls can be repeated safely.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = DEFAULT_RETRIES,
        batch_size: int = DEFAULT_BATCH_SIZE,
        connections: int = DEFAULT_CONNECTIONS,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`url` is the server's, with a path in front of `/v1` if a proxy adds one.

        `timeout_s` bounds each wait: to connect, to send, for an answer. `batch_size` keys go into one request, longer
        lists are split. At most `connections` are open at a time. `headers` go with every request (`Authorization`,
        ...). `tls` says whom to trust behind https, by default whom this machine trusts.
        """
        if batch_size < 1:
            raise InvalidRequest(f"batch_size must be at least 1, not {batch_size}", place="batch_size")
        self._connection = Connection(url, timeout_s, retries, connections, headers or {}, tls)
        self._batch_size = batch_size
        self._views: dict[str, TableView] = {}

    @property
    def url(self) -> str:
        return self._connection.url

    # Tables

    def tables(self) -> list[TableInfo]:
        """All tables that the server serves."""
        answer = self._connection.get(wire.TABLES_PATH)
        with _reading(answer):
            return [_table_info(body, answer) for body in answer.body["tables"]]

    def describe(self, table: str) -> TableInfo:
        """One table: its schema, the snapshot being served, and what else the server says of it."""
        name = str(TableName.parse(table))
        answer = self._connection.get(wire.table_path(name))
        with _reading(answer):
            info = _table_info(answer.body, answer)
        if info.schema is not None:
            self._views[name] = TableView(info.schema)
        return info

    # Rows

    def lookup(
        self, table: str, key: Key, *, columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> Row | None:
        """The row of a key, None when there is none.

        `key` maps every primary-key column to its value; a bare value will do where the key is one column. The value of
        a nullable column may be None. `columns`
        selects columns. `snapshot` asks for the row as it was in that snapshot, which the server must still have open.
        """
        name = str(TableName.parse(table))
        view = self._view(name)
        path = lookup_url(name, view.key_to_json(key), _column_list(columns))
        if path is None:
            return self.lookup_many(name, [key], columns=columns, snapshot=snapshot)[0]
        answer = self._connection.get(path, snapshot)
        with _reading(answer):
            row = answer.body["row"]
        return None if row is None else self._decoded(name, [row])[0]

    def lookup_many(
        self,
        table: str,
        keys: Sequence[Key] | pa.Table | pa.RecordBatch | Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
    ) -> Rows:
        """The rows of many keys, aligned with them, all from one snapshot: `rows.snapshot`.

        `keys` are as for `lookup`; an Arrow table or a pandas DataFrame of the key columns will do as well.
        """
        name = str(TableName.parse(table))
        view = self._view(name)
        keys_json = view.keys_to_json(_key_list(keys, "lookup_many"))
        for tries_left in reversed(range(SNAPSHOT_TRIES)):
            try:
                return self._lookup_parts(name, keys_json, columns, snapshot)
            except SnapshotGone:
                # Only parts after the first ask for a snapshot by themselves: a newer one was swapped in meanwhile.
                if snapshot is not None or not tries_left:
                    raise
        raise AssertionError("unreachable")

    def prefix_lookup(
        self,
        table: str,
        prefix: Mapping[str, Any],
        *,
        limit: int = wire.DEFAULT_LIMIT,
        columns: Sequence[str] | None = None,
        page_token: str | None = None,
        snapshot: int | None = None,
    ) -> Page:
        """At most `limit` rows whose key starts with `prefix`, in key order.

        `prefix` maps the first so many key columns, and any partition columns, to their values; an empty one stands
        for all rows. `page_token` continues after an earlier page.
        """
        name = str(TableName.parse(table))
        if not isinstance(prefix, Mapping):
            raise InvalidRequest(f"a prefix maps columns to values, this one is {prefix!r}", place="prefix")
        body = {
            "prefix": self._view(name).key_to_json(prefix),
            "limit": limit,
            "page_token": page_token,
            "columns": _column_list(columns),
        }
        answer = self._connection.post(wire.prefix_lookup_path(name), body, snapshot)
        with _reading(answer):
            rows, token = answer.body["rows"], answer.body["next_page_token"]
            return Page(self._decoded(name, rows), token, answer.snapshot)

    def prefix_scan(
        self,
        table: str,
        prefix: Mapping[str, Any],
        *,
        columns: Sequence[str] | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
        snapshot: int | None = None,
    ) -> Iterator[Row]:
        """All rows whose key starts with `prefix`, in key order, all from one snapshot, fetched page by page.

        A snapshot that is replaced during a long scan may be closed before its end: NotFound.
        """
        token: str | None = None
        while True:
            page = self.prefix_lookup(
                table, prefix, limit=page_size, columns=columns, page_token=token, snapshot=snapshot
            )
            yield from page.rows
            token, snapshot = page.next_page_token, page.snapshot
            if token is None:
                return

    def insert_if_not_exists(
        self,
        table: str,
        keys: Sequence[Key] | pa.Table | pa.RecordBatch | Any,
        *,
        columns: Sequence[str] | None = None,
    ) -> InsertedRows:
        """The rows of keys, aligned with them. Those that are not there are inserted: with an id where the table mints
        ids, all other columns null. They are durable when this returns.

        `keys` are as for `lookup_many`; a key may be there twice. `columns` selects columns of the rows. None in place
        of a row: the table does not have the partition of that key.

        Conflict when another server owns the table; the hint has its URL. After Unavailable it is not known which of
        the new keys were inserted, and after any error the parts before it were, where more than `batch_size` keys go
        in parts. To ask for the same keys again is always right: a key that is there keeps its row. `inserted` is
        False for what an earlier attempt inserted, also for one that this call repeated by itself.
        """
        name = str(TableName.parse(table))
        view = self._view(name)
        keys_json = view.keys_to_json(_key_list(keys, "insert_if_not_exists"))
        rows: list[Row | None] = []
        inserted: list[bool] = []
        snapshot: int | None = None
        for start in range(0, len(keys_json), self._batch_size):
            part = keys_json[start : start + self._batch_size]
            try:
                answer = self._send_part(wire.insert_path(name), part, start, columns, None)
                rows += self._decoded(name, _aligned(answer, "rows", part))
                inserted += _aligned(answer, "inserted", part)
            except StelaeError as exc:
                if start:
                    said = f"the first {start:,} keys of the call are in the table; it can be repeated as it is"
                    exc.hint = f"{exc.hint}; {said}" if exc.hint else said
                raise
            snapshot = answer.snapshot
        return InsertedRows(rows, inserted, snapshot)

    # Life

    def close(self) -> None:
        """Close all connections; the client is of no use afterwards."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # Parts

    def _lookup_parts(self, name: str, keys: list[Any], columns: Sequence[str] | None, snapshot: int | None) -> Rows:
        rows: list[Row | None] = []
        path = wire.lookup_path(name)
        for start in range(0, len(keys), self._batch_size):
            part = keys[start : start + self._batch_size]
            answer = self._send_part(path, part, start, columns, snapshot)
            snapshot = answer.snapshot
            rows += self._decoded(name, _aligned(answer, "rows", part))
        return Rows(rows, snapshot)

    def _send_part(
        self, path: str, keys: list[Any], start: int, columns: Sequence[str] | None, snapshot: int | None
    ) -> Answer:
        """Ask about some keys of a call, those from `start` on."""
        body = {"keys": keys, "columns": _column_list(columns)}
        try:
            return self._connection.post(path, body, snapshot)
        except InvalidRequest as exc:
            if start and exc.place:
                exc.place = _KEY_PLACE.sub(lambda match: f"keys[{int(match[1]) + start}]", exc.place)
            raise

    def _view(self, name: str) -> TableView:
        if name not in self._views:
            info = self.describe(name)
            if info.schema is None:
                raise Unavailable(
                    f"the server can't read the definition of table {name}",
                    place=self.url,
                    hint=f"it says: {info.details.get('error')}",
                )
        return self._views[name]

    def _decoded(self, name: str, rows: list[Any]) -> list[Any]:
        view = self._view(name)
        if not view.fits(rows):
            self.describe(name)
            view = self._view(name)
            if not view.fits(rows):
                raise Unavailable(
                    f"an answer of table {name} does not fit the schema that the server describes",
                    place=self.url,
                    hint="several servers behind one address may differ while a table changes: try again",
                )
        return view.rows_to_python(rows)


class TableView:
    """What the client knows of a table: how its values look in JSON and in Python."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._single = schema.primary_key[0] if len(schema.primary_key) == 1 else None
        self._to_json = {column.name: _to_json(column.name, column.type) for column in schema.columns}
        converts = {column.name: _to_python(column.name, column.type) for column in schema.columns}
        self._to_python = [(name, convert) for name, convert in converts.items() if convert is not None]
        self._plain = _PlainKeys.of(schema.primary_key_columns)

    def keys_to_json(self, keys: list[Any]) -> list[Any]:
        """Keys as JSON. An error says which of them is wrong, as a server does."""
        if self._plain is not None:
            plain = self._plain.to_json(keys)
            if plain is not None:
                return plain
        converted: list[dict[str, Any]] = []
        wanted = set(self.schema.primary_key)
        try:
            for key in keys:
                values_json = self.key_to_json(key)
                if values_json.keys() != wanted:
                    raise self._wrong_columns(values_json)
                converted.append(values_json)
        except InvalidRequest as exc:
            place = f"keys[{len(converted)}]" + (f".{exc.place}" if exc.place and exc.place != "key" else "")
            raise InvalidRequest(exc.message, place=place, hint=exc.hint) from exc
        return converted

    def key_to_json(self, key: object) -> dict[str, Any]:
        """A key, or a prefix of one, as JSON. What it lacks is for the server to say."""
        if not isinstance(key, Mapping):
            if self._single is None or isinstance(key, list | tuple):
                raise InvalidRequest(
                    f"a key of this table maps {', '.join(self.schema.primary_key)} to values, this one is {key!r}",
                    place="key",
                    hint=f"such as {{{', '.join(f'{name!r}: ...' for name in self.schema.primary_key)}}}",
                )
            return {self._single: self._to_json[self._single](key)}
        try:
            return {name: self._to_json[name](value) for name, value in key.items()}
        except KeyError as exc:
            self.schema.column(exc.args[0])  # Says what columns there are.
            raise

    def _wrong_columns(self, key: Mapping[str, Any]) -> InvalidRequest:
        names = self.schema.primary_key
        missing = [name for name in names if name not in key]
        other = [name for name in key if name not in names]
        message = f"the key lacks {', '.join(missing)}" if missing else f"not a primary-key column: {', '.join(other)}"
        return InvalidRequest(message, place="key", hint=f"the primary key is {', '.join(names)}")

    def fits(self, rows: list[Any]) -> bool:
        """Whether rows of an answer are of this schema. All rows of an answer have the same columns."""
        first: Row = next((row for row in rows if row is not None), {})
        return all(name in self._to_json for name in first)

    def rows_to_python(self, rows: list[Any]) -> list[Any]:
        """The rows with Python values, changed in place."""
        if not self._to_python:
            return rows
        for row in rows:
            if row is not None:
                for name, convert in self._to_python:
                    value = row.get(name)
                    if value is not None:
                        row[name] = convert(value)
        return rows


@dataclass(frozen=True, slots=True)
class _PlainColumn:
    """A key column of text or integers, which are JSON as they are."""

    name: str
    kind: type
    length: int | None
    """Most characters of a text."""
    bounds: tuple[int, int]
    """Least and greatest integer."""

    @classmethod
    def of(cls, column: Column) -> _PlainColumn | None:
        """None for a column of another type."""
        if isinstance(column.type, String):
            return cls(column.name, str, column.type.length, (0, 0))
        if isinstance(column.type, Integer):
            bound = 1 << (column.type.bits - 1)
            return cls(column.name, int, None, (-bound, bound - 1))
        return None

    def fits(self, values: list[Any]) -> bool:
        """Whether all of some values may be sent as they are; at least one."""
        if set(map(type, values)) != {self.kind}:
            return False
        if self.kind is int:
            return bool(self.bounds[0] <= min(values) and max(values) <= self.bounds[1])
        if self.length is not None and max(map(len, values)) > self.length:
            return False
        text = "".join(values)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                return False
        return True


class _PlainKeys:
    """Keys of text and integers: checked all at once, with no call a key."""

    def __init__(self, columns: Sequence[_PlainColumn]) -> None:
        self._columns = columns

    @classmethod
    def of(cls, columns: Sequence[Column]) -> _PlainKeys | None:
        """None where a column is of another type."""
        plain = [of for column in columns if (of := _PlainColumn.of(column)) is not None]
        return cls(plain) if len(plain) == len(columns) else None

    def to_json(self, keys: list[Any]) -> list[Any] | None:
        """Keys that are all bare values, or all whole mappings. None where one is of another form, or wrong."""
        single = self._columns[0] if len(self._columns) == 1 else None
        kinds = set(map(type, keys))
        if kinds != {dict}:
            return keys if single is not None and keys and single.fits(keys) else None
        if set(map(len, keys)) != {len(self._columns)}:
            return None
        try:
            values = [list(map(itemgetter(column.name), keys)) for column in self._columns]
        except KeyError:
            return None
        if not all(map(_PlainColumn.fits, self._columns, values)):
            return None
        return keys if single is None else values[0]


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


class Connection:
    """Sends requests, again where that may help, and makes errors of what fails."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        retries: int,
        connections: int,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.url, self._path = _checked_url(url)
        self._timeout_s = timeout_s
        self._pool: urllib3.HTTPConnectionPool | None = urllib3.connection_from_url(
            self.url,
            maxsize=connections,
            block=True,
            timeout=timeout_s,
            retries=_Retry(
                total=retries,
                redirect=False,
                allowed_methods=None,
                status_forcelist=RETRIED_STATUS,
                backoff_factor=BACKOFF_S,
                backoff_max=MAX_BACKOFF_S,
                backoff_jitter=BACKOFF_S,
                retry_after_max=MAX_BACKOFF_S,
                raise_on_status=False,
            ),
            **({"ssl_context": tls} if tls is not None else {}),
        )
        self._get_headers = {"User-Agent": f"stelae/{__version__}", **headers}
        self._post_headers = {**self._get_headers, "Content-Type": wire.JSON}

    def get(self, path: str, snapshot: int | None = None) -> Answer:
        """Ask; `snapshot` pins the one to answer from."""
        return self._send("GET", path, None, snapshot)

    def post(self, path: str, body: Mapping[str, Any], snapshot: int | None) -> Answer:
        """Send JSON."""
        return self._send("POST", path, orjson.dumps(body), snapshot)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _send(self, method: str, path: str, content: bytes | None, snapshot: int | None) -> Answer:
        headers = self._get_headers if content is None else self._post_headers
        if snapshot is not None:
            headers = {**headers, wire.SNAPSHOT_HEADER: str(snapshot)}
        url = self.url + path
        pool = self._pool
        if pool is None:
            raise InvalidRequest("the client is closed", place=url)
        try:
            response = pool.urlopen(
                method,
                self._path + path,
                body=content,
                headers=headers,
                redirect=False,
                pool_timeout=math.ceil(self._timeout_s),
            )
        except HTTPError as exc:
            raise self._failure(exc, url) from exc
        body = _json(response)
        if response.status == 200 and body is not None:
            snapshot_text = response.headers.get(wire.SNAPSHOT_HEADER, "0")
            return Answer(url, body, int(snapshot_text) if snapshot_text.isdigit() else 0)
        raise _problem(url, response, body)

    def _failure(self, error: HTTPError, url: str) -> StelaeError:
        """What a request that got no answer is."""
        cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
        if isinstance(cause, SSLError):
            return InvalidRequest(f"no secure connection: {cause}", place=url, hint="check the URL, or give tls=")
        if isinstance(cause, EmptyPoolError):
            return Unavailable(
                f"no connection was free within {self._timeout_s:g} s",
                place=url,
                hint="threads wait for each other: raise connections",
            )
        # urllib3 counts a refused connection among those that took too long.
        if isinstance(cause, ReadTimeoutError | ConnectTimeoutError) and not isinstance(cause, NewConnectionError):
            return Unavailable(
                f"no answer within {self._timeout_s:g} s", place=url, hint="try again, or with a larger timeout_s"
            )
        return Unavailable(
            f"can't reach the tablet server: {_said(cause)}", place=url, hint="is it running? stelae serve -w WAREHOUSE"
        )


class _Retry(Retry):
    """Repeats what a repetition may help: not an answer that does not come, for the server is busy as it is."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        *pool_and_trace: Any,
        **named: Any,
    ) -> Any:
        if isinstance(error, ReadTimeoutError | EmptyPoolError | SSLError):
            raise error
        return super().increment(method, url, response, error, *pool_and_trace, **named)


def _checked_url(url: str) -> tuple[str, str]:
    """The URL of a server without a slash at its end, and the path in it."""
    example = "such as http://localhost:8000"
    try:
        parsed = parse_url(url)
    except (LocationParseError, TypeError, AttributeError) as exc:
        raise InvalidRequest(f"not a URL: {url!r}", place="url", hint=example) from exc
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidRequest(f"not the URL of a tablet server: {url!r}", place="url", hint=example)
    if parsed.query or parsed.fragment or parsed.auth:
        raise InvalidRequest(
            f"a tablet server has a URL without user, query and fragment, not {url!r}", place="url", hint=example
        )
    return url.rstrip("/"), (parsed.path or "").rstrip("/")


def _json(response: urllib3.BaseHTTPResponse) -> Any:
    if "json" not in response.headers.get("Content-Type", ""):
        return None
    try:
        return orjson.loads(response.data)
    except orjson.JSONDecodeError:
        return None


def _problem(url: str, response: urllib3.BaseHTTPResponse, body: Any) -> StelaeError:
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


def _said(error: Exception) -> str:
    """The cause of a failed connection, without the object that urllib3 puts in front."""
    return str(error).rpartition(": ")[2] if ": " in str(error) else str(error)


class _reading:  # noqa: N801 - reads as a statement.
    """Makes an error of an answer that lacks what it should have."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyError | TypeError | AttributeError):
            raise Unavailable(
                f"the answer lacks or garbles {error}",
                place=self._answer.url,
                hint="client and server may be of versions that do not fit together",
            ) from error


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


def _to_json(name: str, data_type: Any) -> Callable[[Any], Any]:
    codec = type_codec(data_type)
    from_python, to_json = codec.from_python, codec.to_json
    if to_json is as_is:
        return lambda value: from_python(value, name)
    return lambda value: to_json(from_python(value, name))


def _to_python(name: str, data_type: Any) -> Callable[[Any], Any] | None:
    """The conversion of a JSON value that is not null; None where there is nothing to do."""
    codec = type_codec(data_type)
    if codec.to_json is as_is and codec.to_python is as_is:
        return None
    from_json, to_python = codec.from_json, codec.to_python
    return lambda value: to_python(from_json(value, name))


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
    """A JSON value of a key column as `from_text` of `stelae/values.py` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _column_list(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is one text: {columns!r}", place="columns", hint=f"a list: [{columns!r}]")
    return None if columns is None else list(columns)


def _key_list(keys: Any, call: str) -> list[Any]:
    """Keys as a list. An Arrow table or a DataFrame becomes a mapping a row, of Python values."""
    if isinstance(keys, str | bytes | Mapping):
        hint = "one key: lookup" if call == "lookup_many" else "one key: [key]"
        raise InvalidRequest(f"{call} takes a sequence of keys", place="keys", hint=hint)
    if hasattr(keys, "iloc") and hasattr(keys, "columns"):  # pandas: its own conversion would give numpy's values.
        import pyarrow as pa

        keys = pa.Table.from_pandas(keys, preserve_index=False)
    if hasattr(keys, "to_pylist"):
        return list(keys.to_pylist())
    return list(keys)
