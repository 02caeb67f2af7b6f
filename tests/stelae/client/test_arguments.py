"""Goal: a point lookup is a URL where a URL can say it, and a body otherwise.

Method: keys and the URLs that they give.
"""

from __future__ import annotations

from stelae.client.arguments import lookup_url


def test_keys_in_urls() -> None:
    assert lookup_url("a.b", {"k": 1}, None) == "/v1/tables/a.b/lookup?k=1"
    assert (
        lookup_url("a.b", {"k": "ä &=", "b": True}, ["x"]) == "/v1/tables/a.b/lookup?k=%C3%A4+%26%3D&b=true&columns=x"
    )
    assert lookup_url("a.b", {"columns": 1}, ["x"]) is None
    assert lookup_url("a.b", {"k": 1}, ["x,y"]) is None
    assert lookup_url("a.b", {"k": None, "b": 1}, None) is None
    assert lookup_url("a.b", {"k": "x" * 5000}, None) is None
