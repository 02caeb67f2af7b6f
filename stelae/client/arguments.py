"""What callers give to a client, checked, and made what a request says: names of tables, columns, keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from stelae.errors import InvalidRequest
from stelae.names import TableName
from stelae.wire import http_api as wire

MAX_URL_QUERY_BYTES = 4_000
"""A longer key goes into a body: servers and proxies bound the length of a URL."""


@lru_cache(1024)
def table_name(table: str) -> str:
    """The whole name of a table."""
    return str(TableName.parse(table))


def lookup_url(table: str, key: Mapping[str, Any], columns: Sequence[str] | None) -> str | None:
    """Path and query of a point lookup; None where they can't say it, and a batch of one key can."""
    if None in key.values():
        return None
    pairs = {name: _query_text(value) for name, value in key.items()}
    if columns is not None:
        if wire.COLUMNS_PARAMETER in key or any("," in name for name in columns):
            return None
        pairs[wire.COLUMNS_PARAMETER] = ",".join(columns)
    query = urlencode(pairs)
    return f"{wire.lookup_path(table)}?{query}" if len(query) <= MAX_URL_QUERY_BYTES else None


def _query_text(value: Any) -> str:
    """A JSON value of a key column as `from_text` of `stelae/encoding/values.py` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def column_list(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is one text: {columns!r}", place="columns", hint=f"a list: [{columns!r}]")
    return None if columns is None else list(columns)


def key_list(keys: Any, call: str) -> list[Any]:
    """Keys as a list. An Arrow array or a series becomes a list of Python values."""
    if isinstance(keys, str | bytes | Mapping):
        hint = "one key: lookup" if call == "lookup_many" else "one key: [key]"
        raise InvalidRequest(f"{call} takes a sequence of keys", place="keys", hint=hint)
    if hasattr(keys, "to_pylist"):
        return list(keys.to_pylist())
    return list(keys)


def check_names_are_for_tables(**names: str | None) -> None:
    for option, name in names.items():
        if name is not None:
            raise InvalidRequest(
                f"{option} names a column of an answer that is a table; these keys are a list",
                place=option,
                hint="give the keys as an Arrow table or a DataFrame",
            )
