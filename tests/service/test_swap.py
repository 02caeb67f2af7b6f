"""Goal: snapshots are swapped without failing a request; what does not load leaves what is served as it is, and says
so.

Method: commits, damage and storage faults between polls of a server in this process, whose clock stands still; then
lookups without pause while snapshots come in, each answer checked against the snapshot that it names.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

import stelae.service.watcher
from stelae.read.snapshot_reader import SnapshotReader
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import Int
from stelae.service.tables.served_table import MAX_BACK_OFF_S, State
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table, Warehouse, encode_schema
from stelae.storage.local import LocalStorage
from stelae.storage.paths import snapshot_path
from tests import s3
from tests.faults import FaultyStorage
from tests.service.serving import LOOKUP, USERS, Server, call, serving
from tests.tables import commit_rows
from tests.waiting import WAIT_S, wait_until


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "w")


@pytest.fixture
def users(warehouse: Warehouse) -> Table:
    return warehouse.create_table(USERS)


def commit(table: Table, mark: str, count: int = 20) -> Snapshot:
    return commit_rows(table, [{"user_id": i, "name": mark, "city": str(i)} for i in range(count)])


def name_of(server: Server, user_id: int = 1, headers: dict[str, str] | None = None) -> tuple[str | None, int]:
    """Name and snapshot of an answer."""
    answer = server.get(LOOKUP, headers, user_id=user_id)
    assert answer.status == 200, answer.body
    return (answer.json["row"] or {}).get("name"), answer.json["snapshot"]


def stored(table: Table, path: str) -> Path:
    local = table.storage.local_path(path)
    assert local is not None
    return local


def damage(table: Table, snapshot: Snapshot) -> Path:
    """Flip a bit of a file of the snapshot, leaving hard links to it alone."""
    path = stored(table, next(iter(snapshot.files)).path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)
    return path


def test_a_new_snapshot(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        assert name_of(server) == ("one", 1)
        commit(users, "two")
        assert name_of(server) == ("one", 1)
        server.poll()
        assert name_of(server) == ("two", 2)
        server.poll()
        assert server.app.tables["shop.users"].counts.loads == 2


def test_several_at_once_skip_to_the_newest(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        for mark in ("two", "three", "four"):
            commit(users, mark)
        server.poll()
        assert name_of(server) == ("four", 4)
        assert server.app.tables["shop.users"].counts.loads == 2


def test_rollback(users: Table, warehouse: Warehouse) -> None:
    """A newer manifest with older files."""
    commit(users, "one")
    commit(users, "two")
    with serving(warehouse) as server:
        users.snapshots.rollback(1, now_ms=0)
        server.poll()
        assert name_of(server) == ("one", 3)
        assert server.get("/v1/tables/shop.users").json["served"]["kind"] == "rollback"


def test_a_table_from_its_creation_on(warehouse: Warehouse) -> None:
    with serving(warehouse) as server:
        assert server.get(LOOKUP, user_id=1).problem["status"] == 404
        table = warehouse.create_table(USERS)
        server.poll()
        answer = server.get(LOOKUP, user_id=1)
        assert answer.problem["detail"] == "table shop.users has no snapshot yet"
        assert int(answer.headers["retry-after"]) >= 1
        assert server.app.tables["shop.users"].state is State.EMPTY
        assert server.get("/readyz").status == 200
        commit_rows(table, [])
        server.poll()
        assert server.get(LOOKUP, user_id=1).json == {"found": False, "row": None, "snapshot": 1}
        commit(table, "first")
        server.poll()
        assert name_of(server) == ("first", 2)


def test_named_tables_only(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    commit_rows(warehouse.create_table("CREATE TABLE other (a INT, PRIMARY KEY (a) NOT ENFORCED)"), [{"a": 1}])
    with serving(warehouse, tables=("shop.users", "shop.users")) as server:
        assert list(server.app.tables) == ["shop.users"]
    with serving(warehouse, tables=("other",)) as server:
        assert list(server.app.tables) == ["default.other"]
        assert server.get("/v1/tables/other/lookup", a=1).json["found"] is True


@pytest.mark.parametrize("place", ["folder", "object store"])
def test_loads_in_a_process_apart(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder files are linked, from an object store downloaded; a failure comes back with its kind and place."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with s3.running() as store:
        url, options = (tmp_path / "w", {}) if place == "folder" else ("s3://bucket/warehouse", store.options)
        warehouse = Warehouse(url, **options)
        table = warehouse.create_table(USERS)
        commit(table, "one")
        with serving(warehouse, separate_loads=True) as server:
            commit(table, "two")
            server.poll()
            assert name_of(server) == ("two", 2)
            broken = next(iter(commit(table, "three").files)).path
            if place == "folder":
                stored(table, broken).unlink()
            else:
                del store.objects[next(key for key in store.objects if key.endswith(broken))]
            server.poll()
            assert name_of(server) == ("two", 2)
            error = server.get("/readyz").json["tables"]["shop.users"]["error"]
            assert (error["type"], error["place"]) == ("corrupt-data", broken)
            folders = list(server.watcher._folder.path.iterdir())
            assert len(folders) == 2
            assert not any(path.suffix == ".sst" for folder in folders for path in folder.iterdir())


# Pins


def test_pins(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse, kept_snapshots=2, pinned_snapshots=0) as server:
        for mark in ("two", "three"):
            commit(users, mark)
            server.poll()
        for number, mark in enumerate(("one", "two", "three"), start=1):
            pin = {"Stelae-Snapshot": str(number)}
            assert name_of(server, headers=pin) == (mark, number)
            batch = server.post(LOOKUP, {"keys": [1]}, pin)
            assert (batch.json["rows"][0]["name"], batch.headers["stelae-snapshot"]) == (mark, str(number))
        commit(users, "four")
        server.poll()
        for pin in ("1", "5"):
            problem = server.get(LOOKUP, {"Stelae-Snapshot": pin}, user_id=1).problem
            assert (problem["status"], problem["place"]) == (404, "Stelae-Snapshot")
            assert "4, 3, 2" in problem["hint"]
        assert server.get("/v1/tables/shop.users").json["kept_snapshots"] == [3, 2]


def test_no_snapshot_is_kept(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse, kept_snapshots=0, pinned_snapshots=0) as server:
        commit(users, "two")
        server.poll()
        assert server.get(LOOKUP, {"Stelae-Snapshot": "1"}, user_id=1).problem["status"] == 404


def test_replaced_snapshots_are_closed(users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stelae.service.watcher, "LINGER_S", 0.01)
    commit(users, "one")
    with serving(warehouse, kept_snapshots=1) as server:
        folder = server.watcher._folder.path
        for mark in "abcde":
            commit(users, mark)
            server.poll()
        wait_until(lambda: gc.collect() >= 0 and len(list(folder.iterdir())) <= 2)
        assert len(list(folder.iterdir())) == 2  # the current and a kept one
    assert not folder.exists()
    assert not folder.parent.exists()


# What does not load


def test_a_damaged_file(users: Table, warehouse: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        file = damage(users, commit(users, "two"))
        server.poll()
        assert name_of(server) == ("one", 1)
        table = server.app.tables["shop.users"]
        assert table.state is State.READY
        ready = server.get("/readyz")
        assert ready.status == 200  # it answers all that it did before
        told = ready.json["tables"]["shop.users"]
        assert (told["state"], told["snapshot"], told["newest_snapshot"]) == ("READY", 1, 2)
        assert told["error"]["type"] == "corrupt-data"
        assert told["error"]["place"] in str(file)
        assert server.get("/v1/tables").json["tables"][0]["error"] == told["error"]
        page = server.get("/metrics").body.decode()
        assert 'stelae_load_failures_total{table="shop.users"} 1.0' in page
        assert 'stelae_table_failing{table="shop.users"} 1.0' in page
        assert 'stelae_snapshot_id{table="shop.users"} 1.0' in page
        assert 'stelae_newest_snapshot_id{table="shop.users"} 2.0' in page
        assert caplog.text.count("snapshot 1 is served on") == 1
        assert "checksum" in caplog.text

        commit(users, "three")
        server.poll()  # a newer one is tried at once
        assert name_of(server) == ("three", 3)
        assert table.error is None
        assert server.get("/readyz").json["tables"]["shop.users"]["error"] is None
        assert 'stelae_table_failing{table="shop.users"} 0.0' in server.get("/metrics").body.decode()


@pytest.mark.parametrize("kind", ["truncated", "gone", "manifest cut", "manifest altered", "manifest of another"])
def test_other_damage(users: Table, warehouse: Warehouse, kind: str) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        snapshot = commit(users, "two")
        manifest = stored(users, snapshot_path(2))
        file = stored(users, next(iter(snapshot.files)).path)
        match kind:
            case "truncated":
                content = file.read_bytes()[:-7]
                file.unlink()
                file.write_bytes(content)
            case "gone":
                file.unlink()
            case "manifest cut":
                manifest.write_bytes(manifest.read_bytes()[:100])
            case "manifest altered":
                manifest.write_bytes(manifest.read_bytes().replace(b'"bucket_count": 4', b'"bucket_count": 3'))
            case "manifest of another":
                manifest.write_bytes(stored(users, snapshot_path(1)).read_bytes())
        server.poll()
        assert name_of(server) == ("one", 1)
        assert server.get("/readyz").json["tables"]["shop.users"]["error"]["type"] == "corrupt-data"
        commit(users, "three")  # a build needs no more of its parent than its number
        server.poll()
        assert name_of(server) == ("three", 3)


def test_a_damaged_table_is_retried_less_and_less_often(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        file = damage(users, commit(users, "two"))
        table = server.app.tables["shop.users"]
        server.poll()
        pauses = []
        for failures in range(1, 6):
            assert table.failures == failures
            pauses.append(table.retry_at - server.clock.now)
            server.poll()
            assert table.failures == failures  # not yet
            server.clock.now = table.retry_at
            server.poll()
        assert pauses == [MAX_BACK_OFF_S] * 5  # polls are an hour apart here
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)  # repaired
        server.clock.now = table.retry_at
        server.poll()
        assert name_of(server) == ("two", 2)


def test_pauses_double(users: Table) -> None:
    from stelae.errors import Unavailable
    from stelae.service.tables.served_table import ServedTable

    table = ServedTable(users.name)
    pauses = []
    for _ in range(8):
        table.failed(Unavailable("x"), 0.0, 1.0)
        pauses.append(table.retry_at)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_start_on_a_damaged_snapshot_serves_an_older_one(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    damage(users, commit(users, "two"))
    damage(users, commit(users, "three"))
    with serving(warehouse) as server:
        assert name_of(server) == ("one", 1)
        told = server.get("/readyz")
        assert told.status == 200
        assert told.json["tables"]["shop.users"]["newest_snapshot"] == 3
        assert told.json["tables"]["shop.users"]["error"]["type"] == "corrupt-data"
        commit(users, "four")
        server.poll()
        assert name_of(server) == ("four", 4)


def test_a_start_with_nothing_that_loads(users: Table, warehouse: Warehouse) -> None:
    file = damage(users, commit(users, "one"))
    with serving(warehouse) as server:
        answer = server.get(LOOKUP, user_id=1)
        problem = answer.problem
        assert (problem["status"], problem["type"]) == (503, "urn:stelae:problem:unavailable")
        assert "checksum" in problem["detail"]
        assert problem["place"] in str(file)
        ready = server.get("/readyz")
        assert ready.status == 503
        assert ready.json["tables"]["shop.users"]["state"] == "FAILED"
        assert server.get("/livez").status == 200
        assert 'stelae_table_state{state="FAILED",table="shop.users"} 1.0' in server.get("/metrics").body.decode()
        assert server.get(LOOKUP, {"Stelae-Snapshot": "1"}, user_id=1).problem["status"] == 503
        commit(users, "two")
        server.poll()
        assert name_of(server) == ("two", 2)
        assert server.get("/readyz").status == 200


def test_a_damaged_definition(users: Table, warehouse: Warehouse) -> None:
    """The table is known to be there, and says what is wrong; others are served."""
    commit_rows(warehouse.create_table("CREATE TABLE other (a INT, PRIMARY KEY (a) NOT ENFORCED)"), [{"a": 1}])
    commit(users, "one")
    schema = stored(users, "schema/schema-0.json")
    content = schema.read_bytes()
    schema.write_bytes(content[:-20])
    with serving(warehouse) as server:
        assert server.get("/v1/tables/other/lookup", a=1).json["found"] is True
        assert server.get(LOOKUP, user_id=1).problem["status"] == 503
        told = server.get("/v1/tables/shop.users").json
        assert (told["state"], told["schema"], told["error"]["type"]) == ("FAILED", None, "corrupt-data")
        listed = server.get("/v1/tables").json["tables"]
        assert [(table["name"], table["schema"] is None) for table in listed] == [
            ("default.other", False),
            ("shop.users", True),
        ]
        assert server.get("/readyz").status == 503
        schema.write_bytes(content)
        server.poll()
        assert server.get("/readyz").status == 200
        assert name_of(server) == ("one", 1)
        assert server.app.tables["shop.users"].error is None


def test_a_late_table_that_does_not_load_leaves_the_server_ready(users: Table, warehouse: Warehouse) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        late = warehouse.create_table("CREATE TABLE late (a INT, PRIMARY KEY (a) NOT ENFORCED)")
        damage(late, commit_rows(late, [{"a": i} for i in range(9)]))
        server.poll()
        ready = server.get("/readyz")
        assert (ready.status, ready.json["tables"]["default.late"]["state"]) == (200, "FAILED")


# Storage that fails


def test_storage_out_of_reach(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = FaultyStorage(LocalStorage(tmp_path / "w"))
    warehouse = Warehouse("faulty", storage)
    table = warehouse.create_table(USERS)
    commit(table, "one")
    with serving(warehouse) as server:
        commit(table, "two")
        for _ in range(3):
            storage.fail("folders")
            server.poll()
            assert name_of(server) == ("one", 1)
        assert server.app.counts.poll_failures == 3
        assert caplog.text.count("can't be read; what is loaded is served on") == 1
        assert "stelae_poll_failures_total 3.0" in server.get("/metrics").body.decode()
        server.poll()
        assert name_of(server) == ("two", 2)
        assert "can be read again" not in caplog.text  # an info, not a warning

        commit(table, "three")
        storage.fail("get")  # the manifest
        server.poll()
        assert name_of(server) == ("two", 2)
        assert server.app.tables["shop.users"].failures == 1
        server.clock.now += MAX_BACK_OFF_S
        server.poll()
        assert name_of(server) == ("three", 3)
        storage.fail("head")  # looking for something newer
        server.poll()
        assert server.app.tables["shop.users"].error is None


@pytest.mark.parametrize("operation", ["folders", "head", "list"])
def test_a_start_while_storage_is_out_of_reach(tmp_path: Path, operation: str) -> None:
    """For all tables, or for one: not ready, since nobody knows whether it has a snapshot."""
    storage = FaultyStorage(LocalStorage(tmp_path / "w"))
    warehouse = Warehouse("faulty", storage)
    commit(warehouse.create_table(USERS), "one")

    async def start() -> tuple[int, int]:
        from stelae.service.app import create_app
        from stelae.service.options import ServerOptions

        storage.fail(operation)
        app = create_app(ServerOptions(poll_interval_s=0.05), warehouse)
        async with app.running() as watcher:
            before = await call(app, "GET", "/readyz")
            await asyncio.wait_for(watcher.looked.wait(), 10)
            await watcher.settled()
            await asyncio.sleep(0.05)
            after = await call(app, "GET", "/readyz")
        return before.status, after.status

    assert asyncio.run(start()) == (503, 200)


def test_an_error_that_nobody_foresaw(
    users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(users, "one")
    with serving(warehouse) as server:
        commit(users, "two")
        with monkeypatch.context() as patch:
            patch.setattr(stelae.service.watcher, "open_snapshot", lambda *_, **__: 1 / 0)
            server.poll()
        assert name_of(server) == ("one", 1)
        assert server.get("/readyz").json["tables"]["shop.users"]["error"]["type"] == "internal"
        assert "ZeroDivisionError" in caplog.text
        server.clock.now += MAX_BACK_OFF_S
        server.poll()
        assert name_of(server) == ("two", 2)


# Schemas


def test_schema_evolution(users: Table, warehouse: Warehouse) -> None:
    """A new column: rows of before have null in it, with and without a new snapshot; a renamed one keeps its values."""
    commit(users, "one")
    with serving(warehouse) as server:
        wider = TableSchema(
            id=1,
            columns=(
                users.schema.columns[0],
                Column(1, "label", users.schema.columns[1].type),
                Column(9, "age", Int()),
                users.schema.columns[2],
            ),
            primary_key=users.schema.primary_key,
            partition_keys=(),
            options=users.schema.options,
        )
        users.storage.put_if_absent("schema/schema-1.json", encode_schema(wider))
        server.poll()
        assert server.get(LOOKUP, user_id=1).json == {
            "found": True, "row": {"user_id": 1, "label": "one", "age": None, "city": "1"}, "snapshot": 1,
        }  # fmt: skip
        assert [c["name"] for c in server.get("/v1/tables/shop.users").json["schema"]["columns"]][2] == "age"
        newer = warehouse.table("shop.users")
        first = newer.snapshots.latest()
        commit_rows(newer, [{"user_id": 2, "label": "two", "age": 7, "city": "x"}], onto=first)
        server.poll()
        rows = server.post(LOOKUP, {"keys": [1, 2], "columns": ["age", "label"]}).json["rows"]
        assert rows == [{"age": None, "label": "one"}, {"age": 7, "label": "two"}]
        assert server.get(LOOKUP, user_id=1, columns="name").problem["place"] == "name"


def test_alter_table(users: Table, warehouse: Warehouse) -> None:
    """Added columns are null in rows of before; a pinned snapshot answers as it did."""
    commit(users, "one")
    with serving(warehouse, kept_snapshots=3) as server:
        altered = warehouse.alter_table("ALTER TABLE shop.users ADD COLUMN age INT")
        assert altered is not None
        first = altered.snapshots.latest()
        commit_rows(altered, [{"user_id": 2, "name": "two", "age": 7}], onto=first)
        server.poll()
        rows = server.post(LOOKUP, {"keys": [1, 2]}).json
        assert rows == {
            "rows": [
                {"user_id": 1, "name": "one", "city": "1", "age": None},
                {"user_id": 2, "name": "two", "city": None, "age": 7},
            ],
            "snapshot": 2,
        }
        told = server.get("/v1/tables/shop.users").json
        assert (told["schema"]["id"], told["served"]["schema_id"]) == (1, 1)
        pinned = server.get(LOOKUP, {"Stelae-Snapshot": "1"}, user_id=1).json
        assert pinned["row"] == {"user_id": 1, "name": "one", "city": "1"}


def test_a_snapshot_of_a_newer_definition_than_the_last_look_found(
    users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is altered and built after a look at its definitions and before the load."""
    commit(users, "one")
    with serving(warehouse) as server:
        altered = warehouse.alter_table("ALTER TABLE shop.users ADD COLUMN age INT")
        assert altered is not None
        commit_rows(altered, [{"user_id": 2, "name": "two", "age": 7}], onto=altered.snapshots.latest())
        monkeypatch.setattr(stelae.service.watcher, "exists", lambda storage, path: False)
        server.poll()
        assert server.get(LOOKUP, user_id=2).json["row"] == {"user_id": 2, "name": "two", "city": None, "age": 7}
        assert server.get(LOOKUP, user_id=1).json["row"]["age"] is None
        monkeypatch.undo()
        server.poll()
        assert server.get(LOOKUP, user_id=2).json["snapshot"] == 2


