"""Goal: a lock tells who lives, and what the dead left is cleared up by one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stelae.storage.file_lock import abandoned_locks, is_locked, try_lock, unlock

HOLD = """
import sys
from pathlib import Path
from stelae.storage.file_lock import try_lock
handle = try_lock(Path(sys.argv[1]))
print(handle is not None, flush=True)
sys.stdin.readline()
"""


def test_one_holds_it_until_it_unlocks(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    assert not is_locked(file)
    handle = try_lock(file)
    assert handle is not None
    assert is_locked(file)
    assert try_lock(file) is None
    unlock(handle, file)
    assert not file.exists()
    again = try_lock(file)
    assert again is not None
    unlock(again, None)
    assert file.exists()
    assert not is_locked(file)


def test_what_the_dead_left(tmp_path: Path) -> None:
    alive, dead, kept = (tmp_path / f"{name}.lock" for name in ("alive", "dead", "kept"))
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for file in (alive, dead, kept)
    ]
    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
        assert list(abandoned_locks(tmp_path)) == []
        for holder in holders[1:]:
            holder.kill()
            holder.communicate()
        for file in abandoned_locks(tmp_path, lambda file: file != kept):
            assert file == dead
            assert is_locked(file)
        assert sorted(tmp_path.iterdir()) == [alive, kept]
    finally:
        holders[0].communicate("\n")
