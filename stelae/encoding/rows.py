"""Row codec, version 1: the value columns of one row, and its merge state, as one string of bytes.

docs/format.md#rows is the contract; `stelae/encoding/plain_fields.py` has the bytes of each type.

    | schema id u16 | flags u8 | nulls, a bit a column | fixed fields | length u32 ... | variable bytes |
    |<------------------ header -------------------->|
    |<----------------------- head, of one width for all rows --------------------->|

Little-endian, so that numpy views the heads of a batch as one array of records, and struct one head. A row keeps the id
of the schema that it was written with; `stelae/encoding/row_reader.py` reads rows of every version of a table's schema
as rows of one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import NumpyValues, arrow_type, conform, from_variable, variable_values
from stelae.encoding.byte_cursor import Cursor, Mask, join, nulls_of, records_at
from stelae.encoding.errors import CONVERSION_ERRORS, shown_value
from stelae.encoding.nested_fields import cell_of
from stelae.encoding.plain_fields import U32, FixedCell
from stelae.encoding.row_decoder import Decoder, plan_decoder, unusual_decoder, usual_decoder
from stelae.encoding.row_fields import Fields
from stelae.encoding.row_header import HIDDEN_FLAG, NULLS_AT, ROW_HEADER, SCHEMA_ID
from stelae.errors import InvalidRequest
from stelae.schema.merge_rules import stored_columns
from stelae.schema.table_schema import MAX_SCHEMA_ID
from stelae.schema.types import Binary

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column, TableSchema

CACHED_DECODERS = 256
"""Compiled projections kept by a codec: requests name few different sets of columns."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a batch of rows of one schema, and the cursor behind them."""

    records: NumpyValues
    cursor: Cursor
    present: Mask | None
    """False for a row that is null, whose head is zeros; None if there is no such row."""
    usual: bool
    """Whether the headers say of all rows that are there: no flags, no nulls."""


