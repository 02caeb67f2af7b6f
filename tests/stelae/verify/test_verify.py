"""Goal: a snapshot that is whole verifies; whatever is wrong with it is found, all of it, and named.

Method: small tables, also partitioned and of several sorted runs, committed as they should be; then each claim of a
manifest made false, and files damaged byte by byte, one at a time and several at once. Claims of ids and epochs beside
them, with one of them damaged, lacking or false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from stelae.errors import Unavailable
from stelae.log.records import Inserted
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import BIGINT_LIMIT, Claim, IdRange, TableClaims, encode_claim
from stelae.ownership.new_rows import NewRows
from stelae.ownership.takeover import take_over
from stelae.rocksdb.sst_writer import SstWriter
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.paths import claim_path, epoch_path
from stelae.verify import verify_files
from stelae.verify.verify import VerifyProgress, VerifyReport, verify_snapshot
from tests.faults import FaultyStorage
from tests.tables import commit_rows

USERS = """
    CREATE TABLE shop.users (id BIGINT, name STRING, tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('bucket' = '3')"""
EVENTS = """
    CREATE TABLE shop.events (dt DATE, user_id INT, n INT, v DOUBLE, PRIMARY KEY (dt, user_id, n) NOT ENFORCED)
    PARTITIONED BY (dt) WITH ('bucket' = '2', 'bucket-key' = 'user_id')"""
ROWS = 300


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def users(warehouse: Warehouse) -> Table:
    table = warehouse.create_table(USERS)
    commit_rows(table, [{"id": i, "name": f"n{i}", "tags": [str(i)]} for i in range(ROWS)], hidden=[{"id": -1}])
    return table


def newest(table: Table) -> Snapshot:
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    return snapshot


def verify(table: Table, snapshot: Snapshot | None = None) -> VerifyReport:
    return verify_snapshot(table, snapshot or newest(table))


def test_a_whole_snapshot_has_no_problems(users: Table) -> None:
    told: list[VerifyProgress] = []
    report = verify_snapshot(users, newest(users), listener=told.append)
    assert report.ok, report.problems
    assert (report.files, report.rows, report.hidden_rows) == (3, ROWS + 1, 1)
    assert report.bytes == newest(users).totals.bytes
    assert report.lookups == 3 * 16
    assert told[-1] == VerifyProgress(report.bytes, report.bytes)


def test_partitions_and_several_runs(warehouse: Warehouse) -> None:
    table = warehouse.create_table(EVENTS)
    rows = [
        {"dt": f"2026-11-2{d}", "user_id": u, "n": n, "v": 0.5} for d in range(3) for u in range(9) for n in range(4)
    ]
    days = [_dated(row) for row in rows]
    first = commit_rows(table, days)
    commit_rows(table, days[:20], hidden=days[20:30], onto=first)
    report = verify(table)
    assert report.ok, report.problems
    assert report.rows == len(rows) + 30
    assert report.hidden_rows == 10
    assert report.lookups > 0


def test_an_empty_table(warehouse: Warehouse) -> None:
    table = warehouse.create_table(USERS)
    commit_rows(table, [])
    assert verify(table).ok


def test_a_warehouse_in_memory_is_downloaded() -> None:
    table = Warehouse("memory:").create_table(USERS)
    commit_rows(table, [{"id": i, "name": None, "tags": None} for i in range(50)])
    report = verify(table)
    assert report.ok, report.problems
    assert report.rows == 50


def test_nothing_is_left_behind(users: Table) -> None:
    before = sorted(file.path for file in users.storage.list())
    verify(users)
    assert sorted(file.path for file in users.storage.list()) == before
    assert list(users.storage.unfinished()) == []


# What is wrong


def claims(change: Callable[[DataFile], DataFile]) -> Callable[[Snapshot], Snapshot]:
    """A manifest that says something else of every file of bucket 1."""

    def changed(bucket: BucketFiles) -> BucketFiles:
        return replace(bucket, files=tuple(map(change, bucket.files))) if bucket.bucket == 1 else bucket

    return lambda snapshot: each_bucket(snapshot, changed)


def each_bucket(snapshot: Snapshot, change: Callable[[BucketFiles], BucketFiles]) -> Snapshot:
    def changed(partition: PartitionFiles) -> PartitionFiles:
        return replace(partition, buckets=tuple(map(change, partition.buckets)))

    return replace(snapshot, partitions=tuple(map(changed, snapshot.partitions)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: replace(f, bytes=f.bytes + 1), r"the file has [\d,]+ bytes; the manifest says"),
        (lambda f: replace(f, checksum="xxh3-128:" + "0" * 32), "the file has checksum"),
        (lambda f: replace(f, rows=f.rows + 1), r"rows: \d+; the manifest says"),
        (lambda f: replace(f, hidden_rows=f.hidden_rows + 2), r"tombstones: \d; the manifest says"),
        (lambda f: replace(f, first_key=b"\0"), "first key: [0-9a-f]+; the manifest says 00"),
        (lambda f: replace(f, last_key=b"\xff"), "last key: [0-9a-f]+; the manifest says ff"),
        (lambda f: replace(f, path=f.path.replace("sst-", "sst-0")), "no such file"),
    ],
    ids=["size", "checksum", "rows", "tombstones", "first key", "last key", "path"],
)
def test_what_the_manifest_says_is_held_against_the_file(
    users: Table, change: Callable[[DataFile], DataFile], told: str
) -> None:
    report = verify(users, claims(change)(newest(users)))
    [problem] = report.problems
    assert problem.place.startswith("bucket-1/sst-")
    assert_told(problem.message, told)
    assert report.lookups == 0
    assert report.files == 3


def test_every_problem_is_found(users: Table) -> None:
    snapshot = newest(users)
    paths = [file.path for file in snapshot.files]
    with damaged(users, paths[0]) as path:
        path.write_bytes(path.read_bytes()[:-1])
        with damaged(users, paths[1]) as other:
            other.unlink()
            wrong = each_bucket(
                snapshot,
                lambda bucket: (
                    replace(bucket, files=tuple(replace(f, rows=1, hidden_rows=9) for f in bucket.files))
                    if bucket.bucket == 2
                    else bucket
                ),
            )
            report = verify(users, wrong)
    assert [problem.place for problem in report.problems] == [paths[0], paths[1], paths[2], paths[2]]


@pytest.mark.parametrize("at", [0, 0.1, 0.5, 0.9, 1])
def test_a_changed_byte_is_found(users: Table, at: float) -> None:
    path = next(iter(newest(users).files)).path
    with damaged(users, path) as file:
        data = bytearray(file.read_bytes())
        data[int(at * (len(data) - 1))] ^= 0x10
        file.write_bytes(data)
        report = verify(users)
    [problem] = report.problems
    assert problem.place == path


def test_keys_in_another_bucket_are_found(users: Table) -> None:
    def moved(bucket: BucketFiles) -> BucketFiles:
        return replace(bucket, bucket=(bucket.bucket + 1) % 3)

    snapshot = each_bucket(newest(users), moved)
    [partition] = snapshot.partitions
    ordered = tuple(sorted(partition.buckets, key=lambda bucket: bucket.bucket))
    report = verify(users, replace(snapshot, partitions=(replace(partition, buckets=ordered),)))
    assert len(report.problems) == 3
    for problem in report.problems:
        assert_told(problem.message, r"\d+ keys are of other buckets, key [0-9a-f]{16} of bucket \d")


@pytest.mark.parametrize(
    ("key", "row", "told"),
    [
        (b"\x80" + bytes(7), b"", "row"),
        (b"\x80" + bytes(7), b"\0\0\0", "row"),
        (b"\x80", b"\0\0\0\0\0\0\0\0\0\0\0\0", "key"),
        (b"\x80" + bytes(7), b"\x09\0\0" + bytes(16), "schema id 9"),
    ],
    ids=["empty row", "short row", "short key", "unknown schema"],
)
def test_what_does_not_decode_is_found(users: Table, tmp_path: Path, key: bytes, row: bytes, told: str) -> None:
    local = tmp_path / "made.sst"
    writer = SstWriter(local)
    writer.write([key], [row])
    info = writer.finish()
    snapshot = newest(users)
    path = "bucket-0/sst-00000000-0000-0000-0000-000000000000.sst"
    users.storage.upload(local, path)
    file = DataFile(path, info.bytes, info.checksum, 1, 0, key, key)
    report = verify(
        users,
        each_bucket(snapshot, lambda bucket: replace(bucket, files=(file,)) if bucket.bucket == 0 else bucket),
    )
    [problem] = report.problems
    assert problem.place == path
    assert_told(problem.message, told)


def test_a_lookup_that_gives_another_row_is_found(users: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = verify_files.found_and_stored

    def forgetful(reader: Any, key: dict[str, Any], row: bytes) -> Any:
        found, expected = honest(reader, key, row)
        return (None if key["id"] % 2 else found), expected

    monkeypatch.setattr(verify_files, "found_and_stored", forgetful)
    report = verify(users)
    assert 0 < len(report.problems) < report.lookups
    assert_told(report.problems[0].message, "is not found; its file has {'id': ")


def test_storage_that_fails_says_nothing_about_the_snapshot(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    table = warehouse.create_table(USERS)
    commit_rows(table, [{"id": 1, "name": "a", "tags": []}])
    snapshot = newest(table)
    faulty = FaultyStorage(table.storage)
    faulty.fail("head")
    with pytest.raises(Unavailable):
        verify_snapshot(Table(table.name, faulty, table.schemas), snapshot)


# Ids and owners


@pytest.fixture
def owned(warehouse: Warehouse) -> Table:
    """A table with three epochs and four claims."""
    table = warehouse.create_table(USERS)
    commit_rows(table, [{"id": 1, "name": "a", "tags": []}])
    ownership, claims = TableOwnership(table.storage, str(table.name)), TableClaims(table.storage, BIGINT_LIMIT)
    epoch = None
    for _ in range(3):
        epoch = ownership.take("build", "nightly", after=epoch)
        claims.claim(10, owner="nightly", epoch=epoch.number, purpose="build")
    claims.claim(10, owner="nightly", epoch=3, purpose="build")
    return table


def put_instead(table: Table, path: str, data: bytes) -> None:
    table.storage.delete(path)
    table.storage.put_if_absent(path, data)


def test_ids_and_owners_that_are_whole(owned: Table) -> None:
    assert verify(owned).ok


@pytest.mark.parametrize("path", [claim_path(0), claim_path(1), claim_path(3), epoch_path(1), epoch_path(3)])
def test_a_damaged_claim_or_epoch_is_found(owned: Table, path: str) -> None:
    data = bytearray(owned.storage.get(path))
    data[len(data) // 3] ^= 1
    put_instead(owned, path, bytes(data))
    [problem] = verify(owned).problems
    assert problem.place == path
    assert_told(problem.message, "checksum")


@pytest.mark.parametrize("path", [claim_path(0), claim_path(2), epoch_path(1), epoch_path(2)])
def test_a_claim_or_epoch_that_lacks_is_found(owned: Table, path: str) -> None:
    owned.storage.delete(path)
    [problem] = verify(owned).problems
    assert problem.place == path
    assert_told(problem.message, "no such file, but there are later ones")


def test_many_that_lack_are_told_once(owned: Table) -> None:
    claim = Claim(10**9, IdRange(41, 50), "nightly", 3, "build", "x", 0)
    owned.storage.put_if_absent(claim_path(10**9), encode_claim(claim))
    [problem] = verify(owned).problems
    assert problem.place == claim_path(4)


@pytest.mark.parametrize(
    ("number", "ids", "epoch", "place", "told"),
    [
        (1, (10, 20), 3, "auto-increment", r"claims 0 \(1 to 10\) and 1 \(10 to 20\) have ids in common"),
        (3, (29, 50), 3, "auto-increment", r"claims 2 \(21 to 30\) and 3 \(29 to 50\)"),
        (1, (11, 19), 3, "auto-increment", "claim 2 starts at id 21; expected claim 2 at id 20"),
        (3, (32, 40), 3, "auto-increment", "claim 3 starts at id 32; expected claim 3 at id 31"),
        (3, (31, 40), 4, claim_path(3), "names epoch 4; there are 3"),
    ],
)
def test_claims_that_do_not_fit_are_found(
    owned: Table, number: int, ids: tuple[int, int], epoch: int, place: str, told: str
) -> None:
    claim = Claim(number, IdRange(*ids), "nightly", epoch, "build", "x", 0)
    put_instead(owned, claim_path(number), encode_claim(claim))
    [problem] = verify(owned).problems
    assert problem.place == place
    assert_told(problem.message, told)


def test_all_problems_of_ids_and_owners_are_found(owned: Table) -> None:
    put_instead(owned, claim_path(0), b"{}")
    put_instead(owned, epoch_path(2), owned.storage.get(epoch_path(1)))
    put_instead(owned, claim_path(2), encode_claim(Claim(2, IdRange(15, 30), "a", 1, "online", "x", 0)))
    problems = {problem.place: problem.message for problem in verify(owned).problems}
    assert sorted(problems) == ["auto-increment", claim_path(0), epoch_path(2)]
    assert_told(problems["auto-increment"], "claims 1 .* and 2 .* have ids in common")
    assert_told(problems[epoch_path(2)], "the file holds epoch 1")


UIDS = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('auto-increment.fields' = 'id')"""


@pytest.mark.parametrize(
    ("rows", "logged", "told"),
    [
        ({"a": 1, "b": 2}, {}, ""),
        ({"a": 1, "b": 2}, {"c": 3, "a": 1}, ""),
        ({"a": 1, "b": 1}, {}, "id 1 is of two keys"),
        ({"a": 1, "b": 2}, {"c": 2}, "id 2 is of two keys"),
        ({"a": 1, "b": 2_000_000}, {"c": 2_000_000}, "id 2000000 is of two keys"),
        ({"a": 1, "b": 3_000_001}, {}, "id 3000001 was never claimed; claims end at 3000000"),
        ({"a": 0}, {}, "id 0 was never claimed"),
        ({"a": 1, "b": None}, {}, "1 rows have no id"),
    ],
)
def test_ids(tmp_path: Path, rows: dict[str, int | None], logged: dict[str, int], told: str) -> None:
    table = Warehouse(tmp_path / "w").create_table(UIDS)
    owner = take_over(table, "server", "a", "http://a")
    TableClaims(table.storage, 2**40).claim(3_000_000, owner="a", epoch=1, purpose="online")
    commit_rows(table, [{"name": name, "id": number} for name, number in rows.items()])
    assert owner.writer is not None
    for name, number in {**logged, "last, which may not be durable": 9}.items():
        owner.writer.append([Inserted(0, (), 0, [name.encode()], NewRows(table.schema).rows([number]), 1)])
        owner.writer.flush()
    problems = verify(table).problems
    assert len(problems) == bool(told)
    if told:
        assert problems[0].place == "column id"
        assert_told(problems[0].message, told)


def assert_told(message: str, pattern: str) -> None:
    assert re.search(pattern, message), message


@contextmanager
def damaged(table: Table, path: str) -> Iterator[Path]:
    """A stored file that may be changed: it gets a copy of its bytes, since others may be linked to it."""
    local = table.storage.local_path(path)
    assert local is not None
    data = local.read_bytes()
    local.unlink()
    local.write_bytes(data)
    yield local


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "dt": date.fromisoformat(row["dt"])}
