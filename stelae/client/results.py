"""What the calls of a client give: rows that know their snapshot, pages, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stelae.client.json_codec import Row
from stelae.errors import NotFound
from stelae.schema.table_schema import TableSchema


class Rows(list[Row | None]):
    """Rows aligned with the keys that were asked for, None where there is no row. A list that knows its snapshot."""

    snapshot: int | None
    """The snapshot that all rows were read from; None when no key was given."""

    def __init__(self, rows: Sequence[Row | None], snapshot: int | None) -> None:
        super().__init__(rows)
        self.snapshot = snapshot


class InsertedRows(Rows):
    """Rows aligned with the keys that were to be inserted; None for a key of a partition that the table does not have.

    `snapshot` is what the last part of the answer came from: earlier parts may have come from the one before.
    """

    inserted: list[bool]
    """Which rows were not there before this call, aligned with the keys."""

    def __init__(self, rows: Sequence[Row | None], inserted: Sequence[bool], snapshot: int | None) -> None:
        super().__init__(rows, snapshot)
        self.inserted = list(inserted)


class PrefixRows(list[list[Row]]):
    """The rows of each prefix that was asked for, in key order."""

    snapshot: int | None
    """The snapshot that all rows were read from; None when no prefix was given."""

    def __init__(self, rows: Sequence[list[Row]], snapshot: int | None) -> None:
        super().__init__(rows)
        self.snapshot = snapshot


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a prefix, in key order."""

    rows: list[Row]
    next_page_token: str | None
    """Asks for the rows after these; None when there are no more."""
    snapshot: int


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as a server serves it."""

    name: str
    state: str
    """READY: lookups are answered. EMPTY, LOADING, FAILED: they are not."""
    schema: TableSchema | None
    """The definition that answers follow; None when the server can't read it."""
    snapshot: int | None
    """The snapshot that lookups are answered from; None when there is none."""
    rows: int | None
    details: Mapping[str, Any]
    """All that the server says of it, as JSON: docs/http.md."""


class SnapshotGone(NotFound):
    """The snapshot that was asked for is not open at the server (any more)."""
