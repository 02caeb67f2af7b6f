"""Goal: calls on tables give right rows while the table changes under them, and refuse answers that are none.

Method: the operations themselves, driven by hand against a server of a few lines: no sockets.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import orjson
import pyarrow as pa
import pytest

from stelae.client.http1 import Response
from stelae.client.operations import Operations
from stelae.client.results import SnapshotGone
from stelae.client.settings import ClientSettings
from stelae.client.steps import ClientStep, Request, SendRequest, Steps, Together
from stelae.encoding.arrow import arrow_schema
from stelae.encoding.rows import RowCodec
from stelae.errors import InvalidRequest, NotFound, StelaeError, Unavailable, problem
from stelae.schema.alter import evolve
from stelae.schema.sql import parse_alter_table, parse_create_table
from stelae.schema.table_schema import TableSchema
from stelae.wire import http_api as wire
from stelae.wire.arrow_stream import read_stream, rows_schema, write_stream


class Fake:
    """A server of a few lines: of a table t.t, whose versions it has."""

    def __init__(self, schemas: list[TableSchema], described: list[list[TableSchema]]) -> None:
        self.schemas = schemas
        self.described = described
        """What it says of its table when it is asked: one list of versions after the other."""
        self.asked: list[Request] = []
        self.snapshot = 1
        self.gone = 0
        """So many pinned requests are refused."""

    def answer(self, request: Request) -> Response:
        path, _, query = request.path.partition("?")
        parameters = parse_qs(query)
        if path == "/v1/tables/t.t":
            versions = self.described.pop(0) if len(self.described) > 1 else self.described[0]
            bodies = [version.encode() for version in versions]
            body = {"name": "t.t", "state": "READY", "schema": bodies[-1], "schemas": bodies, "snapshot": 1, "rows": 1}
            return Response(200, "OK", {"content-type": "application/json"}, orjson.dumps(body))
        self.asked.append(request)
        if "Stelae-Snapshot" in (request.headers or {}) and self.gone:
            self.gone -= 1
            self.snapshot += 1
            error = NotFound("not open", place=wire.SNAPSHOT_HEADER)
            return Response(404, "", {"content-type": wire.PROBLEM_JSON}, orjson.dumps(problem(error)))
        assert request.body is not None
        ids = read_stream(request.body)["id"].to_pylist()
        newest = self.schemas[-1]
        if "encoded" in parameters.get("rows", []):
            codecs = [RowCodec(schema) for schema in self.schemas]
            rows = pa.array(
                [codecs[i % len(codecs)].encode([i] * len(codecs[i % len(codecs)].columns)) for i in ids], pa.binary()
            )
        else:
            [names] = parameters["columns"]
            fields = arrow_schema([newest.by_name[name] for name in names.split(",")])
            rows = pa.array([dict.fromkeys(fields.names, i) for i in ids], pa.struct(fields))
        inserts = path.endswith("insert-if-not-exists")
        schema = rows_schema(rows.type, self.snapshot, inserted=inserts)
        columns = [rows, pa.array([len(self.asked) == 1] * len(ids))] if inserts else [rows]
        body = write_stream(schema, [pa.record_batch(columns, schema=schema)])
        return Response(200, "OK", {"content-type": wire.ARROW}, body.to_pybytes())

    def drive(self, steps: Steps[Any]) -> Any:
        try:
            step = next(steps)
            while True:
                try:
                    given = self.carry_out(step)
                except StelaeError as exc:
                    step = steps.throw(exc)
                else:
                    step = steps.send(given)
        except StopIteration as done:
            return done.value

    def carry_out(self, step: ClientStep) -> Any:
        if isinstance(step, SendRequest):
            return self.answer(step.request)
        return [self.drive(operation) for operation in step.operations] if isinstance(step, Together) else True


def versions() -> list[TableSchema]:
    first = parse_create_table("CREATE TABLE t.t (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED)")[1]
    return [first, evolve({first.id: first}, parse_alter_table("ALTER TABLE t.t ADD w INT"))]


KEYS = pa.table({"id": [0, 1, 2, 3]})


def test_rows_of_old_versions_are_read_as_new_ones() -> None:
    old, new = versions()
    fake = Fake([old, new], [[old, new]])
    got = fake.drive(Operations(ClientSettings("http://x")).lookup_many("t.t", KEYS))
    assert got.to_pylist() == [{"id": i, "v": i, "w": i if i % 2 else None} for i in range(4)]
    assert [request.path for request in fake.asked] == ["/v1/tables/t.t/lookup?rows=encoded"]


def test_an_unknown_version_makes_the_client_look_again() -> None:
    old, new = versions()
    fake = Fake([old, new], [[old], [old, new]])
    got = fake.drive(Operations(ClientSettings("http://x")).lookup_many("t.t", KEYS, columns=["v", "id"]))
    assert got.to_pylist() == [{"v": i, "id": i} for i in range(4)]
    assert len(fake.asked) == 1


@pytest.mark.parametrize("call", ["lookup_many", "insert_if_not_exists"])
def test_a_version_that_is_not_described_is_left_to_the_server(call: str) -> None:
    old, new = versions()
    fake = Fake([old, new], [[old]])
    more = {"inserted": "new"} if call == "insert_if_not_exists" else {}
    got = fake.drive(getattr(Operations(ClientSettings("http://x")), call)("t.t", KEYS, columns=["v", "id"], **more))
    expected = [{"v": i, "id": i} for i in range(4)]
    if more:
        # The second request finds what the first one inserted: the first knows what was new.
        expected = [row | {"new": True} for row in expected]
    assert got.to_pylist() == expected
    assert [request.path.partition("?")[2] for request in fake.asked] == ["rows=encoded", "columns=v%2Cid"]


def test_an_unknown_column_makes_the_client_look_again() -> None:
    old, new = versions()
    fake = Fake([new], [[old], [old, new]])
    got = fake.drive(Operations(ClientSettings("http://x")).lookup_many("t.t", KEYS, columns=["w"]))
    assert got["w"].to_pylist() == [0, 1, 2, 3]
    fake = Fake([new], [[old]])
    with pytest.raises(InvalidRequest, match="unknown column 'w'"):
        fake.drive(Operations(ClientSettings("http://x")).lookup_many("t.t", KEYS, columns=["w"]))
    assert fake.asked == []


def test_a_table_starts_again_when_its_snapshot_is_gone() -> None:
    schemas = versions()
    fake = Fake(schemas, [schemas])
    fake.gone = 1
    got = fake.drive(Operations(ClientSettings("http://x", batch_size=3)).lookup_many("t.t", KEYS))
    assert got.num_rows == 4
    assert got.schema.metadata == {b"stelae.snapshot": b"2"}
    pins = [(request.headers or {}).get("Stelae-Snapshot") for request in fake.asked]
    assert pins == [None, "1", None, "2"]
    fake.gone = 99
    with pytest.raises(SnapshotGone):
        fake.drive(Operations(ClientSettings("http://x", batch_size=3)).lookup_many("t.t", KEYS))


@pytest.mark.parametrize("body", [b"", b"x" * 100, write_stream(KEYS.schema, KEYS.to_batches()).to_pybytes()])
def test_answers_that_are_none(body: bytes) -> None:
    schemas = versions()
    fake = Fake(schemas, [schemas])
    answer = fake.answer

    def garbled(request: Request) -> Response:
        real = answer(request)
        return real if request.method == "GET" else Response(200, "OK", real.headers, body)

    fake.answer = garbled  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="lacks or garbles"):
        fake.drive(Operations(ClientSettings("http://x")).lookup_many("t.t", KEYS))
