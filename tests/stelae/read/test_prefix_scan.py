"""Goal: pages of a prefix begin and end where they should, and a step looks at no more than it may.

Method: the odd cases, one by one. That all pages together have the rows of a dict: test_snapshot_reader.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.errors import InvalidRequest
from stelae.snapshot.warehouse import Warehouse
from tests.stelae.read.readers import (
    open_reader,
    orders,
)
from tests.tables import commit_rows


def test_a_scan_looks_at_no_more_than_its_budget(tmp_path: Path) -> None:
    """Also where all that it sees is hidden: whoever steps it can do other things in between."""
    table = Warehouse(tmp_path / "w").create_table("CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)")
    commit_rows(table, [{"a": 1000}, {"a": 2000}], hidden=[{"a": i} for i in range(1000)])
    reader = open_reader(table, tmp_path / "tablets")
    scan = reader.prefix_scan({}, reader.table.all_columns, limit=1)
    steps = [scan.step(100) for _ in range(10)]
    assert steps == [[]] * 10
    assert not scan.done
    assert scan.step(100) == [{"a": 1000}]
    assert scan.done
    assert scan.next_page_token is not None
    rest = reader.prefix_lookup({}, reader.table.all_columns, 10, scan.next_page_token)
    assert (rest.rows, rest.next_page_token) == ([{"a": 2000}], None)


@pytest.mark.parametrize("token", ["", "x", "WzFd", "\u00e4", "bnVsbA", "WyIiLCJ6eiJd", "WyIiLDFd"])
def test_what_is_no_page_token(tmp_path: Path, token: str) -> None:
    reader = orders(tmp_path)
    with pytest.raises(InvalidRequest, match="not a page token"):
        reader.prefix_lookup({}, reader.table.all_columns, 1, token)


def test_a_page_token_of_another_prefix(tmp_path: Path) -> None:
    reader = orders(tmp_path)
    token = reader.prefix_lookup({"a": 2}, reader.table.all_columns, 1).next_page_token
    assert len(reader.prefix_lookup({"a": 2}, reader.table.all_columns, 9, token).rows) == 4
    for other in ({"a": 1}, {"a": 3}):
        with pytest.raises(InvalidRequest, match="another prefix"):
            reader.prefix_lookup(other, reader.table.all_columns, 9, token)


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_start_at_one(tmp_path: Path, limit: int) -> None:
    reader = orders(tmp_path)
    with pytest.raises(InvalidRequest, match="limit must be at least 1"):
        reader.prefix_lookup({}, reader.table.all_columns, limit)
