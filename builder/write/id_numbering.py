"""Ids for the rows of one bucket of a dictionary table: those that lack one are numbered in key order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stelae.errors import CorruptData, InvalidRequest
from stelae.ownership.id_claims import FIRST_ID, IdRange
from stelae.schema.merge_rules import stored_columns
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa


class BucketIds:
    """Gives visible rows of a bucket that have no id those of its range, in order; checks that all are distinct."""

    def __init__(self, schema: TableSchema, ids: IdRange | None) -> None:
        names = [column.name for column in stored_columns(schema)]
        self.position = names.index(schema.options.auto_increment_fields[0])
        """Of the auto-increment column among the stored columns."""
        self.kept = 0
        self.minted = 0
        self._next, self._end = (FIRST_ID, FIRST_ID) if ids is None else (ids.first, ids.last + 1)
        self._given: list[np.ndarray] = []

    @property
    def last(self) -> int:
        return max((int(ids.max()) for ids in self._given), default=0)

    def numbered(self, column: pa.Array, hidden: np.ndarray) -> pa.Array:
        """The column with the ids that lacked. Hidden rows have none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lacking = column.is_null().to_numpy(zero_copy_only=False) & ~hidden
        count = int(lacking.sum())
        if self._next + count > self._end:
            raise _other_rows()
        ids = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        ids[lacking] = np.arange(self._next, self._next + count)
        self._next += count
        visible = ids[~hidden]
        self.minted += count
        self.kept += len(visible) - count
        if len(visible):
            self._given.append(visible)
        return pa.array(ids, column.type, mask=hidden)

    def check_complete(self) -> None:
        """All ids of the range are given, and no id is given to two rows."""
        if self._next != self._end:
            raise _other_rows()
        ids = np.concatenate(self._given) if self._given else np.zeros(0, np.int64)
        distinct, counts = np.unique(ids, return_counts=True)
        if len(distinct) != len(ids):
            raise CorruptData(
                f"id {int(distinct[counts > 1][0]):,} belongs to two rows of a bucket",
                hint="nothing was committed; run: stelae verify",
            )
        if len(distinct) and distinct[0] < FIRST_ID:
            raise CorruptData(f"a row has id {int(distinct[0])}; ids start at {FIRST_ID}")


def _other_rows() -> InvalidRequest:
    return InvalidRequest(
        "the input has other new keys than when they were counted",
        hint="Spark computed it twice, with different results: write it to files, or cache it, before it is built",
    )
