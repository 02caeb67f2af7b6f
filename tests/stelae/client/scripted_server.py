"""A server for tests that says anything, or hangs up: what it says to lookups and inserts is a list of answers."""
# ruff: noqa: N815 - http.server names its methods.

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from stelae.errors import (
    StelaeError,
    problem,
)
from stelae.schema.sql import parse_create_table


@dataclass
class Say:
    """One answer."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: str = "application/json"
    delay_s: float = 0.0
    hang_up: bool = False
    """Close the connection without an answer."""


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Script:
    """A server that gives prepared answers to lookups, in turn, and describes its table when asked."""

    def __init__(self, *answers: Say, schemas: list[Any] | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.described = 0
        self.schemas = schemas or [schema_json()]
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                split = urlsplit(self.path)
                length = int(self.headers.get("Content-Length", 0))
                content = self.rfile.read(length)
                asked = Asked(
                    self.command, split.path, dict(parse_qsl(split.query)), dict(self.headers),
                    orjson.loads(content) if content else None,
                )  # fmt: skip
                self.give(script.answer(asked))

            def give(self, say: Say) -> None:
                if say.hang_up:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                time.sleep(say.delay_s)
                body = say.body if isinstance(say.body, bytes) else orjson.dumps(say.body)
                self.send_response(say.status)
                for name, value in {**say.headers, "Content-Type": say.content, "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = handle_any

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, asked: Asked) -> Say:
        if asked.path.endswith("/v1/tables/t.t"):
            schema = self.schemas[min(self.described, len(self.schemas) - 1)]
            self.described += 1
            body = {"name": "t.t", "state": "READY", "schema": schema, "snapshot": 1, "rows": 1}
            return Say(body=body)
        self.asked.append(asked)
        return self.answers.pop(0)

    def __enter__(self) -> Script:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def schema_json(*more: str) -> Any:
    columns = ", ".join(["id BIGINT", "v STRING", *more])
    return parse_create_table(f"CREATE TABLE t.t ({columns}, PRIMARY KEY (id) NOT ENFORCED)")[1].encode()


def found(snapshot: int = 1, **row: Any) -> Say:
    return Say(body={"found": True, "row": row, "snapshot": snapshot}, headers={"Stelae-Snapshot": str(snapshot)})


def batch(*ids: int, snapshot: int = 1) -> Say:
    rows = [{"id": number, "v": f"s{snapshot}"} for number in ids]
    return Say(body={"rows": rows, "snapshot": snapshot}, headers={"Stelae-Snapshot": str(snapshot)})


def inserted(*ids: int, first: int = 1) -> Say:
    """An answer to an insert; from `first` on they are new."""
    rows = [{"id": number, "v": None} for number in ids]
    return Say(body={"rows": rows, "inserted": [number >= first for number in ids], "snapshot": 1})


def trouble(error: StelaeError, status: int, **headers: str) -> Say:
    return Say(status, problem(error), headers, content="application/problem+json")
