"""Goal: commands do what they say, print what people and programs can read, and their exit codes say what happened.

Method: `run` with arguments on a small warehouse, and what it printed; a real process for what only a process shows.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer

from stelae import __version__, cli
from stelae.cli import EXIT_CODES, arguments, exit_code, lookup, run, screen
from stelae.errors import AlreadyExists, InvalidRequest, StelaeError, TooLarge
from stelae.snapshot.warehouse import Table, Warehouse
from tests.tables import commit_rows

USERS = """
    CREATE TABLE shop.users (user_id BIGINT COMMENT 'from the shop', name STRING, city STRING,
        PRIMARY KEY (user_id) NOT ENFORCED) COMMENT 'who buys' WITH ('bucket' = '2')"""
ORDERS = """
    CREATE TABLE shop.orders (dt DATE, region STRING, n INT, open BOOLEAN, total DECIMAL(10, 2),
        PRIMARY KEY (dt, region, n, open) NOT ENFORCED)
    PARTITIONED BY (dt) WITH ('bucket-key' = 'region', 'bucket' = '4')"""
BUILT_MS = 1_795_176_000_000  # 2026-11-20 12:00 UTC


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (arguments.WAREHOUSE_VARIABLE, lookup.URL_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def users(folder: str) -> Table:
    table = Warehouse(folder).create_table(USERS)
    rows = [{"user_id": i, "name": f"n{i}", "city": "[bold]Bern" if i % 2 else None} for i in range(1, 21)]
    commit_rows(table, rows, hidden=[{"user_id": 99}], created_ms=BUILT_MS)
    return table


@pytest.fixture
def orders(folder: str) -> Table:
    table = Warehouse(folder).create_table(ORDERS)
    rows = [
        {"dt": datetime(2026, 11, day, tzinfo=UTC).date(), "region": r, "n": n, "open": n % 2 == 0, "total": n}
        for day in (20, 21)
        for r in ("a=b", "eu")
        for n in range(5)
    ]
    commit_rows(table, rows, created_ms=BUILT_MS)
    return table


class Printed:
    """Runs commands, and has what they printed."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        code = run(words)
        self.out, self.err = self._capture.readouterr()
        return code

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def stelae(capfd: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capfd)


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


# rollback, expire, clean, verify


def test_rollback_expire_clean(stelae: Printed, folder: str, users: Table) -> None:
    commit_rows(users, [{"user_id": 1}])
    assert stelae("rollback", "shop.users", "--to", "1", "-w", folder) == 0
    assert stelae.out == "shop.users: snapshot 3 has the content of snapshot 1, 20 rows\n"
    assert stelae("rollback", "shop.users", "--to", "9", "-w", folder) == 3
    assert stelae("expire", "shop.users", "-w", folder) == 0
    assert stelae.out == "shop.users: nothing to expire, 3 snapshots kept\n"
    assert stelae("expire", "shop.users", "--retain", "1", "-w", folder) == 0
    assert stelae.out.startswith("shop.users: snapshots 1 to 2 expired, 1 snapshot kept")
    assert stelae("clean", "-w", folder) == 0
    assert stelae.out.startswith("shop.users: removed 0 files")
    files = sorted(file.path for file in users.storage.list())
    assert stelae("clean", "-w", folder, "--older-than", "0s", "--dry-run") == 0
    assert "would remove 1 file" in stelae.out
    assert sorted(file.path for file in users.storage.list()) == files
    assert stelae("clean", "shop.users", "-w", folder, "--older-than", "0s") == 0
    assert "removed 1 file" in stelae.out
    assert "warning" in stelae.err
    assert stelae("verify", "shop.users", "-w", folder) == 0


def test_verify_prints_all_problems_and_exits_with_6(stelae: Printed, folder: str, users: Table) -> None:
    assert stelae("verify", "shop.users", "-w", folder) == 0
    assert "everything is as the manifest says" in stelae.out
    paths = [file.path for file in users.snapshots.read(1).files]
    for path in paths:
        local = users.storage.local_path(path)
        assert local is not None
        local.write_bytes(local.read_bytes()[:-10])
    assert stelae("verify", "shop.users", "-w", folder) == 6
    assert all(path in stelae.out for path in paths)
    assert "2 problems" in stelae.err
    assert stelae("verify", "shop.users", "-w", folder, "--json") == 6
    assert [problem["place"] for problem in stelae.json["problems"]] == paths
    assert stelae.json["ok"] is False


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86400), ("7d", 604800), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert arguments.parse_duration(text, "x") == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1 week", "1h30m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no duration"):
        arguments.parse_duration(text, "x")


