"""Snapshots on storages that fail on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.snapshot.snapshots import TableSnapshots
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from tests.faults import FaultyStorage
from tests.stelae.snapshot.commits import TABLE


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(tmp_path / "users") if request.param == "local" else MemoryStorage())


@pytest.fixture
def snapshots(storage: FaultyStorage) -> TableSnapshots:
    return TableSnapshots(storage, TABLE)
