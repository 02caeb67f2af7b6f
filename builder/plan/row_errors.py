"""Errors that a Spark expression raises for one row, with its key named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stelae.builder.plan.errors import ERROR_END, ERROR_MARK
from stelae.errors import InvalidRequest, problem
from stelae.schema import types as t
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column


def raise_for_row(
    text: str, value: Column, schema: TableSchema, sources: Mapping[str, str] | None = None, hint: str = ""
) -> Column:
    """An expression, of whatever type is wanted, that stops the job with a problem that names the row's key.

    `sources`: table column → column of the frame; None where the frame's columns have the table's names.
    """
    from pyspark.sql import functions as f

    body = problem(InvalidRequest("", hint=hint or None))
    body.pop("detail")
    fields = [f.lit(value_).alias(name) for name, value_ in body.items()]
    shown = f.substring(value.cast("string"), 1, 100)
    key_columns = [f.col(t.quote_name(sources[n] if sources else n)).alias(n) for n in schema.primary_key]
    key = f.to_json(f.struct(*key_columns), {"ignoreNullFields": "false"})
    detail = f.concat(f.lit(text), shown, f.lit(" in the row with key "), key)
    message = f.concat(f.lit(ERROR_MARK), f.to_json(f.struct(*fields, detail.alias("detail"))), f.lit(ERROR_END))
    return f.raise_error(message)
