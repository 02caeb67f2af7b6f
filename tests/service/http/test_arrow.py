"""Goal: what is asked in Arrow is answered as in JSON, and a body that is not what it should be gets a clear error,
never a crash, never more memory than the limits allow.

Method: every request is sent in both forms to a server in this process, with tables of many shapes: partitions, several
buckets, hidden rows, nullable keys, every type. Bad bodies are tables of cases, and random damage to good ones.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from stelae.encoding.arrow import arrow_type
from stelae.encoding.row_reader import RowReader
from stelae.encoding.values import type_codec, value_codec
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.warehouse import Warehouse
from stelae.wire.arrow_stream import END, read_rows, write_stream
from stelae.wire.http_api import ARROW
from tests.service.serving import LOOKUP, USERS, Answer, Server, serving
from tests.stelae.encoding.physical import KEY_TYPES, random_values
from tests.tables import commit_rows

ORDERS = """CREATE TABLE shop.orders (
    user_id BIGINT, order_id INT, status STRING, total DOUBLE, PRIMARY KEY (user_id, order_id) NOT ENFORCED
) WITH ('bucket-key' = 'user_id', 'bucket' = '3')"""
VISITS = """CREATE TABLE web.visits (
    dt DATE, url STRING, hits BIGINT, PRIMARY KEY (dt, url) NOT ENFORCED
) PARTITIONED BY (dt)"""
STOCK = """CREATE TABLE shop.stock (
    item INT, site STRING, pieces INT, PRIMARY KEY (item, site) NOT ENFORCED
) WITH ('primary-key.nullable' = 'true')"""
UIDS = """CREATE TABLE shop.uids (name VARCHAR(8), id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
WITH ('auto-increment.fields' = 'id', 'bucket' = '2')"""
USERS_4 = USERS + " WITH ('bucket' = '4')"

MAX_BODY = 200_000
USER_COUNT = 3000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    commit_rows(
        warehouse.create_table(USERS_4),
        [{"user_id": i, "name": f"näme {i}", "city": None if i % 2 else "Paris"} for i in range(USER_COUNT)],
        hidden=[{"user_id": USER_COUNT + i} for i in range(100)],
    )
    commit_rows(
        warehouse.create_table(ORDERS),
        [{"user_id": u, "order_id": o, "status": f"{u}/{o}", "total": u / 4} for u in range(20) for o in range(u)],
        hidden=[{"user_id": 4, "order_id": 44}, {"user_id": 5, "order_id": 0}],
    )
    commit_rows(
        warehouse.create_table(VISITS),
        [{"dt": f"2026-11-{day}", "url": f"/{i}", "hits": day * i} for day in (20, 21) for i in range(10)],
        buckets={("2026-11-20",): 1, ("2026-11-21",): 3},
    )
    commit_rows(
        warehouse.create_table(STOCK),
        [{"item": i, "site": s, "pieces": n} for n, (i, s) in enumerate([(None, None), (None, "b"), (1, None)])],
    )
    commit_rows(warehouse.create_table(UIDS), [{"name": "ann", "id": 1_000_000}])
    with serving(warehouse, max_body_bytes=MAX_BODY) as server:
        yield server


def write_table(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """A stream of a table's batches."""
    return write_stream(table.schema, [table] if isinstance(table, pa.RecordBatch) else table.to_batches())


def send(
    server: Server, path: str, keys: pa.Table, query: str = "", headers: Mapping[str, str] | None = None
) -> Answer:
    return send_bytes(server, path, write_table(keys).to_pybytes(), query, headers)


def send_bytes(
    server: Server, path: str, body: bytes, query: str = "", headers: Mapping[str, str] | None = None
) -> Answer:
    return server.request("POST", path, query.encode(), body=[body], headers={"Content-Type": ARROW, **(headers or {})})


def schema_of(server: Server, name: str) -> TableSchema:
    serving_now = server.app.tables[name].serving
    assert serving_now is not None
    return serving_now.reader.table.schema


def as_json(schema: TableSchema, rows: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Structs as the JSON that they would be."""
    codecs = {column.name: value_codec(column) for column in schema.columns}
    return [
        None if row is None else {n: codecs[n].to_json(codecs[n].from_python(v, n)) for n, v in row.items()}
        for row in rows.to_pylist()
    ]


def decoded(schema: TableSchema, keys: pa.Table, rows: pa.ChunkedArray) -> list[Any]:
    """Encoded rows as the JSON that they would be."""
    array = rows.combine_chunks()
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    names = [column.name for column in schema.value_columns]
    values = RowReader({}, schema).decode_batch(array, names)
    columns = {**{name: keys.column(name) for name in schema.primary_key}, **dict(zip(names, values, strict=True))}
    table = pa.table({column.name: columns[column.name] for column in schema.columns})
    found = as_json(schema, table.to_struct_array())
    return [None if row is None else answer for row, answer in zip(array.to_pylist(), found, strict=True)]


def check_equal(server: Server, name: str, keys: pa.Table, columns: Sequence[str] | None = None) -> list[Any]:
    """Ask in JSON, in Arrow and for encoded rows; give the rows."""
    schema = schema_of(server, name)
    path = f"/v1/tables/{name}/lookup"
    body: dict[str, Any] = {"keys": as_json(schema, keys.to_struct_array())}
    if columns is not None:
        body["columns"] = list(columns)
    in_json = server.post(path, body)
    expected = in_json.json["rows"]
    answer = send(server, path, keys, "columns=" + ",".join(columns) if columns is not None else "")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == ARROW
    assert answer.headers["stelae-snapshot"] == in_json.headers["stelae-snapshot"]
    rows = read_rows(answer.body)
    assert as_json(schema, rows.rows) == expected
    assert rows.rows.type == pa.struct(
        [pa.field(name, arrow_type(schema.column(name).type)) for name in columns or schema.column_names]
    )
    assert rows.snapshot == int(answer.headers["stelae-snapshot"])
    if columns is None:
        encoded = read_rows(send(server, path, keys, "rows=encoded").body).rows
        assert encoded.type == pa.binary()
        assert decoded(schema, keys, encoded) == expected
    return list(expected)


@pytest.mark.parametrize("count", [0, 1, 10, 49, 700, 5000])
def test_batches_of_all_sizes(server: Server, count: int) -> None:
    ids = [random.Random(count).randrange(-100, USER_COUNT + 200) for _ in range(count)]
    rows = check_equal(server, "shop.users", pa.table({"user_id": pa.array(ids, pa.int64())}))
    assert [row and row["user_id"] for row in rows] == [i if 0 <= i < USER_COUNT else None for i in ids]


def test_selected_columns(server: Server) -> None:
    keys = pa.table({"user_id": pa.array([5, -1, 4])})
    for columns in (["city"], ["city", "user_id", "name"], ["user_id"]):
        check_equal(server, "shop.users", keys, columns)


def test_several_key_columns_in_any_order(server: Server) -> None:
    keys = [(u, o) for u in range(22) for o in range(-1, 6)] + [(4, 44), (5, 0)]
    users, orders = zip(*keys, strict=True)
    table = pa.table({"order_id": pa.array(orders, pa.int32()), "user_id": pa.array(users, pa.int64())})
    rows = check_equal(server, "shop.orders", table)
    assert rows[-2:] == [None, None]
    assert sum(row is not None for row in rows) == sum(0 <= o < u for u, o in keys if u < 20 and (u, o) != (5, 0))


def test_partitions(server: Server) -> None:
    days = ["2026-11-21", "2026-11-20", "2026-11-22", "2026-11-20"] * 8
    table = pa.table({"url": [f"/{i % 12}" for i in range(32)], "dt": pa.array(days).cast(pa.date32())})
    rows = check_equal(server, "web.visits", table)
    assert {row["dt"] for row in rows if row} == {"2026-11-20", "2026-11-21"}
    check_equal(server, "web.visits", table.filter(pa.compute.equal(table["dt"], table["dt"][2])))
    check_equal(server, "web.visits", table.filter(pa.compute.equal(table["dt"], table["dt"][0])))


def test_nullable_keys(server: Server) -> None:
    table = pa.table({"item": pa.array([None, None, 1, 1], pa.int32()), "site": pa.array([None, "b", None, "b"])})
    assert [row and row["pieces"] for row in check_equal(server, "shop.stock", table)] == [0, 1, 2, None]


@pytest.mark.parametrize("name", KEY_TYPES)
def test_every_type_of_key(tmp_path: Path, name: str) -> None:
    data_type = KEY_TYPES[name]
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(
        f"CREATE TABLE t (k {data_type.sql_name()}, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '3')"
    )
    codec = type_codec(data_type)
    physical = random_values(random.Random(1), data_type, 60)
    values = [codec.to_python(value) for value in physical]
    # Of zeros and of NaNs there is one key.
    distinct = {repr(value + 0.0 if isinstance(value, float) else value): value for value in values}
    commit_rows(table, [{"k": value, "v": n} for n, value in enumerate(list(distinct.values())[::2])])
    with serving(warehouse) as server:
        array = pa.array(values, arrow_type(data_type))
        asked = [{"k": codec.to_json(value)} for value in physical]
        expected = server.post("/v1/tables/t/lookup", {"keys": asked, "columns": ["v"]}).json["rows"]
        answer = send(server, "/v1/tables/t/lookup", pa.table({"k": array}), "columns=v")
        assert read_rows(answer.body).rows.to_pylist() == expected
        check_equal(server, "default.t", pa.table({"k": array}))
        assert any(expected)
        assert len(distinct) < 3 or not all(expected)


# What is converted.


def test_other_forms_of_the_same_values(server: Server) -> None:
    ids = [3, -5, 2, 3]
    expected = check_equal(server, "shop.users", pa.table({"user_id": pa.array(ids, pa.int64())}))
    forms = [pa.array(ids, pa.int8()), pa.array(ids, pa.int32()), pa.array(ids).dictionary_encode()]
    for array in [*forms, pa.chunked_array([ids[:1], [], ids[1:]], pa.int64())]:
        answer = read_rows(send(server, LOOKUP, pa.table({"user_id": array})).body)
        assert as_json(schema_of(server, "shop.users"), answer.rows) == expected
    texts = ["/1", "/99", "/1", "/2"]
    days = pa.array(["2026-11-20"] * 4).cast(pa.date32())
    expected = check_equal(server, "web.visits", pa.table({"dt": days, "url": texts}))
    plain = pa.array(texts)
    kinds = [
        plain.cast(pa.large_string()),
        plain.dictionary_encode(),
        plain.cast(pa.binary()),
        plain.cast(pa.string_view()),
    ]
    for array in kinds:
        for day in (days, days.cast(pa.date64()), days.dictionary_encode()):
            answer = send(server, "/v1/tables/web.visits/lookup", pa.table({"dt": day, "url": array}))
            assert as_json(schema_of(server, "web.visits"), read_rows(answer.body).rows) == expected


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_bodies(server: Server, codec: str) -> None:
    def compressed(body: bytes) -> bytes:
        if codec == "gzip":
            return gzip.compress(body)
        return bytes(pa.Codec("zstd").compress(body, asbytes=True))

    coding = {"Content-Encoding": codec}
    body = write_table(pa.table({"user_id": pa.array(range(9000), pa.int64())})).to_pybytes()
    plain = send_bytes(server, LOOKUP, body)
    assert send_bytes(server, LOOKUP, compressed(body), headers=coding).body == plain.body
    in_json = server.post(LOOKUP, compressed(orjson.dumps({"keys": [1, 2]})), coding)
    assert in_json.body == server.post(LOOKUP, {"keys": [1, 2]}).body
    bomb = compressed(bytes(MAX_BODY * 50))
    assert len(bomb) < MAX_BODY
    assert send_bytes(server, LOOKUP, bomb, headers=coding).problem["status"] == 413
    for torn in (compressed(body)[:-20], b"not compressed", b""):
        problem = send_bytes(server, LOOKUP, torn, headers=coding).problem
        assert (problem["status"], problem["place"]) == (400, "body"), torn


def test_an_unknown_compression(server: Server) -> None:
    problem = send_bytes(server, LOOKUP, b"x", headers={"Content-Encoding": "br"}).problem
    assert (problem["status"], problem["place"]) == (415, "Content-Encoding")
    assert "zstd" in problem["hint"]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers(server: Server, codec: str) -> None:
    def written(table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    keys = pa.table({"user_id": pa.array(range(2000), pa.int64())})
    assert send_bytes(server, LOOKUP, written(keys)).body == send(server, LOOKUP, keys).body
    bomb = written(pa.table({"user_id": pa.array([0] * 1_000_000, pa.int64())}))
    assert len(bomb) < MAX_BODY
    problem = send_bytes(server, LOOKUP, bomb).problem
    assert (problem["status"], problem["place"]) == (413, "body")
    assert "8,000,000 bytes" in problem["detail"]


def test_shared_values_are_bounded(server: Server) -> None:
    long = "x" * 20_000
    day = pa.array(["2026-11-20"] * 100).cast(pa.date32())
    for url in (pa.array([long] * 100).dictionary_encode(), pa.array([long] * 100, pa.string_view())):
        body = write_table(pa.table({"dt": day, "url": url})).to_pybytes()
        if len(body) < MAX_BODY:
            problem = send_bytes(server, "/v1/tables/web.visits/lookup", body).problem
            assert (problem["status"], problem["place"]) == (413, "url")


# What is refused.


ID = pa.array([1, 2], pa.int64())
WRONG: list[tuple[str, pa.Table, str, str, str]] = [
    # table, keys, query, place, words
    ("shop.users", pa.table({"id": ID}), "", "id", "unknown column"),
    ("shop.users", pa.table({"user_id": ID, "name": ["a", "b"]}), "", "name", "not a primary-key column"),
    ("shop.users", pa.table({"user_id": ["1", "2"]}), "", "user_id", "BIGINT, but its values are of Arrow type string"),
    ("shop.users", pa.table({"user_id": [1.0, 2.0]}), "", "user_id", "Arrow type double"),
    ("shop.users", pa.table({"user_id": pa.array([1, None])}), "", "user_id", "is null in row 1"),
    ("shop.users", pa.table({"user_id": pa.array([2**63], pa.uint64())}), "", "user_id", "do not fit"),
    ("shop.users", pa.table({"user_id": pa.array([[1]])}), "", "user_id", "Arrow type list"),
    ("shop.orders", pa.table({"user_id": ID}), "", "order_id", "the key lacks order_id"),
    ("shop.users", pa.table([ID, ID], names=["user_id", "user_id"]), "", "user_id", "twice"),
    ("shop.users", pa.table({"user_id": ID}), "columns=nope", "nope", "unknown column"),
    ("shop.users", pa.table({"user_id": ID}), "columns=", "columns", "selects nothing"),
    ("shop.users", pa.table({"user_id": ID}), "rows=fast", "rows", "'fast'"),
    ("shop.users", pa.table({"user_id": ID}), "rows=encoded&columns=name", "columns", "whole rows"),
    ("shop.users", pa.table({"user_id": ID}), "user_id=3", "user_id", "unknown parameter"),
    ("shop.users", pa.table({"user_id": ID}), "rows=typed&rows=typed", "query", "twice"),
    ("shop.users", pa.table({"user_id": ID}), "rows", "query", "can't be read"),
    ("shop.uids", pa.table({"name": ["a", "much too long"]}), "", "name", "row 1 does not fit VARCHAR(8)"),
]


@pytest.mark.parametrize(("table", "keys", "query", "place", "words"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_requests(server: Server, table: str, keys: pa.Table, query: str, place: str, words: str) -> None:
    operations = ["lookup"] if table != "shop.uids" else ["lookup", "insert-if-not-exists"]
    for operation in operations:
        problem = send(server, f"/v1/tables/{table}/{operation}", keys, query).problem
        assert (problem["status"], problem["place"]) == (400, place), problem
        assert words in problem["detail"]


def test_wrong_bodies(server: Server) -> None:
    good = write_table(pa.table({"user_id": ID})).to_pybytes()
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, pa.schema([("user_id", pa.int64())])) as writer:
        writer.write_table(pa.table({"user_id": ID}))
    for body in (b"", b"{}", b'{"keys": [1]}', END, good + b"x", good + good, file.getvalue().to_pybytes(), good[8:]):
        answer = send_bytes(server, LOOKUP, body)
        assert answer.problem["status"] == 400, body[:20]
        assert answer.problem["place"] == "body"
    for length in range(len(good)):
        assert send_bytes(server, LOOKUP, good[:length]).problem["status"] == 400, length
    assert send_bytes(server, LOOKUP, good).status == 200


def test_a_stream_that_was_cut_between_batches(server: Server) -> None:
    keys = pa.table({"user_id": pa.chunked_array([[1], [2]], pa.int64())})
    body = write_table(keys).to_pybytes()
    first = write_table(keys.slice(0, 1)).to_pybytes()[: -len(END)]
    assert body.startswith(first)
    problem = send_bytes(server, LOOKUP, first).problem
    assert "without the mark of its end" in problem["detail"]


def test_damaged_bodies(server: Server) -> None:
    rng = random.Random(5)
    text = pa.table({"dt": pa.array(["2026-11-20"] * 3).cast(pa.date32()), "url": ["/1", "/2", "/ü"]})
    encoded = pa.table({"dt": text["dt"], "url": text["url"].dictionary_encode()})
    for table in (text, encoded):
        good = write_table(table).to_pybytes()
        statuses = set()
        for _ in range(400):
            body = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                body[rng.randrange(len(body))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
            statuses.add(send_bytes(server, "/v1/tables/web.visits/lookup", bytes(body)).status)
        assert statuses == {200, 400} or statuses == {200, 400, 413}
    assert send(server, "/v1/tables/web.visits/lookup", text).status == 200


def test_too_many_keys_and_bytes(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    commit_rows(warehouse.create_table(USERS), [{"user_id": 1}])
    with serving(warehouse, max_batch_keys=10) as server:
        assert send(server, LOOKUP, pa.table({"user_id": pa.array(range(10), pa.int64())})).status == 200
        problem = send(server, LOOKUP, pa.table({"user_id": pa.array(range(11), pa.int64())})).problem
        assert (problem["status"], problem["place"]) == (413, "keys")


def test_pins_and_methods(server: Server) -> None:
    keys = pa.table({"user_id": ID})
    assert send(server, LOOKUP, keys, headers={"Stelae-Snapshot": "1"}).status == 200
    assert send(server, LOOKUP, keys, headers={"Stelae-Snapshot": "99"}).problem["status"] == 404
    path = "/v1/tables/shop.uids/insert-if-not-exists"
    assert send(server, path, pa.table({"name": ["x"]}), headers={"Stelae-Snapshot": "1"}).problem["status"] == 400
    assert send(server, "/v1/tables/shop.nobody/lookup", keys).problem["status"] == 404


# Inserts.


def test_inserts(server: Server) -> None:
    path = "/v1/tables/shop.uids/insert-if-not-exists"
    names = ["bob", "ann", "cleo", "bob"] + [f"n{i}" for i in range(600)]
    answer = read_rows(send(server, path, pa.table({"name": names})).body)
    assert answer.inserted is not None
    assert answer.inserted.to_pylist() == [True, False, True, False] + [True] * 600
    rows = answer.rows.to_pylist()
    assert [row["name"] for row in rows] == names
    ids = {row["name"]: row["id"] for row in rows}
    assert ids["ann"] == 1_000_000
    assert len(set(ids.values())) == len(ids)
    assert 0 not in ids.values()
    in_json = server.post(path, {"keys": names}).json
    assert [row["id"] for row in in_json["rows"]] == [ids[name] for name in names]
    assert not any(in_json["inserted"])
    again = read_rows(send(server, path, pa.table({"name": names}), "columns=id").body)
    assert again.rows.to_pylist() == [{"id": ids[name]} for name in names]
    looked_up = check_equal(server, "shop.uids", pa.table({"name": [*names, "nobody"]}))
    assert [row and row["id"] for row in looked_up] == [*(ids[name] for name in names), None]


def test_encoded_rows_of_an_insert(server: Server) -> None:
    path = "/v1/tables/shop.uids/insert-if-not-exists"
    keys = pa.table({"name": ["ann", "dora"]})
    answer = read_rows(send(server, path, keys, "rows=encoded").body)
    rows = decoded(schema_of(server, "shop.uids"), keys, answer.rows)
    assert rows == server.post(path, {"keys": ["ann", "dora"]}).json["rows"]


# Prefixes.


def prefix_pages(server: Server, table: str, prefixes: pa.Table, limit: int, query: str = "") -> list[tuple[int, Any]]:
    """All rows of prefixes, and to which prefix each belongs."""
    path = f"/v1/tables/{table}/prefix-lookup"
    token: str | None = None
    found: list[tuple[int, Any]] = []
    while True:
        asked = f"limit={limit}" + (f"&page_token={token}" if token else "") + query
        page = send(server, path, prefixes, asked)
        assert page.status == 200, page.body
        answer = read_rows(page.body)
        assert answer.prefixes is not None
        assert len(answer.rows) <= limit
        found += zip(answer.prefixes.to_pylist(), as_json(schema_of(server, table), answer.rows), strict=True)
        token = answer.next_page_token
        if token is None:
            return found
        assert len(answer.rows) == limit


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 10_000])
def test_many_prefixes(server: Server, limit: int) -> None:
    users = [3, 5, 19, 0, 77, 5, 4]
    found = prefix_pages(server, "shop.orders", pa.table({"user_id": pa.array(users, pa.int64())}), limit)
    path = "/v1/tables/shop.orders/prefix-lookup"
    expected = [
        (number, row)
        for number, user in enumerate(users)
        for row in server.post(path, {"prefix": {"user_id": user}, "limit": 1000}).json["rows"]
    ]
    assert found == expected
    assert len(found) == 3 + 4 + 19 + 4 + 4


def test_prefixes_of_partitions(server: Server) -> None:
    days = pa.array(["2026-11-21", "2026-11-20", "2026-11-19"]).cast(pa.date32())
    for limit in (3, 100):
        found = prefix_pages(server, "web.visits", pa.table({"dt": days}), limit, "&columns=url,dt")
        assert [(number, row["dt"]) for number, row in found] == [(0, "2026-11-21")] * 10 + [(1, "2026-11-20")] * 10
        assert [row["url"] for _, row in found[:10]] == [f"/{i}" for i in range(10)]
    whole = prefix_pages(server, "web.visits", pa.table({"url": ["/3", "/none", "/4"]}), 3)
    assert [(number, row["url"], row["dt"][-1]) for number, row in whole] == [
        (0, "/3", "0"), (0, "/3", "1"), (2, "/4", "0"), (2, "/4", "1"),
    ]  # fmt: skip


def test_wrong_prefixes(server: Server) -> None:
    path = "/v1/tables/shop.orders/prefix-lookup"
    users = pa.table({"user_id": ID})
    cases: list[tuple[pa.Table, str, int, str]] = [
        (pa.table({"order_id": pa.array([1], pa.int32())}), "", 400, "prefix"),
        (pa.table({"status": ["a"]}), "", 400, "status"),
        (pa.table({}), "", 400, "prefix"),
        (users, "limit=0", 400, "limit"),
        (users, "limit=many", 400, "limit"),
        (users, "limit=1000000", 413, "limit"),
        (users, "page_token=x", 400, "page_token"),
        (users, "rows=encoded", 400, "rows"),
        (pa.table({"user_id": ["a"]}), "", 400, "user_id"),
    ]
    for prefixes, query, status, place in cases:
        problem = send(server, path, prefixes, query).problem
        assert (problem["status"], problem["place"]) == (status, place), (query, problem)
    token = read_rows(send(server, path, pa.table({"user_id": [3, 4]}), "limit=4").body).next_page_token
    problem = send(server, path, pa.table({"user_id": [3]}), f"page_token={token}").problem
    assert (problem["status"], problem["place"]) == (400, "page_token")


def test_counters(server: Server) -> None:
    counts = server.app.tables["shop.users"].counts
    before = counts.batch_keys, counts.missing
    assert send(server, LOOKUP, pa.table({"user_id": pa.array([1, -1, -2] * 50, pa.int64())})).status == 200
    assert (counts.batch_keys - before[0], counts.missing - before[1]) == (150, 100)
