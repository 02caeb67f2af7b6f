"""Databases of this machine to measure against: PostgreSQL and Redis, each with its data in a folder of its own.

    with disk_folder() as folder, postgres(folder / "postgres") as server:
        server.port

They run as they are meant to when no acknowledged write may be lost (unless other settings are given), and otherwise
as fast as they can: no background saves, no checkpoint within a run. The system's own services are left alone. What is
not installed raises NotInstalled, which says what installs it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.servers import Running

START_TIMEOUT_S = 120
"""A crash before may have left a log to replay."""

POSTGRES_USER = "bench"
POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "jit": "off",
}
REDIS_SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "auto-aof-rewrite-percentage": "0",
}


class NotInstalled(Exception):
    """A peer is not on this machine; the message says what installs it."""


def check_packages(*names: str) -> None:
    """NotInstalled when a Python package is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise NotInstalled(f"{name} is not installed: pip install '.[bench]'")


def check_postgres() -> None:
    postgres_programs()
    check_packages("psycopg")


def check_redis(*more: str) -> None:
    redis_program()
    check_packages("redis", *more)


class Peer(Running):
    """A database server that listens."""

    crash_signal: signal.Signals = signal.SIGKILL

    def crash(self) -> None:
        """Stop it as a crash would: what is not on disk is gone."""
        self.process.send_signal(self.crash_signal)
        self.process.wait(START_TIMEOUT_S)

    def cpu_s(self) -> float:
        """Processor time of the server and all its processes so far."""
        return processes.cpu_s(self.process.pid)


class Postgres(Peer):
    # To the first process: all others quit at once, and nothing is flushed.
    crash_signal = signal.SIGQUIT


@contextmanager
def disk_folder() -> Iterator[Path]:
    """A temporary folder on a disk, which every user may enter: PostgreSQL refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="stelae-bench-", dir="/var/tmp"))  # /tmp may be memory.
    try:
        folder.chmod(0o755)
        if (kind := _file_system(folder)) in ("tmpfs", "ramfs"):
            raise SystemExit(f"/var/tmp is {kind}: nothing would be durable there")
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgres(folder: Path, **other: str) -> Iterator[Peer]:
    """PostgreSQL with its data in `folder`, which is made if it is not there, for the user POSTGRES_USER. `other`
    settings come on top of POSTGRES_SETTINGS.
    """
    programs = postgres_programs()
    user = _postgres_account()
    if not folder.exists():
        folder.mkdir()
        if user:
            shutil.chown(folder, user["user"], user["group"])
        _run(
            [programs / "initdb", "-D", folder, "-U", POSTGRES_USER, "--auth=trust", "--no-sync", "-E", "UTF8",
             "--locale=C"],
            user,
        )  # fmt: skip
    port = _free_port()
    settings = [
        argument for name, value in {**POSTGRES_SETTINGS, **other}.items() for argument in ("-c", f"{name}={value}")
    ]
    command = [programs / "postgres", "-D", folder, "-p", port, *settings]
    ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]

    def is_ready() -> bool:
        return subprocess.run(ready, check=False).returncode == 0

    with _serving(Postgres, command, port, is_ready, signal.SIGINT, user) as peer:
        yield peer


@contextmanager
def redis(folder: Path, **other: str) -> Iterator[Peer]:
    """Redis with its data in `folder`, which is made if it is not there. `other` settings come on top of
    REDIS_SETTINGS.
    """
    program = redis_program()
    folder.mkdir(exist_ok=True)
    port = _free_port()
    settings = [argument for name, value in {**REDIS_SETTINGS, **other}.items() for argument in (f"--{name}", value)]

    def is_ready() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith(b"+PONG")
        except OSError:
            return False

    command = [program, "--dir", folder, "--port", port, *settings]
    with _serving(Peer, command, port, is_ready, signal.SIGTERM, {}) as peer:
        yield peer


def redis_program() -> Path:
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalled("Redis is not installed: sudo apt-get install -y --no-install-recommends redis-server")
    return Path(program)


def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs; Debian leaves it out of the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    initdb = Path(shutil.which("initdb") or (versions[-1] if versions else "")).resolve()
    if not initdb.is_file():
        raise NotInstalled("PostgreSQL is not installed: sudo apt-get install -y --no-install-recommends postgresql")
    return initdb.parent


def _postgres_account() -> Mapping[str, Any]:
    """Who runs PostgreSQL, as arguments of `subprocess.Popen`: if this is root, the account that its package made."""
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        raise NotInstalled("PostgreSQL does not run as root, and there is no account postgres: adduser --system "
                           "--group postgres") from None  # fmt: skip
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextmanager
def _serving(
    kind: type[Peer],
    command: Sequence[object],
    port: int,
    is_ready: Callable[[], bool],
    stop_signal: signal.Signals,
    user: Mapping[str, Any],
) -> Iterator[Peer]:
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL, text=True, cwd="/", **user
        )
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} did not start:\n{log.read()[-2000:]}")
                time.sleep(0.05)
            yield kind(process, port)
        finally:
            process.send_signal(stop_signal)
            try:
                process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _run(command: Sequence[object], user: Mapping[str, Any]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd="/", **user)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _file_system(folder: Path) -> str:
    """The kind of file system that a folder lies on; empty where /proc does not tell."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == number), "")
