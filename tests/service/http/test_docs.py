"""Goal: docs/http.md shows what happens: every curl command on it gets the answer under it.

Method: the commands are read from the page and sent, in their order, to a server in this process that has the tables of
the page. The members that it tells of are those that the server sends.
"""

from __future__ import annotations

import io
import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from stelae.service.http.openapi_examples import ADA, LIN, ORDERS
from stelae.service.writes.table_writer import WriteState
from stelae.snapshot.warehouse import Warehouse
from tests.service.serving import Answer, Server, serving
from tests.tables import commit_rows

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
COMMANDS = re.findall(r"^\$ (curl .*)\n(.*)$", PAGE, re.MULTILINE)
TABLES = re.findall(r"CREATE TABLE [^;]*;", PAGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    for sql, rows in zip(TABLES, ([ADA, LIN], ORDERS, []), strict=True):
        table = warehouse.create_table(sql.rstrip(";"))
        if rows:
            commit_rows(table, rows)
    with serving(warehouse) as server:
        yield server


@pytest.fixture(scope="module")
def answers(server: Server) -> dict[str, bytes]:
    """What the commands got: some insert, so that their order counts."""
    return {command: curl(server, command).body for command, _ in COMMANDS}


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
def test_commands_get_the_answers_under_them(answers: dict[str, bytes], command: str, shown: str) -> None:
    assert answers[command] == orjson.dumps(orjson.loads(shown))
    assert orjson.dumps(orjson.loads(shown)).decode() == shown


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 10


def test_the_program_prints_what_it_says(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    def answered(request: urllib.request.Request) -> io.BytesIO:
        parts = urlsplit(request.full_url)
        assert isinstance(request.data, bytes)
        answer = server.request(
            "POST", parts.path, parts.query.encode(), body=[request.data], headers=dict(request.header_items())
        )
        assert answer.status == 200, answer.body
        return io.BytesIO(answer.body)

    monkeypatch.setattr(urllib.request, "urlopen", answered)
    exec(program, {})
    [shown] = re.findall(r"print\(.*\)  # (.*)", program)
    assert capsys.readouterr().out == f"{shown}\n"


def members_under(text: str) -> set[str]:
    """The first cells of the first table behind a text."""
    lines = re.search(r"((?:^\|.*\n)+)", PAGE.split(text, 1)[1], re.MULTILINE)
    assert lines is not None
    return {name for line in lines.group(1).splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_descriptions_have_the_members_of_the_page(server: Server, answers: dict[str, bytes]) -> None:
    described = server.get("/v1/tables/shop.uids").json
    assert members_under("describes one table:") == set(described)
    assert members_under("`writes` has these members:") == set(described["writes"])
    assert described["writes"]["state"] == "OPEN"


def test_the_page_has_the_states_of_writes() -> None:
    (line,) = re.findall(r"^\| `state` \| (`OPEN.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`([A-Z]+)`", line) == ["OPEN", "IDLE", "CLOSED", "REFUSED"]
    assert set(re.findall(r"`([A-Z]+)`", line)) == set(WriteState)
