"""Goal: a CREATE TABLE as the documentation of Paimon and Fluss shows it makes the table that it describes; anything
else is refused with its place, and never dropped silently.

Method: tables of cases beside this file (statements in, definitions or errors out), one runner each. Then what no
single statement shows: the JSON form keeps every definition, SQL made from a schema makes that schema again, no
statement fails with anything but InvalidRequest, and a schema is read without loading sqlglot.
"""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stelae.errors import InvalidRequest
from stelae.names import TableName
from stelae.schema import aggregate_functions as aggregates
from stelae.schema import types
from stelae.schema.aggregate_functions import find_function
from stelae.schema.checks import check_table
from stelae.schema.options import TableOptions
from stelae.schema.sql import parse_create_table
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import quote_name

CASES = Path(__file__).parent / "cases"


def cases(name: str) -> Any:
    return yaml.safe_load((CASES / name).read_text(encoding="utf-8"))


ACCEPTED = cases("accepted.yaml")
REFUSED = cases("refused.yaml")
MERGING = cases("merging.yaml")
FUNCTIONS = cases("functions.yaml")
COLUMNS = "a INT, b STRING, PRIMARY KEY (a)"


def shown(options: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())[:100]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["name"])
def test_a_statement_makes_its_table(case: dict[str, Any]) -> None:
    name, schema, if_not_exists = parse_create_table(case["sql"])
    assert str(name) == case.get("table", "default.t")
    assert [described(column) for column in schema.columns] == case["columns"]
    assert list(schema.primary_key) == case["primary_key"]
    assert list(schema.partition_keys) == case.get("partitioned_by", [])
    assert schema.options.given == case.get("options", {})
    assert schema.comment == case.get("comment")
    assert if_not_exists is case.get("if_not_exists", False)
    assert schema.id == 0
    assert [column.id for column in schema.columns] == list(range(len(schema.columns)))


def described(column: Column) -> str:
    return f"{column.name} {column.type.sql()}" + (f" -- {column.comment}" if column.comment else "")


@pytest.mark.parametrize(("spelled", "meant"), cases("types.yaml").items())
def test_a_type_has_many_spellings(spelled: str, meant: str) -> None:
    _, schema, _ = parse_create_table(f"CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, v {spelled}, w INT)")
    assert schema.column("v").type.sql() == meant


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["sql"][:60])
def test_a_statement_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_create_table(case["sql"].replace("...", COLUMNS))
    error = refused.value
    assert case["says"] in error.message
    if "place" in case:
        assert error.place == case["place"]
    if "hint" in case:
        assert case["hint"] in str(error.hint)


def test_the_place_counts_lines_and_columns_from_one() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_create_table("-- ä comment\nCREATE TABLE t (\n  a INT,\n  b NUMBER,\n  PRIMARY KEY (a)\n)")
    assert refused.value.place == "line 4, column 5"


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["name"])
def test_a_definition_survives_storage_and_pickling(case: dict[str, Any]) -> None:
    _, schema, _ = parse_create_table(case["sql"])
    assert TableSchema.decode(json.loads(json.dumps(schema.encode()))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    check_table(schema)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["name"])
def test_a_schema_written_as_sql_is_itself_again(case: dict[str, Any]) -> None:
    name, schema, _ = parse_create_table(case["sql"])
    assert parse_create_table(written(name, schema)) == (name, schema, False)


def written(name: TableName, schema: TableSchema) -> str:
    columns = [f"{quote_name(c.name)} {c.type.sql()}{commented(c.comment)}" for c in schema.columns]
    key = f"PRIMARY KEY ({', '.join(map(quote_name, schema.primary_key))}) NOT ENFORCED"
    partitions = ", ".join(map(quote_name, schema.partition_keys))
    options = ", ".join(f"'{option}' = '{value}'" for option, value in schema.options.given.items())
    return (
        f"CREATE TABLE {quote_name(name.database)}.{quote_name(name.table)} ({', '.join([*columns, key])})"
        + commented(schema.comment)
        + (f" PARTITIONED BY ({partitions})" if partitions else "")
        + (f" WITH ({options})" if options else "")
    )


