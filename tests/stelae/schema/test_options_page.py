"""Goal: the reference page says the same as the code, and names every option."""

from __future__ import annotations

from pathlib import Path

from stelae.schema.option_parsing import BY_SPELLING
from stelae.schema.options import (
    DEFINITION,
    OF_COLUMNS,
    PATTERNS,
)
from stelae.schema.options_page import reference_page


def test_the_page_on_disk_is_the_one_that_is_printed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == reference_page(), "print it again: python -m stelae.schema.options_page > docs/options.md"


def test_the_page_names_every_option() -> None:
    page = reference_page()
    families = [spelling for option in OF_COLUMNS for spelling in option.spellings]
    for name in (*BY_SPELLING, *families, *(o.name for o in DEFINITION), *(p.template for p in PATTERNS)):
        assert f"`{name}`" in page
