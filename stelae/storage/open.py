"""Which storage is at a path or a URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stelae.errors import InvalidRequest
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.object_store import ObjectStorage
from stelae.storage.storage import Storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(memory):")


def open_storage(url_or_path: str | Path, **options: Any) -> Storage:
    """The storage at a local path or a URL.

    `warehouse`, `/data/warehouse` and `file:///data/warehouse` are local folders (made by the first write). `memory:`
    is a fresh, empty memory. All else (`s3://bucket/path`, `gs://`, `az://`, ...) is an object store: credentials and
    region come from the environment, as obstore reads them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, ...), and `options`
    go to `obstore.store.from_url`.
    """
    match = None if isinstance(url_or_path, Path) else _SCHEME.match(url_or_path)
    scheme = (match[1] or match[2]).lower() if match else "path"
    if scheme not in ("path", "file", "memory"):
        return ObjectStorage(str(url_or_path), **options)
    if options:
        raise InvalidRequest(
            f"a local folder takes no options: {', '.join(sorted(options))}",
            place=str(url_or_path),
            hint="options are for object stores, such as s3://bucket/path",
        )
    if scheme == "memory":
        return MemoryStorage()
    if scheme == "file":
        return LocalStorage(Path(unquote(urlsplit(str(url_or_path)).path)))
    if not str(url_or_path):
        raise InvalidRequest(
            "the path of the warehouse is empty", hint="give a folder, or a URL such as s3://bucket/path"
        )
    return LocalStorage(Path(url_or_path))
