"""Goal: the settings of a client are declared once, and what makes no sense is refused before anything is sent.

Method: both clients' signatures and docs/client.md against the fields of ClientSettings; tables of URLs and headers.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest

from stelae.client.async_client import AsyncClient
from stelae.client.client import Client
from stelae.client.settings import ClientSettings, Endpoint, checked_headers
from stelae.declared_options import declared
from stelae.errors import InvalidRequest
from tests.stelae.client.clients import CLIENTS


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_clients_take_the_settings_by_name_with_their_defaults(kind: type[Any]) -> None:
    parameters = dict(signature(kind).parameters)
    url = parameters.pop("url")
    assert (url.kind, url.default) == (Parameter.POSITIONAL_OR_KEYWORD, Parameter.empty)
    assert {each.kind for each in parameters.values()} == {Parameter.KEYWORD_ONLY}
    assert {name: each.default for name, each in parameters.items()} == {
        each.name: each.default for each in declared(ClientSettings)
    }


@pytest.mark.parametrize(
    "settings",
    [{"parallel": 0}, {"batch_size": 0}, {"connections": 0}, {"retries": -1}, {"timeout_s": 0},
     {"timeout_s": float("nan")}, {"deadline_s": -1}, {"compression": "lzma"}, {"headers": {"a": "b\n"}}],
)  # fmt: skip
@pytest.mark.parametrize("kind", CLIENTS)
def test_settings_are_checked(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        CLIENTS[kind]("http://a", **settings)
    assert caught.value.place == next(iter(settings))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a", ("a", 80, "a", "")),
        ("https://a/", ("a", 443, "a", "")),
        ("http://a:8000/x/ä/", ("a", 8000, "a:8000", "/x/%C3%A4")),
        ("http://[::1]:80", ("::1", 80, "[::1]:80", "")),
        ("http://bücher.example", ("xn--bcher-kva.example", 80, "xn--bcher-kva.example", "")),
    ],
)
def test_where_a_url_points(url: str, expected: tuple[str, int, str, str]) -> None:
    endpoint = Endpoint.parse(url)
    assert (endpoint.host, endpoint.port, endpoint.authority, endpoint.path) == expected


@pytest.mark.parametrize("url", ["http://a b", "http://a\r\nX: y", "http://a:99999", "http://a:x", "a", "http://:80"])
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(InvalidRequest):
        Endpoint.parse(url)


@pytest.mark.parametrize(
    "headers",
    [{"A": "b\r\nC: d"}, {"A B": "c"}, {"": "x"}, {"A": "→"}, {"Host": "x"}, {"content-length": "1"}, {"A": 1}],
)
def test_headers_are_no_more_than_they_seem(headers: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked_headers(headers)
    assert caught.value.place == "headers"
