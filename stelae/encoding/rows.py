"""Row codec, version 1: the value columns of one row, and its merge state, as one string of bytes.

docs/format.md#rows is the contract; `stelae/encoding/row_fields.py` has the bytes of each type.

    | schema id u16 | flags u8 | nulls, a bit a column | fixed fields | length u32 ... | variable bytes |
    |<------------------ header -------------------->|
    |<----------------------- head, of one width for all rows --------------------->|

Little-endian, so that numpy views the heads of a batch as one array of records, and struct one head. A row keeps the id
of the schema that it was written with; `RowReader` reads rows of every version of a table's schema as rows of one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import NumpyValues, arrow_type, conform, from_variable, variable_values
from stelae.encoding.byte_cursor import Cursor, Mask, join, nulls_of, records_at
from stelae.encoding.errors import CONVERSION_ERRORS, corrupt_bytes, shown_value
from stelae.encoding.row_fields import U32, Fields, FixedCell
from stelae.encoding.values import as_is, value_codec
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.merge_rules import stored_columns
from stelae.schema.table_schema import MAX_SCHEMA_ID
from stelae.schema.types import INTEGERS, Array, Binary, DataType, Decimal, Double, Float, Map, Row

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column, TableSchema

SCHEMA_ID = struct.Struct("<H")  # On disk. Never change.
HIDDEN_FLAG = 0x01  # On disk. Never renumber.
"""Flag of a tombstone: stored for later merges, never shown."""
ROW_HEADER: list[tuple[str, np.dtype[Any]]] = [
    ("schema_id", np.dtype("<u2")),
    ("flags", np.dtype("u1")),
]  # On disk. Never change.
FLAGS_AT = 2
NULLS_AT = 3

CACHED_DECODERS = 256
"""Compiled projections kept by a codec: requests name few different sets of columns."""

Decoder: TypeAlias = Callable[[bytes], Any]


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
            [column.type for column in self.columns],
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
            return _past_nulls(rows, lambda present: self.decode_columns(present, wanted))
        return self.decode_heads(heads, wanted)

    def hidden_mask(self, rows: pa.Array) -> Mask:
        """True for every row that is a tombstone."""
        return hidden_mask(rows)

    # What RowReader needs besides.

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

        One unpack takes the header and the fields that are wanted; after a header without flags and nulls, compared as
        a whole, comes a loop over each kind of column. Generated source would take 3/4 to 4/5 of its time for a row of
        five columns: not enough for code that nobody can read or step through.
        """
        keys: Sequence[Any] = range(len(columns)) if json is None else [column.name for column in columns]
        template: Any = [None] * len(columns) if json is None else dict.fromkeys(json)
        picks = {self._index_of_id.get(column.id): (key, column) for key, column in zip(keys, columns, strict=True)}
        codes = f"<{self._header_size}s"
        slot = 1
        plain: list[tuple[Any, int, int]] = []  # key, slot among the unpacked, bit among the nulls
        converted: list[tuple[Any, int, int, Callable[[Any], Any]]] = []
        for i, fixed in self._fields.fixed:
            if i not in picks:
                codes += f"{fixed.width}x"
                continue
            key, column = picks[i]
            convert = _chain(fixed.from_word, None if json is None else _json_converter(column))
            if convert is None:
                plain.append((key, slot, 1 << i))
            else:
                converted.append((key, slot, 1 << i, convert))
            codes += fixed.code
            slot += 1
        variable: list[tuple[Any, int, int, Callable[[Any], Any] | None]] = []
        for i, cell in self._fields.variable:
            load = None
            key = None
            if i in picks:
                key, column = picks[i]
                load = _chain(cell.load, None if json is None else _json_converter(column))
            variable.append((key, slot, 1 << i, load))
            codes += "I"
            slot += 1

        unpack = struct.Struct(codes).unpack_from
        copy = template.copy
        own_id, count, header_size, head_size = self.schema.id, self._count, self._header_size, self._struct.size
        usual = self._usual_header
        plain_usual = [(key, slot) for key, slot, _ in plain]
        converted_usual = [(key, slot, convert) for key, slot, _, convert in converted]
        variable_usual = [(key, slot, load) for key, slot, _, load in variable]

        def decode(row: bytes) -> Any:
            try:
                fields = unpack(row)
                if fields[0] != usual:
                    return decode_unusual(row)
                out = copy()
                for key, slot in plain_usual:
                    out[key] = fields[slot]
                for key, slot, convert in converted_usual:
                    out[key] = convert(fields[slot])
                end = head_size
                for key, slot, load in variable_usual:
                    start = end
                    end += fields[slot]
                    if load is not None:
                        out[key] = load(row[start:end])
            except CONVERSION_ERRORS as exc:
                if len(row) < head_size:
                    return decode_unusual(row)  # of another schema, or cut
                raise _corrupt(row, str(exc)) from exc
            if end != len(row):
                raise _corrupt(row, f"it has {len(row)} bytes, its fields {end}")
            return tuple(out) if json is None else out

        def decode_unusual(row: bytes) -> Any:
            if len(row) < NULLS_AT:
                raise _corrupt(row, "it ends within its header")
            (schema_id,) = SCHEMA_ID.unpack_from(row)
            if schema_id != own_id:
                if other_schema is None:
                    raise _corrupt(row, f"its schema id is {schema_id}, not {own_id}")
                return other_schema(schema_id, row)
            flags = row[FLAGS_AT]
            if flags > HIDDEN_FLAG:
                raise _corrupt(row, "it has a flag that is not known")
            if len(row) < head_size:
                raise _corrupt(row, f"it has {len(row)} bytes, its head {head_size}")
            nulls = int.from_bytes(row[NULLS_AT:header_size], "little")
            if nulls >> count:
                raise _corrupt(row, "its nulls are more than its columns")
            fields = unpack(row)
            out = copy()
            for key, slot, bit in plain:
                if not nulls & bit:
                    out[key] = fields[slot]
            for key, slot, bit, convert in converted:
                if not nulls & bit:
                    out[key] = convert(fields[slot])
            end = head_size
            for key, slot, bit, load in variable:
                start = end
                end += fields[slot]
                if load is not None and not nulls & bit:
                    out[key] = load(row[start:end])
            if end != len(row):
                raise _corrupt(row, f"it has {len(row)} bytes, its fields {end}")
            if flags & HIDDEN_FLAG:
                return None
            return tuple(out) if json is None else out

        return decode

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


