"""Goal: a background process does what it is given and nothing else: no modules of the working folder, no main module.

Method: a process in a folder whose modules have names of the standard library's, and raise. What opening a snapshot
makes of errors, kills and lost processes is in test_open_snapshot.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.errors import NotFound, Unavailable
from stelae.read.background_process import (
    NICENESS,
    NotPortableError,
    child_environment,
    run_in_background_process,
)
from stelae.storage.checksum import file_checksum


def test_a_result_and_an_error_come_back(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    assert run_in_background_process(file_checksum, file) == file_checksum(file)
    with pytest.raises(NotFound, match="which one") as error:
        run_in_background_process(raise_error, NotFound("which one", place="here"))
    assert error.value.place == "here"


def test_what_is_no_error_of_ours_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unavailable, match="the process that does raise_error ended with 1"):
        run_in_background_process(raise_error, KeyError("surprise"))
    assert "surprise" in capfd.readouterr().err


def test_what_can_not_be_sent() -> None:
    with pytest.raises(NotPortableError):
        run_in_background_process(lambda: None)


def test_it_leaves_the_processor_to_others() -> None:
    assert run_in_background_process(os.nice, 0) == min(19, os.nice(0) + NICENESS)


def test_nothing_is_imported_from_the_working_folder(tmp_path: Path) -> None:
    for name in ("json", "pickle", "random", "stelae", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working folder')")
    program = tmp_path / "programs" / "main.py"
    program.parent.mkdir()
    program.write_text(
        "print('main', __name__)\n"
        "from pathlib import Path\n"
        "from stelae.read.background_process import run_in_background_process\n"
        "from stelae.storage.checksum import file_checksum\n"
        "assert run_in_background_process(file_checksum, Path(__file__)) == file_checksum(Path(__file__))\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "main __main__\n")


def raise_error(error: Exception) -> None:
    raise error


def test_the_environment_of_children_leaves_the_working_folder_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/elsewhere", str(root)])
    monkeypatch.chdir(tmp_path)
    assert child_environment()["PYTHONPATH"].split(os.pathsep) == ["/elsewhere", str(root)]
    monkeypatch.chdir(root)  # a checkout: stelae itself is imported from there
    assert child_environment()["PYTHONPATH"].split(os.pathsep) == [
        str(root), str(tmp_path), "/elsewhere", str(root),
    ]  # fmt: skip
