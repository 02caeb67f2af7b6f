"""Goal: values of a partition come back from each of their three forms, and are refused with their column's name."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from stelae.encoding.partitions import partition_from_json, partition_from_python, partition_to_python
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.table_schema import Column

COLUMNS = (
    Column(1, "dt", t.Date()),
    Column(2, "country", t.String()),
    Column(3, "price", t.Decimal(precision=5, scale=2)),
)
PYTHON = (date(2026, 11, 20), "de", Decimal("1.50"))
JSON = ("2026-11-20", "de", "1.50")


def test_there_and_back() -> None:
    assert partition_from_python(COLUMNS, PYTHON) == JSON
    assert partition_to_python(COLUMNS, JSON) == PYTHON
    assert partition_from_json(COLUMNS, JSON) == (20_777, "de", 150)
    assert partition_from_json((), ()) == partition_to_python((), ()) == partition_from_python((), ()) == ()


def test_what_a_column_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidRequest) as error:
        partition_from_json(COLUMNS, ("2026-11-20", "de", "1.505"))
    assert error.value.place == "price"
    with pytest.raises(ValueError, match="shorter"):
        partition_from_json(COLUMNS, JSON[:2])
