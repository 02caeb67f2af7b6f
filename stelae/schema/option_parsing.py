"""Options from their text: by any spelling, typed, and refused by name where they are unknown, not applied or void.

    {"bucket.num": "8"}  ──find_option──▶  the declaration  ──parse──▶  TableOptions(bucket=8)

stelae/schema/options.py has the declarations.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any

from stelae.errors import InvalidRequest
from stelae.schema.option_kinds import COLUMNS, plain_word
from stelae.schema.options import OF_COLUMNS, OPTIONS, PATTERNS, ColumnOptions, GroupOption, Option, TableOptions


def parse_options(raw: Mapping[str, str]) -> TableOptions:
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
        if option.is_of_one_column:
            columns.setdefault(option.columns[0], {})[option.attribute] = value
        elif option.columns:
            groups.append(GroupOption(option.columns, value))
        elif option.attribute:
            values[option.attribute] = value
    options = TableOptions(
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


# --- finding one

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


def given_column_options(options: TableOptions) -> list[Option]:
    """The options `fields.…` that were given."""
    return [option for option in map(find_option, options.given) if option.columns]


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
    near = difflib.get_close_matches(plain_word(spelling), candidates, n=1, cutoff=0.7)
    return near[0] if near else None
