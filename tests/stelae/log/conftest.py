"""Folders for logs, and files that fail on purpose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stelae.log import writer
from tests.stelae.log.logs import Faults


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small logs, none of which has to outlast a power cut."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(writer, "_fdatasync", lambda handle: None)


@pytest.fixture
def faults() -> Faults:
    return Faults()
