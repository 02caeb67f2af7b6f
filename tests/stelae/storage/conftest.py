"""Every storage there is, and an S3 for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import obstore.store
import pytest

from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.object_store import ObjectStorage
from stelae.storage.open import open_storage
from stelae.storage.storage import Storage
from stelae.storage.view import StorageView
from tests.s3 import Store, running


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    with running() as store:
        yield store


@pytest.fixture(params=["local", "memory", "object", "s3", "view", "local view"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: dict[str, Callable[[], Storage]] = {
        "s3": lambda: s3_storage(request.getfixturevalue("s3")),
        "local": lambda: LocalStorage(tmp_path / "root"),
        "memory": MemoryStorage,
        "object": lambda: ObjectStorage("memory://", store=obstore.store.MemoryStore()),
        "view": lambda: StorageView(MemoryStorage(), "some/folder"),
        "local view": lambda: StorageView(LocalStorage(tmp_path / "root"), "shop.db/users"),
    }
    return made[str(request.param)]()


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


def s3_storage(store: Store) -> Storage:
    """An empty place in the S3 of these tests."""
    store.objects.clear()
    store.requests.clear()
    return open_storage("s3://bucket/some/prefix", **store.options)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
