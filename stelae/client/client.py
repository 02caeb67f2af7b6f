"""The client: lookups and inserts over HTTP.

    Client ──► operations.py ──► json_codec.py, arrow_codec.py       what a call asks, as a generator of steps
       │            └─────────► retried_requests.py ──► retry.py
       └─────► connection_pool.py ──► http1.py                       the steps carried out, with blocking sockets

What a call means is in `operations.py`, once for this client and for `async_client.py`. Blocking sockets are the
fastest way from Python (docs/decisions/0022-client-transport.md).

docs/client.md tells how to use the client, docs/http.md what goes over the wire.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from types import TracebackType
from typing import Any, TypeVar, overload

from stelae.client.client_base import ClientBase
from stelae.client.connection_pool import Transport
from stelae.client.json_codec import Key, Row
from stelae.client.operations import DEFAULT_PAGE_SIZE
from stelae.client.results import InsertedRows, Page, PrefixRows, Rows, SnapshotGone, TableInfo
from stelae.client.stats import ClientStats
from stelae.client.steps import Failure, Pause, SendRequest, Steps, Together
from stelae.errors import StelaeError
from stelae.wire import http_api as wire

__all__ = [
    "Client",
    "ClientStats",
    "InsertedRows",
    "Key",
    "Page",
    "PrefixRows",
    "Row",
    "Rows",
    "SnapshotGone",
    "TableInfo",
]

T = TypeVar("T")


class Client(ClientBase):
    """Looks up and inserts rows at a tablet server. Safe to share between threads; one a process is enough.

        with Client("http://localhost:8000") as client:
            client.lookup("shop.users", {"user_id": 42})

    Errors are those of `stelae.errors`. A key that has no row is no error. A server that is out of reach, or says that
    it is not ready, is asked `retries` times more before Unavailable is raised: all calls can be repeated safely.

    A client that was pickled, or taken along by a fork, opens connections of its own.
    """

    def _open(self) -> None:
        settings, requests = self._settings, self._operations.requests
        self._transport = Transport(
            requests.endpoint, settings.all_headers(), settings.timeout_s, settings.connections, settings.tls
        )
        self._process = os.getpid()

    # Tables

    def tables(self) -> list[TableInfo]:
        """All tables that the server serves."""
        return self._run(self._operations.tables())

    def describe(self, table: str) -> TableInfo:
        """One table: its schema, the snapshot being served, and what else the server says of it."""
        return self._run(self._operations.describe(table))

    # Rows

    def lookup(
        self, table: str, key: Key, *, columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> Row | None:
        """The row of a key, None when there is none.

        `key` maps every primary-key column to its value; a bare value will do where the key is one column. The value of
        a nullable column may be None. `columns` selects columns. `snapshot` asks for the row as it was in that
        snapshot, which the server must still have open.
        """
        return self._run(self._operations.lookup(table, key, columns=columns, snapshot=snapshot))

    @overload
    def lookup_many(
        self, table: str, keys: list[Key], *, columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> Rows: ...

    @overload
    def lookup_many(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        found: str | None = None,
    ) -> Any: ...

    def lookup_many(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        found: str | None = None,
    ) -> Any:
        """The rows of many keys, aligned with them, all from one snapshot.

        `keys` are as for `lookup`, and the answer is a list of dicts that knows its `snapshot`. Or they are a table of
        the key columns, and the answer is one of the selected columns: pyarrow for pyarrow (and all that has
        `__arrow_c_stream__`), a DataFrame with the same index for a pandas DataFrame. A key that has no row is null in
        all columns; `found` names a column more that says which have one.
        """
        return self._run(self._operations.lookup_many(table, keys, columns=columns, snapshot=snapshot, found=found))

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
        steps = self._operations.prefix_lookup(
            table, prefix, limit=limit, columns=columns, page_token=page_token, snapshot=snapshot
        )
        return self._run(steps)

    def prefix_lookup_many(
        self,
        table: str,
        prefixes: Any,
        *,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        limit: int = DEFAULT_PAGE_SIZE,
        prefix_index: str = "prefix",
    ) -> Any:
        """All rows of many prefixes, each in key order, all from one snapshot; `limit` rows are fetched at a time.

        `prefixes` are a table of the first key columns and any partition columns, and the answer is one of the selected
        columns, behind a column named `prefix_index` that says which prefix a row belongs to, from 0. Many prefixes go
        into one request then. A list of mappings is asked one by one, and gives `PrefixRows`: a list of rows a prefix.
        """
        steps = self._operations.prefix_lookup_many(
            table, prefixes, columns=columns, snapshot=snapshot, limit=limit, prefix_index=prefix_index
        )
        return self._run(steps)

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

        A snapshot that is replaced during a long scan may be closed before its end: NotFound. Each page is a call of
        its own for `deadline_s`.
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

    @overload
    def insert_if_not_exists(
        self, table: str, keys: list[Key], *, columns: Sequence[str] | None = None
    ) -> InsertedRows: ...

    @overload
    def insert_if_not_exists(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        found: str | None = None,
        inserted: str | None = None,
    ) -> Any: ...

    def insert_if_not_exists(
        self,
        table: str,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        found: str | None = None,
        inserted: str | None = None,
    ) -> Any:
        """The rows of keys, aligned with them. Those that are not there are inserted: with an id where the table mints
        ids, all other columns null. They are durable when this returns.

        `keys` are as for `lookup_many`, and so is the answer; a key may be there twice. `columns` selects columns of
        the rows. No row: the table does not have the partition of that key. Of a table, `inserted` names a column more
        that says which rows were not there before; a list has it as `rows.inserted`.

        Conflict when another server owns the table; the hint has its URL. After Unavailable it is not known which of
        the new keys were inserted, and after any error the parts before it were, where more than `batch_size` keys go
        in parts. To ask for the same keys again is always right: a key that is there keeps its row. `inserted` is
        False for what an earlier attempt inserted, also for one that this call repeated by itself.
        """
        steps = self._operations.insert_if_not_exists(table, keys, columns=columns, found=found, inserted=inserted)
        return self._run(steps)

    # Life

    def close(self) -> None:
        """Close all connections; the client is of no use afterwards."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Carrying out calls

    def _run(self, steps: Steps[T]) -> T:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._operations.requests.budget.after_fork()
        seconds = self._settings.deadline_s
        return self._drive(steps, None if seconds is None else time.monotonic() + seconds)

    def _drive(self, steps: Steps[T], deadline: float | None) -> T:
        given: Any = None
        try:
            step = next(steps)
            while True:
                try:
                    if type(step) is SendRequest:
                        given = self._transport.send(step.request, fresh=step.fresh, deadline=deadline)
                    elif type(step) is Pause:
                        given = pause(step.seconds, deadline)
                    elif type(step) is Together:
                        given = self._together(step.operations, deadline)
                except (Failure, StelaeError) as exc:
                    step = steps.throw(exc)
                else:
                    step = steps.send(given)
        except StopIteration as done:
            result: T = done.value
            return result

    def _together(self, calls: Iterator[Steps[Any]], deadline: float | None) -> list[Any]:
        """The results of calls, in order; `parallel` of them at a time, each in a thread."""
        count = self._settings.parallel
        first = list(islice(calls, 2))
        calls = chain(first, calls)
        if count == 1 or len(first) < 2:
            return [self._drive(call, deadline) for call in calls]
        results: list[Any] = []
        running: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(count, "stelae-client") as threads:
            try:
                for call in calls:
                    if len(running) == count:
                        results.append(running.popleft().result())
                    running.append(threads.submit(self._drive, call, deadline))
                while running:
                    results.append(running.popleft().result())
            finally:
                for left in running:
                    left.cancel()
        return results


def pause(seconds: float, deadline: float | None) -> bool:
    """Wait, if there is time to."""
    if deadline is not None and time.monotonic() + seconds >= deadline:
        return False
    time.sleep(seconds)
    return True
