"""Goal: no id is given to two keys, no key gets two ids, and nothing that a client was told is lost, whatever crashes,
stalls or comes back. This is the protocol of claims and ownership, played before any of it touches a disk.

Method: a world in memory, driven by a seed. Servers and builds are generators that pause at each `yield`; they use the
real `TableClaims` and `TableOwnership` on storage that fails, loses answers and performs puts long after it said
Unavailable; others run in the middle of any call. Processes are killed, paused for long and started again. Log and
snapshots are models of a few lines, with the rules that stand in `stelae/ownership/epochs.py`. Clients remember what
they were told.

    world ── step ──┬── a process goes on to its next yield      server: take over, insert, load a snapshot, release
                    ├── a put that was delayed lands             build: take over and mint, or ask the owner; commit
                    ├── a process is started
                    └── a client asks; somebody looks at rows that are shown

A test that can't fail is worth nothing: each rule of the protocol can be left out (`BUGS`), and the same checks have to
notice. Most bugs are found by seeds; where three processes have to meet at the wrong moment, a story leads them there.
More seeds than `make test-long` has: `python -m tests.stelae.ownership.test_protocol_simulation 5000 100000`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from stelae.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, Unavailable
from stelae.ownership.epochs import Epoch, TableOwnership
from stelae.ownership.id_claims import Claim, TableClaims
from stelae.storage.memory import MemoryStorage
from stelae.storage.paths import SNAPSHOT_FOLDER, claim_path, parse_snapshot_path, snapshot_path
from stelae.storage.storage import Storage, StoredFile, exists, put_or_settle
from tests.length import length
from tests.tables import all_claims, all_epochs

TABLE = "shop.uids"
SCHEDULES = length(short=500, long=10_000)
SEARCHED = 2_000
"""Schedules in which a rule that is left out has to be noticed."""
STEPS = 400

BUGS = {
    "acknowledges without a check": "after the flush, the server does not ask whether it still owns the table",
    "checks before the flush": "it asks before the record is durable instead of after",
    "shows before the check": "rows are visible to lookups as soon as they are durable, before it asks",
    "goes on after a failed flush": "a flush without an answer is taken for one that did not happen",
    "uses ids before the claim": "it hands out the next range while the claim of it is still under way",
    "extends its range": "used up, its range is followed by the numbers behind it",
    "reads before it takes": "a new owner reads the log before it puts its epoch",
    "serves before its segment": "a new owner serves before it put a segment that says up to where it read",
    "does not check its segment": "a new owner serves without asking, behind its segment, whether it still owns it",
    "follows all segments": "segments count in the order of epochs, those of owners that were passed over included",
    "does not fence": "whoever takes over from an unfinished build leaves the number of its snapshot free",
    "mints and rebases": "a build that minted ids commits behind a fence, as one that minted nothing may",
}
"""Rules that are left out, and that seeds find."""

Rows = dict[str, int]
"""Id by key."""
Steps = Generator[str, None, None]
"""What a process does from one moment to the next; it yields their names."""

MOMENTS = (
    "before the epoch",
    "has the epoch",
    "before the fence",
    "before it reads",
    "between snapshot and log",
    "before the segment",
    "behind the segment",
    "idle",
    "before the flush",
    "behind the flush",
    "before the answer",
    "before the swap",
    "before the claim",
    "before the commit",
    "before the release",
    "before it reads the log beside",
    "behind the log beside",
    "waiting",
    "before the commit beside",
)


class Violation(AssertionError):
    """The protocol broke a promise."""


@dataclass(frozen=True)
class Climate:
    """How rough a schedule is: chances in each call or step."""

    fail: float = 0
    """A call fails and nothing happens."""
    delay: float = 0
    """A put happens much later; its caller is told Unavailable now."""
    lose: float = 0
    """A put happens; its caller is told Unavailable, or that the name is taken."""
    interrupt: float = 0
    """Others run in the middle of a call."""
    crash: float = 0
    """A process ends."""
    bursts: float = 0
    """The process of the last step goes on, if it can."""
    builds: float = 0
    """A process that is started is a build."""
    moments: tuple[str, ...] = ()
    """Where processes like to be paused for long."""
    keys: int = 60
    cache_size: int = 3
    limit: int = 10**6
    """Greatest id."""


@dataclass
class Request:
    """Keys that a client wants ids of, inserted if they are not there."""

    keys: list[str]
    answer: Rows | None = None


@dataclass(eq=False)
class Process:
    """A server or a build."""

    name: str
    run: Steps
    running: bool = False
    paused_until: int = 0
    epoch: Epoch | None = None
    """Set when its takeover is complete."""
    rows: Rows = field(default_factory=dict)
    """What it shows."""
    inbox: list[Request] | None = None
    """Of a server that takes requests."""


@dataclass
class Segment:
    """The records that one owner appended."""

    epoch: int
    previous: int
    """The epoch whose records it continues; 0 for the first."""
    base: int
    """How many records of former owners count."""
    records: list[Rows] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """All rows at one moment; records of the log below the offset are in it."""

    id: int
    build_id: str
    kind: str
    rows: Rows
    offset: int


NO_SNAPSHOT = Snapshot(0, "", "", {}, 0)


class World:
    """Everything there is, and what clients were told of it."""

    def __init__(self, seed: int, bug: str = "") -> None:
        self.seed, self.bug = seed, bug
        self.random = Random(seed)
        self.climate = any_climate(self.random)
        self.files = MemoryStorage(clock=lambda: 0)
        self.storage = RoughStorage(self)
        self.log = Log(self)
        self.snapshots = Snapshots(self)
        self.delayed: list[Callable[[], None]] = []
        self.processes: list[Process] = []
        self.last: Process | None = None
        self.told: Rows = {}
        self.key_of: dict[int, str] = {}
        self.adopted: dict[int, Rows] = {}
        """Rows that each new owner found, by epoch."""
        self.claims: list[Claim] = []
        """Those that are durable, as far as anybody looked."""
        self.now = self.depth = self.builds = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []

    # Time

    def play(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.end()

    def step(self) -> None:
        self.now += 1
        chance = self.random.random()
        if chance < (0.1 if len(self.processes) < 2 else 0.02):
            self.start()
        elif chance < 0.25:
            servers = [one for one in self.processes if one.inbox is not None]
            if servers:
                self.ask(self.random.choice(servers), *self.some_keys())
        elif chance < 0.3:
            self.look()
        elif chance < 0.32 and self.delayed:
            self.delayed.pop(self.random.randrange(len(self.delayed)))()
        else:
            ready = [one for one in self.processes if not one.running and one.paused_until <= self.now]
            if ready:
                if self.last not in ready or self.random.random() >= self.climate.bursts:
                    self.last = self.random.choice(ready)
                moment = self.advance(self.last)
                if self.random.random() < self.climate.crash:
                    self.kill(self.last)
                elif moment in self.climate.moments and self.random.random() < 0.5:
                    self.last.paused_until = self.now + self.random.randrange(5, 100)

    def advance(self, process: Process) -> str:
        """The process goes on to its next moment; one that can't, or that lost its table, ends: ''."""
        process.running = True
        try:
            return next(process.run)
        except StopIteration:
            self.processes.remove(process)
        except (Unavailable, Conflict) as exc:
            self.say(f"{process.name} gives up: {exc.message}")
            self.processes.remove(process)
        finally:
            process.running = False
        return ""

    def kill(self, process: Process) -> None:
        if process in self.processes:
            self.say(f"{process.name} is killed")
            self.processes.remove(process)

    def start(self) -> None:
        if len(self.processes) >= 6:
            return
        if self.random.random() < self.climate.builds:
            self.start_build({*self.some_keys(), *self.some_keys()}, beside=self.random.random() < 0.7)
        else:
            self.start_server(self.random.choice("ab"), patient=self.random.random() < 0.7)

    def start_server(self, name: str, *, patient: bool = False) -> Process:
        """A patient one does not take over from an owner that answers."""
        process = Process(name, iter(()))  # type: ignore[arg-type]
        process.run = server(self, process, patient)
        self.processes.append(process)
        return process

    def start_build(self, keys: set[str], *, beside: bool = False) -> Process:
        """One beside a server leaves the ownership, and the ids, to it."""
        self.builds += 1
        process = Process(f"build-{self.builds}", iter(()))  # type: ignore[arg-type]
        process.run = build(self, process, keys, beside)
        self.processes.append(process)
        return process

    def meanwhile(self) -> None:
        """Others run in the middle of a call."""
        if self.depth < 2 and self.random.random() < self.climate.interrupt:
            self.depth += 1
            for _ in range(self.random.choice((1, 5, 25))):
                self.step()
            self.depth -= 1

    def some_time(self, moment: str) -> Steps:
        """What may take long."""
        for _ in range(self.random.choice((1, 1, 5, 20))):
            yield moment

    def end(self) -> None:
        """The storm is over: what is under way lands, and a last owner has to find everything."""
        self.climate = Climate(limit=self.climate.limit)
        self.random.shuffle(self.delayed)
        while self.delayed:
            self.delayed.pop()()
        self.processes.clear()
        last = self.start_server("last")
        while last.inbox is None:
            self.advance(last)
        self.expect(self.told.items() <= last.rows.items(), "the last owner does not find what clients were told")
        all_claims(TableClaims(self.files, self.climate.limit))
        all_epochs(TableOwnership(self.files, TABLE))

    # Clients

    def some_keys(self) -> list[str]:
        return [f"k{self.random.randrange(self.climate.keys)}" for _ in range(self.random.choice((1, 1, 3)))]

    def ask(self, process: Process, *keys: str) -> Request:
        assert process.inbox is not None
        process.inbox.append(Request([*keys]))
        return process.inbox[-1]

    def serves(self, epoch: Epoch) -> bool:
        """Whether the owner answers, at this moment."""
        return any(one.epoch == epoch and one.inbox is not None for one in self.processes)

    def look(self) -> None:
        """Somebody looks at what some process shows, or reads the newest snapshot."""
        newest = self.snapshots.newest(self.files)
        sources = [(f"snapshot {newest.id}", newest.rows, None)]
        sources += [(one.name, one.rows, one.epoch) for one in self.processes if one.rows]
        name, rows, epoch = self.random.choice(sources)
        for key, number in self.random.sample(sorted(rows.items()), min(3, len(rows))):
            self.tell(key, number, epoch, name)

    def tell(self, key: str, number: int, epoch: Epoch | None, who: str) -> None:
        """A client is told the id of a key: from now on it is a promise."""
        if self.told.get(key) != number:
            self.say(f"{who} says: {key} is {number}")
            self.counts["told"] += 1
        self.expect(self.told.setdefault(key, number) == number, f"{key} was {self.told[key]} and is {number} now")
        self.expect(self.key_of.setdefault(number, key) == key, f"{number} is of {self.key_of[number]} and of {key}")
        for later, rows in self.adopted.items():
            if epoch is not None and later > epoch.number:
                found = rows.get(key)
                self.expect(found == number, f"owner {later} found {key} as {found}; a former owner says {number}")

    def check_granted(self, number: int, owner: str) -> None:
        """The id is of a durable claim of the owner."""
        while exists(self.files, claim_path(len(self.claims))):
            self.claims.append(TableClaims(self.files, self.climate.limit).read(len(self.claims)))
        granted = any(number in claim.ids and claim.owner == owner for claim in self.claims)
        self.expect(granted, f"{owner} uses {number}, which is of no durable claim of its own")

    def expect(self, holds: bool, message: str) -> None:
        if not holds:
            story = "\n  ".join(self.trace[-60:])
            raise Violation(f"seed {self.seed}: {message}\n  {story}")

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now}: {text}")