class RowReader:
    """Reads rows of every version of a table's schema as rows of one version, `target`.

    Columns are told by their ids: a column that was renamed keeps its values, one that a row does not have yet is null,
    one that `target` no longer has is left out. The methods are RowCodec's; rows of the target's own id take no detour.
    """

    decode: Callable[[bytes], tuple[Any, ...] | None]
    """The physical values of all value columns of `target`; None if the row is hidden."""

    def __init__(self, schemas: Mapping[int, TableSchema], target: TableSchema) -> None:
        self.schemas = {**schemas, target.id: target}
        self.target = target
        self._codec = RowCodec(target)
        self._codecs = {target.id: self._codec}
        self._decoders = lru_cache(CACHED_DECODERS)(self._decoder)
        self.decode = self.decoder([column.name for column in target.value_columns])

    def __reduce__(self) -> tuple[object, ...]:
        return RowReader, (self.schemas, self.target)

    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], tuple[Any, ...] | None]:
        """A compiled projection: row bytes to the physical values of these columns; None if the row is hidden."""
        return self._decoders(tuple(columns), None)

    def json_decoder(
        self, columns: Sequence[str], names: Sequence[str] | None = None
    ) -> Callable[[bytes], dict[str, Any] | None]:
        """The same to a dict that is ready for JSON: the hot path of HTTP.

        `names` are those of the dict, in order; the columns by default. Others are None, for the caller to fill.
        """
        return self._decoders(tuple(columns), tuple(columns if names is None else names))

    def decode_batch(self, rows: pa.Array, columns: Sequence[str] | None = None) -> list[pa.Array]:
        """Like `RowCodec.decode_batch`, for rows of several schema ids."""
        wanted = self.target.value_columns if columns is None else [self._codec.column(name) for name in columns]
        rows = conform(rows, Binary(), "row")
        heads = self._codec.heads(rows)
        if heads is None:
            return _past_nulls(rows, lambda present: self._decode_mixed(present, wanted))
        return self._codec.decode_heads(heads, wanted)

    def hidden_mask(self, rows: pa.Array) -> Mask:
        """True for every row that is a tombstone."""
        return hidden_mask(rows)

    def _decode_mixed(self, rows: pa.Array, columns: Sequence[Column]) -> list[pa.Array]:
        ids = _headers(rows)["schema_id"]
        if (ids == self.target.id).all():  # of no rows, too
            return self._codec.decode_columns(rows, columns)
        groups = [np.flatnonzero(ids == schema_id) for schema_id in np.unique(ids)]
        parts = [
            self._codec_of(int(ids[group[0]])).decode_columns(rows.take(pa.array(group)), columns) for group in groups
        ]
        back = pa.array(np.argsort(np.concatenate(groups)))
        return [pa.concat_arrays(arrays).take(back) for arrays in zip(*parts, strict=True)]

    def _decoder(self, columns: tuple[str, ...], json: tuple[str, ...] | None) -> Decoder:
        wanted = distinct([self._codec.column(name) for name in columns])
        others: dict[int, Decoder] = {}

        def other_schema(schema_id: int, row: bytes) -> Any:
            decode = others.get(schema_id)
            if decode is None:
                decode = others[schema_id] = self._codec_of(schema_id).compile(wanted, json)
            return decode(row)

        return self._codec.compile(wanted, json, other_schema)

    def _codec_of(self, schema_id: int) -> RowCodec:
        codec = self._codecs.get(schema_id)
        if codec is None:
            schema = self.schemas.get(schema_id)
            if schema is None:
                known = ", ".join(map(str, sorted(self.schemas)))
                raise CorruptData(
                    f"a row has schema id {schema_id}, which is not known",
                    hint=f"schemas of this table: {known}; a newer one may have to be loaded",
                )
            _check_readable(schema, self.target)
            codec = self._codecs[schema_id] = RowCodec(schema)
        return codec


