"""Goal: online rows answer like a dict, and leave nothing behind."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows


def test_online_rows_are_a_dict(tmp_path: Path) -> None:
    """Also when some have gone to files."""
    source = random.Random(3)
    online = OnlineRows.open(tmp_path / "online", BlockCache(1 << 20))
    assert (len(online), online.get(b"a"), online.multi_get([b"a"]), list(online.scan())) == (0, None, [None], [])
    rows: dict[bytes, bytes] = {}
    count = 0
    for number in range(50):
        if number == 25:
            online._family.flush()
            assert list((tmp_path / "online").glob("*.sst"))
        batch = {source.randbytes(source.randrange(1, 4)): source.randbytes(2000) for _ in range(500)}
        online.put_many(list(batch), list(batch.values()))
        rows.update(batch)
        count += len(batch)
    keys = [*rows, b"", b"missing"]
    assert [online.get(key) for key in keys] == [rows.get(key) for key in keys]
    assert online.multi_get(keys) == [rows.get(key) for key in keys]
    assert list(online.scan()) == sorted(rows.items())
    ordered = sorted(rows)
    assert [key for key, _ in online.scan(ordered[100], ordered[200])] == ordered[100:200]
    online.put_many([], [])
    online.put_many([b"k", b"k"], [b"1", b"2"])
    assert online.get(b"k") == b"2"
    assert len(online) == count + 2


def test_online_rows_clean_up(tmp_path: Path) -> None:
    closed, dropped, scanned = (OnlineRows.open(tmp_path / name) for name in ("closed", "dropped", "scanned"))
    for online in (closed, dropped, scanned):
        online.put_many([b"a", b"b"], [b"1", b"2"])
    closed.close()
    scan = scanned.scan()
    assert next(scan) == (b"a", b"1")
    del online, dropped, scanned
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["scanned"]
    assert list(scan) == [(b"b", b"2")]
    del scan
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_online_rows_take_no_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        OnlineRows.open(tmp_path)
    assert tmp_path.exists()
