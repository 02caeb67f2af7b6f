"""Goal: `stelae build` builds, says what it did to people and to programs, and leaves the table alone when it fails.

Method: the command in this process, on the session of the suite; the table is read back through `stelae lookup`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.cli import app
from stelae.snapshot.warehouse import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = """
    CREATE TABLE shop.users (user_id BIGINT, name STRING, age INT, PRIMARY KEY (user_id) NOT ENFORCED)
    WITH ('bucket' = '2')"""


class Shop:
    """A warehouse, files beside it, and commands on both."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.warehouse = str(folder / "warehouse")
        self.table: Table = Warehouse(self.warehouse).create_table(USERS)
        self._capture = capture
        self.out = self.err = ""

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def run(self, *words: str) -> int:
        code = app.run([words[0], *words[1:], "-w", self.warehouse])
        self.out, self.err = self._capture.readouterr()
        return code

    def build(self, *words: str) -> int:
        return self.run("build", "shop.users", *words)

    def rows(self) -> list[Any]:
        code = self.run("lookup", "shop.users", "--prefix", "--json")
        return json.loads(self.out)["rows"] if code == 0 else []


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, capfd)


def test_files_become_rows(shop: Shop) -> None:
    first = shop.file("a.csv", "user_id,name,age\n1,Ann,30\n2,Bob,\n")
    second = shop.file("b.csv", "user_id,name,age\n2,Bea,25\n3,Cid,7\n")
    assert shop.build(first, second) == 0, shop.err
    facts = dict(line.split(maxsplit=1) for line in shop.out.replace("rows ", "rows-").splitlines())
    assert facts["snapshot"] == "1 (merge)"
    assert (facts["rows-in"], facts["rows-before"], facts["rows-merged"], facts["rows-now"]) == ("4", "0", "1", "3")
    assert facts["buckets"] == "2"
    assert "plan" in facts["seconds"]
    assert [row["name"] for row in shop.rows()] == ["Ann", "Bea", "Cid"]


def test_changes_overwrite_and_options(shop: Shop) -> None:
    assert shop.build(shop.file("a.csv", "user_id,name,age\n1,Ann,30\n2,NA,1\n"), "--option", "nullValue=NA") == 0, (
        shop.err
    )
    changes = shop.file("b.json", '{"user_id": 1, "op": "-D"}\n{"user_id": 5, "name": "Eve", "op": "+I", "by": "x"}\n')
    assert shop.build(changes, "--row-kind", "op", "--json") == 2
    assert "by" in shop.err
    assert shop.build(changes, "--row-kind", "op", "--ignore-extra-columns", "--json") == 0, shop.err
    report = json.loads(shop.out)
    assert (report["snapshot"], report["rows_in"], report["base_rows"], report["rows"]) == (2, 2, 2, 2)
    assert report["committed"] is True
    assert shop.rows() == [
        {"user_id": 2, "name": None, "age": 1},
        {"user_id": 5, "name": "Eve", "age": None},
    ]
    assert shop.build(shop.file("c.csv", "user_id,name,age\n9,Zoe,1\n"), "--mode", "overwrite") == 0
    assert [row["user_id"] for row in shop.rows()] == [9]


def test_an_empty_input(shop: Shop) -> None:
    empty = shop.file("a.csv", "user_id,name,age\n")
    assert shop.build(empty) == 2
    assert "no rows" in shop.err
    assert shop.build(shop.file("b.csv", "user_id,name,age\n1,Ann,1\n")) == 0
    assert shop.build(empty, "--allow-empty") == 0
    assert "1, as before" in shop.out


@pytest.mark.parametrize(
    ("name", "text", "words", "code", "told"),
    [
        ("a.csv", "user_id,name,age\nx,Ann,1\n", (), 2, "does not have the column's type"),
        ("a.csv", "user_id,name\n1,Ann\n", (), 2, "lacks columns of the table: age"),
        ("a.csv", "user_id,name,age\n,Ann,1\n", (), 2, "null in primary-key column user_id"),
        ("a.csv", "user_id,name,age,k\n1,Ann,1,+X\n", ("--row-kind", "k"), 2, "unknown row kind"),
        ("a.csv", "user_id,name,age\n1,Ann,1\n", ("--row-kind", "k"), 2, "no column 'k'"),
        ("a.csv", "user_id,name,age\n1,Ann,1\n", ("--mode", "append"), 2, "unknown mode 'append'"),
        ("a.csv", "user_id,name,age\n1,Ann,1\n", ("--option", "sep"), 2, "not name=value"),
        ("a.csv", "user_id,name,age\n1,Ann,1\n", ("--format", "parquet"), 2, "can't be read"),
        ("a.parquet", "no parquet", (), 2, "can't be read"),
        ("a.txt", "?", (), 2, "does not tell its format"),
    ],
)  # fmt: skip
def test_what_bad_input_gets(shop: Shop, name: str, text: str, words: tuple[str, ...], code: int, told: str) -> None:
    assert shop.build(shop.file(name, text), *words) == code
    assert told in shop.err
    assert len(shop.err.splitlines()) <= 3  # What, where, what next: no stack traces.
    assert shop.table.snapshots.latest_id() is None
    assert list(shop.table.storage.unfinished()) == []


def test_what_is_not_there(shop: Shop) -> None:
    assert shop.build(str(shop.folder / "nope.csv")) == 2
    assert "nope.csv" in shop.err
    assert shop.run("build", "shop.nix", "x.csv") == 3


def test_ids_are_told(shop: Shop) -> None:
    Warehouse(shop.warehouse).create_table(
        "CREATE TABLE shop.words (word STRING, id BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'auto-increment.fields' = 'id')"
    )
    first = shop.file("a.csv", "word\n" + "".join(f"w{n % 1500}\n" for n in range(2000)))
    assert shop.run("build", "shop.words", first) == 0, shop.err
    assert "1,500 new ids: 1 to 1,500" in shop.out
    assert shop.run("build", "shop.words", shop.file("b.csv", "word\nw1\nnew\n"), "--json") == 0, shop.err
    report = json.loads(shop.out)
    assert (report["ids_minted"], report["first_id"], report["last_id"], report["ids_asked"]) == (1, 1501, 1501, 0)
    assert shop.run("build", "shop.words", shop.file("c.csv", "word,id\nw1,7\n")) == 2
    assert "ids are minted, not given" in shop.err
