"""Tables that a server in this process serves, for lookups from Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse
from tests.service.listening import listening


@dataclass(frozen=True)
class Served:
    """A warehouse, and the server that has it."""

    warehouse: Warehouse
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Tables that are made before the server is asked show within a fraction of a second: `served_now` waits."""
    warehouse = Warehouse(tmp_path_factory.mktemp("served") / "warehouse")
    with listening(ServerOptions(poll_interval_s=0.05, name="of the joins", separate_loads=False), warehouse) as url:
        yield Served(warehouse, url)
