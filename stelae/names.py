"""Names of databases and tables: `database.table`; a bare name is in database `default`.

A name is also a folder (`<database>.db/<table>/`), a part of a URL and of a metric, so the pattern is strict: ASCII
letters, digits, `_` and `-`, starting with a letter or a digit. Letters of other alphabets have several byte forms, and
file systems disagree about the one that they keep; Spark and Hadoop hide folders that start with `_` or `.`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stelae.errors import InvalidRequest

DEFAULT_DATABASE = "default"
MAX_NAME_LENGTH = 128
"""Characters of one part; file systems take 255 bytes a name, and `.db` is added to a database."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The full name of a table; every value of this class is valid. `str` gives `database.table`, for `parse`."""

    database: str
    table: str

    def __post_init__(self) -> None:
        check_name("database", self.database)
        check_name("table", self.table)

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`database.table`, or a bare `table` of database `default`."""
        parts = text.split(".")
        if len(parts) > 2:
            raise InvalidRequest(
                f"table name {text!r} has {len(parts)} parts",
                place=text,
                hint="write database.table; the warehouse takes the place of a catalog",
            )
        return cls(DEFAULT_DATABASE, parts[0]) if len(parts) == 1 else cls(*parts)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def check_name(kind: str, name: str) -> None:
    """`name` can be the name of a database or a table (`kind` says which, for the message)."""
    if not name:
        raise InvalidRequest(f"the {kind} name is empty", hint="write database.table, or a bare table name")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"the {kind} name has {len(name)} characters", place=name, hint=f"the limit is {MAX_NAME_LENGTH}"
        )
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a {kind} name",
            place=name,
            hint="letters a-z and A-Z, digits, _ and -, starting with a letter or a digit",
        )
