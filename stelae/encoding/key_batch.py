"""Keys as Arrow columns: what a batch asks for, checked and encoded without a loop over its rows.

    KeyColumns     keys of one request     columns ──► key bytes, hashes of the bucket key, partitions
    prefixes_of    prefixes of one request columns ──► physical values, one mapping a row

`stelae/read/snapshot_reader.py` finds their rows. A KeyColumns is a sequence of keys, too, for what takes keys one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import conform, first_null, fixed_values
from stelae.encoding.keys import NULL_HINT, KeyCodec
from stelae.errors import InvalidRequest
from stelae.schema.key_column_checks import check_key_columns, check_prefix_columns
from stelae.schema.types import Binary, String, Time, Timestamp, TimestampLtz

if TYPE_CHECKING:
    from stelae.encoding.buckets import BucketFunction
    from stelae.schema.table_schema import Column, TableSchema

KeyValues: TypeAlias = tuple[Any, ...]
"""Physical values of the whole primary key, in declared order."""
Indexes: TypeAlias = npt.NDArray[np.intp]


class KeyLayout:
    """How keys of one table become bytes and hashes. Made once a table."""

    def __init__(self, schema: TableSchema, keys: KeyCodec, buckets: BucketFunction) -> None:
        self.schema = schema
        self.keys = keys
        self.buckets = buckets
        names = list(schema.primary_key)
        self.whole = KeyCodec(schema.primary_key_columns)
        self.partitions = KeyCodec(schema.partition_columns) if schema.partition_columns else None
        """Values of the partition columns as bytes: what tells partitions apart."""
        self.key_at = [names.index(column.name) for column in schema.key_columns]
        self.partition_at = [names.index(column.name) for column in schema.partition_columns]
        self.bucketed_at = [names.index(column.name) for column in schema.bucket_columns]


class KeyColumns(Sequence[KeyValues]):
    """Keys, one array a primary-key column."""

    def __init__(self, layout: KeyLayout, arrays: Sequence[pa.Array]) -> None:
        """`arrays`: conformed and checked, in the order of the primary key. From elsewhere: `of`."""
        self.layout = layout
        self.arrays = arrays

    @classmethod
    def of(cls, layout: KeyLayout, given: Mapping[str, pa.Array]) -> KeyColumns:
        """The columns of a request: those of the primary key, by name, in any order and any form that means the same.

        InvalidRequest for other columns, other types, values that do not fit and nulls in NOT NULL columns.
        """
        check_key_columns(layout.schema, given, hint="its first columns alone: prefix-lookup")
        return cls(layout, [key_array(column, given[column.name]) for column in layout.schema.primary_key_columns])

    def __len__(self) -> int:
        return len(self.arrays[0])

    @overload
    def __getitem__(self, index: int) -> KeyValues: ...
    @overload
    def __getitem__(self, index: slice) -> KeyColumns: ...
    def __getitem__(self, index: int | slice) -> KeyValues | KeyColumns:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a slice of keys has no step")
            return KeyColumns(self.layout, [array.slice(start, max(0, stop - start)) for array in self.arrays])
        [whole] = self.layout.whole.encode_list([array.slice(index, 1) for array in self.arrays])
        return self.layout.whole.decode(whole)

    def __iter__(self) -> Iterator[KeyValues]:
        return map(self.layout.whole.decode, self.layout.whole.encode_list(self.arrays) if len(self) else ())

    def taken(self, indexes: Indexes | Sequence[int]) -> KeyColumns:
        """Some of the keys."""
        wanted = pa.array(indexes, pa.int64())
        return KeyColumns(self.layout, [array.take(wanted) for array in self.arrays])

    @cached_property
    def key_bytes(self) -> list[bytes]:
        """Key bytes, without the partition."""
        return self.layout.keys.encode_list([self.arrays[at] for at in self.layout.key_at])

    @cached_property
    def hashes(self) -> npt.NDArray[np.int64]:
        """Of the bucket key."""
        return self.layout.buckets.hash_batch([self.arrays[at] for at in self.layout.bucketed_at])

    def by_partition(self) -> Iterator[tuple[bytes, Indexes | None]]:
        """The partitions that keys are of, as bytes, and which keys; None for all of them."""
        codec = self.layout.partitions
        if codec is None:
            yield b"", None
            return
        encoded = pa.array(codec.encode_list([self.arrays[at] for at in self.layout.partition_at]), pa.binary())
        distinct = encoded.dictionary_encode()
        if len(distinct.dictionary) == 1:
            yield distinct.dictionary[0].as_py(), None
            return
        codes = distinct.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(distinct.dictionary) + 1))
        for number, values in enumerate(distinct.dictionary.to_pylist()):
            yield values, order[bounds[number] : bounds[number + 1]]


def chosen(keys: Sequence[KeyValues], indexes: Sequence[int]) -> Sequence[KeyValues]:
    """Some of the keys, in the form that they have."""
    if isinstance(keys, KeyColumns):
        return keys.taken(indexes)
    return [keys[index] for index in indexes]


def grouped(numbers: npt.NDArray[Any], count: int) -> Iterator[tuple[int, Indexes]]:
    """For each of the numbers below `count` that is there: where."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        yield number, order[bounds[number] : bounds[number + 1]]


def key_array(column: Column, array: pa.Array) -> pa.Array:
    """The array of a key column as its codecs take it. InvalidRequest for what the column can't hold."""
    name = column.name
    array = conform(array, column.type, name)
    if not column.type.nullable:
        row = first_null(array)
        if row is not None:
            raise InvalidRequest(f"key column {name} is null in row {row:,}", place=name, hint=NULL_HINT)
    excess = _excess(column, array)
    if excess is not None and (row := _first(excess)) is not None:
        raise InvalidRequest(
            f"a value of {name} in row {row:,} does not fit {column.type.sql_name()}",
            place=name,
            hint="a value is never cut or rounded",
        )
    return array


def _excess(column: Column, array: pa.Array) -> pa.Array | npt.NDArray[np.bool_] | None:
    """Which values have more characters, bytes or digits than the type says; None where the type sets no limit."""
    match column.type:
        case String(length=int(length)):
            return pc.greater(pc.utf8_length(array), length)
        case Binary(length=int(length)):
            return pc.greater(pc.binary_length(array), length)
        case Timestamp(precision=digits) | TimestampLtz(precision=digits) if digits < 6:
            return _valid(array) & (fixed_values(array, column.type) % 10 ** (6 - digits) != 0)
        case Time(precision=digits) if digits < 9:
            return _valid(array) & (fixed_values(array, column.type) % 10 ** (9 - digits) != 0)
    return None


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _first(mask: pa.Array | npt.NDArray[np.bool_]) -> int | None:
    if isinstance(mask, np.ndarray):
        return int(np.argmax(mask)) if mask.any() else None
    found = pc.index(mask, True).as_py()
    return None if found < 0 else int(found)


def prefixes_of(layout: KeyLayout, given: Mapping[str, pa.Array]) -> list[dict[str, Any]]:
    """The prefixes of a request, a row each: physical values by column."""
    check_prefix_columns(layout.schema, given)
    columns = [layout.schema.by_name[name] for name in given]
    if not columns:
        raise InvalidRequest("a prefix needs a column in Arrow", place="prefix", hint="all rows: page through JSON")
    codec = KeyCodec(columns)
    rows = codec.encode_list([key_array(column, given[column.name]) for column in columns])
    return [dict(zip(given, values, strict=True)) for values in starmap(codec.decode, zip(rows, strict=True))]
