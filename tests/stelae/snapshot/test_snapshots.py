"""Goal: a commit happens once, whoever else writes.

Method: cases over a local folder and memory; faults around the one put of a commit; others who commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.snapshot import retention
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.manifest_json import encode_snapshot
from stelae.snapshot.snapshots import TableSnapshots
from stelae.storage.open import open_storage
from stelae.storage.paths import snapshot_path, sst_path
from tests.faults import FaultyStorage
from tests.s3 import running
from tests.stelae.snapshot.commits import TABLE, build, next_snapshot, now_ms, paths_of, upload

# Reading


def test_a_table_without_snapshots(snapshots: TableSnapshots) -> None:
    assert snapshots.latest_id() is None
    assert snapshots.latest() is None
    assert not snapshots.has_newer(None)
    assert snapshots.retained() == ()
    assert snapshots.floor() == 1
    assert retention.expire(snapshots, 1) == ()
    assert retention.clean(snapshots, grace_s=0, now_ms=now_ms()).files == ()
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


# Rollback


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
    retention.expire(snapshots, 2)
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
