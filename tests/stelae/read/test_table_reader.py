"""Goal: keys, prefixes and selections of a request are understood, or refused with what is wrong and what to do.

Method: the odd cases, one by one; what is right is asked in test_snapshot_reader.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.errors import InvalidRequest
from stelae.read.table_reader import TableReader
from stelae.snapshot.warehouse import Warehouse
from tests.stelae.read.readers import (
    open_reader,
    orders,
)
from tests.tables import commit_rows


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ([], "a prefix must be an object, this one is an array"),
        (None, "a prefix must be an object, this one is null"),
        ({"b": "x"}, "'a' is missing before 'b'"),
        ({"v": 1}, "not a primary-key column"),
        ({"nix": 1}, "unknown column"),
        ({"a": "x"}, "no INT"),
        ({"a": None}, "null"),
    ],
)
def test_what_is_no_prefix(tmp_path: Path, prefix: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        orders(tmp_path).table.prefix_from_json(prefix)
    assert words in str(error.value)


@pytest.mark.parametrize("pairs", [{}, {"k": ""}, {"k": "null"}, {"k": "None"}])
def test_text_that_would_say_null_gets_a_hint(tmp_path: Path, pairs: dict[str, str]) -> None:
    sql = "CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED)"
    warehouse = Warehouse(tmp_path / "w")
    for name, options, is_told in (("a", "", False), ("b", " WITH ('primary-key.nullable' = 'true')", True)):
        schema = warehouse.create_table(sql.replace("t (", f"{name} (") + options).schema
        with pytest.raises(InvalidRequest) as caught:
            TableReader(schema, {schema.id: schema}).key_from_text(pairs)
        assert ("POST the key as JSON" in (caught.value.hint or "")) == is_told
        assert caught.value.place == "k"


def test_selections_are_bounded(tmp_path: Path) -> None:
    """Callers choose them; the ones prepared first make room."""
    table = Warehouse(tmp_path / "w").create_table(
        f"CREATE TABLE t (a INT, {', '.join(f'c{i} INT' for i in range(30))}, PRIMARY KEY (a) NOT ENFORCED)"
    )
    commit_rows(table, [{"a": 1, "c1": 2}])
    reader = open_reader(table, tmp_path / "tablets")
    for i in range(30):
        for j in range(30):
            if i != j:
                assert list(reader.lookup((1,), reader.table.projection([f"c{i}", f"c{j}"])) or ()) == [
                    f"c{i}",
                    f"c{j}",
                ]
    assert len(reader.table._projections) <= 256
