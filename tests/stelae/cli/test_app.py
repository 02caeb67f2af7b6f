"""Goal: every kind of error has an exit code and says what to do next; plug-ins add commands; help names all of them.

Method: `run` with arguments, and what it printed; a real process for what only a process shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer

from stelae import __version__
from stelae.cli import app
from stelae.cli.app import EXIT_CODES, exit_code
from stelae.errors import AlreadyExists, StelaeError, TooLarge
from stelae.snapshot.warehouse import Table, Warehouse
from tests.stelae.cli.printed import USERS, Printed


def test_every_kind_of_error_has_an_exit_code() -> None:
    assert [exit_code(kind("x")) for kind in EXIT_CODES] == [2, 3, 4, 5, 6]
    assert exit_code(TooLarge("x")) == 2
    assert exit_code(AlreadyExists("x")) == 4
    assert exit_code(StelaeError("x")) == 70


def test_debug_prints_the_traceback(stelae: Printed, folder: str) -> None:
    assert stelae("--debug", "tables", "-w", folder) == 3
    assert "Traceback" in stelae.err
    assert "error: there is no warehouse" in stelae.err


def test_an_unexpected_error_is_not_hidden(stelae: Printed, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[str]:
        raise ZeroDivisionError("oops")

    Warehouse(folder).create_table(USERS)
    monkeypatch.setattr(Warehouse, "tables", broken)
    assert stelae("tables", "-w", folder) == 70
    assert "Traceback" in stelae.err
    assert "ZeroDivisionError: oops" in stelae.err


def test_a_missing_package_is_named_with_its_extra(
    stelae: Printed, folder: str, users: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for module in list(sys.modules):
        if module.startswith(("stelae.rocksdb.", "stelae.verify.", "stelae.read.")):
            monkeypatch.delitem(sys.modules, module)
    assert stelae("verify", "shop.users", "-w", folder) == 5
    assert "python -m pip install 'stelae[service]'" in stelae.err
    assert "Traceback" not in stelae.err


def test_a_plug_in_that_cannot_be_loaded_says_so_when_it_is_called(
    stelae: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    broken = EntryPoint("builder", "rocksdict:register", app.COMMANDS)
    monkeypatch.setattr(app, "entry_points", lambda group: [broken])
    assert stelae("--help") == 0
    assert stelae.out.count("Not installed: python -m pip install 'stelae[builder]'") == 2
    assert stelae("build", "shop.users", "x.csv", "--json") == 5
    assert "rocksdict is not installed\n  hint: python -m pip install 'stelae[builder]'" in stelae.err
    assert stelae("tables") == 2


def test_a_plug_in_without_a_module_of_its_own_recommends_no_package(
    stelae: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = EntryPoint("builder", "pyspark_is_not_here:register", app.COMMANDS)
    monkeypatch.setattr(app, "entry_points", lambda group: [broken])
    assert stelae("--help") == 0
    assert "Not installed: this installation is damaged" in stelae.out
    assert stelae("build", "shop.users", "x.csv", "--json") == 5
    assert "module 'pyspark_is_not_here' can't be imported" in stelae.err
    assert "pip install" not in stelae.out + stelae.err


def test_plug_ins_add_commands(stelae: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        name = "fake"

        def load(self) -> Any:
            return lambda app: app.command("greet")(lambda: typer.echo("hello"))

    monkeypatch.setattr(app, "entry_points", lambda group: [Fake()])
    assert stelae("greet") == 0
    assert stelae.out == "hello\n"


def test_help_and_version(stelae: Printed) -> None:
    assert stelae("--version") == 0
    assert stelae.out == f"stelae {__version__}\n"
    assert stelae("--help") == 0
    assert all(len(line) <= 80 and not line.endswith("...") for line in stelae.out.splitlines() if "  " in line)
    commands = ("create", "alter", "tables", "describe", "snapshots", "rollback", "expire", "clean", "verify", "lookup")
    for command in commands:
        assert stelae(command, "--help") == 0
        assert f"Usage: stelae {command}" in stelae.out
    assert stelae("nonsense") == 2


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_reader_that_has_enough_ends_it_quietly(folder: str, users: Table, json: list[str]) -> None:
    """`stelae describe ... | head -1`"""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "stelae", "describe", "shop.users", "-w", folder, *json]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    top, *parts = page.split("\n## ")
    sections = {name: part for part in parts for name in part.splitlines()[0].split(", ")}
    commands = typer.main.get_command(app.make_app()).commands  # type: ignore[attr-defined]
    assert set(commands) <= set(sections)
    for name in set(commands) - {"serve"}:  # Its options are in docs/serving.md.
        told = set(re.findall(r"--[a-z-]+", top + sections[name]))
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= told | {"--help"}, name
