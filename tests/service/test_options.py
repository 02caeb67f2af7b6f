"""Goal: options are checked, and docs/serving.md and `--help` say what they do.

Method: the declarations against the page, the command's flags and the defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import stelae.service.server
from stelae.cli.app import run
from stelae.declared_options import declared
from stelae.errors import InvalidRequest
from stelae.service.cli import serve
from stelae.service.options import ServerOptions
from stelae.snapshot.warehouse import Warehouse


def test_every_field_is_declared() -> None:
    names = [field.name for field in dataclasses.fields(ServerOptions)]
    assert [option.name for option in declared(ServerOptions)] == names


def test_every_option_has_a_flag() -> None:
    flags = {
        flag: parameter
        for parameter in inspect.signature(serve, eval_str=True).parameters.values()
        for info in parameter.annotation.__metadata__
        for flag in (info.default, *info.param_decls)
    }
    for option in declared(ServerOptions):
        assert option.flag in flags, flags
        default = flags[option.flag].default
        assert default == option.default or (default is None and not option.default)


def test_flags_become_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        Warehouse(tmp_path).create_table(f"CREATE TABLE shop.{name} (k INT, PRIMARY KEY (k) NOT ENFORCED)")
    given: list[ServerOptions] = []
    monkeypatch.setattr(stelae.service.server, "run_server", lambda options, *_: given.append(options))
    flags = "--table shop.a --table shop.b --poll-interval 0.5 --data-folder x --no-online-writes --take-over --port 0"
    assert run(["serve", "-w", str(tmp_path)]) == 0
    assert run(["serve", "-w", str(tmp_path), *flags.split()]) == 0
    assert given == [
        ServerOptions(),
        ServerOptions(
            tables=("shop.a", "shop.b"), poll_interval_s=0.5, data_folder=Path("x"), online_writes=False,
            take_over=True, port=0,
        ),
    ]  # fmt: skip


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