def hidden_mask(rows: pa.Array) -> Mask:
    """True for every row (of any schema id) that is a tombstone; a row that is null is none."""
    present: Mask = np.ones(len(rows), np.bool_) if not rows.null_count else ~nulls_of(rows)
    mask = np.zeros(len(rows), np.bool_)
    mask[present] = _headers(conform(rows, Binary(), "row").drop_null())["flags"] & HIDDEN_FLAG != 0
    return mask


def distinct(columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, if none is named twice."""
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"column {name} is named twice", place=name)
    return columns


def _headers(rows: pa.Array) -> NumpyValues:
    return Cursor.of_rows(rows).take_records(np.dtype(ROW_HEADER))


def _past_nulls(rows: pa.Array, decode: Callable[[pa.Array], list[pa.Array]]) -> list[pa.Array]:
    """Decodes the rows that are not null, and puts the nulls back."""
    if not rows.null_count:
        return decode(rows)
    null = nulls_of(rows)
    places = pa.array(np.cumsum(~null) - 1, mask=null)
    return [array.take(places) for array in decode(rows.drop_null())]


def _json_converter(column: Column) -> Callable[[Any], Any] | None:
    convert = value_codec(column).present_to_json
    return None if convert is as_is else convert


def _chain(first: Callable[[Any], Any] | None, second: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """Both conversions, one after the other; None is no conversion."""
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def _check_readable(old: TableSchema, new: TableSchema) -> None:
    by_id = {column.id: column for column in stored_columns(old)}
    for column in stored_columns(new):
        was = by_id.get(column.id)
        if was is not None and not _holds(column.type, was.type):
            raise CorruptData(
                f"column {column.name} was {was.type.sql_name()} in schema {old.id} and is {column.type.sql_name()} in "
                f"schema {new.id}: its rows cannot be read",
                place=column.name,
            )


def _holds(new: DataType, old: DataType) -> bool:
    """Whether every physical value of the old type is one of the new type, and the same one."""
    if isinstance(new, INTEGERS) and isinstance(old, INTEGERS):
        return new.bits >= old.bits
    if isinstance(new, Double) and isinstance(old, Float):
        return True
    match new, old:
        case Decimal(), Decimal():
            return new.scale == old.scale and new.precision >= old.precision
        case Array(), Array():
            return _holds(new.element, old.element)
        case Map(), Map():
            return _holds(new.key, old.key) and _holds(new.value, old.value)
        case Row(), Row():
            return len(new.fields) == len(old.fields) and all(
                field.name == was.name and _holds(field.type, was.type)
                for field, was in zip(new.fields, old.fields, strict=True)
            )
    return type(new) is type(old)  # lengths and precisions are limits for new values


def _null_refused(column: Column) -> InvalidRequest:
    return InvalidRequest(
        f"column {column.name} is null", place=column.name, hint=f"it is {column.type.sql_name()} NOT NULL"
    )


def _corrupt(row: bytes, reason: str) -> CorruptData:
    return corrupt_bytes("row", row, reason)
