"""The options of a table, each declared once: name, other spellings, type, default, unit, consequence, status.

    TableOptions         options that work: its fields are the declarations
    ColumnOptions        those of one column, `fields.<column>.…`, likewise
    DEFINITION           parts of the definition that may be written as options; stelae/schema/sql.py takes them out
    NOT_YET, PATTERNS    every other option of primary-key tables of Apache Paimon and Apache Fluss: known, not applied
                         (their names are in stelae/schema/unsupported_options.py)

Names and meaning are theirs, so that a statement written for them says here what it says there. What this version does
not apply is refused by name, never silently ignored; a value that asks for what happens anyway (`changelog-producer` =
`none`) is accepted.

stelae/schema/option_kinds.py says what values may be, stelae/schema/option_parsing.py reads options from their text,
and stelae/schema/options_page.py prints docs/options.md from these declarations.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stelae.errors import InvalidRequest
from stelae.schema.option_kinds import (
    BOOLEAN,
    BUCKET,
    BUCKETS,
    COLUMN,
    COLUMNS,
    DELIMITER,
    DURATION,
    FIELD,
    FIELDS,
    FRACTION,
    FUNCTION,
    MERGE_ENGINE,
    SORT_ORDER,
    OptionKind,
    choice,
    choices,
    plain_word,
    sizes,
    whole_numbers,
)
from stelae.schema.unsupported_options import NAMES, TEMPLATES

Status = Literal["works", "definition", "not yet"]


@dataclass(frozen=True, slots=True)
class Option:
    """One declaration."""

    name: str
    status: Status
    consequence: str
    """What happens; of an option that is not applied, why."""
    aliases: tuple[str, ...] = ()
    """Other spellings: of the other system, or of an older version of it."""
    kind: OptionKind | None = None
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

    @property
    def is_of_one_column(self) -> bool:
        """Whether it says how one column is merged; a sequence group is of several."""
        return bool(self.columns) and self.attribute != "sequence_groups"

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
        if plain_word(text) not in self.accepted:
            accepted = " or ".join(repr(value) for value in self.accepted)
            raise InvalidRequest(
                f"option {spelling!r} is known, but this version does not apply it: {self.consequence}",
                place=place,
                hint=f"it may be {accepted}, which is what happens anyway" if accepted else f"leave {spelling!r} out",
            )
        return None


def declare(
    name: str,
    *aliases: str,
    kind: OptionKind,
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

    aggregate_function: str | None = declare(
        "fields.<column>.aggregate-function",
        "fields.<column>.agg",
        kind=FUNCTION,
        default=None,
        shown_default="`fields.default-aggregate-function`",
        does="The function that makes one value of those of all records. Other spellings of a function, such as "
        "`string_agg`, are taken too, in any case and with - for _; [merging.md](merging.md) has them, with the types "
        "that each takes. With `merge-engine` = `aggregation`, or for a member of a sequence group.",
    )
    ignore_retract: bool = declare(
        "fields.<column>.ignore-retract",
        kind=BOOLEAN,
        default=False,
        does="With true, -U and -D leave the column as it is. Needed where its function cannot take a value back, "
        "unless such records are dropped.",
    )
    distinct: bool = declare(
        "fields.<column>.distinct",
        kind=BOOLEAN,
        default=False,
        does="Of `collect` and `listagg`: whether a value that is there already is left out.",
    )
    delimiter: str | None = declare(
        "fields.<column>.list-agg-delimiter",
        "fields.<column>.listagg.delimiter",
        "fields.<column>.string_agg.delimiter",
        kind=DELIMITER,
        default=None,
        shown_default="`,`",
        does="Of `listagg`: the text between two values. Spaces count.",
    )
    nested_key: tuple[str, ...] = declare(
        "fields.<column>.nested-key",
        kind=FIELDS,
        default=(),
        shown_default="none: every element is added",
        does="Of `nested_update` and `nested_partial_update`, which needs it: the fields of the ROW that say which "
        "element a new one replaces or changes.",
    )
    nested_key_null_strategy: str = declare(
        "fields.<column>.nested-key-null-strategy",
        kind=choice("merge", "ignore", "error"),
        default="merge",
        does="What becomes of an element with a null in its nested key. `merge`: null is a value like others. "
        "`ignore`: the element is dropped. `error`: the build fails.",
    )
    nested_sequence_field: tuple[str, ...] = declare(
        "fields.<column>.nested-sequence-field",
        kind=FIELDS,
        default=(),
        shown_default="none: the later element wins",
        does="Of `nested_update` with a nested key: fields of the ROW that order the elements of a key. An element "
        "replaces another that is not greater.",
    )
    count_limit: int | None = declare(
        "fields.<column>.count-limit",
        kind=whole_numbers(1, 2**31 - 1),
        default=None,
        shown_default="none: any number",
        unit="elements",
        does="Of `nested_update`: with so many elements in the array, none is added; those of a nested key that is "
        "there still replace theirs.",
    )
    ts_field: str | None = declare(
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
    """The options of one table, typed. Made by `parse_options`; the fields are the declarations."""

    bucket: int | None = declare(
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
    bucket_key: tuple[str, ...] = declare(
        "bucket-key",
        "bucket.key",
        kind=COLUMNS,
        default=(),
        shown_default="the primary key without the partition columns",
        does="Columns of the primary key whose hash chooses the bucket. A prefix lookup that gives all of them asks "
        "one bucket instead of every bucket.",
    )
    primary_key_nullable: bool = declare(
        "primary-key.nullable",
        kind=BOOLEAN,
        default=False,
        does="With true, columns of the primary key that are not declared NOT NULL may be null, and null equals null "
        "as a key. Each such column takes a byte more in every key. Partition columns must be declared NOT NULL.",
    )
    merge_engine: str = declare(
        "merge-engine",
        "table.merge-engine",
        kind=MERGE_ENGINE,
        default="deduplicate",
        does="How the records of one primary key become one row; [merging.md](merging.md) shows each. `deduplicate`: "
        "the last record wins. `first-row`: the first one stays. `versioned`: the one with the greatest version wins. "
        "`partial-update`: a record changes the columns in which it is not null. `aggregation`: each column has a "
        "function.",
    )
    version_column: str | None = declare(
        "merge-engine.versioned.ver-column",
        "table.merge-engine.versioned.ver-column",
        kind=COLUMN,
        default=None,
        does="Of `versioned`, which needs it: the column with the version, INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ. "
        "The later of two records with equal versions wins, and null is the least version.",
    )
    sequence_field: tuple[str, ...] = declare(
        "sequence.field",
        kind=COLUMNS,
        default=(),
        shown_default="none: the order of the input",
        does="Columns that order the records of a key. They are compared from left to right, null loses against any "
        "value, and the later input wins a tie.",
    )
    sequence_descending: bool = declare(
        "sequence.field.sort-order",
        kind=SORT_ORDER,
        default=False,
        does="`ascending`: the record with the largest sequence is the last one. `descending`: the one with the "
        "smallest is. Null loses in both.",
    )
    sequence_auto_padding: tuple[str, ...] = declare(
        "sequence.auto-padding",
        kind=choices("row-kind-flag", "second-to-micro", "millis-to-micro"),
        default=(),
        does="What decides between records with equal `sequence.field`. `row-kind-flag`: -U and -D come before +I and "
        "+U. `second-to-micro`, `millis-to-micro`: the order of the input, which decides anyway.",
    )
    rowkind_field: str | None = declare(
        "rowkind.field",
        kind=COLUMN,
        default=None,
        does="A STRING column that says what each record is: +I, -U, +U or -D. It is stored like any other column.",
    )
    ignore_delete: bool = declare(
        "ignore-delete",
        "deduplicate.ignore-delete",
        "first-row.ignore-delete",
        "partial-update.ignore-delete",
        kind=BOOLEAN,
        default=False,
        does="With true, -D and -U records are dropped before records are merged, so no row is ever removed.",
    )
    ignore_update_before: bool = declare(
        "ignore-update-before",
        kind=BOOLEAN,
        default=False,
        does="With true, -U records are dropped before records are merged.",
    )
    delete_behavior: str | None = declare(
        "delete.behavior",
        "table.delete.behavior",
        kind=choice("allow", "ignore", "disable"),
        default=None,
        shown_default="the merge engine's own",
        does="What -D does. `allow`: it removes the row; `first-row` and `versioned` refuse that. `ignore`: -D and -U "
        "are dropped. `disable`: -D fails the build, and -U is dropped. By default the merge engine decides; but a "
        "table whose engine is given as `table.merge-engine` = `first_row`, `versioned` or `aggregation`, and of which "
        "no other option says what a delete does, has `ignore`, as it has in Fluss.",
    )
    aggregation_remove_record_on_delete: bool = declare(
        "aggregation.remove-record-on-delete",
        kind=BOOLEAN,
        default=False,
        does="Of `aggregation`: with true, -D removes the row; -U still takes its values back.",
    )
    partial_update_remove_record_on_delete: bool = declare(
        "partial-update.remove-record-on-delete",
        kind=BOOLEAN,
        default=False,
        does="Of `partial-update` without sequence groups: with true, -D removes the row, and -U is dropped.",
    )
    remove_record_on_sequence_group: tuple[str, ...] = declare(
        "partial-update.remove-record-on-sequence-group",
        kind=COLUMNS,
        default=(),
        does="Of `partial-update` with sequence groups: sequence columns of one group. A -D that is not older than the "
        "row in that group removes it.",
    )
    default_aggregate_function: str | None = declare(
        "fields.default-aggregate-function",
        kind=FUNCTION,
        default=None,
        shown_default="the engine's: last_non_null_value, and in a sequence group the newest value",
        does="The function of every column that has none of its own; the primary key and sequence columns have none.",
    )
    sequence_groups: tuple[GroupOption, ...] = declare(
        "fields.<columns>.sequence-group",
        kind=COLUMNS,
        default=(),
        shown_default="none",
        does="Of `partial-update`: orders the columns that are the value by the sequence columns that are in the name, "
        "one or several with commas between them. A record whose sequence is not older replaces all of them, also by "
        "null; one whose sequence is null in every column leaves them alone.",
    )
    tombstone_time_retained_ms: int | None = declare(
        "tombstone.time-retained",
        kind=DURATION,
        default=None,
        alterable=True,
        shown_default="none: for ever",
        does="How long a table remembers a row that a delete took away. Its hidden row keeps what a late record is "
        "compared with; a build after this time forgets it, and a record that is still later then makes a new row. "
        "Stelae's own; for tables that keep hidden rows.",
    )
    auto_increment_fields: tuple[str, ...] = declare(
        "auto-increment.fields",
        "table.auto-increment.fields",
        kind=COLUMNS,
        default=(),
        shown_default="none",
        does="One INT or BIGINT column outside of the primary key that gives each key an id, once and for ever: an "
        "integer from 1, unique in the table over all its partitions and buckets. Builds and tablet servers mint the "
        "ids; input can't give them. [dictionary.md](dictionary.md) shows it at work.",
    )
    auto_increment_cache_size: int = declare(
        "auto-increment.cache-size",
        "table.auto-increment.cache-size",
        "table.auto-inc.batch-size",
        kind=whole_numbers(1, 2**31 - 1),
        default=100_000,
        unit="ids",
        does="How many ids a tablet server claims at a time. More: fewer claims. Fewer: fewer ids stay unused when a "
        "server is gone for good. A build claims exactly what it needs.",
    )
    dynamic_bucket_target_row_num: int = declare(
        "dynamic-bucket.target-row-num",
        kind=whole_numbers(1),
        default=2_000_000,
        unit="rows",
        alterable=True,
        does="Rows that a bucket should have when the build chooses the bucket count. Refused with a fixed `bucket`.",
    )
    dynamic_bucket_max_buckets: int | None = declare(
        "dynamic-bucket.max-buckets",
        kind=BUCKETS,
        default=None,
        shown_default="-1: no limit of its own",
        unit="buckets a partition",
        alterable=True,
        does="The most buckets that the build may choose. Refused with a fixed `bucket`.",
    )
    snapshot_num_retained: int = declare(
        "snapshot.num-retained",
        kind=whole_numbers(1),
        default=10,
        unit="snapshots",
        alterable=True,
        does="How many of the newest snapshots stay readable; expiring frees the files that only older ones use. "
        "Pinned snapshots are kept as well.",
    )
    snapshot_max_count_change: float | None = declare(
        "snapshot.max-count-change",
        kind=FRACTION,
        default=None,
        shown_default="none: any change",
        unit="part of the rows before",
        alterable=True,
        does="A build fails, and commits nothing, if the new snapshot would have more or fewer rows than its parent by "
        "more than this part: 0.2 or 20% allows a fifth.",
    )
    file_compression: str = declare(
        "file.compression",
        kind=choice("lz4", "zstd", "none"),
        default="lz4",
        alterable=True,
        does="Compression of the data files that are written from now on; older files stay as they are, and tablets "
        "read files of several kinds. Of 67 bytes a row `lz4` made 27 and `zstd` 15, where rows resemble each other. "
        "`zstd`: smaller files, slower builds, and reading a block that is not cached takes 2 to 4 µs more. "
        "`none`: tablets whose files are all uncompressed are read through the page cache of the system (mmap), past "
        "the block cache: lookups take less time, in large tables half, while the files fit into free memory. "
        "[Decision 21](decisions/0021-rocksdb-options.md) has the measurements.",
    )
    file_compression_zstd_level: int | None = declare(
        "file.compression.zstd-level",
        kind=whole_numbers(1, 19),
        default=None,
        shown_default="3",
        alterable=True,
        does="How hard `zstd` tries, for the data files that are written from now on. 1: files are a few percent "
        "larger. 9: writing takes five times as long, files are a few percent smaller. Reading is not slower. Refused "
        "with another `file.compression`.",
    )
    file_block_size: int | None = declare(
        "file.block-size",
        kind=sizes(512, 65_536),
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


# --- all of them

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
