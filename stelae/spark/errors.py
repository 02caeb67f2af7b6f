"""Errors on their way through Spark.

What a worker raises, Spark wraps in layers of its own: a stack of the worker, a stack of the JVM, the name of the
stage. So a worker raises with a message that starts with ERROR_MARK and holds a problem as JSON, and the driver finds
it there again:

    worker   raise_marked(NotFound(...)) ──► RuntimeError("STELAE-PROBLEM {...} END-OF-PROBLEM")
    driver   Spark's exception ──► problem_in(its text) ──► NotFound(...)

A build runs its own Spark actions and translates their errors where it runs them (builder/spark_sql/spark_errors.py). A
lookup join runs in the user's actions; `show_stelae_errors` has PySpark raise our error there in place of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import orjson

from stelae.errors import StelaeError, from_problem, problem

ERROR_MARK = "STELAE-PROBLEM "
ERROR_END = " END-OF-PROBLEM"
_MARKED = re.compile(re.escape(ERROR_MARK) + r"(\{.*?\})" + re.escape(ERROR_END), re.DOTALL)


def marked(error: StelaeError) -> str:
    """The text that carries an error through Spark."""
    return f"{ERROR_MARK}{orjson.dumps(problem(error)).decode()}{ERROR_END}"


def raise_marked(error: StelaeError) -> NoReturn:
    """Raise inside a Spark worker so that the error is found again on the driver."""
    raise RuntimeError(f"{error}\n{marked(error)}") from error


def problem_in(text: str) -> StelaeError | None:
    """The error that was marked in the message of an exception of Spark; None where there is none."""
    found = _MARKED.search(text)
    return None if found is None else from_problem(orjson.loads(found.group(1)))


def show_stelae_errors() -> None:
    """From now on PySpark raises our errors in place of the exceptions that carry them; all others stay as they are.

    PySpark makes every exception of the JVM, or of a Connect server, a Python one in one place, and asks a function at
    its end to find the stack of the worker in it. That function is replaced, once a process. Where a version of PySpark
    lacks it nothing happens, and users see Spark's exception with our message inside.
    """
    from pyspark.errors.exceptions import captured

    modules: list[Any] = [captured]
    try:
        from pyspark.errors.exceptions import connect

        modules.append(connect)
    except ImportError:  # what Spark Connect needs is not installed
        pass
    for module in modules:
        recover = getattr(module, "recover_python_exception", None)
        if recover is not None and not hasattr(recover, "shows_ours"):
            module.recover_python_exception = _showing_ours(recover)


def _showing_ours(recover: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def recover_or_show(error: Any) -> Any:
        ours = problem_in(str(error))
        if ours is None:
            return recover(error)
        ours.__cause__ = error
        return ours

    recover_or_show.shows_ours = True  # type: ignore[attr-defined]
    return recover_or_show
