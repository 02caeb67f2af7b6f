"""Goal: where a package is missing, an extra of Stelae is named that brings it, and never a package of anyone's name.

Method: errors of modules, and what is said; the extras that are named against those of pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from stelae.cli.missing_packages import EXTRAS, not_installed

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
PULLED_IN = {"py4j": "pyspark", "starlette": "fastapi"}
"""Modules of packages that another package of the extra brings."""


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_the_extra_brings_the_module(module: str, extra: str) -> None:
    packages = {re.split(r"[\[<>=~;]", each)[0].strip() for each in PROJECT["optional-dependencies"][extra]}
    assert PULLED_IN.get(module, module).replace("_", "-") in packages


@pytest.mark.parametrize("extra", sorted(set(EXTRAS.values())))
def test_every_module_of_an_extra_is_known(extra: str) -> None:
    packages = {re.split(r"[\[<>=~;]", each)[0].strip() for each in PROJECT["optional-dependencies"][extra]}
    assert packages - {"stelae"} <= {module.replace("_", "-") for module in EXTRAS}


def test_a_missing_module_of_an_extra_names_the_extra() -> None:
    error = not_installed(ModuleNotFoundError("No module named 'fastapi'", name="fastapi.routing"))
    assert (error.message, error.hint) == (
        "the package fastapi.routing is not installed", "python -m pip install 'stelae[service]'",
    )  # fmt: skip
    assert (
        not_installed(ImportError(name="rocksdict"), extra="builder").hint == "python -m pip install 'stelae[builder]'"
    )


@pytest.mark.parametrize("name", ["builder", "orjson", "stelae.builder", "fastapi_", None])
def test_another_module_is_never_recommended(name: str | None) -> None:
    error = not_installed(ImportError("it is not there", name=name), extra="builder")
    assert error.message.startswith(f"module {name!r}" if name else "a module")
    assert "pip" not in str(error)
    assert "damaged" in str(error.hint)
