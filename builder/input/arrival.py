"""Arrival: the order in which records came in, as columns of their frame.

What Spark tells of files (path, row number, block) becomes one column where a file's rows are numbered, three
elsewhere; rows of any other frame have the order of its Spark partitions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stelae.builder.spark_sql.added_columns import (
    BLOCK_COLUMN,
    FILE_COLUMN,
    JOIN_PATH_COLUMN,
    ORDER_COLUMN,
    PATH_COLUMN,
    RESERVED_PREFIX,
    ROW_COLUMN,
)
from stelae.builder.spark_sql.sql_text import Sql, col, fn, sql, with_columns
from stelae.errors import InvalidRequest
from stelae.schema.merge_rules import merge_rules
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_BITS = 40
MAX_NUMBERED_FILES = 2**23
"""So many files of up to 2^40 rows each can be numbered through in one BIGINT."""


def order_matters(schema: TableSchema, row_kind: str | None) -> bool:
    """Whether it makes a difference which record of a key comes last: not if keys are all there is."""
    alone = schema.value_columns == (schema.auto_increment,) and not merge_rules(schema).sequence
    return not alone or row_kind is not None


def arrival_columns(columns: Collection[str]) -> list[str]:
    """The arrival columns among those of change records, the most significant first."""
    return [name for name in (FILE_COLUMN, BLOCK_COLUMN, ORDER_COLUMN) if name in columns]


def with_arrival(frame: DataFrame, files: Sequence[str] | None = None, *, needed: bool = True) -> DataFrame:
    """The frame with its arrival columns (`arrival_columns`); see `find_arrival`."""
    found = find_arrival(frame, files, needed=needed)
    return with_columns(found.frame, found.columns) if found.columns else found.frame


@dataclass(frozen=True)
class Arrival:
    """A frame, the order of its rows, and the columns that say so and are still to be added."""

    frame: DataFrame
    names: list[str]
    """All arrival columns, the most significant first."""
    columns: Mapping[str, Sql]


def find_arrival(frame: DataFrame, files: Sequence[str] | None = None, *, needed: bool = True) -> Arrival:
    """How rows arrived.

    A frame that reads files straight has file order, then row order; `files` gives the order of the files, which is
    otherwise that of their names. Any other frame has the order of its Spark partitions and of the rows inside: for
    such input a sequence field is the only order to rely on. A frame that has such columns already is refused: they
    would decide which record wins. If they are not `needed`, they say nothing and cost nothing.
    """
    taken = [name for name in frame.columns if name.casefold().startswith(RESERVED_PREFIX)]
    if taken:
        raise InvalidRequest(
            f"the input has a column {taken[0]!r}: names that start with {RESERVED_PREFIX} are the builder's own",
            place=taken[0],
            hint="leave it out, or rename it",
        )
    if not needed:
        return Arrival(frame, [ORDER_COLUMN], {ORDER_COLUMN: sql(0).cast("BIGINT")})
    straight = files is not None or reads_files_straight(frame)
    raw = raw_input_files(frame) if straight else []
    if files is None:
        files = sorted(plain_path(path) for path in raw)
    if len(files) > 1 and (placed := _in_file_order(frame, raw, files)) is not None:
        return Arrival(placed, arrival_columns(placed.columns), {})
    # Splits of one file keep their order: Spark sorts splits by length, stably, and only the last one is shorter.
    return Arrival(frame, [ORDER_COLUMN], {ORDER_COLUMN: fn.monotonically_increasing_id()})


def _in_file_order(frame: DataFrame, raw: Sequence[str], files: Sequence[str]) -> DataFrame | None:
    """The frame with the arrival of its rows by the order of `files`; None where Spark does not know the files of rows.

    Parquet knows the number of a row in its file, so that one column is enough; elsewhere it takes file, block and row.
    """
    from pyspark.sql import functions as f

    metadata = col("_metadata")
    path, block = metadata.field("file_path"), metadata.field("file_block_start")
    found = None
    if len(files) <= MAX_NUMBERED_FILES:
        found = _with_metadata(frame, {PATH_COLUMN: path, ROW_COLUMN: metadata.field("row_index")})
    numbered = found is not None
    if found is None:
        order = fn.monotonically_increasing_id()
        found = _with_metadata(frame, {PATH_COLUMN: path, BLOCK_COLUMN: block, ORDER_COLUMN: order})
    if found is None:
        return None
    position = {path: position for position, path in enumerate(files)}
    positions = frame.sparkSession.createDataFrame(
        [(name, position.get(plain_path(path))) for path in raw for name in _spellings(path)],
        f"{JOIN_PATH_COLUMN} STRING, {FILE_COLUMN} INT",
    )
    joined = found.join(f.broadcast(positions), f.expr(f"{PATH_COLUMN} = {JOIN_PATH_COLUMN}"), "left")
    unknown = fn.raise_error("an input file appeared while the job was planned").cast("INT")
    file = fn.coalesce(col(FILE_COLUMN), unknown)
    used = [PATH_COLUMN, JOIN_PATH_COLUMN, FILE_COLUMN]
    if not numbered:
        return with_columns(joined, {FILE_COLUMN: file}, without=used)
    number = fn.shiftleft(file.cast("BIGINT"), _ROW_BITS).bit_or(col(ROW_COLUMN))
    return with_columns(joined, {ORDER_COLUMN: number}, without=[*used, ROW_COLUMN])


def _with_metadata(frame: DataFrame, columns: Mapping[str, Sql]) -> DataFrame | None:
    """The frame with more columns; None where its source has no metadata of that name."""
    from pyspark.errors import AnalysisException

    try:
        selected = with_columns(frame, columns)
        selected.schema  # noqa: B018 - a remote session analyses only when asked.
    except AnalysisException:
        return None
    return selected


_ROW_BY_ROW = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View"})
"""Steps of a plan that leave rows where they are."""


def reads_files_straight(frame: DataFrame) -> bool:
    """Whether rows still have the order of their files: nothing sorted, joined, grouped or moved them.

    A remote session does not show its plans: there, frames count as straight if Spark knows the files of their rows.
    """
    try:
        plan = frame._jdf.queryExecution().analyzed()
    except Exception:
        return True
    while (count := (children := plan.children()).size()) == 1 and plan.nodeName() in _ROW_BY_ROW:
        plan = children.apply(0)
    return bool(count == 0)


def raw_input_files(frame: DataFrame) -> list[str]:
    """Paths of files that a frame reads, as Spark writes them; empty where the source has no files."""
    try:
        # As one text: each element of the JVM's array would be a round trip. Paths are URIs, without line breaks.
        session = frame.sparkSession
        paths = session._jvm.String.join("\n", frame._jdf.inputFiles())  # type: ignore[union-attr]
        return [path for path in paths.split("\n") if path]
    except Exception:
        return _listed_input_files(frame)


def _listed_input_files(frame: DataFrame) -> list[str]:
    try:
        return list(frame.inputFiles())
    except Exception:
        return []


def _spellings(path: str) -> set[str]:
    """A raw path as `inputFiles` and as `_metadata` have it: they do not agree on how many slashes a local one has."""
    local = re.sub("^file:/+", "", path)
    return {path} if local == path else {path, f"file:/{local}", f"file:///{local}"}


def plain_path(path: str) -> str:
    """A path as people write it: without `file:` and percent-encoding."""
    plain = unquote(path)
    return "/" + plain.removeprefix("file:").lstrip("/") if plain.startswith("file:") else plain
