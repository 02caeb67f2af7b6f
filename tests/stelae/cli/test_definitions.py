"""Goal: create and alter do what the SQL says, from a file or standard input, and say what is wrong with it.

Method: `run` with arguments, and what it printed.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import USERS, Printed

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
