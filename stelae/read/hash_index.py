"""A hash index: the rows of one partition, mapped into memory, for batches of keys.

RocksDB finds a key in two to three microseconds, most of which is waiting for memory: filters, index blocks, data
blocks, one after the other, key by key. A hash index finds a thousand keys with a dozen calls of numpy and Arrow, each
of which asks the memory for a thousand things at once: a tenth of a microsecond a key.

It is made of the partition's tablets by whoever serves them, and is no part of a snapshot: a folder with

    keys            key bytes, end to end               key_offsets    where each begins; not if all have one width
    rows            row bytes, end to end               row_offsets    where each begins
    slots           u64 each:  | fingerprint u32 | number of the row + 1, u32 |        0: empty
    about.json      the form

    hash of a key:  | slot u32 | fingerprint u32 |      slot · count of slots / 2³²: where to look first, then the next

Rows are put into slots in the order of their hashes, so each is in its home slot or as soon behind it as there is room:
a running maximum gives all of them theirs. Half of the slots are empty. A key is looked for until its fingerprint is
found or an empty slot, and then compared whole: a hash is never trusted.

`stelae/spark/key_index.py` is a hash table in numpy, too, of another kind: it grows while it is asked, and has no file.
Here an entry is one word of a file that never changes, decided by one look; there keys claim slots as they are looked
for, two words each.

Scans, and keys of partitions without an index, are read from the tablets. What is written here comes out of blocks
whose checksums RocksDB has checked; it is read without checking it again.
"""

from __future__ import annotations

import json
import mmap
import shutil
import weakref
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

Words: TypeAlias = npt.NDArray[np.uint64]
Numbers: TypeAlias = npt.NDArray[np.int64]
KeysAndRows: TypeAlias = tuple[Sequence[bytes], Sequence[bytes]]
"""Aligned with each other."""

HASH_INDEX_FORMAT = 2
MAX_ROWS = 2**32 - 2
SLOTS_A_ROW = 2
MAX_ROUNDS = 64
"""Slots that are looked at for all keys at once; a key that is not decided then is followed by itself."""
WORD_WIDTHS: dict[int, np.dtype[Any]] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}
"""Widths of keys that are hashed as one number."""


class HashIndex:
    """An open index. Safe to read from several threads."""

    def __init__(self, directory: Path, *, owns_folder: bool = True) -> None:
        """Open what `build_hash_index` made, with all its pages in memory: half a second for a gigabyte, best spent by
        a thread of its own. `owns_folder`: it removes the folder at its end.
        """
        self.directory = directory
        about = json.loads((directory / "about.json").read_text())
        if about["format"] != HASH_INDEX_FORMAT:
            raise ValueError(f"a hash index of format {about['format']}")
        self.rows: int = about["rows"]
        self._width: int | None = about["width"]
        self._slots = np.frombuffer(_mapped(directory / "slots"), "<u8")
        self._home_slots = np.uint64(about["home_slots"])
        keys = _mapped(directory / "keys")
        offsets = None if self._width is not None else _mapped(directory / "key_offsets")
        self._keys = _Keys(keys, offsets, self._width, self.rows)
        buffers = [None, pa.py_buffer(_mapped(directory / "row_offsets")), pa.py_buffer(_mapped(directory / "rows"))]
        self._rows = pa.Array.from_buffers(pa.large_binary(), self.rows, buffers)
        self.bytes = sum(file.stat().st_size for file in directory.iterdir())
        if owns_folder:
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def rows_of(self, keys: Sequence[bytes]) -> pa.Array:
        """Row bytes of keys, aligned with them, hidden rows too: a BinaryArray, null where there is no row."""
        if not len(keys):
            return pa.array([], pa.binary())
        numbers = self._numbers(keys)
        absent = numbers < 0
        return self._rows.take(pa.array(numbers, mask=absent)).cast(pa.binary())

    def _numbers(self, keys: Sequence[bytes]) -> Numbers:
        """The numbers of the rows of keys; -1 for a key that has none."""
        asked = _Asked(keys, self._width)
        hashes = hash_keys(keys, asked.joined, self._width)
        at = ((hashes >> _32) * self._home_slots) >> _32
        wanted = hashes << _32
        entries = self._slots[at]
        # What is left of an entry with the fingerprint is the number of its row; of an empty slot, it is no number.
        found = entries ^ wanted
        is_found = (found - _1) < _MAX
        numbers = np.where(is_found, found, 0).astype(np.int64) - 1
        pending = np.flatnonzero(~is_found & (entries != 0))
        for _ in range(MAX_ROUNDS):
            if not len(pending):
                break
            at[pending] += _1
            entries = self._slots[at[pending]]
            found = entries ^ wanted[pending]
            is_found = (found - _1) < _MAX
            numbers[pending[is_found]] = found[is_found].astype(np.int64) - 1
            pending = pending[~is_found & (entries != 0)]
        candidates = np.flatnonzero(numbers >= 0)
        if len(candidates):
            whole = len(candidates) == len(numbers)
            other = ~self._keys.equal(
                numbers if whole else numbers[candidates], asked.taken(None if whole else candidates)
            )
            pending = np.concatenate([pending, candidates[other]])
        for index in pending.tolist():
            numbers[index] = self._number(keys[index], int(hashes[index]))
        return numbers

    def _number(self, key: bytes, hashed: int) -> int:
        """The same of one key, whose fingerprint others have."""
        at = ((hashed >> 32) * int(self._home_slots)) >> 32
        while entry := int(self._slots[at]):
            number = (entry & 0xFFFFFFFF) - 1
            if entry >> 32 == hashed & 0xFFFFFFFF and self._keys.at(number) == key:
                return number
            at += 1
        return -1


