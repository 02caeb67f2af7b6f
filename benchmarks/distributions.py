"""Which keys are asked for: the distributions of YCSB (Cooper et al., Benchmarking Cloud Serving Systems with YCSB,
SoCC 2010), vectorised.

    uniform           every item as often as any other
    zipf_ranks        the first item most often, the n-th 1/n^0.99 as often
    scrambled_zipf    the same, with the popular items anywhere among all

As in YCSB, ranks come from the formula of Gray et al. (Quickly Generating Billion-Record Synthetic Databases, SIGMOD
1994), which is exact for the first two and close for all others, and are scattered by a FNV-1a hash.
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
    """`count` draws of the ranks 0 to `items` - 1."""
    zeta = zeta_sum(items, theta)
    alpha = 1 / (1 - theta)
    eta = (1 - (2 / items) ** (1 - theta)) / (1 - (1 + 0.5**theta) / zeta)
    drawn = np.random.default_rng(seed).random(count)
    ranks: Items = (items * (eta * drawn - eta + 1) ** alpha).astype(np.int64)
    scaled = drawn * zeta
    ranks[scaled < 1 + 0.5**theta] = 1
    ranks[scaled < 1] = 0
    ranks[ranks >= items] = items - 1
    return ranks


def zeta_sum(items: int, theta: float) -> float:
    """1/1^theta + 1/2^theta + ... + 1/items^theta."""
    return float((np.arange(1, items + 1, dtype=np.float64) ** -theta).sum())


def fnv_hash(values: Items) -> npt.NDArray[np.uint64]:
    """FNV-1a of the eight bytes of each value, the lowest first."""
    left = values.astype(np.uint64)
    hashed = np.full(len(left), _FNV_OFFSET)
    for _ in range(8):
        hashed = (hashed ^ (left & np.uint64(0xFF))) * _FNV_PRIME
        left >>= np.uint64(8)
    return hashed
