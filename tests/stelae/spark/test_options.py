"""Goal: the options of lookups are declared once: what users call and what docs/spark.md says are made of that.

Method: signatures and the page against the fields of LookupOptions; a table of values that make no sense.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest

from stelae.declared_options import declared
from stelae.errors import InvalidRequest
from stelae.spark import lookup_join
from stelae.spark.options import LookupOptions


def test_lookup_join_takes_the_options_by_name_with_their_defaults() -> None:
    parameters = signature(lookup_join).parameters.values()
    given = {each.name: each.default for each in parameters if each.kind is Parameter.KEYWORD_ONLY}
    del given["rename"]
    assert given == {each.name: each.default for each in declared(LookupOptions)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0), ("batch_size", True), ("max_in_flight", 0), ("cache_bytes", -1), ("cache_bytes", 1.5),
        ("stats", {}),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        LookupOptions(**{name: value})
    assert caught.value.place == name
