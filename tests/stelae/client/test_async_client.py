"""Goal: the client for asyncio fails as the blocking one does, in as many tries; its tasks share connections, and what
is cancelled leaves nothing behind.

Method: the scripted server of the blocking client's tests, for both clients; many tasks before a real server. What rows
look like is in test_client_arrow.py, for both as well.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stelae import AsyncClient
from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse
from tests.service.listening import listening
from tests.stelae.client.clients import CLIENTS
from tests.stelae.client.scripted_server import Say, Script, batch, found, inserted, trouble
from tests.stelae.client.test_retried_requests import GONE
from tests.tables import commit_rows

KINDS = pytest.mark.parametrize("kind", CLIENTS)
LOADING = trouble(Unavailable("loading", place="t.t", hint="in a moment"), 503)


@KINDS
def test_headers_and_paths_go_along(kind: str) -> None:
    headers = {"Authorization": "Bearer x"}
    with Script(found(id=1, v="ä")) as script, CLIENTS[kind](script.url + "/stelae/", headers=headers) as client:
        assert client.lookup("t.t", 1, columns=["id", "v"], snapshot=5) == {"id": 1, "v": "ä"}
    [asked] = script.asked
    assert (asked.method, asked.path) == ("GET", "/stelae/v1/tables/t.t/lookup")
    assert asked.query == {"id": "1", "columns": "id,v"}
    assert asked.headers["Authorization"] == "Bearer x"
    assert asked.headers["Stelae-Snapshot"] == "5"
    assert asked.headers["User-Agent"].startswith("stelae/")
    assert asked.headers["Accept-Encoding"] == "identity"


@KINDS
def test_percent_signs_of_a_key_survive(kind: str) -> None:
    with Script(found(id=1, v="x")) as script, CLIENTS[kind](script.url) as client:
        client.lookup("t.t", {"id": 1}, columns=["a%2C b+&", "ä"])
        assert script.asked[0].query["columns"] == "a%2C b+&,ä"


@KINDS
@pytest.mark.parametrize("failure", [Say(hang_up=True), LOADING, Say(502, b"<html>", content="text/html")])
def test_what_may_pass_is_tried_again(kind: str, failure: Say) -> None:
    with Script(failure, failure, batch(1)) as script, CLIENTS[kind](script.url) as client:
        assert client.lookup_many("t.t", [1]) == [{"id": 1, "v": "s1"}]
        stats = client.stats
    assert len(script.asked) == 3
    assert (stats.requests, stats.retries, stats.keys) == (4, 2, 1)
    assert stats.bytes_sent == len('{"keys":[1],"columns":null}')
    assert stats.bytes_received > 100


@KINDS
def test_tries_come_to_an_end_with_the_reason(kind: str) -> None:
    told = pytest.raises(Unavailable, match="loading")
    with Script(LOADING, LOADING) as script, CLIENTS[kind](script.url, retries=1) as client, told as caught:
        client.lookup("t.t", 1)
    assert (caught.value.place, caught.value.hint) == ("t.t", "in a moment")
    assert script.answers == []


@KINDS
@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (trouble(CorruptData("bad block"), 500), CorruptData, "bad block"),
        (trouble(Conflict("is owned by"), 409), Conflict, "is owned by"),
        (Say(404, b"<html>", content="text/html"), InvalidRequest, "not the answer of a tablet server: 404"),
        (Say(200, b"{", content="application/json"), InvalidRequest, "not the answer of a tablet server"),
        (Say(307, b"", {"Location": "http://127.0.0.1:1/"}), InvalidRequest, "307"),
        (Say(200, {"nothing": 1}), Unavailable, "lacks or garbles 'row'"),
    ],
)
def test_what_servers_say_becomes_an_error(kind: str, answer: Say, error: type, told: str) -> None:
    with Script(answer) as script, CLIENTS[kind](script.url) as client, pytest.raises(error, match=told) as caught:
        client.lookup("t.t", 1)
    assert type(caught.value) is error


@KINDS
def test_a_slow_answer_is_not_asked_for_again(kind: str) -> None:
    told = pytest.raises(Unavailable, match=r"no answer within 0\.2 s")
    with Script(Say(body={}, delay_s=1.0)) as script, CLIENTS[kind](script.url, timeout_s=0.2) as client, told:
        client.insert_if_not_exists("t.t", [1])
    assert len(script.asked) == 1


@KINDS
def test_a_call_ends_by_its_deadline(kind: str) -> None:
    slow = Say(body={"rows": [{"id": 1, "v": ""}], "snapshot": 1}, delay_s=0.3)
    with Script(*[slow] * 9) as script, CLIENTS[kind](script.url, deadline_s=1.0, batch_size=1) as client:
        client.describe("t.t")
        started = time.monotonic()
        with pytest.raises(Unavailable, match="not done within 1 s"):
            client.lookup_many("t.t", range(9))
        assert time.monotonic() - started >= 0.9
    assert len(script.asked) in (1, 2, 3, 4), "all nine take 2.7 s"


@KINDS
def test_a_deadline_leaves_no_time_to_wait(kind: str) -> None:
    later = trouble(Unavailable("loading"), 503, **{"Retry-After": "5"})
    with Script(later) as script, CLIENTS[kind](script.url, deadline_s=4.0) as client:
        started = time.monotonic()
        with pytest.raises(Unavailable, match="loading"):
            client.lookup("t.t", 1)
        assert time.monotonic() - started < 4


@KINDS
def test_a_client_whose_requests_fail_stops_repeating_them(kind: str) -> None:
    with Script(*[Say(503, b"", content="text/plain")] * 200) as script, CLIENTS[kind](script.url, retries=1) as client:
        for _ in range(60):
            with pytest.raises(Unavailable, match="answered 503"):
                client.lookup("t.t", 1)
        stats = client.stats
    assert 60 + 20 <= len(script.asked) <= 60 + 20 + 6 + 10  # A tenth, and one a second.
    assert stats.retries + stats.withheld == 60
    assert stats.withheld >= 20


@KINDS
def test_a_server_that_is_not_there_is_unavailable(kind: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with CLIENTS[kind](url, retries=1) as client, pytest.raises(Unavailable, match="Connection refused") as caught:
            client.lookup("t.t", 1)
    assert caught.value.place == f"{url}/v1/tables/t.t"
    assert "stelae serve" in (caught.value.hint or "")


@KINDS
def test_a_port_that_speaks_something_else(kind: str) -> None:
    told = pytest.raises(InvalidRequest, match="not the answer of a tablet server")
    with Script(Say(200, b"", {"Content-Length": "x"})) as script, CLIENTS[kind](script.url) as client, told:
        client.lookup("t.t", 1)


@KINDS
def test_a_closed_client_says_so(kind: str) -> None:
    client = CLIENTS[kind]("http://127.0.0.1:1")
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.tables()


@KINDS
@pytest.mark.parametrize("parallel", [1, 2])
def test_parts_start_again_when_their_snapshot_is_gone(kind: str, parallel: int) -> None:
    answers = [batch(1), trouble(GONE, 404), batch(1, snapshot=3), batch(2, snapshot=3)]
    with Script(*answers) as script, CLIENTS[kind](script.url, batch_size=1, parallel=parallel) as client:
        rows = client.lookup_many("t.t", [1, 2])
    assert rows == [{"id": 1, "v": "s3"}, {"id": 2, "v": "s3"}]
    assert rows.snapshot == 3


@KINDS
def test_of_parts_that_fail_the_first_error_is_raised(kind: str) -> None:
    wrong = trouble(NotFound("no such thing"), 404)
    with Script(batch(1), *[wrong] * 8) as script:
        with (
            CLIENTS[kind](script.url, batch_size=1, parallel=3) as client,
            pytest.raises(NotFound, match="no such thing"),
        ):
            client.lookup_many("t.t", range(9))
        assert len(script.asked) <= 1 + 4


@KINDS
def test_an_insert_that_fails_in_the_middle_says_how_far_it_came(kind: str) -> None:
    wrong = trouble(InvalidRequest("no", place="keys[1].id", hint="look"), 400)
    told = pytest.raises(InvalidRequest)
    with Script(inserted(1, 2), wrong) as script, CLIENTS[kind](script.url, batch_size=2) as client, told as caught:
        client.insert_if_not_exists("t.t", [1, 2, 3, 4])
    assert caught.value.place == "keys[3].id"
    assert caught.value.hint == "look; the first 2 keys of the call are in the table; it can be repeated as it is"


# Tasks and loops


@pytest.fixture
def users(tmp_path: Path) -> Any:
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table("CREATE TABLE shop.users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)")
    commit_rows(table, [{"id": i, "name": f"n{i}"} for i in range(200)])
    with listening(ServerOptions(poll_interval_s=0.05), warehouse) as url:
        yield url


def test_tasks_share_a_client(users: str) -> None:
    async def work() -> None:
        async with AsyncClient(users, connections=3) as client:
            rows = await asyncio.gather(*(client.lookup("shop.users", i) for i in range(200)))
            assert rows == [{"id": i, "name": f"n{i}"} for i in range(200)]
            assert [row["id"] async for row in client.prefix_scan("shop.users", {}, page_size=70)] == sorted(range(200))

    asyncio.run(work())


def test_tasks_wait_for_a_free_connection_only_so_long() -> None:
    async def work(url: str) -> None:
        async with AsyncClient(url, connections=1, timeout_s=5.0) as client:
            await client.describe("t.t")
            slow = asyncio.create_task(client.lookup("t.t", 1))
            while not script.asked:
                await asyncio.sleep(0.01)
            client._settings = replace(client._settings, timeout_s=0.2)
            with pytest.raises(Unavailable, match="no connection was free"):
                await client.lookup("t.t", 2)
            assert await slow == {"id": 1, "v": "x"}

    slow = found(id=1, v="x")
    slow.delay_s = 1.0
    with Script(slow) as script:
        asyncio.run(work(script.url))
    assert len(script.asked) == 1


def test_a_client_may_go_from_loop_to_loop(users: str) -> None:
    client = AsyncClient(users)

    async def work() -> Any:
        return await client.lookup("shop.users", 7)

    assert asyncio.run(work()) == asyncio.run(work()) == {"id": 7, "name": "n7"}
    other = pickle.loads(pickle.dumps(client))

    async def end() -> Any:
        async with other:
            return await other.lookup("shop.users", 7)

    assert asyncio.run(end()) == {"id": 7, "name": "n7"}
    asyncio.run(client.close())


def test_a_call_that_is_cancelled_leaves_no_tasks() -> None:
    async def work(url: str) -> None:
        async with AsyncClient(url, batch_size=1, parallel=3) as client:
            call = asyncio.create_task(client.lookup_many("t.t", range(20)))
            await asyncio.sleep(0.3)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with Script(batch(1), *[Say(body={}, delay_s=1)] * 20) as script:
        asyncio.run(work(script.url))


def test_without_aiohttp_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "import stelae; stelae.Client('http://a')\n"
        "try:\n    stelae.AsyncClient('http://a')\n"
        "except stelae.InvalidRequest as exc:\n    print(exc)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "python -m pip install 'stelae[async]'" in said
