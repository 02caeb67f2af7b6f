"""Goal: the directions of ARCHITECTURE.md hold, and whoever breaks one is told which module to use instead.

Method: the imports of every source file, read from its syntax tree (those inside functions count too), against a table
of rules; and what `import stelae` and other imports load and cost, in a fresh interpreter.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("stelae", "builder", "service")

MAX_IMPORT_MS = 50
"""What `import stelae` may cost: it is paid by every script and every Spark worker."""

COMMAND_LINE = ("stelae/cli/*.py", "builder/cli.py", "builder/demo.py", "service/cli.py")


@dataclass(frozen=True)
class Rule:
    """Files that match `files` must not import `modules`, unless they are among `allowed`."""

    modules: tuple[str, ...]
    instead: str
    """What to use instead: shown when the rule is broken."""
    files: tuple[str, ...] = tuple(f"{package}/**.py" for package in PACKAGES)
    allowed: tuple[str, ...] = ()


RULES = (
    Rule(
        ("stelae.builder", "stelae.service"), "stelae knows neither: move what both need into stelae/, or register "
        "a command through the entry point 'stelae.commands'", files=("stelae/**.py",),
    ),
    Rule(
        ("pyspark", "py4j"), "Spark belongs to builder/ (and to stelae/spark/join.py and what is beside it)",
        files=("stelae/**.py", "service/**.py"), allowed=("stelae/spark/*.py",),
    ),
    Rule(
        ("fastapi", "starlette", "uvicorn", "prometheus_client"), "the web server belongs to service/",
        files=("stelae/**.py", "builder/**.py"),
    ),
    Rule(
        ("stelae.service",), "builder and service never import each other: share through stelae/",
        files=("builder/**.py",), allowed=("builder/demo.py",),
    ),
    Rule(
        ("stelae.builder",), "builder and service never import each other: share through stelae/",
        files=("service/**.py",),
    ),
    Rule(("builder", "service"), "import stelae.builder or stelae.service: there is one import name"),
    Rule(("rocksdict",), "use stelae/rocksdb/sst.py (SstWriter, Tablet)", allowed=("stelae/rocksdb/sst.py",)),
    Rule(("obstore",), "use stelae/storage/base.py (open_storage, Storage)", allowed=("stelae/storage/base.py",)),
    Rule(
        ("sqlglot",), "use stelae/schema/sql.py (parse_create_table, parse_alter_table)",
        allowed=("stelae/schema/sql.py", "stelae/schema/sql_grammar.py"),
    ),
    Rule(
        ("aiohttp", "httpx", "requests", "urllib3", "http.client"), "use stelae/client/client.py (Client)",
        allowed=("stelae/client/async_client.py",),
    ),
    Rule(("typer", "rich", "click"), "only commands print: return values, or call a listener", allowed=COMMAND_LINE),
)  # fmt: skip


def test_imports_keep_their_directions() -> None:
    broken = [message for path in source_files() for message in violations(path, (ROOT / path).read_text())]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "source", "told"),
    [
        ("stelae/encoding/keys.py", "import stelae.builder.job", "register"),
        ("stelae/encoding/keys.py", "def f():\n    from stelae.service import app", "register"),
        ("stelae/read/snapshot_reader.py", "import rocksdict", "stelae/rocksdb/sst.py"),
        ("stelae/deep/inside.py", "from pyspark.sql import DataFrame", "builder/"),
        ("builder/job.py", "from obstore.store import from_url", "stelae/storage/base.py"),
        ("builder/job.py", "from stelae.service.app import create_app", "share through stelae/"),
        ("service/app.py", "import stelae.builder", "share through stelae/"),
        ("service/app.py", "import builder", "one import name"),
        ("service/app.py", "import importlib\nimportlib.import_module('stelae.builder.job')", "share through stelae/"),
        ("service/app.py", "from importlib import import_module as load\nload('sqlglot')", "stelae/schema/sql.py"),
        ("builder/plan/build_plan.py", "from rich.console import Console", "listener"),
    ],
)
def test_a_broken_rule_names_the_module_to_use(path: str, source: str, told: str) -> None:
    [message] = violations(path, source)
    assert message.startswith(f"{path}:")
    assert told in message


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("stelae/rocksdb/sst.py", "import rocksdict"),
        ("stelae/cli/screen.py", "from rich.table import Table"),
        ("builder/demo.py", "import rich"),
        ("stelae/encoding/keys.py", "import rocksdictionary"),
        ("stelae/encoding/keys.py", "from . import service_like"),
        ("builder/job.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
    ],
)
def test_what_the_rules_allow(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_rules_name_files_that_exist() -> None:
    """A rule whose module is gone would sleep for ever."""
    present = set(source_files())
    told = {word.strip("(),;:") for rule in RULES for word in rule.instead.split()}
    modules = {word for word in told if word.endswith(".py")}
    assert modules <= present


@pytest.mark.parametrize(
    ("module", "not_loaded"),
    [
        ("stelae", "pyarrow numpy sqlglot aiohttp pyspark fastapi obstore rocksdict typer rich"),
        ("stelae.spark", "numpy pyarrow urllib3 pyspark pandas rocksdict"),
        ("stelae.spark.lookup_task", "pyspark pandas rocksdict urllib3"),
        ("stelae.client.client", "pyspark fastapi obstore rocksdict sqlglot typer rich pyarrow numpy pandas aiohttp"),
        ("stelae.cli", "pyspark fastapi pyarrow numpy obstore rocksdict sqlglot aiohttp rich"),
        ("stelae.builder", "pyspark fastapi rocksdict typer"),
    ],
)
def test_importing_loads_no_more_than_it_needs(module: str, not_loaded: str) -> None:
    loaded = set(in_fresh_interpreter(f"import {module}, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert sorted(loaded.intersection(not_loaded.split())) == []


def test_importing_stelae_is_quick() -> None:
    code = "import time; start = time.perf_counter(); import stelae; print((time.perf_counter() - start) * 1000)"
    milliseconds = min(in_fresh_interpreter(code) for _ in range(5))
    assert milliseconds < MAX_IMPORT_MS


def source_files() -> list[str]:
    """All Python files of the packages, as paths below the root."""
    return sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def violations(path: str, source: str) -> list[str]:
    """One message for each import that breaks a rule."""
    rules = [rule for rule in RULES if _matches(path, rule.files) and not _matches(path, rule.allowed)]
    return [
        f"{path}:{line}: imports {module}: {rule.instead}"
        for line, module in imports(ast.parse(source))
        for rule in rules
        if any(module == name or module.startswith(name + ".") for name in rule.modules)
    ]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import, those inside functions and those by name (`import_module("x")`) too."""
    loaders = {"import_module", "__import__"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield node.lineno, module
                if module == "importlib":
                    loaders |= {name.asname for name in names if name.name == "import_module" and name.asname}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(module)), *_]
            ) if name in loaders:
                yield node.lineno, module


def in_fresh_interpreter(code: str) -> Any:
    """What the code prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
