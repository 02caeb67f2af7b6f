"""One request: composed, sent again until it is answered or given up, and its answer read.

    get, post ──► Reply          JSON there and back
    arrow_rows ──► RowsAnswer    an Arrow stream there and back

Generators without I/O, as the operations that use them; errors are those of `stelae.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from stelae.client.http1 import Response
from stelae.client.replies import Reply, error_of, garbled, json_body
from stelae.client.retry import RetryBudget, attempts
from stelae.client.settings import ClientSettings, Endpoint
from stelae.client.stats import Counters
from stelae.client.steps import Failure, Insecure, Late, NoneFree, NotHttp, PastDeadline, Request, Steps
from stelae.errors import InvalidRequest, StelaeError, Unavailable
from stelae.wire import http_api as wire

if TYPE_CHECKING:
    from stelae.wire.arrow_stream import RowsAnswer

MIN_COMPRESSED_BYTES = 1_000
"""A shorter body is not worth compressing."""


class RetriedRequests:
    """All requests of one client. Holds its settings, its budget of repetitions and its counts."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.endpoint = Endpoint.parse(settings.url)
        self.counters = Counters()
        self.budget = RetryBudget()

    @property
    def url(self) -> str:
        return self.endpoint.url

    def get(self, path: str, snapshot: int | None = None) -> Steps[Reply]:
        """Ask; `snapshot` pins the one to answer from."""
        headers = None if snapshot is None else {wire.SNAPSHOT_HEADER: str(snapshot)}
        return self._json(Request("GET", path, None, headers))

    def post(self, path: str, body: Mapping[str, Any], snapshot: int | None) -> Steps[Reply]:
        """Send JSON."""
        return self._json(self._with_body(path, orjson.dumps(body), wire.JSON, snapshot))

    def _json(self, request: Request) -> Steps[Reply]:
        response = yield from self._ask(request)
        url = self.url + request.path
        body = json_body(response)
        if response.status == 200 and body is not None:
            snapshot_text = response.headers.get("stelae-snapshot", "0")
            return Reply(url, body, int(snapshot_text) if snapshot_text.isdigit() else 0)
        raise error_of(url, response, body)

    def arrow_rows(self, path: str, query: str, body: bytes, snapshot: int | None) -> Steps[RowsAnswer]:
        """Send a stream, get a stream."""
        from stelae.wire.arrow_stream import read_rows

        if query:
            path = f"{path}?{query}"
        response: Response = yield from self._ask(self._with_body(path, body, wire.ARROW, snapshot))
        content = response.headers.get("content-type", "")
        if response.status != 200 or not content.startswith(wire.ARROW):
            raise error_of(self.url + path, response, json_body(response))
        import pyarrow as pa

        try:
            return read_rows(response.body)
        except (InvalidRequest, KeyError, ValueError, pa.ArrowException) as exc:
            raise self.garbled(path, exc) from exc

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
            error = self._error_of(exc, self.url + request.path)
            if counters.withheld > withheld and exc.repeatable:
                error.hint = f"{error.hint}; not repeated: too many requests of this client failed lately"
            raise error from exc.__cause__ or exc
        counters.bytes_received += len(response.body)
        return response

    # Errors

    def _error_of(self, failure: Failure, url: str) -> StelaeError:
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

    def unfit(self, name: str) -> Unavailable:
        return Unavailable(
            f"an answer of table {name} does not fit the schema that the server describes",
            place=self.url,
            hint="several servers behind one address may differ while a table changes: try again",
        )

    def garbled(self, path: str, what: object) -> Unavailable:
        return garbled(self.url + path, what)
