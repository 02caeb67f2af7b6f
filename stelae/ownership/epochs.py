"""Ownership: who may mint ids and write online rows of a table, and how everybody else is kept from it.

    owner/epoch-000001.json     server "a"            the greatest epoch is in force
    owner/epoch-000002.json     server "b"            took over; whatever "a" does from here on does not count
    owner/epoch-000003.json     free, by "b"          released: a clean end
    owner/epoch-000004.json     build "nightly"       ...

Ownership is taken by put-if-absent of the next epoch: nobody is asked, nothing has to be alive, and no clock decides. A
former owner may be paused in the middle of anything and come back, so that it is fenced where its work would start to
count, not where it starts:

    records of the log    acknowledged only if, *after* they were made durable, the next epoch is not there
                          (`still_holds`). The new owner reads the log *after* it put its epoch: so what was
                          acknowledged was durable before the check, hence before the put, hence before the read.
    ids                   given only from claims that are durable (`stelae/ownership/id_claims.py`)
    commits of builds     whoever takes over from a build that may be unfinished (`unfinished_build`) commits the number
                          that the build wants, before anything else

A takeover is complete in this order: take the epoch; fence an unfinished build; read the newest snapshot and the log to
its end; put the first log segment of one's own, which says where the former owner's records end; ask `still_holds`;
then serve. What was read before that may still change, as long as a former owner writes behind it.

Epochs are never deleted or changed: a name that fences must stay. An epoch is no lease: it does not expire, it is taken
over. docs/format.md#ownership is the contract, docs/decisions/0016 says why, and
tests/stelae/ownership/test_protocol_simulation.py plays all of this with faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, cast, get_args
from uuid import uuid4

from stelae.errors import Conflict, CorruptData, InvalidRequest
from stelae.storage.paths import EPOCH_FOLDER, epoch_path, parse_epoch_path
from stelae.storage.sealed_json import open_sealed_object, seal_json
from stelae.storage.storage import Storage, exists, put_or_settle

EPOCH_FORMAT = 1  # On disk. Never renumber.
FIRST_EPOCH = 1

OwnerKind = Literal["server", "build", "free"]  # On disk. Never rename.


@dataclass(frozen=True, slots=True)
class Epoch:
    """One term of ownership. It ends when the next one is put, whoever puts it."""

    table: str
    """`database.table` at the time of writing. For people; a reader goes by the folder."""
    number: int
    """From 1, without gaps. The number in the file's name. The greatest is in force."""
    kind: OwnerKind
    """server: takes online writes; build: mints ids for one snapshot; free: nobody, the table may be taken."""
    owner: str
    """Name of the server or build; of a free epoch, who released the table."""
    url: str | None
    """Where the server answers, for builds and clients; null for other kinds."""
    attempt_id: str
    """Names the attempt that wrote it. A writer that lost the answer to its put knows its own epoch by it."""
    taken_ms: int
    """When it was taken, by the writer's clock: milliseconds since 1970-01-01 UTC. For people; orders nothing."""
    note: str = ""
    """Why, for people."""
    format: int = EPOCH_FORMAT

    def __str__(self) -> str:
        said = f"{self.kind} {self.owner!r}" + (f" at {self.url}" if self.url else "")
        return f"released by {self.owner!r}" if self.kind == "free" else said


