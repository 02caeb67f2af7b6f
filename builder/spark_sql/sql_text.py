"""SQL expressions, composed as text.

A `Column` of PySpark lives in the JVM: each operator, literal and name in it is a call there and back, and a build of a
few columns has thousands. Here an expression is text, and so are the steps of a query, until all of it is handed over
at once:

    total = when(col("kind") == "-D", -col("amount")).otherwise(col("amount"))
    Query.of(frame).select({"total": fn.coalesce(total, 0)}).frame()

Operators, `when` and functions give what their namesakes of `pyspark.sql.functions` give: Spark resolves both by the
same names. What is no expression yet is a literal, strings too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4
from weakref import WeakKeyDictionary

from stelae.schema import types as t

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, eq=False)
class Sql:
    """One expression. Its text stands wherever an operand may."""

    text: str

    def __and__(self, other: Operand) -> Sql:
        return self._binary("AND", other)

    def __or__(self, other: Operand) -> Sql:
        return self._binary("OR", other)

    def __invert__(self) -> Sql:
        return Sql(f"(NOT {self.text})")

    def __neg__(self) -> Sql:
        return Sql(f"(- {self.text})")

    def __add__(self, other: Operand) -> Sql:
        return self._binary("+", other)

    def __sub__(self, other: Operand) -> Sql:
        return self._binary("-", other)

    def __mul__(self, other: Operand) -> Sql:
        return self._binary("*", other)

    def __truediv__(self, other: Operand) -> Sql:
        return self._binary("/", other)

    def __floordiv__(self, other: Operand) -> Sql:
        """`div`: truncates towards zero, as BIGINT."""
        return self._binary("DIV", other)

    def __eq__(self, other: Operand) -> Sql:  # type: ignore[override]
        return self._binary("=", other)

    def __ne__(self, other: Operand) -> Sql:  # type: ignore[override]
        return self._binary("!=", other)

    def __lt__(self, other: Operand) -> Sql:
        return self._binary("<", other)

    def __le__(self, other: Operand) -> Sql:
        return self._binary("<=", other)

    def __gt__(self, other: Operand) -> Sql:
        return self._binary(">", other)

    def __ge__(self, other: Operand) -> Sql:
        return self._binary(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise TypeError(f"an SQL expression is neither true nor false before Spark evaluates it: {self.text}")

    def bit_and(self, other: Operand) -> Sql:
        return self._binary("&", other)

    def bit_or(self, other: Operand) -> Sql:
        return self._binary("|", other)

    def equal_null_safe(self, other: Operand) -> Sql:
        return self._binary("<=>", other)

    def is_in(self, values: Iterable[Operand]) -> Sql:
        return Sql(f"({self.text} IN ({', '.join(sql(value).text for value in values)}))")

    def is_null(self) -> Sql:
        return Sql(f"({self.text} IS NULL)")

    def is_not_null(self) -> Sql:
        return Sql(f"({self.text} IS NOT NULL)")

    def cast(self, spark_type: str) -> Sql:
        return Sql(f"CAST({self.text} AS {spark_type})")

    def try_cast(self, spark_type: str) -> Sql:
        """Null for what does not fit, whatever the session says of ANSI."""
        return Sql(f"TRY_CAST({self.text} AS {spark_type})")

    def field(self, name: str) -> Sql:
        """A field of a struct; of an array of structs, the array of that field."""
        return Sql(f"{self.text}.{t.quote_name(name)}")

    def over(self, window: str) -> Sql:
        return Sql(f"({self.text} OVER ({window}))")

    def ascending(self) -> str:
        """A term of ORDER BY; nulls come first."""
        return f"{self.text} ASC NULLS FIRST"

    def descending(self) -> str:
        """A term of ORDER BY; nulls come first all the same."""
        return f"{self.text} DESC NULLS FIRST"

    def _binary(self, operator: str, other: Operand) -> Sql:
        return Sql(f"({self.text} {operator} {sql(other).text})")


Operand = Sql | str | int | float | bool | None


class Case(Sql):
    """CASE WHEN, to which branches are added. Null where no condition is true."""

    def when(self, condition: Sql, value: Operand) -> Case:
        return Case(f"{self.text.removesuffix(' END')} WHEN {condition.text} THEN {sql(value).text} END")

    def otherwise(self, value: Operand) -> Sql:
        return Sql(f"{self.text.removesuffix(' END')} ELSE {sql(value).text} END")


def when(condition: Sql, value: Operand) -> Case:
    return Case(f"CASE WHEN {condition.text} THEN {sql(value).text} END")


def col(name: str) -> Sql:
    return Sql(t.quote_name(name))


def sql(value: Operand) -> Sql:
    """An expression as it is; anything else as the literal that `lit` of PySpark makes of it."""
    match value:
        case Sql():
            return value
        case None:
            return Sql("NULL")
        case bool():
            return Sql("TRUE" if value else "FALSE")
        case int():
            return Sql(str(value) if value >= 0 else f"({value})")
        case float():
            return Sql(f"CAST('{value}' AS DOUBLE)")
        case str():
            return Sql(quote_text(value))
    raise TypeError(value)


def quote_text(text: str) -> str:
    """A literal of this text.

    What Spark's parser reads in one way or another by its settings (backslashes, doubled quotes, `${variables}`), or
    not at all, goes as bytes.
    """
    if text.isprintable() and text.isascii() and not {"'", "\\", "$", "`"} & set(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


class _Functions:
    """Spark's functions by their names. Arguments are operands, or Python functions for lambdas."""

    def __getattr__(self, name: str) -> Callable[..., Sql]:
        def call(*arguments: Operand | Callable[..., Sql]) -> Sql:
            return Sql(f"{name}({', '.join(_argument(each) for each in arguments)})")

        return call


