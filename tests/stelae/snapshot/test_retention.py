"""Goal: nothing that a retained snapshot names is ever deleted, and what none names goes.

Method: cases over a local folder and memory; clean-ups planted at the worst moments of builds and rollbacks; random
histories against a model that knows which files exist.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stelae.errors import AlreadyExists, Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.snapshot import retention
from stelae.snapshot.manifest import DataFile, Snapshot
from stelae.snapshot.manifest_json import encode_snapshot
from stelae.snapshot.retention import check_floor
from stelae.snapshot.snapshots import TableSnapshots
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.paths import floor_path, snapshot_path, sst_path
from stelae.storage.sealed_json import seal_json
from stelae.storage.storage import Storage, exists
from tests.faults import FaultyStorage
from tests.stelae.snapshot.commits import HOUR, LATER, TABLE, build, next_snapshot, now_ms, paths_of, upload

# Expire


def test_expire(snapshots: TableSnapshots) -> None:
    made = build(snapshots, 5)
    assert retention.expire(snapshots, 9) == ()
    assert retention.expire(snapshots, 3) == (1, 2)
    assert snapshots.retained() == tuple(made[2:])
    assert snapshots.floor() == 3
    for snapshot_id in (1, 2):
        with pytest.raises(NotFound, match="expired"):
            snapshots.read(snapshot_id)
        assert exists(snapshots.storage, snapshot_path(snapshot_id))
    assert retention.expire(snapshots, 4) == ()
    assert snapshots.floor() == 3
    assert retention.expire(snapshots, 1) == (3, 4)
    for retain in (0, -1):
        with pytest.raises(InvalidRequest):
            retention.expire(snapshots, retain)
    assert snapshots.latest() == made[4]


def test_two_expire_at_once(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    build(snapshots, 5)
    storage.before("put_if_absent", lambda: retention.expire(TableSnapshots(storage.inner, TABLE), 1))
    retention.expire(snapshots, 3)
    assert snapshots.floor() == 5
    build(snapshots, 2)
    storage.before("put_if_absent", lambda: retention.expire(TableSnapshots(storage.inner, TABLE), 2))
    assert retention.expire(snapshots, 2) == ()  # the other one put the same floor
    assert snapshots.floor() == 6


def test_an_expired_name_still_fences(snapshots: TableSnapshots) -> None:
    (first,) = build(snapshots)
    sleeper = next_snapshot(first, upload(snapshots.storage))
    build(snapshots, 3)
    retention.expire(snapshots, 1)
    retention.clean(snapshots, grace_s=HOUR, now_ms=now_ms())
    with pytest.raises(Conflict):
        snapshots.commit(sleeper)
    with pytest.raises(AlreadyExists):
        snapshots.storage.put_if_absent(snapshot_path(sleeper.id), encode_snapshot(sleeper))


# Clean


def test_clean_deletes_what_no_snapshot_needs_and_nothing_else(
    storage: FaultyStorage, snapshots: TableSnapshots
) -> None:
    first, second, _ = build(snapshots, 3)
    orphan = upload(storage, bucket=7)
    storage.put_if_absent("schema/schema-0.json", b"")
    storage.put_if_absent("notes.txt", b"")
    storage.put_if_absent("bucket-0/readme", b"")
    storage.tear("upload")
    with tempfile.NamedTemporaryFile() as local, pytest.raises(Unavailable):
        storage.upload(Path(local.name), sst_path("", 0, uuid4().hex))
    torn = {file.path for file in storage.unfinished()}
    retention.expire(snapshots, 1)
    before = {file.path for file in storage.list()}
    garbage = {orphan.path, *paths_of(first), *paths_of(second)} | torn

    young = retention.clean(snapshots, grace_s=HOUR, now_ms=now_ms())
    assert (young.files, young.kept_young) == ((), 1 + len(torn))  # what the young floor frees is not garbage yet
    trial = retention.clean(snapshots, grace_s=HOUR, now_ms=now_ms() + LATER, dry_run=True)
    assert {file.path for file in storage.list()} == before
    done = retention.clean(snapshots, grace_s=HOUR, now_ms=now_ms() + LATER)
    assert done == trial
    assert {file.path for file in done.files} == garbage
    assert list(done.files) == sorted(done.files, key=lambda file: file.path)
    assert done.bytes == sum(file.bytes for file in done.files)
    assert {file.path for file in storage.list()} == before - garbage
    assert retention.clean(snapshots, grace_s=0, now_ms=now_ms() + LATER).files == ()


def test_clean_keeps_files_that_a_rollback_took_over(snapshots: TableSnapshots) -> None:
    first, second = build(snapshots, 2)
    snapshots.rollback(1, now_ms=0)
    retention.expire(snapshots, 1)
    retention.clean(snapshots, grace_s=0, now_ms=now_ms() + LATER)
    assert [exists(snapshots.storage, path) for path in paths_of(first) + paths_of(second)] == [True, False]


def test_clean_deletes_nothing_when_a_manifest_cannot_be_read(snapshots: TableSnapshots) -> None:
    build(snapshots, 3)
    orphan = upload(snapshots.storage)
    data = snapshots.storage.get(snapshot_path(2))
    for broken in (None, data[:-20], seal_json({"format": 2})):
        snapshots.storage.delete(snapshot_path(2))
        if broken is not None:
            snapshots.storage.put_if_absent(snapshot_path(2), broken)
        with pytest.raises(CorruptData):
            retention.clean(snapshots, grace_s=0, now_ms=now_ms() + LATER)
        assert exists(snapshots.storage, orphan.path)


def test_clean_refuses_a_floor_above_the_newest_snapshot(snapshots: TableSnapshots) -> None:
    (first,) = build(snapshots)
    snapshots.storage.put_if_absent(floor_path(2), b"")
    with pytest.raises(CorruptData, match="newest is 1"):
        retention.clean(snapshots, grace_s=0, now_ms=now_ms() + LATER)
    assert snapshots.missing_files(first) == ()
    check_floor(1, 0, "a table without snapshots")


def test_clean_refuses_a_negative_grace(snapshots: TableSnapshots) -> None:
    with pytest.raises(InvalidRequest):
        retention.clean(snapshots, grace_s=-1, now_ms=0)


def test_two_clean_at_once(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    upload(storage)
    upload(storage)
    other = TableSnapshots(storage.inner, TABLE)
    storage.before("delete", lambda: retention.clean(other, grace_s=0, now_ms=now_ms() + LATER))
    assert len(retention.clean(snapshots, grace_s=0, now_ms=now_ms() + LATER).files) == 2


# The argument for clean, case by case. Time stands still during each, so everything takes less than the grace.


@pytest.fixture
def clock() -> list[float]:
    return [1000.0 * HOUR]


@pytest.fixture
def timed(clock: list[float]) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(lambda: clock[0]))


def clean(storage: Storage, clock: list[float]) -> None:
    retention.clean(TableSnapshots(storage, TABLE), grace_s=HOUR, now_ms=int(clock[0] * 1000))


def test_a_build_commits_while_clean_lists(timed: FaultyStorage, clock: list[float]) -> None:
    """Case 1: files are listed first, so the commit in between is seen, however old its files are."""
    snapshots = TableSnapshots(timed.inner, TABLE)
    file = upload(timed.inner)
    clock[0] += 2 * HOUR  # the build took longer than the grace, and is lucky
    timed.before("list", lambda: snapshots.commit(next_snapshot(None, file)), nth=2)
    clean(timed, clock)
    assert exists(timed, file.path)


def test_a_build_commits_after_clean_listed(timed: FaultyStorage, clock: list[float]) -> None:
    """Case 2: its new file is young, and its parent's file is named by the parent."""
    snapshots = TableSnapshots(timed.inner, TABLE)
    (parent,) = build(snapshots)
    orphan = upload(timed.inner)
    clock[0] += 2 * HOUR
    child = next_snapshot(parent, *parent.files, upload(timed.inner))

    def commit_and_expire() -> None:
        snapshots.commit(child)
        retention.expire(snapshots, 1)

    timed.before("delete", commit_and_expire)
    clean(timed, clock)
    assert not exists(timed, orphan.path)
    assert snapshots.missing_files(child) == ()