# lookup


def test_lookup_prints_a_row(stelae: Printed, folder: str, users: Table) -> None:
    for key in ("user_id=7", "7"):
        assert stelae("lookup", "shop.users", key, "-w", folder) == 0
        assert [line.split() for line in stelae.out.splitlines()] == [
            ["user_id", "name", "city"],
            ["7", "n7", "[bold]Bern"],
        ]
    assert stelae("lookup", "shop.users", "7", "-w", folder, "--json", "--columns", "city,name") == 0
    assert stelae.json == {"found": True, "row": {"city": "[bold]Bern", "name": "n7"}, "snapshot": 1}


def test_lookup_exits_with_1_when_there_is_no_row(stelae: Printed, folder: str, users: Table) -> None:
    for key in ("12345", "99"):
        assert stelae("lookup", "shop.users", key, "-w", folder) == 1
        assert stelae.out == ""
        assert "no row" in stelae.err
    assert stelae("lookup", "shop.users", "99", "-w", folder, "--json") == 1
    assert stelae.json == {"found": False, "row": None, "snapshot": 1}


def test_lookup_of_nulls(stelae: Printed, folder: str) -> None:
    table = Warehouse(folder).create_table(
        "CREATE TABLE t (a INT, b STRING, v INT, PRIMARY KEY (a, b) NOT ENFORCED) "
        "WITH ('primary-key.nullable' = 'true', 'bucket' = '3')"
    )
    commit_rows(table, [{"a": a, "b": b, "v": v} for v, (a, b) in enumerate([(None, None), (None, "x"), (1, None)])])
    for words, v in ((("--null", "a", "--null", "b"), 0), (("b=x", "--null", "a"), 1), (("a=1", "--null", "b"), 2)):
        assert stelae("lookup", "t", *words, "-w", folder, "--json", "--columns", "v") == 0
        assert stelae.json["row"] == {"v": v}
    assert stelae("lookup", "t", "--null", "a", "--prefix", "-w", folder, "--json", "--columns", "v") == 0
    assert stelae.json["rows"] == [{"v": 0}, {"v": 1}]
    for words, told in (
        (("a=1", "--null", "a", "--null", "b"), "'a' is given twice"),
        (("a=1", "--null", "v"), "not a primary-key column: 'v'"),
        (("--null", "a"), "the key lacks b"),
    ):
        assert stelae("lookup", "t", *words, "-w", folder) == 2
        assert told in stelae.err


def test_lookup_names_the_column_that_is_not_there(stelae: Printed, folder: str, users: Table) -> None:
    assert stelae("lookup", "shop.users", "user=7", "-w", folder) == 2
    assert "unknown column 'user'" in stelae.err


def test_lookup_by_a_key_of_several_columns(stelae: Printed, folder: str, orders: Table) -> None:
    key = ("dt=2026-11-20", "region=a=b", "n=3", "open=false")
    assert stelae("lookup", "shop.orders", *key, "-w", folder, "--json", "--columns", "total,n") == 0
    assert stelae.json["row"] == {"total": "3.00", "n": 3}
    assert stelae("lookup", "shop.orders", "dt=2026-11-25", *key[1:], "-w", folder) == 1


def test_lookup_by_prefix(stelae: Printed, folder: str, orders: Table) -> None:
    assert stelae("lookup", "shop.orders", "dt=2026-11-20", "region=eu", "--prefix", "-w", folder, "--json") == 0
    assert [row["n"] for row in stelae.json["rows"]] == [0, 1, 2, 3, 4]
    assert stelae.json["more"] is False
    assert stelae("lookup", "shop.orders", "region=eu", "--prefix", "--limit", "7", "-w", folder, "--json") == 0
    assert [row["dt"] for row in stelae.json["rows"]] == ["2026-11-20"] * 5 + ["2026-11-21"] * 2
    assert stelae.json["more"] is True
    assert stelae("lookup", "shop.orders", "--prefix", "-w", folder, "--limit", "2") == 0
    assert len(stelae.out.splitlines()) == 3
    assert "more than 2 rows" in stelae.err
    assert stelae("lookup", "shop.orders", "region=xx", "--prefix", "-w", folder) == 1


