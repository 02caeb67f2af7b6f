"""Goal: whatever kind of table keys come in, and whichever client brings them, the rows are those that a list of keys
gets, in the types of the table and from one snapshot.

Method: the real tablet server, with rows of all types, random nulls and misses.
"""
# ruff: noqa: DTZ001 - a TIMESTAMP has no zone.

from __future__ import annotations

import multiprocessing
import pickle
import random
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from stelae.client.client import Client, PrefixRows
from stelae.client.results import SnapshotGone
from stelae.encoding.arrow import arrow_schema
from stelae.errors import InvalidRequest, NotFound, TooLarge, Unavailable
from stelae.schema.table_schema import TableSchema
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse
from tests.service.listening import listening
from tests.stelae.client.clients import CLIENTS
from tests.tables import commit_rows

EVERY = """
    CREATE TABLE shop.every (
        site STRING, at TIMESTAMP_LTZ(6), amount DECIMAL(20, 4), text STRING, short VARCHAR(4), data BYTES,
        small TINYINT, middle SMALLINT, number INT, big BIGINT, ratio FLOAT, score DOUBLE, price DECIMAL(12, 2),
        flag BOOLEAN, born DATE, wakes TIME(0), local TIMESTAMP(3), tags ARRAY<STRING>, sizes MAP<STRING, INT>,
        home ROW<city STRING, since DATE>,
        PRIMARY KEY (site, at, amount) NOT ENFORCED
    ) WITH ('bucket-key' = 'site', 'bucket' = '2')"""
USERS = "CREATE TABLE shop.users (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2')"
UIDS = """
    CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('bucket' = '2', 'auto-increment.fields' = 'id')"""
VISITS = """
    CREATE TABLE shop.visits (day DATE, user_id BIGINT, id BIGINT, PRIMARY KEY (day, user_id) NOT ENFORCED)
    PARTITIONED BY (day) WITH ('bucket' = '1', 'auto-increment.fields' = 'id')"""
DAY = date(2026, 11, 20)
KEY = ["site", "at", "amount"]


@dataclass
class Served:
    url: str
    every: TableSchema
    rows: list[dict[str, Any]]
    """Of shop.every."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    every = warehouse.create_table(EVERY)
    rows = random_rows(random.Random(7), 300)
    commit_rows(every, rows)
    commit_rows(warehouse.create_table(USERS), [{"id": i, "name": f"n{i}", "n": i % 7} for i in range(500)])
    warehouse.create_table(UIDS)
    commit_rows(warehouse.create_table(VISITS), [{"day": DAY, "user_id": 0}])
    with listening(ServerOptions(poll_interval_s=0.05, max_batch_keys=1000, max_page_rows=100), warehouse) as url:
        yield Served(url, every.schema, rows)


@pytest.fixture(params=CLIENTS)
def client(served: Served, request: pytest.FixtureRequest) -> Iterator[Client]:
    with CLIENTS[request.param](served.url) as client:
        yield client


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        row = {
            "text": rng.choice(["", "ä" * rng.randrange(9), f"text {number}"]),
            "short": "x" * rng.randrange(5),
            "data": rng.randbytes(rng.randrange(20)),
            "small": rng.randrange(-128, 128),
            "middle": rng.randrange(-(1 << 15), 1 << 15),
            "number": rng.randrange(-(1 << 31), 1 << 31),
            "big": rng.randrange(-(1 << 63), 1 << 63),
            "ratio": rng.choice([0.5, -1.25, float("inf")]),
            "score": rng.random(),
            "price": Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2),
            "flag": rng.random() < 0.5,
            "born": date(1900, 1, 1) + timedelta(rng.randrange(80_000)),
            "wakes": time(rng.randrange(24), rng.randrange(60), rng.randrange(60)),
            "local": datetime(1960, 1, 1) + timedelta(milliseconds=rng.randrange(10**13)),
            "tags": [rng.choice(["a", None, ""]) for _ in range(rng.randrange(4))],
            "sizes": {f"k{i}": rng.choice([1, None]) for i in range(rng.randrange(3))},
            "home": {"city": rng.choice(["Paris", None]), "since": rng.choice([DAY, None])},
        }
        row = {name: None if rng.random() < 0.2 else value for name, value in row.items()}
        rows.append({"site": rng.choice("abc"), "at": instant(number), "amount": Decimal(number).scaleb(-4)} | row)
    return rows


def instant(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number, microseconds=number)


def keys_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in KEY} for row in rows]


def key_table(keys: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([("site", pa.string()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.decimal128(20, 4))])
    return pa.Table.from_pylist(keys, schema)


def python(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table as a list of keys gets them; a row without any value is None."""
    rows = []
    for row in table.to_pylist():
        if row.get("sizes") is not None:
            row["sizes"] = dict(row["sizes"])
        rows.append(None if all(value is None for value in row.values()) else row)
    return rows


