"""Options of a build, each declared once: `build` and `run_build` take them as keywords, `stelae build` as flags, and
docs/cli.md lists them.

What builder and service must agree on (bucket counts, merge rules, formats) is no option of a build: it is written in
the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from stelae.declared_options import option
from stelae.errors import InvalidRequest

Mode = Literal["merge", "overwrite"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class BuildOptions:
    """How one build goes."""

    row_kind: str | None = option(
        None,
        "The column of the input that says `+I`, `-U`, `+U` or `-D`.",
        value="COLUMN",
        shown="every row is `+I`",
    )
    mode: Mode = option("merge", "`merge` into the rows there are, or `overwrite` them: start from an empty table.")
    target_columns: Sequence[str] | None = option(
        None,
        "A partial update: the input sets these columns, with those of the key, and the others of a row stay.",
        value="A,B",
        separator=",",
        shown="all",
    )
    allow_empty: bool = option(False, "An input without rows is no error.")
    allow_missing_columns: bool = option(False, "Nullable columns that the input lacks are null in its records.")
    allow_count_change: bool = option(
        False, "Commits whatever the row count has become: `snapshot.max-count-change` is not looked at."
    )
    ignore_extra_columns: bool = option(False, "Leaves out columns that the table has not.")

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidRequest(f"unknown mode {self.mode!r}", place="mode", hint=f"modes: {', '.join(MODES)}")


class BuildKeywords(TypedDict, total=False):
    """The fields of `BuildOptions`, for type checkers: a test holds them equal."""

    row_kind: str | None
    mode: Mode
    target_columns: Sequence[str] | None
    allow_empty: bool
    allow_missing_columns: bool
    allow_count_change: bool
    ignore_extra_columns: bool