fn = _Functions()

_depth: ContextVar[int] = ContextVar("lambdas around the expression that is being made", default=0)


def _argument(value: Operand | Callable[..., Sql]) -> str:
    if isinstance(value, Sql) or not callable(value):
        return sql(value).text
    # Variables shadow columns, and those of lambdas around: their names are nobody else's.
    depth = _depth.get() + 1
    names = [f"__stelae_{letter}{depth}" for letter in "xyz"[: value.__code__.co_argcount]]
    token = _depth.set(depth)
    try:
        body = value(*(Sql(name) for name in names))
    finally:
        _depth.reset(token)
    variables = names[0] if len(names) == 1 else f"({', '.join(names)})"  # One in parentheses Spark does not take.
    return f"{variables} -> {body.text}"


def struct(fields: Mapping[str, Operand]) -> Sql:
    return Sql(f"named_struct({', '.join(f'{quote_text(name)}, {sql(value).text}' for name, value in fields.items())})")


def all_of(conditions: Iterable[Sql]) -> Sql:
    """The conjunction; true for none."""
    return _chain("AND", conditions, none=True)


def any_of(conditions: Iterable[Sql]) -> Sql:
    """The disjunction; false for none."""
    return _chain("OR", conditions, none=False)


def _chain(operator: str, conditions: Iterable[Sql], *, none: bool) -> Sql:
    # In one pair of parentheses: Spark's parser gives up at some hundreds inside of each other.
    texts = [condition.text for condition in conditions]
    return Sql(f"({f' {operator} '.join(texts)})") if texts else sql(none)


def window(partition: Sequence[Sql], order: Sequence[str] = (), rows: str = "") -> str:
    """What is inside of OVER (...): `order` are terms of ORDER BY, `rows` the frame."""
    parts = [f"PARTITION BY {', '.join(each.text for each in partition)}"]
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    return " ".join([*parts, rows]).rstrip()


# --- whole steps


