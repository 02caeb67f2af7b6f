"""Writes into the pages what code declares: `make docs`, or `python -m docs.make_tables` at the project's top.

The table below a line `<!-- made by make docs: NAME -->` of a page is NAME's, as below. docs/options.md is made as a
whole. tests/test_docs.py holds the pages to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from stelae.builder.cli import CommandOptions
from stelae.builder.plan.options import BuildOptions
from stelae.client.settings import ClientSettings
from stelae.declared_options import keywords_table, options_table
from stelae.schema.options_page import reference_page
from stelae.service.options import ServerOptions
from stelae.spark.options import LookupOptions

DOCS = Path(__file__).parent

TABLES: Mapping[str, Callable[[], str]] = {
    "options of stelae serve": lambda: options_table(ServerOptions),
    "options of stelae build": lambda: options_table(BuildOptions, CommandOptions),
    "settings of a client": lambda: keywords_table(ClientSettings),
    "options of lookups": lambda: keywords_table(LookupOptions),
}

_TABLE = re.compile(r"^<!-- made by make docs: (.+) -->\n\n((?:\|.*\n)*)", re.M)


def made(page: Path) -> str:
    """The page as it should be."""
    if page.name == "options.md":
        return reference_page()
    return _TABLE.sub(lambda found: f"<!-- made by make docs: {found[1]} -->\n\n{TABLES[found[1]]()}", page.read_text())


def named_tables(page: Path) -> list[str]:
    """The tables that a page has."""
    return [found[1] for found in _TABLE.finditer(page.read_text())]


if __name__ == "__main__":
    for each in sorted(DOCS.glob("*.md")):
        text = made(each)
        if text != each.read_text():
            each.write_text(text)
            print(each.relative_to(DOCS.parent))