def test_a_rollback_meets_expire_and_clean(timed: FaultyStorage, clock: list[float]) -> None:
    """Case 3: the target expires and a clean-up runs just before the manifest of the rollback is put."""
    builder = TableSnapshots(timed.inner, TABLE)
    build(builder, 3)
    clock[0] += 2 * HOUR

    def expire_and_clean() -> None:
        assert retention.expire(builder, 1) == (1, 2)
        clean(timed.inner, clock)

    timed.before("put_if_absent", expire_and_clean)
    back = TableSnapshots(timed, TABLE).rollback(1, now_ms=0)
    assert builder.missing_files(back) == ()
    clock[0] += 2 * HOUR
    clean(timed.inner, clock)
    assert builder.missing_files(back) == ()
    assert builder.latest() == back


def test_a_server_may_load_what_expires_meanwhile(timed: FaultyStorage, clock: list[float]) -> None:
    builder = TableSnapshots(timed.inner, TABLE)
    first, _ = build(builder, 2)
    clock[0] += 2 * HOUR
    retention.expire(builder, 1)
    clean(timed.inner, clock)
    assert builder.missing_files(first) == ()
    clock[0] += HOUR
    clean(timed.inner, clock)
    assert builder.missing_files(first) == tuple(paths_of(first))


# Random histories


