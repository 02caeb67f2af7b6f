"""Goal: point and batch lookups answer what is there, and everything wrong with a request gets a clear error.

Method: requests to a server in this process, with tables of a few rows. Bad input is a table of cases: request, status,
place of the error, words of the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import LOOKUP, USERS, NoAnswerError, Server, serving
from tests.tables import commit_rows

ORDERS = """CREATE TABLE shop.orders (
    user_id BIGINT, order_id INT, status STRING, PRIMARY KEY (user_id, order_id) NOT ENFORCED
) WITH ('bucket-key' = 'user_id')"""
VISITS = """CREATE TABLE web.visits (
    dt DATE, url STRING, hits BIGINT, PRIMARY KEY (dt, url) NOT ENFORCED
) PARTITIONED BY (dt)"""
ODD = "CREATE TABLE odd (`columns` STRING, v INT, PRIMARY KEY (`columns`) NOT ENFORCED)"
STOCK = """CREATE TABLE shop.stock (
    item INT, site STRING, pieces INT, PRIMARY KEY (item, site) NOT ENFORCED
) WITH ('primary-key.nullable' = 'true')"""
DEFAULTS = "CREATE TABLE shop.defaults (k INT PRIMARY KEY, v INT) WITH ('primary-key.nullable' = 'true')"
ORDERS_LOOKUP = "/v1/tables/shop.orders/lookup"
VISITS_LOOKUP = "/v1/tables/web.visits/lookup"

MAX_BODY = 2000
MAX_KEYS = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    users = warehouse.create_table(USERS)
    commit_rows(users, [{"user_id": i, "name": f"name {i}", "city": None if i % 2 else "Paris"} for i in range(100)])
    commit_rows(
        warehouse.create_table(ORDERS),
        [{"user_id": u, "order_id": o, "status": f"{u}/{o}"} for u in range(5) for o in range(5)],
        hidden=[{"user_id": 4, "order_id": 4}],
    )
    commit_rows(
        warehouse.create_table(VISITS),
        [{"dt": f"2026-11-{day}", "url": f"/{i}", "hits": day * i} for day in (20, 21) for i in range(10)],
        buckets={("2026-11-20",): 1, ("2026-11-21",): 3},
    )
    commit_rows(
        warehouse.create_table(STOCK),
        [{"item": i, "site": s, "pieces": n} for n, (i, s) in enumerate([(None, None), (None, "b"), (1, None)])],
    )
    commit_rows(warehouse.create_table(DEFAULTS), [{"k": None, "v": 0}, {"k": 1, "v": 1}])
    commit_rows(warehouse.create_table(ODD), [{"columns": "a,b", "v": 1}])
    warehouse.create_table(USERS.replace("shop.users", "shop.never_built"))
    with serving(warehouse, max_body_bytes=MAX_BODY, max_batch_keys=MAX_KEYS) as server:
        yield server


def test_a_key_that_is_there(server: Server) -> None:
    answer = server.get(LOOKUP, user_id=42)
    assert answer.status == 200
    assert answer.body == b'{"found":true,"row":{"user_id":42,"name":"name 42","city":"Paris"},"snapshot":1}'
    assert answer.headers == {"content-type": "application/json", "content-length": "80", "stelae-snapshot": "1"}


def test_a_key_that_is_not_there(server: Server) -> None:
    answer = server.get(LOOKUP, user_id=1000)
    assert (answer.status, answer.json) == (200, {"found": False, "row": None, "snapshot": 1})
    assert answer.headers["stelae-snapshot"] == "1"


def test_head_is_get_without_its_body(server: Server) -> None:
    """The ASGI server leaves the body out; the application answers all the same."""
    assert server.request("HEAD", LOOKUP, b"user_id=42").headers == server.get(LOOKUP, user_id=42).headers
    assert server.request("HEAD", "/livez").status == 200


@pytest.mark.parametrize("path", ["/v1/tables/odd/lookup", "/v1/tables/default.odd/lookup"])
def test_a_key_column_named_columns(server: Server, path: str) -> None:
    """The parameter is the key; a selection needs POST."""
    assert server.get(path, columns="a,b").json["row"] == {"columns": "a,b", "v": 1}
    assert server.post(path, {"keys": ["a,b"], "columns": ["v"]}).json["rows"] == [{"v": 1}]


@pytest.mark.parametrize(
    ("query", "row"),
    [
        (b"user_id=42&columns=city", {"city": "Paris"}),
        (b"columns=city,user_id&user_id=42", {"city": "Paris", "user_id": 42}),
        (b"user_id=42&columns=name%2Cuser_id", {"name": "name 42", "user_id": 42}),
        (b"user_id=%34%32", {"user_id": 42, "name": "name 42", "city": "Paris"}),
        (b"user%5fid=42", {"user_id": 42, "name": "name 42", "city": "Paris"}),
        (b"user_id=41", {"user_id": 41, "name": "name 41", "city": None}),
        (b"user_id=-0", {"user_id": 0, "name": "name 0", "city": "Paris"}),
    ],
)
def test_queries(server: Server, query: bytes, row: dict[str, Any]) -> None:
    answer = server.request("GET", LOOKUP, query).json
    assert answer["row"] == row
    assert list(answer["row"]) == list(row)


def test_a_key_of_several_columns(server: Server) -> None:
    assert server.get(ORDERS_LOOKUP, user_id=3, order_id=2).json["row"] == {
        "user_id": 3, "order_id": 2, "status": "3/2",
    }  # fmt: skip
    assert server.get(ORDERS_LOOKUP, order_id=2, user_id=3, columns="status").json["row"] == {"status": "3/2"}
    assert server.get(ORDERS_LOOKUP, user_id=4, order_id=4).json["found"] is False  # a tombstone


def test_partitions(server: Server) -> None:
    for day in (20, 21):
        row = {"dt": f"2026-11-{day}", "url": "/7", "hits": day * 7}
        assert server.get(VISITS_LOOKUP, dt=f"2026-11-{day}", url="/7").json["row"] == row
    assert server.get(VISITS_LOOKUP, dt="2026-11-22", url="/7").json["found"] is False
    keys = [{"dt": f"2026-11-{day}", "url": f"/{i}"} for i in range(12) for day in (20, 21, 22)]
    rows = server.post(VISITS_LOOKUP, {"keys": keys, "columns": ["hits", "dt"]}).json["rows"]
    assert rows == [
        {"hits": int(key["dt"][-2:]) * i, "dt": key["dt"]} if i < 10 and key["dt"] != "2026-11-22" else None
        for index, key in enumerate(keys)
        for i in [index // 3]
    ]


def test_batches(server: Server) -> None:
    answer = server.post(LOOKUP, {"keys": [3, {"user_id": 1000}, {"user_id": "4"}, 3]})
    assert answer.status == 200
    assert answer.headers["stelae-snapshot"] == "1"
    assert [row and row["user_id"] for row in answer.json["rows"]] == [3, None, 4, 3]
    assert answer.json["snapshot"] == 1
    assert server.post(LOOKUP, {"keys": [], "columns": None}).json == {"rows": [], "snapshot": 1}
    hidden = {"keys": [{"user_id": 4, "order_id": o} for o in range(6)], "columns": ["order_id"]}
    assert server.post(ORDERS_LOOKUP, hidden).json["rows"] == [{"order_id": o} for o in range(4)] + [None] * 2


def test_null_in_a_key(server: Server) -> None:
    keys = [{"item": i, "site": s} for i in (None, 1) for s in (None, "b")]
    rows = server.post("/v1/tables/shop.stock/lookup", {"keys": keys, "columns": ["pieces", "site"]}).json["rows"]
    expected = [{"pieces": 0, "site": None}, {"pieces": 1, "site": "b"}, {"pieces": 2, "site": None}, None]
    assert rows == expected
    assert server.get("/v1/tables/shop.stock/lookup", item=1, site="null").json["found"] is False  # a text
    answer = server.post("/v1/tables/shop.stock/prefix-lookup", {"prefix": {"item": None}, "columns": ["pieces"]})
    assert answer.json["rows"] == [{"pieces": 0}, {"pieces": 1}]
    defaults = "/v1/tables/shop.defaults/lookup"
    assert server.post(defaults, {"keys": [None, {"k": None}, 1]}).json["rows"] == [
        {"k": None, "v": 0}, {"k": None, "v": 0}, {"k": 1, "v": 1},
    ]  # fmt: skip
    assert server.get(defaults, k=1).json["row"] == {"k": 1, "v": 1}
    for query in (b"", b"k=", b"k=null"):
        problem = server.request("GET", defaults, query).problem
        assert problem["place"] == "k"
        assert "POST the key as JSON" in problem["hint"]


def test_a_batch_of_several_chunks(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    commit_rows(warehouse.create_table(USERS), [{"user_id": i, "name": str(i), "city": ""} for i in range(0, 2000, 2)])
    with serving(warehouse) as server:
        for count in (255, 256, 257, 512, 1500):
            rows = server.post(LOOKUP, {"keys": list(range(count)), "columns": ["user_id"]}).json["rows"]
            assert rows == [None if i % 2 else {"user_id": i} for i in range(count)]
        bad = server.post(LOOKUP, {"keys": [*range(1000), "x", *range(500)]})
        assert bad.problem["place"] == "keys[1000].user_id"


JSON_BODY = "application/json"
GET, POST = "GET", "POST"

BAD = [
    # name, method, path, query, body, status, place, words of the message and hint
    ("missing key", GET, LOOKUP, b"", None, 400, "user_id", "lacks user_id"),
    ("missing key column", GET, ORDERS_LOOKUP, b"user_id=1", None, 400, "order_id", "lacks order_id"),
    ("unknown key column", GET, LOOKUP, b"user_id=1&nix=2", None, 400, "nix", "unknown column 'nix'"),
    ("value column as key", GET, LOOKUP, b"name=x", None, 400, "name", "not a primary-key column"),
    ("repeated parameter", GET, LOOKUP, b"user_id=1&user_id=2", None, 400, "user_id", "twice"),
    ("wrong type", GET, LOOKUP, b"user_id=x", None, 400, "user_id", "BIGINT"),
    ("empty value", GET, LOOKUP, b"user_id=", None, 400, "user_id", "BIGINT"),
    ("float for an integer", GET, LOOKUP, b"user_id=1.0", None, 400, "user_id", "whole number"),
    ("spaces", GET, LOOKUP, b"user_id=+1", None, 400, "user_id", "whole number"),
    ("other digits", GET, LOOKUP, "user_id=\u0664".encode(), None, 400, "user_id", "whole number"),
    ("out of range", GET, LOOKUP, b"user_id=9223372036854775808", None, 400, "user_id", "out of range"),
    ("far out of range", GET, LOOKUP, b"user_id=" + b"9" * 5000, None, 400, "user_id", "whole number"),
    ("NaN", GET, LOOKUP, b"user_id=NaN", None, 400, "user_id", "whole number"),
    ("no UTF-8", GET, LOOKUP, b"user_id=\xff", None, 400, "query", "UTF-8"),
    ("no UTF-8, escaped", GET, LOOKUP, b"user_id=%ff", None, 400, "query", "UTF-8"),
    ("no equals sign", GET, LOOKUP, b"user_id", None, 400, "query", "can't be read"),
    ("too many parameters", GET, LOOKUP, b"&".join(b"a%d=1" % i for i in range(1001)), None, 400, "query", "can't be"),
    ("unknown column", GET, LOOKUP, b"user_id=1&columns=city,nix", None, 400, "nix", "unknown column 'nix'"),
    ("column twice", GET, LOOKUP, b"user_id=1&columns=city,city", None, 400, "columns", "twice"),
    ("no columns", GET, LOOKUP, b"user_id=1&columns=", None, 400, "columns", "selects nothing"),
    ("an empty column", GET, LOOKUP, b"user_id=1&columns=city,", None, 400, "", "unknown column ''"),
    ("bad date", GET, VISITS_LOOKUP, b"dt=2026-13-01&url=x", None, 400, "dt", "DATE"),
    ("unknown table", GET, "/v1/tables/shop.user/lookup", b"user_id=1", None, 404, "shop.user", "shop.users"),
    ("unknown database", GET, "/v1/tables/users/lookup", b"user_id=1", None, 404, "users", "shop.users"),
    ("nothing like it", POST, "/v1/tables/zzzzzzzzzz/lookup", b"", {"keys": [1]}, 404, "zzzzzzzzzz", "served are"),
    ("unknown operation", GET, "/v1/tables/shop.users/look", b"", None, 404, "look", "no operation"),
    ("never built", GET, "/v1/tables/shop.never_built/lookup", b"user_id=1", None, 503, "shop.never_built", "build it"),
    ("wrong method", "PUT", LOOKUP, b"", {"keys": [1]}, 405, LOOKUP, "GET, HEAD, POST"),
    ("wrong method, cold", "DELETE", "/v1/tables", b"", None, 405, "/v1/tables", "GET, HEAD"),
    ("malformed", POST, LOOKUP, b"", b'{"keys": [1,]}', 400, "body", "line 1 column 12"),
    ("cut", POST, LOOKUP, b"", b'{"keys": [1', 400, "body", "not JSON"),
    ("empty body", POST, LOOKUP, b"", b"", 400, "body", "not JSON"),
    ("bare NaN", POST, LOOKUP, b"", b'{"keys": [NaN]}', 400, "body", "not JSON"),
    ("bare Infinity", POST, LOOKUP, b"", b'{"keys": [Infinity]}', 400, "body", "not JSON"),
    ("no UTF-8 body", POST, LOOKUP, b"", b'{"keys": ["\xff"]}', 400, "body", "not JSON"),
    ("half a surrogate", POST, LOOKUP, b"", b'{"keys": ["\\ud800"]}', 400, "body", "not JSON"),
    ("deep", POST, LOOKUP, b"", b"[" * 1500, 400, "body", "not JSON"),
    ("body no object", POST, LOOKUP, b"", [1, 2], 400, "body", "JSON object"),
    ("unknown member", POST, LOOKUP, b"", {"keys": [1], "column": ["city"]}, 400, "column", "keys, columns"),
    ("no keys", POST, LOOKUP, b"", {"columns": ["city"]}, 400, "keys", "array"),
    ("keys no array", POST, LOOKUP, b"", {"keys": {"user_id": 1}}, 400, "keys", "array"),
    ("columns no array", POST, LOOKUP, b"", {"keys": [1], "columns": "city"}, 400, "columns", "array"),
    ("columns of numbers", POST, LOOKUP, b"", {"keys": [1], "columns": [1]}, 400, "columns", "array"),
    ("columns empty", POST, LOOKUP, b"", {"keys": [1], "columns": []}, 400, "columns", "selects nothing"),
    ("column unknown", POST, LOOKUP, b"", {"keys": [1], "columns": ["nix"]}, 400, "nix", "unknown column"),
    ("null key", POST, LOOKUP, b"", {"keys": [1, None]}, 400, "keys[1].user_id", "is null"),
    ("null in a key", POST, LOOKUP, b"", {"keys": [{"user_id": None}]}, 400, "keys[0].user_id", "is null"),
    ("wrong type in a key", POST, LOOKUP, b"", {"keys": [1, 2, 3, {"user_id": "a"}]}, 400, "keys[3].user_id", "BIGINT"),
    ("boolean", POST, LOOKUP, b"", {"keys": [True]}, 400, "keys[0].user_id", "boolean true"),
    ("1.0", POST, LOOKUP, b"", {"keys": [1.0]}, 400, "keys[0].user_id", "1.0"),
    ("beyond 64 bits", POST, LOOKUP, b"", b'{"keys": [18446744073709551616]}', 400, "keys[0].user_id", "BIGINT"),
    ("NaN in a key", POST, LOOKUP, b"", {"keys": ["NaN"]}, 400, "keys[0].user_id", "whole number"),
    ("array as key", POST, LOOKUP, b"", {"keys": [[1]]}, 400, "keys[0]", "must be an object"),
    ("bare value for two columns", POST, ORDERS_LOOKUP, b"", {"keys": [1]}, 400, "keys[0]", "must be an object"),
    ("column missing", POST, ORDERS_LOOKUP, b"", {"keys": [{"user_id": 1}]}, 400, "keys[0].order_id", "lacks order_id"),
    ("column too many", POST, LOOKUP, b"", {"keys": [{"user_id": 1, "city": "x"}]}, 400, "keys[0].city", "not a"),
    ("too many keys", POST, LOOKUP, b"", {"keys": list(range(51))}, 413, "keys", "--max-batch-keys"),
    ("too large", POST, LOOKUP, b"", {"keys": ["1" * MAX_BODY]}, 413, "body", "--max-body-bytes"),
    ("INT out of range", POST, ORDERS_LOOKUP, b"", {"keys": [{"user_id": 1, "order_id": 2**31}]}, 400,
     "keys[0].order_id", "out of range"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "status", "place", "words"), [c[1:] for c in BAD], ids=[c[0] for c in BAD]
)
def test_bad_input(
    server: Server, method: str, path: str, query: bytes, body: object, status: int, place: str, words: str
) -> None:
    answer = (
        server.post(path, body)
        if method == POST
        else server.request(method, path, query, body=[b"{}"] if body else None)
    )
    assert answer.status == status
    problem = answer.problem
    assert problem.get("place", "") == place
    assert words in f"{problem['detail']} {problem.get('hint')}"
    assert ("retry-after" in answer.headers) == (status == 503)
    assert ("allow" in answer.headers) == (status == 405)
    assert server.get(LOOKUP, user_id=42).json["found"] is True


def test_errors_do_not_repeat_all_that_came(server: Server) -> None:
    problem = server.post(LOOKUP, {"keys": [1], "x" * 1500: 1}).problem
    assert len(problem["detail"]) < 1100
    assert len(problem["place"]) < 1100


def test_other_content_types(server: Server) -> None:
    body = {"keys": [1]}
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"):
        assert server.post(LOOKUP, body, {"Content-Type": content_type}).status == 200
    assert server.request("POST", LOOKUP, body=[b'{"keys": [1]}']).status == 200  # none at all
    for content_type in ("application/x-www-form-urlencoded", "application/vnd.apache.arrow.file", "text/plain"):
        problem = server.post(LOOKUP, body, {"Content-Type": content_type}).problem
        assert (problem["status"], problem["place"]) == (415, "Content-Type")
        assert "application/json" in problem["hint"]


def test_bodies_in_pieces(server: Server) -> None:
    assert server.request("POST", LOOKUP, body=[b'{"ke', b"", b'ys": [1', b"]}"]).json["rows"][0]["user_id"] == 1
    assert server.request("POST", LOOKUP, body=[b" " * 999] * 3).problem["status"] == 413
    exact = b'{"keys": [1]}'.ljust(MAX_BODY)
    assert server.request("POST", LOOKUP, body=[exact]).status == 200
    assert server.request("POST", LOOKUP, body=[exact + b" "]).problem["status"] == 413


def test_an_announced_length_over_the_limit_is_refused_unread(server: Server) -> None:
    answer = server.request("POST", LOOKUP, headers={"Content-Length": str(MAX_BODY + 1)}, then_disconnect=True)
    assert answer.problem["status"] == 413
    assert f"{MAX_BODY + 1:,} bytes" in answer.problem["detail"]


def test_a_client_that_goes_away_is_not_answered(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    operations = server.app.tables["shop.users"].counts.operations
    before = operations["batch-lookup"].failed["disconnected"]
    with pytest.raises(NoAnswerError):
        server.request("POST", LOOKUP, body=[b'{"keys": '], then_disconnect=True)
    assert operations["batch-lookup"].failed["disconnected"] == before + 1
    assert server.app.counts.in_flight == 0
    assert not caplog.records


def test_a_socket_that_breaks_while_it_is_written_to(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"keys": [1]}', "more_body": False}

    async def send(_: object) -> None:
        raise BrokenPipeError

    for method, path in (("GET", LOOKUP), ("POST", LOOKUP), ("GET", "/v1/tables/nix/lookup"), ("PUT", LOOKUP)):
        scope = {"type": "http", "method": method, "path": path, "query_string": b"user_id=1", "headers": []}
        server.run(server.app({**scope, "raw_path": path.encode(), "root_path": ""}, receive, send))
    assert server.app.counts.in_flight == 0
    assert not caplog.records


@pytest.mark.parametrize("pin", ["x", "", "-1", "1.0", "9" * 30, "\u00b2"])
def test_a_pin_that_is_no_number(server: Server, pin: str) -> None:
    problem = server.get(LOOKUP, {"Stelae-Snapshot": pin}, user_id=42).problem
    assert (problem["status"], problem["place"]) == (400, "Stelae-Snapshot")


def test_a_failure_that_nobody_foresaw(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer says nothing of the inside, the log has the stack."""
    reader = server.app.tables["shop.users"].serving.reader  # type: ignore[union-attr]
    monkeypatch.setattr(reader, "lookup_many", lambda *_: 1 / 0)
    answer = server.post(LOOKUP, {"keys": [1]})
    assert answer.problem["status"] == 500
    assert answer.problem["type"] == "urn:stelae:problem:internal"
    assert "ZeroDivision" not in answer.body.decode()
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.setattr(server.app.metrics, "page", lambda: 1 / 0)
    caplog.clear()
    assert server.get("/metrics").problem["status"] == 500
    assert "ZeroDivisionError" in caplog.text