def test_lookup_opens_only_the_files_that_the_key_can_be_in(stelae: Printed, folder: str, orders: Table) -> None:
    key = {"dt": 20_777, "region": "eu"}  # 2026-11-20
    snapshot = orders.snapshots.read(1)
    kept = [file.path for file in lookup.narrowed(orders, snapshot, key).files]
    assert len(kept) == 1
    assert kept[0].startswith("dt=2026-11-20/")
    for file in snapshot.files:
        local = orders.storage.local_path(file.path)
        assert local is not None
        if file.path not in kept:
            local.unlink()
    assert stelae("lookup", "shop.orders", "dt=2026-11-20", "region=eu", "--prefix", "-w", folder) == 0
    assert stelae("lookup", "shop.orders", "--prefix", "-w", folder) == 6


def test_lookup_in_an_older_snapshot(stelae: Printed, folder: str, users: Table) -> None:
    commit_rows(users, [{"user_id": 7, "name": "new"}])
    assert stelae("lookup", "shop.users", "7", "-w", folder, "--json", "--snapshot", "1") == 0
    assert stelae.json["row"]["name"] == "n7"
    assert stelae("lookup", "shop.users", "7", "-w", folder, "--json") == 0
    assert stelae.json["row"]["name"] == "new"
    assert stelae("lookup", "shop.users", "7", "-w", folder, "--snapshot", "3") == 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("shop.users", "7"), 2, "neither a server nor a warehouse"),
        (("shop.users", "7", "-w", "W", "--url", "http://127.0.0.1:1"), 2, "either --url or --warehouse"),
        (("shop.users", "-w", "W"), 2, "the key lacks user_id"),
        (("shop.users", "x", "-w", "W"), 2, "no BIGINT"),
        (("shop.users", "--null", "user_id", "-w", "W"), 2, "user_id is null"),
        (("shop.users", "name=x", "-w", "W"), 2, "not a primary-key column: 'name'"),
        (("shop.users", "1", "2", "-w", "W"), 2, "not column=value"),
        (("shop.users", "user_id=1", "user_id=2", "-w", "W"), 2, "given twice"),
        (("shop.users", "1", "-w", "W", "--columns", "nix"), 2, "unknown column 'nix'"),
        (("shop.users", "1", "-w", "W", "--columns", "name,"), 2, "names with commas"),
        (("shop.users", "--prefix", "--limit", "0", "-w", "W"), 2, "limit"),
        (("shop.nix", "1", "-w", "W"), 3, "no table shop.nix"),
        (("shop.users", "1", "--url", "http://127.0.0.1:1"), 5, "can't reach"),
        (("shop.users", "1", "--url", "nonsense"), 2, "url"),
    ],
)
def test_what_bad_lookups_get(
    stelae: Printed, folder: str, users: Table, words: tuple[str, ...], code: int, told: str
) -> None:
    assert stelae("lookup", *(folder if word == "W" else word for word in words)) == code
    assert told in stelae.err
    assert "Traceback" not in stelae.err
    assert stelae.out == ""


def test_what_is_typed_wins_over_the_environment(
    stelae: Printed, folder: str, users: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STELAE_URL", "http://127.0.0.1:1")
    assert stelae("lookup", "shop.users", "7", "-w", folder) == 0
    monkeypatch.setenv("STELAE_WAREHOUSE", "/nowhere")
    assert stelae("lookup", "shop.users", "7", "--url", "http://127.0.0.1:1") == 5
    assert stelae("lookup", "shop.users", "7") == 2


def test_wide_rows_are_shown_one_value_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "PIPED_WIDTH", 80)
    screen.show_rows([{"a": "x" * 50, "bcd": "y" * 50}, {"a": None, "bcd": 1}])
    assert capsys.readouterr().out.splitlines() == [
        "a    " + "x" * 50, "bcd  " + "y" * 50, "", "a    null", "bcd  1",
    ]  # fmt: skip


# Errors, plug-ins, help


