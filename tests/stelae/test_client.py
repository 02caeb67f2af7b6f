"""Goal: a client gives the rows that are stored, in the types of the table, from one snapshot a call; and says clearly
what failed, after trying again where that may help.

Method: the real tablet server for what is answered; a scripted server that says anything, or hangs up, for what goes
wrong.
"""
# ruff: noqa: DTZ001, N815 - a TIMESTAMP has no zone; http.server names its methods.

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pandas as pd
import pyarrow as pa
import pytest
import uvicorn

from service.app import create_app
from service.options import ServerOptions
from stelae.client import Client, Rows, SnapshotGone, lookup_url
from stelae.errors import (
    CorruptData,
    InvalidRequest,
    NotFound,
    StelaeError,
    TooLarge,
    Unavailable,
    problem,
)
from stelae.warehouse import Table, Warehouse
from tests.tables import commit_rows

USERS = """
    CREATE TABLE shop.users (
        user_id BIGINT, name STRING, balance DECIMAL(12, 2), born DATE, seen TIMESTAMP_LTZ(6), local TIMESTAMP(3),
        wakes TIME(0), score DOUBLE, ratio FLOAT, active BOOLEAN, photo BYTES, tags ARRAY<STRING>,
        sizes MAP<INT, DATE>, home ROW<city STRING, since DATE>,
        PRIMARY KEY (user_id) NOT ENFORCED
    ) WITH ('bucket' = '2')"""
ORDERS = """
    CREATE TABLE shop.orders (
        region STRING, user_id BIGINT, placed TIMESTAMP(6), total DECIMAL(20, 4), open BOOLEAN,
        PRIMARY KEY (region, user_id, placed, open) NOT ENFORCED
    ) PARTITIONED BY (region) WITH ('bucket-key' = 'user_id', 'bucket' = '3')"""
DEFAULTS = """
    CREATE TABLE shop.defaults (day DATE, site STRING, v INT, PRIMARY KEY (day, site) NOT ENFORCED)
    WITH ('primary-key.nullable' = 'true')"""

ADA = {
    "user_id": 42,
    "name": "Ada Lovelace – ä",
    "balance": Decimal("10.50"),
    "born": date(1815, 12, 10),
    "seen": datetime(2026, 11, 20, 12, 34, 56, 789_000, UTC),
    "local": datetime(2026, 11, 20, 12, 34, 56, 789_000),
    "wakes": clock_time(6, 30),
    "score": float("inf"),
    "ratio": 0.5,
    "active": True,
    "photo": b"\x00\xff",
    "tags": ["maths", None, ""],
    "sizes": {1: date(2026, 1, 1), 2: None},
    "home": {"city": "London", "since": date(1835, 7, 8)},
}
EMPTY = dict.fromkeys(ADA) | {"user_id": -1}


# A real server


@dataclass
class Served:
    """A warehouse and a server that serves it."""

    warehouse: Warehouse
    url: str
    users: Table
    orders: Table


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    users, orders = warehouse.create_table(USERS), warehouse.create_table(ORDERS)
    commit_rows(users, [ADA, EMPTY, *({"user_id": 1000 + i, "name": f"n{i}"} for i in range(50))])
    commit_rows(orders, [order(region, user, hour) for region in ("eu", "us") for user in (1, 2) for hour in range(6)])
    warehouse.create_table("CREATE TABLE shop.never_built (id INT, PRIMARY KEY (id) NOT ENFORCED)")
    defaults = warehouse.create_table(DEFAULTS)
    commit_rows(defaults, [{"day": None, "site": "a", "v": 1}, {"day": date(2026, 11, 20), "site": None, "v": 2}])
    options = ServerOptions(poll_interval_s=0.05, max_batch_keys=1000, max_page_rows=100)
    with running(options, warehouse) as url:
        yield Served(warehouse, url, users, orders)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as client:
        yield client


def order(region: str, user: int, hour: int) -> dict[str, Any]:
    return {
        "region": region,
        "user_id": user,
        "placed": datetime(2026, 11, 20, hour),
        "open": hour % 2 == 0,
        "total": Decimal(f"{hour}.2500"),
    }


