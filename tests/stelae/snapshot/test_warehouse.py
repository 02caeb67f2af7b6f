"""Goal: a table is created once, found by its name, and read as it was defined.

Method: one suite over a local folder and memory; races; corrupt and foreign files among the tables.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from stelae.errors import AlreadyExists, Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.names import TableName
from stelae.snapshot.warehouse import Table, Warehouse, decode_schema, encode_schema
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.paths import schema_path
from tests.faults import FaultyStorage

USERS = """
CREATE TABLE shop.users (
  user_id BIGINT,
  dt STRING,
  name STRING COMMENT 'as given',
  balance DECIMAL(10, 2),
  PRIMARY KEY (dt, user_id) NOT ENFORCED
) PARTITIONED BY (dt) WITH ('bucket' = '4')
"""
OTHER = "CREATE TABLE shop.users (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('bucket' = '1')"


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(tmp_path / "warehouse") if request.param == "local" else MemoryStorage())


@pytest.fixture
def warehouse(storage: FaultyStorage) -> Warehouse:
    return Warehouse("not used", storage=storage)


def named(table: str) -> str:
    return f"CREATE TABLE {table} (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('bucket' = '1')"


def test_create_and_find(warehouse: Warehouse, storage: FaultyStorage) -> None:
    created = warehouse.create_table(USERS)
    found = warehouse.table("shop.users")
    for table in (created, found):
        assert table.name == TableName("shop", "users")
        assert table.schema.column_names == ("user_id", "dt", "name", "balance")
        assert table.schema.partition_keys == ("dt",)
        assert table.schema.options.bucket == 4
        assert table.schema == table.schemas[0] == created.schema
        assert table.url == f"{storage.url}/shop.db/users"
        assert table.snapshots.latest_id() is None
        assert "shop.users" in repr(table)
    assert [file.path for file in storage.list()] == ["shop.db/users/schema/schema-0.json"]
    assert [file.path for file in found.storage.list()] == ["schema/schema-0.json"]


def test_a_bare_name_is_in_database_default(warehouse: Warehouse) -> None:
    warehouse.create_table(named("users"))
    assert warehouse.tables() == [TableName("default", "users")]
    assert warehouse.table("users").name == warehouse.table("default.users").name


def test_create_from_a_schema(warehouse: Warehouse) -> None:
    schema = warehouse.create_table(USERS).schema
    copy = warehouse.create_table((TableName("shop", "copy"), schema))
    assert copy.schema == schema
    with pytest.raises(InvalidRequest, match="starts with schema 0"):
        warehouse.create_table((TableName("shop", "other"), replace(schema, id=1)))
    with pytest.raises(InvalidRequest):
        warehouse.create_table((TableName("shop", "other"), replace(schema, primary_key=("nope",))))
    assert warehouse.tables() == [TableName("shop", "copy"), TableName("shop", "users")]


def test_a_table_is_created_once(warehouse: Warehouse) -> None:
    warehouse.create_table(USERS)
    for sql in (USERS, OTHER):
        with pytest.raises(AlreadyExists, match=r"shop\.users exists already"):
            warehouse.create_table(sql)
    for existing in (
        warehouse.create_table(OTHER, if_not_exists=True),
        warehouse.create_table(OTHER.replace("TABLE", "TABLE IF NOT EXISTS")),
    ):
        assert existing.schema.partition_keys == ("dt",)


def test_bad_sql_changes_nothing(warehouse: Warehouse, storage: FaultyStorage) -> None:
    with pytest.raises(InvalidRequest):
        warehouse.create_table("CREATE TABLE shop.users (a INT)")
    assert list(storage.list()) == []


def test_one_of_many_racing_creates_wins(warehouse: Warehouse) -> None:
    warehouse.create_table(named("warm_up"))  # sqlglot is imported once

    def create(number: int) -> Table | None:
        sql = f"CREATE TABLE t (c{number} INT, PRIMARY KEY (c{number}) NOT ENFORCED) WITH ('bucket' = '1')"
        try:
            return warehouse.create_table(sql)
        except AlreadyExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [table for table in pool.map(create, range(8)) if table]
    assert [table.schema for table in won] == [warehouse.table("t").schema]


def test_a_create_whose_answer_gets_lost(warehouse: Warehouse, storage: FaultyStorage) -> None:
    storage.lose_answer("put_if_absent")
    with pytest.raises(Unavailable):
        warehouse.create_table(USERS)
    assert warehouse.create_table(USERS, if_not_exists=True).schema.options.bucket == 4


def test_tables_are_sorted_and_foreign_folders_left_out(warehouse: Warehouse, storage: FaultyStorage) -> None:
    assert warehouse.tables() == []
    for name in ("b.x", "a.z", "a.y"):
        warehouse.create_table(named(name))
    for path in (
        "a/y/schema/schema-0.json",
        "a.db/no_schema/bucket-0/x",
        "a.db/only_later/schema/schema-1.json",
        "a.db/.hidden/schema/schema-0.json",
        "x.db/file",
        "readme",
    ):
        storage.put_if_absent(path, b"")
    assert list(map(str, warehouse.tables())) == ["a.y", "a.z", "b.x"]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("shop.user", "did you mean shop.users?"),
        ("users", "did you mean shop.users?"),
        ("shop.USERS", "did you mean shop.users?"),
        ("x.y", "stelae tables lists what the warehouse has"),
    ],
)
def test_a_missing_table_names_the_nearest(warehouse: Warehouse, wanted: str, hint: str) -> None:
    warehouse.create_table(USERS)
    with pytest.raises(NotFound) as raised:
        warehouse.table(wanted)
    assert raised.value.hint == hint
    assert raised.value.place == warehouse.url


def test_a_missing_table_of_an_empty_warehouse(warehouse: Warehouse) -> None:
    with pytest.raises(NotFound) as raised:
        warehouse.table("shop.users")
    assert raised.value.hint == "the warehouse has no tables"


def test_bad_names(warehouse: Warehouse) -> None:
    for name in ("", "a.b.c", "../x", "a/b", ".x"):
        with pytest.raises(InvalidRequest):
            warehouse.table(name)


def test_later_schemas(warehouse: Warehouse) -> None:
    table = warehouse.create_table(USERS)
    second = replace(table.schema, id=1, comment="second")
    table.storage.put_if_absent(schema_path(1), encode_schema(second))
    assert table.schema.id == 0
    reopened = warehouse.table("shop.users")
    assert reopened.schema == second
    assert reopened.schemas == {0: table.schema, 1: second}
    assert table.at_least(1).schemas == reopened.schemas
    assert reopened.at_least(0) is reopened.at_least(1) is reopened
    with pytest.raises(CorruptData, match=r"schema 2 of shop\.users is not there"):
        table.at_least(2)


# Altering


def test_alter_writes_the_next_version(warehouse: Warehouse) -> None:
    table = warehouse.create_table(USERS)
    altered = warehouse.alter_table("ALTER TABLE shop.users ADD (city STRING, zip INT)")
    assert altered is not None
    assert (altered.schema.id, altered.schema.column_names[-2:]) == (1, ("city", "zip"))
    assert [column.id for column in altered.schema.columns] == [0, 1, 2, 3, 4, 5]
    altered = warehouse.alter_table("ALTER TABLE shop.users SET ('snapshot.num-retained' = '2')")
    assert altered is not None
    assert altered.schemas == warehouse.table("shop.users").schemas
    assert altered.schemas[0] == table.schema
    assert altered.schema.options.snapshot_num_retained == 2
    assert altered.schema.columns == altered.schemas[1].columns


def test_alter_without_a_change_or_a_table(warehouse: Warehouse) -> None:
    warehouse.create_table(USERS)
    for sql in ("ADD IF NOT EXISTS name STRING", "ADD COLUMN IF NOT EXISTS (dt INT)"):
        table = warehouse.alter_table(f"ALTER TABLE shop.users {sql}")
        assert table is not None
        assert table.schema.id == 0
    with pytest.raises(NotFound, match=r"no table shop\.user(.|\n)*did you mean shop\.users"):
        warehouse.alter_table("ALTER TABLE shop.user ADD c INT")
    assert warehouse.alter_table("ALTER TABLE IF EXISTS shop.user ADD c INT") is None
    with pytest.raises(InvalidRequest):
        warehouse.alter_table("ALTER TABLE shop.users ADD name STRING")
    assert list(warehouse.table("shop.users").schemas) == [0]


def test_of_two_changes_at_once_one_is_refused(warehouse: Warehouse, storage: FaultyStorage) -> None:
    warehouse.create_table(USERS)
    storage.before("put_if_absent", lambda: warehouse.alter_table("ALTER TABLE shop.users ADD c INT"))
    with pytest.raises(Conflict, match=r"schema 1 of shop\.users"):
        warehouse.alter_table("ALTER TABLE shop.users ADD d INT")
    assert warehouse.table("shop.users").schema.column_names[-1] == "c"
    storage.before("put_if_absent", lambda: warehouse.alter_table("ALTER TABLE shop.users ADD e INT"))
    same = warehouse.alter_table("ALTER TABLE shop.users ADD e INT")
    assert same is not None
    assert same.schema.column_names[-2:] == ("c", "e")


def test_every_changed_byte_of_a_schema_is_noticed(warehouse: Warehouse) -> None:
    data = encode_schema(warehouse.create_table(USERS).schema)
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x01
        with pytest.raises(CorruptData):
            decode_schema(bytes(broken), "here")


def test_a_corrupt_schema_names_its_file(warehouse: Warehouse, storage: FaultyStorage) -> None:
    schema = warehouse.create_table(USERS).schema
    path = "shop.db/users/schema/schema-0.json"
    for content in (b"", b"{}", encode_schema(replace(schema, id=3))):
        storage.delete(path)
        storage.put_if_absent(path, content)
        with pytest.raises(CorruptData) as raised:
            warehouse.table("shop.users")
        assert raised.value.place == f"{storage.url}/{path}"


def test_a_local_warehouse_and_its_tables_pickle(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    assert warehouse.url == (tmp_path / "w").as_uri()
    table = warehouse.create_table(USERS)
    assert pickle.loads(pickle.dumps(warehouse)).tables() == [table.name]
    copy: Table = pickle.loads(pickle.dumps(table))
    assert (copy.name, copy.schema, copy.url) == (table.name, table.schema, table.url)
    assert copy.snapshots.latest_id() is None
    assert Warehouse(warehouse.url).table("shop.users").schema == table.schema
    with pytest.raises(InvalidRequest):
        pickle.dumps(Warehouse("memory:"))