class TableOwnership:
    """The epochs of one table. Holds no state: every call asks the storage. Safe to share between threads."""

    def __init__(self, storage: Storage, table: str, *, clock: Callable[[], float] = time.time) -> None:
        """`storage` is rooted in the table's folder; `table` is the name that its epochs carry."""
        self.storage = storage
        self.table = table
        self._clock = clock

    # Reading

    def current(self) -> Epoch | None:
        """The epoch in force, None if the table never had an owner. One listing, one read."""
        number = self._newest_number()
        return None if number is None else self.read(number)

    def still_holds(self, epoch: Epoch) -> bool:
        """Whether nobody took over so far. One small request.

        True is news of the past: it says that what was durable when this was called is seen by every later owner.
        """
        return not exists(self.storage, epoch_path(epoch.number + 1))

    def unfinished_build(self, epoch: Epoch, *, segment_epoch: int = 0) -> Epoch | None:
        """The build before `epoch` that may still commit its snapshot; the owner by `epoch` has to fence it first.

        It is the newest former epoch, if that was taken by a build and not released; servers that took over in between
        may have crashed before they fenced it. `segment_epoch` is that of the newest log segment: a server puts its
        first segment after it has fenced, so epochs before it need not be looked at. To fence once more than needed is
        harmless.
        """
        for number in range(epoch.number - 1, max(segment_epoch, FIRST_EPOCH) - 1, -1):
            former = self.read(number)
            if former.kind != "server":
                return former if former.kind == "build" else None
        return None

    def numbers(self) -> list[int]:
        """Numbers of the epochs, as one listing has them; one that runs while others take epochs may have gaps."""
        numbers = (parse_epoch_path(file.path) for file in self.storage.list(EPOCH_FOLDER))
        return sorted(number for number in numbers if number is not None)

    def read(self, number: int) -> Epoch:
        """One epoch. NotFound when there is none of that number."""
        place = self._place(epoch_path(number))
        epoch = decode_epoch(self.storage.get(epoch_path(number)), place)
        if epoch.number != number:
            raise CorruptData(f"the file holds epoch {epoch.number}", place=place)
        return epoch

    # Writing

    def take(
        self, kind: OwnerKind, owner: str, url: str | None = None, *, after: Epoch | None, note: str = ""
    ) -> Epoch:
        """Put the epoch after `after` (None: the first one), durable when this returns.

        Conflict, naming the owner, when somebody took that epoch already. Unavailable when it is not known whether it
        was taken. Then ask `current` before the next attempt: an epoch that landed late is in force although nobody
        acts by it, and is taken over like that of a crashed owner.
        """
        if after is not None and after.table != self.table:
            raise InvalidRequest(f"an epoch of {after.table} is no epoch of {self.table}", place=self.table)
        wanted = Epoch(
            table=self.table,
            number=FIRST_EPOCH if after is None else after.number + 1,
            kind=kind,
            owner=owner,
            url=url,
            attempt_id=uuid4().hex,
            taken_ms=int(self._clock() * 1000),
            note=note,
        )
        stored = put_or_settle(
            self.storage,
            epoch_path(wanted.number),
            encode_epoch(wanted),
            wanted,
            lambda: self.read(wanted.number),
            doubt=f"epoch {wanted.number} of {self.table} was taken",
            hint="look who owns the table before the next attempt; it may be this one",
        )
        if stored != wanted:
            raise Conflict(
                f"epoch {stored.number} of {self.table} was taken by {stored}, so {wanted.owner!r} cannot take it"
                if stored.kind != "free"
                else f"epoch {stored.number} of {self.table} is taken: {stored}",
                place=self._place(epoch_path(wanted.number)),
                hint="look who owns the table now, and take over from there if that is meant",
            )
        return stored

    def release(self, epoch: Epoch, *, note: str = "") -> bool:
        """Give the table up: the next epoch says that it is free. False when somebody took over before.

        Only for an owner that completed its takeover and acknowledges nothing any more: whoever takes over from a free
        epoch fences nobody. A build releases after its commit, or after it gave up for good.
        """
        try:
            self.take("free", epoch.owner, after=epoch, note=note)
        except Conflict:
            return False
        return True

    # Leaves

    def _newest_number(self) -> int | None:
        return max(self.numbers(), default=None)

    def _place(self, path: str) -> str:
        return f"{self.storage.url}/{path}"


def encode_epoch(epoch: Epoch) -> bytes:
    """The bytes of an epoch's file. CorruptData for an epoch that `decode_epoch` would refuse."""
    place = f"epoch {epoch.number} of {epoch.table}, before it is written"
    check_epoch(epoch, place)
    data = seal_json({"format": epoch.format} | asdict(epoch))
    if decode_epoch(data, place) != epoch:
        raise CorruptData("the epoch would not read back as it is", place=place)
    return data


def decode_epoch(data: bytes, place: str) -> Epoch:
    """The epoch in the bytes of its file. `place` names it in errors; anything off is CorruptData."""
    body = open_sealed_object(data, _FIELDS, EPOCH_FORMAT, place)
    epoch = Epoch(
        format=body.count("format"),
        table=body.text("table"),
        number=body.count("number"),
        kind=cast("OwnerKind", body.text("kind")),
        owner=body.text("owner"),
        url=body.text_or_null("url"),
        attempt_id=body.text("attempt_id"),
        taken_ms=body.count("taken_ms"),
        note=body.text("note"),
    )
    check_epoch(epoch, place)
    return epoch


# Invariants


def check_epoch(epoch: Epoch, place: str) -> None:
    """What an epoch keeps by itself: a number, a known kind, names, and a URL exactly if it is a server's."""
    if epoch.kind not in get_args(OwnerKind):
        raise CorruptData(f"unknown kind of owner {epoch.kind!r}", place=place)
    if epoch.number < FIRST_EPOCH or epoch.taken_ms < 0:
        raise CorruptData(f"epoch {epoch.number}, taken at {epoch.taken_ms}", place=place)
    if not epoch.table or not epoch.owner or not epoch.attempt_id:
        raise CorruptData("the name of the table, of the owner or of the attempt is empty", place=place)
    if bool(epoch.url) != (epoch.kind == "server"):
        raise CorruptData(f"an epoch of kind {epoch.kind} has the URL {epoch.url!r}", place=place)


def check_epochs_are_gapless(epochs: Sequence[Epoch], place: str) -> None:
    """Epochs count from 1, each once."""
    numbers = sorted(epoch.number for epoch in epochs)
    for expected, number in enumerate(numbers, FIRST_EPOCH):
        if number != expected:
            raise CorruptData(f"expected epoch {expected}, found epoch {number}", place=place)


_FIELDS = frozenset(field.name for field in fields(Epoch))
