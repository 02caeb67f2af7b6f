"""Goal: options are checked, and docs/serving.md and `--help` say what they do.

Method: the declarations against the page, the command's flags and the defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

from stelae.errors import InvalidRequest
from stelae.service.cli import serve
from stelae.service.options import SERVER_OPTIONS, ServerOptions, options_page

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def test_the_page_is_printed_from_the_declarations() -> None:
    """`python -m stelae.service.options` prints what belongs there."""
    assert options_page() in PAGE.read_text()


def test_every_option_has_a_flag() -> None:
    flags = {
        flag: parameter
        for parameter in inspect.signature(serve, eval_str=True).parameters.values()
        for info in parameter.annotation.__metadata__
        for flag in (info.default, *info.param_decls)
    }
    for option, field in zip(SERVER_OPTIONS, dataclasses.fields(ServerOptions), strict=True):
        assert option.flag in flags, flags
        default = flags[option.flag].default
        assert default == field.default or (default is None and not field.default)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", -1), ("port", 65_536), ("poll_interval_s", 0), ("poll_interval_s", float("nan")),
        ("block_cache_bytes", -1), ("max_body_bytes", 0), ("max_batch_keys", 0), ("max_page_rows", 0),
        ("max_parallel_loads", 0), ("load_threads", 0), ("kept_snapshots", -1), ("drain_s", -1),
        ("shutdown_grace_s", -0.5), ("pinned_snapshots", -1), ("pin_idle_s", -1), ("workers", 0),
    ],
)  # fmt: skip
def test_values_that_cannot_be(option: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        ServerOptions(**{option: value})
    assert error.value.place == f"option {option}"
