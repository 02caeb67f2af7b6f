"""Goal: every option of Paimon's and Fluss's primary-key tables is declared once, by every spelling, and its default is
a value of its kind.

Method: invariants over all declarations.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from stelae.schema.option_parsing import BY_SPELLING
from stelae.schema.options import (
    OF_COLUMNS,
    OPTIONS,
    PATTERNS,
    WORKING,
    ColumnOptions,
    Option,
    TableOptions,
)


def test_no_spelling_is_declared_twice() -> None:
    spellings = Counter(spelling for option in (*OPTIONS, *OF_COLUMNS) for spelling in option.spellings)
    spellings.update(pattern.template for pattern in PATTERNS)
    assert [spelling for spelling, times in spellings.items() if times > 1] == []
    assert len(BY_SPELLING) == sum(len(option.spellings) for option in OPTIONS)


def test_every_field_is_a_declaration() -> None:
    """But for what columns were given, and what was given at all."""
    of_table = [part.name for part in dataclasses.fields(TableOptions)]
    of_column = [part.name for part in dataclasses.fields(ColumnOptions)]
    assert of_table[-2:] == ["column_options", "given"]
    assert [option.attribute for option in OF_COLUMNS] == [*of_column, "sequence_groups"]
    assert [option.attribute for option in WORKING] == [n for n in of_table[:-2] if n != "sequence_groups"]


@pytest.mark.parametrize("option", [*WORKING, *OF_COLUMNS], ids=lambda option: option.name)
def test_every_default_is_the_value_of_its_text(option: Option) -> None:
    assert option.kind is not None
    assert option.consequence.endswith(".")
    holder = TableOptions() if hasattr(TableOptions(), option.attribute) else ColumnOptions()
    default = getattr(holder, option.attribute)
    shown = option.kind.show(default)
    if shown != "none" or option.name == "file.compression":
        assert option.parse(shown, option.name) == default
        assert shown in (option.default, option.default.split(":")[0])