@contextmanager
def running(options: ServerOptions, warehouse: Warehouse) -> Iterator[str]:
    """The tablet server in a thread; gives its URL when it is ready."""
    app = create_app(options, warehouse)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", interface="asgi3"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            deadline = time.monotonic() + 30
            while not app.ready and time.monotonic() < deadline:
                time.sleep(0.01)
            yield url
        finally:
            server.should_exit = True
            thread.join(30)


def test_a_row_comes_back_as_it_was_stored(client: Client) -> None:
    assert client.lookup("shop.users", {"user_id": 42}) == ADA
    assert client.lookup("shop.users", 42) == ADA
    found = client.lookup("shop.users", 42)
    assert found is not None
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in ADA.items()}
    assert list(found) == list(ADA)


def test_none_in_a_key(client: Client) -> None:
    first, second = {"day": None, "site": "a", "v": 1}, {"day": date(2026, 11, 20), "site": None, "v": 2}
    assert client.lookup("shop.defaults", {"day": None, "site": "a"}) == first
    assert client.lookup("shop.defaults", {"day": None, "site": None}) is None
    keys = pd.DataFrame({"day": [None, date(2026, 11, 20)], "site": ["a", None]})
    assert client.lookup_many("shop.defaults", keys) == [first, second]
    assert client.lookup_many("shop.defaults", pa.Table.from_pandas(keys)) == [first, second]
    assert client.prefix_lookup("shop.defaults", {"day": None}).rows == [first]
    with pytest.raises(InvalidRequest, match="user_id is null"):
        client.lookup("shop.users", None)


def test_nulls_come_back_as_none(client: Client) -> None:
    assert client.lookup("shop.users", -1) == EMPTY


def test_a_key_without_a_row_is_none(client: Client) -> None:
    assert client.lookup("shop.users", 7) is None


def test_columns_are_selected_in_the_order_given(client: Client) -> None:
    row = client.lookup("shop.users", 42, columns=["name", "user_id"])
    assert row is not None
    assert list(row.items()) == [("name", ADA["name"]), ("user_id", 42)]


def test_many_rows_are_aligned_with_their_keys(client: Client) -> None:
    rows = client.lookup_many("shop.users", [1001, {"user_id": 42}, 7, 1001], columns=["user_id"])
    assert rows == [{"user_id": 1001}, {"user_id": 42}, None, {"user_id": 1001}]
    assert isinstance(rows, Rows)
    assert rows.snapshot == 1


def test_no_keys_give_no_rows_and_no_request(client: Client) -> None:
    rows = client.lookup_many("shop.users", [])
    assert rows == []
    assert rows.snapshot is None


@pytest.mark.parametrize(
    "keys",
    [
        pa.table({"user_id": [42, 7]}),
        pa.record_batch({"user_id": pa.array([42, 7], pa.int8())}),
        pd.DataFrame({"user_id": [42, 7]}, index=["a", "b"]),
        pd.DataFrame({"user_id": [42, 7]})["user_id"],
        (key for key in (42, 7)),
        range(42, 6, -35),
    ],
    ids=["table", "batch", "frame", "series", "generator", "range"],
)
def test_keys_come_in_many_forms(client: Client, keys: Any) -> None:
    assert client.lookup_many("shop.users", keys, columns=["user_id"]) == [{"user_id": 42}, None]


def test_a_long_list_of_keys_is_split(served: Served) -> None:
    with Client(served.url, batch_size=7) as client:
        keys = [*range(990, 1060), 42]
        rows = client.lookup_many("shop.users", keys, columns=["user_id"])
    assert rows == [{"user_id": key} if 1000 <= key < 1050 or key == 42 else None for key in keys]


@pytest.mark.parametrize(
    "placed",
    [datetime(2026, 11, 20, 2), "2026-11-20T02:00:00", pd.Timestamp("2026-11-20 02:00")],
    ids=["datetime", "text", "pandas"],
)
def test_keys_of_several_columns_are_typed_by_the_table(client: Client, placed: Any) -> None:
    key = {"open": True, "placed": placed, "user_id": 2, "region": "us"}
    assert client.lookup("shop.orders", key) == order("us", 2, 2)
    assert client.lookup_many("shop.orders", [key]) == [order("us", 2, 2)]


