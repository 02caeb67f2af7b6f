"""Goal: rollback, expire, clean and verify do what they say, and print it.

Method: `run` with arguments on a small warehouse, and what it printed.
"""

from __future__ import annotations

from stelae.snapshot.warehouse import Table
from tests.stelae.cli.printed import Printed
from tests.tables import commit_rows


def test_rollback_expire_clean(stelae: Printed, folder: str, users: Table) -> None:
    commit_rows(users, [{"user_id": 1}])
    assert stelae("rollback", "shop.users", "--to", "1", "-w", folder) == 0
    assert stelae.out == "shop.users: snapshot 3 has the content of snapshot 1, 20 rows\n"
    assert stelae("rollback", "shop.users", "--to", "9", "-w", folder) == 3
    assert stelae("expire", "shop.users", "-w", folder) == 0
    assert stelae.out == "shop.users: nothing to expire, 3 snapshots kept\n"
    assert stelae("expire", "shop.users", "--retain", "1", "-w", folder) == 0
    assert stelae.out.startswith("shop.users: snapshots 1 to 2 expired, 1 snapshot kept")
    assert stelae("clean", "-w", folder) == 0
    assert stelae.out.startswith("shop.users: removed 0 files")
    files = sorted(file.path for file in users.storage.list())
    assert stelae("clean", "-w", folder, "--older-than", "0s", "--dry-run") == 0
    assert "would remove 1 file" in stelae.out
    assert sorted(file.path for file in users.storage.list()) == files
    assert stelae("clean", "shop.users", "-w", folder, "--older-than", "0s") == 0
    assert "removed 1 file" in stelae.out
    assert "warning" in stelae.err
    assert stelae("verify", "shop.users", "-w", folder) == 0


def test_verify_prints_all_problems_and_exits_with_6(stelae: Printed, folder: str, users: Table) -> None:
    assert stelae("verify", "shop.users", "-w", folder) == 0
    assert "everything is as the manifest says" in stelae.out
    paths = [file.path for file in users.snapshots.read(1).files]
    for path in paths:
        local = users.storage.local_path(path)
        assert local is not None
        local.write_bytes(local.read_bytes()[:-10])
    assert stelae("verify", "shop.users", "-w", folder) == 6
    assert all(path in stelae.out for path in paths)
    assert "2 problems" in stelae.err
    assert stelae("verify", "shop.users", "-w", folder, "--json") == 6
    assert [problem["place"] for problem in stelae.json["problems"]] == paths
    assert stelae.json["ok"] is False
