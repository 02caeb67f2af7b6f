"""What a client knows of a table, for Arrow: how its keys are sent, and how answers become columns.

    keys, a table ──conform──► key columns ──body──► one Arrow stream a request
    columns ◄──decode── row bytes, or structs ◄── answer

Whole rows are asked for as they are stored (`rows=encoded`), and decoded here, many at a time: that is less work for
the server than anything else. A few columns of wide rows are asked for typed: then the rest does not travel.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import arrow_schema, arrow_type, conform
from stelae.encoding.row_reader import RowReader
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.key_column_checks import check_key_columns, check_within_key
from stelae.schema.table_schema import Column, TableSchema
from stelae.wire import http_api as wire
from stelae.wire.arrow_stream import END, SNAPSHOT, RowsAnswer, one_array

MAX_PREPARED_SELECTIONS = 64
"""Selections of columns that are kept prepared."""


class UnfitError(Exception):
    """An answer is not of the schemas that the client knows."""


@dataclass(frozen=True, slots=True)
class ArrowKeys:
    """Keys or prefixes: conformed columns, in the order of the table."""

    schema: pa.Schema
    columns: list[pa.ChunkedArray]
    head: bytes
    """The message of the schema: the start of each body."""

    def __len__(self) -> int:
        return len(self.columns[0])

    def part(self, start: int, stop: int) -> pa.RecordBatch:
        """Some of them, in one piece."""
        return pa.RecordBatch.from_arrays(
            [one_array(column.slice(start, stop - start)) for column in self.columns], schema=self.schema
        )

    def body(self, part: pa.RecordBatch) -> bytes:
        """The stream of one part: its messages end to end."""
        return b"".join((self.head, part.serialize(), END))


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns of rows, prepared."""

    names: tuple[str, ...]
    schema: pa.Schema
    """Of an answer to the caller: all nullable."""
    keys: tuple[int | None, ...]
    """Of each column, which one of the key it is; None for a value column."""
    values: tuple[str, ...]
    """The value columns among them."""
    encoded: bool
    """Whether rows are asked for as they are stored."""

    def query(self, encoded: bool) -> str:
        """The part of a query that asks for it."""
        if encoded:
            return urlencode({wire.ROWS_PARAMETER: wire.ENCODED})
        if any("," in name for name in self.names):
            return ""  # Can't be said: all columns, then.
        return urlencode({wire.COLUMNS_PARAMETER: ",".join(self.names)})


