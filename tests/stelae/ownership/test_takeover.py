"""Goal: whoever takes a table over has all that was acknowledged, keeps its former owner from adding to it, and leaves
an owner that lives alone unless told otherwise.

Method: real files; owners that "end" let go of their lock only, as a killed process does. Ends of processes that do not
say goodbye at all are in tests/service.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stelae.errors import Conflict, InvalidRequest, Unavailable
from stelae.log.reader import read_log
from stelae.log.records import Inserted
from stelae.log.table_log import has_log, log_folder, trim_log
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.takeover import (
    LogRange,
    Takeover,
    durable_log_range,
    live_owner,
    take_over,
)
from stelae.snapshot import retention
from stelae.snapshot.warehouse import Table, Warehouse

URL = "http://localhost:1"
SQL = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '2', 'auto-increment.fields' = 'id')"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Warehouse(tmp_path / "w").create_table(SQL)


def write(taken: Takeover, *keys: bytes) -> None:
    assert taken.writer is not None
    taken.writer.append([Inserted(0, (), 0, [key], [b"row"], 1) for key in keys])
    taken.writer.flush()


def keys_of(table: Table) -> list[bytes]:
    folder = log_folder(table.storage)
    assert folder is not None
    return [key for entry in read_log(folder) if isinstance(entry.record, Inserted) for key in entry.record.keys]


def test_first_owner(table: Table) -> None:
    assert live_owner(table) is None
    taken = take_over(table, "server", "a", URL)
    assert (taken.epoch.number, taken.epoch.owner, taken.log.end) == (1, "a", 0)
    # A server needs a snapshot to answer from.
    assert taken.snapshot == table.snapshots.latest()
    assert taken.snapshot is not None
    assert (taken.snapshot.kind, taken.snapshot.totals.rows, taken.snapshot.partitions[0].bucket_count) == (
        "fence",
        0,
        2,
    )
    assert taken.still_holds()
    assert live_owner(table) == taken.epoch
    taken.release()
    assert live_owner(table) is None
    assert not taken.still_holds()


def test_an_owner_that_lives_is_left_alone(table: Table) -> None:
    taken = take_over(table, "server", "a", URL)
    with pytest.raises(Conflict, match="owned by server 'a' at http://localhost:1") as refused:
        take_over(table, "server", "b", "http://localhost:2")
    assert "--take-over" in (refused.value.hint or "")
    assert taken.still_holds()
    forced = take_over(table, "server", "b", "http://localhost:2", force=True)
    assert not taken.still_holds()
    assert live_owner(table) == forced.epoch
    assert not taken.release()  # too late, and harmless
    assert forced.still_holds()


def test_a_killed_owner_is_followed(table: Table) -> None:
    taken = take_over(table, "server", "a", URL)
    write(taken, b"one", b"two")
    taken.close()
    assert live_owner(table) is None
    follower = take_over(table, "server", "b", URL)
    assert follower.log.end == 2
    write(follower, b"three")
    assert keys_of(table) == [b"one", b"two", b"three"]
    assert [file.name for file in (Path(table.url.removeprefix("file://")) / "owner").glob("*.lock")] == [
        "epoch-000002.lock"
    ]


def test_a_stalled_owner_adds_nothing(table: Table) -> None:
    stalled = take_over(table, "server", "a", URL)
    write(stalled, b"one")
    follower = take_over(table, "server", "b", URL, force=True)
    write(stalled, b"late")  # durable, and of no account
    assert not stalled.still_holds()
    write(follower, b"two")
    assert keys_of(table) == [b"one", b"two"]


def test_a_process_that_is_killed_lets_go(table: Table) -> None:
    warehouse = str(Path(table.url.removeprefix("file://")).parents[1])
    code = f"""
