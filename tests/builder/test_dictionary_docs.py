"""Goal: docs/dictionary.md shows what happens: its code runs from top to bottom and gives what the comments behind it
say; and its way to count distinct values gives what Spark's `count(distinct)` gives.

Method: the tables of the page in a warehouse that a server in this process serves; before each block of Python, the
server has what was built. Then the functions of the page with some thousand generated events.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae import Client, Warehouse
from stelae.service.options import ServerOptions
from tests.service.listening import listening
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "dictionary.md").read_text()
STATEMENTS = [sql for block in re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S) for sql in block.split(";")]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
URL, FOLDER = '"http://localhost:8000"', '"warehouse"'
PAGES, VISITORS, EVENTS = 7, 900, 4000


class Page:
    """The code of the page, run as one program."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, folder: Path, url: str) -> None:
        self.names: dict[str, Any] = {"spark": spark}
        self.warehouse = warehouse
        self._replaced = {URL: repr(url), FOLDER: repr(str(folder))}
        self.url = url
        self.compared = 0

    def run(self, block: str) -> None:
        """Run a block; expressions with a Python value in a comment must have it."""
        self.wait_until_served()
        for shown, real in self._replaced.items():
            block = block.replace(shown, real)
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            said = lines[(statement.end_lineno or 0) - 1].partition("  # ")[2]
            if isinstance(statement, ast.Expr) and said:
                value = eval(compile(ast.Expression(statement.value), "dictionary.md", "eval"), self.names)
                assert value == ast.literal_eval(said), lines[statement.lineno - 1]
                self.compared += 1
            else:
                exec(compile(ast.Module([statement], []), "dictionary.md", "exec"), self.names)

    def wait_until_served(self) -> None:
        newest = {str(name): self.warehouse.table(name).snapshots.latest_id() for name in self.warehouse.tables()}
        with Client(self.url) as client:
            wait_until(
                lambda: {info.name: info.snapshot for info in client.tables()} == newest,
                "the server does not serve what was built",
            )


@pytest.fixture(scope="module")
def page(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, after all of its blocks ran."""
    folder = tmp_path_factory.mktemp("dictionary") / "warehouse"
    warehouse = Warehouse(folder)
    for sql in STATEMENTS:
        if sql.strip():
            warehouse.create_table(sql)
    with listening(ServerOptions(poll_interval_s=0.05, name="of the page"), warehouse) as url:
        page = Page(spark, warehouse, folder, url)
        for block in BLOCKS:
            page.run(block)
        yield page
        page.names["client"].close()


def test_code_gives_what_its_comments_say(page: Page) -> None:
    assert page.compared == len(re.findall(r"^[^ ].*  # [\[{(\w]", "".join(BLOCKS), re.MULTILINE)) >= 10


def test_distinct_counts_are_those_of_spark(page: Page, spark: SparkSession) -> None:
    """More of everything: pages, days, strings of any kind, events that come twice, and null."""
    from pyspark.sql.functions import countDistinct

    chosen = random.Random(7)
    names = [None, "", "ann", "Ann", "ä", "日本", "x" * 300, *(f"v{n}" for n in range(VISITORS))]
    weights = [1 / (rank + 1) for rank in range(len(names))]
    everything = [(f"p{chosen.randrange(PAGES)}", name) for name in chosen.choices(names, weights, k=EVENTS)]
    frame = spark.createDataFrame(everything, "page STRING, visitor STRING")
    client = page.names["client"]
    some = [name for name in names[1:200] if name is not None]
    online = client.insert_if_not_exists("shop.visitors", some)
    page.names["add_events"]("2026-11-22", frame)
    page.wait_until_served()
    visitors = page.names["visitors"]
    exact = {row[0]: row[1] for row in frame.groupBy("page").agg(countDistinct("visitor")).collect()}
    assert len(exact) == PAGES
    assert {name: len(visitors(name)) for name in exact} == exact
    seen: dict[str, set[str]] = {}
    for name, visitor in everything:
        seen.setdefault(name, set()).update({visitor} - {None})
    for one, other in combinations(exact, 2):
        assert len(visitors(one) & visitors(other)) == len(seen[one] & seen[other])
    # Ids that were given online before are those of the build.
    assert [row["id"] for row in client.insert_if_not_exists("shop.visitors", some)] == [row["id"] for row in online]
    page.names["add_events"]("2026-11-23", frame.limit(100))
    page.wait_until_served()
    assert {name: len(visitors(name)) for name in exact} == exact, "a set takes no harm from what comes twice"


def test_the_page_is_about_all_options_of_ids() -> None:
    assert "`auto-increment.fields`" in PAGE
    assert "`auto-increment.cache-size`" in PAGE


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_links_lead_somewhere(link: str) -> None:
    file, _, anchor = link.partition("#")
    text = (DOCS / (file or "dictionary.md")).read_text()
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}
    assert not anchor or anchor in anchors
