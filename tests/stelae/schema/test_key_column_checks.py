"""Goal: a key gives the columns of the primary key, a prefix its first ones, and what is wrong is said in full.

Method: tables of given columns and of messages, for a table with partition columns among its key.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from stelae.errors import InvalidRequest
from stelae.schema.key_column_checks import check_key_columns, check_prefix_columns, check_within_key, wrong_key_columns
from stelae.schema.sql import parse_create_table

_, SCHEMA, _ = parse_create_table(
    "CREATE TABLE t (a INT, day DATE, b INT, c INT, v INT, PRIMARY KEY (a, day, b, c)) PARTITIONED BY (day)"
)
WHOLE = ("a", "day", "b", "c")
HINT = "the primary key is a, day, b, c"


@pytest.mark.parametrize("given", [WHOLE, WHOLE[::-1], dict.fromkeys(WHOLE), set(WHOLE)])
def test_the_whole_key_is_taken_in_any_order(given: Collection[str]) -> None:
    check_key_columns(SCHEMA, given)


@pytest.mark.parametrize(
    ("given", "message", "place", "hint"),
    [
        (("a", "b"), "the key lacks day, c", "day, c", f"{HINT}; or not"),
        ((), "the key lacks a, day, b, c", "a, day, b, c", f"{HINT}; or not"),
        ((*WHOLE, "v"), "not a primary-key column: 'v'", "v", HINT),
        ((*WHOLE, "nix"), "unknown column 'nix'", "nix", HINT),
        ((*WHOLE, "A"), "unknown column 'A'", "A", HINT),
        (("v", "day", "b", "c"), "not a primary-key column: 'v'; the key lacks a", "v", f"{HINT}; or not"),
        ((*WHOLE, "b"), "a column of the key is given twice", None, HINT),
    ],
)
def test_other_columns_are_refused(given: Collection[str], message: str, place: str | None, hint: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_key_columns(SCHEMA, given, hint="or not")
    assert (caught.value.message, caught.value.place, caught.value.hint) == (message, place, hint)


def test_the_table_and_the_place_are_those_of_the_caller() -> None:
    error = wrong_key_columns(SCHEMA, ("v",), table="shop.t", place="keys")
    assert error.message == "not a primary-key column of shop.t: 'v'; the key of shop.t lacks a, day, b, c"
    assert error.place == "keys"
    with pytest.raises(InvalidRequest, match=r"unknown column 'nix' of shop\.t") as caught:
        check_within_key(SCHEMA, ["a", "nix"], table="shop.t", place="on")
    assert caught.value.place == "on"


@pytest.mark.parametrize("given", [(), ("a",), ("day",), ("day", "a"), ("a", "b"), ("b", "day", "a"), WHOLE])
def test_a_prefix_is_partition_columns_and_first_key_columns(given: Collection[str]) -> None:
    check_prefix_columns(SCHEMA, given)


@pytest.mark.parametrize(
    ("given", "message", "place"),
    [
        (("b",), "not a prefix of the key: 'a' is missing before 'b'", "prefix"),
        (("a", "c", "day"), "not a prefix of the key: 'b' is missing before 'c'", "prefix"),
        (("c",), "not a prefix of the key: 'a' is missing before 'c'", "prefix"),
        (("a", "v"), "not a primary-key column: 'v'", "v"),
        (("nix",), "unknown column 'nix'", "nix"),
    ],
)
def test_columns_with_a_gap_are_no_prefix(given: Collection[str], message: str, place: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_prefix_columns(SCHEMA, given)
    assert (caught.value.message, caught.value.place) == (message, place)
