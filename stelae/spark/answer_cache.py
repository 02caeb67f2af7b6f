"""Keys and their rows in a Python worker: what a lookup remembers, from batch to batch and from task to task.

    keys of a batch ──CachedKeys──► words or bytes ──index──► entries    a number for each key, in order of appearance
    answers, in the same order ──► columns that grow                     the row of a key is at its entry
    rows of the batch = columns.take(entries)

A key that has no row is remembered as well. A `Generation` only grows; when it is too large it is left to the batches
that still need it, and an empty one takes its place. Workers live longer than tasks, so the last generation of a lookup
waits in this module for the next task of it: `take_kept` takes it out, since the lookups of a worker may run at once,
and `keep` puts it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import MAX_LONG_DIGITS, conform, fixed_values
from stelae.encoding.keys import KeyCodec
from stelae.schema import types as t
from stelae.spark.append_column import AppendBits, AppendColumn
from stelae.spark.key_index import BytesIndex, Entries, Indices, WordIndex

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

NO_KEY = -1
"""In place of an entry: the row has a null where a key can't have one."""


class CachedKeys:
    """Batches of the key columns as the table has them, and what the index looks for."""

    def __init__(self, columns: Sequence[Column], *, refuse_too_wide: bool) -> None:
        """`refuse_too_wide`: an integer out of the range of its column is an error. Else it is a key without a row."""
        self._columns = columns
        self._refuse_too_wide = refuse_too_wide
        self._codec = KeyCodec(columns)
        self.names = [column.name for column in columns]
        self.is_word = len(columns) == 1 and not columns[0].type.nullable and _fits_word(columns[0].type)

    def new_index(self) -> WordIndex | BytesIndex:
        return WordIndex() if self.is_word else BytesIndex()

    def of(self, arrays: Sequence[pa.Array]) -> tuple[list[pa.Array], npt.NDArray[np.bool_] | None]:
        """The columns in the table's types, with only the rows that can have a key; and which these are, if not all."""
        conformed = [self._conformed(array, column) for array, column in zip(arrays, self._columns, strict=True)]
        valid: npt.NDArray[np.bool_] | None = None
        for array, column in zip(conformed, self._columns, strict=True):
            if array.null_count and not column.type.nullable:
                present = array.is_valid().to_numpy(zero_copy_only=False)
                valid = present if valid is None else valid & present
        if valid is not None:
            mask = pa.array(valid)
            conformed = [array.filter(mask) for array in conformed]
        return conformed, valid

    def find_or_add(self, index: WordIndex | BytesIndex, arrays: Sequence[pa.Array]) -> tuple[Entries, Indices]:
        """Entries of the rows that `of` gave, and which of the rows are new keys."""
        if isinstance(index, BytesIndex):
            return index.find_or_add(self._codec.encode_batch(arrays))
        values = fixed_values(arrays[0], self._columns[0].type)
        if values.dtype.kind == "f":
            values = values.view(f"<u{values.dtype.itemsize}")
        return index.find_or_add(values.astype(np.uint64, copy=False))

    def _conformed(self, array: pa.Array, column: Column) -> pa.Array:
        if isinstance(column.type, t.INTEGERS) and pa.types.is_integer(array.type) and not self._refuse_too_wide:
            bound = 1 << (column.type.bits - 1)
            if array.type.bit_width > column.type.bits:
                fits = pc.and_(pc.greater_equal(array, -bound), pc.less(array, bound))
                if pc.all(fits).as_py() is False:
                    array = pc.if_else(fits, array, pa.scalar(None, array.type))
        return conform(array, column.type, column.name)


class Generation:
    """Keys, and the rows of those that were answered."""

    def __init__(self, index: WordIndex | BytesIndex, types: Sequence[pa.DataType]) -> None:
        self.index = index
        self.columns = [AppendColumn(each) for each in types]
        self.found = AppendBits()
        self._all_found = True

    @property
    def answered(self) -> int:
        """Entries below this number have their rows."""
        return self.found.length

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + sum(column.nbytes for column in self.columns)

    @property
    def full(self) -> bool:
        """Whether a column can't be sure to hold more, whatever memory there is."""
        keys_full = isinstance(self.index, BytesIndex) and self.index.full
        return keys_full or any(column.full for column in self.columns)

    def add(self, columns: Sequence[pa.Array], found: npt.NDArray[np.bool_]) -> None:
        """The answers for the next entries."""
        for column, array in zip(self.columns, columns, strict=True):
            column.append(array)
        self.found.append(found)
        self._all_found &= bool(found.all())

    def rows(self, entries: Entries) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        """The columns of the rows of some entries, and which of these have a row. All of them are answered."""
        no_key = entries < 0
        indices = pa.array(entries, mask=no_key) if no_key.any() else pa.array(entries)
        if self._all_found:
            found = ~no_key
        else:
            found = pc.fill_null(self.found.array().take(indices), False).to_numpy(zero_copy_only=False)
        return [column.array().take(indices) for column in self.columns], found


_kept: dict[Any, Generation] = {}
"""Generations that wait for the next task, by lookup; the one that was used last is last."""


def take_kept(lookup: Any) -> Generation | None:
    """The generation that an earlier task of this lookup left; nobody else has it now."""
    return _kept.pop(lookup, None)


def keep(lookup: Any, generation: Generation, limit_bytes: int) -> None:
    """Leave a generation to the next task; what was used longest ago goes, until all that wait fit the limit."""
    _kept[lookup] = generation
    while sum(each.nbytes for each in _kept.values()) > limit_bytes:
        del _kept[next(iter(_kept))]


def _fits_word(data_type: t.DataType) -> bool:
    if isinstance(data_type, t.Decimal):
        return data_type.precision <= MAX_LONG_DIGITS
    return not isinstance(data_type, t.String | t.Binary)
