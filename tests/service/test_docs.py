"""Goal: docs/http.md shows what happens: every curl command on it gets the answer under it.

Method: the commands are read from the page and sent to a server in this process that has the tables of the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from service.openapi import ADA, LIN, ORDERS
from stelae.warehouse import Warehouse
from tests.service.serving import Answer, Server, serving
from tests.tables import commit_rows

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
COMMANDS = re.findall(r"^\$ (curl .*)\n(.*)$", PAGE, re.MULTILINE)
TABLES = re.findall(r"CREATE TABLE [^;]*;", PAGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    for sql, rows in zip(TABLES, ([ADA, LIN], ORDERS), strict=True):
        commit_rows(warehouse.create_table(sql.rstrip(";")), rows)
    with serving(warehouse) as server:
        yield server


def curl(server: Server, command: str) -> Answer:
    """Send what a curl command would."""
    _, *words = shlex.split(command)
    headers, data, url = {}, None, ""
    while words:
        match words.pop(0):
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                data = words.pop(0).encode()
            case word:
                url = word
    parts = urlsplit(url)
    assert parts.netloc == "localhost:8000"
    if data is not None:
        return server.post(parts.path, data, headers)
    return server.request("GET", parts.path, parts.query.encode(), headers=headers)


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_commands_get_the_answers_under_them(server: Server, command: str, shown: str) -> None:
    assert curl(server, command).body == orjson.dumps(orjson.loads(shown))
    assert orjson.dumps(orjson.loads(shown)).decode() == shown


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 8
