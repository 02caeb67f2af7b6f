"""Goal: the directions between folders hold, and whoever breaks one is told what may be imported instead.

Method: the imports of every source file, read from its syntax tree (those inside functions and for type checkers count
too), against two tables: which folder may import which, and which libraries belong to one place. No modules import each
other in a circle. Then what `import stelae` and other imports load and cost, in a fresh interpreter.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("stelae", "builder", "service", "pyspark_stelae")

LEAVES = "declared_options errors names units version waiting"
"""Modules of stelae/ that everybody may import."""

CORE = "verify ownership log read rocksdb snapshot storage encoding schema"

# What each folder, or module beside folders, may import besides itself and the leaves. From the top down: a name stands
# above all that it imports. ARCHITECTURE.md draws this.
FOLDERS: Mapping[str, str] = {
    # builder/: Spark jobs                                        and of stelae/
    "builder/__init__":     "job report",
    "builder/cli":          "demo job report local input plan     stelae/cli",
    "builder/demo":         "job report local input               client snapshot",
    "builder/job":          "write merge base lease input report plan spark_sql   snapshot schema",
    "builder/write":        "merge lease plan spark_sql           ownership rocksdb snapshot storage encoding schema",
    "builder/merge":        "input plan spark_sql                 spark encoding schema",
    "builder/base":         "lease plan spark_sql                 spark log rocksdb snapshot encoding schema",
    "builder/lease":        "                                     client ownership log snapshot encoding schema",
    "builder/input":        "spark_sql                            spark schema",
    "builder/report":       "plan                                 ownership log snapshot",
    "builder/plan":         "spark_sql                            snapshot storage encoding schema",
    "builder/spark_sql":    "                                     spark schema",
    "builder/local":        "",
    # service/: the tablet server
    "service/__init__":     "",
    "service/cli":          "server options                       stelae/cli",
    "service/server":       "app workers http tables options      snapshot",
    "service/app":          "watcher workers http writes tables options   rocksdb snapshot wire",
    "service/watcher":      "workers writes tables options        read rocksdb snapshot storage",
    "service/workers":      "http tables options                  read rocksdb snapshot schema wire",
    "service/http":         "writes tables options                read rocksdb snapshot encoding schema wire",
    "service/writes":       "tables                               ownership log read rocksdb snapshot encoding",
    "service/tables":       "options                              read rocksdb snapshot storage schema wire",
    "service/options":      "",
    # stelae/: what both build on
    "pyspark_stelae":       "spark",
    "stelae/__main__":      "cli",
    "stelae/__init__":      "client snapshot",
    "stelae/cli":           f"client {CORE}",
    "stelae/spark":         "client wire rocksdb snapshot storage encoding schema",
    "stelae/client":        "wire encoding schema",
    "stelae/wire":          "",
    "stelae/verify":        "ownership log read rocksdb snapshot storage encoding schema",
    "stelae/ownership":     "log snapshot storage encoding schema",
    "stelae/log":           "read rocksdb snapshot storage encoding schema",
    "stelae/read":          "rocksdb snapshot storage encoding schema",
    "stelae/rocksdb":       "storage encoding schema",
    "stelae/snapshot":      "storage encoding schema",
    "stelae/storage":       "",
    "stelae/encoding":      "schema",
    "stelae/schema":        "",
    "stelae/declared_options": "",
    "stelae/version":       "",
    "stelae/waiting":       "",
    "stelae/units":         "",
    "stelae/names":         "",
    "stelae/errors":        "",
}  # fmt: skip

LEFT_OVER: tuple[str, ...] = ()
"""What breaks the rules still, and goes next."""

MAX_IMPORTED_MODULES = 20
"""What `import stelae` may load, of Python's modules as well: every script and every Spark worker pays for it."""

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
        ("pyspark", "py4j"), "Spark belongs to builder/ (and to stelae/spark/join.py and what is beside it)",
        files=("stelae/**.py", "service/**.py"), allowed=("stelae/spark/*.py",),
    ),
    Rule(
        ("fastapi", "starlette", "uvicorn", "prometheus_client"), "the web server belongs to service/",
        files=("stelae/**.py", "builder/**.py"),
    ),
    Rule(("builder", "service"), "import stelae.builder or stelae.service: there is one import name"),
    Rule(("rocksdict",), "use stelae/rocksdb (SstWriter, Tablet)", allowed=("stelae/rocksdb/*.py",)),
    Rule(("obstore",), "use stelae/storage (open_storage, Storage)", allowed=("stelae/storage/object_store.py",)),
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


def test_folders_import_only_those_below_them() -> None:
    broken = [message for path in source_files() for message in climbing(path, (ROOT / path).read_text())]
    broken = [message for message in broken if message.partition(":")[0] not in LEFT_OVER]
    assert not broken, "\n" + "\n".join(broken)


def test_the_table_reads_from_the_top_down() -> None:
    order = list(FOLDERS)
    for folder in order:
        below = order[order.index(folder) + 1 :]
        assert [target for target in allowed(folder) if target not in below] == [], folder


def test_the_table_names_every_folder_and_nothing_else() -> None:
    assert {node_of(path) for path in source_files()} == set(FOLDERS)


def test_no_import_circles() -> None:
    graph = {module_name(path): set(known_imports(path)) for path in source_files()}
    assert circles(graph) == []


