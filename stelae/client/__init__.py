"""Lookups and inserts over HTTP, from Python.

operations.py         what a call asks and what becomes of the answers: generators without I/O, for both clients
json_codec.py         keys and rows by a table's schema, in JSON; arrow_codec.py: in Arrow; dataframes.py: other libraries
retry.py              what is asked again, and when
client.py             carries operations out over connection_pool.py, which speaks http1.py
async_client.py       the same with asyncio
stats.py              what a client counted
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stelae.client.async_client import AsyncClient as AsyncClient
    from stelae.client.client import Client as Client

_HOMES = {"AsyncClient": "async_client", "Client": "client"}

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"stelae.client.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'stelae.client' has no attribute {name!r}")