def test_times_of_any_zone_are_one_instant(served: Served) -> None:
    sql = "CREATE TABLE shop.events (at TIMESTAMP_LTZ(3), n INT, PRIMARY KEY (at) NOT ENFORCED)"
    table = served.warehouse.create_table(sql)
    commit_rows(table, [{"at": datetime(2026, 11, 20, 12, tzinfo=UTC), "n": 1}])
    zone = timezone(timedelta(hours=5))
    with Client(served.url, retries=8) as client:
        wait_until(lambda: "shop.events" in [info.name for info in client.tables()])
        row = client.lookup("shop.events", datetime(2026, 11, 20, 17, tzinfo=zone))
    assert row == {"at": datetime(2026, 11, 20, 12, tzinfo=UTC), "n": 1}


def test_rows_of_a_prefix_come_in_key_order_page_by_page(client: Client) -> None:
    first = client.prefix_lookup("shop.orders", {"region": "eu", "user_id": 1}, limit=4, columns=["placed", "open"])
    assert [row["placed"].hour for row in first.rows] == [0, 1, 2, 3]
    assert first.snapshot == 1
    second = client.prefix_lookup(
        "shop.orders", {"region": "eu", "user_id": 1}, limit=4, columns=["placed"], page_token=first.next_page_token
    )
    assert [row["placed"].hour for row in second.rows] == [4, 5]
    assert second.next_page_token is None


def test_a_scan_gives_all_pages(client: Client) -> None:
    rows = list(client.prefix_scan("shop.orders", {}, page_size=5))
    assert len(rows) == 24
    assert [row for row in rows if row["region"] == "us" and row["user_id"] == 2] == [
        order("us", 2, hour) for hour in range(6)
    ]


def test_a_scan_stays_in_its_snapshot(served: Served) -> None:
    table = served.warehouse.create_table("CREATE TABLE shop.swapped (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)")
    commit_rows(table, [{"id": i, "v": 1} for i in range(10)])
    with Client(served.url, retries=8) as client:
        wait_until(lambda: is_ready(client, "shop.swapped"))
        scan = client.prefix_scan("shop.swapped", {}, page_size=3)
        seen = [next(scan)]
        commit_rows(table, [{"id": i, "v": 2} for i in range(10)])
        wait_until(lambda: client.describe("shop.swapped").snapshot == 2)
        seen += scan
        assert [row["v"] for row in seen] == [1] * 10
        assert client.lookup("shop.swapped", 3) == {"id": 3, "v": 2}
        assert client.lookup("shop.swapped", 3, snapshot=1) == {"id": 3, "v": 1}
        commit_rows(table, [{"id": i, "v": 3} for i in range(10)])
        wait_until(lambda: client.describe("shop.swapped").snapshot == 3)
        with pytest.raises(NotFound, match="snapshot 1 of"):
            client.lookup("shop.swapped", 3, snapshot=1)


def test_tables_are_described(client: Client, served: Served) -> None:
    names = [info.name for info in client.tables()]
    assert {"shop.never_built", "shop.orders", "shop.users"} <= set(names)
    info = client.describe("shop.users")
    assert info.schema == served.users.schema
    assert (info.state, info.snapshot, info.rows) == ("READY", 1, 52)
    assert client.describe("shop.never_built").snapshot is None


