"""One row a key, chosen among records, for tables that give their keys ids: the engines deduplicate, first-row and
versioned.

    records of a task, sorted by ordinal, key columns, merge order
      → the last record of each key, with the id of whichever of them has one: that of the stored row

The writer does the same on its way to the file. Here it is a step of its own, because how many rows need an id has to
be known before the first of them is written. What comes out is what builder/merge/aggregate.py gives for the other
engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.added_columns import FORGOTTEN_COLUMN, HIDDEN_COLUMN, ORDINAL_COLUMN, RECORDS_COLUMN
from stelae.builder.spark_sql.python_steps import map_batches
from stelae.builder.spark_sql.sql_text import Sql, col, fn, sql
from stelae.encoding.keys import KeyCodec
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, merge_rules, stored_columns
from stelae.schema.table_schema import TableSchema
from stelae.spark.column_types import as_arrow_has_it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def last_record_order(arrival: Sequence[str], plan: BuildPlan) -> list[str]:
    """The order in which the record that wins is the last of its key: the greatest sequence (the least, under
    descending order), nulls lose; arrival decides between equals.
    """
    rules = plan.rules
    if rules.engine == "first-row":
        return [f"{name} DESC" for name in arrival]
    values = [col(column.name) for column in rules.sequence]
    if rules.engine == "versioned":
        least = [_least(column.type).cast(column.type.spark()) for column in rules.sequence]
        values = [fn.coalesce(value, null) for value, null in zip(values, least, strict=True)]
    order = [value.descending() if rules.descending else value.ascending() for value in values]
    if rules.retracts_first:
        order.append(f"{HIDDEN_COLUMN} DESC")
    return [*order, *arrival]


def _least(data_type: t.DataType) -> Sql:
    """The least value of a version column's type: a null version is as good."""
    match data_type:
        case t.Int():
            return sql(-(2**31))
        case t.BigInt():
            return sql(-(2**63))
    return fn.timestamp_micros(-(2**63))


def last_records(records: DataFrame, plan: BuildPlan) -> DataFrame:
    """`records` has the writer's columns: ordinal, key columns, stored columns, hidden; those of a key in a row."""
    columns = [*plan.schema.key_columns, *stored_columns(plan.schema)]
    types = [f"_{position} {as_arrow_has_it(column.type).spark()}" for position, column in enumerate(columns)]
    ddl = ", ".join(
        [
            f"{ORDINAL_COLUMN} INT",
            *types,
            f"{HIDDEN_COLUMN} BOOLEAN",
            f"{RECORDS_COLUMN} BIGINT",
            f"{FORGOTTEN_COLUMN} BOOLEAN",
        ]
    )
    return map_batches(records, _LastRecords(plan.schema), ddl)


@dataclass(frozen=True)
class _LastRecords:
    """Runs on executors, once a task. Pickled with the task."""

    schema: TableSchema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        same_key = KeyComparison(self.schema)
        carry: pa.RecordBatch | None = None
        carried_records, carried_id = 0, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            whole = batch if carry is None else pa.concat_batches([carry, batch])
            weights = np.ones(whole.num_rows, dtype=np.int64)
            ids = self._ids(whole)
            if carry is not None:
                weights[0], ids[0] = carried_records, max(carried_id, int(ids[0]))
            last_of_key = same_key.last_of_key(whole)
            starts = np.concatenate([[0], np.flatnonzero(last_of_key) + 1])
            records, ids = np.add.reduceat(weights, starts), np.maximum.reduceat(ids, starts)
            # The last key may go on in the next batch: its last record waits there.
            if len(starts) > 1:
                chosen = whole.slice(0, whole.num_rows - 1).filter(pa.array(last_of_key))
                yield self._rows(chosen, records[:-1], ids[:-1])
            carry, carried_records, carried_id = whole.slice(whole.num_rows - 1), int(records[-1]), int(ids[-1])
        if carry is not None:
            yield self._rows(carry, np.array([carried_records]), np.array([carried_id]))

    def _ids(self, batch: pa.RecordBatch) -> np.ndarray:
        """Ids by row, 0 where there is none. A copy."""
        ids: np.ndarray = pc.fill_null(batch.column(self._at_id), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return ids

    def _rows(self, chosen: pa.RecordBatch, records: np.ndarray, ids: np.ndarray) -> pa.RecordBatch:
        columns = chosen.columns
        hidden = columns[-1].to_numpy(zero_copy_only=False)
        columns[self._at_id] = pa.array(ids, columns[self._at_id].type, mask=(ids == 0) | hidden)
        if hidden.any():
            first = 1 + len(self.schema.key_columns)
            columns[first:-1] = only_sequence(self.schema, columns[first:-1], hidden)
        forgotten = hidden & (not merge_rules(self.schema).keeps_tombstones)
        columns += [pa.array(records, pa.int64()), pa.array(forgotten, pa.bool_())]
        return pa.RecordBatch.from_arrays(columns, names=[*chosen.schema.names, RECORDS_COLUMN, FORGOTTEN_COLUMN])

    @property
    def _at_id(self) -> int:
        """Position of the auto-increment column."""
        return 1 + len(self.schema.key_columns) + stored_columns(self.schema).index(self.schema.auto_increment)


class KeyComparison:
    """Tells where a batch that is sorted by ordinal and key goes on to another key."""

    def __init__(self, schema: TableSchema) -> None:
        self._codecs = {
            # NaN equals NaN and null equals null as a key, but not for Arrow: compare the encoded bytes.
            index: KeyCodec([column])
            for index, column in enumerate(schema.key_columns)
            if isinstance(column.type, t.Float | t.Double) or column.type.nullable
        }
        self._count = len(schema.key_columns)

    def last_of_key(self, batch: pa.RecordBatch) -> np.ndarray:
        """For each row but the last: whether the next row has another key. Shape (rows - 1,), bool."""
        rows = batch.num_rows
        changes = np.zeros(rows - 1, dtype=bool)
        for index in range(1 + self._count):  # The ordinal, then the key columns.
            column = batch.column(index)
            codec = self._codecs.get(index - 1)
            if codec is not None:
                column = codec.encode_batch([column])
            differs = pc.not_equal(column.slice(0, rows - 1), column.slice(1))
            changes |= differs.to_numpy(zero_copy_only=False)
        return changes


def only_sequence(schema: TableSchema, values: Sequence[pa.Array], hidden: np.ndarray) -> list[pa.Array]:
    """Stored columns of rows that one record made: tombstones keep what orders them, nothing else."""
    keep = {*schema.options.sequence_field, HIDDEN_SINCE}
    mask = pa.array(hidden)
    return [
        array if column.name in keep else pc.if_else(mask, pa.scalar(None, array.type), array)
        for column, array in zip(stored_columns(schema), values, strict=True)
    ]
