"""Input files as a DataFrame: found, in the order given, with the table's types. What `stelae build` reads with.

    parquet, orc           as they are; every file must have the same columns
    csv, tsv               with a header line; table columns get the table's types, all others are text; empty is null
    json, jsonl, ndjson    one object a line; a nullable column that no object has is null
    other                  whatever the session has a connector for, named by `format`

Nothing is guessed from values, and nothing is dropped: a value that does not fit its column fails the build
(FAILFAST), a column too many or too few is found when the build matches columns by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from stelae.builder.input.arrival import order_matters, plain_path, with_arrival
from stelae.builder.spark_sql.spark_errors import translated
from stelae.errors import InvalidRequest, StelaeError
from stelae.schema import types as t
from stelae.schema.table_schema import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
"""Formats by the ending of a file."""

COMPRESSIONS = frozenset({"gz", "bz2", "lz4", "snappy", "deflate", "zst"})
"""Endings that may follow: `.csv.gz`. Spark unpacks by them."""

LISTING_OPTIONS = frozenset({"recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter"})
"""Reader options, in lower case, that decide which files a folder has."""


def read_files(
    spark: SparkSession,
    paths: Sequence[str],
    schema: TableSchema,
    *,
    format: str | None = None,  # noqa: A002 - Spark's own word for it.
    row_kind: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of files, folders and globs, with arrival columns: files in the order given, by name inside a folder.

    `format` is found by the endings of the files unless it is given. `row_kind` names a column that is not the table's
    and is wanted all the same. `options` go to Spark's reader (`nullValue`, `sep`, `multiLine`, ...) and win over the
    defaults here. Raises InvalidRequest for paths without files, files of several formats, and what can be known about
    columns before rows are read.
    """
    given = {name.lower(): value for name, value in (options or {}).items()}
    if not paths:
        raise InvalidRequest("no input is named", place="input", hint="name files, folders or globs")
    inputs = [find_files(spark, path, given) for path in paths]
    files = [file for found in inputs for file in found.files]
    check_named_once(files)
    source = Source(spark, schema, tuple(found.pattern for found in inputs), tuple(files), given, row_kind)
    read = READERS.get(format.lower() if format else format_of(files))
    frame = _read_other(source, format or "") if read is None else read(source)
    return with_times(with_arrival(frame, files, needed=order_matters(schema, row_kind)), schema)


# Files


@dataclass(frozen=True, slots=True)
class Input:
    """One argument: what Spark is told to load, and the files that this means."""

    pattern: str
    files: tuple[str, ...]
    """As plain paths, in name order."""


def find_files(spark: SparkSession, path: str, options: Mapping[str, str]) -> Input:
    """The files of one argument: a file, a folder, or a glob as Hadoop understands it."""
    is_url = "://" in path
    local = Path(path).expanduser().absolute()
    if not is_url and local.is_file():
        return Input(escape_glob(str(local)), (str(local),))
    if not is_url and not local.exists() and not re.search(r"[*?\[{]", path):
        raise InvalidRequest("the input does not exist", place=path, hint="check the path")
    pattern = path if is_url else escape_glob(str(local)) if local.exists() else str(local)
    listing = {name: value for name, value in options.items() if name in LISTING_OPTIONS}
    with translated(f"looking for input {path}"):
        # Text has no schema that would have to be found out: this only lists.
        files = spark.read.options(**listing).text(pattern).inputFiles()
    if not files:
        raise InvalidRequest(
            "no files in the input",
            place=path,
            hint="names with _ or . in front do not count; for folders below it: --option recursiveFileLookup=true",
        )
    return Input(pattern, tuple(sorted(plain_path(file) for file in files)))


def escape_glob(path: str) -> str:
    """A path that Spark takes literally."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def check_named_once(files: Sequence[str]) -> None:
    """No file is in the input twice: its place in the order would be anyone's guess."""
    seen: set[str] = set()
    for file in files:
        if file in seen:
            raise InvalidRequest("a file is in the input twice", place=file, hint="name it once, or its folder alone")
        seen.add(file)


def format_of(files: Sequence[str]) -> str:
    """The one format that the endings of all files say."""
    formats = {file: _format_of(file) for file in files}
    unknown = [file for file, found in formats.items() if found is None]
    if unknown:
        raise InvalidRequest(
            "the ending of the file does not tell its format",
            place=unknown[0],
            hint=f"give it: --format {'|'.join(dict.fromkeys(FORMATS.values()))}, or another that Spark reads",
        )
    found = {name for name in formats.values() if name}
    if len(found) > 1:
        raise InvalidRequest(
            f"the input has files of several formats: {', '.join(sorted(found))}",
            place=files[0],
            hint="build them one after the other, or give --format",
        )
    return found.pop()


