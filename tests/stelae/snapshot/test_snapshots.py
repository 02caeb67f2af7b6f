"""Goal: a commit happens once, whoever else writes, and nothing that a retained snapshot names is ever deleted.

Method: cases over a local folder and memory; faults around the one put of a commit; clean-ups planted at the worst
moments of builds and rollbacks; random histories against a model that knows which files exist.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stelae.errors import AlreadyExists, Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.manifest_json import encode_snapshot
from stelae.snapshot.snapshots import TableSnapshots, check_floor
from stelae.storage.checksum import checksum
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.open import open_storage
from stelae.storage.paths import floor_path, snapshot_path, sst_path
from stelae.storage.sealed_json import seal_json
from stelae.storage.storage import Storage, exists
from tests.faults import FaultyStorage
from tests.s3 import running

TABLE = "shop.users"
HOUR = 3600
LATER = 10**9
"""Seconds after which everything is old."""


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(tmp_path / "users") if request.param == "local" else MemoryStorage())


@pytest.fixture
def snapshots(storage: FaultyStorage) -> TableSnapshots:
    return TableSnapshots(storage, TABLE)


def now_ms() -> int:
    return int(time.time() * 1000)


def upload(storage: Storage, bucket: int = 0) -> DataFile:
    """A new data file."""
    path = sst_path("", bucket, uuid4().hex)
    storage.put_if_absent(path, path.encode())
    return DataFile(path, len(path), checksum(path.encode()), 1, 0, b"k", b"k")


def next_snapshot(parent: Snapshot | None, *files: DataFile, **changes: Any) -> Snapshot:
    snapshot = Snapshot(
        table=TABLE,
        id=1 if parent is None else parent.id + 1,
        parent=None if parent is None else parent.id,
        schema_id=0,
        build_id=uuid4().hex,
        kind="merge",
        created_ms=5,
        versions={},
        partitions=(PartitionFiles((), 1, (BucketFiles(0, files),)),),
    )
    return replace(snapshot, **changes)


def build(snapshots: TableSnapshots, count: int = 1) -> list[Snapshot]:
    """Commit some snapshots of one new file each."""
    return [snapshots.commit(next_snapshot(snapshots.latest(), upload(snapshots.storage))) for _ in range(count)]


def paths_of(snapshot: Snapshot) -> list[str]:
    return [file.path for file in snapshot.files]


# Reading


def test_a_table_without_snapshots(snapshots: TableSnapshots) -> None:
    assert snapshots.latest_id() is None
    assert snapshots.latest() is None
    assert not snapshots.has_newer(None)
    assert snapshots.retained() == ()
    assert snapshots.floor() == 1
    assert snapshots.expire(1) == ()
    assert snapshots.clean(grace_s=0, now_ms=now_ms()).files == ()
    with pytest.raises(NotFound, match="never built"):
        snapshots.read(1)


def test_commit_and_read(snapshots: TableSnapshots) -> None:
    first, second = build(snapshots, 2)
    assert (snapshots.latest_id(), snapshots.latest()) == (2, second)
    assert snapshots.read(1) == first
    assert snapshots.retained() == (first, second)
    assert [snapshots.has_newer(snapshot_id) for snapshot_id in (None, 1, 2)] == [True, True, False]
    for snapshot_id in (3, 0, -1):
        with pytest.raises(NotFound):
            snapshots.read(snapshot_id)


def test_ids_are_numbers_not_texts(snapshots: TableSnapshots) -> None:
    build(snapshots, 11)
    assert snapshots.latest_id() == 11
    assert snapshots.retained_ids() == tuple(range(1, 12))


def test_foreign_files_are_not_snapshots(snapshots: TableSnapshots) -> None:
    build(snapshots)
    for name in (
        "snapshot/snapshot-9.json.bak",
        "snapshot/README",
        "snapshot/snapshot-x.json",
        "snapshot/old/snapshot-7.json",
    ):
        snapshots.storage.put_if_absent(name, b"")
    assert snapshots.latest_id() == 1


def test_a_poll_is_one_request(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    build(snapshots, 2)
    storage.calls.clear()
    snapshots.has_newer(2)
    assert storage.calls == [("head", "snapshot/snapshot-3.json")]


def test_a_manifest_under_another_number_is_refused(snapshots: TableSnapshots) -> None:
    snapshot = next_snapshot(None, upload(snapshots.storage))
    snapshots.storage.put_if_absent(snapshot_path(2), encode_snapshot(snapshot))
    with pytest.raises(CorruptData, match="that of snapshot 1"):
        snapshots.latest()


def test_a_corrupt_manifest_names_its_file(snapshots: TableSnapshots) -> None:
    snapshots.storage.put_if_absent(snapshot_path(1), b"{}")
    with pytest.raises(CorruptData, match=r"snapshot-1\.json"):
        snapshots.latest()


# Commit


def test_the_second_of_two_builds_on_one_parent_gets_conflict(snapshots: TableSnapshots) -> None:
    (parent,) = build(snapshots)
    mine = next_snapshot(parent, upload(snapshots.storage), build_id="mine")
    theirs = next_snapshot(parent, upload(snapshots.storage), build_id="theirs")
    snapshots.commit(theirs)
    with pytest.raises(Conflict, match=r"by build theirs, so build mine"):
        snapshots.commit(mine)
    assert snapshots.latest() == theirs
    snapshots.commit(next_snapshot(theirs, build_id="third"))
    with pytest.raises(Conflict):
        snapshots.commit(mine)


def test_another_build_commits_just_before_the_put(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    (parent,) = build(snapshots)
    theirs = next_snapshot(parent, upload(storage), build_id="theirs")
    mine = next_snapshot(parent, upload(storage), build_id="mine")
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).commit(theirs))
    with pytest.raises(Conflict, match="theirs"):
        snapshots.commit(mine)
    assert snapshots.latest() == theirs


def test_one_of_many_racing_builds_wins(snapshots: TableSnapshots) -> None:
    (parent,) = build(snapshots)
    candidates = [next_snapshot(parent, upload(snapshots.storage)) for _ in range(8)]

    def attempt(snapshot: Snapshot) -> Snapshot | None:
        try:
            return snapshots.commit(snapshot)
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [snapshot for snapshot in pool.map(attempt, candidates) if snapshot]
    assert won == [snapshots.latest()]


def test_a_commit_whose_answer_gets_lost_counts_once(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    snapshot = next_snapshot(None, upload(storage))
    storage.lose_answer("put_if_absent")
    assert snapshots.commit(snapshot) == snapshot
    assert snapshots.commit(snapshot) == snapshot
    assert snapshots.retained() == (snapshot,)


def test_a_commit_that_never_arrived_can_be_repeated(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    snapshot = next_snapshot(None, upload(storage))
    storage.fail("put_if_absent")
    with pytest.raises(Unavailable, match="not known whether"):
        snapshots.commit(snapshot)
    assert snapshots.latest() is None
    assert snapshots.commit(snapshot) == snapshot


def test_a_commit_that_cannot_be_looked_at_can_be_repeated(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    snapshot = next_snapshot(None, upload(storage))
    storage.lose_answer("put_if_absent")
    storage.fail("get")
    with pytest.raises(Unavailable, match="not known whether"):
        snapshots.commit(snapshot)
    assert snapshots.commit(snapshot) == snapshot
    assert snapshots.latest_id() == 1


def test_a_commit_on_s3_whose_answer_gets_lost_counts_once() -> None:
    with running() as s3:
        snapshots = TableSnapshots(open_storage("s3://bucket/shop.db/users", **s3.options), TABLE)
        snapshot = next_snapshot(None, upload(snapshots.storage))
        s3.lost_answers = 1
        assert snapshots.commit(snapshot) == snapshot
        assert snapshots.retained() == (snapshot,)


def test_a_lost_answer_to_a_commit_that_lost_the_race(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    mine = next_snapshot(None, upload(storage))
    theirs = next_snapshot(None, upload(storage), build_id="theirs")
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).commit(theirs))
    storage.fail("put_if_absent")
    with pytest.raises(Conflict, match="theirs"):
        snapshots.commit(mine)


def test_a_repeated_commit_after_others_followed(snapshots: TableSnapshots) -> None:
    first, second = build(snapshots, 2)
    assert snapshots.commit(first) == first
    assert snapshots.latest() == second


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda file: {"id": 3, "parent": 2}, InvalidRequest, "cannot follow snapshot 0"),
        (lambda file: {"table": "shop.orders"}, InvalidRequest, "shop.orders"),
        (lambda file: {"parent": 7}, CorruptData, "parent 7"),
        (lambda file: _with(replace(file, bytes=1)), CorruptData, "names 1 files that are not on storage"),
        (lambda file: _with(replace(file, path=sst_path("", 0, "0" * 32))), CorruptData, "not on storage"),
    ],
)
def test_a_commit_that_is_refused_changes_nothing(
    snapshots: TableSnapshots, change: Callable[[DataFile], dict[str, Any]], error: type[Exception], message: str
) -> None:
    file = upload(snapshots.storage)
    with pytest.raises(error, match=message):
        snapshots.commit(replace(next_snapshot(None, file), **change(file)))
    assert snapshots.latest() is None


def _with(file: DataFile) -> dict[str, Any]:
    return {"partitions": (PartitionFiles((), 1, (BucketFiles(0, (file,)),)),)}


# Rollback, expire


def test_rollback(snapshots: TableSnapshots) -> None:
    first, second, third = build(snapshots, 3)
    back = snapshots.rollback(1, now_ms=77, build_id="b")
    assert back == replace(
        first, id=4, parent=3, kind="rollback", build_id="b", created_ms=77, properties={"rollback.to": "1"}
    )
    assert snapshots.retained() == (first, second, third, back)
    again = snapshots.rollback(3, now_ms=78)
    assert paths_of(again) == paths_of(third)
    assert snapshots.rollback(4, now_ms=79).properties == {"rollback.to": "4"}


def test_rollback_that_keeps_keys(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    snapshots = TableSnapshots(storage, TABLE, keeps_keys=True)
    first, second, third = build(snapshots, 3)
    back = snapshots.rollback(1, now_ms=77)
    # Oldest first: of a key in both, what snapshot 1 says counts.
    assert paths_of(back) == [*paths_of(third), *paths_of(first)]
    again = snapshots.rollback(2, now_ms=78)
    assert paths_of(again) == [*paths_of(third), *paths_of(first), *paths_of(second)]
    assert paths_of(snapshots.rollback(4, now_ms=79)) == [*paths_of(second), *paths_of(back)]
    (whole,) = third.partitions
    more = replace(whole, bucket_count=2, buckets=(BucketFiles(0, ()), BucketFiles(1, ())))
    snapshots.commit(replace(third, id=7, parent=6, build_id="r", partitions=(more,)))
    with pytest.raises(InvalidRequest, match="snapshot 1 has 1 buckets, snapshot 7 has 2"):
        snapshots.rollback(1, now_ms=80)


def test_fence(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    empty = next_snapshot(None, upload(storage))
    first = snapshots.fence(empty)
    assert (first.id, first.parent, first.kind) == (1, None, "fence")
    second = snapshots.fence(empty)
    assert (second.id, second.kind, paths_of(second)) == (2, "fence", paths_of(first))
    with pytest.raises(Conflict):
        snapshots.commit(replace(second, build_id="late", kind="merge"))
    # The build that is to be fenced may be faster.
    theirs = next_snapshot(second, upload(storage))
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).commit(theirs))
    assert snapshots.fence(empty) == theirs


def test_rollback_refuses(snapshots: TableSnapshots) -> None:
    with pytest.raises(NotFound):
        snapshots.rollback(1, now_ms=0)
    _, second, _ = build(snapshots, 3)
    with pytest.raises(InvalidRequest, match="newest"):
        snapshots.rollback(3, now_ms=0)
    with pytest.raises(NotFound):
        snapshots.rollback(4, now_ms=0)
    snapshots.expire(2)
    with pytest.raises(NotFound, match="expired"):
        snapshots.rollback(1, now_ms=0)
    snapshots.storage.delete(paths_of(second)[0])
    with pytest.raises(CorruptData, match="not on storage"):
        snapshots.rollback(2, now_ms=0)
    assert snapshots.latest_id() == 3


def test_rollback_meets_a_build(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    _, second = build(snapshots, 2)
    theirs = next_snapshot(second, upload(storage))
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).commit(theirs))
    with pytest.raises(Conflict):
        snapshots.rollback(1, now_ms=0)
    assert snapshots.latest() == theirs


def test_expire(snapshots: TableSnapshots) -> None:
    made = build(snapshots, 5)
    assert snapshots.expire(9) == ()
    assert snapshots.expire(3) == (1, 2)
    assert snapshots.retained() == tuple(made[2:])
    assert snapshots.floor() == 3
    for snapshot_id in (1, 2):
        with pytest.raises(NotFound, match="expired"):
            snapshots.read(snapshot_id)
        assert exists(snapshots.storage, snapshot_path(snapshot_id))
    assert snapshots.expire(4) == ()
    assert snapshots.floor() == 3
    assert snapshots.expire(1) == (3, 4)
    for retain in (0, -1):
        with pytest.raises(InvalidRequest):
            snapshots.expire(retain)
    assert snapshots.latest() == made[4]


def test_two_expire_at_once(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    build(snapshots, 5)
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).expire(1))
    snapshots.expire(3)
    assert snapshots.floor() == 5
    build(snapshots, 2)
    storage.before("put_if_absent", lambda: TableSnapshots(storage.inner, TABLE).expire(2))
    assert snapshots.expire(2) == ()  # the other one put the same floor
    assert snapshots.floor() == 6


def test_an_expired_name_still_fences(snapshots: TableSnapshots) -> None:
    (first,) = build(snapshots)
    sleeper = next_snapshot(first, upload(snapshots.storage))
    build(snapshots, 3)
    snapshots.expire(1)
    snapshots.clean(grace_s=HOUR, now_ms=now_ms())
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
    snapshots.expire(1)
    before = {file.path for file in storage.list()}
    garbage = {orphan.path, *paths_of(first), *paths_of(second)} | torn

    young = snapshots.clean(grace_s=HOUR, now_ms=now_ms())
    assert (young.files, young.kept_young) == ((), 1 + len(torn))  # what the young floor frees is not garbage yet
    trial = snapshots.clean(grace_s=HOUR, now_ms=now_ms() + LATER, dry_run=True)
    assert {file.path for file in storage.list()} == before
    done = snapshots.clean(grace_s=HOUR, now_ms=now_ms() + LATER)
    assert done == trial
    assert {file.path for file in done.files} == garbage
    assert list(done.files) == sorted(done.files, key=lambda file: file.path)
    assert done.bytes == sum(file.bytes for file in done.files)
    assert {file.path for file in storage.list()} == before - garbage
    assert snapshots.clean(grace_s=0, now_ms=now_ms() + LATER).files == ()


def test_clean_keeps_files_that_a_rollback_took_over(snapshots: TableSnapshots) -> None:
    first, second = build(snapshots, 2)
    snapshots.rollback(1, now_ms=0)
    snapshots.expire(1)
    snapshots.clean(grace_s=0, now_ms=now_ms() + LATER)
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
            snapshots.clean(grace_s=0, now_ms=now_ms() + LATER)
        assert exists(snapshots.storage, orphan.path)


def test_clean_refuses_a_floor_above_the_newest_snapshot(snapshots: TableSnapshots) -> None:
    (first,) = build(snapshots)
    snapshots.storage.put_if_absent(floor_path(2), b"")
    with pytest.raises(CorruptData, match="newest is 1"):
        snapshots.clean(grace_s=0, now_ms=now_ms() + LATER)
    assert snapshots.missing_files(first) == ()
    check_floor(1, 0, "a table without snapshots")


def test_clean_refuses_a_negative_grace(snapshots: TableSnapshots) -> None:
    with pytest.raises(InvalidRequest):
        snapshots.clean(grace_s=-1, now_ms=0)


def test_two_clean_at_once(storage: FaultyStorage, snapshots: TableSnapshots) -> None:
    upload(storage)
    upload(storage)
    other = TableSnapshots(storage.inner, TABLE)
    storage.before("delete", lambda: other.clean(grace_s=0, now_ms=now_ms() + LATER))
    assert len(snapshots.clean(grace_s=0, now_ms=now_ms() + LATER).files) == 2


# The argument for clean, case by case. Time stands still during each, so everything takes less than the grace.


@pytest.fixture
def clock() -> list[float]:
    return [1000.0 * HOUR]


@pytest.fixture
def timed(clock: list[float]) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(lambda: clock[0]))


def clean(storage: Storage, clock: list[float]) -> None:
    TableSnapshots(storage, TABLE).clean(grace_s=HOUR, now_ms=int(clock[0] * 1000))


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
        snapshots.expire(1)

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
        assert builder.expire(1) == (1, 2)
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
    builder.expire(1)
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
        assert self.snapshots.expire(retain) == tuple(range(self.floor, floor))
        if floor > self.floor:
            self.floors.append((self.clock, floor))

    @rule(dry_run=st.booleans())
    def clean(self, dry_run: bool) -> None:
        before = self.clock - self.grace_s
        floor = max(floor for put, floor in self.floors if put <= before)
        named = {path for snapshot in self.made[floor - 1 :] for path in paths_of(snapshot)}
        expected = {path for path, uploaded in self.files.items() if path not in named and uploaded <= before}
        report = self.snapshots.clean(grace_s=self.grace_s, now_ms=int(self.clock * 1000), dry_run=dry_run)
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
        snapshots.expire(3)
        for file in tmp_path.rglob("*.*"):
            os.utime(file, (1000 + number, 1000 + number))
        report = snapshots.clean(grace_s=10, now_ms=(1010 + number) * 1000)
        assert orphan.path in {file.path for file in report.files}
        for snapshot in snapshots.retained():
            assert snapshots.missing_files(snapshot) == ()
    assert snapshots.retained_ids() == (8, 9, 10)
    assert len([file for file in storage.list() if file.path.endswith(".sst")]) == 5
