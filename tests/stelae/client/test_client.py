"""Goal: a client gives the rows that are stored, in the types of the table, from one snapshot a call; and says clearly
what failed.

Method: the real tablet server; a proxy that passes requests on and loses the answers. What servers rarely say is in
test_retried_requests.py, keys and rows in Arrow in test_client_arrow.py.
"""
# ruff: noqa: DTZ001, N815 - a TIMESTAMP has no zone; http.server names its methods.

from __future__ import annotations

import http.client
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa
import pytest

from stelae.client.client import Client, InsertedRows, Rows, SnapshotGone
from stelae.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    TooLarge,
    Unavailable,
)
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


def test_errors_of_the_client_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(SnapshotGone("gone", place="p", hint="h")))
    assert (type(error), error.message, error.place, error.hint) == (SnapshotGone, "gone", "p", "h")


def is_ready(client: Client, table: str) -> bool:
    try:
        return client.describe(table).snapshot is not None
    except NotFound:
        return False
