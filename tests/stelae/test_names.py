"""Goal: a table name is read in both forms, and is always safe as a folder, in a URL and in a metric."""

from __future__ import annotations

import pytest

from stelae.errors import InvalidRequest
from stelae.names import MAX_NAME_LENGTH, TableName


@pytest.mark.parametrize(
    ("text", "database", "table"),
    [
        ("users", "default", "users"),
        ("shop.users", "shop", "users"),
        ("Shop.Users_2", "Shop", "Users_2"),
        ("my-db.2024", "my-db", "2024"),
        ("x" * MAX_NAME_LENGTH, "default", "x" * MAX_NAME_LENGTH),
    ],
)
def test_a_name_is_read(text: str, database: str, table: str) -> None:
    name = TableName.parse(text)
    assert name == TableName(database, table)
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the table name is empty"),
        ("shop.", "the table name is empty"),
        (".users", "the database name is empty"),
        ("a.b.c", "has 3 parts"),
        ("a b", "'a b' cannot be a table name"),
        ("_a", "cannot be a table name"),
        ("-a", "cannot be a table name"),
        ("..", "has 3 parts"),
        ("a/b", "cannot be a table name"),
        ("a\\b", "cannot be a table name"),
        ("a%2e", "cannot be a table name"),
        ("größe", "cannot be a table name"),
        ("a\n", "cannot be a table name"),
        ("a$snapshots", "cannot be a table name"),
        ("`a`", "cannot be a table name"),
        ("x" * (MAX_NAME_LENGTH + 1), "has 129 characters"),
    ],
)
def test_an_unsafe_name_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TableName.parse(text)
    assert says in refused.value.message
    assert refused.value.hint


def test_names_sort_by_database_then_table() -> None:
    names = [TableName("b", "a"), TableName("a", "b"), TableName("a", "a")]
    assert [str(name) for name in sorted(names)] == ["a.a", "a.b", "b.a"]
