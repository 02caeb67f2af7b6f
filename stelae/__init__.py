"""Stelae: primary-key tables that Spark builds and an HTTP service serves.

    import stelae
    warehouse = stelae.Warehouse("warehouse")          # where tables live: a folder or an object store
    client = stelae.Client("http://localhost:8000")    # a tablet server

schema/      what a table is: columns, options, merge rules
encoding/    values to bytes and back
storage/     put-if-absent, durable; the names of all files
snapshot/    manifests, commits, what is kept; the warehouse
rocksdb/     sorted files and tablets
read/        from a key to its row
log/         what was written online since a snapshot
ownership/   who may write a table, and which ids it may give
verify/      a table held against all that it says of itself
wire/        what server and client agree on
client/      lookups and inserts over HTTP
spark/       lookups from Spark jobs
cli/         the command line
errors.py    every error that callers may catch; names.py, units.py, version.py, declared_options.py, waiting.py: small
             things that everybody may import

builder/ and service/ at the top of the repository are stelae.builder, which builds tables with Spark, and
stelae.service, the tablet server. Read schema/ first, then ARCHITECTURE.md.

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
