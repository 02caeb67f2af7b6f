"""Goal: ALTER TABLE adds the columns and sets the options that it names, and refuses everything else with its place.

Method: a table of cases in tests/stelae/schema/cases/altered.yaml, statements in, the next version or an error out;
then ids of columns over many versions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stelae.errors import InvalidRequest
from stelae.names import TableName
from stelae.schema.alter import evolve
from stelae.schema.sql import parse_alter_table, parse_create_table
from stelae.schema.table_schema import MAX_SCHEMA_ID, Column

CASES = yaml.safe_load((Path(__file__).parent / "cases" / "altered.yaml").read_text(encoding="utf-8"))
_, TABLE, _ = parse_create_table(
    "CREATE TABLE shop.t (a INT, b STRING, PRIMARY KEY (a)) WITH ('snapshot.num-retained' = '3')"
)


@pytest.mark.parametrize("case", [c for c in CASES if "says" not in c], ids=lambda case: case["sql"][:70])
def test_a_statement_makes_the_next_version(case: dict[str, Any]) -> None:
    change = parse_alter_table(case["sql"])
    assert change.name == TableName("shop", "t")
    assert change.if_exists is ("IF EXISTS" in case["sql"])
    schema = evolve({0: TABLE}, change)
    added = [f"{c.name} {c.type.sql()}" + (f" -- {c.comment}" if c.comment else "") for c in schema.columns[2:]]
    assert added == case.get("adds", [])
    assert [column.id for column in schema.columns] == list(range(len(schema.columns)))
    assert schema.options.given == case.get("options", TABLE.options.given)
    assert (schema is TABLE) is (not added and "options" not in case)
    assert schema == replace(TABLE, id=schema.id, columns=schema.columns, options=schema.options)
    assert schema.id == (0 if schema is TABLE else 1)


@pytest.mark.parametrize("case", [c for c in CASES if "says" in c], ids=lambda case: case["sql"][:70])
def test_a_statement_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        evolve({0: TABLE}, parse_alter_table(case["sql"]))
    error = refused.value
    assert case["says"] in error.message
    if "place" in case:
        assert error.place == case["place"]
    if "hint" in case:
        assert case["hint"] in str(error.hint)


def test_create_says_what_takes_an_alter() -> None:
    with pytest.raises(InvalidRequest, match="found ALTER") as refused:
        parse_create_table("ALTER TABLE t ADD c INT")
    assert refused.value.hint == "stelae alter takes it"


def test_ids_of_columns_are_never_given_again() -> None:
    """Also not those of a column that only an older version has."""
    b = TABLE.columns[1]
    versions = {0: TABLE, 1: replace(TABLE, id=1, columns=(*TABLE.columns, Column(7, "gone", b.type)))}
    versions[2] = replace(TABLE, id=2)
    for number in (3, 4):
        versions[number] = evolve(versions, parse_alter_table(f"ALTER TABLE shop.t ADD c{number} INT"))
    assert [(column.id, column.name) for column in versions[4].columns[2:]] == [(8, "c3"), (9, "c4")]


def test_functions_can_be_set_while_a_column_is_empty() -> None:
    _, table, _ = parse_create_table(
        "CREATE TABLE shop.t (a INT, b INT, PRIMARY KEY (a)) WITH ('merge-engine' = 'aggregation')"
    )
    wider = evolve({0: table}, parse_alter_table("ALTER TABLE shop.t ADD c INT"))
    change = parse_alter_table("ALTER TABLE shop.t SET ('fields.c.agg' = 'sum')")
    stored = {column.id for column in table.columns}
    summed = evolve({0: table, 1: wider}, change, stored=stored)
    assert summed.options.column_options["c"].aggregate_function == "sum"
    with pytest.raises(InvalidRequest, match="can't change"):
        evolve({0: table, 1: wider}, change, stored={*stored, wider.by_name["c"].id})
    with pytest.raises(InvalidRequest, match="can't change"):
        evolve({0: table}, parse_alter_table("ALTER TABLE shop.t SET ('fields.b.agg' = 'sum')"), stored=stored)


def test_versions_end_where_rows_have_no_number_for_them() -> None:
    last = replace(TABLE, id=MAX_SCHEMA_ID)
    with pytest.raises(InvalidRequest, match="65536"):
        evolve({MAX_SCHEMA_ID: last}, parse_alter_table("ALTER TABLE shop.t ADD c INT"))
