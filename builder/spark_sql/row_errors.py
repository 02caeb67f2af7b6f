"""Errors that an SQL expression raises for one row, with its key named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stelae.builder.spark_sql.spark_errors import ERROR_END, ERROR_MARK
from stelae.builder.spark_sql.sql_text import Operand, Sql, col, fn, sql, struct
from stelae.errors import InvalidRequest, problem
from stelae.schema.table_schema import TableSchema


def raise_for_row(
    text: str, value: Operand, schema: TableSchema, sources: Mapping[str, str] | None = None, hint: str = ""
) -> Sql:
    """An expression, of whatever type is wanted, that stops the job with a problem that names the row's key.

    `sources`: table column → column of the frame; None where the frame's columns have the table's names.
    """
    fields: dict[str, Any] = problem(InvalidRequest("", hint=hint or None))
    fields.pop("detail")  # And comes last again.
    shown = fn.substring(sql(value).cast("STRING"), 1, 100)
    key = struct({name: col(sources[name] if sources else name) for name in schema.primary_key})
    detail = fn.concat(text, shown, " in the row with key ", fn.to_json(key, fn.map("ignoreNullFields", "false")))
    return fn.raise_error(fn.concat(ERROR_MARK, fn.to_json(struct({**fields, "detail": detail})), ERROR_END))
