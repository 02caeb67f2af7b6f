"""Goal: a snapshot that a job pins is answered from for as long as the job pins it and the storage retains it, also
after a restart; what can't be had is refused with the reason.

Method: pins on snapshots that are current, replaced, on storage, expired or never were, at a server in this process
whose clock moves when a test says so; a damaged file, and a storage that does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stelae.service.watcher
from stelae.snapshot import retention
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.local import LocalStorage
from stelae.storage.storage import StoredFile
from tests.faults import FaultyStorage
from tests.service.serving import LOOKUP, USERS, Answer, Server, serving
from tests.tables import commit_rows
from tests.waiting import WAIT_S, wait_until

IDLE_S = 600.0


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "w")


@pytest.fixture
def users(warehouse: Warehouse) -> Table:
    return warehouse.create_table(USERS)


def commit(table: Table, *marks: str) -> list[Snapshot]:
    return [commit_rows(table, [{"user_id": i, "name": mark} for i in range(20)]) for mark in marks]


def ask(server: Server, number: int | str) -> Answer:
    return server.get(LOOKUP, {"Stelae-Snapshot": str(number)}, user_id=1)


def name_of(server: Server, number: int) -> str:
    """The name in a pinned snapshot, which must be open."""
    answer = ask(server, number)
    assert (answer.status, answer.headers.get("stelae-snapshot")) == (200, str(number)), answer.body
    name: str = answer.json["row"]["name"]
    return name


def opened(server: Server, number: int) -> str:
    """The same; it may have to be opened first."""
    answer = ask(server, number)
    if answer.status == 503:
        assert answer.problem["detail"] == f"snapshot {number} of shop.users is being opened"
        assert int(answer.headers["retry-after"]) >= 1
        server.run(server.watcher.settled())
    return name_of(server, number)


def open_ids(server: Server) -> list[int]:
    described = server.get("/v1/tables/shop.users").json
    return [described["snapshot"], *described["kept_snapshots"]]


def test_what_is_on_storage_is_opened(users: Table, warehouse: Warehouse) -> None:
    """As after a restart: nothing but the newest snapshot is open."""
    commit(users, "one", "two", "three")
    with serving(warehouse) as server:
        assert open_ids(server) == [3]
        assert opened(server, 1) == "one"
        batch = server.post(LOOKUP, {"keys": [1]}, {"Stelae-Snapshot": "1"})
        assert (batch.json["rows"][0]["name"], batch.json["snapshot"]) == ("one", 1)
        assert open_ids(server) == [3, 1]
        assert server.get(LOOKUP, user_id=1).json["snapshot"] == 3


def test_a_batch_begins_it_as_well(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one", "two")
    with serving(warehouse) as server:
        answer = server.post(LOOKUP, {"keys": [1]}, {"Stelae-Snapshot": "1"})
        assert answer.problem["status"] == 503
        server.run(server.watcher.settled())
        assert name_of(server, 1) == "one"


def test_a_snapshot_that_is_pinned_stays_open(users: Table, warehouse: Warehouse) -> None:
    """While newer ones come, until nobody has pinned it for a while."""
    commit(users, "one")
    with serving(warehouse, kept_snapshots=1, pin_idle_s=IDLE_S) as server:
        for number, mark in enumerate(("two", "three", "four", "five"), start=2):
            assert name_of(server, 1) == "one"
            server.clock.now += IDLE_S - 1
            commit(users, mark)
            server.poll()
            assert server.get(LOOKUP, user_id=1).json["snapshot"] == number
        assert open_ids(server) == [5, 4, 1]
        server.clock.now += 2
        server.poll()
        assert open_ids(server) == [5, 4]
        assert opened(server, 1) == "one"


def test_a_pinned_one_that_was_replaced_a_moment_ago_counts_as_replaced(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse, kept_snapshots=1, pin_idle_s=IDLE_S) as server:
        commit(users, "two")
        server.poll()
        server.clock.now += 10 * IDLE_S
        server.poll()
        assert open_ids(server) == [2, 1]


def test_expired(users: Table, warehouse: Warehouse) -> None:
    """What is open is answered on, also when the storage lets it go."""
    commit(users, "one", "two", "three", "four")
    with serving(warehouse) as server:
        assert opened(server, 2) == "two"
        retention.expire(users.snapshots, 1)
        retention.clean(users.snapshots, grace_s=0, now_ms=int(time.time() * 1000) + 1000)
        problem = ask(server, 1).problem
        assert (problem["status"], problem["place"]) == (404, "Stelae-Snapshot")
        assert problem["detail"] == "snapshot 1 of shop.users is expired, and not open here"
        assert "open are 4, 2" in problem["hint"]
        assert "snapshot.num-retained" in problem["hint"]
        assert name_of(server, 2) == "two"


@pytest.mark.parametrize("number", [0, 3, 10**18])
def test_never_there(users: Table, warehouse: Warehouse, number: int) -> None:
    commit(users, "one", "two")
    with serving(warehouse) as server:
        problem = ask(server, number).problem
        assert problem["status"] == 404
        assert problem["detail"] == f"there never was a snapshot {number} of shop.users: it has 1 to 2"
        assert "open are 2" in problem["hint"]
        assert server.get("/v1/tables/shop.users").json["snapshot"] == 2


def test_places_for_pins_are_bounded(users: Table, warehouse: Warehouse) -> None:
    """The newcomer waits until a place is free: a job that runs does not lose its snapshot to it."""
    commit(users, "one", "two", "three", "four", "five")
    with serving(warehouse, pinned_snapshots=2, pin_idle_s=IDLE_S) as server:
        assert opened(server, 1) == "one"
        server.clock.now += 300
        assert opened(server, 2) == "two"
        problem = ask(server, 3).problem
        assert (problem["status"], problem["type"]) == (503, "urn:stelae:problem:unavailable")
        assert problem["detail"].endswith("as many others as may be are pinned, 1, 2")
        assert "--pinned-snapshots" in problem["hint"]
        assert open_ids(server) == [5, 2, 1]
        server.clock.now += 301
        assert opened(server, 3) == "three"  # the first one is idle by now, and not waited for
        assert open_ids(server) == [5, 3, 2]


def test_a_swap_lets_the_idlest_go(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse, kept_snapshots=0, pinned_snapshots=2, pin_idle_s=IDLE_S) as server:
        for number, mark in enumerate(("two", "three", "four"), start=1):
            name_of(server, number)
            server.clock.now += 1
            commit(users, mark)
            server.poll()
        assert open_ids(server) == [4, 3, 2]


def test_none_may_be_pinned(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one", "two")
    with serving(warehouse, pinned_snapshots=0) as server:
        problem = ask(server, 1).problem
        assert problem["status"] == 404
        assert "--pinned-snapshots" in problem["hint"]


def test_what_was_rolled_back(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one", "two")
    users.snapshots.rollback(1, now_ms=0)
    with serving(warehouse) as server:
        assert server.get(LOOKUP, user_id=1).json["row"]["name"] == "one"
        assert opened(server, 2) == "two"


def test_a_snapshot_that_is_not_served_yet(users: Table, warehouse: Warehouse) -> None:
    """A job pins what a build just made, before the server has looked."""
    commit(users, "one")
    with serving(warehouse) as server:
        commit(users, "two")
        assert ask(server, 2).problem["detail"] == "snapshot 2 of shop.users is being opened"
        server.poll()
        assert name_of(server, 2) == "two"
        assert server.app.tables["shop.users"].counts.loads == 2


def test_tablets_are_shared(users: Table, warehouse: Warehouse) -> None:
    """With whatever is open and has the same files."""
    [first] = commit(users, "one")
    commit_rows(users, [{"user_id": 100, "name": "more"}], onto=first)
    commit(users, "other")
    with serving(warehouse) as server:
        assert opened(server, 1) == "one"
        assert opened(server, 2) == "one"
        serving_now = server.app.tables["shop.users"].serving
        assert serving_now is not None
        one, two = (
            [tablet for part in serving_now.kept[number].reader.partitions.values() for tablet in part.tablets]
            for number in (1, 2)
        )
        assert sum(mine is other for mine, other in zip(one, two, strict=True)) == len(one) - 1


def test_damage(users: Table, warehouse: Warehouse) -> None:
    """Asking does not start an attempt each time; what is served does not care."""
    [first] = commit(users, "one")
    commit(users, "two")
    path = users.storage.local_path(next(iter(first.files)).path)
    assert path is not None
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with serving(warehouse) as server:
        assert ask(server, 1).problem["status"] == 503
        server.run(server.watcher.settled())
        for _ in range(3):
            assert ask(server, 1).problem["type"] == "urn:stelae:problem:corrupt-data"
        assert not server.watcher.pins._opening
        assert server.get("/readyz").status == 200
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        server.clock.now += 61
        assert opened(server, 1) == "one"


def test_a_storage_out_of_reach(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage(tmp_path / "w"))
    warehouse = Warehouse("faulty", storage)
    users = warehouse.create_table(USERS)
    commit(users, "one", "two")
    with serving(warehouse) as server:
        storage.fail("list")
        problem = ask(server, 1).problem
        assert (problem["status"], problem["detail"]) == (503, "planted: out of reach")
        assert server.get(LOOKUP, user_id=1).json["snapshot"] == 2
        assert opened(server, 1) == "one"


def test_many_ask_at_once(users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage is asked once, and a slow one holds nobody else up."""
    commit(users, "one", "two")
    listings: list[str] = []
    go = threading.Event()
    inner = LocalStorage.list

    def slowly(storage: LocalStorage, folder: str = "") -> Iterator[StoredFile]:
        if threading.current_thread().name.startswith("stelae-pins"):
            listings.append(folder)
            go.wait(WAIT_S)
        return inner(storage, folder)

    with serving(warehouse) as server:
        monkeypatch.setattr(LocalStorage, "list", slowly)
        asked: list[Any] = [None] * 20

        def one(index: int) -> None:
            asked[index] = ask(server, 1).status

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(asked))]
        for thread in threads:
            thread.start()
        while not listings:
            time.sleep(0.001)
        assert server.get(LOOKUP, user_id=1).status == 200
        go.set()
        for thread in threads:
            thread.join()
        assert set(asked) <= {200, 503}
        assert len(listings) == 1
        assert opened(server, 1) == "one"


def test_files_go_when_the_last_pin_does(users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stelae.service.watcher, "LINGER_S", 0.01)
    commit(users, "one", "two")
    with serving(warehouse, pin_idle_s=IDLE_S) as server:
        folder = server.watcher._folder.path
        assert opened(server, 1) == "one"
        assert len(list(folder.iterdir())) == 2
        server.clock.now += IDLE_S + 1
        server.poll()
        wait_until(lambda: len(list(folder.iterdir())) <= 1)
        assert len(list(folder.iterdir())) == 1
