"""Runs commands in this process, on tables of a small shop, and has what they printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stelae.cli.app import run

USERS = """
    CREATE TABLE shop.users (user_id BIGINT COMMENT 'from the shop', name STRING, city STRING,
        PRIMARY KEY (user_id) NOT ENFORCED) COMMENT 'who buys' WITH ('bucket' = '2')"""
ORDERS = """
    CREATE TABLE shop.orders (dt DATE, region STRING, n INT, open BOOLEAN, total DECIMAL(10, 2),
        PRIMARY KEY (dt, region, n, open) NOT ENFORCED)
    PARTITIONED BY (dt) WITH ('bucket-key' = 'region', 'bucket' = '4')"""
BUILT_MS = 1_795_176_000_000  # 2026-11-20 12:00 UTC


class Printed:
    """Runs commands, and has what they printed."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        code = run(words)
        self.out, self.err = self._capture.readouterr()
        return code

    @property
    def json(self) -> Any:
        return json.loads(self.out)
