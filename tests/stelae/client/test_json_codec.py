"""Goal: keys that are checked all at once are those that are checked one by one.

Method: random keys of columns of several types, right and wrong, through both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.client.json_codec import JsonCodec
from stelae.errors import (
    InvalidRequest,
)
from stelae.schema.sql import parse_create_table

PLAIN = st.one_of(st.text(max_size=4), st.integers(-(1 << 64), 1 << 64), st.just("\ud800"), st.booleans(), st.none())
KEYS = st.one_of(
    st.lists(st.text(max_size=3)),
    st.lists(st.integers(-200, 200)),
    st.lists(st.builds(dict, k=st.one_of(st.text(max_size=3), st.integers(-200, 200)))),
    st.lists(st.one_of(PLAIN, st.builds(dict, k=PLAIN), st.builds(dict, k=PLAIN, v=PLAIN), st.builds(dict, v=PLAIN))),
)


@pytest.mark.parametrize("sql_type", ["STRING", "VARCHAR(2)", "TINYINT", "BIGINT", "DATE", "DOUBLE"])
@given(keys=KEYS)
def test_keys_that_are_checked_at_once_are_those_that_are_checked_one_by_one(sql_type: str, keys: list[Any]) -> None:
    check_keys(f"k {sql_type}", ["k"], keys)


PAIRS = st.one_of(
    st.lists(st.builds(dict, k=st.text(max_size=3), v=st.integers(-200, 200))),
    st.lists(st.one_of(PLAIN, st.builds(dict, k=PLAIN), st.builds(dict, k=PLAIN, v=PLAIN))),
)


@pytest.mark.parametrize("sql_types", [("STRING", "TINYINT"), ("BIGINT", "VARCHAR(1)"), ("STRING", "DATE")])
@given(keys=PAIRS)
def test_keys_of_several_columns_that_are_checked_at_once(sql_types: tuple[str, str], keys: list[Any]) -> None:
    check_keys(f"k {sql_types[0]}, v {sql_types[1]}", ["k", "v"], keys)


def check_keys(columns: str, names: list[str], keys: list[Any]) -> None:
    """The client takes and refuses the keys that it takes and refuses alone, and sends the same."""
    table = f"CREATE TABLE t ({columns}, x INT, PRIMARY KEY ({', '.join(names)}) NOT ENFORCED)"
    view = JsonCodec(parse_create_table(table)[1])

    def one_by_one() -> list[Any]:
        if any(isinstance(key, dict) and set(key) != set(names) for key in keys):
            raise InvalidRequest("not the key")
        return [view.key_to_json(key) for key in keys]

    def outcome(work: Callable[[], list[Any]]) -> list[Any] | None:
        try:
            return work()
        except InvalidRequest:
            return None

    got = outcome(lambda: view.keys_to_json(keys))
    assert (got and [key if isinstance(key, dict) else {names[0]: key} for key in got]) == outcome(one_by_one)
