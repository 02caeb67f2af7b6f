"""Lookups and inserts over HTTP, from Python. No Spark, no RocksDB, no storage.

A client says what it wants as an operation; two clients carry operations out.

    settings.py, results.py      what a client is made with; what its calls give
    client_base.py               what both clients are
    operations.py                what a call asks and what becomes of the answers
        arguments.py             what callers give, checked
        json_codec.py            keys and rows by a table's schema, in JSON; arrow_codec.py: in Arrow
        dataframes.py            tables of pandas and Polars
        retried_requests.py      one request, sent until it is answered; replies.py: what its answer is
        retry.py                 what is asked again, and when
        steps.py                 what operations and clients say to each other
    client.py                    over connection_pool.py, which speaks http1.py
    async_client.py              with asyncio
    stats.py                     what a client counted

Sockets, threads and waiting are in client.py, connection_pool.py and async_client.py alone; all else has no I/O and is
tested without it. (retry.py reads the clock, and has a lock: the threads of a client share its budget.) Read first
`operations.py`, then `retried_requests.py`.

The names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stelae.client.async_client import AsyncClient as AsyncClient
    from stelae.client.client import Client as Client
    from stelae.client.client import ClientStats as ClientStats
    from stelae.client.client import InsertedRows as InsertedRows
    from stelae.client.client import Key as Key
    from stelae.client.client import Page as Page
    from stelae.client.client import PrefixRows as PrefixRows
    from stelae.client.client import Row as Row
    from stelae.client.client import Rows as Rows
    from stelae.client.client import SnapshotGone as SnapshotGone
    from stelae.client.client import TableInfo as TableInfo

__all__ = [
    "AsyncClient",
    "Client",
    "ClientStats",
    "InsertedRows",
    "Key",
    "Page",
    "PrefixRows",
    "Row",
    "Rows",
    "SnapshotGone",
    "TableInfo",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "async_client" if name == "AsyncClient" else "client"
        return getattr(import_module(f"stelae.client.{module}"), name)
    raise AttributeError(f"module 'stelae.client' has no attribute {name!r}")
