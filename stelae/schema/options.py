"""The options of a table, each declared once: name, other spellings, type, default, unit, consequence, status.

    TableOptions         options that work: its fields are the declarations
    ColumnOptions        those of one column, `fields.<column>.…`, likewise
    DEFINITION           parts of the definition that may be written as options; stelae/schema/sql.py takes them out
    NOT_YET, PATTERNS    every other option of primary-key tables of Apache Paimon and Apache Fluss: known, not applied
                         (their names are in stelae/schema/unsupported_options.py)

Names and meaning are theirs, so that a statement written for them says here what it says there. What this version does
not apply is refused by name, never silently ignored; a value that asks for what happens anyway (`changelog-producer` =
`none`) is accepted.

docs/options.md is printed from these declarations: `python -m stelae.schema.options > docs/options.md`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stelae.errors import InvalidRequest
from stelae.schema.aggregate_functions import find_function
from stelae.schema.unsupported_options import NAMES, TEMPLATES

MAX_BUCKETS = 65_536
"""Buckets of one partition: the manifest names every one of them."""

Status = Literal["works", "definition", "not yet"]


# --- what the text of an option may be


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of option values. `parse` raises ValueError with a sentence on what it takes; `show` is its inverse."""

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    verbatim: bool = False
    """Whether spaces at the ends are a part of the value."""