def test_threads_share_a_client(client: Client) -> None:
    wrong: list[Any] = []

    def look() -> None:
        for number in range(1000, 1050):
            row = client.lookup("shop.users", number, columns=["name"])
            if row != {"name": f"n{number - 1000}"}:
                wrong.append((number, row))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda c: c.lookup("shop.nix", 1), NotFound, "no table 'shop.nix'"),
        (lambda c: c.lookup("a.b.c", 1), InvalidRequest, "3 parts"),
        (lambda c: c.lookup("shop.users", {"user": 1}), InvalidRequest, "unknown column 'user'"),
        (lambda c: c.lookup("shop.users", {"name": "x"}), InvalidRequest, "not a primary-key column"),
        (lambda c: c.lookup("shop.orders", {"user_id": 1}), InvalidRequest, "lacks region, placed, open"),
        (lambda c: c.lookup("shop.orders", 1), InvalidRequest, "maps region, user_id, placed, open"),
        (lambda c: c.lookup("shop.users", (1,)), InvalidRequest, "maps user_id"),
        (lambda c: c.lookup("shop.users", None), InvalidRequest, "user_id is null"),
        (lambda c: c.lookup("shop.users", "x"), InvalidRequest, "user_id"),
        (lambda c: c.lookup("shop.users", True), InvalidRequest, "boolean"),
        (lambda c: c.lookup("shop.users", 1.0), InvalidRequest, "whole number"),
        (lambda c: c.lookup("shop.users", 1 << 63), InvalidRequest, "out of range"),
        (lambda c: c.lookup("shop.users", 1, columns=["nix"]), InvalidRequest, "unknown column 'nix'"),
        (lambda c: c.lookup("shop.users", 1, columns=[]), InvalidRequest, "selects nothing"),
        (lambda c: c.lookup("shop.users", 1, columns="name"), InvalidRequest, "columns is one text"),
        (lambda c: c.lookup("shop.users", 1, snapshot=99), NotFound, "snapshot 99"),
        (lambda c: c.lookup_many("shop.users", {"user_id": 1}), InvalidRequest, "a sequence of keys"),
        (lambda c: c.lookup_many("shop.users", "12"), InvalidRequest, "a sequence of keys"),
        (lambda c: c.lookup_many("shop.users", [1, "x"]), InvalidRequest, r"keys\[1\]\.user_id"),
        (lambda c: c.lookup_many("shop.orders", [1]), InvalidRequest, r"keys\[0\]"),
        (lambda c: c.lookup_many("shop.users", [1], snapshot=99), NotFound, "snapshot 99"),
        (lambda c: c.lookup_many("shop.users", range(2000)), TooLarge, "2,000 keys"),
        (lambda c: c.prefix_lookup("shop.orders", 1), InvalidRequest, "a prefix maps columns"),
        (lambda c: c.prefix_lookup("shop.orders", {"open": True}), InvalidRequest, "not a prefix of the key"),
        (lambda c: c.prefix_lookup("shop.orders", {}, limit=0), InvalidRequest, "limit"),
        (lambda c: c.prefix_lookup("shop.orders", {}, limit=101), TooLarge, "limit"),
        (lambda c: c.prefix_lookup("shop.orders", {}, page_token="?"), InvalidRequest, "page token"),
        (lambda c: c.insert_if_not_exists("shop.users", "1"), InvalidRequest, "a sequence of keys"),
    ],
)  # fmt: skip
def test_what_bad_requests_get(client: Client, call: Callable[[Client], object], kind: type, told: str) -> None:
    with pytest.raises(kind, match=told) as caught:
        call(client)
    assert type(caught.value) in (kind, SnapshotGone)


def test_a_table_without_a_snapshot_is_unavailable(served: Served) -> None:
    with Client(served.url, retries=0) as client, pytest.raises(Unavailable, match="no snapshot yet"):
        client.lookup("shop.never_built", 1)


# A scripted server


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
    from stelae.ddl import parse_create_table

    columns = ", ".join(["id BIGINT", "v STRING", *more])
    return parse_create_table(f"CREATE TABLE t.t ({columns}, PRIMARY KEY (id) NOT ENFORCED)")[1].encode()


def found(snapshot: int = 1, **row: Any) -> Say:
    return Say(body={"found": True, "row": row, "snapshot": snapshot}, headers={"Stelae-Snapshot": str(snapshot)})


def batch(*ids: int, snapshot: int = 1) -> Say:
    rows = [{"id": number, "v": f"s{snapshot}"} for number in ids]
    return Say(body={"rows": rows, "snapshot": snapshot}, headers={"Stelae-Snapshot": str(snapshot)})


def trouble(error: StelaeError, status: int, **headers: str) -> Say:
    return Say(status, problem(error), headers, content="application/problem+json")


GONE = NotFound("snapshot 1 of t.t is not open here", place="Stelae-Snapshot")


def test_a_point_lookup_is_a_get() -> None:
    with Script(found(id=1, v="x")) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1, columns=["id", "v"], snapshot=5) == {"id": 1, "v": "x"}
    [asked] = script.asked
    assert (asked.method, asked.path) == ("GET", "/v1/tables/t.t/lookup")
    assert asked.query == {"id": "1", "columns": "id,v"}
    assert asked.headers["Stelae-Snapshot"] == "5"
    assert asked.headers["User-Agent"].startswith("stelae/")


