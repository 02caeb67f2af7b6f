"""Goal: insert-if-not-exists gives every key one id, durably, and shows it; and refuses, with reasons, what it can't.

Method: servers in this process on real folders. What a killed or stalled server leaves behind is played by servers that
never get to close; processes that are really killed are in test_crash.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import stelae.log.writer
from stelae.errors import Unavailable
from stelae.log.reader import read_log
from stelae.log.records import Inserted
from stelae.log.table_log import log_folder
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import INT_LIMIT, TableClaims
from stelae.ownership.takeover import take_over
from stelae.service.writes.table_writer import WriteState
from stelae.snapshot.warehouse import Table, Warehouse
from tests.service.serving import Server, call, serving
from tests.tables import all_claims, commit_rows

UIDS = """CREATE TABLE shop.uids (name STRING, id BIGINT, city STRING, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '3', 'auto-increment.fields' = 'id', 'auto-increment.cache-size' = '100')"""
INSERT = "/v1/tables/shop.uids/insert-if-not-exists"
LOOKUP = "/v1/tables/shop.uids/lookup"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "w")


@pytest.fixture
def uids(warehouse: Warehouse) -> Table:
    return warehouse.create_table(UIDS)


@pytest.fixture
def server(warehouse: Warehouse, uids: Table) -> Iterator[Server]:
    with serving(warehouse) as running:
        yield running


def insert(server: Server, *keys: object, **more: object) -> dict[str, Any]:
    answer = server.post(INSERT, {"keys": list(keys), **more})
    assert answer.status == 200, answer.body
    assert len(answer.json["rows"]) == len(answer.json["inserted"]) == len(keys)
    assert answer.headers["stelae-snapshot"] == str(answer.json["snapshot"])
    return answer.json  # type: ignore[no-any-return]


def ids(server: Server, *keys: object) -> list[int]:
    return [row["id"] for row in insert(server, *keys)["rows"]]


def looked_up(server: Server, *keys: str) -> list[int | None]:
    rows = server.post(LOOKUP, {"keys": list(keys)}).json["rows"]
    return [row and row["id"] for row in rows]


def writer_of(server: Server, table: str = "shop.uids") -> Any:
    return server.app.writers[table]


# Rows


def test_new_and_known_keys(server: Server) -> None:
    assert insert(server, "a", {"name": "b"}) == {
        "rows": [{"name": "a", "id": 1, "city": None}, {"name": "b", "id": 2, "city": None}],
        "inserted": [True, True],
        "snapshot": 1,
    }
    again = insert(server, "b", "c", "a")
    assert [row["id"] for row in again["rows"]] == [2, 3, 1]
    assert again["inserted"] == [False, True, False]
    assert insert(server, "b", "c", "a") == {**again, "inserted": [False] * 3}
    assert insert(server)["rows"] == []


def test_a_key_twice_in_a_request(server: Server) -> None:
    answer = insert(server, "a", "b", "a", {"name": "a"})
    assert [row["id"] for row in answer["rows"]] == [1, 2, 1, 1]
    assert answer["inserted"] == [True, True, False, False]


def test_lookups_see_what_was_inserted(server: Server) -> None:
    ids(server, "a", "b", "ä" * 100)
    assert looked_up(server, "b", "x", "ä" * 100) == [2, None, 3]
    assert server.get(LOOKUP, name="a").json == {
        "found": True, "row": {"name": "a", "id": 1, "city": None}, "snapshot": 1,
    }  # fmt: skip
    page = server.post("/v1/tables/shop.uids/prefix-lookup", {"prefix": {}}).json
    assert sorted(row["id"] for row in page["rows"]) == [1, 2, 3]


def test_columns(server: Server) -> None:
    assert insert(server, "a", "b", columns=["id"])["rows"] == [{"id": 1}, {"id": 2}]
    assert insert(server, "a", columns=["city", "name"])["rows"] == [{"city": None, "name": "a"}]
    assert server.post(INSERT, {"keys": ["c"], "columns": ["nope"]}).problem["place"] == "nope"
    # Nothing was inserted by a request that can't be answered.
    assert ids(server, "d") == [3]


def test_rows_of_a_snapshot_are_found(warehouse: Warehouse, uids: Table) -> None:
    commit_rows(uids, [{"name": f"k{i}", "id": i + 1, "city": "Graz"} for i in range(50)])
    TableClaims(uids.storage, 2**40).claim(50, owner="build", epoch=1, purpose="build")
    with serving(warehouse) as server:
        answer = insert(server, "k7", "new", "k49")
        assert answer["rows"][0] == {"name": "k7", "id": 8, "city": "Graz"}
        assert [row["id"] for row in answer["rows"]] == [8, 51, 50]


def test_concurrent_requests_agree(server: Server) -> None:
    async def many() -> list[Any]:
        bodies = [orjson.dumps({"keys": [f"k{(start + i) % 300}" for i in range(40)]}) for start in range(0, 600, 7)]
        headers = {"Content-Type": "application/json"}
        requests = [call(server.app, "POST", INSERT, body=[body], headers=headers) for body in bodies]
        return await asyncio.gather(*requests)

    given: dict[str, int] = {}
    inserted = 0
    for answer in server.run(many()):
        assert answer.status == 200, answer.body
        inserted += sum(answer.json["inserted"])
        for row in answer.json["rows"]:
            assert given.setdefault(row["name"], row["id"]) == row["id"]
    assert inserted == len(given) == 300
    assert sorted(given.values()) == list(range(1, 301))


def test_large_batches_are_one_record_a_bucket(server: Server, uids: Table) -> None:
    ids(server, *(f"k{i}" for i in range(2000)))
    folder = log_folder(uids.storage)
    assert folder is not None
    records = [entry.record for entry in read_log(folder) if isinstance(entry.record, Inserted)]
    assert sorted(record.bucket for record in records) == [0, 1, 2]
    assert sum(len(record.keys) for record in records) == 2000
    assert [claim.ids.count for claim in all_claims(TableClaims(uids.storage, 2**40))] == [2000]


def test_a_table_without_ids(warehouse: Warehouse) -> None:
    warehouse.create_table("CREATE TABLE seen (dt INT, n BIGINT, x STRING, PRIMARY KEY (dt, n) NOT ENFORCED)")
    with serving(warehouse) as server:
        path = "/v1/tables/seen/insert-if-not-exists"
        first = server.post(path, {"keys": [{"dt": 1, "n": 2}, {"n": 3, "dt": 1}]}).json
        assert first["rows"] == [{"dt": 1, "n": 2, "x": None}, {"dt": 1, "n": 3, "x": None}]
        assert first["inserted"] == [True, True]
        assert server.post(path, {"keys": [{"dt": 1, "n": 2}]}).json["inserted"] == [False]


def test_a_partition_that_is_not_there(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "CREATE TABLE t (dt STRING, k STRING, id BIGINT, PRIMARY KEY (dt, k) NOT ENFORCED) PARTITIONED BY (dt) "
        "WITH ('bucket' = '1', 'auto-increment.fields' = 'id')"
    )
    commit_rows(table, [{"dt": "d1", "k": "x", "id": 1}])
    TableClaims(table.storage, 2**40).claim(1, owner="build", epoch=1, purpose="build")
    with serving(warehouse) as server:
        path = "/v1/tables/t/insert-if-not-exists"
        keys = [{"dt": "d9", "k": "x"}, {"dt": "d1", "k": "y"}, {"dt": "d1", "k": "x"}]
        answer = server.post(path, {"keys": keys}).json
        assert answer["rows"] == [None, {"dt": "d1", "k": "y", "id": 2}, {"dt": "d1", "k": "x", "id": 1}]
        assert answer["inserted"] == [False, True, False]
        assert server.post(path, {"keys": keys}).json["inserted"] == [False] * 3


def test_hot_rows_are_bounded(warehouse: Warehouse, uids: Table) -> None:
    with serving(warehouse, hot_rows=10) as server:
        first = ids(server, *(f"k{i}" for i in range(100)))
        assert ids(server, *(f"k{i}" for i in range(100))) == first
        assert ids(server, *(f"k{i}" for i in reversed(range(100)))) == first[::-1]


# Refusals


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"keys": [None]}, 400, "keys[0].name"),
        ({"keys": ["ok", 7]}, 400, "keys[1].name"),
        ({"keys": [{"name": None}]}, 400, "keys[0].name"),
        ({"keys": [{"name": "a", "id": 7}]}, 400, "not a primary-key column"),
        ({"keys": [["a"]]}, 400, "keys[0]"),
        ({"keys": "a"}, 400, "keys must be an array"),
        ({}, 400, "keys must be an array"),
        ({"keys": ["a"], "ids": [1]}, 400, "ids"),
        ({"keys": ["k"] * 100_001}, 413, "100,001 keys"),
        ({"keys": ["a"], "columns": []}, 400, "columns"),
    ],
)
def test_bad_requests_insert_nothing(server: Server, body: Any, status: int, says: str) -> None:
    answer = server.post(INSERT, body)
    assert answer.status == status
    assert says in str(answer.problem)
    assert looked_up(server, "a", "ok", "k") == [None] * 3 if server.app.tables["shop.uids"].serving else True
    assert ids(server, "first") == [1]


def test_an_error_names_the_key_of_the_request(warehouse: Warehouse) -> None:
    warehouse.create_table(
        "CREATE TABLE t (k VARCHAR(3), id INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('auto-increment.fields' = 'id')"
    )
    with serving(warehouse) as server:
        path = "/v1/tables/t/insert-if-not-exists"
        server.post(path, {"keys": ["a", "b"]})
        assert server.post(path, {"keys": ["a", "b", "c", "long"]}).problem["place"] == "keys[3].k"
        assert server.post(path, {"keys": ["a", "b", "c"]}).json["inserted"] == [False, False, True]


def test_other_methods_and_pins(server: Server) -> None:
    assert server.get(INSERT).status == 405
    assert "as it is now" in server.post(INSERT, {"keys": ["a"]}, {"Stelae-Snapshot": "1"}).problem["detail"]


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("k STRING, v STRING NOT NULL", "'bucket' = '1'", "column v is NOT NULL"),
        ("k STRING, v STRING", "'merge-engine' = 'first-row'", "first-row would keep the nulls"),
        ("k STRING, v INT", "'merge-engine' = 'versioned', 'merge-engine.versioned.ver-column' = 'v'", "versioned"),
    ],
)
def test_tables_that_take_none(warehouse: Warehouse, columns: str, options: str, says: str) -> None:
    warehouse.create_table(f"CREATE TABLE t ({columns}, PRIMARY KEY (k) NOT ENFORCED) WITH ({options})")
    with serving(warehouse) as server:
        problem = server.post("/v1/tables/t/insert-if-not-exists", {"keys": ["a"]}).problem
        assert problem["status"] == 400
        assert says in problem["detail"]
        assert writer_of(server, "default.t").state is WriteState.REFUSED
    assert warehouse.table("t").snapshots.latest_id() is None


def test_a_server_that_only_reads(warehouse: Warehouse, uids: Table) -> None:
    with serving(warehouse) as server:
        assert ids(server, "a") == [1]
    with serving(warehouse, online_writes=False) as server:
        problem = server.post(INSERT, {"keys": ["b"]}).problem
        assert (problem["status"], problem["hint"]) == (400, "it was started with --no-online-writes")
    assert TableOwnership(uids.storage, "shop.uids").current().kind == "free"  # type: ignore[union-attr]


def test_storage_without_a_folder() -> None:
    warehouse = Warehouse("memory:")
    commit_rows(warehouse.create_table(UIDS), [{"name": "a", "id": 1}])
    with serving(warehouse) as server:
        problem = server.post(INSERT, {"keys": ["b"]}).problem
        assert problem["status"] == 400
        assert "needs a local folder" in problem["detail"]


def test_int_ids_end(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "CREATE TABLE t (k STRING, id INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('auto-increment.fields' = 'id')"
    )
    TableClaims(table.storage, INT_LIMIT).claim(INT_LIMIT - 3, owner="build", epoch=1, purpose="build")
    path = "/v1/tables/t/insert-if-not-exists"
    with serving(warehouse) as server:
        problem = server.post(path, {"keys": ["a", "b", "c", "d"]}).problem
        assert problem["status"] == 400
        assert "2,147,483,647" in problem["detail"]
        assert [row["id"] for row in server.post(path, {"keys": ["a", "b", "c"]}).json["rows"]] == [
            INT_LIMIT - 2, INT_LIMIT - 1, INT_LIMIT,
        ]  # fmt: skip
        assert "all ids are used up" in server.post(path, {"keys": ["d"]}).problem["detail"]
        assert server.post(path, {"keys": ["c"]}).json["inserted"] == [False]


# Restarts and rebuilds


def test_a_restart_goes_on(warehouse: Warehouse, uids: Table) -> None:
    with serving(warehouse) as server:
        assert ids(server, *"abc") == [1, 2, 3]
    with serving(warehouse) as server:
        assert looked_up(server, *"abcd") == [1, 2, 3, None]
        assert ids(server, "d", "a") == [4, 1]  # in the range that it had claimed
    with serving(warehouse, name="another") as server:
        assert ids(server, "e", "d") == [101, 4]  # ranges of others are not for it
    assert len(all_claims(TableClaims(uids.storage, 2**40))) == 2


def test_a_snapshot_is_swapped_in(server: Server, uids: Table) -> None:
    ids(server, *"abc")
    newest = uids.snapshots.latest()
    assert newest is not None
    # A build that covers the first record, brings b with a city, and c of before it was inserted.
    built = commit_rows(uids, [{"name": "a", "id": 1}, {"name": "b", "id": 2, "city": "Graz"}], buckets=5)
    server.poll()
    assert looked_up(server, *"abcd") == [1, 2, 3, None]
    answer = insert(server, *"abcd")
    assert answer["snapshot"] == built.id
    assert [row["id"] for row in answer["rows"]] == [1, 2, 3, 4]
    assert [row["city"] for row in answer["rows"]] == [None, "Graz", None, None]
    assert looked_up(server, "d") == [4]


def test_inserts_while_snapshots_are_swapped_in(server: Server, uids: Table) -> None:
    given: dict[str, int] = {}

    async def inserting(start: int) -> None:
        for i in range(120):
            keys = [f"k{(start + 3 * i + j) % 900}" for j in range(5)]
            headers = {"Content-Type": "application/json"}
            answer = await call(server.app, "POST", INSERT, body=[orjson.dumps({"keys": keys})], headers=headers)
            assert answer.status == 200, answer.body
            for row in answer.json["rows"]:
                assert given.setdefault(row["name"], row["id"]) == row["id"]

    async def all_of_them() -> None:
        await asyncio.gather(*(inserting(start) for start in (0, 100, 500, 700)))

    ids(server, "first")
    running = server.start(all_of_them())
    while not running.done():
        latest = uids.snapshots.latest()
        assert latest is not None
        commit_rows(uids, [{"name": "first", "id": 1}], buckets=2 + latest.id % 3)
        server.poll()
    running.result()
    assert len(set(given.values())) == len(given)
    for name, number in given.items():
        assert looked_up(server, name) == [number]


# Owners


def test_a_second_server_names_the_owner(server: Server, warehouse: Warehouse) -> None:
    assert ids(server, "a") == [1]
    with serving(warehouse, name="b", advertise_url="http://b:1/") as second:
        problem = second.post(INSERT, {"keys": ["a"]}).problem
        assert problem["status"] == 409
        assert "is owned by server " in problem["detail"]
        assert "http://127.0.0.1:8000" in problem["hint"]
        assert second.get(LOOKUP, name="nobody").status == 200
    assert ids(server, "b") == [2]


def test_a_second_server_takes_over(server: Server, warehouse: Warehouse) -> None:
    assert ids(server, "a", "b") == [1, 2]
    with serving(warehouse, name="b", advertise_url="http://b:1/", take_over=True) as second:
        assert looked_up(second, "a", "b") == [1, 2]
        assert ids(second, "c", "a") == [101, 1]
        # The former owner acknowledges nothing any more, and says who does.
        problem = server.post(INSERT, {"keys": ["d"]}).problem
        assert problem["status"] == 409
        server.poll()
        problem = server.post(INSERT, {"keys": ["d"]}).problem
        assert "is owned by server 'b' at http://b:1" in problem["detail"]
        assert looked_up(server, "a") == [1]
        assert looked_up(second, "d") == [None]
        assert ids(second, "d") == [102]
    server.poll()
    assert ids(server, "d", "e") == [102, 201]


def test_an_owner_that_is_gone_is_followed(warehouse: Warehouse, uids: Table) -> None:
    gone = take_over(uids, "server", "gone", "http://gone")
    with serving(warehouse) as server:
        assert "gone" in server.post(INSERT, {"keys": ["a"]}).problem["detail"]
        gone.close()
        server.poll()
        assert ids(server, "a") == [1]


def test_a_build_that_owns_the_table_is_waited_for(warehouse: Warehouse, uids: Table) -> None:
    with serving(warehouse) as server:
        assert ids(server, "a") == [1]
    build = take_over(uids, "build", "nightly")
    with serving(warehouse, take_over=True) as server:
        problem = server.post(INSERT, {"keys": ["b"]}).problem
        assert problem["status"] == 409
        assert "build 'nightly'" in problem["detail"]
        build.release()
        server.poll()
        assert ids(server, "a", "b") == [1, 2]


# Trouble


def test_a_full_disk(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(server, "a") == [1]
    write = stelae.log.writer.LocalLogFile.write

    def full(self: stelae.log.writer.LocalLogFile, data: bytes) -> None:
        write(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(stelae.log.writer.LocalLogFile, "write", full)
        answer = server.post(INSERT, {"keys": ["b"]})
        assert answer.status == 503
        assert "no space left" in answer.problem["detail"]
        assert answer.headers["retry-after"]
        assert looked_up(server, "a", "b") == [1, None]
        assert server.post(INSERT, {"keys": ["a", "c"]}).status == 503
    server.clock.now += 100
    server.poll()
    assert ids(server, "b", "a") == [2, 1]


def test_a_snapshot_that_comes_after_the_log_failed(
    server: Server, uids: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged stays in sight, although nobody owns the table while the disk is full."""
    assert ids(server, "a") == [1]

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(stelae.log.writer.LocalLogFile, "sync", fail)
        patched.setattr("stelae.service.writes.table_writer._take", fail)
        assert server.post(INSERT, {"keys": ["b"]}).status == 503
        for buckets in (2, 5):
            built = commit_rows(uids, [{"name": "built", "id": 50}], buckets=buckets)
            server.poll()
            assert server.get(LOOKUP, name="built").json["snapshot"] == built.id
            assert looked_up(server, "a", "b", "built") == [1, None, 50]
    server.clock.now += 100
    server.poll()
    assert ids(server, "a", "b") == [1, 2]