def _parse_boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _names(of: str) -> Kind:
    """Names of columns, or of the fields of a ROW; none is the empty tuple."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise ValueError(f"expected {of} names, with commas between them")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"it names {of} {name!r} twice")
        return names

    return Kind(f"{of} names with commas between them", parse, lambda value: ",".join(value) or "none")


def _name(of: str) -> Kind:
    def parse(text: str) -> str:
        if not text or "," in text:
            raise ValueError(f"expected one {of} name")
        return text

    return Kind(f"a {of} name", parse, _shown)


def _parse_fraction(text: str) -> float:
    number, divisor = (text[:-1].rstrip(), 100) if text.endswith("%") else (text, 1)
    if not re.fullmatch(r"\d{1,9}(\.\d+)?|\.\d+", number, re.ASCII):
        raise ValueError("expected a fraction such as 0.2, or a percentage such as 20%")
    return float(number) / divisor


def _whole_numbers(low: int, high: int | None = None, none: int | None = None) -> Kind:
    """Whole numbers from `low` to `high`; the number `none` stands for "not set"."""
    limits = f"at least {low}" if high is None else f"{low} to {high}"
    limits += "" if none is None else f", or {none}"

    def parse(text: str) -> int | None:
        if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
            raise ValueError("expected a whole number")
        number = int(text)
        if number == none:
            return None
        if number < low or (high is not None and number > high):
            raise ValueError(f"expected {limits}")
        return number

    return Kind(f"number, {limits}", parse, lambda value: _shown(none if value is None else value))


def _choice(*values: str) -> Kind:
    """One of `values`, in any case and with - or _."""

    def parse(text: str) -> str:
        value = _plain(text)
        if value in values:
            return value
        near = difflib.get_close_matches(value, values, n=1)
        raise ValueError(f"expected {' or '.join(values)}" + (f"; did you mean {near[0]}?" if near else ""))

    return Kind(", ".join(values), parse, _shown)


def _choices(*values: str) -> Kind:
    """Some of `values`, with commas between them."""
    one = _choice(*values)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.parse(word) for word in text.split(",")))

    return Kind(f"{one.name}, or several with commas between them", parse, lambda value: ",".join(value) or "none")


def _shown(value: str | int | None) -> str:
    return "none" if value is None else str(value)


_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), _MS["ms"]),
    **dict.fromkeys(("s", "sec", "second", "seconds"), _MS["s"]),
    **dict.fromkeys(("min", "m", "minute", "minutes"), _MS["min"]),
    **dict.fromkeys(("h", "hour", "hours"), _MS["h"]),
    **dict.fromkeys(("d", "day", "days"), _MS["d"]),
}
"""Milliseconds of a unit, in the spellings that Flink takes."""


def _parse_duration_ms(text: str) -> int:
    parts = re.fullmatch(r"(\d{1,12})\s*([a-z]+)", text.lower(), re.ASCII)
    if parts is None or parts[2] not in _UNITS:
        raise ValueError("expected a number and a unit, such as '30 d', '12 h', '90 min', '5 s' or '500 ms'")
    duration_ms = int(parts[1]) * _UNITS[parts[2]]
    if duration_ms == 0:
        raise ValueError("expected more than nothing")
    return duration_ms


def _show_duration(duration_ms: int | None) -> str:
    if duration_ms is None:
        return "none"
    unit = max((unit for unit in _MS if duration_ms % _MS[unit] == 0), key=lambda unit: _MS[unit])
    return f"{duration_ms // _MS[unit]} {unit}"


_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1024),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1024 * 1024),
}
"""Bytes of a unit, in the spellings that Flink takes."""


def _bytes(low: int, high: int) -> Kind:
    """Sizes from `low` to `high` bytes."""

    def show(size: int | None) -> str:
        if size is None:
            return "none"
        return f"{size // 1024} kb" if size % 1024 == 0 else f"{size} b"

    def parse(text: str) -> int:
        parts = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.lower(), re.ASCII)
        if parts is None or parts[2] not in _SIZE_UNITS:
            raise ValueError("expected a size, such as '4 kb', '16 kb' or '512 b'")
        size = int(parts[1]) * _SIZE_UNITS[parts[2]]
        if not low <= size <= high:
            raise ValueError(f"expected {show(low)} to {show(high)}")
        return size

    return Kind(f"a size in b or kb, {show(low)} to {show(high)}", parse, show)


def _parse_function(text: str) -> str:
    try:
        return find_function(text, "").name
    except InvalidRequest as exc:
        raise ValueError(f"{exc.message}; {exc.hint}") from None


def _parse_delimiter(text: str) -> str:
    if not text:
        raise ValueError("expected at least one character")
    return text


def _plain(text: str) -> str:
    """Values of enumerations are compared in lower case, and - is _ (Paimon writes first-row, Fluss first_row)."""
    return text.strip().lower().replace("_", "-")


BOOLEAN = Kind("true, false", _parse_boolean, lambda value: str(value).lower())
COLUMN = _name("column")
COLUMNS = _names("column")
FIELD = _name("field")
FIELDS = _names("field")
FRACTION = Kind("a fraction or a percentage", _parse_fraction, lambda value: "none" if value is None else repr(value))
BUCKETS = _whole_numbers(1, MAX_BUCKETS, none=-1)
MERGE_ENGINE = _choice("deduplicate", "first-row", "versioned", "partial-update", "aggregation")
DURATION = Kind("a number and a unit: d, h, min, s or ms", _parse_duration_ms, _show_duration)
FUNCTION = Kind("a function of docs/merging.md", _parse_function, _shown)
DELIMITER = Kind("any text but the empty one", _parse_delimiter, _shown, verbatim=True)
_ORDER = _choice("ascending", "descending")
SORT_ORDER = Kind(
    _ORDER.name,
    lambda text: _ORDER.parse(text) == "descending",
    lambda descending: "descending" if descending else "ascending",
)


def _parse_bucket(text: str) -> Any:
    if text == "-2":
        raise ValueError("known (postponed buckets), but this version does not apply it yet")
    return BUCKETS.parse(text)


BUCKET = Kind(BUCKETS.name, _parse_bucket, BUCKETS.show)


# --- what an option is


@dataclass(frozen=True, slots=True)
class Option:
    """One declaration."""

    name: str
    status: Status
    consequence: str
    """What happens; of an option that is not applied, why."""
    aliases: tuple[str, ...] = ()
    """Other spellings: of the other system, or of an older version of it."""
    kind: Kind | None = None
    default: str = ""
    unit: str = ""
    alterable: bool = False
    """Whether a table may change it after it was created."""
    attribute: str = ""
    """The field of TableOptions that holds the value."""
    accepted: tuple[str, ...] = ()
    """Of an option that is not applied: the values that ask for what happens anyway."""
    group: str = ""
    columns: tuple[str, ...] = ()
    """Of an option of columns: what stands in its name."""

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def parse(self, text: str, spelling: str) -> Any:
        """The value that `text` stands for; None for an option that is not applied and was given an accepted value."""
        place = f"option {spelling}"
        if self.kind is not None:
            try:
                return self.kind.parse(text if self.kind.verbatim else text.strip())
            except ValueError as exc:
                raise InvalidRequest(
                    f"option {spelling!r} cannot be {text!r}: {exc}", place=place, hint=f"values: {self.kind.name}"
                ) from None
        if _plain(text) not in self.accepted:
            accepted = " or ".join(repr(value) for value in self.accepted)
            raise InvalidRequest(
                f"option {spelling!r} is known, but this version does not apply it: {self.consequence}",
                place=place,
                hint=f"it may be {accepted}, which is what happens anyway" if accepted else f"leave {spelling!r} out",
            )
        return None


def _option(
    name: str,
    *aliases: str,
    kind: Kind,
    default: Any,
    does: str,
    shown_default: str = "",
    unit: str = "",
    alterable: bool = False,
) -> Any:
    """A field of TableOptions or ColumnOptions that is also the declaration of the option."""
    declaration = Option(
        name=name,
        status="works",
        consequence=does,
        aliases=aliases,
        kind=kind,
        default=shown_default or kind.show(default),
        unit=unit,
        alterable=alterable,
    )
    return field(default=default, metadata={"option": declaration})


# --- options that work


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options of one column, typed: how its values are merged."""

    aggregate_function: str | None = _option(
        "fields.<column>.aggregate-function",
        "fields.<column>.agg",
        kind=FUNCTION,
        default=None,
        shown_default="`fields.default-aggregate-function`",
        does="The function that makes one value of those of all records. Other spellings of a function, such as "
        "`string_agg`, are taken too, in any case and with - for _; [merging.md](merging.md) has them, with the types "
        "that each takes. With `merge-engine` = `aggregation`, or for a member of a sequence group.",
    )
    ignore_retract: bool = _option(
        "fields.<column>.ignore-retract",
        kind=BOOLEAN,
        default=False,
        does="With true, -U and -D leave the column as it is. Needed where its function cannot take a value back, "
        "unless such records are dropped.",
    )
    distinct: bool = _option(
        "fields.<column>.distinct",
        kind=BOOLEAN,
        default=False,
        does="Of `collect` and `listagg`: whether a value that is there already is left out.",
    )
    delimiter: str | None = _option(
        "fields.<column>.list-agg-delimiter",
        "fields.<column>.listagg.delimiter",
        "fields.<column>.string_agg.delimiter",
        kind=DELIMITER,
        default=None,
        shown_default="`,`",
        does="Of `listagg`: the text between two values. Spaces count.",
    )
    nested_key: tuple[str, ...] = _option(
        "fields.<column>.nested-key",
        kind=FIELDS,
        default=(),
        shown_default="none: every element is added",
        does="Of `nested_update` and `nested_partial_update`, which needs it: the fields of the ROW that say which "
        "element a new one replaces or changes.",
    )
    nested_key_null_strategy: str = _option(
        "fields.<column>.nested-key-null-strategy",
        kind=_choice("merge", "ignore", "error"),
        default="merge",
        does="What becomes of an element with a null in its nested key. `merge`: null is a value like others. "
        "`ignore`: the element is dropped. `error`: the build fails.",
    )
    nested_sequence_field: tuple[str, ...] = _option(
        "fields.<column>.nested-sequence-field",
        kind=FIELDS,
        default=(),
        shown_default="none: the later element wins",
        does="Of `nested_update` with a nested key: fields of the ROW that order the elements of a key. An element "
        "replaces another that is not greater.",
    )
    count_limit: int | None = _option(
        "fields.<column>.count-limit",
        kind=_whole_numbers(1, 2**31 - 1),
        default=None,
        shown_default="none: any number",
        unit="elements",
        does="Of `nested_update`: with so many elements in the array, none is added; those of a nested key that is "
        "there still replace theirs.",
    )
    ts_field: str | None = _option(
        "fields.<column>.ts-field",
        kind=FIELD,
        default=None,
        shown_default="the last field",
        does="Of `merge_map_with_keytime`: the STRING field of the ROW that says how new an entry is.",
    )


