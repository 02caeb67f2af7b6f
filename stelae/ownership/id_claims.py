"""Claims of ids: which range of a table's auto-increment ids belongs to whom.

    auto-increment/claim-000000000000.json     ids 1 to 100,000      a server, epoch 3
    auto-increment/claim-000000000001.json     ids 100,001 to 812,345    a build, epoch 4
    auto-increment/claim-000000000002.json     ...

Put-if-absent of the next number is all there is: claim n + 1 starts where claim n ends, so of two writers that saw
claim n one gets the next range, and the other sees it and takes the one behind it. Ranges are dense and disjoint by
construction, for all partitions and buckets of the table, whoever crashes.

Two rules make an id unique. *A range may be used only after its claim is durable*: `claim` returns then, and not
before. And *a claim is never deleted or changed*: a number that was free again could be put by a writer that slept
since. What a crash leaves unused is wasted; nothing ever hands out "the next range" by arithmetic.

docs/format.md#id-claims is the contract, docs/decisions/0016 says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Literal, cast, get_args
from uuid import uuid4

from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.table_schema import Column
from stelae.schema.types import Int
from stelae.storage.paths import CLAIM_FOLDER, claim_path, parse_claim_path
from stelae.storage.sealed_json import MAX_COUNT, open_sealed_object, seal_json
from stelae.storage.storage import Storage, put_or_settle

CLAIM_FORMAT = 1  # On disk. Never renumber.
FIRST_ID = 1
"""0 is never an id, so that nobody takes the zero of an array or of a failed lookup for a key's."""
FIRST_CLAIM = 0
INT_LIMIT = (1 << 31) - 1
"""Greatest id of an INT column."""
BIGINT_LIMIT = (1 << 63) - 1
"""Greatest id of a BIGINT column."""


def id_limit(column: Column) -> int:
    """The greatest id that an auto-increment column can hold."""
    return INT_LIMIT if isinstance(column.type, Int) else BIGINT_LIMIT


Purpose = Literal["online", "build"]  # On disk. Never rename.


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids from `first` to `last`, both included; at least one."""

    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def __str__(self) -> str:
        return f"{self.first:,} to {self.last:,}"


@dataclass(frozen=True, slots=True)
class Claim:
    """One range of ids and whose it is."""

    number: int
    """From 0, without gaps. The number in the file's name."""
    ids: IdRange
    """Claim 0 starts at 1, every other one behind the last id of the claim before it."""
    owner: str
    """Name of the server or build that may hand the ids out. For people, and for a server that finds its own again."""
    epoch: int
    """The epoch of ownership under which it was claimed (`stelae/ownership/epochs.py`)."""
    purpose: Purpose
    """online: as many as the table's option says, some may stay unused; build: exactly as many as it has new keys."""
    attempt_id: str
    """Names the attempt that wrote it. A writer that lost the answer to its put knows its own claim by it."""
    created_ms: int
    """When it was made, by the writer's clock: milliseconds since 1970-01-01 UTC. For people; orders nothing."""
    format: int = CLAIM_FORMAT


class TableClaims:
    """The id claims of one table. Holds no state: every call asks the storage. Safe to share between threads."""

    def __init__(self, storage: Storage, limit: int, *, clock: Callable[[], float] = time.time) -> None:
        """`storage` is rooted in the table's folder; `limit` is the greatest id that the column can hold."""
        self.storage = storage
        self.limit = limit
        self._clock = clock

    def claim(self, count: int, *, owner: str, epoch: int, purpose: Purpose) -> Claim:
        """The next `count` ids, durably the caller's when this returns. One listing, one read, one put.

        At the limit of the column an online claim is cut to the ids that are left. A build's is not: it needs all of
        its ids or none. InvalidRequest, with nothing claimed, when there are none or too few left. Unavailable when it
        is not known whether the claim was made: then none of its ids may be used, and claiming again is safe.
        """
        if count < 1:
            raise InvalidRequest(f"cannot claim {count} ids", place=self._place(CLAIM_FOLDER))
        attempt_id = uuid4().hex
        previous = self.newest()
        while True:
            wanted = Claim(
                number=FIRST_CLAIM if previous is None else previous.number + 1,
                ids=self._next_ids(previous, count, purpose),
                owner=owner,
                epoch=epoch,
                purpose=purpose,
                attempt_id=attempt_id,
                created_ms=int(self._clock() * 1000),
            )
            check_follows(previous, wanted, f"claim {wanted.number}, before it is written")
            stored = put_or_settle(
                self.storage,
                claim_path(wanted.number),
                encode_claim(wanted),
                wanted,
                partial(self.read, wanted.number),
                doubt=f"ids {wanted.ids} were claimed",
                hint="none of them is used; claim again: at worst they stay unused",
            )
            if stored == wanted:
                return stored
            previous = stored  # Somebody else was faster. Each turn of the loop is a claim that somebody got.

    def newest(self) -> Claim | None:
        """The claim with the greatest number, None before the first. One listing, one read."""
        number = self._newest_number()
        return None if number is None else self.read(number)

    def numbers(self) -> list[int]:
        """Numbers of the claims, as one listing has them; one that runs while others claim may have gaps."""
        numbers = (parse_claim_path(file.path) for file in self.storage.list(CLAIM_FOLDER))
        return sorted(number for number in numbers if number is not None)

    def read(self, number: int) -> Claim:
        """One claim. NotFound when there is none of that number."""
        place = self._place(claim_path(number))
        claim = decode_claim(self.storage.get(claim_path(number)), place)
        if claim.number != number:
            raise CorruptData(f"the file holds claim {claim.number}", place=place)
        if claim.ids.last > self.limit:
            raise CorruptData(f"ids {claim.ids} are claimed; the column ends at {self.limit:,}", place=place)
        return claim

    # Leaves

    def _newest_number(self) -> int | None:
        return max(self.numbers(), default=None)

    def _next_ids(self, previous: Claim | None, count: int, purpose: Purpose) -> IdRange:
        first = FIRST_ID if previous is None else previous.ids.last + 1
        left = self.limit - first + 1
        if left < 1 or (left < count and purpose == "build"):
            has = f"{left:,} ids are left, {count:,} are needed" if left > 0 else "all ids are used up"
            raise InvalidRequest(
                f"{has}: the column ends at {self.limit:,}",
                place=self._place(CLAIM_FOLDER),
                hint="nothing was claimed; a BIGINT column has more, in a new table: a column keeps its type",
            )
        return IdRange(first, first + min(count, left) - 1)

    def _place(self, path: str) -> str:
        return f"{self.storage.url}/{path}"


