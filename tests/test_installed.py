"""Goal: what pip installs is what the repository is, takes no name but its own, and takes no module from the folder
that a user works in.

Method: the wheel, built once, in an empty environment whose other packages are links to those of this one. There
`stelae` creates, builds with Spark, serves with two processes and looks up, in a folder that has modules of the same
names as packages of the repository and as modules that everything imports: each leaves a mark when it is imported.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.light_session import LIGHT_SESSION
from tests.waiting import WAIT_S

ROOT = Path(__file__).parent.parent
NAMES = {"stelae", "pyspark_stelae"}
"""All that is importable. pyspark_stelae is a prefix that Spark looks for."""

PACKAGES = Path(pa.__file__).parents[1]
"""Where this environment has what Stelae depends on."""

HOSTILE = ("builder.py", "service/__init__.py", "json.py", "random.py", "numpy/__init__.py", "pyarrow.py", "tests.py")
"""What the user has in the folder: modules of the repository, of Python, and of other packages."""

SQL = "CREATE TABLE users (user_id BIGINT, name STRING, PRIMARY KEY (user_id) NOT ENFORCED)"
READY = re.compile(r"serving 1 table, 3 rows.* at (http://127\.0\.0\.1:\d+), ready in \d+\.\d s\n")


def made(kind: str, source: Path, folder: Path) -> Path:
    """The wheel or sdist of a source folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


class Installed:
    """An environment that has the wheel, and a user in a folder."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        environment = folder / "environment"
        venv.create(environment)
        self.bin = environment / "bin"
        [packages] = environment.glob("lib/python*/site-packages")
        for entry in PACKAGES.iterdir():
            if not entry.name.startswith(("stelae", "pyspark_stelae", "__", "_pytest")) and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(entry)
        with zipfile.ZipFile(wheel) as files:
            files.extractall(packages)
        scripts = configparser.ConfigParser()
        [entry_points] = packages.glob("stelae-*.dist-info/entry_points.txt")
        scripts.read(entry_points)
        module, _, function = scripts["console_scripts"]["stelae"].partition(":")
        script = self.bin / "stelae"
        script.write_text(f"#!{self.bin}/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [str(self.bin / arguments[0]), *arguments[1:]]

    @property
    def environment(self) -> dict[str, str]:
        """Of a user who has set nothing."""
        return {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }

    def run(self, *arguments: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """The URL of a server."""
        command = self.command("stelae", "serve", *arguments)
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = READY.fullmatch(line)
            if found is None:
                process.kill()
            assert found is not None, line + process.communicate()[1]
            yield found[1]
            process.terminate()
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.communicate()

    def plant(self) -> None:
        """Modules that leave a mark when they are imported: their name, and the command that did it."""
        for name in HOSTILE:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                f"import sys\nopen({str(self.folder.parent / 'imported')!r}, 'a').write("
                f"{name!r} + ' by ' + ' '.join(sys.orig_argv) + '\\n')\nMINE = True\n"
            )

    def imported(self) -> list[str]:
        """The marks since the last call."""
        marks = self.folder.parent / "imported"
        found = sorted(set(marks.read_text().splitlines())) if marks.exists() else []
        marks.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_a_user_builds_serves_and_looks_up(installed: Installed) -> None:
    installed.plant()
    pq.write_table(pa.table({"user_id": [1, 2, 3], "name": ["a", "b", "c"]}), installed.folder / "users.parquet")
    (installed.folder / "users.sql").write_text(SQL)
    installed.run("stelae", "create", "users.sql", "-w", "warehouse")
    light = [word for name, value in LIGHT_SESSION.items() for word in ("--conf", f"{name}={value}")]
    installed.run("stelae", "build", "users", "users.parquet", "-w", "warehouse", "--memory", "1g", *light)
    with installed.serving("-w", "warehouse", "--port", "0", "--workers", "2") as url:
        for command in (["stelae"], ["python", "-m", "stelae"]):
            row = json.loads(installed.run(*command, "lookup", "users", "2", "--url", url, "--json"))["row"]
            assert row == {"user_id": 2, "name": "b"}
    installed.run("python", "-m", "stelae", "verify", "users", "-w", "warehouse")
    assert installed.imported() == []


def test_the_names_of_others_are_theirs(installed: Installed) -> None:
    installed.plant()
    found = installed.run("python", "-c", "import builder, service, stelae.builder; print(builder.MINE, service.MINE)")
    assert found == "True True\n"
    assert [mark.split()[0] for mark in installed.imported()] == ["builder.py", "service/__init__.py"]


def test_a_wheel_has_two_names(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in files_of(wheel)}
    assert {name for name in tops if not name.endswith(".dist-info")} == NAMES


def test_an_editable_install_has_two_names(tmp_path: Path) -> None:
    """A wheel that adds one folder to Python's path."""
    code = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.iterdir())) as files:
        importable = [name for name in files.namelist() if ".dist-info/" not in name]
        [path] = [files.read(name).decode().strip() for name in importable]
    assert importable == ["_stelae.pth"]
    assert {entry.name for entry in Path(path).iterdir()} == NAMES


def test_a_wheel_from_an_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(made("sdist", ROOT, tmp_path / "sdist")) as files:
        files.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    assert files_of(made("wheel", source, tmp_path / "again")) == files_of(wheel)


def test_a_wheel_has_every_module(wheel: Path) -> None:
    sources = {
        path.relative_to(ROOT).as_posix().removeprefix("stelae/")
        for folder in ("stelae", "builder", "service", "pyspark_stelae")
        for path in (ROOT / folder).rglob("*.py")
    }
    packed = {name.removeprefix("stelae/") for name in files_of(wheel) if name.endswith(".py")}
    assert packed == sources


def files_of(wheel: Path) -> dict[str, int]:
    """Files, and their checksums; but not the record of itself."""
    with zipfile.ZipFile(wheel) as files:
        return {file.filename: file.CRC for file in files.infolist() if not file.filename.endswith("/RECORD")}