def _format_of(file: str) -> str | None:
    endings = [ending.removeprefix(".").lower() for ending in PurePosixPath(file).suffixes]
    if endings and endings[-1] in COMPRESSIONS:
        endings.pop()
    return FORMATS.get(endings[-1]) if endings else None


# Formats


@dataclass(frozen=True)
class Source:
    """What there is to read."""

    spark: SparkSession
    schema: TableSchema
    patterns: tuple[str, ...]
    files: tuple[str, ...]
    options: Mapping[str, str]
    row_kind: str | None

    def reader(self, format: str, **defaults: str) -> DataFrameReader:  # noqa: A002
        return self.spark.read.format(format).options(**{**defaults, **self.options})

    def read_as(self, format: str, **defaults: str) -> DataFrame:  # noqa: A002
        """The files in their own types; columns from folder names (`dt=2026-11-20/`) in the table's."""
        reader = self.reader(format, **defaults)
        with translated("reading the input's columns"):
            frame = reader.load(list(self.patterns))
            of_folders = self.folder_columns([])
            if of_folders:
                kept = [field for field in frame.schema.fields if field.name not in of_folders]
                types = [f"{t.quote_name(f.name)} {f.dataType.simpleString()}" for f in kept]
                types += [self.declaration(name) for name in of_folders]
                frame = self.reader(format, **defaults).schema(", ".join(types)).load(list(self.patterns))
        return frame

    def declaration(self, name: str) -> str:
        """A column as Spark is told of it: in the table's type, as text where the table has no such column."""
        column = self.table_column(name)
        text = column is None or isinstance(column.type, t.Time)  # Readers of text know no TIME: `with_times`.
        return f"{t.quote_name(name)} {'STRING' if column is None or text else column.type.spark()}"

    def table_column(self, name: str) -> Column | None:
        """The column that an input column of this name is for; names match whatever their case."""
        return next((c for c in self.schema.columns if c.name.casefold() == name.casefold()), None)

    def given_columns(self) -> list[Column]:
        """The columns that an input may have: ids of an auto-increment column are minted, not given."""
        return [column for column in self.schema.columns if column != self.schema.auto_increment]

    def folder_columns(self, besides: Sequence[str]) -> list[str]:
        """Table columns whose values stand in folder names (`dt=2026-11-20/`) and not in `besides`."""
        known = {name.casefold() for name in besides}
        names = dict.fromkeys(
            part.partition("=")[0] for file in self.files for part in PurePosixPath(file).parts[:-1] if "=" in part
        )
        shown = [name for name in names if self.table_column(name) and name.casefold() not in known]
        # Folders above a named file or glob are not looked at by Spark, unless it is told the base path.
        return shown if any(self._is_partitioned(pattern) for pattern in self.patterns) else []

    def _is_partitioned(self, pattern: str) -> bool:
        base = self.options.get("basepath", plain_path(pattern))
        below = [file for file in self.files if file.startswith(base.rstrip("/") + "/")]
        return any("=" in part for file in below for part in PurePosixPath(file[len(base) :]).parts[:-1])


def _read_csv(source: Source) -> DataFrame:
    return _read_delimited(source)


def _read_tsv(source: Source) -> DataFrame:
    return _read_delimited(source, sep="\t")


def _read_delimited(source: Source, **defaults: str) -> DataFrame:
    for column in source.schema.columns:
        if isinstance(column.type, t.NESTED):
            raise InvalidRequest(
                f"CSV can't hold column {column.name} {column.type.sql_name()}",
                place=column.name,
                hint="use Parquet, ORC or JSON",
            )
    # A quote inside quotes is doubled, as everybody but Spark writes it (RFC 4180).
    defaults = {"header": "true", "mode": "FAILFAST", "escape": '"', **defaults}
    if source.options.get("header", "true").lower() == "true":
        # Spark compares the header of every file with these names.
        defaults["enforceSchema"] = "false"
        names = _header(source, defaults)
    else:
        names = [column.name for column in source.given_columns() if column.name not in source.folder_columns([])]
    names += source.folder_columns(names)
    ddl = ", ".join(source.declaration(name) for name in names)
    return source.reader("csv", **defaults).schema(ddl).load(list(source.patterns))


