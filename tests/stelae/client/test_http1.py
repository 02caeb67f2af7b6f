"""Goal: an answer is read as it was sent, whatever way the network cut it; and what is no answer is refused.

Method: answers of every framing, fed at random cuts; a table of what must be refused.
"""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.client.http1 import AnswerReader, NotHttpError, Response, header_lines, request_head

BODY = bytes(range(256)) * 3
CHUNKED = b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in (BODY[:1], BODY[1:300], BODY[300:]))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n"

ANSWERS = {
    "length": (HEAD + b"Content-Length: 768\r\n\r\n" + BODY, BODY, True),
    "no body": (HEAD + b"content-length:0\r\n\r\n", b"", True),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED + b"0\r\n\r\n", BODY, True),
    "trailers": (HEAD + b"Transfer-Encoding: Chunked\r\n\r\n" + CHUNKED + b"0\r\nA: b\r\nC: d\r\n\r\n", BODY, True),
    "interim": (b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n" + HEAD + b"Content-Length: 768\r\n\r\n" + BODY, BODY, True),
    "close": (HEAD + b"Connection: Close\r\nContent-Length: 768\r\n\r\n" + BODY, BODY, False),
    "until the end": (HEAD + b"\r\n" + BODY, BODY, False),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Type: a/b\r\nContent-Length: 768\r\n\r\n" + BODY, BODY, False),
    "nothing": (b"HTTP/1.1 204 \r\nContent-Type: a/b\r\n\r\n", b"", True),
    "gzip": (
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY)) + gzip.compress(BODY),
        BODY,
        True,
    ),
    "deflate": (
        HEAD + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(zlib.compress(BODY)), zlib.compress(BODY)),
        BODY,
        True,
    ),
}  # fmt: skip


def read(data: bytes, cuts: list[int], ends: bool = True) -> tuple[AnswerReader, Response]:
    """Feed an answer, cut at these places."""
    reader = AnswerReader()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, stop in pairwise(places):
        piece = data[start:stop]
        while piece and not reader.complete:
            if reader.needs is not None:
                count = min(len(piece), len(reader.needs))
                reader.needs[:count] = piece[:count]
                reader.took(count)
                piece = piece[count:]
            else:
                reader.feed(piece)
                piece = b""
    if not reader.complete and ends:
        reader.ended()
    return reader, reader.response()


@pytest.mark.parametrize("name", ANSWERS)
@given(cuts=st.lists(st.integers(0, 1100), max_size=12))
def test_an_answer_is_the_same_however_it_is_cut(name: str, cuts: list[int]) -> None:
    data, body, keeps_alive = ANSWERS[name]
    reader, response = read(data, cuts)
    assert bytes(response.body) == body
    assert response.status == (204 if name == "nothing" else 200)
    assert response.headers["content-type"] == "a/b"
    assert reader.keeps_alive == keeps_alive


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_cut_off_is_not_whole(name: str) -> None:
    data, _, _ = ANSWERS[name]
    for end in range(len(data)):
        if name == "until the end" and end >= len(HEAD) + 2:
            continue  # The only framing that can't tell.
        with pytest.raises(NotHttpError, match="closed the connection" if not end else "ended within"):
            read(data[:end], [])


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSpace : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttpError) as caught:
        read(data, [], ends=False)
    assert "ended" not in str(caught.value)


def test_what_follows_an_answer_ends_the_connection() -> None:
    data, body, _ = ANSWERS["length"]
    for answer in (data, ANSWERS["chunks"][0]):
        reader, response = read(answer + b"HTTP/1.1 200 OK\r\n", [])
        assert bytes(response.body) == body
        assert not reader.keeps_alive


def test_a_request_is_one_block() -> None:
    fields = header_lines({"Host": "a", "X": "ä"}).encode("latin-1")
    assert request_head("GET", "/x?y=1", fields, None) == b"GET /x?y=1 HTTP/1.1\r\nHost: a\r\nX: \xe4\r\n\r\n"
    assert request_head("POST", "/x", b"", 3, "A: b\r\n") == b"POST /x HTTP/1.1\r\nA: b\r\nContent-Length: 3\r\n\r\n"
