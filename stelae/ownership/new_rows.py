"""What insert-if-not-exists puts into a table: rows that have their key, an id if the table mints ids, and nulls.

    check_takes_inserts   which tables can take it
    NewRows               row bytes of new keys, one template for all
    GrantedIds            ids that may be handed out, from claims that are durable
    unused_ids            what a new owner of the old name may go on with

No I/O but `unused_ids`, which reads the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from stelae.encoding.row_reader import RowReader
from stelae.encoding.rows import RowCodec
from stelae.errors import InvalidRequest
from stelae.log.reader import read_log
from stelae.log.records import Granted, Inserted
from stelae.ownership.id_claims import Claim, IdRange
from stelae.schema.table_schema import TableSchema
from stelae.schema.types import Int

CHUNK_ROWS = 8192
"""Rows of the log to decode in one go."""


def check_takes_inserts(schema: TableSchema) -> None:
    """InvalidRequest, with the reason, for a table that can't take insert-if-not-exists."""
    engine = schema.options.merge_engine
    others = [column for column in schema.value_columns if column != schema.auto_increment]
    if engine == "first-row" and others:
        raise _refused("its merge engine first-row would keep the nulls of such a row for ever", "use deduplicate")
    if engine == "versioned":
        raise _refused("its merge engine versioned takes rows with a version only", "use deduplicate")
    required = [column.name for column in others if not column.type.nullable]
    if required:
        raise _refused(
            f"column {', '.join(required)} is NOT NULL, and a new row has its key and nothing else",
            "declare it without NOT NULL, or add rows with a build",
        )


def _refused(reason: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"this table takes no insert-if-not-exists: {reason}", place="table", hint=hint)


class NewRows:
    """Makes the row bytes of new keys."""

    def __init__(self, schema: TableSchema) -> None:
        """The schema has passed `check_takes_inserts`."""
        self.schema = schema
        column = schema.auto_increment
        self.width = 0
        """Bytes of an id; 0 where the table has none."""
        if column is None:
            self._head, self._tail = self._row(0), b""
            return
        # The codec alone knows where a column's bytes lie: an id of other bits shows it.
        zeros, ones = self._row(0), self._row(-1)
        differing = [position for position, (a, b) in enumerate(zip(zeros, ones, strict=True)) if a != b]
        self.width = 4 if isinstance(column.type, Int) else 8
        if differing != list(range(differing[0], differing[0] + self.width)):
            raise AssertionError(f"an id of {self.width} bytes lies at {differing}")
        self._head, self._tail = zeros[: differing[0]], zeros[differing[0] + self.width :]

    def rows(self, ids: Sequence[int]) -> list[bytes]:
        """One row for each id. Where the table mints none, the ids are only counted."""
        head, tail, width = self._head, self._tail, self.width
        if not width:
            return [head] * len(ids)
        return [head + number.to_bytes(width, "little") + tail for number in ids]

    def _row(self, number: int) -> bytes:
        column = self.schema.auto_increment
        return RowCodec(self.schema).encode([number if c == column else None for c in self.schema.value_columns])


class GrantedIds:
    """Ids that this owner may hand out, in order."""

    def __init__(self) -> None:
        self._ranges: deque[IdRange] = deque()
        self._unlogged: list[Granted] = []
        self.left = 0

    def grant(self, number: int, ids: IdRange, *, logged: bool = False) -> None:
        """Ids of claim `number`, which is durable. `logged`: the log says already that they are ours."""
        self._ranges.append(ids)
        self.left += ids.count
        if not logged:
            self._unlogged.append(Granted(number, ids.first, ids.last))

    def take(self, count: int) -> list[int]:
        """The next ids. There are as many `left`."""
        self.left -= count
        ids = self._ranges[0] if self._ranges else IdRange(0, 0)
        if ids.count > count:  # nearly always
            self._ranges[0] = IdRange(ids.first + count, ids.last)
            return list(range(ids.first, ids.first + count))
        taken: list[int] = []
        while count:
            ids = self._ranges.popleft()
            part = min(count, ids.count)
            taken += range(ids.first, ids.first + part)
            if part < ids.count:
                self._ranges.appendleft(IdRange(ids.first + part, ids.last))
            count -= part
        return taken

    def unlogged(self) -> list[Granted]:
        """Grants that the log has to say before the first of their ids; each is given once."""
        granted, self._unlogged = self._unlogged, []
        return granted


def unused_ids(folder: Path, reader: RowReader, schema: TableSchema, claim: Claim, claim_offset: int) -> IdRange | None:
    """The ids of a claim above the greatest that the log has; for the owner who made it, after a takeover.

    `claim_offset` is where the log says that the claim was made. Whatever else was handed out of it is in no record
    that counts, so nobody was told. None when nothing is left.
    """
    names = schema.options.auto_increment_fields
    greatest = claim.ids.first - 1
    for rows in _rows_in_chunks(folder, claim_offset):
        [ids] = reader.decode_batch(pa.array(rows, pa.binary()), names)
        mine = [number for number in ids.to_pylist() if number is not None and number in claim.ids]
        greatest = max([greatest, *mine])
    return IdRange(greatest + 1, claim.ids.last) if greatest < claim.ids.last else None


def _rows_in_chunks(folder: Path, first: int) -> Iterator[list[bytes]]:
    """Rows of the log from an offset on, some thousand at a time: single keys have a record each."""
    rows: list[bytes] = []
    for entry in read_log(folder, first):
        if isinstance(entry.record, Inserted):
            rows += entry.record.rows
        if len(rows) >= CHUNK_ROWS:
            yield rows
            rows = []
    if rows:
        yield rows