# What comes back


@pytest.mark.parametrize("columns", [None, ["text", "at", "home"], ["site"], "values", "shuffled"])
def test_rows_of_all_types_are_those_of_a_list(served: Served, client: Client, columns: Any) -> None:
    rng = random.Random(repr(columns))
    names = list(served.every.column_names)
    if columns == "values":
        columns = names[3:]
    elif columns == "shuffled":
        columns = rng.sample(names, len(names))
    keys = keys_of(rng.choices(served.rows, k=120))
    for key in rng.sample(keys, 30):
        key["amount"] += 1
    expected = client.lookup_many("shop.every", keys, columns=columns)
    assert 0 < expected.count(None) < len(keys)
    got = client.lookup_many("shop.every", key_table(keys), columns=columns)
    assert python(got) == expected
    assert got.column_names == (columns or names)
    wanted = arrow_schema([served.every.by_name[name] for name in got.column_names])
    assert [field.type for field in got.schema] == [field.type for field in wanted]
    assert all(field.nullable for field in got.schema)
    assert got.schema.metadata == {b"stelae.snapshot": b"1"}


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("kind", CLIENTS)
def test_parts_come_together_in_order(served: Served, kind: str, batch_size: int, parallel: int) -> None:
    ids = random.Random(batch_size).choices(range(-20, 520), k=100)
    expected = [{"id": i, "n": i % 7} if 0 <= i < 500 else None for i in ids]
    with CLIENTS[kind](served.url, batch_size=batch_size, parallel=parallel) as client:
        table = pa.table({"id": ids})
        assert python(client.lookup_many("shop.users", table, columns=["id", "n"])) == expected
        assert client.lookup_many("shop.users", ids, columns=["id", "n"]) == expected
        assert client.lookup_many("shop.users", table, found="f")["f"].to_pylist() == [
            row is not None for row in expected
        ]
        assert client.stats.keys == 300
        assert client.stats.requests == 1 + 3 * -(-100 // batch_size)


KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: pa.table({"id": [42, -1, 7]}),
    "batch": lambda: pa.record_batch({"id": pa.array([42, -1, 7], pa.int16())}),
    "chunks": lambda: pa.table({"id": pa.chunked_array([[42], [], [-1, 7]])}),
    "slice": lambda: pa.table({"id": [0, 42, -1, 7, 0]}).slice(1, 3),
    "dictionary": lambda: pa.table({"id": pa.array([42, -1, 7]).dictionary_encode()}),
    "reader": lambda: pa.table({"id": [42, -1, 7]}).to_reader(),
    "polars": lambda: pl.DataFrame({"id": [42, -1, 7]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_many_kinds(client: Client, kind: str) -> None:
    got = client.lookup_many("shop.users", KINDS[kind](), columns=["name", "n"], found="found")
    assert isinstance(got, pa.Table)
    assert got.to_pylist() == [
        {"name": "n42", "n": 0, "found": True},
        {"name": None, "n": None, "found": False},
        {"name": "n7", "n": 0, "found": True},
    ]
    assert got.schema.field("found").nullable is False


def test_texts_of_many_layouts_are_one_key(served: Served, client: Client) -> None:
    [key] = keys_of(served.rows[:1])
    for layout in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        table = key_table([key])
        table = table.set_column(0, "site", table["site"].cast(layout)).select(["amount", "at", "site"])
        assert client.lookup_many("shop.every", table, columns=["site"])["site"].to_pylist() == [key["site"]]


def test_a_frame_gives_a_frame_with_its_index(served: Served, client: Client) -> None:
    keys = pd.DataFrame({"id": [42, -1, 7]}, index=["a", "b", "b"])
    got = client.lookup_many("shop.users", keys, columns=["id", "name"], found="found")
    assert list(got.index) == ["a", "b", "b"]
    assert got["id"].dtype == pd.Int64Dtype()
    assert got["found"].tolist() == [True, False, True]
    assert got["found"].dtype == bool
    assert [value if isinstance(value, str) else None for value in got["name"]] == ["n42", None, "n7"]
    rows = [row for row in served.rows if row["big"] is not None][:20]
    frame = client.lookup_many("shop.every", pd.DataFrame(keys_of(rows)))
    assert frame["big"].tolist() == [row["big"] for row in rows]  # Exact, above 2 to the 53rd.
    assert frame["born"].tolist() == [row["born"] for row in rows]


def test_no_keys_are_a_table_of_no_rows(client: Client) -> None:
    none = pa.table({"id": pa.array([], pa.int64())})
    got = client.lookup_many("shop.users", none, found="found")
    assert (got.num_rows, got.column_names) == (0, ["id", "name", "n", "found"])
    assert client.lookup_many("shop.users", none.to_pandas()).empty
    got = client.insert_if_not_exists("shop.uids", pa.table({"name": pa.array([], pa.string())}), inserted="new")
    assert (got.num_rows, got.column_names) == (0, ["name", "id", "new"])
    assert client.prefix_lookup_many("shop.users", none).column_names == ["prefix", "id", "name", "n"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_inserts_in_tables(served: Served, kind: str) -> None:
    names = [f"{kind} {i % 20}" for i in range(50)]
    with CLIENTS[kind](served.url, batch_size=15) as client:
        got = client.insert_if_not_exists("shop.uids", pa.table({"name": names}), inserted="new", found="found")
        assert got["name"].to_pylist() == names
        assert got["new"].to_pylist() == [i < 20 for i in range(50)]
        assert set(got["found"].to_pylist()) == {True}
        ids = got["id"].to_pylist()
        assert len(set(ids)) == 20
        frame = client.insert_if_not_exists("shop.uids", pd.DataFrame({"name": names}), columns=["id"], inserted="new")
        assert frame["id"].tolist() == ids
        assert not frame["new"].any()
        days = pa.table({"day": [DAY, date(1999, 1, 1)], "user_id": [0, 0]})
        assert client.insert_if_not_exists("shop.visits", days, columns=["day"], found="f").to_pylist() == [
            {"day": DAY, "f": True}, {"day": None, "f": False},
        ]  # fmt: skip


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("limit", [3, 100])
def test_many_prefixes(served: Served, kind: str, limit: int) -> None:
    sites = ["b", "none", "a", "b"]
    with CLIENTS[kind](served.url, batch_size=3, parallel=2) as client:
        expected = [
            list(client.prefix_scan("shop.every", {"site": site}, columns=["at", "big"], page_size=90))
            for site in sites
        ]
        table = pa.table({"site": sites})
        got = client.prefix_lookup_many("shop.every", table, columns=["at", "big"], limit=limit, prefix_index="which")
        assert got.column_names == ["which", "at", "big"]
        assert got.to_pylist() == [{"which": i, **row} for i, rows in enumerate(expected) for row in rows]
        frame = client.prefix_lookup_many("shop.every", table.to_pandas(), columns=["at"], limit=limit)
        assert frame["prefix"].tolist() == got["which"].to_pylist()
        listed = client.prefix_lookup_many("shop.every", table.to_pylist(), columns=["at", "big"], limit=limit)
        assert isinstance(listed, PrefixRows)
        assert (listed, listed.snapshot) == (expected, 1)


@pytest.mark.parametrize("kind", CLIENTS)
def test_compressed_requests_say_the_same(served: Served, kind: str) -> None:
    with CLIENTS[kind](served.url) as plain, CLIENTS[kind](served.url, compression="zstd") as client:
        keys = pa.table({"id": list(range(900))})
        assert client.lookup_many("shop.users", keys).equals(plain.lookup_many("shop.users", keys))
        assert client.lookup_many("shop.users", range(900)) == plain.lookup_many("shop.users", range(900))
        assert client.stats.bytes_sent < plain.stats.bytes_sent / 2


# What is wrong


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda c: c.lookup_many("shop.users", pa.table({"id": ["x"]})), InvalidRequest, "id is BIGINT"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1.5]})), InvalidRequest, "id is BIGINT"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1, None]})), InvalidRequest, "id is null in row 1"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": pa.array([1 << 63], pa.uint64())})),
            InvalidRequest, "do not fit column id"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1], "n": [1]})), InvalidRequest, "not a primary-key"),
        (lambda c: c.lookup_many("shop.users", pa.table({"Id": [1]})), InvalidRequest, "unknown column 'Id'"),
        (lambda c: c.lookup_many("shop.users", pa.table({"n": [1]})), InvalidRequest, "lacks id"),
        (lambda c: c.lookup_many("shop.users", pa.table([[1], [2]], ["id", "id"])), InvalidRequest, "twice"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), columns=["x"]), InvalidRequest, "column 'x'"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), columns=[]), InvalidRequest, "selects nothing"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), columns=["n", "n"]), InvalidRequest, "twice"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), columns="n"), InvalidRequest, "one text"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), found="n"), InvalidRequest, "would be named 'n'"),
        (lambda c: c.lookup_many("shop.users", [1], found="f"), InvalidRequest, "these keys are a list"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": [1]}), snapshot=99), NotFound, "snapshot 99"),
        (lambda c: c.lookup_many("shop.users", pa.table({"id": range(2000)})), TooLarge, "2,000"),
        (lambda c: c.lookup_many("shop.nix", pa.table({"id": [1]})), NotFound, "no table 'shop.nix'"),
        (lambda c: c.lookup_many("shop.users", pd.DataFrame({"id": [1, "x"]})), InvalidRequest, "DataFrame"),
        (lambda c: c.insert_if_not_exists("shop.uids", ["x"], inserted="i"), InvalidRequest, "these keys are a list"),
        (lambda c: c.insert_if_not_exists("shop.uids", pa.table({"name": ["x"]}), inserted="a", found="a"),
            InvalidRequest, "would be named 'a'"),
        (lambda c: c.prefix_lookup_many("shop.every", pa.table({"at": [instant(0)]}), limit=9),
            InvalidRequest, "not a prefix"),
        (lambda c: c.prefix_lookup_many("shop.every", pa.table({"site": ["a"]}), prefix_index="at"),
            InvalidRequest, "would be named 'at'"),
        (lambda c: c.prefix_lookup_many("shop.every", pa.table({"site": ["a"]}), limit=101), TooLarge, "limit"),
        (lambda c: c.prefix_lookup_many("shop.every", pa.table({})), InvalidRequest, "no columns"),
        (lambda c: c.prefix_lookup_many("shop.every", {"site": "a"}), InvalidRequest, "a sequence of prefixes"),
    ],
)  # fmt: skip
def test_what_bad_requests_get(client: Client, call: Callable[[Client], object], kind: type, told: str) -> None:
    with pytest.raises(kind, match=told) as caught:
        call(client)
    assert type(caught.value) in (kind, SnapshotGone)


