"""Goal: `stelae lookup` finds rows by key and by prefix, opens only the files it has to, and says what is
wrong with a key.

Method: `run` with arguments on a small warehouse, and what it printed.
"""

from __future__ import annotations

import pytest

from stelae.cli.row_sources import narrowed
from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import Printed
from tests.tables import commit_rows


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
    kept = [file.path for file in narrowed(orders, snapshot, key).files]
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
