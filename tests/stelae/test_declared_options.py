"""Goal: what a field declares is what commands, pages and signatures say.

Method: a dataclass with one option of each kind, as a command of typer, as a table, and as keywords of a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from stelae.cli.option_flags import takes_declared_options
from stelae.declared_options import check_limits, declared, keywords_table, option, options_table, shows_options
from stelae.errors import InvalidRequest


@dataclass(frozen=True)
class Options:
    """One of each kind."""

    kind: Literal["big", "small"] = option("big", "How big.")
    tables: tuple[str, ...] = option((), "Which tables.", flag="--table", value="TABLE", shown="all")
    columns: Sequence[str] | None = option(None, "Which columns.", separator=",", shown="all")
    folder: Path | None = option(None, "Where.", shown="here")
    threads: int = option(2, "How many.", least=1)
    wait_s: float = option(1.5, "How long.", unit="seconds", least=0)
    loud: bool = option(False, "Says more.")
    linked: bool = option(True, "Links files.")

    def __post_init__(self) -> None:
        check_limits(self)


def run(*words: str) -> tuple[Any, str]:
    """What a command gets for some words, and what it printed."""
    app = typer.Typer()
    got: list[Options] = []

    @app.command()
    @takes_declared_options
    def command(name: str, options: Options, last: int = 3) -> None:
        assert (name, last) == ("x", 3)
        got.append(options)

    result = CliRunner().invoke(app, ["x", *words], env={"COLUMNS": "200"}, catch_exceptions=False)
    return got[0] if got else None, result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Options()),
        ("--kind small", Options(kind="small")),
        ("--table a.b --table c.d", Options(tables=("a.b", "c.d"))),
        ("--columns a,b", Options(columns=("a", "b"))),
        ("--folder f", Options(folder=Path("f"))),
        ("--threads 9 --wait 0.5", Options(threads=9, wait_s=0.5)),
        ("--loud --no-linked", Options(loud=True, linked=False)),
    ],
)
def test_flags_of_a_command(words: str, expected: Options) -> None:
    assert run(*words.split())[0] == expected


def test_help_says_what_they_do() -> None:
    printed = run("--help")[1]
    for told in ("--table", "TABLE", "--columns", "--threads", "N", "How long. In seconds.", "SECONDS", "--no-linked"):
        assert told in printed
    assert "--no-loud" not in printed


@pytest.mark.parametrize(("name", "value"), [("threads", 0), ("wait_s", -1), ("wait_s", float("nan"))])
def test_values_below_the_least(name: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match="at least") as error:
        Options(**{name: value})  # type: ignore[arg-type]
    assert error.value.place == f"option {name}"


def test_names_without_a_name() -> None:
    with pytest.raises(InvalidRequest, match="commas"):
        run("--columns", "a,,b")


def test_the_table_of_a_page() -> None:
    lines = options_table(Options).splitlines()
    assert lines[0] == "| option | default | unit | what it does |"
    assert "| `--table TABLE` | all |  | Which tables. |" in lines
    assert "| `--wait` | 1.5 | seconds | How long. |" in lines
    assert "| `--loud` | off |  | Says more. |" in lines
    assert "| `--linked/--no-linked` | on |  | Links files. |" in lines
    assert len(lines) == 2 + len(declared(Options))


def test_units_have_a_column_only_where_there_are_any() -> None:
    @dataclass(frozen=True)
    class Plain:
        loud: bool = option(False, "Says more.")

    assert options_table(Plain).splitlines()[2] == "| `--loud` | off | Says more. |"


def test_the_table_of_the_arguments_of_a_function() -> None:
    lines = keywords_table(Options).splitlines()
    assert lines[0] == "| argument | default | unit | what it does |"
    assert "| `wait_s` | 1.5 | seconds | How long. |" in lines
    assert len(lines) == 2 + len(declared(Options))


def test_a_function_shows_the_options_that_it_takes_as_keywords() -> None:
    @shows_options(Options)
    def call(table: str, *, first: int = 1, **options: Any) -> Options:
        return Options(**options)

    parameters = inspect.signature(call).parameters
    assert list(parameters) == ["table", "first", *(each.name for each in declared(Options))]
    assert parameters["threads"].default == 2
    assert call("t", threads=4) == Options(threads=4)
