"""What tests of lookups from Spark share."""

from __future__ import annotations

import time

from stelae import Client
from stelae.errors import StelaeError

WAIT_S = 30.0


def wait_until_served(url: str, table: str, snapshot: int | None) -> None:
    """Return when the server at `url` serves this snapshot of the table, or knows the table where it is None."""
    deadline = time.monotonic() + WAIT_S
    with Client(url) as client:
        while True:
            try:
                if client.describe(table).snapshot == snapshot:
                    return
            except StelaeError:
                pass
            assert time.monotonic() < deadline, f"{table} is not served"
            time.sleep(0.02)
