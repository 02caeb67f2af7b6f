"""docs/options.md, made from the declarations by `make docs`."""

from __future__ import annotations

import re

from stelae.schema.options import DEFINITION, NOT_YET, OF_COLUMNS, PATTERNS, WORKING, Option
from stelae.schema.unsupported_options import NAMES, TEMPLATES

_INTRODUCTION = """\
# Table options

<!-- Made by `make docs` from stelae/schema/options.py. -->

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
