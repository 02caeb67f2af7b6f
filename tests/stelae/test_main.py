"""Goal: `python -m stelae` imports nothing from the folder that it is called in, but for stelae itself in a checkout.

Method: a real process, in a folder that has files named like modules, with stelae elsewhere and right there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOSTILE = ("json.py", "pathlib.py", "builder.py", "orjson.py", "typer.py", "rich/__init__.py", "service/__init__.py")


def run(folder: Path, *flags: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    words = [sys.executable, *flags, "-m", "stelae", "--version"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    for name in HOSTILE:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"raise SystemExit({name!r} ' was imported')")
    return tmp_path


@pytest.mark.parametrize("flags", [(), ("-P",)])
def test_files_of_the_working_folder_are_not_imported(hostile: Path, flags: tuple[str, ...]) -> None:
    done = run(hostile, *flags, path=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("stelae ")


def test_a_checkout_works_from_its_root(tmp_path: Path) -> None:
    for name in ("stelae", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    for folder in (ROOT, tmp_path):
        done = run(folder)
        assert (done.returncode, done.stderr) == (0, "")