def encode_claim(claim: Claim) -> bytes:
    """The bytes of a claim's file. CorruptData for a claim that `decode_claim` would refuse."""
    place = f"claim {claim.number}, before it is written"
    check_claim(claim, place)
    data = seal_json(
        {
            "format": claim.format,
            "number": claim.number,
            "first": claim.ids.first,
            "last": claim.ids.last,
            "owner": claim.owner,
            "epoch": claim.epoch,
            "purpose": claim.purpose,
            "attempt_id": claim.attempt_id,
            "created_ms": claim.created_ms,
        }
    )
    if decode_claim(data, place) != claim:
        raise CorruptData("the claim would not read back as it is", place=place)
    return data


def decode_claim(data: bytes, place: str) -> Claim:
    """The claim in the bytes of its file. `place` names it in errors; anything off is CorruptData."""
    body = open_sealed_object(data, _FIELDS, CLAIM_FORMAT, place)
    claim = Claim(
        format=body.count("format"),
        number=body.count("number"),
        ids=IdRange(body.count("first"), body.count("last")),
        owner=body.text("owner"),
        epoch=body.count("epoch"),
        purpose=cast("Purpose", body.text("purpose")),
        attempt_id=body.text("attempt_id"),
        created_ms=body.count("created_ms"),
    )
    check_claim(claim, place)
    return claim


# Invariants


def check_claim(claim: Claim, place: str) -> None:
    """What a claim keeps by itself: at least one id, ids from 1, and a known purpose."""
    if not FIRST_ID <= claim.ids.first <= claim.ids.last <= MAX_COUNT:
        raise CorruptData(f"claim {claim.number} is of ids {claim.ids}", place=place)
    if (claim.number == FIRST_CLAIM) != (claim.ids.first == FIRST_ID) or claim.number < FIRST_CLAIM:
        raise CorruptData(f"claim {claim.number} starts at id {claim.ids.first:,}", place=place)
    if claim.purpose not in get_args(Purpose):
        raise CorruptData(f"unknown purpose of a claim {claim.purpose!r}", place=place)
    if claim.epoch < 1 or claim.created_ms < 0:
        raise CorruptData(f"claim {claim.number} is of epoch {claim.epoch}, time {claim.created_ms}", place=place)
    if not claim.owner or not claim.attempt_id:
        raise CorruptData("the name of the owner or of the attempt is empty", place=place)


def check_follows(previous: Claim | None, claim: Claim, place: str) -> None:
    """A claim has the next number and starts behind the last id of the one before it."""
    number, first = (previous.number + 1, previous.ids.last + 1) if previous else (FIRST_CLAIM, FIRST_ID)
    if (claim.number, claim.ids.first) != (number, first):
        raise CorruptData(
            f"claim {claim.number} starts at id {claim.ids.first:,}; expected claim {number} at id {first:,}",
            place=place,
        )


def check_claims_are_disjoint(claims: Sequence[Claim], place: str) -> None:
    """No id is in two claims. In any order, and also when some are lacking."""
    by_first = sorted(claims, key=lambda claim: (claim.ids.first, claim.ids.last))
    for before, after in pairwise(by_first):
        if after.ids.first <= before.ids.last:
            raise CorruptData(
                f"claims {before.number} ({before.ids}) and {after.number} ({after.ids}) have ids in common",
                place=place,
                hint="stop all writers of the table and keep its files: ids may have been given to two keys",
            )


def check_claims_are_dense(claims: Sequence[Claim], place: str) -> None:
    """By number, claims count from 0 and their ids from 1, without gaps."""
    for previous, claim in pairwise([None, *sorted(claims, key=lambda claim: claim.number)]):
        if claim is not None:
            check_follows(previous, claim, place)


_FIELDS = frozenset(field.name for field in fields(Claim)) - {"ids"} | {"first", "last"}