def any_climate(random: Random) -> Climate:
    return Climate(
        fail=random.choice((0, 0, 0.03)),
        delay=random.choice((0, 0.03, 0.15)),
        lose=random.choice((0, 0, 0.05)),
        interrupt=random.choice((0, 0.05, 0.2)),
        crash=random.choice((0, 0.005, 0.03)),
        bursts=random.choice((0, 0.8, 0.9)),
        builds=random.choice((0.1, 0.3, 0.6)),
        moments=tuple(random.sample(MOMENTS, random.choice((0, 2, 4, 6)))),
        keys=random.choice((3, 12, 60)),
        cache_size=random.choice((1, 3, 10)),
        limit=random.choice((30, 10**6, 10**6)),
    )


class RoughStorage:
    """Storage as the climate has it: what claims, ownership and snapshots need of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.url = "rough:"

    def get(self, path: str) -> bytes:
        self.trouble()
        return self.world.files.get(path)

    def head(self, path: str) -> StoredFile:
        self.trouble()
        found = self.world.files.head(path)
        self.world.meanwhile()
        return found

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        self.trouble()
        found = self.world.files.list(folder)
        self.world.meanwhile()
        return found

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.trouble()
        self.happens(lambda: self.world.files.put_if_absent(path, data), path)
        if self.strikes(self.world.climate.lose):
            self.world.say(f"{path} is put, and put again by the transport")
            raise AlreadyExists("the transport repeated the put")

    def happens(self, action: Callable[[], None], name: str) -> None:
        """Do it now, or much later and say Unavailable, or do it and lose the answer."""
        world = self.world

        def land() -> None:
            try:
                action()
                world.say(f"{name}, delayed, lands")
                world.counts["landed late"] += 1
            except AlreadyExists:
                world.counts["landed too late"] += 1

        if self.strikes(world.climate.delay):
            world.delayed.append(land)
            world.say(f"{name} is delayed")
            raise Unavailable("delayed")
        action()
        world.say(name)
        world.meanwhile()
        if self.strikes(world.climate.lose):
            world.say(f"the answer to {name} is lost")
            raise Unavailable("the answer got lost")

    def trouble(self) -> None:
        """Before the call: others run, or it fails and nothing happens."""
        self.world.meanwhile()
        if self.strikes(self.world.climate.fail):
            raise Unavailable("out of reach")

    def strikes(self, chance: float) -> bool:
        return self.world.random.random() < chance


class Log:
    """The log of the table, with the rules of its fence.

    A segment says which owner's records it continues, and up to which one. The log is read from the newest segment
    backwards: segments that nobody continues, and records that a former owner appended behind the end that its
    successor saw, do not count.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.segments: dict[int, Segment] = {}

    def head(self) -> int:
        """The newest owner that has a segment; 0 for none."""
        return max(self.segments, default=0)

    def read(self) -> tuple[int, list[Rows]]:
        """The newest owner that has a segment, and the records that count from its point of view."""
        head = epoch = self.head()
        records: list[Rows] = []
        end = None
        while epoch:
            segment = self.segments[epoch]
            records = segment.records[: None if end is None else end - segment.base] + records
            end, epoch = segment.base, segment.previous
        if self.world.bug == "follows all segments":
            records = []
            for segment in sorted(self.segments.values(), key=lambda one: one.epoch):
                records = records[: segment.base] + segment.records
        return head, [dict(record) for record in records]

    def put_segment(self, epoch: int, previous: int, base: int) -> None:
        def put() -> None:
            if epoch in self.segments:
                raise AlreadyExists(f"epoch {epoch} has a segment")
            self.segments[epoch] = Segment(epoch, previous, base)

        self.world.storage.trouble()
        self.world.storage.happens(put, f"segment {epoch} behind record {base} of {previous}")

    def append(self, epoch: int, record: Rows) -> None:
        self.world.storage.trouble()
        segment = self.segments[epoch]
        self.world.storage.happens(lambda: segment.records.append(record), f"record {record} of epoch {epoch}")


