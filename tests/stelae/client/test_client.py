"""Goal: a client gives the rows that are stored, in the types of the table, from one snapshot a call; and says clearly
what failed, after trying again where that may help.

Method: the real tablet server for what is answered; a scripted server that says anything, or hangs up, for what goes
wrong; a proxy that passes requests on and loses the answers.
"""
# ruff: noqa: DTZ001, N815 - a TIMESTAMP has no zone; http.server names its methods.

from __future__ import annotations

import http.client
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.client.arguments import lookup_url
from stelae.client.client import Client, InsertedRows, Rows, SnapshotGone
from stelae.client.json_codec import JsonCodec
from stelae.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    StelaeError,
    TooLarge,
    Unavailable,
    problem,
)
from stelae.schema.sql import parse_create_table
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Table, Warehouse
from tests.service.listening import listening
from tests.tables import commit_rows
from tests.waiting import wait_until

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

UIDS = """
    CREATE TABLE shop.uids (name STRING, id BIGINT, seen DATE, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '2', 'auto-increment.fields' = 'id')"""
VISITS = """
    CREATE TABLE shop.visits (day DATE, user_id BIGINT, id BIGINT, PRIMARY KEY (day, user_id) NOT ENFORCED)
    PARTITIONED BY (day) WITH ('bucket' = '1', 'auto-increment.fields' = 'id')"""

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
DAY = date(2026, 11, 20)
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
    warehouse.create_table(UIDS)
    commit_rows(warehouse.create_table(VISITS), [{"day": DAY, "user_id": 0}])
    options = ServerOptions(poll_interval_s=0.05, max_batch_keys=1000, max_page_rows=100)
    with listening(options, warehouse) as url:
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
    assert client.lookup_many("shop.defaults", keys).to_dict("records") == [first, second]
    assert client.lookup_many("shop.defaults", pa.Table.from_pandas(keys)).to_pylist() == [first, second]
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
        pd.DataFrame({"user_id": [42, 7]})["user_id"],
        pa.array([42, 7]),
        (key for key in (42, 7)),
        range(42, 6, -35),
    ],
    ids=["series", "array", "generator", "range"],
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
        assert client.lookup("shop.swapped", 3, snapshot=1) == {"id": 3, "v": 1}  # Pins last as long as they are used.


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
        (lambda c: c.lookup_many("shop.users", [1, {"user_id": 2, "name": "x"}]), InvalidRequest, "not a primary-key"),
        (lambda c: c.lookup_many("shop.orders", [{"user_id": 1}]), InvalidRequest, "lacks region, placed, open"),
        (lambda c: c.insert_if_not_exists("shop.uids", "ann"), InvalidRequest, "a sequence of keys"),
        (lambda c: c.insert_if_not_exists("shop.uids", {"name": "ann"}), InvalidRequest, "a sequence of keys"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["ann", None]), InvalidRequest, "name is null"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["ann", 7]), InvalidRequest, r"keys\[1\]\.name"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["\ud800"]), InvalidRequest, "surrogate"),
        (lambda c: c.insert_if_not_exists("shop.uids", [{"name": "ann", "id": 7}]), InvalidRequest, "primary-key"),
        (lambda c: c.insert_if_not_exists("shop.uids", [{"Name": "ann"}]), InvalidRequest, "unknown column 'Name'"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["ann"], columns=["nix"]), InvalidRequest, "'nix'"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["ann"], columns="id"), InvalidRequest, "columns is one text"),
        (lambda c: c.insert_if_not_exists("shop.uids", map(str, range(2000))), TooLarge, "2,000 keys"),
        (lambda c: c.insert_if_not_exists("shop.nix", ["ann"]), NotFound, "no table 'shop.nix'"),
    ],
)  # fmt: skip
def test_what_bad_requests_get(client: Client, call: Callable[[Client], object], kind: type, told: str) -> None:
    with pytest.raises(kind, match=told) as caught:
        call(client)
    assert type(caught.value) in (kind, SnapshotGone)


def test_a_table_without_a_snapshot_is_unavailable(served: Served) -> None:
    with Client(served.url, retries=0) as client, pytest.raises(Unavailable, match="no snapshot yet"):
        client.lookup("shop.never_built", 1)


