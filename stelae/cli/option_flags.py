"""Flags of a command, made from options that are declared once (`stelae/declared_options.py`).

    @takes_declared_options
    def build(table: TableArgument, options: BuildOptions) -> None: ...

For `options` the command line has a flag for each option that `BuildOptions` declares; the command gets the object.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from stelae.cli.arguments import parse_names
from stelae.declared_options import DeclaredOption, declared


def takes_declared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: each parameter whose type is a dataclass is replaced by that one's flags."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    classes = {each.name: each.annotation for each in parameters if _declares(each.annotation)}

    @wraps(command)
    def run(**given: Any) -> None:
        for name, options in classes.items():
            given[name] = options(**{each.name: _value(each, given.pop(each.name)) for each in declared(options)})
        command(**given)

    flags = {name: [_parameter(each) for each in declared(options)] for name, options in classes.items()}
    kept = {each.name: [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)] for each in parameters}
    shown = [each for name in kept for each in flags.get(name, kept[name])]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def _declares(type_: Any) -> bool:
    return isinstance(type_, type) and dataclasses.is_dataclass(type_)


def _parameter(each: DeclaredOption) -> inspect.Parameter:
    """The parameter that typer makes the flag from."""
    several = _is_several(each)
    accepts = each.type
    if several:
        accepts = str | None if each.separator else list[str] | None
    elif get_origin(accepts) is Literal:
        accepts = str  # Refused where the options are made, in the words that the library has for it.
    return inspect.Parameter(
        each.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if several else each.default,
        annotation=Annotated[accepts, typer.Option(each.flag, metavar=_metavar(each), help=each.help)],
    )


def _metavar(each: DeclaredOption) -> str | None:
    if each.value is not None or each.type is bool:
        return each.value
    if each.unit in ("seconds", "bytes"):
        return each.unit.upper()
    return "N" if int in (each.type, *get_args(each.type)) else None


def _is_several(each: DeclaredOption) -> bool:
    """Whether the type is a sequence of texts, or that or None."""
    return any(get_origin(part) in (tuple, list, Sequence) for part in (each.type, *get_args(each.type)))


def _value(each: DeclaredOption, given: Any) -> Any:
    """What the option's field takes for what typer read."""
    if not _is_several(each):
        return given
    if each.separator:
        given = parse_names(given, each.flag)
    return each.default if given is None else tuple(given)
