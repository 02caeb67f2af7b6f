"""Columns of the input matched to those of the table: by name, and by type.

What is missing, superfluous or of another type is refused here, on the driver, with all that is wrong at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from stelae.builder.spark_sql.added_columns import BLOCK_COLUMN, FILE_COLUMN, ORDER_COLUMN
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.aggregate_functions import BITMAPS
from stelae.schema.merge_rules import merge_rules
from stelae.schema.table_schema import Column, TableSchema
from stelae.spark.column_types import is_storable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_ids_are_not_given(frame: DataFrame, schema: TableSchema) -> None:
    """InvalidRequest for a frame with the auto-increment column, whatever it holds."""
    column = schema.auto_increment
    found = next((name for name in frame.columns if column and name.casefold() == column.name.casefold()), None)
    if found is not None:
        raise InvalidRequest(
            f"the input has the auto-increment column {found}: ids are minted, not given",
            place=found,
            hint=f"drop the column: frame.drop({found!r}); a key keeps the id that it has",
        )


def row_kind_column(frame: DataFrame, schema: TableSchema, row_kind: str | None) -> str | None:
    declared = schema.options.rowkind_field
    if declared is not None:
        if row_kind is not None and row_kind != declared:
            raise InvalidRequest(
                f"the table takes row kinds from its column {declared!r} (rowkind.field), not from {row_kind!r}",
                place="row_kind",
            )
        return next((name for name in frame.columns if name.casefold() == declared.casefold()), declared)
    if row_kind is None:
        return None
    found = next((name for name in frame.columns if name.casefold() == row_kind.casefold()), None)
    if found is None:
        raise InvalidRequest(
            f"the input has no column {row_kind!r} for row kinds",
            place="row_kind",
            hint=f"input columns: {', '.join(frame.columns)}",
        )
    return found


def target_columns(schema: TableSchema, names: Sequence[str] | None) -> frozenset[str] | None:
    """The columns that a partial update sets, keys included; None: all of them. What Fluss calls target columns.

    Raises InvalidRequest where a table can't take a partial update.
    """
    if names is None:
        return None
    rules = merge_rules(schema)
    place = "target_columns"
    for name in names:
        schema.column(name)
    minted = schema.auto_increment.name if schema.auto_increment else None
    if minted in names:
        raise InvalidRequest(
            f"{minted} can't be a target: ids are minted, not given", place=place, hint=f"leave {minted} out"
        )
    targets = frozenset((*names, *schema.primary_key))
    if rules.engine in ("first-row", "versioned"):
        raise InvalidRequest(f"the merge engine {rules.engine} takes whole rows, no partial updates", place=place)
    required = [column.name for column in schema.value_columns if not column.type.nullable and column.name != minted]
    if required:
        raise InvalidRequest(
            f"a partial update needs nullable columns beside the key, but {', '.join(required)} is NOT NULL",
            place=place,
            hint="give all columns, or declare it without NOT NULL",
        )
    needed = [*(column.name for column in rules.sequence), *([schema.options.rowkind_field or ""])]
    lacking = [name for name in needed if name and name not in targets]
    if lacking:
        raise InvalidRequest(
            f"a partial update has to give {', '.join(lacking)}: it orders the records, or says what they are",
            place=place,
            hint=f"add {', '.join(lacking)}",
        )
    return None if targets | {minted} == {*schema.column_names, minted} else targets


def takes_ids(column: Column, schema: TableSchema) -> bool:
    """Whether the column is a bitmap into which a build may collect ids."""
    return any(rule.column.id == column.id and rule.function.name in BITMAPS for rule in merge_rules(schema).columns)


def match_columns(
    frame: DataFrame,
    schema: TableSchema,
    kind_column: str | None,
    *,
    targets: frozenset[str] | None,
    allow_missing_columns: bool,
    ignore_extra_columns: bool,
) -> dict[str, str]:
    """Table column → input column, without those that are null for want of an input column. Raises InvalidRequest for
    missing, superfluous and wrongly typed columns, all at once.
    """
    by_name = {name: name for name in frame.columns}
    folded: dict[str, list[str]] = {}
    for name in frame.columns:
        folded.setdefault(name.casefold(), []).append(name)
    duplicates = [names for names in folded.values() if len(names) > 1]
    if duplicates:
        raise InvalidRequest(f"input columns differ only in case: {duplicates[0]}", hint="Spark can't tell them apart")
    found = {
        column.name: by_name.get(column.name) or folded[column.name.casefold()][0]
        for column in schema.columns
        if column.name.casefold() in folded
    }
    lacking = [column for column in schema.columns if column.name not in found and column != schema.auto_increment]
    if targets is None:
        missing = [column.name for column in lacking if not _may_lack(column, schema, allow_missing_columns)]
    else:
        missing = [column.name for column in lacking if column.name in targets]
    known = {*found.values(), kind_column, FILE_COLUMN, BLOCK_COLUMN, ORDER_COLUMN}
    extra = [name for name in frame.columns if name not in known]
    refused = [] if ignore_extra_columns else extra
    if missing or refused:
        only_nulls = all(_may_lack(column, schema, True) for column in lacking)
        raise InvalidRequest(
            _mismatch(missing, refused),
            hint=_nearest([column.name for column in lacking], extra) or _flags(missing, refused, only_nulls),
        )
    fields = {field.name: field.dataType for field in frame.schema.fields}
    wrong = [
        f"{column.name} is {fields[found[column.name]].simpleString().upper()}, the table has {column.type.sql_name()}"
        for column in schema.columns
        if column.name in found
        and not is_storable(fields[found[column.name]], column.type)
        and not (takes_ids(column, schema) and is_storable(fields[found[column.name]], t.BigInt()))
    ]
    if wrong:
        raise InvalidRequest(
            f"input columns have other types than the table: {'; '.join(wrong)}",
            hint="cast them in the job: Stelae widens types, but never narrows or parses them",
        )
    return found


def _may_lack(column: Column, schema: TableSchema, allowed: bool) -> bool:
    """Whether an input without this column is taken, with null for it.

    To partial-update a null is nothing new, so that there it needs no leave. But a record whose sequence is null would
    lose against all others.
    """
    options = schema.options
    if not column.type.nullable or column.name in schema.primary_key or column.name == options.rowkind_field:
        return False
    return allowed or (options.merge_engine == "partial-update" and column.name not in options.sequence_field)


def _mismatch(missing: Sequence[str], extra: Sequence[str]) -> str:
    parts = []
    if missing:
        parts.append(f"the input lacks columns of the table: {', '.join(missing)}")
    if extra:
        parts.append(f"the input has columns that the table has not: {', '.join(extra)}")
    return "; ".join(parts)


def _nearest(missing: Sequence[str], extra: Sequence[str]) -> str | None:
    pairs = [(name, near[0]) for name in missing if (near := get_close_matches(name, extra, 1))]
    if pairs:
        return f"is {pairs[0][1]!r} meant to be {pairs[0][0]!r}?"
    return None


def _flags(missing: Sequence[str], extra: Sequence[str], only_nulls: bool) -> str | None:
    """The option that would take the input as it is; none where one would not do."""
    if missing:
        return "where null will do for them: --allow-missing-columns" if only_nulls and not extra else None
    return "leave them out: --ignore-extra-columns; or is one of them the row kind: --row-kind"