class Snapshots:
    """Commits of whole tables; the real ones name files."""

    def __init__(self, world: World) -> None:
        self.world = world

    def newest(self, storage: Any) -> Snapshot:
        numbers = [parse_snapshot_path(file.path) or 0 for file in storage.list(SNAPSHOT_FOLDER)]
        return self.read(storage, max(numbers)) if numbers else NO_SNAPSHOT

    def read(self, storage: Any, number: int) -> Snapshot:
        return Snapshot(**json.loads(storage.get(snapshot_path(number))))

    def commit(self, snapshot: Snapshot) -> None:
        """Conflict when the number is somebody else's; Unavailable when it is not known whose it will be."""
        try:
            self.world.storage.put_if_absent(snapshot_path(snapshot.id), json.dumps(vars(snapshot)).encode())
        except (AlreadyExists, Unavailable) as exc:
            try:
                stored = self.read(self.world.storage, snapshot.id)
            except NotFound:
                raise Unavailable("it is not known whether it was committed") from exc
            if stored.build_id != snapshot.build_id:
                raise Conflict(f"snapshot {snapshot.id} is of {stored.build_id}") from exc
        self.world.counts[f"commits of kind {snapshot.kind}"] += 1

    def commit_behind_fences(self, snapshot: Snapshot) -> None:
        """Only for builds that minted nothing: a fence is a copy of what such a build is based on."""
        try:
            self.commit(snapshot)
        except Conflict:
            if self.read(self.world.storage, snapshot.id).kind != "fence":
                raise
            self.world.counts["commits behind a fence"] += 1
            self.commit_behind_fences(replace(snapshot, id=snapshot.id + 1))


