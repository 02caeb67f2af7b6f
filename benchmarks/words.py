"""Words to number: generated, the same in every run, some of them asked for far more often than others.

words = make_words(1_000_000, seed=1)
stream = make_stream(len(words), repeats=9_000_000, seed=1)     # positions in words, each at least once
"""

from __future__ import annotations

import string

import numpy as np
import numpy.typing as npt

SHORTEST = 8
LONGEST = 16

Stream = npt.NDArray[np.int32]


def make_words(count: int, seed: int) -> list[str]:
    """Distinct words of 8 to 16 letters, in no order."""
    rng = np.random.default_rng(seed)
    # A few more, since two may come out the same.
    letters = rng.choice(np.frombuffer(string.ascii_lowercase.encode(), np.uint8), (count + count // 50 + 10, LONGEST))
    lengths = rng.integers(SHORTEST, LONGEST + 1, len(letters))
    letters[np.arange(LONGEST) >= lengths[:, None]] = 0
    words = np.unique(letters.view(f"S{LONGEST}").ravel())
    rng.shuffle(words)
    chosen: list[str] = words[:count].astype(str).tolist()
    return chosen


def make_stream(words: int, repeats: int, seed: int) -> Stream:
    """Positions of `words` words, each once and `repeats` more by Zipf's law (the n-th word 1/n as often as the
    first), shuffled.
    """
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, words + 1))
    repeated = np.searchsorted(shares, rng.random(repeats) * shares[-1])
    stream = np.concatenate([np.arange(words), repeated]).astype(np.int32)
    rng.shuffle(stream)
    return stream