# Lives


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_server_may_start_anew_between_requests(tmp_path: Path, kind: str) -> None:
    warehouse = Warehouse(tmp_path)
    commit_rows(warehouse.create_table(USERS), [{"id": i, "name": f"n{i}"} for i in range(20)])
    options = ServerOptions(poll_interval_s=0.05)
    keys = pa.table({"id": [3]})
    with listening(options, warehouse) as url:
        client = CLIENTS[kind](url, retries=0)
        assert client.lookup_many("shop.users", keys)["name"].to_pylist() == ["n3"]
    with pytest.raises(Unavailable, match="can't reach"):
        client.lookup_many("shop.users", keys)
    with listening(options, warehouse, int(url.rpartition(":")[2])), client:
        assert client.lookup_many("shop.users", keys)["name"].to_pylist() == ["n3"]


def test_a_client_travels(served: Served) -> None:
    with Client(served.url, batch_size=3, headers={"A": "b"}) as client:
        client.lookup("shop.users", 1)
        with pickle.loads(pickle.dumps(client)) as other:
            assert other._settings == client._settings
            assert other.stats.requests == 0
            assert other.lookup_many("shop.users", range(7)) == client.lookup_many("shop.users", range(7))


def test_a_client_with_trust_of_its_own_does_not_travel() -> None:
    with pytest.raises(InvalidRequest, match="does not travel"):
        pickle.dumps(Client("https://a", tls=ssl.create_default_context()))


def looked_up(client: Client, give: Any) -> None:
    give.send(client.lookup_many("shop.users", range(3), columns=["id"]))


def test_forked_processes_look_up_with_the_client_of_their_parent(served: Served) -> None:
    fork = multiprocessing.get_context("fork")
    with Client(served.url, batch_size=1, parallel=2) as client:
        expected = client.lookup_many("shop.users", range(3), columns=["id"])
        for _ in range(3):
            take, give = fork.Pipe(duplex=False)
            child = fork.Process(target=looked_up, args=(client, give))
            child.start()
            assert take.poll(20)
            assert take.recv() == expected
            child.join()
            assert client.lookup_many("shop.users", range(3), columns=["id"]) == expected