@dataclass(frozen=True, eq=False)
class Query:
    """Steps over frames, which become one frame by one call to the JVM.

    Steps don't run into each other: each is a SELECT over the one before, and Spark's optimizer merges what it can.
    """

    source: str
    """What stands behind FROM, with frames by their names in braces: what `SparkSession.sql` formats."""
    frames: Mapping[str, DataFrame]

    @staticmethod
    def of(frame: DataFrame) -> Query:
        name = f"frame_{id(frame)}"
        return Query(f"{{{name}}}", {name: frame})

    @staticmethod
    def values(types: Mapping[str, str], rows: Sequence[Sequence[Operand]]) -> Query:
        """These rows, of columns with these types of Spark. The parser reads them: some thousands take seconds."""
        given = rows or [[None] * len(types)]
        names = _escaped(", ".join(t.quote_name(name) for name in types))
        listed = _escaped(", ".join(f"({', '.join(sql(value).text for value in row)})" for row in given))
        terms = _escaped(", ".join(_terms({name: col(name).cast(of) for name, of in types.items()})))
        text = f"SELECT {terms} FROM VALUES {listed} AS given({names}){'' if rows else ' WHERE FALSE'}"  # noqa: S608 - as above.
        return Query(f"({text})", {})

    def select(self, columns: Mapping[str, Operand]) -> Query:
        """Exactly these columns."""
        return self._step(_terms(columns))

    def with_columns(self, columns: Mapping[str, Operand], *generators: str, without: Collection[str] = ()) -> Query:
        """Without some columns, which are there, and with others, which are not or not any more. `generators` are terms
        that give several columns, or rows.
        """
        if not columns and not generators and not without:
            return self
        return self._step([_star(without), *_terms(columns), *generators])

    def where(self, condition: Sql) -> Query:
        return self._step(["*"], f"WHERE {condition.text}")

    def aggregate(self, keys: Sequence[str], values: Mapping[str, Operand]) -> Query:
        """One row for each combination of the key columns, nulls equal: those columns, and the aggregates."""
        names = [t.quote_name(key) for key in keys]
        return self._step([*names, *_terms(values)], f"GROUP BY {', '.join(names)}" if names else "")

    def sort_within_partitions(self, terms: Sequence[str]) -> Query:
        return self._step(["*"], f"SORT BY {', '.join(terms)}")

    def repartition(self, tasks: int, name: str) -> Query:
        """Rows with equal values of a column on one task."""
        hint = f"/*+ REPARTITION({tasks}, {_escaped(t.quote_name(name))}) */"
        return Query(f"(SELECT {hint} * FROM {self.source})", self.frames)  # noqa: S608 - names and texts are quoted.

    def union(self, other: Query, columns: Collection[str]) -> Query:
        """The rows of both, which have these columns and no others."""
        names = _escaped(", ".join(t.quote_name(name) for name in columns))
        text = f"SELECT {names} FROM {self.source} UNION ALL SELECT {names} FROM {other.source}"  # noqa: S608 - names and texts are quoted.
        return Query(f"({text})", {**self.frames, **other.frames})

    def join(self, other: Query, condition: Sql, how: str, *, broadcast: bool = False) -> Query:
        """All columns of both, whose names differ; of a semi or anti join those of the left."""
        hint = "/*+ BROADCAST(other_rows) */ " if broadcast else ""
        source = f"{self.source} AS these_rows {how} JOIN {other.source} AS other_rows ON {_escaped(condition.text)}"
        return Query(f"(SELECT {hint}* FROM {source})", {**self.frames, **other.frames})  # noqa: S608 - names and texts are quoted.

    def frame(self) -> DataFrame:
        """The rows. All frames are of one session: there they become views for a moment."""
        text = unsubstituted(f"SELECT * FROM {self.source}")  # noqa: S608
        session = next(iter(self.frames.values())).sparkSession
        frames: dict[str, Any] = dict(self.frames)
        if not hasattr(session, "_jsparkSession"):  # A remote session needs no views.
            return session.sql(text, **frames)
        # `sql` would do, but drops its views by `Catalog.dropTempView`, which unpersists their frames as well.
        views = {name: f"__stelae_{uuid4().hex}" for name in frames}
        try:
            for name, view in views.items():
                frames[name].createTempView(view)
            return session.sql(text.format(**views))
        finally:
            for view in views.values():
                _catalog(session).dropTempView(view)

    def _step(self, terms: Sequence[str], clause: str = "") -> Query:
        text = f"SELECT {_escaped(', '.join(terms))} FROM {self.source} {_escaped(clause)}"  # noqa: S608 - names and texts are quoted.
        return Query(f"({text.rstrip()})", self.frames)


_catalogs: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


def _catalog(session: SparkSession) -> Any:
    """The views of a session, as Spark itself sees them. Kept: to get it takes two calls to the JVM."""
    if session not in _catalogs:
        _catalogs[session] = session._jsparkSession.sessionState().catalog()
    return _catalogs[session]


def with_columns(frame: DataFrame, columns: Mapping[str, Operand], *, without: Collection[str] = ()) -> DataFrame:
    """As `Query.with_columns`, of a frame whose columns are not known, among them hidden ones as `_metadata`."""
    return frame.selectExpr(_star(without), *(unsubstituted(term) for term in _terms(columns)))


_NAME = re.compile("`(?:[^`]|``)*`")
"""A quoted name: literals have no back quotes (`quote_text`)."""
_PIECE = re.compile(r"['\\]+|(?:[^'\\$]|\$(?!\{))+|\$")
"""Of such a name: quotes and backslashes, or neither; without a `$` and the `{` that follows it."""


def unsubstituted(text: str) -> str:
    """SQL whose names mean themselves: Spark replaces `${variables}` before it parses, inside of quotes, too."""
    return _NAME.sub(_in_pieces, text) if "${" in text else text


def _in_pieces(name: re.Match[str]) -> str:
    """The name as literals in a row, which Spark puts together.

    Quotes and backslashes are raw ones, as settings say what they are in others. Spark can't read raw ones under
    `spark.sql.parser.escapedStringLiterals`: there, a name with these and a variable fails.
    """
    if "${" not in name[0]:
        return name[0]
    pieces = [f'R"{piece}"' if piece[0] in "'\\" else f"'{piece}'" for piece in _PIECE.findall(name[0])]
    return f"IDENTIFIER({' '.join(pieces)})"


def _star(without: Collection[str]) -> str:
    return f"* EXCEPT ({', '.join(t.quote_name(name) for name in without)})" if without else "*"


def _terms(columns: Mapping[str, Operand]) -> list[str]:
    return [f"{sql(value).text} AS {t.quote_name(name)}" for name, value in columns.items()]


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