import time
from stelae.ownership.takeover import take_over
from stelae.snapshot.warehouse import Warehouse
taken = take_over(Warehouse({warehouse!r}).table("shop.uids"), "server", "a", "http://h")
print("has it", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"has it\n"
    owner = live_owner(table)
    assert owner is not None
    assert owner.owner == "a"
    process.kill()
    process.wait()
    assert live_owner(table) is None
    assert take_over(table, "server", "b", URL).epoch.number == 2


def test_an_unfinished_build_is_fenced(table: Table) -> None:
    build = take_over(table, "build", "nightly")
    assert (build.snapshot, build.writer) == (None, None)  # no rows, no log: nothing to seal
    build.close()
    server = take_over(table, "server", "a", URL)
    assert server.snapshot is not None
    assert server.snapshot.id == 1
    server.release()
    build = take_over(table, "build", "nightly")
    assert build.snapshot == server.snapshot
    assert build.writer is not None
    build.close()  # killed before it commits snapshot 2
    again = take_over(table, "build", "nightly 2")
    assert again.snapshot is not None
    assert (again.snapshot.id, again.snapshot.kind, again.snapshot.parent) == (2, "fence", 1)
    again.release()
    assert take_over(table, "build", "nightly 3").snapshot == again.snapshot  # released: nothing to fence


def test_two_take_over_at_once(table: Table) -> None:
    first = take_over(table, "build", "x")
    lock = Path(table.url.removeprefix("file://")) / "owner/epoch-000002.lock"
    os.close(os.open(lock, os.O_CREAT))
    second = take_over(table, "build", "y", force=True)
    assert second.epoch.number == 2
    assert not first.still_holds()


def test_a_log_needs_a_local_folder() -> None:
    table = Warehouse("memory:").create_table(SQL)
    with pytest.raises(InvalidRequest, match="needs a local folder"):
        take_over(table, "server", "a", URL)
    build = take_over(table, "build", "nightly")
    assert (build.writer, build.lock) == (None, None)
    build.close()
    assert live_owner(table) is None  # nobody can tell there, so the next build takes over, and fences
    assert take_over(table, "build", "nightly").snapshot is not None


def test_a_warehouse_that_is_read_only(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("stelae.ownership.takeover.try_lock", refuse)
    with pytest.raises(Unavailable, match="Read-only file system"):
        take_over(table, "server", "a", URL)
    assert TableOwnership(table.storage, "shop.uids").current() is None


def test_what_a_build_beside_covers(table: Table) -> None:
    assert not has_log(table)
    assert durable_log_range(table, None) is None
    server = take_over(table, "server", "a", URL)
    assert has_log(table)
    write(server, b"one", b"two")
    write(server, b"three")
    # The last flush may be on no disk yet.
    assert durable_log_range(table, server.snapshot) == LogRange(0, 2)
    # Unless the owner says that it is; what it says of records that nobody can read yet does not count.
    assert durable_log_range(table, server.snapshot, durable=3) == LogRange(0, 3)
    assert durable_log_range(table, server.snapshot, durable=9) == LogRange(0, 3)
    TableOwnership(table.storage, "shop.uids").take("server", "b", URL, after=server.epoch)
    with pytest.raises(Unavailable, match="is being taken over by server 'b'"):
        durable_log_range(table, server.snapshot)


def test_segments_go_when_every_snapshot_covers_them(table: Table) -> None:
    for owner in ("a", "b", "c"):
        taken = take_over(table, "server", owner, URL)
        write(taken, b"one")
        write(taken, b"two")
        taken.close()
    assert trim_log(table) == ()
    newest = table.snapshots.latest()
    assert newest is not None
    (whole,) = newest.partitions
    buckets = tuple(replace(bucket, log_offset=6) for bucket in whole.buckets)
    table.snapshots.commit(replace(newest, id=2, parent=1, partitions=(replace(whole, buckets=buckets),)))
    assert trim_log(table) == ()  # snapshot 1 can still be rolled back to
    retention.expire(table.snapshots, 1)
    assert len(trim_log(table)) == 2
    assert take_over(table, "server", "d", URL).log.end == 6
