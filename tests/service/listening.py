"""A tablet server in this process that listens on a port of its own, for clients that speak HTTP.

with listening(ServerOptions(poll_interval_s=0.05), warehouse) as url:
    Client(url).lookup(...)
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn

from stelae.service.app import create_app
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse
from tests.waiting import WAIT_S, wait_until


@contextmanager
def listening(options: ServerOptions, warehouse: Warehouse, port: int = 0) -> Iterator[str]:
    """The server in a thread; gives its URL when it is ready. Builds find it there, unless an option says where."""
    # Of TCP by name: asyncio sends small packets at once on such sockets only.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as socket_:
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket_.bind(("127.0.0.1", port))
        url = f"http://127.0.0.1:{socket_.getsockname()[1]}"
        app = create_app(replace(options, advertise_url=options.advertise_url or url), warehouse)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", interface="asgi3"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([socket_])))
        thread.start()
        try:
            wait_until(lambda: app.ready)
            yield url
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
