"""Goal: create, alter, tables, describe and snapshots do what they say, and print what people and programs can read.

Method: `run` with arguments on a small warehouse, and what it printed.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import BUILT_MS, USERS, Printed
from tests.tables import commit_rows

# create


def test_create_makes_a_table_once(stelae: Printed, folder: str, tmp_path: Path) -> None:
    file = tmp_path / "users.sql"
    file.write_text(USERS)
    assert stelae("create", "-w", folder, str(file)) == 0
    assert stelae.out == f"created shop.users in file://{folder}/shop.db/users\n"
    assert stelae("create", "-w", folder, str(file)) == 4
    assert "shop.users exists already" in stelae.err
    assert stelae("create", "-w", folder, str(file), "--if-not-exists") == 0
    assert stelae.out == "shop.users exists already; it was left as it is\n"
    file.write_text(USERS.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    assert stelae("create", "-w", folder, str(file)) == 0


def test_create_reads_standard_input(stelae: Printed, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(USERS))
    assert stelae("create", "-w", folder, "-") == 0


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [("CREATE TABLE (", 2, "error: "), ("CREATE TABLE t (id INT)", 2, "primary key"), (None, 3, "does not exist")],
)
def test_create_says_what_is_wrong(
    stelae: Printed, folder: str, tmp_path: Path, sql: str | None, code: int, told: str
) -> None:
    file = tmp_path / "bad.sql"
    if sql is not None:
        file.write_text(sql)
    assert stelae("create", "-w", folder, str(file)) == code
    assert told in stelae.err.lower()
    assert stelae.out == ""


# alter


def test_alter_changes_a_table(
    stelae: Printed, folder: str, users: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alter.sql"
    file.write_text("ALTER TABLE shop.users ADD COLUMN IF NOT EXISTS age INT COMMENT 'in years'")
    assert stelae("alter", "-w", folder, str(file)) == 0
    assert stelae.out == "altered shop.users: schema 1\n"
    assert stelae("alter", "-w", folder, str(file)) == 0
    assert stelae.out == "shop.users has all of it already; nothing was changed\n"
    assert stelae("lookup", "shop.users", "1", "-w", folder, "--json") == 0
    assert stelae.json["row"] == {"user_id": 1, "name": "n1", "city": "[bold]Bern", "age": None}
    monkeypatch.setattr("sys.stdin", io.StringIO("ALTER TABLE shop.users SET ('file.compression' = 'zstd')"))
    assert stelae("alter", "-w", folder, "-") == 0
    assert stelae.out == "altered shop.users: schema 2\n"
    file.write_text("ALTER TABLE IF EXISTS shop.user ADD age INT")
    assert stelae("alter", "-w", folder, str(file)) == 0
    assert stelae.out == "there is no table shop.user; nothing was changed\n"


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [
        ("ALTER TABLE shop.users DROP name", 2, "DROP is not supported"),
        ("ALTER TABLE shop.users SET ('bucket' = '9')", 2, "option 'bucket' can't change"),
        ("ALTER TABLE shop.user ADD age INT", 3, "did you mean shop.users?"),
    ],
)
def test_alter_says_what_is_wrong(
    stelae: Printed, folder: str, users: Table, tmp_path: Path, sql: str, code: int, told: str
) -> None:
    file = tmp_path / "alter.sql"
    file.write_text(sql)
    assert stelae("alter", "-w", folder, str(file)) == code
    assert told in stelae.err
    assert list(Warehouse(folder).table("shop.users").schemas) == [0]


# tables, describe, snapshots


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
