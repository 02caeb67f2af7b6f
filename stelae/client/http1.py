"""HTTP/1.1 as a client needs it: bytes of requests out, bytes of answers in. No sockets.

    request_head("GET", "/v1/tables", fields)   one block of bytes, ready to send in front of a body
    AnswerReader                                fed what came, whatever way it was cut; knows when the answer is whole

`http.client` takes three times as long for an answer, most of it to parse six header fields as e-mail. What servers and
proxies do is here all the same: bodies of a given length, in chunks, or up to the end of the connection; interim
answers; compressed bodies. RFC 9112 is the contract. What can't be told apart for certain is refused (NotHttpError): a
client that guesses takes the answer to one question for the answer to another.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 1024


class NotHttpError(Exception):
    """What came is no answer of HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """By lower-case name; fields that came more than once are joined by commas."""
    body: bytes | bytearray


def request_head(method: str, target: str, fields: bytes, length: int | None, more: str = "") -> bytes:
    """The head of a request. `fields` and `more` are whole lines of header fields; `length` is that of the body."""
    if length is not None:
        more = f"{more}Content-Length: {length}\r\n"
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method.encode(), target.encode("ascii"), fields, more.encode("latin-1"))


def header_lines(headers: Mapping[str, str]) -> str:
    """Lines of header fields."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class AnswerReader:
    """One answer in the making. Feed it until it is `complete`.

        while not reader.complete:
            if reader.needs:    read at most len(reader.needs) bytes into it, then took(count)
            else:               feed(bytes)
        at the end of the connection: ended()

    `needs` is the rest of a body of known length: it is read to where it stays.
    """

    complete = False
    needs: memoryview | None = None
    keeps_alive = False
    """Whether the connection can carry another request."""
    begun = False
    """Whether anything came."""

    def __init__(self) -> None:
        self._head = b""
        self._status = 0
        self._reason = ""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._chunks: _Chunks | None = None
        self._until_end = False

    def feed(self, data: bytes) -> None:
        """What came next; not empty, and only while `needs` is None."""
        self.begun = True
        if self._until_end:
            self._body += data
            return
        if self._chunks is not None:
            self._feed_chunks(self._chunks, data)
            return
        head = self._head + data if self._head else data
        while True:
            end = head.find(b"\r\n\r\n")
            if end < 0:
                if len(head) > MAX_HEAD_BYTES:
                    raise NotHttpError("its head has no end")
                self._head = head
                return
            self._read_head(head[:end])
            rest = head[end + 4 :]
            if self._status >= 200:
                break
            head = rest  # An interim answer: the one to this request follows.
        self._begin_body(rest)

    def took(self, count: int) -> None:
        """So many bytes were read into `needs`."""
        needs = self.needs
        if needs is not None and count < len(needs):
            self.needs = needs[count:]
        else:
            self.needs = None
            self.complete = True

    def ended(self) -> None:
        """The server closed the connection."""
        if not self._until_end:
            raise NotHttpError("the connection ended within an answer" if self.begun else "it closed the connection")
        self.complete = True

    def response(self) -> Response:
        """The answer, when it is complete."""
        body = self._body
        coding = self._headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip", "deflate") and body:
            try:
                body = zlib.decompress(body, 32 + zlib.MAX_WBITS)
            except zlib.error as exc:
                raise NotHttpError(f"its body is no {coding}: {exc}") from exc
        elif coding != "identity" and body:
            raise NotHttpError(f"its body is compressed by {coding}, which was not asked for")
        return Response(self._status, self._reason, self._headers, body)

    def _read_head(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        version, _, status = lines[0].partition(" ")
        code, _, self._reason = status.partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (len(code) == 3 and code.isascii() and code.isdigit()):
            raise NotHttpError(f"it begins with {lines[0][:40]!r}")
        self._status = int(code)
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name[0] in " \t" or name[-1] in " \t":
                raise NotHttpError(f"it has a malformed header field: {line[:40]!r}")
            name = name.lower()
            value = value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._headers = headers
        said = headers.get("connection", "").lower()
        self.keeps_alive = "keep-alive" in said if version == "HTTP/1.0" else "close" not in said

    def _begin_body(self, rest: bytes) -> None:
        headers = self._headers
        length = headers.get("content-length")
        coding = headers.get("transfer-encoding")
        if self._status in (204, 304):
            self._finish(rest)
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise NotHttpError(f"its body has the transfer encoding {coding!r}")
            self._chunks = _Chunks()
            if rest:
                self._feed_chunks(self._chunks, rest)
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise NotHttpError(f"its length is {length[:40]!r}")
            size = int(length)
            if len(rest) >= size:
                self._body = rest[:size]
                self._finish(rest[size:])
                return
            try:
                body = bytearray(size)
            except (MemoryError, OverflowError) as exc:
                raise NotHttpError(f"its length is {length[:40]}") from exc
            body[: len(rest)] = rest
            self._body = body
            self.needs = memoryview(body)[len(rest) :]
        else:
            self._until_end = True
            self.keeps_alive = False
            self._body = bytearray(rest)

    def _feed_chunks(self, chunks: _Chunks, data: bytes) -> None:
        rest = chunks.feed(data)
        if rest is not None:
            self._body = chunks.body
            self._finish(rest)

    def _finish(self, rest: bytes) -> None:
        if rest:
            self.keeps_alive = False  # Nothing was asked that this could be the answer to.
        self.complete = True


class _Chunks:
    """A body in chunks."""

    def __init__(self) -> None:
        self.body = bytearray()
        self._left = b""
        self._chunk = 0
        """Bytes that are missing of this chunk, and of the line end behind it."""
        self._trailers = False

    def feed(self, data: bytes) -> bytes | None:
        """What follows the body, once it is whole."""
        data = self._left + data if self._left else data
        at = 0
        while True:
            if self._chunk:
                piece = data[at : at + self._chunk]
                at += len(piece)
                self.body += piece
                self._chunk -= len(piece)
                if self._chunk:
                    self._left = b""
                    return None
                if self.body[-2:] != b"\r\n":
                    raise NotHttpError("a chunk of its body has no end")
                del self.body[-2:]
            end = data.find(b"\r\n", at)
            if end < 0:
                self._left = data[at:]
                if len(self._left) > MAX_CHUNK_LINE_BYTES:
                    raise NotHttpError("a chunk of its body has no length")
                return None
            line = data[at:end]
            at = end + 2
            if self._trailers:
                if not line:
                    return data[at:]
                continue
            size = line.partition(b";")[0].strip(b" \t")
            if not size or size.strip(b"0123456789abcdefABCDEF") or len(size) > 15:
                raise NotHttpError(f"a chunk of its body has the length {size[:20]!r}")
            length = int(size, 16)
            if length:
                self._chunk = length + 2
            else:
                self._trailers = True
