"""What a server said: its JSON, made the results or the errors of a call.

A server that is not one of ours, or a proxy in front of one, may say anything. Whatever lacks what an answer should
have is `Unavailable`, with the URL and what was missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from stelae.client.http1 import Response
from stelae.client.results import SnapshotGone, TableInfo
from stelae.client.retry import RETRIED_STATUS
from stelae.errors import PROBLEM_TYPE_PREFIX, InvalidRequest, NotFound, StelaeError, Unavailable, from_problem
from stelae.schema.table_schema import TableSchema
from stelae.wire import http_api as wire


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said."""

    url: str
    body: Any
    """JSON."""
    snapshot: int
    """0 where the answer is not about a snapshot."""


def json_body(response: Response) -> Any:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None


def error_of(url: str, response: Response, body: Any) -> StelaeError:
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


def garbled(url: str, what: object) -> Unavailable:
    return Unavailable(
        f"the answer lacks or garbles {what}",
        place=url,
        hint="client and server may be of versions that do not fit together",
    )


class reading:  # noqa: N801 - reads as a statement.
    """Makes an error of an answer that lacks what it should have."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyError | TypeError | AttributeError):
            raise garbled(self._reply.url, error) from error


def aligned(reply: Reply, member: str, keys: Sequence[Any]) -> list[Any]:
    """A list of an answer that has an item for each key."""
    with reading(reply):
        items = reply.body[member]
        if len(items) != len(keys):
            raise TypeError(f"{member}: {len(items):,} for {len(keys):,} keys")
    return list(items)


def table_info(body: Mapping[str, Any], reply: Reply) -> TableInfo:
    schema = body["schema"]
    try:
        definition = None if schema is None else TableSchema.decode(schema)
    except StelaeError as exc:
        raise Unavailable(
            f"the schema in the answer can't be read: {exc.message}",
            place=reply.url,
            hint="the server may be of a newer version than this client",
        ) from exc
    return TableInfo(body["name"], body["state"], definition, body["snapshot"], body["rows"], body)


def readable_schemas(bodies: Any) -> list[TableSchema]:
    """All versions of a definition that can be read. Rows of another one are left to the server."""
    schemas = []
    for body in bodies or ():
        try:
            schemas.append(TableSchema.decode(body))
        except StelaeError:
            continue
    return schemas
