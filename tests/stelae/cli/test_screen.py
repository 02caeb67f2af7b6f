"""Goal: rows fit the screen, and an error says what, where and what next; nothing in them is taken for markup.

Method: what is printed, as it is piped.
"""

from __future__ import annotations

import pytest

from stelae.cli import screen
from stelae.errors import InvalidRequest


def test_wide_rows_are_shown_one_value_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "PIPED_WIDTH", 80)
    screen.show_rows([{"a": "x" * 50, "bcd": "y" * 50}, {"a": None, "bcd": 1}])
    assert capsys.readouterr().out.splitlines() == [
        "a    " + "x" * 50, "bcd  " + "y" * 50, "", "a    null", "bcd  1",
    ]  # fmt: skip


def test_errors_say_what_where_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_error(InvalidRequest("[red]it is wrong", place="column x", hint="make it right"))
    assert capsys.readouterr().err == "error: [red]it is wrong\n  where: column x\n  hint: make it right\n"