class Histories(RuleBasedStateMachine):
    """Builds, rollbacks, expiry, clean-up and time, in any order, against a model in memory.

    A build uploads, and commits later within the grace; one that waited longer gives up, as the grace asks of it.
    """

    grace_s = 100

    def __init__(self) -> None:
        super().__init__()
        self.clock = 10_000.0
        self.storage = FaultyStorage(MemoryStorage(lambda: self.clock))
        self.snapshots = TableSnapshots(self.storage, TABLE)
        self.made: list[Snapshot] = []
        self.floors: list[tuple[float, int]] = [(0, 1)]
        self.files: dict[str, float] = {}
        self.pending: list[tuple[float, DataFile]] = []

    @property
    def floor(self) -> int:
        return max(floor for _, floor in self.floors)

    @rule(seconds=st.sampled_from([1, 40, 99, 100, 101, 300]))
    def wait(self, seconds: int) -> None:
        self.clock += seconds

    @rule()
    def upload(self) -> None:
        file = upload(self.storage)
        self.files[file.path] = self.clock
        self.pending.append((self.clock, file))

    @rule(keep=st.booleans(), lost=st.booleans())
    def commit(self, keep: bool, lost: bool) -> None:
        files = [file for uploaded, file in self.pending if self.clock - uploaded < self.grace_s]
        self.pending = []
        parent = self.made[-1] if self.made else None
        inherited = tuple(parent.files) if parent and keep else ()
        if lost:
            self.storage.lose_answer("put_if_absent")
        self.made.append(self.snapshots.commit(next_snapshot(parent, *inherited, *files)))

    @precondition(lambda self: self.made)
    @rule(back=st.integers(0, 5))
    def rollback(self, back: int) -> None:
        to = self.made[-1].id - back
        if back == 0 or to < self.floor:
            with pytest.raises((InvalidRequest, NotFound)):
                self.snapshots.rollback(to, now_ms=0)
            return
        self.made.append(self.snapshots.rollback(to, now_ms=0))
        assert paths_of(self.made[-1]) == paths_of(self.made[to - 1])

    @rule(retain=st.integers(1, 4))
    def expire(self, retain: int) -> None:
        floor = max(self.floor, len(self.made) - retain + 1)
        assert retention.expire(self.snapshots, retain) == tuple(range(self.floor, floor))
        if floor > self.floor:
            self.floors.append((self.clock, floor))

    @rule(dry_run=st.booleans())
    def clean(self, dry_run: bool) -> None:
        before = self.clock - self.grace_s
        floor = max(floor for put, floor in self.floors if put <= before)
        named = {path for snapshot in self.made[floor - 1 :] for path in paths_of(snapshot)}
        expected = {path for path, uploaded in self.files.items() if path not in named and uploaded <= before}
        report = retention.clean(self.snapshots, grace_s=self.grace_s, now_ms=int(self.clock * 1000), dry_run=dry_run)
        assert {file.path for file in report.files} == expected
        if not dry_run:
            self.files = {path: uploaded for path, uploaded in self.files.items() if path not in expected}

    @invariant()
    def retained_snapshots_are_whole(self) -> None:
        retained = self.snapshots.retained()
        assert list(retained) == self.made[self.floor - 1 :]
        for snapshot in retained:
            assert self.snapshots.missing_files(snapshot) == ()
        assert {file.path for file in self.storage.list() if file.path.endswith(".sst")} == set(self.files)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_histories_on_a_local_folder(tmp_path: Path) -> None:
    """The same argument over real files, with times set by hand: ten builds, each followed by expiry and a clean-up."""
    storage = LocalStorage(tmp_path)
    snapshots = TableSnapshots(storage, TABLE)
    for number in range(10):
        parent = snapshots.latest()
        orphan = upload(storage)
        inherited = tuple(parent.files)[-2:] if parent else ()
        snapshots.commit(next_snapshot(parent, *inherited, upload(storage)))
        retention.expire(snapshots, 3)
        for file in tmp_path.rglob("*.*"):
            os.utime(file, (1000 + number, 1000 + number))
        report = retention.clean(snapshots, grace_s=10, now_ms=(1010 + number) * 1000)
        assert orphan.path in {file.path for file in report.files}
        for snapshot in snapshots.retained():
            assert snapshots.missing_files(snapshot) == ()
    assert snapshots.retained_ids() == (8, 9, 10)
    assert len([file for file in storage.list() if file.path.endswith(".sst")]) == 5
