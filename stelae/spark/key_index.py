"""Which of the keys of a batch were seen before: a hash table in numpy, a hundred nanoseconds or less a key.

    entries, added = index.find_or_add(keys)

Every key has an entry, a number in the order in which keys were first seen; `entries` has one a row, and `added` the
rows of the batch that brought a new key, in the order of their entries. So a batch that holds a new key many times
adds it once, and whoever keeps answers in the order of `added` has the answer of a row at its entry.

    key bytes ──hash──► word, 64 bits ──► slot ──► the same word: found. Empty: claimed. Else: next

Open addressing, less than half full, all keys of a batch probed at once. Two kinds of keys:

* `WordIndex`: keys of at most eight bytes are the word themselves, mixed by steps that can be undone. Equal words are
  equal keys.
* `BytesIndex`: longer keys, and text, are hashed. A hash is never trusted: the bytes of each row are compared with
  those of its entry, and keys that differ although their hashes do not are told apart in a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from stelae.encoding.arrow import variable_values
from stelae.spark.append_column import AppendColumn

KeyWords: TypeAlias = npt.NDArray[np.uint64]
Entries: TypeAlias = npt.NDArray[np.int32]
Indices: TypeAlias = npt.NDArray[np.int64]

_EMPTY = -1
_FIRST_BITS = 12
_MOST_FILLED = 0.5

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio; any odd number can be multiplied by and undone."""
_ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)

LONG_BYTES = 256
"""Longer keys are hashed one by one: eight bytes of all keys at a time would not pay for a few long ones."""

_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


class WordIndex:
    """Keys of 64 bits."""

    def __init__(self) -> None:
        self.count = 0
        """Keys that have an entry."""
        self._bits = _FIRST_BITS
        self._words = np.zeros(1 << _FIRST_BITS, np.uint64)
        self._entries = np.full(1 << _FIRST_BITS, _EMPTY, np.int32)

    @property
    def nbytes(self) -> int:
        return int(self._words.nbytes + self._entries.nbytes)

    def find_or_add(self, keys: KeyWords) -> tuple[Entries, Indices]:
        """Entries of the keys, and the rows of those that were new."""
        words = mixed(keys)
        slots = self._slots(words)
        found = self._entries.take(slots)
        hit = self._words.take(slots) == words
        hit &= found >= 0
        rest = np.flatnonzero(~hit)
        if not len(rest):
            return found, rest
        if self.count + len(rest) > _MOST_FILLED * len(self._words):
            self._grow(self.count + len(rest))
            slots = self._slots(words)
        before = self.count
        added = self._probe(words[rest], slots[rest], rest, found)
        self.count = before + len(added)
        return found, added

    def _slots(self, words: KeyWords) -> Indices:
        """Where a word is looked for first: by its highest bits, which depend on all others."""
        slots: Indices = (words >> np.uint64(64 - self._bits)).view(np.int64)
        return slots

    def _probe(self, words: KeyWords, slots: Indices, rows: Indices, found: Entries) -> Indices:
        """Find or add each of some words, from a slot on; entries go to their rows of `found`. The rows that added."""
        last = len(self._words) - 1
        next_entry = self.count
        added = []
        while len(rows):
            entries = self._entries[slots]
            empty = np.flatnonzero(entries < 0)
            if len(empty):
                # All write, one of those that want the same slot stays; the others look at its word next.
                claimed = slots[empty]
                self._entries[claimed] = np.arange(len(empty), dtype=np.int32)
                stayed = np.flatnonzero(self._entries[claimed] == np.arange(len(empty), dtype=np.int32))
                won = claimed[stayed]
                self._entries[won] = np.arange(next_entry, next_entry + len(stayed), dtype=np.int32)
                self._words[won] = words[empty[stayed]]
                next_entry += len(stayed)
                added.append(rows[empty[stayed]])
                entries = self._entries[slots]
            same = self._words[slots] == words
            found[rows[same]] = entries[same]
            other = np.flatnonzero(~same)
            words, rows, slots = words[other], rows[other], (slots[other] + 1) & last
        return np.concatenate(added) if added else np.zeros(0, np.int64)

    def _grow(self, keys: int) -> None:
        """Room for so many keys."""
        filled = np.flatnonzero(self._entries >= 0)
        words, entries = self._words[filled], self._entries[filled]
        while keys > _MOST_FILLED * (1 << self._bits):
            self._bits += 1
        self._words = np.zeros(1 << self._bits, np.uint64)
        self._entries = np.full(1 << self._bits, _EMPTY, np.int32)
        last = len(self._words) - 1
        slots = self._slots(words)
        while len(words):  # All words differ, so whoever finds a slot taken goes on.
            free = np.flatnonzero(self._entries[slots] < 0)
            self._entries[slots[free]] = entries[free]
            left = np.ones(len(words), np.bool_)
            left[free] = self._entries[slots[free]] != entries[free]
            won = free[~left[free]]
            self._words[slots[won]] = words[won]
            other = np.flatnonzero(left)
            words, entries, slots = words[other], entries[other], (slots[other] + 1) & last

    def reserve_entry(self) -> int:
        """An entry for a key that is kept elsewhere."""
        self.count += 1
        return self.count - 1


