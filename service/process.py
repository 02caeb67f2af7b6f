"""How a process of the server runs: uvicorn's settings and the collector's. The same for leader and followers."""

from __future__ import annotations

import asyncio

import uvicorn

from service.asgi import App
from service.options import ServerOptions
from service.protocol import OneWriteProtocol

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
