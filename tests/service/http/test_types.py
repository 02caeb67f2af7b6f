"""Goal: JSON is typed by the schema: every type looks as docs/http.md says, as a value and as a key, in both
directions.

Method: one table with a value column of every type; one table for each type that can be a key. Odd values on purpose:
the least and the greatest, NaN, text beyond ASCII, dates before 1970, nulls.
"""

from __future__ import annotations

import base64
import math
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import orjson
import pytest

from stelae.encoding.values import type_codec
from stelae.errors import InvalidRequest
from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import serving
from tests.stelae.encoding.physical import KEY_TYPES, random_values
from tests.tables import commit_rows

EVERY_TYPE = """CREATE TABLE types (
    id INT,
    c_boolean BOOLEAN, c_tinyint TINYINT, c_smallint SMALLINT, c_int INT, c_bigint BIGINT,
    c_float FLOAT, c_double DOUBLE, c_decimal DECIMAL(10, 2), c_wide DECIMAL(38, 10), c_whole DECIMAL(20, 0),
    c_char CHAR(3), c_varchar VARCHAR(10), c_string STRING, c_binary BINARY(2), c_bytes BYTES,
    c_date DATE, c_time TIME(6), c_timestamp TIMESTAMP(6), c_timestamp_3 TIMESTAMP(3), c_ltz TIMESTAMP_LTZ(6),
    c_array ARRAY<INT>, c_map MAP<STRING, DECIMAL(5, 1)>, c_numbers MAP<INT, DOUBLE>, c_row ROW<a INT, b ARRAY<BYTES>>,
    PRIMARY KEY (id) NOT ENFORCED
)"""

SHOWN: dict[str, list[tuple[Any, Any]]] = {
    # column: what went in (Python), what comes out (JSON)
    "c_boolean": [(True, True), (False, False)],
    "c_tinyint": [(-128, -128), (127, 127)],
    "c_smallint": [(-32768, -32768), (32767, 32767)],
    "c_int": [(-(2**31), -(2**31)), (2**31 - 1, 2**31 - 1)],
    "c_bigint": [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (9007199254740993, 9007199254740993)],
    "c_float": [(0.1, 0.1), (math.nan, "NaN"), (-math.inf, "-Infinity")],
    "c_double": [(0.1, 0.1), (math.nan, "NaN"), (math.inf, "Infinity"), (1e308, 1e308), (-0.0, -0.0)],
    "c_decimal": [("12.5", "12.50"), ("-0.05", "-0.05"), (0, "0.00"), ("99999999.99", "99999999.99")],
    "c_wide": [("1234567890123456789012345678.0123456789",) * 2, ("-0.0000000001", "-0.0000000001")],
    "c_whole": [(10**20 - 1, "99999999999999999999")],
    "c_char": [("äöü", "äöü")],
    "c_varchar": [("x" * 10, "x" * 10)],
    "c_string": [("", ""), ('"\\\n\0\u2028😀', '"\\\n\0\u2028😀')],
    "c_binary": [(b"\x00\xff", "AP8=")],
    "c_bytes": [(b"", ""), (bytes(range(256)), base64.b64encode(bytes(range(256))).decode())],
    "c_date": [("2026-11-20", "2026-11-20"), ("0001-01-01", "0001-01-01"), ("9999-12-31", "9999-12-31")],
    "c_time": [("12:34:56.000001", "12:34:56.000001"), ("23:59:59.5", "23:59:59.500000")],
    "c_timestamp": [("2026-11-20T12:34:56.123456",) * 2, ("1969-12-31T23:59:59.999999",) * 2],
    "c_timestamp_3": [("2026-11-20T12:34:56.123",) * 2],
    "c_ltz": [("2026-11-20T12:34:56+02:00", "2026-11-20T10:34:56Z")],
    "c_array": [([], []), ([1, None, -3], [1, None, -3])],
    "c_map": [({"a": "1.5", "b": None}, {"a": "1.5", "b": None}), ({}, {})],
    "c_numbers": [({1: math.nan, -2: 0.5}, [[1, "NaN"], [-2, 0.5]])],
    "c_row": [((1, [b"\x01", None]), {"a": 1, "b": ["AQ==", None]}), ({"a": None}, {"a": None, "b": None})],
}


