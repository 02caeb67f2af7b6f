"""Values of several types side by side: what a row is made of, and a ROW inside of it.

docs/format.md#rows is the contract; `stelae/encoding/plain_fields.py` and `stelae/encoding/nested_fields.py` have the
bytes of each type.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import NumpyValues, variable_values
from stelae.encoding.byte_cursor import Cursor, Mask
from stelae.encoding.plain_fields import FIELD_LENGTH, Cell, FixedCell


class Fields:
    """Values of several types side by side: the body of a row, and of a ROW.

        | head | fixed fields | length u32 of each variable field | variable bytes |

    `dtype` is numpy's view of all but the variable bytes, with the fields `0`, `1`, ... in it; `codes` is struct's view
    of the same, without the head.
    """

    def __init__(self, cells: Sequence[Cell], head: Sequence[tuple[str, np.dtype[Any]]]) -> None:
        self.cells = cells
        self.fixed = [(i, cell) for i, cell in enumerate(self.cells) if isinstance(cell, FixedCell)]
        self.variable = [(i, cell) for i, cell in enumerate(self.cells) if not isinstance(cell, FixedCell)]
        self._words = [(i, cell.to_word, cell.zero) for i, cell in self.fixed]
        self._dumps = [(i, cell.dump) for i, cell in self.variable]
        self.codes = "".join(cell.code for _, cell in self.fixed) + "I" * len(self.variable)
        self.dtype = np.dtype(
            [
                *head,
                *((str(i), cell.dtype) for i, cell in self.fixed),
                *((str(i), FIELD_LENGTH) for i, _ in self.variable),
            ]
        )

    def dump(self, values: Sequence[Any]) -> tuple[list[Any], list[bytes]]:
        """What struct packs by `codes`, and the variable cells."""
        words: list[Any] = []
        for i, to_word, zero in self._words:
            value = values[i]
            if value is None:
                words.append(zero)
            else:
                words.append(value if to_word is None else to_word(value))
        cells = [b"" if values[i] is None else dump(values[i]) for i, dump in self._dumps]
        return [*words, *map(len, cells)], cells

    def load(self, words: Sequence[Any], valid: Sequence[int], row: bytes, start: int) -> tuple[list[Any], int]:
        """The values, and where they end in `row`; the variable ones start at `start`. `valid` is 0 for a null."""
        values: list[Any] = [None] * len(self.cells)
        for (i, fixed), word in zip(self.fixed, words, strict=False):
            if valid[i]:
                values[i] = word if fixed.from_word is None else fixed.from_word(word)
        for (i, cell), length in zip(self.variable, words[len(self.fixed) :], strict=True):
            end = start + length
            if valid[i]:
                values[i] = cell.load(row[start:end])
            start = end
        return values, start

    def encode(self, records: NumpyValues, arrays: Sequence[pa.Array], places: Sequence[str]) -> list[pa.Array]:
        """Fill in the records; the variable cells that follow them, a BinaryArray a field."""
        for i, fixed in self.fixed:
            records[str(i)] = fixed.encode(arrays[i])
        pieces = []
        for i, cell in self.variable:
            piece = cell.encode(arrays[i], places[i])
            records[str(i)] = np.diff(variable_values(piece)[0])
            pieces.append(piece)
        return pieces

    def decode(
        self,
        records: NumpyValues,
        cursor: Cursor,
        valid: Sequence[Mask | None],
        wanted: Container[int] | None = None,
    ) -> list[pa.Array]:
        """The arrays of the records and of the bytes at the cursor; None for a field that is not wanted."""
        arrays: list[pa.Array] = [None] * len(self.cells)
        for i, fixed in self.fixed:
            if wanted is None or i in wanted:
                arrays[i] = fixed.decode(records[str(i)], valid[i])
        chosen = [k for k, (i, _) in enumerate(self.variable) if wanted is None or i in wanted]
        offsets, data = cursor.take_rest([records[str(i)] for i, _ in self.variable], chosen)
        rows = len(records)
        for number, k in enumerate(chosen):
            i, cell = self.variable[k]
            arrays[i] = cell.decode(offsets[number * rows : (number + 1) * rows + 1], data, valid[i])
        return arrays