def test_a_snapshot_that_comes_after_the_table_was_lost(server: Server, uids: Table) -> None:
    assert ids(server, "a") == [1]
    taken = take_over(uids, "server", "b", "http://b:1", force=True)
    commit_rows(uids, [{"name": "built", "id": 50}], buckets=2)
    server.poll()
    assert looked_up(server, "a", "built") == [1, 50]
    assert writer_of(server).state is WriteState.CLOSED
    server.poll()
    assert looked_up(server, "a", "built") == [1, 50]
    taken.close()
    server.poll()
    assert ids(server, "a", "c") == [1, 2]


def test_a_claim_that_fails(server: Server, uids: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Unavailable("the storage is away")

    with monkeypatch.context() as patched:
        patched.setattr(TableClaims, "claim", fail)
        assert server.post(INSERT, {"keys": ["a"]}).status == 503
    assert ids(server, "a") == [1]


def test_a_restart_after_rows_that_nobody_was_told_of(warehouse: Warehouse, uids: Table) -> None:
    with serving(warehouse) as server:
        ids(server, "a")
        owner = writer_of(server).owner
        # A stalled process: its record is durable, and its epoch is over before it can say so.
        TableOwnership(uids.storage, "shop.uids").take("server", "x", "http://x", after=owner.takeover.epoch)
        assert server.post(INSERT, {"keys": ["b"]}).status == 409
        assert looked_up(server, "b") == [None]
    with serving(warehouse) as server:
        found = ids(server, "b", "a")
        assert found[1] == 1
        assert ids(server, "b") == found[:1]


def test_metrics_and_description(server: Server) -> None:
    ids(server, "a", "b")
    ids(server, "a")
    page = server.get("/metrics").body.decode()
    assert 'stelae_insert_keys_total{result="inserted",table="shop.uids"} 2.0' in page
    assert 'stelae_insert_keys_total{result="found",table="shop.uids"} 1.0' in page
    assert 'stelae_online_rows{table="shop.uids"} 2.0' in page
    assert 'stelae_owned{table="shop.uids"} 1.0' in page
    writes = server.get("/v1/tables/shop.uids").json["writes"]
    assert writes == {"state": "OPEN", "epoch": 1, "online_rows": 2, "log_offset": 2, "error": None}
