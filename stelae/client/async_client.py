"""The client for asyncio: the calls of `stelae/client/operations.py`, carried out with aiohttp and tasks.

    async with AsyncClient("http://localhost:8000") as client:
        await client.lookup("shop.users", 42)

Names, arguments and answers are those of `stelae.client.client.Client`, and so are the errors.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from stelae.client.client import Client
from stelae.client.client_base import ClientBase
from stelae.client.connection_pool import said, wait_s
from stelae.client.http1 import Response
from stelae.client.json_codec import Row
from stelae.client.operations import DEFAULT_PAGE_SIZE, Operations
from stelae.client.steps import (
    Broken,
    Failure,
    Insecure,
    Late,
    LateToConnect,
    NoneFree,
    NotHttp,
    NotReached,
    PastDeadline,
    Pause,
    Request,
    SendRequest,
    Steps,
    Together,
)
from stelae.errors import InvalidRequest, StelaeError

if TYPE_CHECKING:
    import aiohttp

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of `AsyncClient` that carries an operation out."""

    async def call(self: AsyncClient, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self._run(operation(self._operations, *arguments, **named))

    call.__name__, call.__qualname__ = operation.__name__, f"AsyncClient.{operation.__name__}"
    call.__doc__ = f"As `Client.{operation.__name__}`."
    call.__signature__ = signature(getattr(Client, operation.__name__))  # type: ignore[attr-defined]
    return call


class AsyncClient(ClientBase):
    """`Client` for asyncio. Safe to share between the tasks of a loop; one a loop is enough.

    Decoding large answers takes the loop's time: a batch of 10,000 rows about a millisecond in Arrow, ten as dicts. An
    insert that is cancelled may have inserted its keys.
    """

    def _open(self) -> None:
        _require_aiohttp()
        self._headers = {"Accept-Encoding": "identity", **self._settings.all_headers()}
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free = asyncio.Semaphore(self._settings.connections)
        self._closed = False

    # Calls: what `Client` has, awaited

    tables = _awaited(Operations.tables)
    describe = _awaited(Operations.describe)
    lookup = _awaited(Operations.lookup)
    lookup_many = _awaited(Operations.lookup_many)
    prefix_lookup = _awaited(Operations.prefix_lookup)
    prefix_lookup_many = _awaited(Operations.prefix_lookup_many)
    insert_if_not_exists = _awaited(Operations.insert_if_not_exists)

    async def prefix_scan(
        self,
        table: str,
        prefix: Mapping[str, Any],
        *,
        columns: Sequence[str] | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
        snapshot: int | None = None,
    ) -> AsyncIterator[Row]:
        """As `Client.prefix_scan`."""
        token: str | None = None
        while True:
            page = await self.prefix_lookup(
                table, prefix, limit=page_size, columns=columns, page_token=token, snapshot=snapshot
            )
            for row in page.rows:
                yield row
            token, snapshot = page.next_page_token, page.snapshot
            if token is None:
                return

    # Life

    async def close(self) -> None:
        """Close all connections; the client is of no use afterwards."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Carrying out calls

    async def _run(self, steps: Steps[T]) -> T:
        seconds = self._settings.deadline_s
        return await self._drive(steps, None if seconds is None else time.monotonic() + seconds)

    async def _drive(self, steps: Steps[T], deadline: float | None) -> T:
        given: Any = None
        try:
            step = next(steps)
            while True:
                try:
                    if type(step) is SendRequest:
                        given = await self._send(step.request, deadline)
                    elif type(step) is Pause:
                        given = deadline is None or time.monotonic() + step.seconds < deadline
                        if given:
                            await asyncio.sleep(step.seconds)
                    elif type(step) is Together:
                        given = await self._together(step.operations, deadline)
                except (Failure, StelaeError) as exc:
                    step = steps.throw(exc)
                else:
                    step = steps.send(given)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _together(self, calls: Iterator[Steps[Any]], deadline: float | None) -> list[Any]:
        """The results of calls, in order; `parallel` of them at a time, each in a task."""
        results: list[Any] = []
        running: deque[asyncio.Task[Any]] = deque()
        try:
            for call in calls:
                if len(running) == self._settings.parallel:
                    results.append(await running[0])
                    running.popleft()
                running.append(asyncio.create_task(self._drive(call, deadline)))
            while running:
                results.append(await running[0])
                running.popleft()
        finally:
            for left in running:
                left.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return results

    async def _send(self, request: Request, deadline: float | None) -> Response:
        """Ask once, when a connection is free."""
        session, free = self._opened(self.url + request.path)
        left_s = wait_s(self._settings.timeout_s, deadline)
        try:
            await (asyncio.wait_for(free.acquire(), left_s) if free.locked() else free.acquire())
        except TimeoutError as exc:
            wait_s(0, deadline)
            raise NoneFree from exc
        try:
            return await self._exchange(session, request, deadline)
        finally:
            free.release()

    async def _exchange(self, session: aiohttp.ClientSession, request: Request, deadline: float | None) -> Response:
        """Ask over a connection. aiohttp sees by itself when one that lay idle was closed."""
        import aiohttp
        from yarl import URL

        endpoint = self._operations.requests.endpoint
        timeout_s = self._settings.timeout_s
        left_s = None if deadline is None else wait_s(math.inf, deadline)
        scheme = "https" if endpoint.secure else "http"
        url = URL(f"{scheme}://{endpoint.authority}{endpoint.path}{request.path}", encoded=True)
        try:
            async with session.request(
                request.method,
                url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=left_s, sock_connect=timeout_s, sock_read=timeout_s),
            ) as answer:
                body = await answer.read()
                headers = {name.lower(): ", ".join(answer.headers.getall(name)) for name in answer.headers}
                return Response(answer.status, answer.reason or "", headers, body)
        except TimeoutError as exc:
            if deadline is not None and time.monotonic() >= deadline:
                raise PastDeadline from exc
            raise (LateToConnect if isinstance(exc, aiohttp.ConnectionTimeoutError) else Late) from exc
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as exc:
            raise Insecure(str(exc)) from exc
        except aiohttp.ClientConnectorError as exc:
            number = exc.os_error.errno
            # asyncio has texts of its own, with addresses in them; those of getaddrinfo have no number above 0.
            raise NotReached(os.strerror(number) if number and number > 0 else said(exc.os_error)) from exc
        except aiohttp.ClientResponseError as exc:
            raise NotHttp(exc.message) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Broken(str(exc)) from exc

    def _opened(self, url: str) -> tuple[aiohttp.ClientSession, asyncio.Semaphore]:
        """The session of the running loop, and what its tasks wait for."""
        import aiohttp

        if self._closed:
            raise InvalidRequest("the client is closed", place=url)
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            # Connections belong to a loop; those of one that is gone went with it.
            connector = aiohttp.TCPConnector(
                limit=self._settings.connections,
                ssl=self._settings.tls if self._settings.tls is not None else True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, cookie_jar=aiohttp.DummyCookieJar()
            )
            self._free = asyncio.Semaphore(self._settings.connections)
            self._loop = loop
        return self._session, self._free


def _require_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError as exc:
        raise InvalidRequest(
            "AsyncClient needs aiohttp, which is not installed",
            place="AsyncClient",
            hint="python -m pip install 'stelae[async]'",
        ) from exc
