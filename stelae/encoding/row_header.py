"""The first bytes of every row, whatever its schema: which schema it was written with, and whether it is a tombstone.

docs/format.md#rows is the contract; `stelae/encoding/rows.py` has what follows.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from stelae.encoding.arrow import NumpyValues, conform
from stelae.encoding.byte_cursor import Cursor, Mask, nulls_of
from stelae.schema.types import Binary

SCHEMA_ID = struct.Struct("<H")  # On disk. Never change.
HIDDEN_FLAG = 0x01  # On disk. Never renumber.
"""Flag of a tombstone: stored for later merges, never shown."""
ROW_HEADER: list[tuple[str, np.dtype[Any]]] = [
    ("schema_id", np.dtype("<u2")),
    ("flags", np.dtype("u1")),
]  # On disk. Never change.
FLAGS_AT = 2
NULLS_AT = 3


def row_headers(rows: pa.Array) -> NumpyValues:
    """Records of ROW_HEADER of rows without nulls. CorruptData for a row that is shorter."""
    return Cursor.of_rows(rows).take_records(np.dtype(ROW_HEADER))


def hidden_mask(rows: pa.Array) -> Mask:
    """True for every row (of any schema id) that is a tombstone; a row that is null is none."""
    present: Mask = np.ones(len(rows), np.bool_) if not rows.null_count else ~nulls_of(rows)
    mask = np.zeros(len(rows), np.bool_)
    mask[present] = row_headers(conform(rows, Binary(), "row").drop_null())["flags"] & HIDDEN_FLAG != 0
    return mask
