"""Clients for tests: the two of the project, each behind the same blocking calls."""

from __future__ import annotations

import asyncio
from typing import Any

from stelae.client.async_client import AsyncClient
from stelae.client.client import Client


class BlockingAsyncClient:
    """An AsyncClient whose calls are run to their end, so that a test asks it as it asks a Client."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.client = AsyncClient(*arguments, **named)
        self._runner = asyncio.Runner()

    def __enter__(self) -> BlockingAsyncClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.client.close())
        self._runner.close()

    @property
    def stats(self) -> Any:
        return self.client.stats

    def prefix_scan(self, *arguments: Any, **named: Any) -> list[Any]:
        async def scan() -> list[Any]:
            return [row async for row in self.client.prefix_scan(*arguments, **named)]

        return self._runner.run(scan())

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)

        async def awaited(*arguments: Any, **named: Any) -> Any:
            return await call(*arguments, **named)

        return lambda *arguments, **named: self._runner.run(awaited(*arguments, **named))


CLIENTS = {"blocking": Client, "async": BlockingAsyncClient}