def test_libraries_are_imported_in_one_place() -> None:
    broken = [message for path in source_files() for message in violations(path, (ROOT / path).read_text())]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "source", "told"),
    [
        ("stelae/encoding/keys.py", "import stelae.builder.job", "may import schema"),
        ("stelae/encoding/keys.py", "def f():\n    from stelae.service import app", "may import schema"),
        (
            "stelae/encoding/keys.py",
            "if TYPE_CHECKING:\n    from stelae.read import open_snapshot",
            "may import schema",
        ),
        ("stelae/schema/types.py", "from stelae.encoding.keys import KeyCodec", "may import nothing"),
        ("builder/job.py", "from stelae.service.app import create_app", "may import write merge"),
        ("service/app.py", "import stelae.builder", "may import watcher"),
        ("service/app.py", "import importlib\nimportlib.import_module('stelae.builder.job')", "may import watcher"),
        (
            "service/tables/counts.py",
            "from stelae.service.writes.table_writer import TableWriter",
            "may import options",
        ),
    ],
)
def test_an_import_that_climbs_is_told_what_may_be_imported(path: str, source: str, told: str) -> None:
    [message] = climbing(path, source)
    assert message.startswith(f"{path}:")
    assert told in message


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert circles(graph) == [["b", "c"]]


@pytest.mark.parametrize(
    ("path", "source", "told"),
    [
        ("stelae/read/projection.py", "import rocksdict", "stelae/rocksdb"),
        ("stelae/deep/inside.py", "from pyspark.sql import DataFrame", "builder/"),
        ("builder/job.py", "from obstore.store import from_url", "stelae/storage"),
        ("service/app.py", "import builder", "one import name"),
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
        ("stelae/rocksdb/tablet.py", "import rocksdict"),
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
    told = {word.strip("(),;:") for rule in RULES for word in rule.instead.split()}
    assert [path for path in told if "/" in path and not (ROOT / path).exists()] == []


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
    code = "import json, sys; before = set(sys.modules); import stelae; print(json.dumps([*set(sys.modules) - before]))"
    loaded = in_fresh_interpreter(code)
    assert len(loaded) <= MAX_IMPORTED_MODULES, sorted(loaded)


def source_files() -> list[str]:
    """All Python files of the packages, as paths below the root. The links stelae/builder and stelae/service are not
    followed.
    """
    return sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def node_of(path: str) -> str:
    """The row of FOLDERS that a file belongs to: its own, or its folder's."""
    own = path.removesuffix(".py")
    return own if own in FOLDERS else own.rpartition("/")[0]


def allowed(folder: str) -> list[str]:
    """The rows that a folder may import. A bare name is one of the same package, or else of stelae/."""
    package = folder.partition("/")[0]
    targets = []
    for name in FOLDERS[folder].split():
        own = f"{package}/{name}"
        targets.append(name if "/" in name else own if own in FOLDERS else f"stelae/{name}")
    return targets


def climbing(path: str, source: str) -> list[str]:
    """One message for each import of a folder that the file's folder may not import."""
    folder = node_of(path)
    fine = {folder, *allowed(folder), *(f"stelae/{leaf}" for leaf in LEAVES.split())}
    instead = f"{folder} may import {' '.join(FOLDERS[folder].split()) or 'nothing'} (and {LEAVES})"
    return [
        f"{path}:{line}: imports {module}: {instead}; move down what both need"
        for line, module in imports(ast.parse(source))
        if (target := path_of(module)) is not None and node_of(target) not in fine
    ]


def known_imports(path: str) -> Iterator[str]:
    """Names of the project's modules that a file imports."""
    for _, module in imports(ast.parse((ROOT / path).read_text())):
        target = path_of(module)
        if target is not None:
            yield module_name(target)


def module_name(path: str) -> str:
    """The import name of a file."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"stelae.{name}" if name.startswith(("builder", "service")) else name


def path_of(module: str) -> str | None:
    """The file of an import name, or of the module that has the name; None for other people's."""
    parts = module.split(".")
    if parts[0] not in ("stelae", "pyspark_stelae"):
        return None
    if parts[0] == "stelae" and parts[1:2] and parts[1] in ("builder", "service"):
        parts = parts[1:]
    while parts:
        path = "/".join(parts)
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if (ROOT / candidate).is_file():
                return candidate
        parts.pop()
    return None


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others, sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        ahead = list(graph[start])
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead.extend(graph.get(name, ()))
        reached[start] = seen
    together: dict[frozenset[str], list[str]] = defaultdict(list)
    for name, seen in reached.items():
        group = frozenset(other for other in seen if name in reached.get(other, ())) | {name}
        if len(group) > 1:
            together[group].append(name)
    return [sorted(group) for group in together.values()]


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
                # What is imported from a package may be a module of it.
                yield from dict.fromkeys((node.lineno, submodule(module, name.name)) for name in names)
                if module == "importlib":
                    loaders |= {name.asname for name in names if name.name == "import_module" and name.asname}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(module)), *_]
            ) if name in loaders:
                yield node.lineno, module


def submodule(package: str, name: str) -> str:
    """`package.name` where that is a module of ours, else the package."""
    own = f"{package}.{name}"
    found = path_of(own)
    return own if found is not None and module_name(found) == own else package


def in_fresh_interpreter(code: str) -> Any:
    """What the code prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
