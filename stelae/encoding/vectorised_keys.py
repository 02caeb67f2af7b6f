"""Keys of a batch: Arrow columns to key bytes and back by numpy and Arrow kernels, without a loop over rows.

Adjacent columns of fixed width are one numpy record a row (`FixedRun`); a column of text is a piece of its own
(`TextRun`). Pieces are joined row by row, and taken off the start of the keys in the same order (`KeyCursor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import (
    MAX_BATCH_BYTES,
    Bytes,
    NumpyValues,
    Offsets,
    arrow_type,
    fixed_values,
    from_fixed,
    from_variable,
    variable_values,
)
from stelae.encoding.byte_cursor import Cursor, Mask, Positions
from stelae.encoding.key_columns import (
    ESCAPED_ZERO,
    TERMINATOR,
    WRONG_NULL,
    WRONG_PRESENCE,
    FixedPart,
    Part,
    TextPart,
    corrupt_key,
)
from stelae.errors import CorruptData, TooLarge


class KeyCursor(Cursor):
    """What is left of each key of a batch. Errors show the whole key."""

    too_short = "it ends within a column"
    too_long = "bytes follow the last column"

    def __init__(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        super().__init__(data, starts, ends)
        self._first = starts

    def check(self, good: Mask, reason: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            raise corrupt_key(self._data[self._first[row] : self._ends[row]].tobytes(), reason, row)

    @cached_property
    def terminators(self) -> Positions:
        """Where 00 01 stands in `data`, and its end."""
        found = np.flatnonzero((self._data[:-1] == TERMINATOR[0]) & (self._data[1:] == TERMINATOR[1]))
        return np.append(found, len(self._data))

    def take_escaped(self) -> pa.Array:
        """The next bytes of each key up to its terminator, still escaped."""
        # In escaped bytes FF follows 00, so the first 00 01 is the terminator; those in other columns do no harm.
        stops = self.terminators[np.searchsorted(self.terminators, self._starts)]
        self.check(stops + len(TERMINATOR) <= self._ends, "a terminator is missing")
        taken = self._pieces(self._starts, stops)
        self._starts = stops + len(TERMINATOR)
        return taken

    def take_all(self) -> pa.Array:
        """All that is left of each key."""
        stops = self._ends.astype(np.int64, copy=False)
        taken = self._pieces(self._starts, stops)
        self._starts = stops
        return taken


class TextRun:
    """A column of text or bytes."""

    def __init__(self, part: TextPart) -> None:
        self.part = part

    def pieces(self, arrays: Sequence[pa.Array]) -> list[pa.Array | pa.Scalar]:
        """What the column adds to the keys: BinaryArrays, and scalars that are the same in all rows."""
        array = arrays[0].cast(pa.binary())
        presence = []
        if self.part.nullable:
            presence = [fixed_binary(_valid(array).view(np.uint8))]
            array = array.fill_null(b"")
        if self.part.last:
            return [*presence, array]
        return [*presence, _escape(array), pa.scalar(TERMINATOR, pa.binary())]

    def take(self, cursor: KeyCursor) -> list[pa.Array]:
        """The column, off the start of what is left of the keys. CorruptData if they do not decode."""
        presence = cursor.take_records(np.dtype("u1")) if self.part.nullable else None
        taken = cursor.take_all() if self.part.last else _unescape(cursor.take_escaped())
        if presence is not None:
            cursor.check(presence <= 1, WRONG_PRESENCE)
            offsets, _ = variable_values(taken)
            cursor.check((presence == 1) | (np.diff(offsets) == 0), WRONG_NULL)
            if not presence.all():
                taken = pc.if_else(pa.array(presence == 1), taken, pa.scalar(None, pa.binary()))
        try:
            return [taken.cast(arrow_type(self.part.type))]
        except pa.ArrowInvalid as exc:
            raise CorruptData(f"keys do not decode: {exc}") from exc


class FixedRun:
    """Adjacent columns of fixed width: one numpy record a row."""

    def __init__(self, parts: Sequence[FixedPart]) -> None:
        self.parts = {str(i): part for i, part in enumerate(parts)}
        fields: list[tuple[str, np.dtype[Any]]] = []
        for name, part in self.parts.items():
            if part.nullable:
                fields.append((_presence_of(name), np.dtype("u1")))
            fields.append((name, part.dtype))
        self.dtype = np.dtype(fields)
        self.width = self.dtype.itemsize

    def pack(self, arrays: Sequence[pa.Array]) -> NumpyValues:
        """One void of `width` bytes a row."""
        records = np.empty(len(arrays[0]), self.dtype)
        for (name, part), array in zip(self.parts.items(), arrays, strict=True):
            records[name] = part.to_words(fixed_values(array, part.type))
            if part.nullable:
                valid = _valid(array)
                records[_presence_of(name)] = valid
                records[name][~valid] = 0
        return records.view(np.dtype((np.void, self.width)))

    def unpack(self, records: NumpyValues) -> list[pa.Array]:
        """The columns of records of `dtype`. CorruptData where presence bytes are wrong."""
        return [
            from_fixed(part.type, part.from_words(records[name]), self._valid(records, name) if part.nullable else None)
            for name, part in self.parts.items()
        ]

    def _valid(self, records: NumpyValues, name: str) -> Mask:
        """Where a nullable column has a value, as its presence bytes say."""
        presence, words = records[_presence_of(name)], records[name]
        is_zero = (words == 0).reshape(len(words), -1).all(axis=1) if len(words) else presence == 0
        for good, reason in ((presence <= 1, WRONG_PRESENCE), ((presence == 1) | is_zero, WRONG_NULL)):
            if not good.all():
                row = int(np.argmin(good))
                raise corrupt_key(records[row].tobytes(), reason, row)
        valid: Mask = presence == 1
        return valid

    def only(self, offsets: Offsets, data: Bytes) -> NumpyValues:
        """Keys that are records and nothing else."""
        wrong = np.diff(offsets) != self.width
        if wrong.any():
            row = int(np.argmax(wrong))
            key = data[offsets[row] : offsets[row + 1]].tobytes()
            raise corrupt_key(key, f"it has {len(key)} bytes, not {self.width}", row)
        records: NumpyValues = data[offsets[0] : offsets[-1]].view(self.dtype)
        return records

    def pieces(self, arrays: Sequence[pa.Array]) -> list[pa.Array | pa.Scalar]:
        return [fixed_binary(self.pack(arrays))]

    def take(self, cursor: KeyCursor) -> list[pa.Array]:
        return self.unpack(cursor.take_records(self.dtype))


Run: TypeAlias = FixedRun | TextRun


def runs_of(parts: Sequence[Part]) -> list[tuple[slice, Run]]:
    """The parts with the columns that they cover, adjacent fixed ones as one record."""
    runs: list[tuple[slice, Run]] = []
    fixed: list[FixedPart] = []
    for i, part in enumerate(parts):
        if isinstance(part, FixedPart):
            fixed.append(part)
            if i + 1 < len(parts) and isinstance(parts[i + 1], FixedPart):
                continue
            runs.append((slice(i + 1 - len(fixed), i + 1), FixedRun(fixed)))
            fixed = []
        else:
            runs.append((slice(i, i + 1), TextRun(part)))
    return runs


def _presence_of(name: str) -> str:
    """The field of a record that holds the presence byte of another."""
    return f"{name} is present"


def fixed_binary(records: NumpyValues) -> pa.Array:
    """BinaryArray of records, without a copy."""
    rows, width = len(records), records.dtype.itemsize
    return from_variable(pa.binary(), np.arange(rows + 1, dtype=np.int64) * width, records.view(np.uint8))


def joined(pieces: list[pa.Array | pa.Scalar]) -> pa.Array:
    """The pieces end to end, row by row. TooLarge where they are more than a BinaryArray holds."""
    if len(pieces) == 1:
        return pieces[0]
    size = sum(_byte_size(piece) for piece in pieces if isinstance(piece, pa.Array))
    rows = max(len(piece) for piece in pieces if isinstance(piece, pa.Array))
    if size + rows * len(pieces) * len(TERMINATOR) > MAX_BATCH_BYTES:
        raise TooLarge(f"the keys of a batch take {size} bytes", hint="send fewer rows at a time")
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def _valid(array: pa.Array) -> Mask:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _byte_size(array: pa.Array) -> int:
    offsets, _ = variable_values(array)
    return int(offsets[-1]) - int(offsets[0])


def _escape(array: pa.Array) -> pa.Array:
    """Each 00 becomes 00 FF. Mostly there is none, and nothing is copied."""
    offsets, data = variable_values(array)
    used = data[offsets[0] : offsets[-1]]
    if used.size == 0 or used.min() != 0:
        return array.cast(pa.binary())
    zeros = np.flatnonzero(used == 0)
    starts = offsets.astype(np.int64) - offsets[0]
    return from_variable(pa.binary(), starts + np.searchsorted(zeros, starts), np.insert(used, zeros + 1, 0xFF))


def _unescape(array: pa.Array) -> pa.Array:
    offsets, data = variable_values(array)
    used = data[offsets[0] : offsets[-1]]
    if used.size == 0 or used.min() != 0:
        return array
    starts = offsets.astype(np.int64) - offsets[0]
    zeros = np.flatnonzero(used == 0)
    # The FF must belong to the same row: no row may start right after a 00.
    bad = np.append(used, 0)[zeros + 1] != ESCAPED_ZERO[1]
    bad |= np.isin(zeros + 1, starts)
    if bad.any():
        row = int(np.searchsorted(starts, zeros[np.argmax(bad)], side="right")) - 1
        raise corrupt_key(used[starts[row] : starts[row + 1]].tobytes(), "00 is not followed by FF", row)
    return from_variable(pa.binary(), starts - np.searchsorted(zeros, starts), np.delete(used, zeros + 1))
