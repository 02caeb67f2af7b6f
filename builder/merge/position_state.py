"""Values of other records than their row's newest: entries of the state column `__stelae_positions`.

    stored row with entries   → the row, and one record more for each entry         what `with_entries` gives to a merge
    merged row                → an entry for each value whose record is not the newest    `positions_of`

An entry has the id of its column, the sequence of its record, and a piece of text where the column is made of pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    ENTRY_COLUMN,
    ORDER_COLUMN,
    REMOVE,
    REMOVED_COLUMN,
    TOP_COLUMN,
)
from stelae.builder.spark_sql.sql_text import Query, Sql, col, fn, sql, struct, when
from stelae.schema import types as t
from stelae.schema.merge_rules import POSITIONS, REMOVAL, MergeRules, merge_rules, state_columns
from stelae.schema.table_schema import TableSchema


def with_entries(base: Query, columns: Mapping[str, Sql], *, without: Collection[str], schema: TableSchema) -> Query:
    """Stored rows with more columns (`Query.with_columns`), among them order and action; and with the column
    `__stelae_entry`: null for the row itself; and one record more, its entry in it, for each value, or piece of a text,
    that does not come from the row's newest record.
    """
    if not merge_rules(schema).keeps_positions:
        return base.with_columns(columns, without=without)
    entry_type = _positions_type(schema).spark()
    none, nothing = fn.array(None).cast(entry_type), fn.array().cast(entry_type)
    entries = fn.concat(none, fn.coalesce(col(POSITIONS), nothing))

    def record(entry: Sql, index: Sql) -> Sql:
        is_removal = fn.coalesce(entry.field("id") == REMOVAL, False)
        # What there is came after the last removal, in the order of its entries, the row itself last.
        order = when(is_removal, -(2**62)).when(entry.is_not_null(), index - 2**40).otherwise(columns[ORDER_COLUMN])
        action = when(is_removal, REMOVE).otherwise(columns[ACTION_COLUMN]).cast("TINYINT")
        return struct({"entry": entry, "order": order, "action": action})

    others = {name: value for name, value in columns.items() if name not in (ORDER_COLUMN, ACTION_COLUMN)}
    records = f"inline({fn.transform(entries, record).text}) AS ({ENTRY_COLUMN}, {ORDER_COLUMN}, {ACTION_COLUMN})"
    return base.with_columns(others, records, without=without)


def no_entry(schema: TableSchema) -> dict[str, Sql]:
    """The columns of changes beside those that `with_entries` adds to stored rows."""
    if not merge_rules(schema).keeps_positions:
        return {}
    return {ENTRY_COLUMN: sql(None).cast(_positions_type(schema).element.spark())}


def _positions_type(schema: TableSchema) -> t.Array:
    [found] = (column.type for column in state_columns(schema) if column.name == POSITIONS)
    if not isinstance(found, t.Array):
        raise TypeError(found)
    return found


def positions_of(results: Mapping[int, Sql], rules: MergeRules, *, keeps_removal: bool) -> Sql:
    """The state of a merged row. `results`: by number of the rule, what the merge found for each column."""
    entries, pieces = [], []
    top = col(TOP_COLUMN)
    for number, rule in enumerate(rules.columns):
        if rules.keeps_pieces(rule):
            pieces.append(_entries_of_pieces(results[number], rule.column.id, top, rules))
        if rule.function.kind != "picks":
            continue
        picked = results[number]
        position = picked.field("position")
        of_another_record = position != top
        if rule.function.name.endswith("non_null_value"):
            of_another_record |= picked.field("v").is_null()
        entries.append(when(picked.is_not_null() & of_another_record, _entry(rule.column.id, position, rules)))
    if keeps_removal:
        removed = col(REMOVED_COLUMN)
        entries.append(when(removed.is_not_null(), _entry(REMOVAL, removed, rules)))
    arrays = pieces
    if entries:
        arrays = [*pieces, fn.filter(fn.array(*entries), lambda entry: entry.is_not_null())]
    if not arrays:
        return sql(None)
    state = fn.concat(*arrays)
    return when(fn.size(state) > 0, state)


def _entries_of_pieces(pieces: Sql, column_id: int, top: Sql, rules: MergeRules) -> Sql:
    """None for one piece alone that is the newest record's: its text and sequence are the row's."""
    of_row = (fn.size(pieces) == 1) & (fn.try_element_at(pieces, 1).field("o") == top)
    entries = fn.transform(pieces, lambda item: _entry(column_id, item.field("o"), rules, item.field("v")))
    return when(of_row, fn.slice(entries, 1, 0)).otherwise(entries)


def _entry(column_id: int, sequence: Sql, rules: MergeRules, text: Sql | None = None) -> Sql:
    """One entry; `sequence` is a struct with the sequence of a record."""
    fields = {f"s{i}": sequence.field(f"s{i}") for i in range(len(rules.sequence))}
    return struct({"id": column_id, **fields, "text": sql(None).cast("STRING") if text is None else text})