# Processes


@dataclass
class Taken:
    """A table that was taken over."""

    epoch: Epoch
    base: Snapshot
    rows: Rows
    end: int
    """Records of the log that are in the rows."""
    head: int
    """The owner whose segment was the newest."""


def take_over(world: World, me: Process, kind: str, patient: bool = False) -> Generator[str, None, Taken]:
    """Become the owner, however alive the former one is."""
    ownership = TableOwnership(world.storage, TABLE, clock=lambda: 0)
    before = ownership.current()
    if patient and before is not None and world.serves(before):
        raise Conflict("the owner is well")
    head, records = world.log.read()
    yield "before the epoch"
    url = f"http://{me.name}" if kind == "server" else None
    epoch = ownership.take(kind, me.name, url, after=before)
    world.say(f"{me.name} has epoch {epoch.number}")
    yield "has the epoch"
    unfinished = ownership.unfinished_build(epoch, segment_epoch=world.log.head())
    if world.bug == "fences the last epoch only" and before is not None and before.kind != "build":
        unfinished = None
    if unfinished and world.bug != "does not fence":
        yield "before the fence"
        world.counts["fences"] += 1
        newest = world.snapshots.newest(world.storage)
        fence = Snapshot(newest.id + 1, f"fence-{epoch.number}", "fence", newest.rows, newest.offset)
        with suppress(Conflict):  # Somebody has the number: as good.
            world.snapshots.commit(fence)
    yield "before it reads"
    base = world.snapshots.newest(world.storage)
    yield "between snapshot and log"
    if world.bug != "reads before it takes":
        head, records = world.log.read()
    if head >= epoch.number:
        raise Conflict("somebody took over, and has a segment already")
    yield from world.some_time("before the segment")
    if world.bug != "serves before its segment":
        world.log.put_segment(epoch.number, head, len(records))
        yield "behind the segment"
    promised = dict(world.told)
    if world.bug != "does not check its segment" and not ownership.still_holds(epoch):
        world.counts["takeovers that came too late"] += 1
        raise Conflict("somebody took over")
    rows = rows_of(base, records)
    world.expect(base.offset <= len(records), f"snapshot {base.id} covers records that {me.name} does not have")
    world.say(f"{me.name} owns the table by epoch {epoch.number}: {rows}")
    world.counts[f"takeovers by a {kind}"] += 1
    if before is not None and before.kind != "free":
        world.counts["takeovers from an owner"] += 1
    world.expect(promised.items() <= rows.items(), f"owner {epoch.number} does not find what clients were told")
    world.expect(len(set(rows.values())) == len(rows), f"owner {epoch.number} finds an id twice")
    world.adopted[epoch.number] = dict(rows)
    me.epoch = epoch
    return Taken(epoch, base, rows, len(records), head)


