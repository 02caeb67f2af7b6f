"""Goal: docs/spark.md shows what happens: its code runs from top to bottom and gives what the comments behind it say;
it is about all arguments of `lookup_join` and all counters.

Method: the tables of the page, with the rows that it speaks of, behind a server in this process.
"""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.spark import lookup_join
from stelae.spark.data_source import READ_OPTIONS
from stelae.spark.stats import Counts
from tests.stelae.spark.conftest import Served
from tests.stelae.spark.tables import wait_until_served
from tests.tables import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "spark.md").read_text()
STATEMENTS = [sql for block in re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S) for sql in block.split(";")]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

ROWS: dict[str, list[dict[str, Any]]] = {
    "shop.users": [{"user_id": 42, "name": "Ada", "city": "London"}, {"user_id": 8, "name": "Bo", "city": "Oslo"}],
    "shop.visits": [
        {"user_id": 42, "day": dt.date(2026, 11, 20), "pages": 3},
        {"user_id": 42, "day": dt.date(2026, 11, 21), "pages": 5},
        {"user_id": 8, "day": dt.date(2026, 11, 20), "pages": 1},
    ],
}


def test_code_gives_what_its_comments_say(spark: SparkSession, served: Served) -> None:
    for sql in filter(str.strip, STATEMENTS):
        table = served.warehouse.create_table(sql)
        rows = ROWS.get(str(table.name))
        snapshot = commit_rows(table, rows).id if rows else None
        wait_until_served(served.url, str(table.name), snapshot)
    names: dict[str, Any] = {"spark": spark}
    compared = 0
    for block in BLOCKS:
        code = block.replace('"http://localhost:8000"', repr(served.url))
        code = code.replace('"warehouse", "warehouse"', f'"warehouse", {served.warehouse.url!r}')
        lines = code.splitlines()
        for statement in ast.parse(code).body:
            said = lines[(statement.end_lineno or 0) - 1].partition("  # ")[2]
            if isinstance(statement, ast.Expr) and said:
                value = eval(compile(ast.Expression(statement.value), "spark.md", "eval"), names)
                assert value == ast.literal_eval(said), lines[statement.lineno - 1]
                compared += 1
            else:
                exec(compile(ast.Module([statement], []), "spark.md", "exec"), names)
    assert compared == len(re.findall(r"^[^ ].*  # [\[{(\w']", "".join(BLOCKS), re.MULTILINE)) >= 9


def test_the_page_is_about_everything() -> None:
    arguments = [name for name in inspect.signature(lookup_join).parameters if name not in ("df", "table")]
    counters = [*Counts.__dataclass_fields__, "missing", "cache_hits"]
    for name in [*arguments, *counters, *(option for option in READ_OPTIONS if option not in ("path", "table"))]:
        assert re.search(rf"[`\".]{name}\b", PAGE), name


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_links_lead_somewhere(link: str) -> None:
    file, _, anchor = link.partition("#")
    text = (DOCS / (file or "spark.md")).read_text()
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}
    assert not anchor or anchor in anchors
