"""One insert-if-not-exists on its way: keys are looked up until each has a row, or is being written.

    KNOWN      every key has its row                      ──► answer
    PENDING    another request is inserting some of them  ──► wait for that one, look again
    NEEDS_IDS  the rest is new, and ids are short         ──► claim some, look again
    NEW        the rest is new                            ──► ids, records, flush ──► answer

`Insertion` is of any number of keys, `insert_one` the same of one. If the server dies between log and answer:
`service/writes/owner.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from stelae.encoding.key_batch import KeyValues, chosen
from stelae.read.overlay import FLAGS, HIDDEN_FLAGS, ORDINAL_BYTES
from stelae.read.snapshot_reader import SnapshotReader
from stelae.service.tables.served_table import TURN_KEYS, OpenSnapshot
from stelae.service.writes.owner import Owner


class Finding(Enum):
    """What a look at the keys of a request found."""

    KNOWN = auto()
    PENDING = auto()
    NEEDS_IDS = auto()
    NEW = auto()


@dataclass(frozen=True, slots=True)
class InsertOutcome:
    """Rows of the keys of a request, aligned with them."""

    opened: OpenSnapshot
    """What they were read from; behind it come those that were inserted."""
    rows: list[bytes | None]
    """Row bytes; None for a key of a partition that the table does not have."""
    inserted: list[bool]


class Insertion:
    """The keys of one request. Between `find` and `submit` nobody else gets a turn."""

    def __init__(self, owner: Owner, opened: OpenSnapshot, keys: Sequence[KeyValues]) -> None:
        self._owner = owner
        self._reader = opened.reader
        self._keys = keys
        self._located: list[bytes | None] = []
        self._rows: list[bytes | None] = []
        self._unseen: list[int] = []
        """Which keys have no row, but a bucket that it would be in."""
        self._wanted: list[bytes] = []
        """The same keys, located."""
        self._version = owner.version
        """Of the owner's rows, when the keys were looked up."""
        self._new: list[bytes] = []
        """Keys to insert, each once."""
        self.outcome = InsertOutcome(opened, self._rows, [False] * len(keys))

    async def look_up(self) -> None:
        """The first look, in turns with other requests."""
        reader, keys = self._reader, self._keys
        for start in range(0, len(keys), TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            some = reader.locate_many(keys[start : start + TURN_KEYS])
            self._located += some
            self._rows += _rows_at(reader, some)
        self._note(range(len(keys)))

    @property
    def is_known(self) -> bool:
        """Whether every key has its row: then it does not matter what became of the owner meanwhile."""
        return not self._unseen

    def find(self) -> Finding:
        """What is to be done for the keys that have no row yet."""
        owner = self._owner
        if owner.version != self._version:
            self._look_again()
        if not self._unseen:
            return Finding.KNOWN
        if not owner.pending.keys().isdisjoint(self._wanted):
            return Finding.PENDING
        self._new = list(dict.fromkeys(self._wanted))
        return Finding.NEEDS_IDS if owner.lacks_ids(len(self._new)) else Finding.NEW

    async def wait_for_others(self) -> None:
        """Wait until other requests' inserts of these keys may be seen. Raises what the log says if they may not."""
        pending = self._owner.pending
        for batch in {batch for located in self._wanted if (batch := pending.get(located)) is not None}:
            await batch.settled()

    async def claim_ids(self) -> None:
        """Have ids for all new keys. InvalidRequest when the column has no more."""
        await self._owner.claim(len(self._new))

    async def submit(self) -> None:
        """Insert the new keys; durable, and in sight, when this returns."""
        wanted = self._wanted
        first = {located: index for index, located in zip(reversed(self._unseen), reversed(wanted), strict=True)}
        asked: dict[bytes, int] = {}
        for located in self._located:
            if located is not None:
                ordinal = located[:ORDINAL_BYTES]
                asked[ordinal] = asked.get(ordinal, 0) + 1
        batch = self._owner.submit(chosen(self._keys, [first[located] for located in self._new]), self._new, asked)
        row_of = dict(zip(self._new, batch.rows, strict=True))
        await batch.done
        for index, located in zip(self._unseen, wanted, strict=True):
            self._rows[index] = row_of[located]
            self.outcome.inserted[index] = first[located] == index

    def _look_again(self) -> None:
        self._version = self._owner.version
        rows = self._rows
        for index, row in zip(self._unseen, self._reader.rows_at(self._wanted), strict=True):
            rows[index] = row
        self._note(self._unseen)

    def _note(self, indexes: Iterable[int]) -> None:
        """Note which of these keys have no row."""
        rows, located = self._rows, self._located
        self._unseen = [index for index in indexes if rows[index] is None and located[index] is not None]
        self._wanted = [one for index in self._unseen if (one := located[index]) is not None]


async def insert_one(owner: Owner, opened: OpenSnapshot, key: KeyValues) -> InsertOutcome | None:
    """An insert of one key, in a third of the time: services insert key by key. None: look again."""
    reader = opened.reader
    located = reader.locate(key)
    row = None if located is None else reader.find(key)
    if located is None or (row is not None and row[FLAGS] != HIDDEN_FLAGS):
        return InsertOutcome(opened, [row], [False])  # KNOWN
    if owner.reader is not reader:
        raise AssertionError("what is served is not what the owner shows")
    batch = owner.pending.get(located)
    if batch is not None:  # PENDING
        await batch.settled()
        return None
    if owner.lacks_ids(1):  # NEEDS_IDS
        await owner.claim(1)
        return None
    batch = owner.submit_one(key, located)  # NEW
    await batch.done
    return InsertOutcome(opened, [batch.rows[0]], [True])


def _rows_at(reader: SnapshotReader, located_keys: Sequence[bytes | None]) -> list[bytes | None]:
    if None not in located_keys:
        return reader.rows_at(located_keys)  # type: ignore[arg-type]
    known = iter(reader.rows_at([located for located in located_keys if located is not None]))
    return [None if located is None else next(known) for located in located_keys]
