"""Goal: paths and URLs open the storage that they name, here and in another process."""

from __future__ import annotations

import pickle
from pathlib import Path

import obstore.store
import pytest

from stelae.errors import InvalidRequest
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.object_store import ObjectStorage
from stelae.storage.open import open_storage
from stelae.storage.view import StorageView


def test_open_storage(tmp_path: Path) -> None:
    for spelling in (tmp_path / "a b", str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
        storage = open_storage(spelling)
        assert isinstance(storage, LocalStorage)
        assert storage.root == tmp_path / "a b"
    assert isinstance(open_storage("memory:"), MemoryStorage)
    assert open_storage("warehouse").url == (Path.cwd() / "warehouse").as_uri()
    assert open_storage("odd:name").url == (Path.cwd() / "odd:name").as_uri()
    assert isinstance(open_storage("s3://bucket/path/", region="eu-central-1"), ObjectStorage)


def test_opening_changes_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "root")
    assert list(storage.list()) == []
    assert storage.folders() == ()
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("url", "options"),
    [("", {}), ("foo://bucket", {}), ("warehouse", {"region": "x"}), ("s3://bucket", {"no_such_option": "x"})],
)
def test_open_storage_refuses(url: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        open_storage(url, **options)


def test_a_url_opens_the_same_place(local: LocalStorage) -> None:
    local.put_if_absent("a b/ü.json", b"x")
    assert open_storage(local.url).get("a b/ü.json") == b"x"
    view = StorageView(local, "a b")
    assert open_storage(view.url).get("ü.json") == b"x"


def test_pickle(local: LocalStorage) -> None:
    view = StorageView(local, "a")
    view.put_if_absent("b", b"x")
    copy: StorageView = pickle.loads(pickle.dumps(view))
    assert copy.get("b") == b"x"
    assert copy.url == view.url
    remote = open_storage("s3://bucket/path", region="eu-central-1", skip_signature=True)
    assert pickle.loads(pickle.dumps(remote)).url == "s3://bucket/path"
    for stays in (MemoryStorage(), ObjectStorage("memory:", store=obstore.store.MemoryStore())):
        with pytest.raises(InvalidRequest):
            pickle.dumps(stays)
