"""Storage that fails on purpose.

    storage = FaultyStorage(MemoryStorage())
    storage.fail("get", nth=2)                 # the second get raises, nothing happens
    storage.lose_answer("put_if_absent")       # the next put happens, and raises all the same
    storage.tear("upload")                     # the next upload breaks off halfway
    storage.before("put_if_absent", action)    # somebody else is faster: runs just before the next put

Counts start at the call of `fail` and its like; each fault strikes once. `storage.calls` records (operation, path) of
every call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stelae.errors import StelaeError, Unavailable
from stelae.storage.storage import Storage, StoredFile

T = TypeVar("T")


class FaultyStorage:
    """Passes every call on to `inner`, except where a fault was planted."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def fail(self, operation: str, *, nth: int = 1, error: StelaeError | None = None) -> None:
        """The nth `operation` from now on raises before it does anything."""
        self._faults.append(_Fault(operation, nth, "fail", error or Unavailable("planted: out of reach")))

    def lose_answer(self, operation: str, *, nth: int = 1) -> None:
        """The nth `operation` from now on happens, then raises Unavailable."""
        self._faults.append(_Fault(operation, nth, "lose", Unavailable("planted: the answer got lost")))

    def tear(self, operation: str, *, nth: int = 1) -> None:
        """The nth put or upload from now on leaves half of its bytes as an unfinished file and raises Unavailable."""
        self._faults.append(_Fault(operation, nth, "tear", Unavailable("planted: broken off halfway")))

    def before(self, operation: str, action: Callable[[], object], *, nth: int = 1) -> None:
        """`action` runs just before the nth `operation` from now on."""
        self._faults.append(_Fault(operation, nth, "before", Unavailable("never raised"), action))

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, path: str) -> bytes:
        return self._call("get", path, lambda: self.inner.get(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._call("put_if_absent", path, lambda: self.inner.put_if_absent(path, data), lambda: data)

    def upload(self, local: Path, path: str) -> None:
        self._call("upload", path, lambda: self.inner.upload(local, path), local.read_bytes)

    def download(self, path: str, local: Path) -> str:
        return self._call("download", path, lambda: self.inner.download(path, local))

    def local_path(self, path: str) -> Path | None:
        return self.inner.local_path(path)

    def head(self, path: str) -> StoredFile:
        return self._call("head", path, lambda: self.inner.head(path))

    def list(self, folder: str = "") -> Iterator[StoredFile]:
        return self._call("list", folder, lambda: self.inner.list(folder))

    def unfinished(self, folder: str = "") -> Iterator[StoredFile]:
        return self._call("unfinished", folder, lambda: self.inner.unfinished(folder))

    def folders(self, folder: str = "") -> tuple[str, ...]:
        return self._call("folders", folder, lambda: self.inner.folders(folder))

    def scratch_folder(self, folder: str = "") -> Path:
        return self.inner.scratch_folder(folder)

    def delete(self, path: str) -> None:
        self._call("delete", path, lambda: self.inner.delete(path))

    def _call(
        self, operation: str, path: str, action: Callable[[], T], content: Callable[[], bytes] | None = None
    ) -> T:
        with self._lock:
            self.calls.append((operation, path))
            due = [fault for fault in self._faults if fault.strikes(operation)]
            self._faults = [fault for fault in self._faults if fault not in due]
        for fault in due:
            if fault.kind == "before":
                fault.action()
            elif fault.kind == "fail":
                raise fault.error
            elif fault.kind == "tear" and content is not None:
                self._leave_half(path, content())
                raise fault.error
        result = action()
        for fault in due:
            if fault.kind == "lose":
                raise fault.error
        return result

    def _leave_half(self, path: str, data: bytes) -> None:
        """What a writer that was killed while it wrote leaves: a temporary file in a local folder, else nothing."""
        target = self.inner.local_path(path)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            (target.parent / f".{'0' * 31}1.tmp").write_bytes(data[: len(data) // 2])


class _Fault:
    def __init__(
        self, operation: str, nth: int, kind: str, error: StelaeError, action: Callable[[], object] = lambda: None
    ) -> None:
        self.operation = operation
        self.left = nth
        self.kind = kind
        self.error = error
        self.action = action

    def strikes(self, operation: str) -> bool:
        """Count a call; whether it is the one."""
        self.left -= operation == self.operation
        return self.left == 0 and operation == self.operation
