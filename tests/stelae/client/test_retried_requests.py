"""Goal: what servers and proxies say, or don't, becomes the right rows or an error that says what to do; what may
pass is tried again.

Method: a scripted server that says anything, or hangs up.
"""

from __future__ import annotations

import socket
import time
from datetime import date
from typing import Any

import pytest

from stelae.client.client import Client
from stelae.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    TooLarge,
    Unavailable,
)
from tests.stelae.client.scripted_server import Say, Script, batch, found, inserted, schema_json, trouble

GONE = NotFound("snapshot 1 of t.t is not open here", place="Stelae-Snapshot")


def test_a_point_lookup_is_a_get() -> None:
    with Script(found(id=1, v="x")) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1, columns=["id", "v"], snapshot=5) == {"id": 1, "v": "x"}
    [asked] = script.asked
    assert (asked.method, asked.path) == ("GET", "/v1/tables/t.t/lookup")
    assert asked.query == {"id": "1", "columns": "id,v"}
    assert asked.headers["Stelae-Snapshot"] == "5"
    assert asked.headers["User-Agent"].startswith("stelae/")


def test_a_url_may_have_a_path_and_headers_go_along() -> None:
    with Script(found(id=1, v="x")) as script:
        with Client(script.url + "/stelae/", headers={"Authorization": "Bearer x"}) as client:
            client.lookup("t.t", 1)
        assert script.asked[0].path == "/stelae/v1/tables/t.t/lookup"
        assert script.asked[0].headers["Authorization"] == "Bearer x"


def test_what_a_query_cannot_say_is_sent_as_a_body() -> None:
    with Script(batch(1)) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1, columns=["a,b"]) == {"id": 1, "v": "s1"}
    assert script.asked[0].body == {"keys": [1], "columns": ["a,b"]}


def test_the_schema_is_fetched_once_a_table() -> None:
    with Script(found(id=1, v="x"), found(id=1, v="x"), batch(1)) as script, Client(script.url) as client:
        client.lookup("t.t", 1)
        client.lookup("t.t", 1)
        client.lookup_many("t.t", [1])
        assert script.described == 1


def test_an_unknown_column_makes_the_client_look_again() -> None:
    schemas = [schema_json(), schema_json("born DATE")]
    with Script(found(id=1, born="2026-11-20"), schemas=schemas) as script, Client(script.url) as client:
        assert client.lookup("t.t", 1) == {"id": 1, "born": date(2026, 11, 20)}
        assert script.described == 2


def test_a_table_without_a_readable_schema_is_listed() -> None:
    bodies = [
        {"name": "t.bad", "state": "FAILED", "schema": None, "snapshot": None, "rows": None},
        {"name": "t.t", "state": "READY", "schema": schema_json(), "snapshot": 1, "rows": 1},
    ]
    with Script(Say(body={"tables": bodies})) as script, Client(script.url) as client:
        bad, good = client.tables()
    assert (bad.name, bad.schema, bad.snapshot, bad.rows) == ("t.bad", None, None, None)
    assert good.schema is not None


def test_a_column_that_no_schema_has_is_an_error() -> None:
    told = pytest.raises(Unavailable, match="does not fit the schema")
    with Script(found(id=1, nix=1)) as script, Client(script.url) as client, told:
        client.lookup("t.t", 1)


def test_parts_of_a_batch_share_the_snapshot_of_the_first() -> None:
    with Script(batch(1, 2, snapshot=7), batch(3, snapshot=7)) as script, Client(script.url, batch_size=2) as client:
        rows = client.lookup_many("t.t", [1, 2, 3])
    assert [row["id"] for row in rows if row] == [1, 2, 3]
    assert rows.snapshot == 7
    assert "Stelae-Snapshot" not in script.asked[0].headers
    assert script.asked[1].headers["Stelae-Snapshot"] == "7"


def test_a_batch_starts_again_when_its_snapshot_is_gone() -> None:
    answers = [batch(1), trouble(GONE, 404), batch(1, snapshot=3), batch(2, snapshot=3)]
    with Script(*answers) as script, Client(script.url, batch_size=1) as client:
        rows = client.lookup_many("t.t", [1, 2])
    assert rows == [{"id": 1, "v": "s3"}, {"id": 2, "v": "s3"}]
    assert rows.snapshot == 3


def test_a_batch_gives_up_when_snapshots_keep_going() -> None:
    answers = [batch(1), trouble(GONE, 404)] * 3
    told = pytest.raises(NotFound, match="not open here")
    with Script(*answers) as script, Client(script.url, batch_size=1) as client, told:
        client.lookup_many("t.t", [1, 2])
    assert script.answers == []


@pytest.mark.parametrize(
    "failure",
    [
        Say(hang_up=True),
        trouble(Unavailable("loading"), 503),
        Say(502, b"<html>", content="text/html"),
        Say(429, b"slow down", content="text/plain"),
    ],
    ids=["hang up", "loading", "proxy", "too many"],
)
@pytest.mark.parametrize("many", [False, True], ids=["get", "post"])
def test_what_may_pass_is_tried_again(failure: Say, many: bool) -> None:
    with Script(failure, failure, batch(1) if many else found(id=1, v="x")) as script, Client(script.url) as client:
        assert client.lookup_many("t.t", [1])[0] if many else client.lookup("t.t", 1)
    assert len(script.asked) == 3


def test_tries_come_to_an_end_with_the_reason() -> None:
    loading = trouble(Unavailable("table t.t is loading", place="t.t", hint="in a moment"), 503)
    told = pytest.raises(Unavailable, match="is loading")
    with Script(loading, loading) as script, Client(script.url, retries=1) as client, told as caught:
        client.lookup("t.t", 1)
    assert (caught.value.place, caught.value.hint) == ("t.t", "in a moment")