def commented(comment: str | None) -> str:
    return "" if comment is None else " COMMENT '" + comment.replace("'", "''") + "'"


def test_a_broken_statement_is_an_invalid_request_and_nothing_else() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broken = 0
    for _ in range(600):
        sql = chance.choice(ACCEPTED)["sql"]
        start, other = chance.randrange(len(sql)), chance.choice(ACCEPTED)["sql"]
        cut = chance.randrange(1, 12)
        graft = other[(at := chance.randrange(len(other))) : at + chance.randrange(0, 12)]
        try:
            parse_create_table(sql[:start] + graft + sql[start + cut :])
        except InvalidRequest:
            broken += 1
    assert broken > 100


def test_types_nested_beyond_reason_are_refused() -> None:
    deep = "ARRAY<" * 5000 + "INT" + ">" * 5000
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        parse_create_table(f"CREATE TABLE t (a INT PRIMARY KEY, b {deep})")


def test_a_schema_made_by_hand_keeps_to_the_rules() -> None:
    key = Column(0, "a", types.Int(nullable=False))

    def schema(*columns: Column, primary_key: tuple[str, ...] = ("a",)) -> TableSchema:
        return TableSchema(0, columns, primary_key, (), TableOptions())

    check_table(schema(key))
    with pytest.raises(InvalidRequest, match="no columns"):
        check_table(schema())
    with pytest.raises(InvalidRequest, match="nullable"):
        check_table(schema(Column(0, "a", types.Int())))
    with pytest.raises(InvalidRequest, match="same id"):
        check_table(schema(key, Column(0, "b", types.Int())))
    with pytest.raises(InvalidRequest, match="no fields"):
        check_table(schema(key, Column(1, "b", types.Row())))


def test_a_schema_is_read_without_loading_sqlglot() -> None:
    modules = ", ".join(f"stelae.schema.{name}" for name in ("table_schema", "sql", "checks"))
    check = f"import sys, {modules}; print('sqlglot' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


# --- how records become rows


def merging_table(columns: str, options: dict[str, str]) -> TableSchema:
    written = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return parse_create_table(f"CREATE TABLE t ({columns}) WITH ({written})")[1]


@pytest.mark.parametrize("given", MERGING["accepted"], ids=shown)
def test_options_of_merging_are_taken(given: dict[str, str]) -> None:
    schema = merging_table(MERGING["columns"], given)
    assert TableSchema.decode(json.loads(json.dumps(schema.encode()))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    check_table(schema)


@pytest.mark.parametrize("case", MERGING["refused"], ids=lambda case: shown(case["options"]))
def test_options_of_merging_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        merging_table(MERGING["columns"], case["options"])
    error = refused.value
    assert case["says"] in error.message
    assert error.hint
    if "place" in case:
        assert error.place == case["place"]
    assert case.get("hint", "") in error.hint


@pytest.mark.parametrize("name", FUNCTIONS["functions"])
@pytest.mark.parametrize("in_group", [False, True], ids=["aggregation", "sequence group"])
def test_a_function_takes_its_types_and_no_other(name: str, in_group: bool) -> None:
    takes = FUNCTIONS["functions"][name]
    options = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"} if in_group else {}
    options = {"merge-engine": "aggregation", **options, "fields.v.agg": name, **FUNCTIONS["needs"].get(name, {})}
    for spelled in FUNCTIONS["types"]:
        columns = f"k INT PRIMARY KEY NOT ENFORCED, v {spelled}, g INT"
        if takes == "all" or spelled in takes:
            merging_table(columns, options)
            continue
        with pytest.raises(InvalidRequest) as refused:
            merging_table(columns, options)
        assert (
            refused.value.message == f"function {find_function(name, '').name!r} of column 'v' does not take {spelled}"
        )
        assert refused.value.place == "option fields.v.aggregate-function"


def test_every_function_has_its_types_in_the_table() -> None:
    assert set(FUNCTIONS["functions"]) >= {function.name for function in aggregates.FUNCTIONS}
    unknown = [
        types for types in FUNCTIONS["functions"].values() if types != "all" and set(types) - set(FUNCTIONS["types"])
    ]
    assert unknown == []
