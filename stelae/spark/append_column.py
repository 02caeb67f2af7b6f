"""Arrow columns that grow: rows are appended at the end, and all of them are one array at any time, without a copy.

    rows = AppendColumn(pa.string())
    rows.append(array)                     copies the new rows behind the others, into room that is doubled when full
    rows.array().take(indices)             as fast as from any array

Arrow's own arrays never change, and taking from many small ones is slow. Here the buffers lie in numpy arrays, and
`array()` is a view of what is filled; older views stay right, since what they show is not written again.

Numbers, dates, times, booleans, text and bytes grow in place. Of nested columns the pieces are kept and joined when
somebody looks: right, but slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_VARIABLE_BYTES = 2**31 - 2**27
"""Bytes of one text column: Arrow's offsets have 32 bits. A column that is nearly full says so by `full`."""

_FIRST_ROWS = 1024


class _Buffer:
    """A numpy array with room at its end."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.data: npt.NDArray[Any] = np.zeros(_FIRST_ROWS, dtype)
        self.length = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        end = self.length + len(values)
        if end > len(self.data):
            room = np.zeros(max(end, 2 * len(self.data)), self.data.dtype)
            room[: self.length] = self.data[: self.length]
            self.data = room
        self.data[self.length : end] = values
        self.length = end

    def filled(self) -> pa.Buffer:
        return pa.py_buffer(self.data[: self.length])


class AppendBits:
    """Bits, eight a byte, as Arrow has them: which rows are valid, or the values of a boolean column."""

    def __init__(self) -> None:
        self._bytes = _Buffer(np.uint8)
        self.length = 0

    def append(self, bits: npt.NDArray[np.bool_]) -> None:
        over = self.length % 8
        rows = len(bits)
        if over:  # The last byte is not full: its bits are written again, as they are, with new ones behind them.
            self._bytes.length -= 1
            last = self._bytes.data[self._bytes.length : self._bytes.length + 1]
            bits = np.concatenate([np.unpackbits(last, bitorder="little")[:over].astype(np.bool_), bits])
        self._bytes.append(np.packbits(bits, bitorder="little"))
        self.length += rows

    def filled(self) -> pa.Buffer:
        return self._bytes.filled()

    def array(self) -> pa.Array:
        """The bits as a boolean array."""
        return pa.Array.from_buffers(pa.bool_(), self.length, [None, self.filled()])

    @property
    def nbytes(self) -> int:
        return int(self._bytes.data.nbytes)


class AppendColumn:
    """One column; see the head of the module."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self.length = 0
        self._valid = AppendBits()
        self._has_nulls = False
        self._pieces: list[pa.Array] = []
        self._bits: AppendBits | None = None
        self._values: _Buffer | None = None
        self._offsets: _Buffer | None = None
        types = pa.types
        if types.is_boolean(arrow):
            self._bits = AppendBits()
        elif types.is_string(arrow) or types.is_binary(arrow):
            self._values, self._offsets = _Buffer(np.uint8), _Buffer(np.int32)
            self._offsets.append(np.zeros(1, np.int32))
        elif types.is_primitive(arrow) or types.is_decimal(arrow):
            self._values = _Buffer(np.dtype((np.void, arrow.bit_width // 8)))

    def append(self, array: pa.Array) -> None:
        """Put the rows of an array of this column's type behind the others."""
        if not array.type.equals(self.type):
            array = array.cast(self.type)
        rows, first = len(array), array.offset
        if not rows:
            return
        self.length += rows
        if self._bits is not None:
            self._bits.append(bools(array.fill_null(False)))
        elif self._values is None:
            self._pieces.append(array)
            return
        elif self._offsets is not None:
            _, offset_bytes, data = array.buffers()
            offsets = np.frombuffer(offset_bytes, np.int32)[first : first + rows + 1]
            start, end = int(offsets[0]), int(offsets[-1])
            self._offsets.append(offsets[1:] + (self._values.length - start))
            if end > start:
                self._values.append(np.frombuffer(data, np.uint8)[start:end])
        else:
            width = self._values.data.dtype.itemsize
            data = np.frombuffer(array.buffers()[1], np.uint8)[width * first : width * (first + rows)]
            self._values.append(data.view(self._values.data.dtype))
        self._has_nulls |= array.null_count > 0
        self._valid.append(bools(array.is_valid()) if array.null_count else np.ones(rows, np.bool_))

    def array(self) -> pa.Array:
        """All rows. Valid as long as anybody holds it."""
        if self._values is None and self._bits is None:
            if len(self._pieces) != 1:
                self._pieces = [pa.concat_arrays(self._pieces) if self._pieces else pa.array([], self.type)]
            return self._pieces[0]
        valid = self._valid.filled() if self._has_nulls else None
        if self._bits is not None:
            return pa.Array.from_buffers(self.type, self.length, [valid, self._bits.filled()])
        if self._values is None:
            raise TypeError(self.type)
        data = self._values.filled()
        buffers = [valid, data] if self._offsets is None else [valid, self._offsets.filled(), data]
        return pa.Array.from_buffers(self.type, self.length, buffers)

    @property
    def nbytes(self) -> int:
        """Memory that the column takes, its room to grow included."""
        parts = [buffer.data.nbytes for buffer in (self._values, self._offsets) if buffer is not None]
        bits = self._bits.nbytes if self._bits is not None else 0
        return int(sum(parts) + bits + self._valid.nbytes + sum(piece.nbytes for piece in self._pieces))

    @property
    def full(self) -> bool:
        """Whether the column can't be sure to hold another batch."""
        return self._offsets is not None and self._values is not None and self._values.length > MAX_VARIABLE_BYTES


def bools(array: pa.Array) -> npt.NDArray[np.bool_]:
    """A boolean array without nulls, in numpy."""
    values: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return values