class RowCodec:
    """Encodes rows of one schema, and decodes rows that have its id.

    Columns are the schema's value columns, in their order, and after them its state columns
    (`stelae/schema/merge_rules.py`): only those who name them get to see them, and where rows are encoded they may be
    left out, and are null then. A value that its column cannot hold, or a null in a NOT NULL column (a tombstone may
    have them), raises InvalidRequest naming the column; bytes that are no row of this schema raise CorruptData. Methods
    for one row and for many agree byte for byte.
    """

    decode: Callable[[bytes], tuple[Any, ...] | None]
    """The physical values of all value columns; None if the row is hidden."""

    def __init__(self, schema: TableSchema) -> None:
        if not 0 <= schema.id <= MAX_SCHEMA_ID:
            raise InvalidRequest(f"schema id {schema.id} does not fit a row", hint=f"ids end at {MAX_SCHEMA_ID}")
        self.schema = schema
        self.columns: tuple[Column, ...] = stored_columns(schema)
        self._count = len(self.columns)
        self._by_name = {column.name: column for column in self.columns}
        self._names = [column.name for column in self.columns]
        self._index_of_id = {column.id: i for i, column in enumerate(self.columns)}
        null_bytes = (self._count + 7) // 8
        self._header_size = NULLS_AT + null_bytes
        self._fields = Fields(
            [cell_of(column.type) for column in self.columns],
            head=[*ROW_HEADER, ("nulls", np.dtype(("u1", (null_bytes,))))],
        )
        self._struct = struct.Struct(f"<{self._header_size}s{self._fields.codes}")
        self._usual_header = self._header(0, 0)
        # numpy's view of whole headers: as a number where they are as long as one (up to 8 columns), else as bytes.
        header = np.dtype("<u4") if self._header_size == U32.size else np.dtype(("u1", (self._header_size,)))
        self._starts = np.dtype(
            {"names": ["header"], "formats": [header], "offsets": [0], "itemsize": self._fields.dtype.itemsize}
        )
        self._usual_start = np.frombuffer(self._usual_header, header.base)
        self._decoders = lru_cache(CACHED_DECODERS)(self._decoder)
        self.decode = self.decoder([column.name for column in schema.value_columns])

    def __reduce__(self) -> tuple[object, ...]:
        # Closures do not pickle, and Spark sends codecs to executors.
        return RowCodec, (self.schema,)

    # One row.

    def encode(self, values: Sequence[Any], hidden: bool = False) -> bytes:
        """The row of the physical values of all value columns; None is null."""
        header = self._usual_header
        if len(values) == len(self.schema.value_columns) < self._count:
            values = [*values, *[None] * (self._count - len(values))]
        try:
            if len(values) != self._count:
                raise TypeError("another number of values")
            if hidden or None in values:
                nulls = sum(1 << i for i, value in enumerate(values) if value is None)
                header = self._header(HIDDEN_FLAG if hidden else 0, nulls)
                if not hidden:
                    self._refuse_nulls(values)
            words, cells = self._fields.dump(values)
            return self._struct.pack(header, *words) + b"".join(cells)
        except CONVERSION_ERRORS as exc:
            self._refuse(values, exc)

    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], tuple[Any, ...] | None]:
        """A compiled projection: row bytes to the physical values of these columns; None if the row is hidden."""
        return self._decoders(tuple(columns), None)

    def json_decoder(self, columns: Sequence[str]) -> Callable[[bytes], dict[str, Any] | None]:
        """The same to a dict that is ready for JSON: the hot path of HTTP."""
        return self._decoders(tuple(columns), tuple(columns))

    # Many rows.

    def encode_batch(
        self, columns: Sequence[pa.Array], hidden: Mask | None = None, *, rows: int | None = None
    ) -> pa.Array:
        """A BinaryArray of rows. `columns`: one array a value column, of Arrow types that `conform` takes.

        `hidden` marks tombstones. `rows` is the number of rows, needed only for a table without value columns.
        """
        records, pieces = self._encode(columns, hidden, rows)
        width = records.dtype.itemsize
        heads = from_variable(pa.binary(), np.arange(len(records) + 1) * width, records.view(np.uint8))
        return join([heads, *pieces])

    def encode_list(
        self, columns: Sequence[pa.Array], hidden: Mask | None = None, *, rows: int | None = None
    ) -> list[bytes]:
        """Like `encode_batch`, as a list: what RocksDB takes."""
        encoded: list[bytes]
        if self._fields.variable:
            encoded = self.encode_batch(columns, hidden, rows=rows).to_numpy(zero_copy_only=False).tolist()
        else:
            records, _ = self._encode(columns, hidden, rows)
            encoded = records.view(np.dtype((np.void, records.dtype.itemsize))).tolist()
        return encoded

    def decode_batch(self, rows: pa.Array, columns: Sequence[str] | None = None) -> list[pa.Array]:
        """These value columns (default: all) of many rows, in the types of `arrow_type`; of tombstones, too, as stored.

        A row that is null, as a lookup of a missing key gives it, is null in every column.
        """
        wanted = self.schema.value_columns if columns is None else [self.column(name) for name in columns]
        rows = conform(rows, Binary(), "row")
        heads = self.heads(rows)
        if heads is None:
            return past_nulls(rows, lambda present: self.decode_columns(present, wanted))
        return self.decode_heads(heads, wanted)

    # What RowReader uses, too.

    def column(self, name: str) -> Column:
        """The value column, or state column, of that name."""
        column = self._by_name.get(name)
        if column is None:
            self.schema.column(name)
            raise InvalidRequest(
                f"column {name} is part of the primary key, and not in the row",
                place=name,
                hint=f"value columns: {', '.join(column.name for column in self.schema.value_columns)}",
            )
        return column

    def heads(self, rows: pa.Array) -> Heads | None:
        """The heads of rows that all have this schema's id, or are null; None where one has not, or is cut short."""
        offsets, data = variable_values(rows)
        starts, ends = offsets[:-1], offsets[1:]
        sizes = ends - starts
        present = null = None
        if rows.null_count:
            null = nulls_of(rows)
            present = ~null
            # A null is read as the first row that is there, and then made a head of zeros without a body.
            starts = np.where(null, starts[np.argmax(present)], starts)
            sizes[null] = self._struct.size
        if not len(rows) or rows.null_count == len(rows) or int(sizes.min()) < self._struct.size:
            return None
        records = records_at(data, starts, self._fields.dtype)
        usual = bool((records.view(self._starts)["header"] == self._usual_start).all())
        if not usual and (records["schema_id"] != self.schema.id).any():
            return None
        bodies = np.add(starts, self._struct.size, dtype=np.int64)
        if null is not None:
            records[null] = np.zeros((), self._fields.dtype)
            bodies[null] = ends[null]
        return Heads(records, Cursor(data, bodies, ends), present, usual)

    def decode_columns(self, rows: pa.Array, columns: Sequence[Column]) -> list[pa.Array]:
        """Arrays of columns of this or of a later schema, told by their ids; one that these rows lack is null."""
        heads = self.heads(rows)
        if heads is not None:
            return self.decode_heads(heads, columns)
        cursor = Cursor.of_rows(rows)
        records = cursor.take_records(self._fields.dtype)
        cursor.check(records["schema_id"] == self.schema.id, f"its schema id is not {self.schema.id}")
        return self.decode_heads(Heads(records, cursor, None, usual=False), columns)

    def decode_heads(self, heads: Heads, columns: Sequence[Column]) -> list[pa.Array]:
        """The same of heads."""
        records, cursor, present = heads.records, heads.cursor, heads.present
        valid: list[Mask | None] = [present] * self._count
        if not heads.usual:
            cursor.check(records["flags"] <= HIDDEN_FLAG, "it has a flag that is not known")
            nulls = records["nulls"]
            if self._count % 8:
                cursor.check(nulls[:, -1] >> (self._count % 8) == 0, "its nulls are more than its columns")
            for i in range(self._count):
                null = nulls[:, i // 8] & np.uint8(1 << (i % 8))
                if null.any():
                    there = null == 0
                    valid[i] = there if present is None else there & present
        indexes = [self._index_of_id.get(column.id) for column in columns]
        arrays = self._fields.decode(records, cursor, valid, wanted=[i for i in indexes if i is not None])
        decoded = []
        for index, column in zip(indexes, columns, strict=True):
            if index is None:
                decoded.append(pa.nulls(len(records), arrow_type(column.type)))
            elif column.type == self.columns[index].type:
                decoded.append(arrays[index])
            else:
                decoded.append(conform(arrays[index], column.type, column.name))
        return decoded

    def compile(
        self,
        columns: Sequence[Column],
        json: Sequence[str] | None,
        other_schema: Callable[[int, bytes], Any] | None = None,
    ) -> Decoder:
        """A decoder of columns of this or of a later schema; rows of other schema ids go to `other_schema`.

        Gives a tuple, or with `json` a dict of these names, in this order; names of other columns are left at None.
        """
        keys: Sequence[Any] = range(len(columns)) if json is None else [column.name for column in columns]
        template: Any = [None] * len(columns) if json is None else dict.fromkeys(json)
        wanted = {
            self._index_of_id[column.id]: (key, column)
            for key, column in zip(keys, columns, strict=True)
            if column.id in self._index_of_id
        }
        plan = plan_decoder(self.schema.id, self._fields, self._usual_header, wanted, template)
        return usual_decoder(plan, unusual_decoder(plan, other_schema))

    def _decoder(self, columns: tuple[str, ...], json: tuple[str, ...] | None) -> Decoder:
        return self.compile(distinct([self.column(name) for name in columns]), json)

    def _header(self, flags: int, nulls: int) -> bytes:
        return SCHEMA_ID.pack(self.schema.id) + bytes([flags]) + nulls.to_bytes(self._header_size - NULLS_AT, "little")

    def _encode(
        self, columns: Sequence[pa.Array], hidden: Mask | None, rows: int | None
    ) -> tuple[NumpyValues, list[pa.Array]]:
        """The heads as records, and the variable cells, a BinaryArray a column."""
        if 0 < len(columns) == len(self.schema.value_columns) < self._count:
            state = self.columns[len(columns) :]
            columns = [*columns, *(pa.nulls(len(columns[0]), arrow_type(column.type)) for column in state)]
        if len(columns) != self._count:
            raise InvalidRequest(
                f"a row has {self._count} value columns, but {len(columns)} were given",
                hint=f"value columns: {', '.join(self._names)}",
            )
        counts = {len(array) for array in columns}
        counts |= {len(hidden)} if hidden is not None else set()
        counts |= {rows} if rows is not None else set()
        if len(counts) != 1:
            raise InvalidRequest(f"the columns of a batch have one number of rows, these have {sorted(counts)}")
        records = np.zeros(counts.pop(), self._fields.dtype)
        records["schema_id"] = self.schema.id
        if hidden is not None:
            records["flags"][hidden] = HIDDEN_FLAG
        arrays = []
        for i, (column, values) in enumerate(zip(self.columns, columns, strict=True)):
            array = conform(values, column.type, column.name)
            arrays.append(array)
            if array.null_count:
                null = nulls_of(array)
                if not column.type.nullable and (hidden is None or (null & ~hidden).any()):
                    raise _null_refused(column)
                records["nulls"][:, i // 8] |= null.view(np.uint8) << np.uint8(i % 8)
        return records, self._fields.encode(records, arrays, self._names)

    def _refuse_nulls(self, values: Sequence[Any]) -> None:
        for column, value in zip(self.columns, values, strict=False):
            if value is None and not column.type.nullable:
                raise _null_refused(column)

    def _refuse(self, values: Sequence[Any], exc: Exception) -> NoReturn:
        if len(values) == self._count:
            for column, cell, value in zip(self.columns, self._fields.cells, values, strict=True):
                try:
                    if isinstance(cell, FixedCell):
                        struct.pack(cell.codes(1), *cell.words((value,)))
                    elif value is not None:
                        cell.dump(value)
                except CONVERSION_ERRORS as cause:
                    raise InvalidRequest(
                        f"{shown_value(value)} is no value of column {column.name} {column.type.sql_name()}",
                        place=column.name,
                    ) from cause
        raise InvalidRequest(
            f"a row has {self._count} value columns, but {len(values)} values were given",
            hint=f"value columns: {', '.join(self._names)}",
        ) from exc


def distinct(columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, if none is named twice."""
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"column {name} is named twice", place=name)
    return columns


def past_nulls(rows: pa.Array, decode: Callable[[pa.Array], list[pa.Array]]) -> list[pa.Array]:
    """Decodes the rows that are not null, and puts the nulls back."""
    if not rows.null_count:
        return decode(rows)
    null = nulls_of(rows)
    indexes = pa.array(np.cumsum(~null) - 1, mask=null)
    return [array.take(indexes) for array in decode(rows.drop_null())]


def _null_refused(column: Column) -> InvalidRequest:
    return InvalidRequest(
        f"column {column.name} is null", place=column.name, hint=f"it is {column.type.sql_name()} NOT NULL"
    )
