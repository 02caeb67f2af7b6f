"""What commands print: answers to standard output, everything else to standard error.

On a terminal, tables fit its width and carry some colour. Piped, they are plain text that is never cut; `--json` is for
programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from stelae.errors import StelaeError

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""Columns of output that is no terminal: wide enough that nothing is cut or wrapped."""


def out() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def err() -> Console:
    """Standard error."""
    from rich.console import Console

    width = None if sys.stderr.isatty() else PIPED_WIDTH
    return Console(stderr=True, markup=False, highlight=False, emoji=False, width=width)


def say(text: str) -> None:
    """A line of the answer."""
    out().print(text, soft_wrap=True)


def note(text: str) -> None:
    """A remark that is not part of the answer, on standard error."""
    err().print(text, style="dim", soft_wrap=True)


def show_json(value: object) -> None:
    """The answer as JSON, indented."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode())


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Rows under headings; the columns named in `right` hold numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = out()
    if not console.is_terminal:
        # No blanks at the ends of lines: they would end up in files.
        with console.capture() as capture:
            console.print(table)
        sys.stdout.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")
        return
    console.print(table)


def show_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line, aligned."""
    width = max(len(name) for name, _ in facts)
    console = out()
    for name, value in facts:
        console.print(f"{name:<{width}}  {value}", soft_wrap=True)


def show_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of a table: side by side where they fit the screen, otherwise one value a line."""
    headings = list(rows[0])
    cells = [[value_text(row[name]) for name in headings] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(headings, *cells, strict=True)]
    if sum(widths) + len(widths) - 1 <= out().width:
        numeric = [name for name in headings if all(_is_number(row[name]) for row in rows)]
        show_table(headings, cells, right=numeric)
        return
    for number, row in enumerate(cells):
        if number:
            say("")
        show_facts(list(zip(headings, row, strict=True)))


def show_error(error: StelaeError) -> None:
    """An error: what, where, and what to do next."""
    console = err()
    console.print("error: ", style="bold red", end="")
    console.print(error.message, style="red", soft_wrap=True)
    if error.place and error.place not in error.message:
        console.print(f"  where: {error.place}", soft_wrap=True)
    if error.hint:
        console.print(f"  hint: {error.hint}", soft_wrap=True)


@contextmanager
def progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress line on standard error while something runs; nothing where that is no terminal.

    Gives a function that is told how much is done, of how much.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = err()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as line:
        task = line.add_task(text, total=None)
        yield lambda done, total: line.update(task, completed=done, total=total or None)


def value_text(value: object) -> str:
    """A JSON value as people read it: text without quotes, the rest as JSON."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def size_text(count: int) -> str:
    """Bytes, in the unit that suits: `3.4 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(milliseconds: int) -> str:
    """A moment in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count_text(count: int, noun: str) -> str:
    """`1 file`, `1,234 files`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
