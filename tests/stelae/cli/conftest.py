"""A warehouse with two small tables, and commands on it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stelae.cli import arguments
from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import BUILT_MS, ORDERS, USERS, Printed
from tests.tables import commit_rows


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (arguments.WAREHOUSE_VARIABLE, arguments.URL_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def users(folder: str) -> Table:
    table = Warehouse(folder).create_table(USERS)
    rows = [{"user_id": i, "name": f"n{i}", "city": "[bold]Bern" if i % 2 else None} for i in range(1, 21)]
    commit_rows(table, rows, hidden=[{"user_id": 99}], created_ms=BUILT_MS)
    return table


@pytest.fixture
def orders(folder: str) -> Table:
    table = Warehouse(folder).create_table(ORDERS)
    rows = [
        {"dt": datetime(2026, 11, day, tzinfo=UTC).date(), "region": r, "n": n, "open": n % 2 == 0, "total": n}
        for day in (20, 21)
        for r in ("a=b", "eu")
        for n in range(5)
    ]
    commit_rows(table, rows, created_ms=BUILT_MS)
    return table


@pytest.fixture
def stelae(capfd: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capfd)
