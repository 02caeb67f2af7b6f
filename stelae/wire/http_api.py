"""What client and server say to each other: paths, headers, limits. The bodies are described in docs/http.md.

    GET   /v1/tables
    GET   /v1/tables/{table}
    GET   /v1/tables/{table}/lookup?key=value&columns=a,b
    POST  /v1/tables/{table}/lookup                   {"keys": [...], "columns": [...]}
    POST  /v1/tables/{table}/prefix-lookup            {"prefix": {...}, "limit": 100, "columns": [...]}
    POST  /v1/tables/{table}/insert-if-not-exists     {"keys": [...], "columns": [...]}

Bodies of `POST` are JSON, or Arrow streams (`stelae/wire/arrow_stream.py`); then all but the keys is in the query.

Every answer from a snapshot names it in the header `Stelae-Snapshot`. The same header on a request pins it: the
answer then comes from that snapshot or is an error.
"""

from __future__ import annotations

from urllib.parse import quote

SNAPSHOT_HEADER = "Stelae-Snapshot"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PROBLEM_JSON = "application/problem+json"

TABLES_PATH = "/v1/tables"
LOOKUP = "lookup"
PREFIX_LOOKUP = "prefix-lookup"
INSERT_IF_NOT_EXISTS = "insert-if-not-exists"

COLUMNS_PARAMETER = "columns"
"""Query parameter of a point lookup that selects columns; all other parameters are key columns."""

ROWS_PARAMETER = "rows"
"""Query parameter of Arrow requests: the form of rows, TYPED or ENCODED."""
TYPED, ENCODED = "typed", "encoded"
LIMIT_PARAMETER, PAGE_TOKEN_PARAMETER = "limit", "page_token"
"""Query parameters of prefix lookups in Arrow; in JSON they are members of the body."""

DEFAULT_LIMIT = 100
"""Rows of a prefix-lookup page when the request does not say."""


def table_path(table: str) -> str:
    """Describes one table."""
    return f"{TABLES_PATH}/{quote(table, safe='.')}"


def lookup_path(table: str) -> str:
    """Point lookups (GET) and batch lookups (POST)."""
    return f"{table_path(table)}/{LOOKUP}"


def prefix_lookup_path(table: str) -> str:
    """Prefix lookups (POST)."""
    return f"{table_path(table)}/{PREFIX_LOOKUP}"


def insert_path(table: str) -> str:
    """Insert-if-not-exists (POST)."""
    return f"{table_path(table)}/{INSERT_IF_NOT_EXISTS}"
