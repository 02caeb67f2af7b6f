"""What tests of lookups from Spark share."""

from __future__ import annotations

from stelae import Client
from stelae.errors import StelaeError
from tests.waiting import wait_until


def wait_until_served(url: str, table: str, snapshot: int | None) -> None:
    """Return when the server at `url` serves this snapshot of the table, or knows the table where it is None."""
    with Client(url) as client:

        def is_served() -> bool:
            try:
                return client.describe(table).snapshot == snapshot
            except StelaeError:
                return False

        wait_until(is_served, f"{table} is not served")
