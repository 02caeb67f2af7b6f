"""What a task tells the driver of each bucket that it wrote: one row of text, JSON inside."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

REPORT_DDL = "report STRING"


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What a task wrote for one bucket. A bucket that all rows were deleted of has no file."""

    ordinal: int
    path: str | None
    bytes: int
    checksum: str
    rows: int
    hidden_rows: int
    first_key: str
    """Hexadecimal, as is `last_key`."""
    last_key: str
    rows_in: int
    """Records that came in: base rows and changes."""
    seconds: float
    """From the first batch to the stored file, waiting for Spark's sort included."""
    ids_kept: int = 0
    """Visible rows that came with an id."""
    ids_minted: int = 0
    """Visible rows that got one here."""
    last_id: int = 0
    """The greatest id of a row; 0 if there is none."""

    @classmethod
    def decode(cls, text: str) -> BucketReport:
        return cls(**orjson.loads(text))

    def encode(self) -> str:
        return orjson.dumps(asdict(self)).decode()
