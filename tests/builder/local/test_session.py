"""Goal: Spark starts the Python of this environment, wherever it is. All builds of the tests try the session itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stelae.builder.local.session import this_python


@pytest.mark.parametrize("folder", ["plain", "a space"])
def test_spark_finds_this_python(tmp_path: Path, folder: str) -> None:
    """As Spark asks for it, and as it starts it."""
    environment = tmp_path / folder
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    found = this_python(str(environment / "bin" / "python"), "/usr/bin:/bin")
    variables = {"PATH": "/usr/bin:/bin", **found}
    subprocess.run(f"command -v {found['PYSPARK_PYTHON']}", shell=True, check=True, env=variables, capture_output=True)
    code = "import sys; print(sys.prefix)"
    started = subprocess.run(
        ["env", found["PYSPARK_PYTHON"], "-c", code], env=variables, check=True, capture_output=True, text=True
    )
    assert started.stdout.strip() == str(environment)