def rows_of(snapshot: Snapshot, records: list[Rows]) -> Rows:
    """The rows of a snapshot and of the log behind it."""
    rows = dict(snapshot.rows)
    for record in records[snapshot.offset :]:
        rows.update(record)
    return rows


def server(world: World, me: Process, patient: bool) -> Steps:
    """Takes the table over, then inserts what it is asked for, several requests a flush."""
    ownership = TableOwnership(world.storage, TABLE, clock=lambda: 0)
    taken = yield from take_over(world, me, "server", patient)
    epoch, base = taken.epoch, taken.base
    me.rows = taken.rows
    ids = Ids(world, me, epoch)
    if world.random.random() < 0.5:
        ids.continue_own_claim()
    me.inbox = []
    while True:
        yield "idle"
        chance = world.random.random()
        if chance < 0.2:
            base = yield from load_newest(world, me, ownership, base)
        elif chance < 0.21:
            me.inbox = None
            world.counts["releases"] += ownership.release(epoch)
            return
        group, me.inbox = me.inbox[:3], me.inbox[3:]
        pending: Rows = {}
        try:
            for key in (key for request in group for key in request.keys):
                if key not in me.rows and key not in pending:
                    pending[key] = ids.next_id()
        except (InvalidRequest, Unavailable) as exc:
            # The requests are refused, and nothing was written.
            world.counts[f"no ids: {exc.type}"] += 1
            ids.left = [*pending.values(), *ids.left]
            continue
        if pending:
            if world.bug == "checks before the flush" and not ownership.still_holds(epoch):
                return
            yield from world.some_time("before the flush")
            try:
                if epoch.number not in world.log.segments:  # With a bug only.
                    world.log.put_segment(epoch.number, taken.head, taken.end)
                world.log.append(epoch.number, pending)
            except Unavailable:
                if world.bug == "goes on after a failed flush":
                    continue
                raise  # The record may be durable: start again, and read the log.
            if world.bug == "shows before the check":
                me.rows.update(pending)
            yield "behind the flush"
            unchecked = world.bug in ("acknowledges without a check", "checks before the flush")
            if not unchecked and not ownership.still_holds(epoch):
                world.counts["fenced owners"] += 1
                world.say(f"{me.name} is fenced with {pending}")
                return
            me.rows.update(pending)
            world.counts["flushes"] += 1
            if not ids.owed:
                for number in pending.values():
                    world.check_granted(number, me.name)
            yield "before the answer"
        for request in group:
            request.answer = {key: me.rows[key] for key in request.keys}
            for key, number in request.answer.items():
                world.tell(key, number, epoch, me.name)
        ids.pay()


