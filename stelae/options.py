"""The options of a table, each declared once: name, other spellings, type, default, unit, consequence, status.

    TableOptions         options that work: its fields are the declarations
    DEFINITION           parts of the definition that may be written as options; stelae/ddl.py takes them out
    NOT_YET, PATTERNS    every other option of primary-key tables of Apache Paimon and Apache Fluss: known, not applied
                         (their names are in stelae/known_options.py)

Names and meaning are theirs, so that a statement written for them says here what it says there. What this version does
not apply is refused by name, never silently ignored; a value that asks for what happens anyway (`changelog-producer` =
`none`) is accepted.

docs/options.md is printed from these declarations: `python -m stelae.options > docs/options.md`.
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
from stelae.known_options import NAMES, TEMPLATES

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


def _parse_boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _parse_columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("expected column names, with commas between them")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"it names column {name!r} twice")
    return names


def _parse_column(text: str) -> str:
    if not text or "," in text:
        raise ValueError("expected one column name")
    return text


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

    return Kind(f"number, {limits}", parse, lambda value: str(none if value is None else value))


def _choice(*values: str, not_yet: tuple[str, ...] = ()) -> Kind:
    """One of `values`, in any case and with - or _; those in `not_yet` are known, but refused."""

    def parse(text: str) -> str:
        value = _plain(text)
        if value in values:
            return value
        if value in not_yet:
            raise ValueError("known, but this version does not apply it yet")
        near = difflib.get_close_matches(value, (*values, *not_yet), n=1)
        raise ValueError(f"expected {' or '.join(values)}" + (f"; did you mean {near[0]}?" if near else ""))

    return Kind(", ".join(values), parse)


def _plain(text: str) -> str:
    """Values of enumerations are compared in lower case, and - is _ (Paimon writes first-row, Fluss first_row)."""
    return text.strip().lower().replace("_", "-")


BOOLEAN = Kind("true, false", _parse_boolean, lambda value: str(value).lower())
COLUMN = Kind("a column name", _parse_column, lambda value: value or "none")
COLUMNS = Kind("column names with commas between them", _parse_columns, lambda value: ",".join(value) or "none")
FRACTION = Kind("a fraction or a percentage", _parse_fraction, lambda value: "none" if value is None else repr(value))
BUCKETS = _whole_numbers(1, MAX_BUCKETS, none=-1)
MERGE_ENGINE = _choice("deduplicate", not_yet=("first-row", "partial-update", "aggregation", "versioned"))
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

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def parse(self, text: str, spelling: str) -> Any:
        """The value that `text` stands for; None for an option that is not applied and was given an accepted value."""
        place = f"option {spelling}"
        if self.kind is not None:
            try:
                return self.kind.parse(text.strip())
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
    """A field of TableOptions that is also the declaration of the option."""
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
    merge_engine: str = _option(
        "merge-engine",
        "table.merge-engine",
        kind=MERGE_ENGINE,
        default="deduplicate",
        does="How the records of one primary key become one row. `deduplicate`: the last record wins, and a delete "
        "removes the row. `first-row`, `partial-update`, `aggregation` and `versioned` are known and not applied yet.",
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
        does="Compression of new data files. `zstd`: smaller files and slower builds. `none`: larger files.",
    )
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the user gave: canonical name to text, accepted options without effect included. Not to be changed."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> TableOptions:
        """Options from their text. What is unknown, not applied, invalid or given twice is refused by name."""
        spelled: dict[str, str] = {}
        values: dict[str, Any] = {}
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
            if option.attribute:
                values[option.attribute] = value
        options = cls(**values, given={name: raw[spelling] for name, spelling in spelled.items()})
        check_options_have_effect(options)
        return options


def check_options_have_effect(options: TableOptions) -> None:
    """No option was given that another one leaves without effect."""
    if options.sequence_descending and not options.sequence_field:
        raise InvalidRequest(
            "option 'sequence.field.sort-order' = 'descending' has no effect without 'sequence.field'",
            place="option sequence.field.sort-order",
            hint="name the columns that order the records in 'sequence.field'",
        )
    default = TableOptions()
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

WORKING: tuple[Option, ...] = tuple(
    dataclasses.replace(part.metadata["option"], attribute=part.name)
    for part in dataclasses.fields(TableOptions)
    if "option" in part.metadata
)
OPTIONS: tuple[Option, ...] = (*WORKING, *DEFINITION, *NOT_YET)
"""Every option that has a name of its own."""

BY_SPELLING: Mapping[str, Option] = {spelling: option for option in OPTIONS for spelling in option.spellings}


def find_option(spelling: str) -> Option:
    """The declaration of an option, by any of its spellings; an unknown one is refused with the nearest name."""
    option = BY_SPELLING.get(spelling)
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


def nearest_name(spelling: str) -> str | None:
    """The known spelling that looks most like an unknown one."""
    candidates = list(BY_SPELLING)
    if spelling.startswith("fields.") and spelling.count(".") > 1:
        column = spelling.removeprefix("fields.").rpartition(".")[0]
        candidates += [re.sub(r"<columns?>", lambda _: column, pattern.template) for pattern in PATTERNS]
    near = difflib.get_close_matches(_plain(spelling), candidates, n=1, cutoff=0.7)
    return near[0] if near else None


# --- the reference page

_INTRODUCTION = """\
# Table options

<!-- Printed by `python -m stelae.options > docs/options.md`: change stelae/options.py, then print it again. -->

Options are given as `WITH ('name' = 'value')` or `TBLPROPERTIES ('name' = 'value')` in [CREATE TABLE](sql.md). Their
names and meaning are those of Apache Paimon and Apache Fluss, in either spelling; an option may be given once. An
unknown option is an error that suggests the nearest name. An option that is known but not applied by this version is an
error too, and so is one that another option leaves without effect: nothing is ignored silently. "Can be altered" says
what may change during the life of a table; there is no `ALTER TABLE` yet.

## Options that work

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
    for option in WORKING:
        also = f"Also spelled {', '.join(f'`{alias}`' for alias in option.aliases)}.\n\n" if option.aliases else ""
        parts.append(f"### {option.name}\n\n{also}{option.consequence}\n")
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


def _table_row(option: Option) -> str:
    cells = (
        f"[`{option.name}`](#{option.name.replace('.', '')})",
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