def needed_bytes(rows: int, key_and_row_bytes: int) -> int:
    """What the index of a partition takes on disk, about."""
    return key_and_row_bytes + rows * (16 + 8 * SLOTS_A_ROW)


def build_hash_index(chunks: Iterable[KeysAndRows], directory: Path, width: int | None) -> None:
    """Make an index in `directory`, which must not exist, of keys and rows. At least one row; no key comes twice.

    `width` is that of all keys, in bytes; None where they have several. Nothing is left of what fails.
    """
    directory.mkdir(parents=True)
    try:
        _build(chunks, directory, width)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _build(chunks: Iterable[KeysAndRows], directory: Path, width: int | None) -> None:
    hashes: list[Words] = []
    count = 0
    with (
        (directory / "keys").open("wb") as keys_file,
        (directory / "rows").open("wb") as rows_file,
        (directory / "key_offsets").open("wb") as key_offsets,
        (directory / "row_offsets").open("wb") as row_offsets,
    ):
        key_end, row_end = _first_offset(key_offsets), _first_offset(row_offsets)
        for keys, rows in chunks:
            joined = b"".join(keys)
            if width is not None and set(map(len, keys)) != {width}:
                raise ValueError(f"a key has not {width} bytes")
            hashes.append(hash_keys(keys, joined, width))
            count += len(keys)
            keys_file.write(joined)
            rows_file.write(b"".join(rows))
            key_end = _append_offsets(key_offsets, key_end, keys)
            row_end = _append_offsets(row_offsets, row_end, rows)
            if count > MAX_ROWS:
                raise ValueError(f"more than {MAX_ROWS:,} rows")
    if width is not None:
        (directory / "key_offsets").unlink()
    home_slots = SLOTS_A_ROW * count
    slots = _slots_of(np.concatenate(hashes), home_slots)
    with (directory / "slots").open("wb") as file:
        slots.tofile(file)
    about = {"format": HASH_INDEX_FORMAT, "rows": count, "width": width, "home_slots": home_slots}
    (directory / "about.json").write_text(json.dumps(about))


def _slots_of(hashes: Words, home_slots: int) -> Words:
    """The slots of rows with these hashes."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    wanted = (((hashes >> _32) * np.uint64(home_slots)) >> _32).astype(np.int64)
    steps = np.arange(len(wanted))
    at = np.maximum.accumulate(wanted - steps) + steps
    slots = np.zeros(max(home_slots, int(at[-1]) + 1) + 1, np.uint64)  # an empty one at the end
    slots[at] = (hashes << _32) | (order.astype(np.uint64) + _1)
    return slots


def hash_keys(keys: Sequence[bytes], joined: bytes, width: int | None) -> Words:
    """Hashes of keys; `joined` is all of them, end to end."""
    dtype = WORD_WIDTHS.get(width or 0)
    if dtype is None:
        return np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
    # The last step of MurmurHash3: every bit of a number counts for every bit of its hash.
    words: Words = np.frombuffer(joined, dtype).astype(np.uint64)
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xFF51AFD7ED558CCD)
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xC4CEB9FE1A85EC53)
    words ^= words >> np.uint64(33)
    return words


_1, _32, _MAX = np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)


class _Asked:
    """The keys of a lookup, to be compared."""

    def __init__(self, keys: Sequence[bytes], width: int | None) -> None:
        self.joined = b"".join(keys)
        self._values: Any = pa.array(keys, pa.large_binary()) if width is None else _as_cells(self.joined, width)

    def taken(self, indexes: npt.NDArray[np.intp] | None) -> Any:
        if indexes is None:
            return self._values
        return self._values[indexes] if isinstance(self._values, np.ndarray) else self._values.take(pa.array(indexes))


class _Keys:
    """Stored keys."""

    def __init__(self, data: Any, offsets: Any, width: int | None, rows: int) -> None:
        if width is None:
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            self._array = pa.Array.from_buffers(pa.large_binary(), rows, buffers)
        self._cells: Any = None if width is None else _as_cells(data, width)

    def equal(self, numbers: Numbers, asked: Any) -> npt.NDArray[np.bool_]:
        """Whether the keys with these numbers are those that were asked for."""
        same: npt.NDArray[np.bool_]
        if self._cells is None:
            same = pc.equal(self._array.take(pa.array(numbers)), asked).to_numpy(zero_copy_only=False)
            return same
        same = np.asarray(self._cells[numbers] == asked)
        return same if same.ndim == 1 else np.logical_and.reduce(same, axis=1)

    def at(self, number: int) -> bytes:
        cell = self._array[number].as_py() if self._cells is None else self._cells[number].tobytes()
        return bytes(cell)


def _as_cells(data: Any, width: int) -> npt.NDArray[Any]:
    """Keys of one width: numbers if there are some of that width, else rows of bytes."""
    dtype = WORD_WIDTHS.get(width)
    return np.frombuffer(data, dtype) if dtype else np.frombuffer(data, np.uint8).reshape(-1, width)


def _first_offset(file: IO[bytes]) -> int:
    file.write(bytes(8))
    return 0


def _append_offsets(file: IO[bytes], end: int, values: Sequence[bytes]) -> int:
    offsets = np.fromiter(accumulate(map(len, values), initial=end), np.int64, len(values) + 1)
    offsets[1:].tofile(file)
    return int(offsets[-1])


def _mapped(path: Path) -> Any:
    """A file, mapped into memory. An empty one can't be."""
    if path.stat().st_size == 0:
        return b""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # The first look at a page takes a microsecond, which lookups would take with the GIL held. numpy sums without it.
    np.frombuffer(mapped, np.uint8)[:: mmap.PAGESIZE].sum()
    return mapped