# Under load


def test_lookups_without_pause_while_snapshots_come(users: Table, warehouse: Warehouse) -> None:
    """No request fails, and every answer is whole: all of its rows are of the snapshot that it names.

    Snapshot n has the rows of n * 50 keys, with the name `n`, so an answer that mixed two would be seen.
    """
    commits = 6

    def make(number: int) -> None:
        commit_rows(users, [{"user_id": i, "name": str(number), "city": ""} for i in range(number * 50)])

    make(1)
    seen: Counter[int] = Counter()

    def check(number: int, user_id: int, row: dict[str, Any] | None) -> None:
        if user_id < number * 50:
            assert row is not None, (number, user_id)
            assert row["name"] == str(number)
        else:
            assert row is None

    async def point_lookups(server: Server, first: int) -> None:
        user_id = first
        while not done.is_set():
            user_id = (user_id + 37) % 400
            answer = await call(server.app, "GET", LOOKUP, b"user_id=%d" % user_id)
            assert answer.status == 200, answer.body
            body = orjson.loads(answer.body)
            assert answer.headers["stelae-snapshot"] == str(body["snapshot"])
            check(body["snapshot"], user_id, body["row"])
            seen[body["snapshot"]] += 1
            await asyncio.sleep(0)

    async def batch_lookups(server: Server) -> None:
        keys = list(range(400)) * 3
        while not done.is_set():
            answer = await call(server.app, "POST", LOOKUP, body=[orjson.dumps({"keys": keys})])
            assert answer.status == 200, answer.body
            body = orjson.loads(answer.body)
            for user_id, row in zip(keys, body["rows"], strict=True):
                check(body["snapshot"], user_id, row)
            seen[body["snapshot"]] += 1

    async def prefix_lookups(server: Server) -> None:
        path = "/v1/tables/shop.users/prefix-lookup"
        while not done.is_set():
            answer = await call(server.app, "POST", path, body=[b'{"prefix": {}, "limit": 1000}'])
            assert answer.status == 200, answer.body
            body = orjson.loads(answer.body)
            assert [row["user_id"] for row in body["rows"]] == list(range(body["snapshot"] * 50))
            assert {row["name"] for row in body["rows"]} == {str(body["snapshot"])}
            seen[body["snapshot"]] += 1

    with serving(warehouse) as server:
        done = asyncio.Event()
        asked = [
            server.start(work)
            for work in (*(point_lookups(server, i) for i in range(4)), batch_lookups(server), prefix_lookups(server))
        ]
        for number in range(2, commits + 1):
            make(number)
            server.poll()
            wait_until(lambda number=number: seen[number] or any(future.done() for future in asked))
            assert not any(future.done() for future in asked), [f.exception() for f in asked if f.done()]
        server._loop.call_soon_threadsafe(done.set)
        for future in asked:
            future.result(WAIT_S)
    assert set(seen) == set(range(1, commits + 1))
    assert sum(seen.values()) > 100


def test_a_request_finishes_on_the_snapshot_that_it_began_on(
    users: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when that was replaced, and let go of, in the middle."""
    monkeypatch.setattr(stelae.service.watcher, "LINGER_S", 0.0)
    commit(users, "one", count=10)
    with serving(warehouse, kept_snapshots=0) as server:
        table = server.app.tables["shop.users"]
        served: list[int] = []

        def lookup_many(reader: SnapshotReader, *args: Any) -> Any:
            time.sleep(0.02)  # holds the loop, as large chunks would
            assert table.serving is not None
            served.append(table.serving.reader.id)
            return inner(reader, *args)

        inner = SnapshotReader.lookup_many
        monkeypatch.setattr(SnapshotReader, "lookup_many", lookup_many)
        asked = server.start(call(server.app, "POST", LOOKUP, body=[orjson.dumps({"keys": list(range(10)) * 2000})]))
        while not served:
            time.sleep(0.001)
        commit(users, "two")
        server.poll()
        answer = asked.result(WAIT_S).json
    assert (served[0], served[-1]) == (1, 2)
    assert answer["snapshot"] == 1
    assert {row["name"] for row in answer["rows"]} == {"one"}
