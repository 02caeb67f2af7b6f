"""Stelae: primary-key tables that Spark builds and an HTTP service serves.

    import stelae
    warehouse = stelae.Warehouse("warehouse")          # where tables live: a folder or an object store
    client = stelae.Client("http://localhost:8000")    # a tablet server

The names below load on first use, so that `import stelae` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stelae.client.async_client import AsyncClient as AsyncClient
    from stelae.client.client import Client as Client
    from stelae.snapshot.warehouse import Table as Table
    from stelae.snapshot.warehouse import Warehouse as Warehouse

from stelae.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InvalidRequest,
    NotFound,
    StelaeError,
    TooLarge,
    Unavailable,
)
from stelae.version import __version__ as __version__

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "Client",
    "Conflict",
    "CorruptData",
    "InvalidRequest",
    "NotFound",
    "StelaeError",
    "Table",
    "TooLarge",
    "Unavailable",
    "Warehouse",
]

_LAZY = {
    "AsyncClient": "stelae.client.async_client",
    "Client": "stelae.client.client",
    "Table": "stelae.snapshot.warehouse",
    "Warehouse": "stelae.snapshot.warehouse",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'stelae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