# Inserts


@pytest.fixture
def uids(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that has an empty dictionary table, shop.uids."""
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.create_table(UIDS)
    with listening(ServerOptions(poll_interval_s=0.05), warehouse) as url:
        yield url


def test_inserted_rows_are_aligned_with_their_keys(uids: str) -> None:
    with Client(uids) as client:
        rows = client.insert_if_not_exists("shop.uids", ["ann", {"name": "bob"}, "ann"])
        assert rows == [
            {"name": "ann", "id": 1, "seen": None},
            {"name": "bob", "id": 2, "seen": None},
            {"name": "ann", "id": 1, "seen": None},
        ]
        assert isinstance(rows, InsertedRows)
        assert rows.inserted == [True, True, False]
        assert rows.snapshot == 1
        again = client.insert_if_not_exists("shop.uids", ["cleo", "bob"], columns=["id"])
        assert (again, again.inserted) == ([{"id": 3}, {"id": 2}], [True, False])
        assert client.lookup_many("shop.uids", ["cleo", "dan", "ann"], columns=["id"]) == [{"id": 3}, None, {"id": 1}]
        nothing = client.insert_if_not_exists("shop.uids", [])
        assert (nothing, nothing.inserted, nothing.snapshot) == ([], [], None)


@pytest.mark.parametrize(
    "keys",
    [
        pd.DataFrame({"name": ["ann", "bob", "ann"]})["name"],
        pa.array(["ann", "bob", "ann"]).dictionary_encode(),
        ({"name": name} for name in ("ann", "bob", "ann")),
    ],
    ids=["series", "array", "generator"],
)
def test_keys_to_insert_come_in_many_forms(uids: str, keys: Any) -> None:
    with Client(uids) as client:
        rows = client.insert_if_not_exists("shop.uids", keys, columns=["id"])
    assert rows == [{"id": 1}, {"id": 2}, {"id": 1}]
    assert rows.inserted == [True, True, False]


def test_many_keys_to_insert_are_split(uids: str) -> None:
    with Client(uids, batch_size=7) as client:
        keys = [f"n{i % 20}" for i in range(50)]
        rows = client.insert_if_not_exists("shop.uids", keys)
    assert [row["name"] for row in rows if row] == keys
    assert [row["id"] for row in rows if row] == [i % 20 + 1 for i in range(50)]
    assert rows.inserted == [i < 20 for i in range(50)]


def test_a_key_of_a_partition_that_is_not_there_has_no_row(client: Client) -> None:
    other = date(1999, 1, 1)
    keys = [{"day": other, "user_id": 1}, {"day": DAY, "user_id": 1}, {"user_id": 1, "day": "2026-11-20"}]
    rows = client.insert_if_not_exists("shop.visits", keys)
    assert rows == [None, {"day": DAY, "user_id": 1, "id": 1}, {"day": DAY, "user_id": 1, "id": 1}]
    assert rows.inserted == [False, True, False]


def test_nothing_is_inserted_where_a_key_of_a_later_part_is_wrong(uids: str) -> None:
    with Client(uids, batch_size=1) as client:
        client.insert_if_not_exists("shop.uids", ["first"])
        for wrong in (None, 7, "\udc00", {}, {"name": "x", "id": 1}, {"names": "x"}):
            with pytest.raises(InvalidRequest, match=r"keys\[1\]|unknown column") as caught:
                client.insert_if_not_exists("shop.uids", ["ann", wrong])
            assert (caught.value.place or "").startswith("keys[1]")
        assert client.lookup("shop.uids", "ann") is None


def test_a_server_that_does_not_own_the_table_names_the_one_that_does(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.create_table(UIDS)
    first = ServerOptions(poll_interval_s=0.05, name="first", advertise_url="http://first.example:8000")
    second = ServerOptions(poll_interval_s=0.05, name="second")
    with (
        listening(first, warehouse) as url,
        listening(second, warehouse) as other_url,
        Client(url) as client,
        Client(other_url) as other,
    ):
        client.insert_if_not_exists("shop.uids", ["ann"])
        with pytest.raises(Conflict, match="owned by server 'first'") as caught:
            other.insert_if_not_exists("shop.uids", ["ann"])
        assert "http://first.example:8000" in (caught.value.hint or "")
        assert client.insert_if_not_exists("shop.uids", ["ann"])[0] == {"name": "ann", "id": 1, "seen": None}


def test_lost_answers_give_no_key_a_second_id(uids: str) -> None:
    """Every other answer is lost on its way, behind the server that has written."""
    with Losing(uids, lambda number: number % 2 == 1) as proxy, Client(proxy.url, batch_size=5) as client:
        rows = client.insert_if_not_exists("shop.uids", [f"n{i}" for i in range(20)])
        assert [row["id"] for row in rows if row] == list(range(1, 21))
        # The repetitions found what the first attempts had inserted.
        assert rows.inserted == [False] * 20
        assert len(proxy.passed) == 8
    with Client(uids) as client:
        assert client.insert_if_not_exists("shop.uids", [f"n{i}" for i in range(21)])[20] == {
            "name": "n20", "id": 21, "seen": None,
        }  # fmt: skip


def test_a_call_that_fails_in_the_middle_can_be_repeated(uids: str) -> None:
    keys = [f"n{i}" for i in range(9)]
    with Losing(uids, lambda number: number == 2) as proxy, Client(proxy.url, batch_size=3, retries=0) as client:
        with pytest.raises(Unavailable) as caught:
            client.insert_if_not_exists("shop.uids", keys)
        assert "the first 3 keys of the call are in the table" in (caught.value.hint or "")
        assert client.lookup_many("shop.uids", keys, columns=["id"]) == [{"id": i} for i in range(1, 7)] + [None] * 3
        rows = client.insert_if_not_exists("shop.uids", keys, columns=["id"])
    assert rows == [{"id": i} for i in range(1, 10)]
    assert rows.inserted == [False] * 6 + [True] * 3


class Losing:
    """A proxy before a server: what is asked gets there, some answers do not get back."""

    def __init__(self, to: str, loses: Callable[[int], bool]) -> None:
        """`loses`: whether the answer to the nth insert, from 1, gets lost."""
        self.passed: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {"Content-Type": self.headers.get("Content-Type", "")} if body else {}
                connection = http.client.HTTPConnection(urlsplit(to).netloc)
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if self.path.endswith("insert-if-not-exists"):
                    proxy.passed.append(self.path)
                    if loses(len(proxy.passed)):
                        self.connection.shutdown(socket.SHUT_RDWR)
                        self.close_connection = True
                        return
                self.send_response(answer.status)
                for name in ("Content-Type", "Stelae-Snapshot"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_any

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Losing:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


# Keys in JSON


PLAIN = st.one_of(st.text(max_size=4), st.integers(-(1 << 64), 1 << 64), st.just("\ud800"), st.booleans(), st.none())
KEYS = st.one_of(
    st.lists(st.text(max_size=3)),
    st.lists(st.integers(-200, 200)),
    st.lists(st.builds(dict, k=st.one_of(st.text(max_size=3), st.integers(-200, 200)))),
    st.lists(st.one_of(PLAIN, st.builds(dict, k=PLAIN), st.builds(dict, k=PLAIN, v=PLAIN), st.builds(dict, v=PLAIN))),
)


@pytest.mark.parametrize("sql_type", ["STRING", "VARCHAR(2)", "TINYINT", "BIGINT", "DATE", "DOUBLE"])
@given(keys=KEYS)
def test_keys_that_are_checked_at_once_are_those_that_are_checked_one_by_one(sql_type: str, keys: list[Any]) -> None:
    check_keys(f"k {sql_type}", ["k"], keys)


PAIRS = st.one_of(
    st.lists(st.builds(dict, k=st.text(max_size=3), v=st.integers(-200, 200))),
    st.lists(st.one_of(PLAIN, st.builds(dict, k=PLAIN), st.builds(dict, k=PLAIN, v=PLAIN))),
)


@pytest.mark.parametrize("sql_types", [("STRING", "TINYINT"), ("BIGINT", "VARCHAR(1)"), ("STRING", "DATE")])
@given(keys=PAIRS)
def test_keys_of_several_columns_that_are_checked_at_once(sql_types: tuple[str, str], keys: list[Any]) -> None:
    check_keys(f"k {sql_types[0]}, v {sql_types[1]}", ["k", "v"], keys)


def check_keys(columns: str, names: list[str], keys: list[Any]) -> None:
    """The client takes and refuses the keys that it takes and refuses alone, and sends the same."""
    table = f"CREATE TABLE t ({columns}, x INT, PRIMARY KEY ({', '.join(names)}) NOT ENFORCED)"
    view = JsonCodec(parse_create_table(table)[1])

    def one_by_one() -> list[Any]:
        if any(isinstance(key, dict) and set(key) != set(names) for key in keys):
            raise InvalidRequest("not the key")
        return [view.key_to_json(key) for key in keys]

    def outcome(work: Callable[[], list[Any]]) -> list[Any] | None:
        try:
            return work()
        except InvalidRequest:
            return None

    got = outcome(lambda: view.keys_to_json(keys))
    assert (got and [key if isinstance(key, dict) else {names[0]: key} for key in got]) == outcome(one_by_one)


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


def test_an_insert_is_a_post_of_bare_keys() -> None:
    with Script(inserted(1, 2)) as script, Client(script.url) as client:
        client.insert_if_not_exists("t.t", [{"id": 1}, {"id": 2}], columns=["id", "v"])
    [asked] = script.asked
    assert (asked.method, asked.path) == ("POST", "/v1/tables/t.t/insert-if-not-exists")
    assert asked.body == {"keys": [1, 2], "columns": ["id", "v"]}
    assert "Stelae-Snapshot" not in asked.headers


@pytest.mark.parametrize("failure", [Say(hang_up=True), trouble(Unavailable("a flush failed"), 503)])
def test_inserts_are_tried_again(failure: Say) -> None:
    with Script(failure, inserted(1, 2, first=2)) as script, Client(script.url) as client:
        rows = client.insert_if_not_exists("t.t", [1, 2])
    assert rows.inserted == [False, True]
    assert len(script.asked) == 2


def test_an_insert_without_an_answer_is_not_sent_again() -> None:
    told = pytest.raises(Unavailable, match=r"no answer within 0\.2 s")
    with Script(Say(body={}, delay_s=1.0)) as script, Client(script.url, timeout_s=0.2) as client, told:
        client.insert_if_not_exists("t.t", [1])
    assert len(script.asked) == 1


def test_the_owner_of_a_table_is_named_and_asked_once() -> None:
    hint = "send writes to it: http://other:8000"
    told = pytest.raises(Conflict, match="is owned by")
    refused = trouble(Conflict("table t.t is owned by server 'other'", hint=hint), 409)
    with Script(refused) as script, Client(script.url) as client, told as caught:
        client.insert_if_not_exists("t.t", [1])
    assert caught.value.hint == hint
    assert len(script.asked) == 1


def test_errors_of_later_parts_name_the_key_of_the_call() -> None:
    wrong = trouble(InvalidRequest("no", place="keys[1].id", hint="look"), 400)
    with Script(inserted(1, 2), wrong) as script, Client(script.url, batch_size=2) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.insert_if_not_exists("t.t", [1, 2, 3, 4])
        assert caught.value.place == "keys[3].id"
        assert caught.value.hint == "look; the first 2 keys of the call are in the table; it can be repeated as it is"
    with Script(batch(1, 2), wrong) as script, Client(script.url, batch_size=2) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.lookup_many("t.t", [1, 2, 3, 4])
        assert (caught.value.place, caught.value.hint) == ("keys[3].id", "look")


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [{"id": 1}], "inserted": [True, True]},
        {"rows": [{"id": 1}, {"id": 2}], "inserted": [True]},
        {"rows": [{"id": 1}, {"id": 2}]},
        {"rows": 2, "inserted": [True, True]},
    ],
)
def test_answers_that_are_not_aligned_are_refused(body: Any) -> None:
    told = pytest.raises(Unavailable, match="lacks or garbles")
    with Script(Say(body=body)) as script, Client(script.url) as client, told:
        client.insert_if_not_exists("t.t", [1, 2])


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


def is_ready(client: Client, table: str) -> bool:
    try:
        return client.describe(table).snapshot is not None
    except NotFound:
        return False
