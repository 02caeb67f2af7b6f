"""Goal: docs/client.md shows what happens: its Python runs, and gives what the comments behind it say.

Method: the blocks of the page are run one after the other, with a client of a server that has the tables of the page.
An expression with a Python value in a comment behind it must have that value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stelae import Client, Warehouse
from stelae.service.options import ServerOptions
from tests.service.listening import listening
from tests.tables import commit_rows

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
URL = "http://localhost:8000"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    users = (
        "CREATE TABLE shop.users (user_id BIGINT, name STRING, balance DECIMAL(12, 2), {key} (user_id) NOT ENFORCED)"
    )
    orders = (
        "CREATE TABLE shop.orders (user_id BIGINT, order_id INT, total INT, {key} (user_id, order_id) NOT ENFORCED)"
    )
    uids = (
        "CREATE TABLE shop.uids (name STRING, id BIGINT, {key} (name) NOT ENFORCED) "
        "WITH ('auto-increment.fields' = 'id')"
    )
    rows: dict[str, list[dict[str, Any]]] = {
        users: [{"user_id": 42, "name": "Zoë", "balance": Decimal("99999.99")}],
        orders: [{"user_id": 42, "order_id": i, "total": i} for i in range(30)],
        uids: [],
    }
    for sql, some in rows.items():
        table = warehouse.create_table(sql.format(key="PRIMARY KEY"))
        if some:
            commit_rows(table, some)
    with listening(ServerOptions(poll_interval_s=0.05), warehouse) as url:
        yield url


@pytest.fixture(scope="module")
def names(url: str) -> dict[str, Any]:
    """What the blocks share."""
    return {"Client": Client, "url": url, "frame": pd.DataFrame({"user_id": [42, 7], "other": [0, 0]})}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_code_gives_what_its_comments_say(url: str, names: dict[str, Any], block: str) -> None:
    block = block.replace(URL, url)
    lines = block.splitlines()
    with Client(url) as client:
        names["client"] = client
        for statement in ast.parse(block).body:
            inner = statement.body if isinstance(statement, ast.With) else []
            exec(compile(ast.Module([statement], []), "client.md", "exec"), names)
            names["client"] = client
            for part in [statement, *inner]:
                said = lines[(part.end_lineno or 0) - 1].partition("  # ")[2]
                if isinstance(part, ast.Expr) and is_value(said):
                    shown = eval(said, {"Decimal": Decimal})
                    assert eval(compile(ast.Expression(part.value), "client.md", "eval"), names) == shown


def is_value(text: str) -> bool:
    """Whether a comment is a Python value."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(tree, ast.Constant | ast.Dict | ast.List)


def test_the_page_has_blocks_and_values() -> None:
    said = re.findall(r"  # (.*)$", "\n".join(BLOCKS), re.MULTILINE)
    assert len(BLOCKS) >= 5
    assert sum(map(is_value, said)) >= 6
