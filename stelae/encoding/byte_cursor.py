"""Bytes of many rows: taking them apart from the front, and putting them together.

A batch of rows, keys or cells is `data[starts[i]:ends[i]]`, ascending, as in an Arrow BinaryArray. Nothing here loops
over rows: numpy copies pieces of one width, Arrow pieces of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import MAX_BATCH_BYTES, Bytes, NumpyValues, Offsets, from_variable, variable_values
from stelae.errors import CorruptData, TooLarge

Positions: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Cursor:
    """What is left of each row of a batch. Each take goes on from there; CorruptData when a row has no such bytes."""

    too_short = "it ends within its values"
    too_long = "bytes follow its values"

    def __init__(self, data: Bytes, starts: Positions, ends: Positions | Offsets) -> None:
        self._data, self._starts, self._ends = data, starts, ends

    @classmethod
    def of_rows(cls, rows: pa.Array) -> Cursor:
        """At the start of the rows of a BinaryArray without nulls."""
        offsets, data = variable_values(rows)
        return cls(data, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))

    @classmethod
    def of_cells(cls, offsets: Positions | Offsets, data: Bytes, valid: Mask | None) -> Cursor:
        """At the start of the cells that are not null."""
        bounds = offsets.astype(np.int64, copy=False)
        starts, ends = bounds[:-1], bounds[1:]
        return cls(data, starts, ends) if valid is None else cls(data, starts[valid], ends[valid])

    def check(self, good: Mask, reason: str) -> None:
        if not good.all():
            raise CorruptData(f"row bytes do not decode: {reason}, first at number {int(np.argmin(good))}")

    def take_records(self, dtype: np.dtype[Any]) -> NumpyValues:
        """The next `dtype.itemsize` bytes of each cell, as that."""
        starts = self._starts
        self.skip(np.int64(dtype.itemsize))
        return records_at(self._data, starts, dtype)

    def take(self, sizes: Positions) -> Bytes:
        """The next `sizes[i]` bytes of each cell, end to end."""
        starts = self._starts
        self.skip(sizes)
        total = int(sizes.sum())
        if total == 0:
            return np.zeros(0, np.uint8)
        if int(self._starts[-1] - starts[0]) == total:  # nothing between them
            return self._data[starts[0] : self._starts[-1]]
        return variable_values(self._pieces(starts, self._starts))[1][:total]

    def take_rest(self, sizes: Sequence[NumpyValues], wanted: Sequence[int]) -> tuple[Offsets, Bytes]:
        """All that is left: cells side by side, in row `i` of the sizes `sizes[0][i]`, `sizes[1][i]`, and so on.

        Gives offsets and bytes of the wanted ones: first of all rows the first, then of all rows the next.
        """
        count, rows = len(sizes), len(self._starts)
        bounds = np.empty((count + 1, rows), np.int64)
        bounds[0] = self._starts
        for i, size in enumerate(sizes):
            np.add(bounds[i], size, out=bounds[i + 1])
        self._starts = bounds[count]
        if not (self._starts == self._ends).all():
            self.check(self._starts <= self._ends, self.too_short)
            self.finish()
        if not rows or not wanted:
            return np.zeros(rows * len(wanted) + 1, np.int32), np.zeros(0, np.uint8)
        # The cells, and what is between the last cell of a row and the first of the next, are one Arrow array.
        offsets = np.zeros(rows * (count + 1) + 1, np.int32)
        offsets[1:].reshape(rows, count + 1)[:] = bounds.T
        return variable_values(
            from_variable(pa.binary(), offsets, self._data).take(_indexes(rows, count, tuple(wanted)))
        )

    def skip(self, sizes: Positions | np.int64) -> None:
        stops = self._starts + sizes
        self.check(stops <= self._ends, self.too_short)
        self._starts = stops

    def finish(self) -> None:
        """Nothing may be left."""
        self.check(self._starts == self._ends, self.too_long)

    def _pieces(self, starts: Positions, stops: Positions | Offsets) -> pa.Array:
        """`data[starts[i]:stops[i]]` of each row, a BinaryArray. They ascend, so they and the gaps between them are one
        Arrow array, of which Arrow takes the pieces.
        """
        rows = len(starts)
        if not rows:
            return pa.array([], pa.binary())
        bounds = np.stack([starts, stops], axis=1).reshape(-1)
        return from_variable(pa.binary(), bounds, self._data).take(pa.array(np.arange(0, 2 * rows - 1, 2)))


@lru_cache(4)
def _indexes(rows: int, count: int, wanted: tuple[int, ...]) -> pa.Array:
    """Where `take_rest` has the wanted cells among all pieces. Batches are of few sizes."""
    return pa.array(np.concatenate([np.arange(i + 1, rows * (count + 1), count + 1) for i in wanted]))


def records_at(data: Bytes, starts: npt.NDArray[Any], dtype: np.dtype[Any]) -> NumpyValues:
    """The records that start there; all of them must be within the data."""
    width = dtype.itemsize
    if not len(starts) or not width:
        return np.zeros(len(starts), dtype)
    # Every position where such bytes could start, and of these the ones where they do: one memcpy a row.
    anywhere: NumpyValues = np.ndarray(len(data) - width + 1, np.dtype((np.void, width)), data, strides=(1,))
    records: NumpyValues = anywhere[starts].view(dtype)
    return records


def join(pieces: Sequence[pa.Array]) -> pa.Array:
    """BinaryArrays of equal length, end to end row by row."""
    if len(pieces) == 1:
        return pieces[0]
    size = 0
    for piece in pieces:
        offsets, _ = variable_values(piece)
        size += int(offsets[-1]) - int(offsets[0])
    if size > MAX_BATCH_BYTES:
        raise TooLarge(f"the rows of a batch take {size} bytes", hint="send fewer rows at a time")
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def nulls_of(array: pa.Array) -> Mask:
    """True where a value is null."""
    bitmap = array.buffers()[0] if array.null_count else None
    if bitmap is None:
        mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
        return mask
    rows, first = len(array), array.offset
    valid = np.frombuffer(bitmap, np.uint8)[first // 8 : (first + rows + 7) // 8]
    return np.unpackbits(~valid, bitorder="little")[first % 8 : first % 8 + rows].view(np.bool_)


def bounds_of(lengths: npt.NDArray[Any]) -> Positions:
    """Where pieces of these lengths start and end when they stand end to end: one more than there are pieces."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
