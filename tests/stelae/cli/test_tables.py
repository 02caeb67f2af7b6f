"""Goal: tables, describe and snapshots show what there is, and print what people and programs can read.

Method: `run` with arguments on a small warehouse, and what it printed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import BUILT_MS, USERS, Printed
from tests.tables import commit_rows


def test_tables_lists_all(stelae: Printed, folder: str, users: Table, orders: Table) -> None:
    Warehouse(folder).create_table("CREATE TABLE fresh (id INT, PRIMARY KEY (id) NOT ENFORCED)")
    assert stelae("tables", "-w", folder) == 0
    heading, fresh, orders_line, users_line = stelae.out.splitlines()
    assert heading.split() == ["table", "snapshot", "rows", "buckets", "size", "built"]
    assert fresh.split() == ["default.fresh", "-", "-", "-", "-", "not", "yet"]
    assert orders_line.split()[:4] == ["shop.orders", "1", "20", "8"]
    assert users_line.split()[:4] == ["shop.users", "1", "20", "2"]
    assert users_line.endswith("2026-11-20 12:00:00 UTC")
    assert stelae("tables", "-w", folder, "--json") == 0
    assert [table["table"] for table in stelae.json] == ["default.fresh", "shop.orders", "shop.users"]
    assert stelae.json[2]["snapshot"]["rows"] == 20
    assert stelae.json[2]["snapshot"]["hidden_rows"] == 1


def test_tables_shows_what_is_damaged_beside_the_others(
    stelae: Printed, folder: str, users: Table, orders: Table
) -> None:
    Warehouse(folder).create_table("CREATE TABLE bad (id INT, PRIMARY KEY (id) NOT ENFORCED)")
    for path in ("default.db/bad/schema/schema-0.json", "shop.db/orders/snapshot/snapshot-1.json"):
        file = Path(folder) / path
        file.write_bytes(file.read_bytes()[:-9])
    assert stelae("tables", "-w", folder) == 6
    bad, orders_line, users_line = stelae.out.splitlines()[1:]
    assert (bad.split()[0], bad.split()[-1]) == ("default.bad", "damaged")
    assert (orders_line.split()[0], orders_line.split()[-1]) == ("shop.orders", "damaged")
    assert users_line.split()[:4] == ["shop.users", "1", "20", "2"]
    assert stelae.err.count("error: ") == 2
    assert "bad/schema/schema-0.json" in stelae.err
    assert "orders/snapshot/snapshot-1.json" in stelae.err
    assert stelae("tables", "-w", folder, "--json") == 6
    types = [table.get("error", {}).get("type") for table in stelae.json]
    assert types == ["urn:stelae:problem:corrupt-data", "urn:stelae:problem:corrupt-data", None]


def test_the_warehouse_may_stand_in_the_environment(
    stelae: Printed, folder: str, users: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STELAE_WAREHOUSE", folder)
    assert stelae("tables") == 0
    assert "shop.users" in stelae.out


def test_no_warehouse(stelae: Printed, folder: str) -> None:
    assert stelae("tables") == 2
    assert "STELAE_WAREHOUSE" in stelae.err
    assert stelae("tables", "-w", folder) == 3
    assert "there is no warehouse" in stelae.err


def test_describe_shows_definition_and_contents(stelae: Printed, folder: str, users: Table, orders: Table) -> None:
    assert stelae("describe", "shop.users", "-w", folder) == 0
    lines = stelae.out.splitlines()
    assert "comment      who buys" in lines
    assert "primary key  user_id" in lines
    assert "user_id  BIGINT  no    primary 1  from the shop" in lines
    assert "bucket  2" in lines
    assert "rows        20, and 1 tombstone" in lines
    assert not any(line != line.rstrip() for line in lines)
    assert stelae("describe", "shop.orders", "-w", folder) == 0
    assert "partitioned by  dt" in stelae.out
    assert "buckets     8 in 2 partitions" in stelae.out
    assert "2026-11-21" in stelae.out
    assert stelae("describe", "shop.orders", "-w", folder, "--json") == 0
    assert stelae.json["schema"] == json.loads(json.dumps(orders.schema.encode()))
    assert [partition["values"] for partition in stelae.json["partitions"]] == [["2026-11-20"], ["2026-11-21"]]


def test_describe_a_table_that_was_never_built(stelae: Printed, folder: str) -> None:
    Warehouse(folder).create_table(USERS)
    assert stelae("describe", "shop.users", "-w", folder) == 0
    assert "no snapshot yet" in stelae.out
    assert stelae("describe", "shop.users", "-w", folder, "--json") == 0
    assert stelae.json["snapshot"] is None


def test_an_unknown_table_is_not_found(stelae: Printed, folder: str, users: Table) -> None:
    for command in ("describe", "snapshots", "verify", "expire", "clean"):
        assert stelae(command, "shop.user", "-w", folder) == 3
        assert "did you mean shop.users?" in stelae.err


def test_snapshots_are_listed_newest_first(stelae: Printed, folder: str, users: Table) -> None:
    commit_rows(users, [{"user_id": 1}])
    users.snapshots.rollback(1, now_ms=BUILT_MS)
    assert stelae("snapshots", "shop.users", "-w", folder) == 0
    assert [line.split()[0] for line in stelae.out.splitlines()] == ["snapshot", "3", "2", "1"]
    assert "rollback to 1" in stelae.out
    assert stelae("snapshots", "shop.users", "-w", folder, "--json") == 0
    assert [snapshot["id"] for snapshot in stelae.json] == [3, 2, 1]
