"""ASGI's messages, in the few forms that this server uses: a body read within a limit, an answer, a problem.

Nothing here knows of tables. Types: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from stelae.errors import STATUS, InvalidRequest, StelaeError, TooLarge, Unavailable, problem
from stelae.wire.http_api import ARROW, JSON, PROBLEM_JSON

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON_CONTENT: Header = (b"content-type", JSON.encode())
PROBLEM_CONTENT: Header = (b"content-type", PROBLEM_JSON.encode())

CODECS: Mapping[bytes, str] = {b"gzip": "gzip", b"zstd": "zstd"}
"""Content encodings of request bodies, and what Arrow calls them."""
INLINE_BYTES = 64 * 1024
"""A longer body is expanded in a thread, and read as an Arrow stream in one."""
JOINED_BYTES = 64 * 1024
"""Shorter answers are joined from their parts, head and body, and sent as one; of longer ones a copy costs more."""

MAX_TEXT = 1000
"""Characters of a text in an error."""
LENGTHS: Sequence[Header] = tuple((b"content-length", b"%d" % length) for length in range(4096))
"""Headers of the lengths that most answers have."""


class ClientDisconnectedError(Exception):
    """The client went away: nobody waits for the answer."""


def length_header(length: int) -> Header:
    """The header that announces the length of a body."""
    return LENGTHS[length] if length < len(LENGTHS) else (b"content-length", b"%d" % length)


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that name, which is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, expanded if it was compressed. TooLarge as soon as it is known to pass the limit: by its
    announced length, or by what came.
    """
    body = await _read_whole(scope, receive, limit)
    encoding = (header_of(scope, b"content-encoding") or b"identity").strip().lower()
    if encoding == b"identity":
        return body
    codec = CODECS.get(encoding)
    if codec is None:
        raise UnsupportedMedia(
            f"the body has Content-Encoding {encoding.decode('latin-1')[:40]!r}",
            place="Content-Encoding",
            hint=f"send it as it is, or by one of: {', '.join(name.decode() for name in CODECS)}",
        )
    if len(body) <= INLINE_BYTES:
        return _expanded(body, codec, limit)
    return await asyncio.get_running_loop().run_in_executor(None, _expanded, body, codec, limit)


def _expanded(body: bytes, codec: str, limit: int) -> bytes:
    """What a compressed body stands for. Never more than the limit of it is made."""
    try:
        with pa.CompressedInputStream(pa.py_buffer(body), codec) as stream:
            whole: bytes = stream.read(limit + 1)
    except (pa.ArrowException, OSError) as exc:
        raise InvalidRequest(f"the body is not whole {codec}: {exc}", place="body") from exc
    if len(whole) > limit:
        raise _too_large(limit, f"more than {limit:,} bytes, expanded,")
    return whole


async def _read_whole(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body as it came."""
    announced = header_of(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise _too_large(limit, f"{int(announced):,} bytes")
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        whole: bytes = message.get("body", b"")
        if len(whole) > limit:
            raise _too_large(limit, f"{len(whole):,} bytes")
        return whole
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit, f"more than {limit:,} bytes")
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def parse_json_object(scope: Scope, body: bytes, members: Sequence[str]) -> dict[str, Any]:
    """The JSON object in a body, which has these members at most."""
    content = header_of(scope, b"content-type")
    if content is not None and not _is_json(content):
        raise UnsupportedMedia(
            f"the body is {content.decode('latin-1')[:80]!r}, expected JSON or an Arrow stream",
            place="Content-Type",
            hint=f"send the header Content-Type: {JSON}, or {ARROW}",
        )
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise InvalidRequest(
            f"the body is not JSON: {exc.msg}, at line {exc.lineno} column {exc.colno} (character {exc.pos})",
            place="body",
        ) from exc
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object", place="body", hint=f"with {', '.join(members)}")
    for name in value:
        if name not in members:
            raise InvalidRequest(
                f"unknown member {name!r} of the body", place=name, hint=f"known are: {', '.join(members)}"
            )
    return value


class UnsupportedMedia(InvalidRequest):
    """An InvalidRequest that HTTP has its own status for."""


class MethodNotAllowed(InvalidRequest):
    """The same, for a method that the path does not have."""


HTTP_STATUS: Mapping[type[StelaeError], int] = {**STATUS, UnsupportedMedia: 415, MethodNotAllowed: 405}
"""Statuses that matter to HTTP only are not in `stelae.errors.STATUS`: for a client they are InvalidRequest."""


def status_of(error: StelaeError) -> int:
    return HTTP_STATUS[type(error)]


async def send_body(send: Send, status: int, headers: Iterable[Header], body: bytes) -> None:
    """A whole answer. A client that is gone is no error."""
    try:
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length_header(len(body))]})
        await send({"type": "http.response.body", "body": body})
    except OSError as exc:
        raise ClientDisconnectedError from exc


async def send_parts(send: Send, headers: Iterable[Header], parts: Sequence[bytes]) -> None:
    """A whole answer with status 200 in several parts, each given to the socket when it takes it. A short one goes at
    once: each part would be a packet, and wake the client.
    """
    length = sum(map(len, parts))
    if length < JOINED_BYTES and len(parts) > 1:
        parts = [b"".join(parts)]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, length_header(length)]})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": parts[-1]})
    except OSError as exc:
        raise ClientDisconnectedError from exc


def problem_body(error: StelaeError) -> bytes:
    """RFC 9457 problem details, as JSON."""
    kind = next(kind for kind in type(error).__mro__ if kind in STATUS)
    shared = error if type(error) is kind else kind(error.message, place=error.place, hint=error.hint)
    body = {**problem(shared), "status": status_of(error)}
    return orjson.dumps({name: _clipped(value) for name, value in body.items()})


async def send_problem(send: Send, error: StelaeError, *, retry_after_s: int, allow: str | None = None) -> None:
    """Problem details with the status of the error."""
    headers = [PROBLEM_CONTENT]
    if isinstance(error, Unavailable):
        headers.append((b"retry-after", b"%d" % retry_after_s))
    if allow is not None:
        headers.append((b"allow", allow.encode()))
    await send_body(send, status_of(error), headers, problem_body(error))


def _clipped(value: object) -> object:
    """Errors repeat what came, which may be long."""
    return value if not isinstance(value, str) or len(value) <= MAX_TEXT else value[:MAX_TEXT] + "..."


def _is_json(content_type: bytes) -> bool:
    media = content_type.partition(b";")[0].strip().lower()
    return media == JSON.encode() or media.endswith(b"+json")


def _too_large(limit: int, found: str) -> TooLarge:
    return TooLarge(
        f"a body of {found}, at most {limit:,} are taken",
        place="body",
        hint="send several requests, or raise --max-body-bytes",
    )
