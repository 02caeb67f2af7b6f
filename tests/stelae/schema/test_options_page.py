"""Goal: the reference page names every option. That docs/options.md is this page, tests/test_docs.py says."""

from __future__ import annotations

from stelae.schema.option_parsing import BY_SPELLING
from stelae.schema.options import (
    DEFINITION,
    OF_COLUMNS,
    PATTERNS,
)
from stelae.schema.options_page import reference_page


def test_the_page_names_every_option() -> None:
    page = reference_page()
    families = [spelling for option in OF_COLUMNS for spelling in option.spellings]
    for name in (*BY_SPELLING, *families, *(o.name for o in DEFINITION), *(p.template for p in PATTERNS)):
        assert f"`{name}`" in page
