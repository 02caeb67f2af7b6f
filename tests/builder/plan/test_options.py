"""Goal: options of a build are said once: keywords, flags and docs/cli.md follow the declarations.

Method: the declarations against the signatures, what type checkers are told, and the page. The flags themselves are
tested with their mechanism (tests/stelae/test_declared_options.py) and in test_cli_build.py.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

import pytest

from stelae.builder import build, run_build
from stelae.builder.plan.options import BuildKeywords, BuildOptions
from stelae.declared_options import declared
from stelae.errors import InvalidRequest


def test_every_field_is_declared_and_known_to_type_checkers() -> None:
    names = [field.name for field in dataclasses.fields(BuildOptions)]
    assert [option.name for option in declared(BuildOptions)] == names
    assert get_type_hints(BuildKeywords) == get_type_hints(BuildOptions)


@pytest.mark.parametrize("function", [build, run_build])
def test_signatures_show_every_option(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for option in declared(BuildOptions):
        assert parameters[option.name].default == option.default


def test_a_mode_that_is_none() -> None:
    with pytest.raises(InvalidRequest, match="unknown mode 'append'") as error:
        BuildOptions(mode="append")  # type: ignore[arg-type]
    assert error.value.place == "mode"
