"""Goal: the OpenAPI page is right: every example request on it gets the answer beside it, in the shape that is
declared.

Method: the tables of the examples are built and served; the examples are read from the page that the server gives,
sent, and compared; answers and request bodies are validated against the page's schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
from jsonschema.validators import validator_for

from stelae.ownership.id_claims import BIGINT_LIMIT, TableClaims
from stelae.ownership.takeover import take_over
from stelae.service.http.openapi_examples import ADA, EXAMPLES, LIN, ORDERS, UIDS, VISIT, Example
from stelae.snapshot.warehouse import Warehouse
from stelae.wire.http_api import JSON, PROBLEM_JSON
from tests.service.serving import Answer, Server, serving
from tests.tables import commit_rows

USERS = """CREATE TABLE shop.users (
    user_id BIGINT, name STRING, city STRING, balance DECIMAL(10, 2), since TIMESTAMP_LTZ(0),
    PRIMARY KEY (user_id) NOT ENFORCED
)"""
ORDERS_SQL = """CREATE TABLE shop.orders (
    user_id BIGINT, order_id INT, status STRING, total DECIMAL(10, 2), PRIMARY KEY (user_id, order_id) NOT ENFORCED
)"""
UIDS_SQL = """CREATE TABLE shop.uids (name STRING, id BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('auto-increment.fields' = 'id')"""
VISITS_SQL = """CREATE TABLE shop.visits (day DATE, user_id BIGINT, id INT, PRIMARY KEY (day, user_id) NOT ENFORCED)
    PARTITIONED BY (day) WITH ('auto-increment.fields' = 'id')"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    commit_rows(warehouse.create_table(USERS), [ADA, LIN])
    commit_rows(warehouse.create_table(ORDERS_SQL), ORDERS)
    for sql, rows in ((UIDS_SQL, UIDS), (VISITS_SQL, [VISIT])):
        table = warehouse.create_table(sql)
        commit_rows(table, rows)
        TableClaims(table.storage, BIGINT_LIMIT).claim(len(rows), owner="build", epoch=1, purpose="build")
    names = warehouse.create_table(UIDS_SQL.replace("uids", "names"))
    commit_rows(names, UIDS)
    other = take_over(names, "server", "other:8000", "http://other:8000")
    with serving(warehouse) as server:
        yield server
    other.release()


@pytest.fixture(scope="module")
def page(server: Server) -> Any:
    return server.get("/openapi.json").json


def validate(value: object, schema: dict[str, Any], page: Any) -> None:
    whole = {**schema, "components": page["components"]}
    validator_for(whole, jsonschema.Draft202012Validator)(whole).validate(value)


def send(server: Server, example: Example) -> Answer:
    path = example.template.format(table=example.table)
    if example.method == "get":
        return server.request("GET", path, urlencode(example.query).encode(), headers=example.headers)
    return server.post(path, example.body, example.headers)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.method} {example.name}")
def test_examples_are_answered_as_they_say(server: Server, page: Any, example: Example) -> None:
    operation = page["paths"][example.template][example.method]
    answer = send(server, example)
    assert answer.status == example.status
    declared = operation["responses"][str(example.status)]["content"]
    media = JSON if example.status == 200 else PROBLEM_JSON
    assert answer.headers["content-type"] == media
    assert declared[media]["examples"][example.name]["value"] == example.answer
    validate(answer.json, declared[media]["schema"], page)
    if example.status == 200:
        assert answer.json == example.answer
    else:
        assert example.answer.items() <= answer.problem.items()
    if example.body is not None:
        body = operation["requestBody"]["content"][JSON]
        assert body["examples"][example.name]["value"] == example.body
        validate(example.body, body["schema"], page)


def test_the_page_has_no_other_examples(page: Any) -> None:
    shown = {
        (template, method, name)
        for template, path in page["paths"].items()
        for method, operation in path.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for name in content.get("examples", {})
    }
    shown |= {
        (template, method, name)
        for template, path in page["paths"].items()
        for method, operation in path.items()
        for response in operation["responses"].values()
        for content in response.get("content", {}).values()
        for name in content.get("examples", {})
    }
    assert shown == {(example.template, example.method, example.name) for example in EXAMPLES}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("/v1/tables", "/v1/tables"),
        ("/v1/tables/{table}", "/v1/tables/shop.users"),
        ("/v1/tables/{table}", "/v1/tables/shop.uids"),
        ("/v1/tables/{table}", "/v1/tables/shop.names"),
        ("/readyz", "/readyz"),
    ],
)
def test_descriptions_have_their_declared_shapes(server: Server, page: Any, template: str, path: str) -> None:
    server.post("/v1/tables/shop.uids/insert-if-not-exists", {"keys": ["ann"]})
    schema = page["paths"][template]["get"]["responses"]["200"]["content"][JSON]["schema"]
    validate(server.get(path).json, schema, page)


def test_every_route_is_on_the_page(page: Any) -> None:
    assert {(path, method) for path, operations in page["paths"].items() for method in operations} == {
        ("/v1/tables/{table}/lookup", "get"),
        ("/v1/tables/{table}/lookup", "post"),
        ("/v1/tables/{table}/prefix-lookup", "post"),
        ("/v1/tables/{table}/insert-if-not-exists", "post"),
        ("/v1/tables", "get"),
        ("/v1/tables/{table}", "get"),
        ("/livez", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    }
    operations = [o["operationId"] for path in page["paths"].values() for o in path.values()]
    assert len(set(operations)) == len(operations)


def test_every_reference_leads_somewhere(page: Any) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    for reference in set(references(page)):
        assert reference.removeprefix("#/components/schemas/") in page["components"]["schemas"], reference


def test_the_page_for_people(server: Server) -> None:
    assert server.get("/").headers["location"] == "/docs"
    assert b"swagger" in server.get("/docs").body
