"""Goal: prefix lookups over HTTP: pages in key order, what is wrong gets a clear error, paging goes on after a swap.

Method: a server in this process; what order and matches mean is tested at the reader
(tests/stelae/read/test_prefix_scan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import Server, serving
from tests.tables import commit_rows

ORDERS = """CREATE TABLE shop.orders (
    user_id BIGINT, order_id INT, status STRING, PRIMARY KEY (user_id, order_id) NOT ENFORCED
) WITH ('bucket-key' = 'user_id')"""
EVENTS = """CREATE TABLE shop.events (
    day DATE, kind STRING, n INT, PRIMARY KEY (day, kind, n) NOT ENFORCED
) PARTITIONED BY (day)"""
ORDERS_PATH = "/v1/tables/shop.orders/prefix-lookup"
EVENTS_PATH = "/v1/tables/shop.events/prefix-lookup"

MAX_ROWS = 900
DAYS = ("2026-11-19", "2026-11-20", "2026-11-21")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    commit_rows(
        warehouse.create_table(ORDERS),
        [{"user_id": u, "order_id": o, "status": f"{u}/{o}"} for u in range(-3, 4) for o in range(400)],
        hidden=[{"user_id": 1, "order_id": o} for o in range(100, 300)],
    )
    commit_rows(
        warehouse.create_table(EVENTS),
        [{"day": day, "kind": kind, "n": n} for day in DAYS for kind in ("click", "view") for n in range(50)],
        buckets={(day,): i + 1 for i, day in enumerate(DAYS)},
    )
    with serving(warehouse, max_page_rows=MAX_ROWS) as server:
        yield server


def ask(server: Server, path: str, headers: dict[str, str] | None = None, **body: object) -> Any:
    answer = server.post(path, body, headers)
    assert answer.status == 200, answer.body
    assert answer.headers["stelae-snapshot"] == str(answer.json["snapshot"])
    return answer.json


def test_one_bucket(server: Server) -> None:
    answer = ask(server, ORDERS_PATH, prefix={"user_id": 2}, limit=3)
    assert answer["rows"] == [{"user_id": 2, "order_id": o, "status": f"2/{o}"} for o in range(3)]
    assert answer["next_page_token"]
    assert answer["snapshot"] == 1


def test_the_whole_key(server: Server) -> None:
    answer = ask(server, ORDERS_PATH, prefix={"user_id": 2, "order_id": 7}, columns=["status"])
    assert answer == {"rows": [{"status": "2/7"}], "next_page_token": None, "snapshot": 1}


def test_nothing_there(server: Server) -> None:
    answer = ask(server, ORDERS_PATH, prefix={"user_id": 99})
    assert answer == {"rows": [], "next_page_token": None, "snapshot": 1}


def test_the_default_limit(server: Server) -> None:
    assert len(ask(server, ORDERS_PATH, prefix={"user_id": 2})["rows"]) == 100
    assert (
        len(ask(server, ORDERS_PATH, prefix={"user_id": 2}, limit=None, page_token=None, columns=None)["rows"]) == 100
    )


def test_hidden_rows_are_skipped(server: Server) -> None:
    rows = ask(server, ORDERS_PATH, prefix={"user_id": 1}, limit=800)["rows"]
    assert [row["order_id"] for row in rows] == [*range(100), *range(300, 400)]


def pages(
    server: Server, path: str, limit: int, headers: dict[str, str] | None = None, **body: object
) -> Iterator[Any]:
    token = None
    while True:
        page = ask(server, path, headers, limit=limit, page_token=token, **body)
        yield page["rows"]
        token = page["next_page_token"]
        if token is None:
            return


@pytest.mark.parametrize("limit", [1, 7, 100, 256, 257, 300, 900])
def test_pages_over_all_buckets_are_in_key_order(server: Server, limit: int) -> None:
    found = list(pages(server, ORDERS_PATH, limit, prefix={}, columns=["user_id", "order_id"]))
    rows = [(row["user_id"], row["order_id"]) for page in found for row in page]
    hidden = {(1, o) for o in range(100, 300)}
    assert rows == [(u, o) for u in range(-3, 4) for o in range(400) if (u, o) not in hidden]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert found[-1]


@pytest.mark.parametrize("limit", [1, 33, 200])
@pytest.mark.parametrize("prefix", [{}, {"kind": "view"}, {"day": DAYS[1]}, {"day": DAYS[2], "kind": "click"}])
def test_pages_over_partitions(server: Server, limit: int, prefix: dict[str, str]) -> None:
    rows = [tuple(row.values()) for page in pages(server, EVENTS_PATH, limit, prefix=prefix) for row in page]
    days = [prefix["day"]] if "day" in prefix else DAYS
    kinds = [prefix["kind"]] if "kind" in prefix else ["click", "view"]
    assert rows == [(day, kind, n) for day in days for kind in kinds for n in range(50)]


@pytest.mark.parametrize(
    ("body", "status", "place", "words"),
    [
        ({}, 400, "prefix", "lacks prefix"),
        ({"prefix": None}, 400, "prefix", "null"),
        ({"prefix": [1]}, 400, "prefix", "array"),
        ({"prefix": {"order_id": 1}}, 400, "prefix", "'user_id' is missing"),
        ({"prefix": {"status": "x"}}, 400, "status", "not a primary-key column"),
        ({"prefix": {"nix": "x"}}, 400, "nix", "unknown column"),
        ({"prefix": {"user_id": "x"}}, 400, "user_id", "BIGINT"),
        ({"prefix": {"user_id": None}}, 400, "user_id", "null"),
        ({"prefix": {"user_id": 2**63}}, 400, "user_id", "range"),
        ({"prefix": {}, "limit": 0}, 400, "limit", "at least 1"),
        ({"prefix": {}, "limit": -5}, 400, "limit", "at least 1"),
        ({"prefix": {}, "limit": 1.5}, 400, "limit", "whole number"),
        ({"prefix": {}, "limit": True}, 400, "limit", "whole number"),
        ({"prefix": {}, "limit": "9"}, 400, "limit", "whole number"),
        ({"prefix": {}, "limit": MAX_ROWS + 1}, 413, "limit", "--max-page-rows"),
        ({"prefix": {}, "page_token": 1}, 400, "page_token", "string"),
        ({"prefix": {}, "page_token": "x"}, 400, "page_token", "not a page token"),
        ({"prefix": {}, "columns": ["nix"]}, 400, "nix", "unknown column"),
        ({"prefix": {}, "columns": "status"}, 400, "columns", "array"),
        ({"prefix": {}, "pagetoken": "x"}, 400, "pagetoken", "page_token"),
        (b"{", 400, "body", "not JSON"),
    ],
)  # fmt: skip
def test_bad_input(server: Server, body: object, status: int, place: str, words: str) -> None:
    problem = server.post(ORDERS_PATH, body).problem
    assert (problem["status"], problem["place"]) == (status, place)
    assert words in f"{problem['detail']} {problem.get('hint')}"


def test_a_token_of_another_prefix(server: Server) -> None:
    token = ask(server, ORDERS_PATH, prefix={"user_id": 2}, limit=1)["next_page_token"]
    problem = server.post(ORDERS_PATH, {"prefix": {"user_id": 3}, "page_token": token}).problem
    assert (problem["status"], problem["place"]) == (400, "page_token")


def test_only_post(server: Server) -> None:
    answer = server.get(ORDERS_PATH)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.problem["type"] == "urn:stelae:problem:invalid-request"


def test_paging_across_a_swap(tmp_path: Any) -> None:
    """A page continues after the same key in the current snapshot; a pinned one in its own."""
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(ORDERS)
    commit_rows(table, [{"user_id": 1, "order_id": o, "status": "old"} for o in range(10)])
    with serving(warehouse) as server:
        first = ask(server, ORDERS_PATH, prefix={"user_id": 1}, limit=5)
        commit_rows(table, [{"user_id": 1, "order_id": o, "status": "new"} for o in range(1, 20, 2)])
        server.poll()
        token = first["next_page_token"]
        rest = ask(server, ORDERS_PATH, prefix={"user_id": 1}, page_token=token)
        assert [(row["order_id"], row["status"]) for row in rest["rows"]] == [(o, "new") for o in range(5, 20, 2)]
        assert rest["snapshot"] == 2
        pinned = ask(server, ORDERS_PATH, {"Stelae-Snapshot": "1"}, prefix={"user_id": 1}, page_token=token)
        assert [(row["order_id"], row["status"]) for row in pinned["rows"]] == [(o, "old") for o in range(5, 10)]
        assert pinned["snapshot"] == 1