def test_retry_after_is_obeyed() -> None:
    loading = trouble(Unavailable("loading"), 503, **{"Retry-After": "1"})
    with Script(loading, found(id=1, v="x")) as script, Client(script.url) as client:
        client.describe("t.t")
        started = time.monotonic()
        client.lookup("t.t", 1)
        assert time.monotonic() - started >= 1


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (trouble(CorruptData("bad block", place="x.sst"), 500), CorruptData, "bad block"),
        (trouble(TooLarge("too long"), 413), TooLarge, "too long"),
        (trouble(NotFound("no table"), 404), NotFound, "no table"),
        (Say(500, b"oops", content="text/plain"), Unavailable, "500"),
        (Say(404, b"<html>", content="text/html"), InvalidRequest, "not the answer of a tablet server: 404"),
        (Say(404, {"detail": "Not Found"}), InvalidRequest, "not the answer of a tablet server: 404"),
        (Say(200, b"<html>", content="text/html"), InvalidRequest, "not the answer of a tablet server"),
        (Say(200, b"{", content="application/json"), InvalidRequest, "not the answer of a tablet server"),
        (Say(307, b"", {"Location": "http://127.0.0.1:1/"}), InvalidRequest, "307"),
        (Say(200, {"nothing": 1}), Unavailable, "the answer lacks or garbles 'row'"),
        (Say(200, [1]), Unavailable, "the answer lacks or garbles"),
    ],
)  # fmt: skip
def test_what_servers_say_becomes_an_error(answer: Say, kind: type, told: str) -> None:
    with Script(answer) as script, Client(script.url) as client, pytest.raises(kind, match=told) as caught:
        client.lookup("t.t", 1)
    assert type(caught.value) is kind


def test_an_insert_is_a_post_of_bare_keys() -> None:
    with Script(inserted(1, 2)) as script, Client(script.url) as client:
        client.insert_if_not_exists("t.t", [{"id": 1}, {"id": 2}], columns=["id", "v"])
    [asked] = script.asked
    assert (asked.method, asked.path) == ("POST", "/v1/tables/t.t/insert-if-not-exists")
    assert asked.body == {"keys": [1, 2], "columns": ["id", "v"]}
    assert "Stelae-Snapshot" not in asked.headers


@pytest.mark.parametrize("failure", [Say(hang_up=True), trouble(Unavailable("a flush failed"), 503)])
def test_inserts_are_tried_again(failure: Say) -> None:
    with Script(failure, inserted(1, 2, first=2)) as script, Client(script.url) as client:
        rows = client.insert_if_not_exists("t.t", [1, 2])
    assert rows.inserted == [False, True]
    assert len(script.asked) == 2


def test_an_insert_without_an_answer_is_not_sent_again() -> None:
    told = pytest.raises(Unavailable, match=r"no answer within 0\.2 s")
    with Script(Say(body={}, delay_s=1.0)) as script, Client(script.url, timeout_s=0.2) as client, told:
        client.insert_if_not_exists("t.t", [1])
    assert len(script.asked) == 1


def test_the_owner_of_a_table_is_named_and_asked_once() -> None:
    hint = "send writes to it: http://other:8000"
    told = pytest.raises(Conflict, match="is owned by")
    refused = trouble(Conflict("table t.t is owned by server 'other'", hint=hint), 409)
    with Script(refused) as script, Client(script.url) as client, told as caught:
        client.insert_if_not_exists("t.t", [1])
    assert caught.value.hint == hint
    assert len(script.asked) == 1


def test_errors_of_later_parts_name_the_key_of_the_call() -> None:
    wrong = trouble(InvalidRequest("no", place="keys[1].id", hint="look"), 400)
    with Script(inserted(1, 2), wrong) as script, Client(script.url, batch_size=2) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.insert_if_not_exists("t.t", [1, 2, 3, 4])
        assert caught.value.place == "keys[3].id"
        assert caught.value.hint == "look; the first 2 keys of the call are in the table; it can be repeated as it is"
    with Script(batch(1, 2), wrong) as script, Client(script.url, batch_size=2) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.lookup_many("t.t", [1, 2, 3, 4])
        assert (caught.value.place, caught.value.hint) == ("keys[3].id", "look")


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [{"id": 1}], "inserted": [True, True]},
        {"rows": [{"id": 1}, {"id": 2}], "inserted": [True]},
        {"rows": [{"id": 1}, {"id": 2}]},
        {"rows": 2, "inserted": [True, True]},
    ],
)
def test_answers_that_are_not_aligned_are_refused(body: Any) -> None:
    told = pytest.raises(Unavailable, match="lacks or garbles")
    with Script(Say(body=body)) as script, Client(script.url) as client, told:
        client.insert_if_not_exists("t.t", [1, 2])


def test_a_slow_answer_is_not_asked_for_again() -> None:
    told = pytest.raises(Unavailable, match=r"no answer within 0\.2 s")
    with Script(Say(body={}, delay_s=1.0)) as script, Client(script.url, timeout_s=0.2) as client, told:
        client.lookup("t.t", 1)
    assert len(script.asked) == 1


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with Client(url, retries=1) as client, pytest.raises(Unavailable, match="Connection refused") as caught:
        client.lookup("t.t", 1)
    assert caught.value.place == f"{url}/v1/tables/t.t"
    assert "stelae serve" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "", "http://a/?x=1", "http://me:pw@a/", None, "http://[::1"]
)
def test_a_url_must_be_that_of_a_server(url: Any) -> None:
    with pytest.raises(InvalidRequest, match="URL"):
        Client(url)


def test_a_closed_client_says_so() -> None:
    client = Client("http://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.tables()
