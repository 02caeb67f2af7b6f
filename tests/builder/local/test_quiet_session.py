"""Goal: what Spark says stays off the screen, is kept where it may explain a failure, and Ctrl-C prints no stacks.

Method: the parts of a quiet session, without Spark: something else writes to standard error and to the log.
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from stelae.builder.local import quiet_session
from stelae.cli import screen
from stelae.errors import InvalidRequest, Unavailable


@pytest.mark.parametrize(("error", "kept"), [(RuntimeError("no luck"), True), (InvalidRequest("wrong"), False)])
def test_the_log_of_spark_is_kept_where_it_may_explain_a_failure(
    capfd: pytest.CaptureFixture[str], error: Exception, kept: bool
) -> None:
    def fail() -> Any:
        os.write(2, b"the reason\n")
        raise error

    def attempt() -> None:
        with quiet_session.spark_log(debug=False, note=screen.note) as log:
            assert log is not None
            logs.append(log)
            with quiet_session.standard_error_in(log):
                quiet_session.start(fail)

    logs: list[Path] = []
    with pytest.raises(Unavailable if kept else InvalidRequest, match=r"no luck|wrong"):
        attempt()
    os.write(2, b"back\n")
    printed = capfd.readouterr().err
    [log] = logs
    assert log.exists() == kept
    if kept:
        assert log.read_bytes() == b"the reason\n"
        assert printed == f"Spark's log: {log}\nback\n"
        log.unlink()
    else:
        assert printed == "back\n"


def test_ctrl_c_shows_no_stack_of_the_connection_to_spark(caplog: pytest.LogCaptureFixture) -> None:
    def log(path: str) -> None:
        root = logging.getLogger()
        root.handle(root.makeRecord("root", logging.ERROR, path, 1, f"from {path}", (), None))

    before = signal.getsignal(signal.SIGINT)
    with quiet_session.quiet_interrupts(debug=False):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        log("/venv/py4j/java_gateway.py")
        log("/venv/other.py")
    assert caplog.messages == ["from /venv/other.py"]
    assert signal.getsignal(signal.SIGINT) is before
    with quiet_session.quiet_interrupts(debug=True):
        log("/venv/py4j/java_gateway.py")
    assert len(caplog.messages) == 2