class ArrowCodec:
    """Keys and rows of one table."""

    def __init__(self, schema: TableSchema, schemas: Mapping[int, TableSchema]) -> None:
        self.schema = schema
        self._schemas = schemas
        self._reader = RowReader(schemas, schema)
        self._selections: dict[tuple[str, ...] | None, Selection] = {}
        self._heads: dict[tuple[str, ...], tuple[pa.Schema, bytes]] = {}

    # Keys

    def keys(self, table: pa.Table) -> ArrowKeys:
        """Keys of a table: of all columns of the primary key and no others, in any order."""
        check_key_columns(self.schema, table.column_names)
        return self._conformed(table, self.schema.primary_key_columns)

    def prefixes(self, table: pa.Table) -> ArrowKeys:
        """Prefixes: of any columns of the primary key; which make a prefix is for the server to say."""
        names = table.column_names
        if not names:
            raise InvalidRequest(
                "the prefixes have no columns", place="prefixes", hint="all rows of a table: prefix_scan(table, {})"
            )
        check_within_key(self.schema, names)
        present = [column for column in self.schema.primary_key_columns if column.name in names]
        if len(present) != len(names):
            raise InvalidRequest("a column of the prefixes is given twice", place="prefixes")
        return self._conformed(table, present)

    def _conformed(self, table: pa.Table, columns: Sequence[Column]) -> ArrowKeys:
        schema, head = self._head(tuple(column.name for column in columns))
        return ArrowKeys(schema, [_conformed(table.column(column.name), column) for column in columns], head)

    def _head(self, names: tuple[str, ...]) -> tuple[pa.Schema, bytes]:
        head = self._heads.get(names)
        if head is None:
            schema = arrow_schema([self.schema.by_name[name] for name in names])
            head = self._heads[names] = schema, schema.serialize().to_pybytes()
        return head

    # Rows

    def selection(self, columns: Sequence[str] | None) -> Selection:
        """The columns of that name, all by default."""
        wanted = None if columns is None else tuple(columns)
        found = self._selections.get(wanted)
        if found is None:
            if len(self._selections) >= MAX_PREPARED_SELECTIONS:
                self._selections.clear()
            found = self._selections[wanted] = self._select(self.schema.column_names if wanted is None else wanted)
        return found

    def _select(self, names: tuple[str, ...]) -> Selection:
        if not names:
            raise InvalidRequest("an empty list of columns selects nothing", place="columns")
        columns = [self.schema.column(name) for name in names]
        if len(set(names)) != len(names):
            raise InvalidRequest("a column is selected twice", place="columns")
        key = {name: index for index, name in enumerate(self.schema.primary_key)}
        values = tuple(name for name in names if name not in key)
        whole = {column.name for column in self.schema.value_columns} <= set(values)
        fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
        return Selection(names, pa.schema(fields), tuple(key.get(name) for name in names), values, whole)

    def decode(
        self, selection: Selection, keys: pa.RecordBatch | None, answer: RowsAnswer, encoded: bool
    ) -> list[pa.Array]:
        """The columns of an answer; those of the key come from `keys` where rows are encoded.

        UnfitError when it takes other schemas to read it.
        """
        rows = one_array(answer.rows)
        if not encoded or keys is None:
            return self._of_structs(selection, rows)
        if not pa.types.is_binary(rows.type):
            raise UnfitError(f"rows are of type {rows.type}")
        try:
            values = iter(self._reader.decode_batch(rows, selection.values))
        except CorruptData as exc:
            unknown = {row[:2] for row in rows.to_pylist() if row is not None} - {
                struct.pack("<H", schema_id) for schema_id in self._schemas
            }
            if unknown:
                raise UnfitError(exc.message) from exc
            raise
        if not rows.null_count:
            return [next(values) if at is None else keys.column(at) for at in selection.keys]
        present = rows.is_valid()
        return [next(values) if at is None else _where(present, keys.column(at)) for at in selection.keys]

    def _of_structs(self, selection: Selection, rows: pa.Array) -> list[pa.Array]:
        if not pa.types.is_struct(rows.type):
            raise UnfitError(f"rows are of type {rows.type}")
        names = [field.name for field in rows.type]
        fields = dict(zip(names, rows.flatten(), strict=True))
        arrays = []
        for field in selection.schema:
            array = fields.get(field.name)
            if array is None:
                raise UnfitError(f"rows lack column {field.name}")
            if array.type != field.type:
                raise UnfitError(f"column {field.name} is of type {array.type}")
            arrays.append(array)
        return arrays

    def empty(self, selection: Selection) -> list[pa.Array]:
        """The columns of no rows."""
        return [pa.array([], field.type) for field in selection.schema]


def table_of(
    selection: Selection, arrays: list[pa.Array], more: Sequence[tuple[str | None, pa.Array]], snapshot: int | None
) -> pa.Table:
    """A table of columns, and more of these names where they have one."""
    schema = selection.schema
    for name, array in more:
        if name is not None:
            schema = schema.append(pa.field(name, array.type, nullable=False))
            arrays = [*arrays, array]
    if snapshot is not None:
        schema = schema.with_metadata({SNAPSHOT: b"%d" % snapshot})
    return pa.Table.from_arrays(arrays, schema=schema)


def prefixed_table(
    selection: Selection,
    arrays: list[pa.Array],
    prefixes: pa.ChunkedArray,
    start: int,
    name: str,
    snapshot: int | None,
) -> pa.Table:
    """A table of rows that says of each which prefix of the call it belongs to; `start` is the first of the request."""
    numbers = one_array(prefixes)
    if start:
        numbers = pc.add(numbers, pa.scalar(start, pa.int32()))
    table = table_of(selection, arrays, (), snapshot)
    return table.add_column(0, pa.field(name, pa.int32(), nullable=False), numbers)


def concatenated(tables: list[pa.Table], snapshot: int | None) -> pa.Table:
    """Parts of a call as one table, without a copy."""
    if len(tables) == 1:
        return tables[0]
    schema = tables[0].schema
    if all(table.schema.equals(schema) for table in tables):
        whole = pa.concat_tables(tables)
    else:  # The table was altered meanwhile, and a column has grown wider.
        whole = pa.concat_tables(tables, promote_options="permissive")
    return whole.replace_schema_metadata(None if snapshot is None else {SNAPSHOT: b"%d" % snapshot})


def _conformed(column: pa.ChunkedArray, of: Column) -> pa.ChunkedArray:
    wanted = arrow_type(of.type)
    if column.null_count and not of.type.nullable:
        row = column.is_null().index(True).as_py()
        raise InvalidRequest(f"{of.name} is null in row {row:,} of the keys", place=of.name, hint="it is NOT NULL")
    if column.type.equals(wanted):
        return column
    return pa.chunked_array([conform(chunk, of.type, of.name) for chunk in column.chunks], wanted)


def _where(present: pa.Array, array: pa.Array) -> pa.Array:
    """The array, null where there is no row."""
    return pc.if_else(present, array, pa.scalar(None, array.type))
