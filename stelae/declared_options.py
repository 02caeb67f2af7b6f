"""Options, each declared once: default, unit and what it does are written where the field of a frozen dataclass is.

    @dataclass(frozen=True)
    class BuildOptions:
        allow_empty: bool = option(False, "An input without rows is no error.")

    declared(BuildOptions)         the declarations, in order
    check_limits(options)          what `__post_init__` asks of the values
    options_table(BuildOptions)    a table of flags for the docs; a test holds the page to it
    keywords_table(LookupOptions)  the same for what is given to a function
    shows_options(BuildOptions)    the signature of a function that takes them as keywords

`stelae/cli/option_flags.py` makes the flags of a command from the same declarations.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from stelae.errors import InvalidRequest

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = {True: "on", False: "off"}
_KEY = "stelae"


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """One declaration."""

    name: str
    """Of the field."""
    type: Any
    default: Any
    does: str
    unit: str
    shown: str
    """The default, for people."""
    flag: str
    """How it is spelled on the command line; `--name/--no-name` for what is on by default."""
    value: str | None
    """What stands for the value in `--help`; None: nothing of its own, or no value, as for a flag that is on or off."""
    least: float | None
    """Values below are refused; so is NaN."""
    separator: str | None
    """Of an option with several values: what is between them in one text. None: the flag is repeated."""

    @property
    def help(self) -> str:
        """What it does, on one line."""
        return self.does + (f" In {self.unit}." if self.unit else "")


def option(
    default: Any,
    does: str,
    *,
    unit: str = "",
    shown: str | None = None,
    flag: str | None = None,
    value: str | None = None,
    least: float | None = None,
    separator: str | None = None,
) -> Any:
    """A field that is an option. What is not said is derived: see `DeclaredOption`."""
    said = {"does": does, "unit": unit, "value": value, "least": least, "separator": separator}
    return dataclasses.field(default=default, metadata={_KEY: said | {"shown": shown, "flag": flag}})


def declared(options: type[Any]) -> Sequence[DeclaredOption]:
    """The declarations of a dataclass, in order."""
    types = get_type_hints(options)
    return tuple(_declared(field, types[field.name]) for field in dataclasses.fields(options) if _KEY in field.metadata)


def _declared(field: dataclasses.Field[Any], type_: Any) -> DeclaredOption:
    said = dict(field.metadata[_KEY])
    if said["shown"] is None:
        said["shown"] = _SHOWN[field.default] if isinstance(field.default, bool) else str(field.default)
    # A unit in the field's name is for the code; people are told it beside the flag.
    dashed = field.name.removesuffix("_s").replace("_", "-")
    said["flag"] = said["flag"] or (f"--{dashed}/--no-{dashed}" if field.default is True else f"--{dashed}")
    return DeclaredOption(name=field.name, type=type_, default=field.default, **said)


def check_limits(options: Any) -> None:
    """InvalidRequest for a value below the least that its option can be."""
    for each in declared(type(options)):
        value = getattr(options, each.name)
        if each.least is not None and value is not None and not value >= each.least:
            raise InvalidRequest(
                f"option {each.name} cannot be {value!r}: at least {each.least}", place=f"option {each.name}"
            )


def options_table(*classes: type[Any]) -> str:
    """Markdown: a row for each option. A column of units if any has one."""
    options = [each for options in classes for each in declared(options)]
    units = any(each.unit for each in options)
    rows = [("option", "default", "unit", "what it does"), ("---",) * 4]
    rows += [(f"`{_spelled(each)}`", each.shown, each.unit, each.does) for each in options]
    return "".join(f"| {' | '.join(row if units else (*row[:2], row[3]))} |\n" for row in rows)


def keywords_table(options: type[Any]) -> str:
    """Markdown: a row for each option, by its name in Python."""
    rows = [("argument", "default", "unit", "what it does"), ("---",) * 4]
    rows += [(f"`{each.name}`", each.shown, each.unit, each.does) for each in declared(options)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _spelled(each: DeclaredOption) -> str:
    return f"{each.flag} {each.value}" if each.value else each.flag


def shows_options(options: type[Any]) -> Callable[[F], F]:
    """For a function that takes the options as `**keywords`: `help` and editors show each with its default."""

    def show(function: F) -> F:
        signature = inspect.signature(function)
        kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        annotations = options.__annotations__
        keywords = [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=annotations[each.name]
            )
            for each in declared(options)
        ]
        function.__signature__ = signature.replace(parameters=[*kept, *keywords])  # type: ignore[attr-defined]
        return function

    return show