def test_a_url_may_have_a_path_and_headers_go_along() -> None:
    with Script(found(id=1, v="x")) as script:
        with Client(script.url + "/stelae/", headers={"Authorization": "Bearer x"}) as client:
            client.lookup("t.t", 1)
        assert script.asked[0].path == "/stelae/v1/tables/t.t/lookup"
        assert script.asked[0].headers["Authorization"] == "Bearer x"


def test_what_a_query_cannot_say_is_sent_as_a_body() -> None:
    assert lookup_url("a.b", {"k": 1}, None) == "/v1/tables/a.b/lookup?k=1"
    assert (
        lookup_url("a.b", {"k": "ä &=", "b": True}, ["x"]) == "/v1/tables/a.b/lookup?k=%C3%A4+%26%3D&b=true&columns=x"
    )
    assert lookup_url("a.b", {"columns": 1}, ["x"]) is None
    assert lookup_url("a.b", {"k": 1}, ["x,y"]) is None
    assert lookup_url("a.b", {"k": None, "b": 1}, None) is None
    assert lookup_url("a.b", {"k": "x" * 5000}, None) is None
    with Script(batch(1)) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1, columns=["a,b"]) == {"id": 1, "v": "s1"}
    assert script.asked[0].body == {"keys": [1], "columns": ["a,b"]}


def test_the_schema_is_fetched_once_a_table() -> None:
    with Script(found(id=1, v="x"), found(id=1, v="x"), batch(1)) as script, Client(script.url) as client:
        client.lookup("t.t", 1)
        client.lookup("t.t", 1)
        client.lookup_many("t.t", [1])
        assert script.described == 1


def test_an_unknown_column_makes_the_client_look_again() -> None:
    schemas = [schema_json(), schema_json("born DATE")]
    with Script(found(id=1, born="2026-11-20"), schemas=schemas) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1) == {"id": 1, "born": date(2026, 11, 20)}
        assert script.described == 2


def test_a_table_without_a_readable_schema_is_listed() -> None:
    bodies = [
        {"name": "t.bad", "state": "FAILED", "schema": None, "snapshot": None, "rows": None},
        {"name": "t.t", "state": "READY", "schema": schema_json(), "snapshot": 1, "rows": 1},
    ]
    with Script(Say(body={"tables": bodies})) as script, Client(script.url) as client:
        bad, good = client.tables()
    assert (bad.name, bad.schema, bad.snapshot, bad.rows) == ("t.bad", None, None, None)
    assert good.schema is not None


def test_a_column_that_no_schema_has_is_an_error() -> None:
    told = pytest.raises(Unavailable, match="does not fit the schema")
    with Script(found(id=1, nix=1)) as script, Client(script.url) as client, told:
        client.lookup("t.t", 1)


def test_parts_of_a_batch_share_the_snapshot_of_the_first() -> None:
    with Script(batch(1, 2, snapshot=7), batch(3, snapshot=7)) as script, Client(script.url, batch_size=2) as client:
        rows = client.lookup_many("t.t", [1, 2, 3])
    assert [row["id"] for row in rows if row] == [1, 2, 3]
    assert rows.snapshot == 7
    assert "Stelae-Snapshot" not in script.asked[0].headers
    assert script.asked[1].headers["Stelae-Snapshot"] == "7"


def test_a_batch_starts_again_when_its_snapshot_is_gone() -> None:
    answers = [batch(1), trouble(GONE, 404), batch(1, snapshot=3), batch(2, snapshot=3)]
    with Script(*answers) as script, Client(script.url, batch_size=1) as client:
        rows = client.lookup_many("t.t", [1, 2])
    assert rows == [{"id": 1, "v": "s3"}, {"id": 2, "v": "s3"}]
    assert rows.snapshot == 3


def test_a_batch_gives_up_when_snapshots_keep_going() -> None:
    answers = [batch(1), trouble(GONE, 404)] * 3
    told = pytest.raises(NotFound, match="not open here")
    with Script(*answers) as script, Client(script.url, batch_size=1) as client, told:
        client.lookup_many("t.t", [1, 2])
    assert script.answers == []