class Ids:
    """Where a server takes its ids from."""

    def __init__(self, world: World, me: Process, epoch: Epoch) -> None:
        self.world, self.me, self.epoch = world, me, epoch
        self.claims = TableClaims(world.storage, world.climate.limit, clock=lambda: 0)
        self.left: list[int] = []
        self.owed = False
        """With a bug: ids are used whose claim is not made yet."""

    def continue_own_claim(self) -> None:
        """A server that was started again uses the rest of its last claim: the ids above all that it finds in rows."""
        mine = [claim.ids for claim in all_claims(self.claims) if claim.owner == self.me.name]
        if mine:
            used = max((number for number in self.me.rows.values() if number in mine[-1]), default=mine[-1].first - 1)
            self.left = list(range(used + 1, mine[-1].last + 1))
            self.world.counts["continued claims"] += 1

    def next_id(self) -> int:
        """Claims a range when the last one is used up. InvalidRequest when there are no ids any more."""
        size, bug = self.world.climate.cache_size, self.world.bug
        if not self.left and bug == "uses ids before the claim":
            newest = self.claims.newest()
            first = newest.ids.last + 1 if newest else 1
            self.left, self.owed = list(range(first, first + size)), True
        elif not self.left and bug == "extends its range" and self.me.rows:
            first = max(self.me.rows.values()) + 1
            self.left = list(range(first, first + size))
        elif not self.left:
            ids = self.claims.claim(size, owner=self.me.name, epoch=self.epoch.number, purpose="online").ids
            self.left = list(range(ids.first, ids.last + 1))
        return self.left.pop(0)

    def pay(self) -> None:
        """With a bug: make the claim whose ids are used already."""
        if self.owed:
            self.owed = False
            with suppress(InvalidRequest, Unavailable):
                size = self.world.climate.cache_size
                self.claims.claim(size, owner=self.me.name, epoch=self.epoch.number, purpose="online")


def load_newest(world: World, me: Process, ownership: TableOwnership, base: Snapshot) -> Generator[str, None, Snapshot]:
    """Swap a newer snapshot in, and what the own log has behind it."""
    assert me.epoch is not None
    newest = world.snapshots.newest(world.storage)
    if newest.id == base.id:
        return base
    yield "before the swap"
    head, records = world.log.read()
    if head != me.epoch.number or not ownership.still_holds(me.epoch):
        raise Conflict("somebody took over")
    rows = rows_of(newest, records)
    world.counts["swaps"] += 1
    world.expect(newest.offset <= len(records), f"snapshot {newest.id} covers records that {me.name} does not have")
    world.expect(me.rows.items() <= rows.items(), f"{me.name} loses rows as it loads snapshot {newest.id}")
    me.rows = rows
    return newest


