"""Goal: the reference model says what the cases say, so that either can be trusted to judge the builds.

Method: every case of tests/cases, folded by `merge_model` in pure Python.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stelae.schema.sql import parse_create_table
from stelae.schema.table_schema import TableSchema
from tests.builder.merge.merge_model import Model, Record, RefusedError
from tests.cases import FILES, Case, comparable, expected_rows, load, numbers_of, to_python

CASES = [(file, case) for file in FILES for case in load(file)]
NOT_MERGING = (
    *("unknown_row_kind", "null_row_kind_in_the_declared_column", "rowkind_field_not_string"),
    *("null_in_a_primary_key_column", "null_in_a_not_null_column", "pu_not_null_column"),
    *("dedup_null_in_not_null_field", "dedup_null_in_a_nested_column_that_is_not_null"),
    *("text_longer_than_its_column", "dedup_text_too_long_within_nested_value"),
    *("partial_update_requires_nullable_columns", "partial_update_unknown_target_column"),
    *("first_row_rejects_partial_update", "versioned_rejects_partial_update"),
    *("agg_rbm32_of_bytes_that_are_none", "agg_rbm64_of_bytes_that_are_none"),
)
"""Refusals of input that does not come as far as merging."""


@pytest.mark.parametrize(
    "case", [case for _, case in CASES if not case.error and not case.loose_input], ids=lambda case: case.name
)
def test_rows(case: Case) -> None:
    schema = definition(case)
    types = [column.type for column in schema.columns]
    rows = [
        [comparable(case, c.name, c.type, value) for c, value in zip(schema.columns, row, strict=True)]
        for row in folded(case, schema).rows()
    ]
    accepted = [case.rows or []] + ([case.alternative_rows] if case.alternative_rows is not None else [])
    assert sorted(rows, key=repr) in [sorted(expected_rows(case, types, rows), key=repr) for rows in accepted]


@pytest.mark.parametrize(
    "case",
    [case for _, case in CASES if case.error and not case.rejected_at_create and case.name not in NOT_MERGING],
    ids=lambda case: case.name,
)
def test_refused(case: Case) -> None:
    with pytest.raises(RefusedError):
        folded(case, definition(case))


def test_names_are_unique() -> None:
    names = [case.name for _, case in CASES]
    assert len(set(names)) == len(names)


def folded(case: Case, schema: TableSchema) -> Model:
    columns = [(column.name, column.type) for column in schema.columns]
    model = Model(columns, case.primary_key, case.options)
    for index, batch in enumerate(case.batches):
        model.build((record_of(case, schema, record) for record in batch), case.targets.get(index))
    return model


def definition(case: Case) -> TableSchema:
    """Columns and types as the last build of the case sees them; the model reads the options by itself."""
    added = [column for columns in case.add_columns.values() for column in columns]
    bare = replace(case, columns=[*case.columns, *added], partition_by=[], options={})
    return parse_create_table(bare.sql("t"))[1]


def record_of(case: Case, schema: TableSchema, record: list[object]) -> Record:
    kind, *values = record
    row = {}
    for column, value in zip(schema.columns, [*values, *[None] * (len(schema.columns) - len(values))], strict=True):
        if column.name in case.encode:
            row[column.name] = numbers_of([value] if isinstance(value, int) else value)
        else:
            row[column.name] = to_python(column.type, value)
    return str(kind), row
