"""Goal: `stelae insert` prints the rows of keys and which are new, for people and programs; `describe` shows who mints
ids and takes writes.

Method: `run` with arguments against a real server on a small warehouse, and what it printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.cli import arguments
from stelae.cli.app import run
from stelae.ownership.epochs import TableOwnership
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse
from tests.service.listening import listening
from tests.tables import commit_rows

UIDS = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '2', 'auto-increment.fields' = 'id')"""
VISITS = """CREATE TABLE shop.visits (day DATE NOT NULL, n INT, id BIGINT, PRIMARY KEY (day, n) NOT ENFORCED)
    PARTITIONED BY (day) WITH ('primary-key.nullable' = 'true', 'auto-increment.fields' = 'id')"""
PLAIN = "CREATE TABLE shop.plain (k INT, v STRING NOT NULL, PRIMARY KEY (k) NOT ENFORCED)"

Stelae = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stelae(capfd: pytest.CaptureFixture[str]) -> Stelae:
    """Runs a command; gives its exit code and what it printed."""

    def stelae(*words: str) -> tuple[int, str, str]:
        return (run(words), *capfd.readouterr())

    return stelae


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    commit_rows(warehouse.create_table(VISITS), [{"day": "2026-11-20", "n": 0}])
    warehouse.create_table(UIDS)
    warehouse.create_table(PLAIN)
    return warehouse


@pytest.fixture(scope="module")
def url(warehouse: Warehouse) -> Iterator[str]:
    with listening(ServerOptions(poll_interval_s=0.05, name="a:1", advertise_url="http://a:1"), warehouse) as url:
        yield url


def test_insert_prints_rows_and_which_are_new(stelae: Stelae, url: str) -> None:
    assert stelae("insert", "shop.uids", "ann", "bob", "--url", url) == (
        0, "          name  id\ninserted  ann    1\ninserted  bob    2\n", "",
    )  # fmt: skip
    code, out, _ = stelae("insert", "shop.uids", "bob", "name=cleo", "a=b", "--url", url)
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["found", "bob", "2"], ["inserted", "cleo", "3"], ["inserted", "a=b", "4"],
    ]  # fmt: skip
    assert stelae("insert", "shop.uids", "ann", "--columns", "id", "--url", url)[1] == "       id\nfound   1\n"


def test_insert_prints_json(stelae: Stelae, url: str) -> None:
    code, out, _ = stelae("insert", "shop.uids", "json", "json", "--columns", "name", "--json", "--url", url)
    assert (code, json.loads(out)) == (
        0, {"rows": [{"name": "json"}, {"name": "json"}], "inserted": [True, False], "snapshot": 1},
    )  # fmt: skip


def test_a_key_of_several_columns(stelae: Stelae, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(arguments.URL_VARIABLE, url)
    code, out, _ = stelae("insert", "shop.visits", "n=7", "day=2026-11-20")
    assert (code, out.split()) == (0, ["day", "n", "id", "inserted", "2026-11-20", "7", "1"])
    code, out, _ = stelae("insert", "shop.visits", "day=2026-11-20", "--null", "n", "--json")
    assert (code, json.loads(out)["rows"]) == (0, [{"day": "2026-11-20", "n": None, "id": 2}])


def test_a_partition_that_is_not_there(stelae: Stelae, url: str) -> None:
    code, out, err = stelae("insert", "shop.visits", "n=7", "day=1999-01-01", "--url", url)
    assert (code, out) == (1, "")
    assert "no row for n=7 day=1999-01-01: the table does not have its partition" in err
    code, out, _ = stelae("insert", "shop.visits", "n=7", "day=1999-01-01", "--url", url, "--json")
    assert (code, json.loads(out)["rows"]) == (1, [None])


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("shop.uids", "ann"), 2, "no server is given"),
        (("shop.uids", "--url", "URL"), 2, "the key lacks name"),
        (("shop.uids", "id=7", "--url", "URL"), 2, "not a primary-key column: 'id'"),
        (("shop.uids", "ann", "--null", "name", "--url", "URL"), 2, "given twice"),
        (("shop.uids", "ann", "--columns", "nix", "--url", "URL"), 2, "unknown column 'nix'"),
        (("shop.visits", "7", "8", "--url", "URL"), 2, "not column=value"),
        (("shop.visits", "n=7", "--url", "URL"), 2, "the key lacks day"),
        (("shop.plain", "7", "--url", "URL"), 2, "column v is NOT NULL"),
        (("shop.nix", "7", "--url", "URL"), 3, "no table"),
        (("shop.uids", "ann", "--url", "http://127.0.0.1:1"), 5, "can't reach"),
    ],
)
def test_what_bad_inserts_get(stelae: Stelae, url: str, words: tuple[str, ...], code: int, told: str) -> None:
    got, out, err = stelae("insert", *(url if word == "URL" else word for word in words))
    assert (got, out) == (code, "")
    assert told in err
    assert "Traceback" not in err


def test_a_server_that_does_not_own_the_table(stelae: Stelae, warehouse: Warehouse, url: str) -> None:
    assert stelae("insert", "shop.uids", "ann", "--url", url)[0] == 0
    with listening(ServerOptions(poll_interval_s=0.05, name="b:2"), warehouse) as other:
        code, _, err = stelae("insert", "shop.uids", "ann", "--url", other)
    assert code == 4
    assert "owned by server 'a:1'" in err
    assert "send writes to it: http://a:1" in err


# describe


def described(stelae: Stelae, folder: Path) -> tuple[list[str], Any]:
    code, out, _ = stelae("describe", "shop.uids", "-w", str(folder))
    assert code == 0
    return out.splitlines(), json.loads(stelae("describe", "shop.uids", "-w", str(folder), "--json")[1])


def test_describe_shows_ids_and_the_owner(stelae: Stelae, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(UIDS)
    lines, as_json = described(stelae, tmp_path)
    assert "id      BIGINT  yes   auto-increment" in lines
    assert "ids          in column id; no id is claimed yet" in lines
    assert not any(line.startswith("owner") for line in lines)
    assert (as_json["ids"], as_json["owner"]) == ({"column": "id", "claimed": 0}, None)

    with listening(ServerOptions(poll_interval_s=0.05, name="a:1", advertise_url="http://a:1"), warehouse) as url:
        assert stelae("insert", "shop.uids", "ann", "--url", url)[0] == 0
        lines, as_json = described(stelae, tmp_path)
        assert "ids          in column id; ids to 100,000 are claimed" in lines
        assert "owner        server a:1 at http://a:1, epoch 1" in lines
        assert as_json["ids"] == {"column": "id", "claimed": 100_000}
        owner = as_json["owner"]
        assert owner.pop("taken_ms") > 0
        assert owner == {"kind": "server", "name": "a:1", "url": "http://a:1", "epoch": 1, "lives": True}

    lines, as_json = described(stelae, tmp_path)
    assert "owner        nobody; a:1 gave it up, epoch 2" in lines
    assert as_json["owner"]["kind"] == "free"
    TableOwnership(table.storage, "shop.uids").take(
        "build", "b", None, after=TableOwnership(table.storage, "x").current()
    )
    lines, as_json = described(stelae, tmp_path)
    assert "owner        build b, which is gone, epoch 3" in lines
    assert as_json["owner"]["lives"] is False