@dataclass(frozen=True, slots=True)
class GroupOption:
    """A sequence group as given."""

    sequence: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of data files."""

    compression: str = "lz4"
    zstd_level: int | None = None
    """None: zstd's own default."""
    block_bytes: int | None = None
    """None: as the compression has it best."""


@dataclass(frozen=True)
class TableOptions:
    """The options of one table, typed. Made by `parse`; the fields are the declarations."""

    bucket: int | None = _option(
        "bucket",
        "bucket.num",
        kind=BUCKET,
        default=None,
        shown_default="-1: chosen by the build",
        unit="buckets a partition",
        does="How many buckets a partition has. More buckets: more tasks build and more tablets serve side by side, "
        "and there are more files. With -1 the first build of a partition chooses, by "
        "`dynamic-bucket.target-row-num`. Readers take the count that the snapshot recorded.",
    )
    bucket_key: tuple[str, ...] = _option(
        "bucket-key",
        "bucket.key",
        kind=COLUMNS,
        default=(),
        shown_default="the primary key without the partition columns",
        does="Columns of the primary key whose hash chooses the bucket. A prefix lookup that gives all of them asks "
        "one bucket instead of every bucket.",
    )
    primary_key_nullable: bool = _option(
        "primary-key.nullable",
        kind=BOOLEAN,
        default=False,
        does="With true, columns of the primary key that are not declared NOT NULL may be null, and null equals null "
        "as a key. Each such column takes a byte more in every key. Partition columns must be declared NOT NULL.",
    )
    merge_engine: str = _option(
        "merge-engine",
        "table.merge-engine",
        kind=MERGE_ENGINE,
        default="deduplicate",
        does="How the records of one primary key become one row; [merging.md](merging.md) shows each. `deduplicate`: "
        "the last record wins. `first-row`: the first one stays. `versioned`: the one with the greatest version wins. "
        "`partial-update`: a record changes the columns in which it is not null. `aggregation`: each column has a "
        "function.",
    )
    version_column: str | None = _option(
        "merge-engine.versioned.ver-column",
        "table.merge-engine.versioned.ver-column",
        kind=COLUMN,
        default=None,
        does="Of `versioned`, which needs it: the column with the version, INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ. "
        "The later of two records with equal versions wins, and null is the least version.",
    )
    sequence_field: tuple[str, ...] = _option(
        "sequence.field",
        kind=COLUMNS,
        default=(),
        shown_default="none: the order of the input",
        does="Columns that order the records of a key. They are compared from left to right, null loses against any "
        "value, and the later input wins a tie.",
    )
    sequence_descending: bool = _option(
        "sequence.field.sort-order",
        kind=SORT_ORDER,
        default=False,
        does="`ascending`: the record with the largest sequence is the last one. `descending`: the one with the "
        "smallest is. Null loses in both.",
    )
    sequence_auto_padding: tuple[str, ...] = _option(
        "sequence.auto-padding",
        kind=_choices("row-kind-flag", "second-to-micro", "millis-to-micro"),
        default=(),
        does="What decides between records with equal `sequence.field`. `row-kind-flag`: -U and -D come before +I and "
        "+U. `second-to-micro`, `millis-to-micro`: the order of the input, which decides anyway.",
    )
    rowkind_field: str | None = _option(
        "rowkind.field",
        kind=COLUMN,
        default=None,
        does="A STRING column that says what each record is: +I, -U, +U or -D. It is stored like any other column.",
    )
    ignore_delete: bool = _option(
        "ignore-delete",
        "deduplicate.ignore-delete",
        "first-row.ignore-delete",
        "partial-update.ignore-delete",
        kind=BOOLEAN,
        default=False,
        does="With true, -D and -U records are dropped before records are merged, so no row is ever removed.",
    )
    ignore_update_before: bool = _option(
        "ignore-update-before",
        kind=BOOLEAN,
        default=False,
        does="With true, -U records are dropped before records are merged.",
    )
    delete_behavior: str | None = _option(
        "delete.behavior",
        "table.delete.behavior",
        kind=_choice("allow", "ignore", "disable"),
        default=None,
        shown_default="the merge engine's own",
        does="What -D does. `allow`: it removes the row; `first-row` and `versioned` refuse that. `ignore`: -D and -U "
        "are dropped. `disable`: -D fails the build, and -U is dropped. By default the merge engine decides; but a "
        "table whose engine is given as `table.merge-engine` = `first_row`, `versioned` or `aggregation`, and of which "
        "no other option says what a delete does, has `ignore`, as it has in Fluss.",
    )
    aggregation_remove_record_on_delete: bool = _option(
        "aggregation.remove-record-on-delete",
        kind=BOOLEAN,
        default=False,
        does="Of `aggregation`: with true, -D removes the row; -U still takes its values back.",
    )
    partial_update_remove_record_on_delete: bool = _option(
        "partial-update.remove-record-on-delete",
        kind=BOOLEAN,
        default=False,
        does="Of `partial-update` without sequence groups: with true, -D removes the row, and -U is dropped.",
    )
    remove_record_on_sequence_group: tuple[str, ...] = _option(
        "partial-update.remove-record-on-sequence-group",
        kind=COLUMNS,
        default=(),
        does="Of `partial-update` with sequence groups: sequence columns of one group. A -D that is not older than the "
        "row in that group removes it.",
    )
    default_aggregate_function: str | None = _option(
        "fields.default-aggregate-function",
        kind=FUNCTION,
        default=None,
        shown_default="the engine's: last_non_null_value, and in a sequence group the newest value",
        does="The function of every column that has none of its own; the primary key and sequence columns have none.",
    )
    sequence_groups: tuple[GroupOption, ...] = _option(
        "fields.<columns>.sequence-group",
        kind=COLUMNS,
        default=(),
        shown_default="none",
        does="Of `partial-update`: orders the columns that are the value by the sequence columns that are in the name, "
        "one or several with commas between them. A record whose sequence is not older replaces all of them, also by "
        "null; one whose sequence is null in every column leaves them alone.",
    )
    tombstone_time_retained_ms: int | None = _option(
        "tombstone.time-retained",
        kind=DURATION,
        default=None,
        alterable=True,
        shown_default="none: for ever",
        does="How long a table remembers a row that a delete took away. Its hidden row keeps what a late record is "
        "compared with; a build after this time forgets it, and a record that is still later then makes a new row. "
        "Stelae's own; for tables that keep hidden rows.",
    )
    auto_increment_fields: tuple[str, ...] = _option(
        "auto-increment.fields",
        "table.auto-increment.fields",
        kind=COLUMNS,
        default=(),
        shown_default="none",
        does="One INT or BIGINT column outside of the primary key that gives each key an id, once and for ever: an "
        "integer from 1, unique in the table over all its partitions and buckets. Builds and tablet servers mint the "
        "ids; input can't give them. [dictionary.md](dictionary.md) shows it at work.",
    )
    auto_increment_cache_size: int = _option(
        "auto-increment.cache-size",
        "table.auto-increment.cache-size",
        "table.auto-inc.batch-size",
        kind=_whole_numbers(1, 2**31 - 1),
        default=100_000,
        unit="ids",
        does="How many ids a tablet server claims at a time. More: fewer claims. Fewer: fewer ids stay unused when a "
        "server is gone for good. A build claims exactly what it needs.",
    )
    dynamic_bucket_target_row_num: int = _option(
        "dynamic-bucket.target-row-num",
        kind=_whole_numbers(1),
        default=2_000_000,
        unit="rows",
        alterable=True,
        does="Rows that a bucket should have when the build chooses the bucket count. Refused with a fixed `bucket`.",
    )
    dynamic_bucket_max_buckets: int | None = _option(
        "dynamic-bucket.max-buckets",
        kind=BUCKETS,
        default=None,
        shown_default="-1: no limit of its own",
        unit="buckets a partition",
        alterable=True,
        does="The most buckets that the build may choose. Refused with a fixed `bucket`.",
    )
    snapshot_num_retained: int = _option(
        "snapshot.num-retained",
        kind=_whole_numbers(1),
        default=10,
        unit="snapshots",
        alterable=True,
        does="How many of the newest snapshots stay readable; expiring frees the files that only older ones use. "
        "Pinned snapshots are kept as well.",
    )
    snapshot_max_count_change: float | None = _option(
        "snapshot.max-count-change",
        kind=FRACTION,
        default=None,
        shown_default="none: any change",
        unit="part of the rows before",
        alterable=True,
        does="A build fails, and commits nothing, if the new snapshot would have more or fewer rows than its parent by "
        "more than this part: 0.2 or 20% allows a fifth.",
    )
    file_compression: str = _option(
        "file.compression",
        kind=_choice("lz4", "zstd", "none"),
        default="lz4",
        alterable=True,
        does="Compression of the data files that are written from now on; older files stay as they are, and tablets "
        "read files of several kinds. Of 67 bytes a row `lz4` made 27 and `zstd` 15, where rows resemble each other. "
        "`zstd`: smaller files, slower builds, and reading a block that is not cached takes 2 to 4 µs more. "
        "`none`: tablets whose files are all uncompressed are read through the page cache of the system (mmap), past "
        "the block cache: lookups take less time, in large tables half, while the files fit into free memory. "
        "[Decision 21](decisions/0021-rocksdb-options.md) has the measurements.",
    )
    file_compression_zstd_level: int | None = _option(
        "file.compression.zstd-level",
        kind=_whole_numbers(1, 19),
        default=None,
        shown_default="3",
        alterable=True,
        does="How hard `zstd` tries, for the data files that are written from now on. 1: files are a few percent "
        "larger. 9: writing takes five times as long, files are a few percent smaller. Reading is not slower. Refused "
        "with another `file.compression`.",
    )
    file_block_size: int | None = _option(
        "file.block-size",
        kind=_bytes(512, 65_536),
        default=None,
        shown_default="4 kb; 1 kb with `file.compression` = `none`",
        unit="bytes before compression",
        alterable=True,
        does="Rows of a data file are compressed and read in blocks of about this size; for the data files that are "
        "written from now on. Smaller: a lookup that misses the block cache takes less time, and the cache holds more "
        "of what is asked for; files are larger (`lz4`: 1 kb a fifth, 16 kb a tenth less), and the index, which is in "
        "memory, too (1 kb: 2.6 bytes a row with the filter, 4 kb: 1.6).",
    )
    column_options: Mapping[str, ColumnOptions] = field(default_factory=dict, hash=False)
    """By column name, of columns with an option. Not to be changed."""
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the user gave: canonical name to text, accepted options without effect included. Not to be changed."""

    @property
    def files(self) -> FileOptions:
        """How data files are written."""
        return FileOptions(self.file_compression, self.file_compression_zstd_level, self.file_block_size)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> TableOptions:
        """Options from their text. What is unknown, not applied, invalid or given twice is refused by name."""
        spelled: dict[str, str] = {}
        values: dict[str, Any] = {}
        columns: dict[str, dict[str, Any]] = {}
        groups: list[GroupOption] = []
        for spelling, text in raw.items():
            option, place = find_option(spelling), f"option {spelling}"
            if option.name in spelled:
                raise InvalidRequest(
                    f"option {option.name!r} is given twice: as {spelled[option.name]!r} and as {spelling!r}",
                    place=place,
                    hint=f"keep {option.name!r}",
                )
            if option.status == "definition":
                raise InvalidRequest(
                    f"option {spelling!r} is a part of the table's definition", place=place, hint=option.consequence
                )
            if not isinstance(text, str):
                raise InvalidRequest(f"option {spelling!r} is not text but {text!r}", place=place)
            spelled[option.name] = spelling
            value = option.parse(text, spelling)
            if option.attribute == "sequence_groups":
                groups.append(GroupOption(option.columns, value))
            elif option.columns:
                columns.setdefault(option.columns[0], {})[option.attribute] = value
            elif option.attribute:
                values[option.attribute] = value
        options = cls(
            **values,
            sequence_groups=tuple(groups),
            column_options={name: ColumnOptions(**each) for name, each in columns.items()},
            given={name: raw[spelling] for name, spelling in spelled.items()},
        )
        if spelled.get("merge-engine") == "table.merge-engine":
            options = with_default_of_fluss(options)
        check_options_have_effect(options)
        return options


def with_default_of_fluss(options: TableOptions) -> TableOptions:
    """In Fluss, engines other than the default ignore deletes. Written down, so that the table shows and keeps it."""
    said = (
        options.delete_behavior is not None
        or options.ignore_delete
        or options.aggregation_remove_record_on_delete
        or any(column.ignore_retract for column in options.column_options.values())
    )
    if said or options.merge_engine not in ("first-row", "versioned", "aggregation"):
        return options
    given = {**options.given, "delete.behavior": "ignore"}
    return dataclasses.replace(options, delete_behavior="ignore", given=given)


def check_options_have_effect(options: TableOptions) -> None:
    """No option was given that another one leaves without effect."""
    if options.sequence_descending and not options.sequence_field:
        raise InvalidRequest(
            "option 'sequence.field.sort-order' = 'descending' has no effect without 'sequence.field'",
            place="option sequence.field.sort-order",
            hint="name the columns that order the records in 'sequence.field'",
        )
    if options.sequence_auto_padding and not options.sequence_field:
        raise InvalidRequest(
            "option 'sequence.auto-padding' has no effect without 'sequence.field'",
            place="option sequence.auto-padding",
            hint="name the columns that order the records in 'sequence.field'",
        )
    default = TableOptions()
    if "auto-increment.cache-size" in options.given and not options.auto_increment_fields:
        raise InvalidRequest(
            "option 'auto-increment.cache-size' has no effect without 'auto-increment.fields'",
            place="option auto-increment.cache-size",
            hint="name the column that gets ids in 'auto-increment.fields'",
        )
    compression = options.file_compression
    if options.file_compression_zstd_level is not None and compression != "zstd":
        raise InvalidRequest(
            f"option 'file.compression.zstd-level' has no effect with 'file.compression' = '{compression}'",
            place="option file.compression.zstd-level",
            hint="leave it out, or set 'file.compression' to 'zstd'",
        )
    for name, attribute in (
        ("dynamic-bucket.target-row-num", "dynamic_bucket_target_row_num"),
        ("dynamic-bucket.max-buckets", "dynamic_bucket_max_buckets"),
    ):
        if options.bucket is not None and getattr(options, attribute) != getattr(default, attribute):
            raise InvalidRequest(
                f"option {name!r} has no effect with 'bucket' = '{options.bucket}'",
                place=f"option {name}",
                hint="leave one of the two out",
            )


# --- parts of the definition

PRIMARY_KEY = "primary-key"
PARTITION = "partition"
DEFINITION = (
    Option(
        PRIMARY_KEY,
        "definition",
        "The columns of the primary key, in place of `PRIMARY KEY (...)`; one of the two may be given.",
        kind=COLUMNS,
    ),
    Option(
        PARTITION,
        "definition",
        "The partition columns, in place of `PARTITIONED BY (...)`; one of the two may be given.",
        kind=COLUMNS,
    ),
)


# --- options that are known, and not applied yet


@dataclass(frozen=True, slots=True)
class Pattern:
    """A family of names, with parts in <angle brackets> that are free. None is applied yet."""

    template: str
    consequence: str
    group: str

    def matches(self, name: str) -> bool:
        literals = (re.escape(piece) for piece in re.split(r"<[^>]*>", self.template))
        return re.fullmatch(".+".join(literals), name) is not None


def _not_yet(group: str, reason: str, names: str) -> Iterator[Option]:
    for word in names.split():
        spellings, *accepted = word.split("=")
        name, *aliases = spellings.split("|")
        yield Option(name, "not yet", reason, aliases=tuple(aliases), accepted=tuple(accepted), group=group)


NOT_YET: tuple[Option, ...] = tuple(option for group in NAMES for option in _not_yet(*group))
PATTERNS: tuple[Pattern, ...] = tuple(
    Pattern(template, reason, group) for group, reason, templates in TEMPLATES for template in templates.split()
)


# --- finding one

_DECLARED: tuple[Option, ...] = tuple(
    dataclasses.replace(part.metadata["option"], attribute=part.name)
    for part in (*dataclasses.fields(ColumnOptions), *dataclasses.fields(TableOptions))
    if "option" in part.metadata
)
WORKING: tuple[Option, ...] = tuple(option for option in _DECLARED if "<" not in option.name)
OF_COLUMNS: tuple[Option, ...] = tuple(option for option in _DECLARED if "<" in option.name)
"""Families: `<column>` or `<columns>` in their names stands for column names."""
OPTIONS: tuple[Option, ...] = (*WORKING, *DEFINITION, *NOT_YET)
"""Every option that has a name of its own."""

BY_SPELLING: Mapping[str, Option] = {spelling: option for option in OPTIONS for spelling in option.spellings}


def find_option(spelling: str) -> Option:
    """The declaration of an option, by any of its spellings; an unknown one is refused with the nearest name."""
    option = BY_SPELLING.get(spelling)
    option = option or _option_of_columns(spelling)
    if option is not None:
        return option
    for pattern in PATTERNS:
        if pattern.matches(spelling):
            return Option(spelling, "not yet", pattern.consequence, group=pattern.group)
    near = nearest_name(spelling)
    raise InvalidRequest(
        f"unknown option {spelling!r}",
        place=f"option {spelling}",
        hint=f"did you mean {near!r}?" if near else "docs/options.md lists the options",
    )


def _option_of_columns(spelling: str) -> Option | None:
    """The option of one column, or of a sequence group, with the names filled in."""
    for family in OF_COLUMNS:
        for template in family.spellings:
            start, several, end = re.split("<column(s?)>", template)
            if not (spelling.startswith(start) and spelling.endswith(end) and len(spelling) > len(start + end)):
                continue
            written = spelling.removeprefix(start).removesuffix(end)
            try:
                columns = COLUMNS.parse(written) if several else (written,)
            except ValueError as exc:
                raise InvalidRequest(f"option {spelling!r}: {exc}", place=f"option {spelling}") from None
            name = re.sub("<columns?>", lambda _: ",".join(columns), family.name)  # noqa: B023
            return dataclasses.replace(family, name=name, aliases=(), columns=columns)
    return None


def nearest_name(spelling: str) -> str | None:
    """The known spelling that looks most like an unknown one."""
    candidates = list(BY_SPELLING)
    words = spelling.split(".")
    for end in range(max(2, len(words) - 3), len(words)):  # a column name may have dots
        column = ".".join(words[1:end])
        if words[0] != "fields" or not column:
            break
        templates = [template for family in OF_COLUMNS for template in family.spellings]
        templates += [pattern.template for pattern in PATTERNS if pattern.template.startswith("fields.")]
        candidates += [re.sub(r"<columns?>", lambda _: column, template) for template in templates]  # noqa: B023
    near = difflib.get_close_matches(_plain(spelling), candidates, n=1, cutoff=0.7)
    return near[0] if near else None


# --- the reference page

_INTRODUCTION = """\
# Table options

