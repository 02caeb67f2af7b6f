"""How a process of the server runs: uvicorn's settings, the collector's, Arrow's. The same for leader and followers."""

from __future__ import annotations

import asyncio
import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa
import uvicorn

from stelae.service.http.asgi import App
from stelae.service.http.uvicorn_protocol import OneWriteProtocol
from stelae.service.options import ServerOptions

KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than the usual load balancer (60 s), which must be the one to close
it.
"""
BACKLOG = 2048
GC_THRESHOLDS = (50_000, 20, 50)
"""A large batch makes some hundred thousand dicts that all die with it; the default would look through them 100
times.
"""


def uvicorn_config(
    app: App, options: ServerOptions, protocol: type[asyncio.Protocol] = OneWriteProtocol
) -> uvicorn.Config:
    """How uvicorn runs the application. Benchmarks run their peers so, too, with uvicorn's own protocol."""
    return uvicorn.Config(
        app,
        interface="asgi3",
        loop="auto",
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(options.shutdown_grace_s),
        backlog=BACKLOG,
    )


def leave_pandas_out() -> None:
    """Have Arrow not look for pandas: with the first array that it makes it would import it, a second's work and 60 MB,
    only to know whether what it was given is of pandas. Nobody else in this process is kept from it.
    """
    blocker = _NoPandas()
    sys.meta_path.insert(0, blocker)
    try:
        pa.array([0])  # Arrow asks once
    finally:
        sys.meta_path.remove(blocker)


class _NoPandas:
    """Finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("left out", name=name)
        return None