def test_every_type_as_a_value(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    table = warehouse.create_table(EVERY_TYPE)
    assert set(SHOWN) == {column.name for column in table.schema.value_columns}
    count = max(map(len, SHOWN.values()))
    rows = [{"id": i, **{name: cases[i][0] for name, cases in SHOWN.items() if i < len(cases)}} for i in range(count)]
    commit_rows(table, [*rows, {"id": 99}])
    with serving(warehouse) as server:
        answers = [server.get("/v1/tables/types/lookup", id=i) for i in range(count)]
        for i, answer in enumerate(answers):
            assert b"NaN" not in answer.body.replace(b'"NaN"', b"")
            assert answer.json["row"] == {"id": i} | {n: c[i][1] if i < len(c) else None for n, c in SHOWN.items()}
        nothing = dict.fromkeys(SHOWN)
        batch = server.post("/v1/tables/types/lookup", {"keys": [*range(count), 99]}).json["rows"]
        assert batch == [*(answer.json["row"] for answer in answers), {"id": 99, **nothing}]
        page = server.post("/v1/tables/types/prefix-lookup", {"prefix": {}}).json["rows"]
        assert page == batch
        for name, cases in SHOWN.items():
            only = server.get("/v1/tables/types/lookup", id=0, columns=f"id,{name}").json["row"]
            assert only == {"id": 0, name: cases[0][1]}


@pytest.mark.parametrize("name", KEY_TYPES)
def test_every_type_as_a_key(tmp_path: Path, name: str) -> None:
    """Single, after another column (where text is terminated), by URL, by JSON, and as a prefix."""
    data_type = KEY_TYPES[name]
    codec = type_codec(data_type)
    rng = random.Random(7)
    values = {orjson.dumps(codec.to_json(v)): codec.to_json(v) for v in random_values(rng, data_type, 40)}.values()
    keys = list(values)
    warehouse = Warehouse(tmp_path / "w")
    sql = "CREATE TABLE {} (g INT, k " + data_type.sql_name() + ", n INT, PRIMARY KEY ({}) NOT ENFORCED)"
    physical = [codec.from_json(key, "k") for key in keys]
    distinct = {repr(value + 0.0 if isinstance(value, float) else value): i for i, value in enumerate(physical)}
    rows = [{"g": 1, "k": codec.to_python(physical[i]), "n": i} for i in distinct.values()]
    commit_rows(warehouse.create_table(sql.format("single", "k")), rows)
    commit_rows(warehouse.create_table(sql.format("wide", "k, g")), rows)
    with serving(warehouse) as server:
        for i in distinct.values():
            for table, rest in (("single", {}), ("wide", {"g": "1"})):
                path = f"/v1/tables/{table}/lookup"
                text = keys[i] if isinstance(keys[i], str) else orjson.dumps(keys[i]).decode()
                by_url = server.request("GET", path, urlencode({"k": text, **rest}, quote_via=quote_plus).encode())
                assert by_url.json["row"]["n"] == i, text
                by_json = server.post(path, {"keys": [{"k": keys[i], **({"g": 1} if rest else {})}]})
                assert by_json.json["rows"] == [by_url.json["row"]]
                page = server.post(f"/v1/tables/{table}/prefix-lookup", {"prefix": {"k": keys[i]}})
                assert page.json["rows"] == [by_url.json["row"]]


@pytest.mark.parametrize(
    ("sql_type", "value", "words"),
    [
        ("DECIMAL(5, 2)", 1.5, "not exact"),
        ("DECIMAL(5, 2)", "1000", "more than 3 digits"),
        ("DECIMAL(5, 2)", "0.001", "more than 2 digits"),
        ("TINYINT", 128, "out of range"),
        ("FLOAT", 1e39, "out of range"),
        ("DATE", "2026-02-30", "DATE"),
        ("TIMESTAMP(3)", "2026-11-20T12:00:00.0001", "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "2026-11-20T12:00:00Z", "zone"),
        ("TIMESTAMP_LTZ(3)", "2026-11-20T12:00:00", "zone"),
        ("BYTES", "%%%", "base64"),
        ("VARCHAR(3)", "abcd", "4 characters"),
        ("BOOLEAN", 1, "true or false"),
    ],
)
def test_values_that_a_key_cannot_have(tmp_path: Path, sql_type: str, value: object, words: str) -> None:
    warehouse = Warehouse(tmp_path / "w")
    commit_rows(warehouse.create_table(f"CREATE TABLE t (k {sql_type}, PRIMARY KEY (k) NOT ENFORCED)"), [])
    with serving(warehouse) as server:
        problem = server.post("/v1/tables/t/lookup", {"keys": [value]}).problem
        assert (problem["status"], problem["place"]) == (400, "keys[0].k")
        assert words in f"{problem['detail']} {problem.get('hint')}"
        with pytest.raises(InvalidRequest):
            type_codec(warehouse.table("t").schema.by_name["k"].type).from_json(value, "k")
