"""Goal: what people, probes and Prometheus are told is true: lists, descriptions, health, metrics.

Method: a server in this process; the metrics page is parsed by Prometheus' own parser.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stelae.schema.table_schema import TableSchema
from stelae.service.app import create_app
from stelae.service.options import ServerOptions
from stelae.service.watcher import Watcher
from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import LOOKUP, NEVER_S, USERS, Answer, Server, call, serving, started
from tests.tables import commit_rows

VISITS = """CREATE TABLE web.visits (
    dt DATE COMMENT 'day', url STRING, hits DECIMAL(10, 2), PRIMARY KEY (dt, url) NOT ENFORCED
) COMMENT 'what was read' PARTITIONED BY (dt) WITH ('bucket' = '3')"""
CREATED_MS = 1_763_640_000_123


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse(tmp_path / "w")
    users = warehouse.create_table(USERS)
    commit_rows(users, [{"user_id": i, "name": "x", "city": "y"} for i in range(10)], created_ms=CREATED_MS)
    commit_rows(
        warehouse.create_table(VISITS),
        [{"dt": f"2026-11-{d}", "url": u, "hits": "1"} for d in (20, 21) for u in "abc"],
        hidden=[{"dt": "2026-11-20", "url": "z"}],
        created_ms=CREATED_MS,
    )
    warehouse.create_table("CREATE TABLE empty (a INT, PRIMARY KEY (a) NOT ENFORCED)")
    return warehouse


def test_the_list(warehouse: Warehouse) -> None:
    with serving(warehouse) as server:
        told = server.get("/v1/tables").json["tables"]
    short = [
        {k: t[k] for k in ("name", "state", "snapshot", "newest_snapshot", "rows", "buckets", "error")} for t in told
    ]
    nothing = {"snapshot": None, "newest_snapshot": None, "rows": None, "buckets": None, "error": None}
    ready = {"state": "READY", "snapshot": 1, "newest_snapshot": 1, "error": None}
    assert short == [
        {"name": "default.empty", "state": "EMPTY", **nothing},
        {"name": "shop.users", **ready, "rows": 10, "buckets": 4},
        {"name": "web.visits", **ready, "rows": 6, "buckets": 6},
    ]
    for table in told:
        assert TableSchema.decode(table["schema"]) == warehouse.table(table["name"]).schema


def test_no_table_is_unknown_before_the_warehouse_was_read(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, may_look = Watcher._look, threading.Event()
    monkeypatch.setattr(Watcher, "_look", lambda watcher: look(watcher) if may_look.wait(10) else [])

    async def ask() -> tuple[Answer, Answer]:
        app = create_app(ServerOptions(poll_interval_s=NEVER_S), warehouse)
        async with app.running() as watcher:
            early = await call(app, "GET", "/v1/tables/shop.nobody/lookup", b"user_id=1")
            may_look.set()
            await started(app, watcher)
            return early, await call(app, "GET", "/v1/tables/shop.nobody/lookup", b"user_id=1")

    early, late = asyncio.run(ask())
    assert (early.status, early.problem["hint"]) == (503, "try again in a moment")
    assert late.status == 404


def test_a_description(warehouse: Warehouse) -> None:
    with serving(warehouse) as server:
        answer = server.get("/v1/tables/web.visits")
        assert server.get("/v1/tables/empty").json["served"] is None
        assert server.get("/v1/tables/web.visit").problem["hint"] == "did you mean web.visits?"
    assert answer.headers["stelae-snapshot"] == "1"
    told = answer.json
    schema = told["schema"]
    assert TableSchema.decode(schema) == warehouse.table("web.visits").schema
    assert schema["columns"][2]["sql_type"] == "DECIMAL(10, 2)"
    assert schema["columns"][0]["comment"] == "day"
    assert (schema["primary_key"], schema["partition_keys"], schema["bucket_key"]) == (["dt", "url"], ["dt"], ["url"])
    assert (schema["options"], schema["comment"]) == ({"bucket": "3"}, "what was read")
    assert told["kept_snapshots"] == []
    served = told["served"]
    assert served["created"] == "2025-11-20T12:00:00.123Z"
    assert (served["id"], served["schema_id"], served["kind"], served["rows"]) == (1, 0, "overwrite", 6)
    assert served["partition_count"] == 2
    assert [(p["values"], p["buckets"], p["rows"]) for p in served["partitions"]] == [
        ({"dt": "2026-11-20"}, 3, 3),
        ({"dt": "2026-11-21"}, 3, 3),
    ]
    assert served["bytes"] == sum(p["bytes"] for p in served["partitions"]) > 0


def test_probes(warehouse: Warehouse) -> None:
    with serving(warehouse) as server:
        assert (server.get("/livez").status, server.get("/livez").body) == (200, b"ok\n")
        ready = server.get("/readyz")
        assert ready.status == 200
        assert ready.json["ready"] is True
        assert {name: table["state"] for name, table in ready.json["tables"].items()} == {
            "default.empty": "EMPTY",
            "shop.users": "READY",
            "web.visits": "READY",
        }
        server.app.draining = True
        ready = server.get("/readyz")
        assert (ready.status, ready.json["ready"], ready.json["draining"]) == (503, False, True)
        assert server.get("/livez").status == 200
        assert server.get(LOOKUP, user_id=1).json["found"] is True


def test_an_empty_warehouse_is_ready(tmp_path: Path) -> None:
    with serving(Warehouse(tmp_path / "w")) as server:
        assert server.get("/readyz").json == {"ready": True, "draining": False, "tables": {}}
        assert server.get("/v1/tables").json == {"tables": []}
        assert "create one" in server.get(LOOKUP, user_id=1).problem["hint"]
        scrape(server)


def scrape(server: Server) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = server.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(page: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    return page[name, tuple(sorted(labels.items()))]


def test_metrics(warehouse: Warehouse) -> None:
    with serving(warehouse) as server:
        for user_id in (1, 2, 99):
            server.get(LOOKUP, user_id=user_id)
        server.get(LOOKUP, user_id="x")
        server.post(LOOKUP, {"keys": [1, 2, 3, 98, 99]})
        server.post(LOOKUP, {"keys": 1})
        server.post(LOOKUP, b'{"keys": [1], "columns": ["' + b"x" * (16 << 20) + b'"]}')
        server.post("/v1/tables/shop.users/prefix-lookup", {"prefix": {}})
        server.get("/v1/tables/empty/lookup", a=1)
        server.get("/v1/tables/nix/lookup", a=1)
        page = scrape(server)
    users = {"table": "shop.users"}

    def requests(operation: str, outcome: str, table: str = "shop.users") -> float:
        return value(page, "stelae_requests_total", table=table, operation=operation, outcome=outcome)

    assert requests("lookup", "ok") == 3
    assert requests("lookup", "invalid-request") == 1
    assert requests("batch-lookup", "ok") == 1
    assert requests("batch-lookup", "invalid-request") == 1
    assert requests("batch-lookup", "too-large") == 1
    assert requests("prefix-lookup", "ok") == 1
    assert requests("lookup", "unavailable", "default.empty") == 1
    assert requests("", "not-found", "") == 1
    assert value(page, "stelae_keys_total", result="found", **users) == 2 + 3
    assert value(page, "stelae_keys_total", result="missing", **users) == 1 + 2
    for operation, count in (("lookup", 3), ("batch-lookup", 1), ("prefix-lookup", 1)):
        assert value(page, "stelae_request_duration_seconds_count", operation=operation) == count
        assert value(page, "stelae_request_duration_seconds_bucket", operation=operation, le="+Inf") == count
        assert 0 < value(page, "stelae_request_duration_seconds_sum", operation=operation) < 10
        buckets = [v for (n, ls), v in page.items() if n.endswith("_bucket") and ("operation", operation) in ls]
        assert buckets == sorted(buckets)
    assert value(page, "stelae_loads_total", **users) == 1
    assert value(page, "stelae_load_failures_total", **users) == 0
    assert value(page, "stelae_load_seconds_total", **users) == value(page, "stelae_last_load_seconds", **users)
    assert value(page, "stelae_snapshot_id", **users) == value(page, "stelae_newest_snapshot_id", **users) == 1
    assert value(page, "stelae_snapshot_rows", **users) == 10
    assert value(page, "stelae_snapshot_buckets", **users) == 4
    assert value(page, "stelae_snapshot_bytes", **users) > 0
    assert value(page, "stelae_snapshot_age_seconds", **users) > 0
    assert value(page, "stelae_kept_snapshots", **users) == 0
    assert value(page, "stelae_table_state", state="READY", **users) == 1
    assert value(page, "stelae_table_state", state="EMPTY", table="default.empty") == 1
    assert value(page, "stelae_requests_in_flight") == 1  # this one
    assert value(page, "stelae_block_cache_capacity_bytes") == 256 << 20
    assert value(page, "stelae_block_cache_bytes") >= 0
    assert value(page, "stelae_poll_failures_total") == 0
    assert value(page, "stelae_last_poll_timestamp_seconds") > 1e9


def test_every_metric_is_documented(warehouse: Warehouse) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    with serving(warehouse) as server:
        families = {f.name for f in text_string_to_metric_families(server.get("/metrics").body.decode())}
    for name in sorted(name for name in families if name.startswith("stelae_")):
        assert f"`{name}" in page, name
