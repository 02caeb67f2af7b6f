"""Goal: a build gets a table that nobody has, leaves one to the server that has it, and gives up only what it may.

Method: leases on tables of files, without Spark. Owners that live are takeovers in this process, which hold their
locks; the server's answers come from a stand-in. Builds with servers and Spark are in write/test_id_assignment.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.builder.lease import lease as lease_module
from stelae.builder.lease.lease import BuildLease, acquire_lease
from stelae.errors import Conflict, CorruptData, Unavailable
from stelae.log.records import Inserted
from stelae.ownership.epochs import Epoch, TableOwnership
from stelae.ownership.id_claims import IdRange
from stelae.ownership.takeover import LogRange, Takeover, empty_snapshot, live_owner, take_over
from stelae.snapshot.warehouse import Table, Warehouse

URL = "http://localhost:1"
KEYED = "CREATE TABLE shop.users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
NUMBERED = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '2', 'auto-increment.fields' = 'id')"""


@pytest.fixture
def numbered(tmp_path: Path) -> Table:
    return Warehouse(tmp_path / "w").create_table(NUMBERED)


def epoch_in_force(table: Table) -> Epoch:
    epoch = TableOwnership(table.storage, str(table.name)).current()
    assert epoch is not None
    return epoch


def write(taken: Takeover, count: int) -> None:
    assert taken.writer is not None
    taken.writer.append([Inserted(0, (), 0, [b"key"], [b"row"], 1) for _ in range(count)])
    taken.writer.flush()


def test_a_table_without_ids_and_log_needs_no_owner(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(KEYED)
    with acquire_lease(table, "1") as lease:
        assert lease == BuildLease(table, "1", None, LogRange(0, 0))
        assert lease.log_parts() == ()
        assert live_owner(table) is None
    with pytest.raises(ValueError, match="gives no ids"):
        _ = lease.claims


def test_a_table_that_nobody_has_is_taken_and_released(numbered: Table) -> None:
    with acquire_lease(numbered, "1") as lease:
        assert lease.owner == "build-1"
        assert live_owner(numbered) == epoch_in_force(numbered)
        assert epoch_in_force(numbered).kind == "build"
        with pytest.raises(Conflict, match="is owned by build 'build-1'"), acquire_lease(numbered, "2"):
            pass
    assert epoch_in_force(numbered).kind == "free"


def test_records_of_a_former_owner_are_covered(numbered: Table) -> None:
    server = take_over(numbered, "server", "a", URL)
    write(server, 3)
    server.close()
    with acquire_lease(numbered, "1") as lease:
        assert (lease.log, lease.server) == (LogRange(0, 3), None)
        assert len(lease.log_parts()) == 1


def test_a_table_of_a_live_server_stays_its_own(numbered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    server = take_over(numbered, "server", "a", URL)
    write(server, 2)
    write(server, 1)
    monkeypatch.setattr(lease_module, "acknowledged", lambda *_: 3)
    with acquire_lease(numbered, "1") as lease:
        assert (lease.server, lease.takeover) == (server.epoch, None)
        assert lease.log == LogRange(0, 3)
    assert epoch_in_force(numbered) == server.epoch
    server.close()


def test_ids_are_claimed_under_the_epoch_in_force(numbered: Table) -> None:
    with acquire_lease(numbered, "1") as lease:
        assert lease.claim_ids(0) is None
        assert lease.claim_ids(5) == IdRange(1, 5)
        claim = lease.claims.newest()
        assert claim is not None
        assert (claim.owner, claim.epoch) == ("build-1", epoch_in_force(numbered).number)


@pytest.mark.parametrize(
    ("error", "left"),
    [(Unavailable("lost"), "build"), (Conflict("second"), "free"), (CorruptData("bad"), "free"), (None, "free")],
)
def test_a_lease_whose_commit_may_still_land_is_not_released(
    numbered: Table, monkeypatch: pytest.MonkeyPatch, error: Exception | None, left: str
) -> None:
    """The next owner fences what may be unfinished; behind a release it would not."""
    snapshot = empty_snapshot(numbered)

    def end() -> None:
        with acquire_lease(numbered, "1") as lease:
            if error is not None:

                def fail(*_: object) -> None:
                    raise error

                monkeypatch.setattr(type(numbered.snapshots), "commit", fail)
            lease.commit(snapshot)

    if error is None:
        end()
    else:
        with pytest.raises(type(error)):
            end()
    assert epoch_in_force(numbered).kind == left
    assert live_owner(numbered) is None
