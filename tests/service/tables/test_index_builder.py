"""Goal: tables that batches ask for get hash indexes, within the room there is, and answer as before.

Method: a server in this process; batches in JSON and Arrow before and after its tables are indexed; online rows above
an index, a new snapshot behind one; indexes that do not fit, or can't be made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from stelae.errors import Unavailable
from stelae.read.partition_tablets import PartitionIndex
from stelae.service.tables import index_builder as hash_indexes
from stelae.service.tables.index_builder import IndexBuilder
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.wire.arrow_stream import read_rows
from tests.service.http.test_arrow import send
from tests.service.serving import LOOKUP, USERS, Server, serving
from tests.tables import commit_rows
from tests.waiting import wait_until

ROWS = 2000
UIDS = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
WITH ('auto-increment.fields' = 'id', 'bucket' = '2')"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Warehouse(tmp_path / "w").create_table(USERS)
    commit_rows(
        table, [{"user_id": i, "name": f"n{i}"} for i in range(ROWS)], hidden=[{"user_id": ROWS + i} for i in range(9)]
    )
    return table


@pytest.fixture(autouse=True)
def few_keys_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_indexes, "LEAST_KEYS", 100)


def index_of(server: Server, name: str = "shop.users") -> Iterator[PartitionIndex]:
    serving_now = server.app.tables[name].serving
    assert serving_now is not None
    return (partition.index for partition in serving_now.reader.partitions.values())


def look(server: Server, indexes: IndexBuilder, name: str = "shop.users") -> bool:
    """Have indexes made; whether all are there."""
    server.run(indexes.look(server.app.tables[name]))
    return all(index.made for index in index_of(server, name))


def ask(server: Server) -> tuple[bytes, bytes]:
    keys = [*range(-10, 200), *range(ROWS - 10, ROWS + 20)]
    in_json = server.post(LOOKUP, {"keys": keys})
    in_arrow = send(server, LOOKUP, pa.table({"user_id": pa.array(keys, pa.int64())}))
    assert [row and row["name"] for row in in_json.json["rows"]] == [f"n{k}" if 0 <= k < ROWS else None for k in keys]
    assert [row and row["name"] for row in read_rows(in_arrow.body).rows.to_pylist()] == [
        row and row["name"] for row in in_json.json["rows"]
    ]
    return in_json.body, in_arrow.body


def test_a_table_that_batches_ask_for_is_indexed(table: Table, tmp_path: Path) -> None:
    with serving(Warehouse(tmp_path / "w"), hash_index_bytes=0) as server:
        indexes = IndexBuilder(server.app.tables, tmp_path, 1 << 30)
        server.get(LOOKUP, user_id=1)
        assert not look(server, indexes)
        before = ask(server)
        assert look(server, indexes)
        [index] = [index.made for index in index_of(server)]
        assert index is not None
        assert indexes.open_bytes == index.bytes
        assert ask(server) == before
        # The next snapshot has another one, and this one goes.
        commit_rows(table, [{"user_id": i, "name": f"n{i}"} for i in range(ROWS)])
        server.poll()
        assert [index.made for index in index_of(server)] == [None]
        assert look(server, indexes)
        ask(server)
        folder = index.directory
        del index
        server.clock.now += 10_000
        commit_rows(table, [{"user_id": i, "name": f"n{i}"} for i in range(ROWS)])
        server.poll()
        # What was served before is closed a little later.
        wait_until(lambda: server.run(_pause()) or not folder.exists())
        indexes.close()


def test_a_server_makes_them_by_itself(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_indexes, "LOOK_INTERVAL_S", 0.01)
    with serving(Warehouse(tmp_path / "w")) as server:
        before = ask(server)
        while not all(index.made for index in index_of(server)):
            server.run(_pause())
        assert ask(server) == before
    with serving(Warehouse(tmp_path / "w"), hash_index_bytes=0) as server:
        ask(server)
        for _ in range(5):
            server.run(_pause())
        assert not any(index.made for index in index_of(server))
    assert not list(tmp_path.rglob("index-*"))


def test_online_rows_above_an_index(table: Table, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    uids = warehouse.create_table(UIDS)
    commit_rows(uids, [{"name": f"n{i}", "id": 1_000_000 + i} for i in range(500)], hidden=[{"name": "gone", "id": 1}])
    path = "/v1/tables/shop.uids/insert-if-not-exists"
    names = [f"n{i}" for i in range(300)] + ["gone"] + [f"new{i}" for i in range(300)]
    with serving(warehouse, hash_index_bytes=0) as server:
        indexes = IndexBuilder(server.app.tables, tmp_path, 1 << 30)
        rows = server.post(path, {"keys": names}).json["rows"]
        assert look(server, indexes, "shop.uids")
        assert server.post(path, {"keys": names}).json["rows"] == rows
        more = [*names, *(f"newer{i}" for i in range(200))]
        answer = server.post(path, {"keys": more}).json
        assert answer["rows"][: len(names)] == rows
        assert answer["inserted"] == [False] * len(names) + [True] * 200
        assert server.post("/v1/tables/shop.uids/lookup", {"keys": more}).json["rows"] == answer["rows"]
        in_arrow = send(server, "/v1/tables/shop.uids/lookup", pa.table({"name": more}))
        assert read_rows(in_arrow.body).rows.to_pylist() == answer["rows"]
        indexes.close()


def test_no_room(table: Table, tmp_path: Path) -> None:
    with serving(Warehouse(tmp_path / "w"), hash_index_bytes=0) as server:
        indexes = IndexBuilder(server.app.tables, tmp_path, 1000)
        before = ask(server)
        assert not look(server, indexes)
        assert ask(server) == before
        indexes.close()


def test_what_can_not_be_made_is_not_tried_again(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fail(*arguments: object) -> None:
        tries.append(arguments)
        raise Unavailable("the disk is full")

    monkeypatch.setattr(hash_indexes, "index_partition_in_background", fail)
    with serving(Warehouse(tmp_path / "w"), hash_index_bytes=0) as server:
        indexes = IndexBuilder(server.app.tables, tmp_path, 1 << 30)
        before = ask(server)
        assert not look(server, indexes)
        assert not look(server, indexes)
        assert len(tries) == 1
        assert ask(server) == before
        indexes.close()


async def _pause() -> None:
    await asyncio.sleep(0.05)
