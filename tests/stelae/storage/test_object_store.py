"""Goal: an object store behind HTTP keeps the promises when answers get lost, and in as few requests as can be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import obstore.store
import pytest

import stelae.storage.object_store
from stelae.errors import AlreadyExists, Unavailable
from stelae.storage.checksum import checksum
from stelae.storage.object_store import ObjectStorage
from stelae.storage.open import open_storage
from stelae.storage.storage import exists
from stelae.storage.view import StorageView
from tests.s3 import Store
from tests.stelae.storage.conftest import s3_storage, write


def test_keys_on_s3(s3: Store) -> None:
    s3_storage(s3).put_if_absent("dt=a%2Fb/x y", b"")
    assert list(s3.objects) == ["some/prefix/dt=a%2Fb/x y"]


def test_a_poll_on_s3_is_one_request(s3: Store) -> None:
    storage = s3_storage(s3)
    assert not exists(storage, "snapshot/snapshot-1.json")
    assert s3.requests == ["HEAD /bucket/some/prefix/snapshot/snapshot-1.json"]


def test_lost_answers_on_s3(s3: Store, tmp_path: Path) -> None:
    """obstore sends a put again when its answer got lost, and is told that the name is taken."""
    storage = s3_storage(s3)
    s3.lost_answers = 1
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("snapshot/snapshot-1.json", b"x")  # snapshots.py reads it again and finds its own build
    s3.lost_answers = 1
    storage.upload(write(tmp_path / "x", b"x"), "bucket-0/sst-1.sst")
    assert storage.get("bucket-0/sst-1.sst") == b"x"


def test_an_s3_storage_works_in_another_process(s3: Store) -> None:
    storage = s3_storage(s3)
    storage.put_if_absent("a", b"x")
    assert pickle.loads(pickle.dumps(StorageView(storage, "b").storage)).get("a") == b"x"


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_large_files_go_up_in_parts(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(stelae.storage.object_store, "SINGLE_PUT_BYTES", 1000)
    storage = s3_storage(s3) if kind == "s3" else ObjectStorage("memory:", store=obstore.store.MemoryStore())
    data = os.urandom(12 << 20)
    source = write(tmp_path / "x", data)
    storage.upload(source, "x")
    assert storage.download("x", tmp_path / "y") == checksum(data)
    with pytest.raises(AlreadyExists):
        storage.upload(source, "x")


def test_an_object_store_out_of_reach_is_unavailable() -> None:
    storage = open_storage(
        "s3://bucket/path",
        endpoint="http://127.0.0.1:9",
        skip_signature=True,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    for call in (storage.get, storage.head, storage.delete, lambda path: storage.put_if_absent(path, b"")):
        with pytest.raises(Unavailable) as raised:
            call("a")
        assert "Debug source" not in str(raised.value)
    with pytest.raises(Unavailable):
        list(storage.list())