def build(world: World, me: Process, keys: set[str], beside: bool) -> Steps:
    """Mints ids for keys and commits a snapshot with them, or has them minted by the owner."""
    ownership = TableOwnership(world.storage, TABLE, clock=lambda: 0)
    current = ownership.current()
    if beside and current is not None and current.kind == "server":
        yield from build_beside(world, me, ownership, current, keys)
        return
    taken = yield from take_over(world, me, "build")
    yield "before the claim"
    unseen = sorted(keys - taken.rows.keys())
    claims = TableClaims(world.storage, world.climate.limit, clock=lambda: 0)
    new: Rows = {}
    try:
        if unseen:
            ids = claims.claim(len(unseen), owner=me.name, epoch=taken.epoch.number, purpose="build").ids
            new = dict(zip(unseen, range(ids.first, ids.last + 1), strict=True))
        yield from world.some_time("before the commit")
        wanted = Snapshot(taken.base.id + 1, me.name, "merge", {**taken.rows, **new}, taken.end)
        if world.bug == "mints and rebases":
            world.snapshots.commit_behind_fences(wanted)
        else:
            world.snapshots.commit(wanted)
        for number in new.values():
            world.check_granted(number, me.name)
    except Unavailable:
        if world.bug != "releases without knowing":
            raise  # The commit may still land: not released, so that the next owner fences it.
    except (InvalidRequest, Conflict):
        world.counts["builds given up"] += 1
    yield "before the release"
    world.counts["releases"] += ownership.release(taken.epoch)


def build_beside(world: World, me: Process, ownership: TableOwnership, owner: Epoch, keys: set[str]) -> Steps:
    """A build that owns nothing: it mints nothing, and covers of the log what every later owner will find."""
    base = world.snapshots.newest(world.storage)
    yield from world.some_time("before it reads the log beside")
    head, records = world.log.read()
    if head != owner.number and world.bug != "reads any log beside":
        return
    yield "behind the log beside"
    if world.bug != "reads the log beside" and not ownership.still_holds(owner):
        return
    rows = rows_of(base, records)
    unseen = sorted(keys - rows.keys())
    if unseen:
        servers = [one for one in world.processes if one.epoch == owner and one.inbox is not None]
        if not servers:
            return
        request = world.ask(servers[0], *unseen)
        for _ in range(60):
            if request.answer is None:
                yield "waiting"
        if request.answer is None:
            return
        world.counts["keys minted for a build"] += len(unseen)
        rows.update(request.answer)
    yield from world.some_time("before the commit beside")
    world.snapshots.commit_behind_fences(Snapshot(base.id + 1, me.name, "merge", rows, len(records)))


# Seeds


def run(seed: int, bug: str = "") -> World:
    world = World(seed, bug)
    world.play()
    return world


def assert_found(bug: str = "") -> None:
    """Some seed finds that a promise is broken."""
    for seed in range(SEARCHED):
        try:
            run(seed, bug)
        except Violation as found:
            print(found)
            return
    pytest.fail(f"{SEARCHED} schedules find no harm in it")


