"""Servers to measure: the tablet server and its peer, each in a process of its own.

    with tablet_server(warehouse) as ours, bare_server(warehouse, keys) as peer:
        ours.wrk(requests), ours.cpu_s()

The peer is the least that a Python server of this kind can do: an ASGI app under the same uvicorn with the same
settings, that parses nothing, does one RocksDB get in the same kind of tablet, and answers fixed bytes.

    python -m benchmarks.servers WAREHOUSE KEYS      runs the peer
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stelae.snapshot.warehouse import Table, Warehouse
from tests.tables import commit_rows

USERS = """CREATE TABLE IF NOT EXISTS shop.users (
    user_id BIGINT, name STRING, city STRING, age INT, score DOUBLE, updated TIMESTAMP(6),
    PRIMARY KEY (user_id) NOT ENFORCED
) WITH ('bucket' = '4')"""
LOOKUP = "/v1/tables/shop.users/lookup"
NAMES = USERS.replace("shop.users", "shop.names").replace("KEY (user_id)", "KEY (name)")
NAMES_LOOKUP = "/v1/tables/shop.names/lookup"
ONE_WRITE = "one-write"

WRK_SCRIPT = """
local paths = {}
local next_path = 0
function init(args)
  for line in io.lines(args[1]) do
    local headers = nil
    if args[2] == "traced" then headers = {Traceparent = "00-" .. #paths, Accept = "application/json"} end
    paths[#paths + 1] = wrk.format("GET", line, headers)
  end
end
function request()
  next_path = next_path % #paths + 1
  return paths[next_path]
end
"""
WRK_POST_SCRIPT = """
local requests = {}
local next_request = 0
function init(args)
  local headers = {["Content-Type"] = "application/json"}
  for line in io.lines(args[1]) do requests[#requests + 1] = wrk.format("POST", args[2], headers, line) end
end
function request()
  next_request = next_request % #requests + 1
  return requests[next_request]
end
"""


@dataclass(frozen=True)
class WrkResult:
    """What wrk saw."""

    requests_per_s: float
    p99_ms: float
    requests: int
    failed: int
    """Answers other than 2xx and 3xx, and socket errors."""


class Running:
    """A server process that listens."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=60)

    def crash(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def cpu_s(self) -> float:
        """Processor time of all threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wrk(
        self, lines: Path, seconds: int, connections: int = 16, *, post: str = "", traced: bool = False
    ) -> WrkResult:
        """Ask for the paths in a file, a line each, one after the other, over kept connections; or send its lines as
        JSON to the path `post`. `traced`: each request has a header of its own.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            script.write(WRK_POST_SCRIPT if post else WRK_SCRIPT)
            script.flush()
            command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script.name]
            command += [f"http://127.0.0.1:{self.port}", "--", str(lines), "traced" if traced else post]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return _read_wrk(said)


@contextmanager
def tablet_server(warehouse: Path, *arguments: str) -> Iterator[Running]:
    """`stelae serve`, ready."""
    with _process("stelae", "serve", "-w", str(warehouse), "--port", "0", *arguments) as running:
        yield running


@contextmanager
def bare_server(warehouse: Path, keys: Path, *arguments: str) -> Iterator[Running]:
    """The peer, ready. With the argument ONE_WRITE it also has the tablet server's HTTP protocol."""
    with _process("benchmarks.servers", str(warehouse), str(keys), *arguments) as running:
        yield running


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if match is None:
            raise SystemExit(f"{module} did not start: {line!r}")
        yield Running(process, int(match[1]))
    finally:
        process.terminate()
        process.wait(30)


def make_users(warehouse: Path, rows: int, sql: str = USERS) -> Table:
    """A table of users in a new snapshot, written without Spark; by `sql`, those of NAMES."""
    table = Warehouse(warehouse).create_table(sql)
    ids = np.arange(rows)
    numbers = pa.array(ids).cast(pa.string())
    commit_rows(
        table,
        pa.table(
            {
                "user_id": pa.array(ids),
                "name": pa.compute.binary_join_element_wise("name", numbers, " "),
                "city": pa.compute.binary_join_element_wise("city", pa.array(ids % 100).cast(pa.string()), " "),
                "age": pa.array((ids % 100).astype(np.int32)),
                "score": pa.array(ids / 8),
                "updated": pa.array(1_763_640_000_000_000 + ids, pa.timestamp("us")),
            }
        ),
    )
    return table


def lookup_paths(folder: Path, keys: Sequence[int]) -> Path:
    """A file with the path of a point lookup a line."""
    file = folder / "paths.txt"
    file.write_text("".join(f"{LOOKUP}?user_id={key}\n" for key in keys))
    return file


def _read_wrk(said: str) -> WrkResult:
    def find(pattern: str, default: str = "0") -> str:
        match = re.search(pattern, said)
        return match[1] if match else default

    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    return WrkResult(
        requests_per_s=float(find(r"Requests/sec:\s+([\d.]+)")),
        p99_ms=float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit],
        requests=int(find(r"(\d+) requests in")),
        failed=int(find(r"Non-2xx or 3xx responses: (\d+)")) + (sum(map(int, errors.groups())) if errors else 0),
    )


def serve_bare(warehouse: Path, keys: Path, one_write: bool) -> None:
    """Run the peer in this process."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from stelae.read.open_snapshot import open_snapshot
    from stelae.service.http.uvicorn_config import uvicorn_config
    from stelae.service.http.uvicorn_protocol import OneWriteProtocol
    from stelae.service.options import DEFAULTS

    table = Warehouse(warehouse).table("shop.users")
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-"))
    reader = open_snapshot(table, table.snapshots.read(), folder)
    finds = []
    for key in keys.read_text().split():
        encoded = reader.table.keys.encode((int(key),))
        finds += [(t.get, encoded) for t in reader.partitions[()].tablets if t is not None and t.get(encoded)]
    next_find = itertools.cycle(finds).__next__
    headers = [(b"content-type", b"application/json"), (b"content-length", b"150")]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    end = {"type": "http.response.body", "body": b"x" * 150}

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
        if scope["type"] == "http":
            get, key = next_find()
            get(key)
            await send(start)
            await send(end)

    config = uvicorn_config(app, DEFAULTS, OneWriteProtocol if one_write else HttpToolsProtocol)
    config.lifespan = "off"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"peer at http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server = uvicorn.Server(config)
        server.run(sockets=[listening])


if __name__ == "__main__":
    serve_bare(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == [ONE_WRITE])