def _header(source: Source, defaults: Mapping[str, str]) -> list[str]:
    """Column names in the first file that is not empty."""
    for file in source.files:
        with translated(f"reading the header of {file}"):
            names = source.reader("csv", **defaults).load(escape_glob(file)).columns
        if names:
            return list(names)
    raise InvalidRequest("the input is empty: not even a header line", place=source.files[0])


def _read_json(source: Source) -> DataFrame:
    defaults = {"mode": "FAILFAST"}
    with translated("reading the input's columns"):
        names = list(source.reader("json", primitivesAsString="true", **defaults).load(list(source.patterns)).columns)
    names = [name for name in names if name not in source.folder_columns([])]
    here = {name.casefold() for name in [*names, *source.folder_columns([])]}
    absent = [column for column in source.given_columns() if column.name.casefold() not in here]
    wanted = {name for name in names if source.table_column(name)} | {source.row_kind}
    extra = [name for name in names if name not in wanted]
    # JSON has no header, and writers leave nulls out: a name that occurs nowhere is a column of nulls, not a mistake.
    # But not beside a name that resembles it: then the build gets to see both and says so.
    names += [
        column.name
        for column in absent
        if column.type.nullable and column.name not in source.schema.primary_key and not _resembles(column.name, extra)
    ]
    ddl = ", ".join(source.declaration(name) for name in [*names, *source.folder_columns(names)])
    if not ddl:
        raise InvalidRequest("the input has no columns", place=source.files[0])
    return source.reader("json", **defaults).schema(ddl).load(list(source.patterns))


def _resembles(name: str, others: Sequence[str]) -> bool:
    return bool(get_close_matches(name, others, n=1))


def _read_parquet(source: Source) -> DataFrame:
    import pyarrow.parquet as pq

    check_same_columns(source.files, lambda file: list(pq.read_schema(file).names))
    return source.read_as("parquet")


def _read_orc(source: Source) -> DataFrame:
    import pyarrow.orc as orc

    check_same_columns(source.files, lambda file: list(orc.ORCFile(file).schema.names))
    return source.read_as("orc")


def _read_other(source: Source, format: str) -> DataFrame:  # noqa: A002
    try:
        return source.read_as(format)
    except StelaeError as exc:
        if "DATA_SOURCE_NOT_FOUND" in str(exc.__cause__):
            raise InvalidRequest(
                f"Spark has no reader for format {format!r}",
                place="--format",
                hint="a package may bring one: --conf spark.jars.packages=...",
            ) from exc
        raise


def check_same_columns(files: Sequence[str], names_in: Callable[[str], Sequence[str]]) -> None:
    """All local files have the columns of the first.

    Spark goes by the schema of one file: a column that another lacks would be null in its rows, without a word.
    """
    first: set[str] | None = None
    if len(files) == 1:
        return
    for file in files:
        if not Path(file).is_file():
            continue
        try:
            names = set(names_in(file))
        except (OSError, ValueError) as exc:  # ArrowInvalid is a ValueError.
            raise InvalidRequest(
                f"the file can't be read: {str(exc).splitlines()[0]}", place=file, hint="check --format and the file"
            ) from exc
        if first is None:
            first = names
        elif names != first:
            lacks, has = sorted(first - names), sorted(names - first)
            told = [f"lacks {', '.join(lacks)}"] if lacks else []
            told += [f"has {', '.join(has)} besides"] if has else []
            raise InvalidRequest(
                f"input files differ in their columns: this one {' and '.join(told)}",
                place=file,
                hint=f"compared with {files[0]}; build files of other columns by themselves",
            )


READERS: Mapping[str, Callable[[Source], DataFrame]] = {
    "parquet": _read_parquet,
    "orc": _read_orc,
    "csv": _read_csv,
    "tsv": _read_tsv,
    "json": _read_json,
}


def with_times(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """The frame with text made TIME where the table has it: Spark's readers of text know no TIME."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as s

    times = {column.name.casefold(): column.type for column in schema.columns if isinstance(column.type, t.Time)}
    for field in frame.schema.fields:
        wanted = times.get(field.name.casefold())
        if wanted is not None and isinstance(field.dataType, s.StringType):
            frame = frame.withColumn(field.name, f.col(t.quote_name(field.name)).cast(wanted.spark()))
    return frame