class BytesIndex:
    """Keys of any bytes."""

    def __init__(self, hashes: Callable[[pa.Array], KeyWords] | None = None) -> None:
        self._hashes = hashes or hash_batch
        self._index = WordIndex()
        self._keys = AppendColumn(pa.binary())
        """The key of each entry."""
        self._colliding: dict[bytes, int] = {}
        """Entries of keys whose hash another key has."""

    @property
    def count(self) -> int:
        return self._index.count

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self._keys.nbytes

    @property
    def full(self) -> bool:
        return self._keys.full

    def find_or_add(self, keys: pa.Array) -> tuple[Entries, Indices]:
        """Entries of the keys, a BinaryArray without nulls, and the rows of those that were new."""
        entries, added = self._index.find_or_add(self._hashes(keys))
        if len(added):
            self._keys.append(keys.take(pa.array(added)))
        stored = self._keys.array().take(pa.array(entries))
        equal = pc.equal(stored, keys)
        if pc.all(equal).as_py() is not False:
            return entries, added
        return self._find_or_add_colliding(keys, entries, added, np.flatnonzero(~equal.to_numpy(zero_copy_only=False)))

    def _find_or_add_colliding(
        self, keys: pa.Array, entries: Entries, added: Indices, rows: Indices
    ) -> tuple[Entries, Indices]:
        """The same, for rows that found a key of equal hash that is not theirs."""
        more = []
        for row in rows.tolist():
            key = keys[row].as_py()
            entry = self._colliding.get(key)
            if entry is None:
                entry = self._colliding[key] = self._index.reserve_entry()
                self._keys.append(keys.slice(row, 1))
                more.append(row)
            entries[row] = entry
        return entries, np.concatenate([added, np.array(more, np.int64)])


def mixed(words: KeyWords) -> KeyWords:
    """Words whose highest bits depend on all bits; different ones stay different."""
    result = words >> _HALF
    result ^= words
    result *= _ODD
    return result


def hash_batch(keys: pa.Array) -> KeyWords:
    """A hash of 64 bits of each of the keys, a BinaryArray: eight bytes of all of them at a time."""
    offsets, data = variable_values(keys)
    lengths = np.diff(offsets).astype(np.int64)
    hashes = lengths.astype(np.uint64) * _ODD_2
    if not len(lengths):
        return hashes
    first, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - first + 8, np.uint8)
    padded[:-8] = data[first:end]
    # Eight bytes from every byte on: a view, of words that start anywhere.
    eights = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - first
    long = np.flatnonzero(lengths > LONG_BYTES)
    left = lengths.copy()
    left[long] = 0
    rows = np.flatnonzero(left > 0)
    whole = len(rows) == len(left)
    while len(rows):
        some_left = left if whole else left[rows]
        words = eights[starts if whole else starts[rows]] & _MASKS.take(np.minimum(some_left, 8))
        words ^= hashes if whole else hashes[rows]
        words *= _ODD
        words ^= words >> _HALF
        words *= _ODD_2
        if whole:
            hashes = words
        else:
            hashes[rows] = words
        left -= 8
        starts += 8
        rows = np.flatnonzero(left > 0) if whole else rows[left[rows] > 0]
        whole = whole and len(rows) == len(left)
    for row in long.tolist():
        hashes[row] = xxh64_intdigest(data[offsets[row] : offsets[row + 1]].tobytes())
    return hashes
