"""Requests to some tables, with their answers, as the OpenAPI page shows them.

    shop.users    PRIMARY KEY (user_id)         shop.orders    PRIMARY KEY (user_id, order_id)
    shop.uids     PRIMARY KEY (name), ids       shop.visits    PRIMARY KEY (day, user_id), by day, ids
                                                shop.names     the same as uids, owned by another server

tests/service/http/test_openapi.py builds the tables, sends every example and compares; only one of them brings a new
key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae.wire.http_api import SNAPSHOT_HEADER, TABLES_PATH

LOOKUP_TEMPLATE = TABLES_PATH + "/{table}/lookup"
PREFIX_LOOKUP_TEMPLATE = TABLES_PATH + "/{table}/prefix-lookup"
INSERT_TEMPLATE = TABLES_PATH + "/{table}/insert-if-not-exists"

Json = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A request and its answer."""

    name: str
    template: str
    method: str
    table: str
    status: int
    answer: Json
    """For a problem: the members that are stable."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


ADA = {
    "user_id": 42,
    "name": "Ada",
    "city": "Paris",
    "balance": "12.50",
    "since": "2026-11-20T12:34:56Z",
}
LIN = {"user_id": 43, "name": "Lin", "city": None, "balance": "0.00", "since": "2026-11-21T08:00:00Z"}
ORDERS = [
    {"user_id": 42, "order_id": 1001, "status": "shipped", "total": "99.90"},
    {"user_id": 42, "order_id": 1002, "status": "open", "total": "5.00"},
    {"user_id": 42, "order_id": 1003, "status": "open", "total": "18.00"},
]
UIDS = [{"name": "ann", "id": 1}, {"name": "bob", "id": 2}]
VISIT = {"day": "2026-11-20", "user_id": 42, "id": 1}
PAGE_TOKEN = "WyIiLCI4MDAwMDAwMDAwMDAwMDJhODAwMDAzZWEiXQ"  # noqa: S105


def _problem(kind: str, status: int, **more: str) -> Json:
    return {"type": f"urn:stelae:problem:{kind}", "title": kind.replace("-", " "), "status": status, **more}


EXAMPLES: Sequence[Example] = (
    Example(
        "found", LOOKUP_TEMPLATE, "get", "shop.users", 200, {"found": True, "row": ADA, "snapshot": 1},
        query={"user_id": "42"},
    ),
    Example(
        "some columns", LOOKUP_TEMPLATE, "get", "shop.users", 200,
        {"found": True, "row": {"city": "Paris", "name": "Ada"}, "snapshot": 1},
        query={"user_id": "42", "columns": "city,name"},
    ),
    Example(
        "missing", LOOKUP_TEMPLATE, "get", "shop.users", 200, {"found": False, "row": None, "snapshot": 1},
        query={"user_id": "7"},
    ),
    Example(
        "pinned", LOOKUP_TEMPLATE, "get", "shop.users", 200, {"found": True, "row": LIN, "snapshot": 1},
        query={"user_id": "43"}, headers={SNAPSHOT_HEADER: "1"},
    ),
    Example(
        "not a number", LOOKUP_TEMPLATE, "get", "shop.users", 400,
        _problem("invalid-request", 400, place="user_id"), query={"user_id": "ada"},
    ),
    Example(
        "no such table", LOOKUP_TEMPLATE, "get", "shop.user", 404,
        _problem("not-found", 404, place="shop.user"), query={"user_id": "42"},
    ),
    Example(
        "snapshot not open", LOOKUP_TEMPLATE, "get", "shop.users", 404,
        _problem("not-found", 404, place=SNAPSHOT_HEADER), query={"user_id": "42"}, headers={SNAPSHOT_HEADER: "9"},
    ),
    Example(
        "objects", LOOKUP_TEMPLATE, "post", "shop.users", 200, {"rows": [ADA, None], "snapshot": 1},
        body={"keys": [{"user_id": 42}, {"user_id": 7}]},
    ),
    Example(
        "bare values", LOOKUP_TEMPLATE, "post", "shop.users", 200,
        {"rows": [{"name": "Ada"}, {"name": "Lin"}], "snapshot": 1}, body={"keys": [42, 43], "columns": ["name"]},
    ),
    Example(
        "several key columns", LOOKUP_TEMPLATE, "post", "shop.orders", 200, {"rows": [ORDERS[1]], "snapshot": 1},
        body={"keys": [{"user_id": 42, "order_id": 1002}]},
    ),
    Example(
        "wrong key", LOOKUP_TEMPLATE, "post", "shop.users", 400,
        _problem("invalid-request", 400, place="keys[1].user_id"), body={"keys": [{"user_id": 42}, {"user_id": "ada"}]},
    ),
    Example(
        "first page", PREFIX_LOOKUP_TEMPLATE, "post", "shop.orders", 200,
        {"rows": ORDERS[:2], "next_page_token": PAGE_TOKEN, "snapshot": 1},
        body={"prefix": {"user_id": 42}, "limit": 2},
    ),
    Example(
        "next page", PREFIX_LOOKUP_TEMPLATE, "post", "shop.orders", 200,
        {"rows": ORDERS[2:], "next_page_token": None, "snapshot": 1},
        body={"prefix": {"user_id": 42}, "limit": 2, "page_token": PAGE_TOKEN},
    ),
    Example(
        "not a prefix", PREFIX_LOOKUP_TEMPLATE, "post", "shop.orders", 400,
        _problem("invalid-request", 400, place="prefix"), body={"prefix": {"order_id": 1001}},
    ),
    Example(
        "found and inserted", INSERT_TEMPLATE, "post", "shop.uids", 200,
        {
            "rows": [UIDS[1], {"name": "cleo", "id": 3}, {"name": "cleo", "id": 3}],
            "inserted": [False, True, False],
            "snapshot": 1,
        },
        body={"keys": ["bob", {"name": "cleo"}, "cleo"]},
    ),
    Example(
        "some columns of rows", INSERT_TEMPLATE, "post", "shop.uids", 200,
        {"rows": [{"id": 2}, {"id": 1}], "inserted": [False, False], "snapshot": 1},
        body={"keys": ["bob", "ann"], "columns": ["id"]},
    ),
    Example(
        "no such partition", INSERT_TEMPLATE, "post", "shop.visits", 200,
        {"rows": [VISIT, None], "inserted": [False, False], "snapshot": 1},
        body={"keys": [{"day": "2026-11-20", "user_id": 42}, {"day": "1999-12-31", "user_id": 42}]},
    ),
    Example(
        "explicit id", INSERT_TEMPLATE, "post", "shop.uids", 400,
        _problem("invalid-request", 400, place="keys[1].id"), body={"keys": ["ann", {"name": "dan", "id": 7}]},
    ),
    Example(
        "pinned insert", INSERT_TEMPLATE, "post", "shop.uids", 400,
        _problem("invalid-request", 400, place=SNAPSHOT_HEADER), body={"keys": ["ann"]}, headers={SNAPSHOT_HEADER: "1"},
    ),
    Example(
        "owned by another server", INSERT_TEMPLATE, "post", "shop.names", 409,
        _problem(
            "conflict", 409, place="shop.names",
            hint="send writes to it: http://other:8000; or take the table over: stelae serve --take-over",
        ),
        body={"keys": ["ann"]},
    ),
)  # fmt: skip