@pytest.mark.long
def test_the_protocol_keeps_its_promises() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        counts.update(run(seed).counts)
    print(dict(sorted(counts.items())))
    rare = [name for name in EVENTS if counts[name] < SCHEDULES // 100]
    assert not rare, f"the schedules hardly have these: {rare}"


EVENTS = (
    "told",
    "flushes",
    "swaps",
    "releases",
    "takeovers by a server",
    "takeovers by a build",
    "takeovers from an owner",
    "takeovers that came too late",
    "fenced owners",
    "fences",
    "commits of kind merge",
    "commits of kind fence",
    "keys minted for a build",
    "continued claims",
    "landed late",
    "landed too late",
    "builds given up",
    "no ids: invalid-request",
    "no ids: unavailable",
)
"""What has to happen often, or the schedules show nothing."""


@pytest.mark.parametrize("bug", BUGS)
def test_seeds_find_every_rule_that_is_left_out(bug: str) -> None:
    assert_found(bug)


@pytest.mark.parametrize("module", ["id_claims", "epochs"])
def test_seeds_find_a_taken_number_that_is_taken_for_ones_own(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    def settled(storage: Storage, path: str, data: bytes, value: Any, read: Callable[[], Any], **said: str) -> Any:
        put_or_settle(storage, path, data, value, read, **said)
        return value

    monkeypatch.setattr(f"stelae.ownership.{module}.put_or_settle", settled)
    assert_found()


def test_a_seed_is_a_schedule() -> None:
    assert run(17).trace == run(17).trace


# Stories: what needs three processes at the wrong moment


class Calm(Random):
    """Nothing happens by chance."""

    def random(self) -> float:
        return 0.999


def calm_world(bug: str) -> World:
    world = World(0, bug)
    world.random, world.climate = Calm(0), Climate()
    return world


def go(world: World, process: Process, moment: str = "") -> None:
    """The process goes on until it comes to this moment, by default until it ends."""
    for _ in range(200):
        if world.advance(process) == moment:
            return
    pytest.fail(f"{process.name} never comes to {moment!r}")


def show(world: World) -> None:
    """A reader is told what the newest snapshot has."""
    newest = world.snapshots.newest(world.files)
    for key, number in newest.rows.items():
        world.tell(key, number, None, f"snapshot {newest.id}")


def a_build_reads_behind_the_end_that_the_new_owner_saw(world: World) -> None:
    """The former owner goes on; a build beside it takes its records for durable ones."""
    former = world.start_server("a")
    go(world, former, "idle")
    world.ask(former, "k1")
    go(world, former, "before the flush")
    beside = world.start_build(set(), beside=True)
    go(world, beside, "before it reads the log beside")
    owner = world.start_server("b")
    go(world, owner, "before the segment")
    go(world, former, "behind the flush")
    go(world, beside)
    show(world)
    go(world, owner, "idle")


def a_build_reads_a_log_that_the_owner_has_not_continued_yet(world: World) -> None:
    """The same, of a build that knows the new owner, before that one has a segment."""
    former = world.start_server("a")
    go(world, former, "idle")
    world.ask(former, "k1")
    go(world, former, "before the flush")
    owner = world.start_server("b")
    go(world, owner, "before the segment")
    go(world, former, "behind the flush")
    go(world, world.start_build(set(), beside=True))
    show(world)
    go(world, owner, "idle")


def a_build_releases_while_its_commit_is_under_way(world: World) -> None:
    """The commit lands when the next owner has given the key another id."""
    minting = world.start_build({"k1"})
    go(world, minting, "before the commit")
    world.climate = replace(world.climate, delay=1)
    while world.advance(minting) == "before the commit":
        pass
    world.climate = replace(world.climate, delay=0)
    if minting in world.processes:
        go(world, minting)
    insert(world, "b", "k1")
    world.delayed.pop()()
    show(world)


def an_owner_crashes_before_it_fences(world: World) -> None:
    """A build is passed over by two servers: the second one has to fence it, since the first did not."""
    minting = world.start_build({"k1"})
    go(world, minting, "before the commit")
    crashing = world.start_server("a")
    go(world, crashing, "has the epoch")
    world.kill(crashing)
    insert(world, "b", "k1")
    while minting in world.processes:
        world.advance(minting)
    show(world)


def insert(world: World, name: str, key: str) -> None:
    """A new server takes the table over, and answers."""
    process = world.start_server(name)
    go(world, process, "idle")
    request = world.ask(process, key)
    go(world, process, "before the answer")
    go(world, process, "idle")
    assert request.answer


STORIES = {
    "reads the log beside": a_build_reads_behind_the_end_that_the_new_owner_saw,
    "reads any log beside": a_build_reads_a_log_that_the_owner_has_not_continued_yet,
    "releases without knowing": a_build_releases_while_its_commit_is_under_way,
    "fences the last epoch only": an_owner_crashes_before_it_fences,
}
"""By the rule that is left out."""


@pytest.mark.parametrize("bug", STORIES)
def test_stories_find_every_rule_that_is_left_out(bug: str) -> None:
    with pytest.raises(Violation) as found:
        STORIES[bug](calm_world(bug))
    print(found.value)


@pytest.mark.parametrize("bug", STORIES)
def test_stories_end_well(bug: str) -> None:
    world = calm_world("")
    STORIES[bug](world)
    world.end()


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        run(number)
