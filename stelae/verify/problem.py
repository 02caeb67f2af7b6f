"""What verifying found wrong."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.errors import StelaeError


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    place: str
    """A file's path below the table, or a key."""
    message: str


def told(error: StelaeError, known: str = "") -> str:
    """The message of an error, and its place unless the reader knows it already."""
    place = f" ({error.place})" if error.place and error.place != known else ""
    return f"{error.message}{place}"
