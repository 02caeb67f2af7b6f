"""Spark's errors, translated where they enter.

Checks of rows run inside Spark expressions and workers, and raise marked errors (stelae/spark/errors.py). Here they are
found again, and what Spark itself finds wrong is given a kind. What users of Stelae see is the problem, not a stack of
workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from stelae.errors import CorruptData, InvalidRequest, StelaeError, Unavailable
from stelae.spark.errors import ERROR_END as ERROR_END
from stelae.spark.errors import ERROR_MARK as ERROR_MARK
from stelae.spark.errors import marked as marked
from stelae.spark.errors import problem_in
from stelae.spark.errors import raise_marked as raise_marked


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Run a Spark action; its failures become Stelae's errors, `what` says what was under way."""
    from pyspark.errors import PySparkException

    try:
        yield
    except StelaeError:
        raise
    except Exception as exc:
        text = str(exc)
        ours = problem_in(text)
        if ours is not None:
            raise ours from exc
        if not isinstance(exc, PySparkException) and "py4j" not in type(exc).__module__:
            raise
        raise _from_condition(what, text) from exc


_CONDITIONS: tuple[tuple[re.Pattern[str], type[StelaeError], str], ...] = (
    (re.compile(r"PATH_NOT_FOUND"), InvalidRequest, "check the path of the input"),
    (
        re.compile(r"CSV header does not conform to the schema"),
        InvalidRequest,
        "the CSV files have different headers: build them one by one",
    ),
    (
        re.compile(r"ModuleNotFoundError: No module named '(builder|stelae|rocksdict|pyarrow)'"),
        Unavailable,
        "executors need the package too: python -m pip install 'stelae[builder]'",
    ),
    (
        re.compile(r"HLL_INVALID_INPUT_SKETCH_BUFFER|THETA_INVALID_INPUT_SKETCH_BUFFER"),
        InvalidRequest,
        "columns with the function hll_sketch or theta_sketch take what hll_sketch_agg or theta_sketch_agg makes",
    ),
    (
        re.compile(r"MALFORMED_RECORD_IN_PARSING|MALFORMED_CSV_RECORD|CANNOT_PARSE|CAST_INVALID_INPUT|BAD_RECORD"),
        InvalidRequest,
        "a value of the input does not have the column's type; where a word stands for null: --option nullValue=WORD",
    ),
    (
        re.compile(r"ARITHMETIC_OVERFLOW|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"),
        InvalidRequest,
        "a number is out of range",
    ),
    (
        re.compile(
            r"CANNOT_READ_FILE_FOOTER|is not a Parquet file|FAILED_READ_FILE|UNABLE_TO_INFER_SCHEMA|Malformed ORC"
        ),
        InvalidRequest,
        "the input can't be read in this format: check --format and the file",
    ),
    (re.compile(r"No space left on device"), Unavailable, "the disk is full: free some space, then build again"),
    (re.compile(r"Corruption"), CorruptData, "run: stelae verify"),
)


def _from_condition(what: str, text: str) -> StelaeError:
    first = _telling(text)
    for pattern, kind, hint in _CONDITIONS:
        if pattern.search(text):
            telling = next((line.strip() for line in text.splitlines() if pattern.search(line)), first)
            return kind(f"{what} failed: {_short(telling)}", hint=hint)
    return Unavailable(f"{what} failed in Spark: {_short(first)}", hint="the cause is in Spark's log and in __cause__")


def _telling(text: str) -> str:
    """The line of Spark's message that says most: the first, or where Python failed the last of its traceback."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].removeprefix(": "), *lines[2:]]  # Py4J's own first line names an object of its own
    if "Traceback (most recent call last):" in lines:
        below = lines[lines.index("Traceback (most recent call last):") + 1 :]
        return next((line for line in below if not line.startswith(" ")), lines[0])
    return lines[0].strip() if lines else "no message"


def _short(line: str, most: int = 600) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"
