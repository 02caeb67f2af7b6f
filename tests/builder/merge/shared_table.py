"""Cases that share a table: which may, and the table that holds them.

Options and columns of a case are of two kinds. What counts for the whole table (engine, types of the key, sequence
field, the columns that options like this one name) must be equal. What is of single columns (a function, its options, a
sequence group) need not: those columns get the number of the case in their name, and are null in the records of all
other cases.

    case 0: id, ts, v   sequence ts, sum of v  ─┐
                                                ├─▶  run, s0, s1, c0_v, c1_w   sequence s1, sum of c0_v, max of c1_w
    case 1: k, s, w     sequence s, max of w   ─┘
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tests.cases import Case, Record

RUN = "run"
"""The column in front that names the run."""

MAX_COLUMNS = 80
"""Of a table that cases share. With more, planning costs more than the builds that are saved."""

RETRACTIONS = ("-U", "-D")


@dataclass(frozen=True)
class SharedTable:
    """Cases in one table, and how their columns are called there."""

    cases: Sequence[Case]
    """One of each definition."""

    @cached_property
    def case(self) -> Case:
        """All in one, with the columns and options of the table; with one bucket, for speed, unless options say how
        many.
        """
        first = self.cases[0]
        columns = {RUN: "STRING"}
        options: dict[str, str] = {}
        encode: dict[str, str] = {}
        input_types: dict[str, str] = {}
        unordered: list[str] = []
        approx: list[str] = []
        for case in self.cases:
            names = self.names(case)
            columns.update({names[column["name"]]: column["type"] for column in case.columns})
            options.update(renamed_options(case, names))
            encode.update({names[name]: kind for name, kind in case.encode.items()})
            input_types.update({names[name]: of for name, of in case.input_types.items()})
            unordered += [names[name] for name in case.unordered_columns]
            approx += [names[name] for name in case.approx_columns]
        if not any(name.startswith("bucket") for name in options):
            options["bucket"] = "1"
        return replace(
            first,
            columns=[{"name": name, "type": of} for name, of in columns.items()],
            primary_key=[RUN, *(self.names(first)[name] for name in first.primary_key)],
            options=options,
            encode=encode,
            input_types=input_types,
            unordered_columns=tuple(unordered),
            approx_columns=tuple(approx),
        )

    def names(self, case: Case) -> dict[str, str]:
        """Columns of a case, and how the table calls them."""
        if len(self.cases) == 1:
            return {name: name for name in all_columns(case)}
        common = names_of_common_columns(case)
        number = self.numbers[definition_of(case)]
        return {name: common.get(name, f"c{number}_{name}") for name in all_columns(case)}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of a case by its definition."""
        return {definition_of(case): number for number, case in enumerate(self.cases)}

    def record(self, case: Case, run: str, record: Record) -> Record:
        """A record of a case as a record of the table."""
        kind, *values = record
        names = self.names(case).values()
        cells: dict[str, Any] = {RUN: run, **dict(zip(names, values, strict=False))}
        if case.add_columns:  # It is alone, and its columns come one by one.
            return [kind, *cells.values()]
        return [kind, *(cells.get(column["name"]) for column in self.case.columns)]


def tables_of(cases: Iterable[Case]) -> list[SharedTable]:
    """Tables for these cases, as few as may be."""
    definitions: dict[str, list[Case]] = {}
    for case in cases:
        definitions.setdefault(definition_of(case), []).append(case)
    groups: dict[str, list[SharedTable]] = {}
    for alike in definitions.values():
        # A column that can't take values back stops a build in which others do.
        tables = groups.setdefault(f"{sharing_of(alike[0])} {any(map(takes_back, alike))}", [])
        wider = SharedTable([*tables[-1].cases, alike[0]]) if tables else None
        if wider and len(wider.case.columns) <= MAX_COLUMNS:
            tables[-1] = wider
        else:
            tables.append(SharedTable(alike[:1]))
    return [table for tables in groups.values() for table in tables]


def definition_of(case: Case) -> str:
    """Equal for cases that have a table in common without a change of names."""
    parts = (
        case.columns, case.primary_key, case.partition_by, case.options, case.loose_input, dict(case.input_types),
        dict(case.encode), case.name if must_be_alone(case) else None,
    )  # fmt: skip
    return json.dumps(parts, sort_keys=True)


def sharing_of(case: Case) -> str:
    """Equal for cases that may share a table."""
    names = names_of_common_columns(case)
    options = {option: value for option, value in case.options.items() if is_of_the_table(option, set(names))} | {
        "bucket": case.options.get("bucket", "1")
    }
    parts = (
        renamed_options(replace(case, options=options), names),
        [(names[column["name"]], column["type"]) for column in case.columns if column["name"] in names],
        {names[name]: of for name, of in case.input_types.items() if name in names},
        {names[name]: kind for name, kind in case.encode.items() if name in names},
        [names[name] for name in case.primary_key], case.partition_by, case.loose_input,
        case.name if must_be_alone(case) else None,
    )  # fmt: skip
    return json.dumps(parts, sort_keys=True)


def must_be_alone(case: Case) -> bool:
    """Columns that come later, and builds that set some columns, are of one case."""
    return bool(case.add_columns or case.targets)


def takes_back(case: Case) -> bool:
    """Whether records may take values back."""
    return any(cell in RETRACTIONS for batch in case.batches for record in batch for cell in record)


def all_columns(case: Case) -> list[str]:
    added = (column for index in sorted(case.add_columns) for column in case.add_columns[index])
    return [column["name"] for column in (*case.columns, *added)]


def common_columns(case: Case) -> set[str]:
    """Columns that keep their names: of the key, those that options of the whole table name, and what belongs to them.
    All of them, if one must not be null.
    """
    columns = all_columns(case)
    common = {*case.primary_key, *case.partition_by}
    if must_be_alone(case) or any("NOT NULL" in c["type"].upper() for c in case.columns if c["name"] not in common):
        return set(columns)
    while True:
        named = {
            name
            for option, value in case.options.items()
            if is_of_the_table(option, common)
            for name in (*columns_of(option), *map(str.strip, value.split(",")))
            if name in columns
        }
        if named <= common:
            return common
        common |= named


def names_of_common_columns(case: Case) -> dict[str, str]:
    """The columns that all cases of a table have, and how it calls them: by numbers, unless partitions or the case
    itself need the names.
    """
    common = common_columns(case)
    columns = [name for name in all_columns(case) if name in common]
    if case.partition_by or must_be_alone(case) or not all(name.isidentifier() for name in columns):
        return {name: name for name in columns}
    return {name: f"s{number}" for number, name in enumerate(columns)}


def is_of_the_table(option: str, common: set[str]) -> bool:
    columns = columns_of(option)
    return not columns or bool(common & set(columns))


def columns_of(option: str) -> list[str]:
    """The columns whose option it is: `fields.<columns>.<option>`."""
    parts = option.split(".", 2)
    return [name.strip() for name in parts[1].split(",")] if parts[0] == "fields" and len(parts) == 3 else []


def renamed_options(case: Case, names: Mapping[str, str]) -> dict[str, str]:
    options = {}
    for option, value in case.options.items():
        if columns := columns_of(option):
            rest = option.split(".", 2)[2]
            members = ",".join(names[name.strip()] for name in value.split(",")) if rest == "sequence-group" else value
            options[f"fields.{','.join(names[name] for name in columns)}.{rest}"] = members
        else:
            options[option] = ",".join(names.get(part.strip(), part) for part in value.split(","))
    return options
