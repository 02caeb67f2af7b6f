"""Which keys are asked for: the distributions of YCSB (Cooper et al., Benchmarking Cloud Serving Systems with YCSB,
SoCC 2010), vectorised.

    uniform           every item as often as any other
    zipf_ranks        the first item most often, the n-th 1/n^0.99 as often
    scrambled_zipf    the same, with the popular items anywhere among all

Ranks are scattered by a FNV-1a hash, as YCSB does it. They are drawn from the sums of all shares: YCSB's formula spares
those, but asks for some of the first items a tenth too often.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ZIPF_THETA = 0.99
"""YCSB's."""

Items = npt.NDArray[np.int64]

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def uniform(items: int, count: int, seed: int) -> Items:
    """`count` draws of the items 0 to `items` - 1."""
    return np.random.default_rng(seed).integers(0, items, count)


def scrambled_zipf(items: int, count: int, seed: int, theta: float = ZIPF_THETA) -> Items:
    """`count` draws of the items 0 to `items` - 1. Few items share a place, and are asked for as one."""
    ranks = zipf_ranks(items, count, seed, theta)
    return (fnv_hash(ranks) % np.uint64(items)).astype(np.int64)


def zipf_ranks(items: int, count: int, seed: int, theta: float = ZIPF_THETA) -> Items:
    """`count` draws of the ranks 0 to `items` - 1. Takes memory for `items` numbers."""
    shares = np.cumsum(np.arange(1, items + 1, dtype=np.float64) ** -theta)
    drawn = np.random.default_rng(seed).random(count) * shares[-1]
    ranks: Items = np.searchsorted(shares, drawn, side="right").astype(np.int64)
    return ranks


def fnv_hash(values: Items) -> npt.NDArray[np.uint64]:
    """FNV-1a of the eight bytes of each value, the lowest first."""
    left = values.astype(np.uint64)
    hashed = np.full(len(left), _FNV_OFFSET)
    for _ in range(8):
        hashed = (hashed ^ (left & np.uint64(0xFF))) * _FNV_PRIME
        left >>= np.uint64(8)
    return hashed