<!-- Printed by `python -m stelae.schema.options > docs/options.md`: change stelae/schema/options.py, then print it
again. -->

Options are given as `WITH ('name' = 'value')` or `TBLPROPERTIES ('name' = 'value')` in [CREATE TABLE](sql.md). Their
names and meaning are those of Apache Paimon and Apache Fluss, in either spelling; an option may be given once. Values
that are words are taken in any case, and with - or _. An unknown option is an error that suggests the nearest name. An
option that is known but not applied by this version is an error too, and so is one that another option leaves without
effect: nothing is ignored silently. "Can be altered" says what `ALTER TABLE ... SET` may change during the life of a
table.

## Options that work

| Option | Value | Default | Unit | Can be altered |
| --- | --- | --- | --- | --- |
"""

_OF_COLUMNS = """\
## Options of columns

They say how the values of one column are merged; [merging.md](merging.md) shows them at work. `<column>` stands for the
name of a column, dots included, and `<columns>` for one or several with commas between them. They are for columns
outside of the primary key, and no other than the sequence group is for a sequence column.

| Option | Value | Default | Unit | Can be altered |
| --- | --- | --- | --- | --- |
"""

_NOT_YET = """\
## Known, not applied yet

A value that is shown after `=` is accepted, because it asks for what happens anyway. Every other value is an error that
names the option.
"""


def reference_page() -> str:
    """docs/options.md."""
    parts = [_INTRODUCTION + "\n".join(_table_row(option) for option in WORKING) + "\n"]
    parts += [_section(option) for option in WORKING]
    parts.append(_OF_COLUMNS + "\n".join(_table_row(option) for option in OF_COLUMNS) + "\n")
    parts += [_section(option) for option in OF_COLUMNS]
    parts.append("## Parts of the definition\n")
    parts.append("".join(f"- `{option.name}`: {option.consequence}\n" for option in DEFINITION))
    parts.append(_NOT_YET)
    for title, reason, _ in NAMES:
        entries = "".join(f"- {_entry(option)}\n" for option in NOT_YET if option.group == title)
        parts.append(f"### {title}\n\nWhy: {reason}.\n\n{entries}")
    for title, reason, _ in TEMPLATES:
        entries = "".join(f"- `{pattern.template}`\n" for pattern in PATTERNS if pattern.group == title)
        parts.append(f"### {title}\n\nWhy: {reason}.\n\n{entries}")
    return "\n".join(parts)


def _section(option: Option) -> str:
    also = f"Also spelled {', '.join(f'`{alias}`' for alias in option.aliases)}.\n\n" if option.aliases else ""
    title = f"`{option.name}`" if option in OF_COLUMNS else option.name
    return f"### {title}\n\n{also}{option.consequence}\n"


def _table_row(option: Option) -> str:
    anchor = re.sub(r"[.<>,]", "", option.name)
    cells = (
        f"[`{option.name}`](#{anchor})",
        option.kind.name if option.kind else "",
        option.default,
        option.unit or "–",
        "yes" if option.alterable else "no",
    )
    return f"| {' | '.join(cells)} |"


def _entry(option: Option) -> str:
    values = f" = {' or '.join(f'`{value}`' for value in option.accepted)}" if option.accepted else ""
    aliases = f" (also {', '.join(f'`{alias}`' for alias in option.aliases)})" if option.aliases else ""
    return f"`{option.name}`{values}{aliases}"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
