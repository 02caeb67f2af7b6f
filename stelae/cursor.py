"""Bytes of many rows: taking them apart from the front, and putting them together.

A batch of rows or cells is `data[starts[i]:ends[i]]`, ascending, as in an Arrow BinaryArray. Nothing here loops over
rows: numpy copies pieces of one width, Arrow pieces of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stelae.arrow import MAX_BATCH_BYTES, Bytes, Values, from_variable, variable_values
from stelae.errors import CorruptData, TooLarge

Positions: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Cursor:
    """What is left of each row of a batch. Each take goes on from there; CorruptData when a row has no such bytes."""

    def __init__(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        self._data, self._starts, self._ends = data, starts, ends

    @classmethod
    def of_rows(cls, rows: pa.Array) -> Cursor:
        """At the start of the rows of a BinaryArray without nulls."""
        offsets, data = variable_values(rows)
        return cls(data, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))

    @classmethod
    def of_cells(cls, offsets: Positions, data: Bytes, valid: Mask | None) -> Cursor:
        """At the start of the cells that are not null."""
        starts, ends = offsets[:-1], offsets[1:]
        return cls(data, starts, ends) if valid is None else cls(data, starts[valid], ends[valid])

    def check(self, good: Mask, reason: str) -> None:
        if not good.all():
            raise CorruptData(f"row bytes do not decode: {reason}, first at number {int(np.argmin(good))}")

    def take_records(self, dtype: np.dtype[Any]) -> Values:
        """The next `dtype.itemsize` bytes of each cell, as that."""
        width, starts = dtype.itemsize, self._starts
        self.skip(np.int64(width))
        if not len(starts) or not width:
            return np.zeros(len(starts), dtype)
        # Every position where such bytes could start, and of these the ones where they do: one memcpy a row.
        anywhere: Values = np.ndarray(len(self._data) - width + 1, np.dtype((np.void, width)), self._data, strides=(1,))
        return anywhere[starts].view(dtype)

    def take(self, sizes: Positions) -> Bytes:
        """The next `sizes[i]` bytes of each cell, end to end."""
        starts = self._starts
        self.skip(sizes)
        rows = len(starts)
        total = int(sizes.sum())
        if total == 0:
            return np.zeros(0, np.uint8)
        if int(self._starts[-1] - starts[0]) == total:  # nothing between them
            return self._data[starts[0] : self._starts[-1]]
        # Pieces and the gaps between them are one Arrow array, of which Arrow takes the pieces.
        offsets = np.stack([starts, self._starts], axis=1).reshape(-1)
        pieces = from_variable(pa.binary(), offsets, self._data).take(pa.array(np.arange(0, 2 * rows - 1, 2)))
        return variable_values(pieces)[1][:total]

    def skip(self, sizes: Positions | np.int64) -> None:
        stops = self._starts + sizes
        self.check(stops <= self._ends, "it ends within its values")
        self._starts = stops

    def finish(self) -> None:
        """Nothing may be left."""
        self.check(self._starts == self._ends, "bytes follow its values")


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
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def bounds_of(lengths: npt.NDArray[Any]) -> Positions:
    """Where pieces of these lengths start and end when they stand end to end: one more than there are pieces."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
