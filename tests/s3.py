"""A small S3, in memory, behind real HTTP: enough of the protocol for the tests of object storage.

    with running() as store:
        open_storage("s3://bucket/prefix", **store.options)

Objects, listings with prefix, delimiter and pages, conditional puts (`If-None-Match: *`), uploads in parts, bulk
deletes. Signatures are not looked at. `store.objects` maps keys to bytes; `store.lost_answers` loses answers.
"""

from __future__ import annotations

import hashlib
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3
"""Keys a page of a listing: few, so that every test turns pages."""


class Store:
    """The state of the server, and how to reach it."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.lost_answers = 0
        """So many puts from now on happen, and are answered with 503."""
        self.lock = threading.Lock()
        self.options: dict[str, Any] = {}


@contextmanager
def running() -> Iterator[Store]:
    """A server on a free port of this machine."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    store.options = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "region": "eu-central-1",
        "access_key_id": "test",
        "secret_access_key": "test",
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 2},
    }
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def do_GET(self) -> None:
        key, query = self._target()
        if "list-type" in query:
            self._list(query)
            return
        with self.store.lock:
            data = self.store.objects.get(key)
        if data is None:
            self._answer(404, _error("NoSuchKey"))
        else:
            self._answer(200, data)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        key, query = self._target()
        data = self._body()
        with self.store.lock:
            if "partNumber" in query:
                self.store.parts[query["uploadId"]][int(query["partNumber"])] = data
            elif self.headers.get("If-None-Match") == "*" and key in self.store.objects:
                self._answer(412, _error("PreconditionFailed"))
                return
            else:
                self.store.objects[key] = data
            if self.store.lost_answers:
                self.store.lost_answers -= 1
                self._answer(503, _error("ServiceUnavailable"))
                return
        self._answer(200, b"", etag=data)

    def do_POST(self) -> None:
        key, query = self._target()
        body = self._body()
        with self.store.lock:
            if "uploads" in query:
                upload_id = f"upload-{len(self.store.parts)}"
                self.store.parts[upload_id] = {}
                answer = (
                    f"<InitiateMultipartUploadResult><UploadId>{upload_id}</UploadId></InitiateMultipartUploadResult>"
                )
            elif "uploadId" in query:
                parts = self.store.parts.pop(query["uploadId"])
                self.store.objects[key] = b"".join(parts[number] for number in sorted(parts))
                answer = '<CompleteMultipartUploadResult><ETag>"all"</ETag></CompleteMultipartUploadResult>'
            else:  # bulk delete
                keys = [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")]
                for deleted in keys:
                    self.store.objects.pop(deleted, None)
                found = "".join(f"<Deleted><Key>{escape(deleted)}</Key></Deleted>" for deleted in keys)
                answer = f"<DeleteResult>{found}</DeleteResult>"
        self._answer(200, answer.encode())

    def do_DELETE(self) -> None:
        key, _ = self._target()
        with self.store.lock:
            self.store.objects.pop(key, None)
        self._answer(204, b"")

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        with self.store.lock:
            objects = dict(self.store.objects)
        entries: dict[str, str] = {}
        for key in sorted(key for key in objects if key.startswith(prefix)):
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter)[0] + delimiter
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-20T12:00:00.000Z</LastModified>"
                    f'<ETag>"x"</ETag><Size>{len(objects[key])}</Size></Contents>'
                )
        after = query.get("continuation-token", "")
        names = [name for name in sorted(entries) if name > after]
        page = names[:PAGE]
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > PAGE else ""
        body = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{''.join(entries[name] for name in page)}"
        self._answer(200, f"<ListBucketResult>{body}</ListBucketResult>".encode())

    def _target(self) -> tuple[str, dict[str, str]]:
        """Key without the bucket, and the query."""
        url = urlsplit(self.path)
        self.store.requests.append(f"{self.command} {self.path}")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        return unquote(url.path).lstrip("/").partition("/")[2], query

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: bytes, *, etag: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.md5(etag).hexdigest()}"')
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