def test_every_kind_of_error_has_an_exit_code() -> None:
    assert [exit_code(kind("x")) for kind in EXIT_CODES] == [2, 3, 4, 5, 6]
    assert exit_code(TooLarge("x")) == 2
    assert exit_code(AlreadyExists("x")) == 4
    assert exit_code(StelaeError("x")) == 70


def test_errors_say_what_where_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_error(InvalidRequest("[red]it is wrong", place="column x", hint="make it right"))
    assert capsys.readouterr().err == "error: [red]it is wrong\n  where: column x\n  hint: make it right\n"


def test_debug_prints_the_traceback(stelae: Printed, folder: str) -> None:
    assert stelae("--debug", "tables", "-w", folder) == 3
    assert "Traceback" in stelae.err
    assert "error: there is no warehouse" in stelae.err


def test_an_unexpected_error_is_not_hidden(stelae: Printed, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[str]:
        raise ZeroDivisionError("oops")

    Warehouse(folder).create_table(USERS)
    monkeypatch.setattr(Warehouse, "tables", broken)
    assert stelae("tables", "-w", folder) == 70
    assert "Traceback" in stelae.err
    assert "ZeroDivisionError: oops" in stelae.err


def test_a_missing_package_is_named_with_its_extra(
    stelae: Printed, folder: str, users: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for module in list(sys.modules):
        if module.startswith(("stelae.rocksdb.", "stelae.maintenance.", "stelae.read.")):
            monkeypatch.delitem(sys.modules, module)
    assert stelae("verify", "shop.users", "-w", folder) == 5
    assert "python -m pip install 'stelae[service]'" in stelae.err
    assert "Traceback" not in stelae.err


def test_a_plug_in_that_cannot_be_loaded_says_so_when_it_is_called(
    stelae: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    broken = EntryPoint("builder", "rocksdict:register", cli.COMMANDS)
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])
    assert stelae("--help") == 0
    assert stelae.out.count("Not installed: python -m pip install 'stelae[builder]'") == 2
    assert stelae("build", "shop.users", "x.csv", "--json") == 5
    assert "rocksdict is not installed\n  hint: python -m pip install 'stelae[builder]'" in stelae.err
    assert stelae("tables") == 2


def test_a_plug_in_without_a_module_of_its_own_recommends_no_package(
    stelae: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = EntryPoint("builder", "pyspark_is_not_here:register", cli.COMMANDS)
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])
    assert stelae("--help") == 0
    assert "Not installed: this installation is damaged" in stelae.out
    assert stelae("build", "shop.users", "x.csv", "--json") == 5
    assert "module 'pyspark_is_not_here' can't be imported" in stelae.err
    assert "pip install" not in stelae.out + stelae.err


def test_plug_ins_add_commands(stelae: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        name = "fake"

        def load(self) -> Any:
            return lambda app: app.command("greet")(lambda: typer.echo("hello"))

    monkeypatch.setattr(cli, "entry_points", lambda group: [Fake()])
    assert stelae("greet") == 0
    assert stelae.out == "hello\n"


def test_help_and_version(stelae: Printed) -> None:
    assert stelae("--version") == 0
    assert stelae.out == f"stelae {__version__}\n"
    assert stelae("--help") == 0
    assert all(len(line) <= 80 and not line.endswith("...") for line in stelae.out.splitlines() if "  " in line)
    commands = ("create", "alter", "tables", "describe", "snapshots", "rollback", "expire", "clean", "verify", "lookup")
    for command in commands:
        assert stelae(command, "--help") == 0
        assert f"Usage: stelae {command}" in stelae.out
    assert stelae("nonsense") == 2


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_reader_that_has_enough_ends_it_quietly(folder: str, users: Table, json: list[str]) -> None:
    """`stelae describe ... | head -1`"""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "stelae", "describe", "shop.users", "-w", folder, *json]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    top, *parts = page.split("\n## ")
    sections = {name: part for part in parts for name in part.splitlines()[0].split(", ")}
    commands = typer.main.get_command(cli.make_app()).commands  # type: ignore[attr-defined]
    assert set(commands) <= set(sections)
    for name in set(commands) - {"serve"}:  # Its options are in docs/serving.md.
        told = set(re.findall(r"--[a-z-]+", top + sections[name]))
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= told | {"--help"}, name