@pytest.mark.parametrize(
    "failure",
    [
        Say(hang_up=True),
        trouble(Unavailable("loading"), 503),
        Say(502, b"<html>", content="text/html"),
        Say(429, b"slow down", content="text/plain"),
    ],
    ids=["hang up", "loading", "proxy", "too many"],
)
@pytest.mark.parametrize("many", [False, True], ids=["get", "post"])
def test_what_may_pass_is_tried_again(failure: Say, many: bool) -> None:
    with Script(failure, failure, batch(1) if many else found(id=1, v="x")) as script, Client(script.url) as client:
        assert client.lookup_many("t.t", [1])[0] if many else client.lookup("t.t", 1)
    assert len(script.asked) == 3


def test_tries_come_to_an_end_with_the_reason() -> None:
    loading = trouble(Unavailable("table t.t is loading", place="t.t", hint="in a moment"), 503)
    told = pytest.raises(Unavailable, match="is loading")
    with Script(loading, loading) as script, Client(script.url, retries=1) as client, told as caught:
        client.lookup("t.t", 1)
    assert (caught.value.place, caught.value.hint) == ("t.t", "in a moment")


def test_retry_after_is_obeyed() -> None:
    loading = trouble(Unavailable("loading"), 503, **{"Retry-After": "1"})
    with Script(loading, found(id=1, v="x")) as script, Client(script.url) as client:
        client.describe("t.t")
        started = time.monotonic()
        client.lookup("t.t", 1)
        assert time.monotonic() - started >= 1


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (trouble(CorruptData("bad block", place="x.sst"), 500), CorruptData, "bad block"),
        (trouble(TooLarge("too long"), 413), TooLarge, "too long"),
        (trouble(NotFound("no table"), 404), NotFound, "no table"),
        (Say(500, b"oops", content="text/plain"), Unavailable, "500"),
        (Say(404, b"<html>", content="text/html"), InvalidRequest, "not the answer of a tablet server: 404"),
        (Say(404, {"detail": "Not Found"}), InvalidRequest, "not the answer of a tablet server: 404"),
        (Say(200, b"<html>", content="text/html"), InvalidRequest, "not the answer of a tablet server"),
        (Say(200, b"{", content="application/json"), InvalidRequest, "not the answer of a tablet server"),
        (Say(307, b"", {"Location": "http://127.0.0.1:1/"}), InvalidRequest, "307"),
        (Say(200, {"nothing": 1}), Unavailable, "the answer lacks or garbles 'row'"),
        (Say(200, [1]), Unavailable, "the answer lacks or garbles"),
    ],
)  # fmt: skip
def test_what_servers_say_becomes_an_error(answer: Say, kind: type, told: str) -> None:
    with Script(answer) as script, Client(script.url) as client, pytest.raises(kind, match=told) as caught:
        client.lookup("t.t", 1)
    assert type(caught.value) is kind


def test_a_slow_answer_is_not_asked_for_again() -> None:
    told = pytest.raises(Unavailable, match=r"no answer within 0\.2 s")
    with Script(Say(body={}, delay_s=1.0)) as script, Client(script.url, timeout_s=0.2) as client, told:
        client.lookup("t.t", 1)
    assert len(script.asked) == 1


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with Client(url, retries=1) as client, pytest.raises(Unavailable, match="Connection refused") as caught:
        client.lookup("t.t", 1)
    assert caught.value.place == f"{url}/v1/tables/t.t"
    assert "stelae serve" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "", "http://a/?x=1", "http://me:pw@a/", None, "http://[::1"]
)
def test_a_url_must_be_that_of_a_server(url: Any) -> None:
    with pytest.raises(InvalidRequest, match="URL"):
        Client(url)


def test_a_closed_client_says_so() -> None:
    client = Client("http://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.tables()


def test_errors_of_the_client_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(SnapshotGone("gone", place="p", hint="h")))
    assert (type(error), error.message, error.place, error.hint) == (SnapshotGone, "gone", "p", "h")


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_ready(client: Client, table: str) -> bool:
    try:
        return client.describe(table).snapshot is not None
    except NotFound:
        return False
