"""The aggregate functions of columns: names, types, what they can take back. docs/merging.md shows each at work.

Names and meaning are those of Apache Paimon (docs: primary-key table, merge engine, aggregation) and of Apache Fluss
(docs: merge engines, aggregation); this is the one list of them.

A function is one of three kinds, by what it needs to know of the order of records:

    commutes      sum, max, ...       nothing
    picks         first_value, ...    which record is the first or the last: its value is the result
    accumulates   listagg, ...        all records in their order: each is added to what there is

Who adds a function touches, in this order:

    this list                        name, kind, types, what it can take back
    stelae/schema/options.py         its parameters, if it has some; merge_checks.py: what they must be
    stelae/schema/merge_rules.py     if it needs a hidden column, or positions
    builder/merge/aggregate.py       how it is computed; folds.py: as a list in its order, in the JVM; arrow_folds.py:
                                     where Spark has no exact function for it
    docs/merging.md                  its row and an example, which tests/builder/merge/test_merging_docs.py runs
    tests                            functions.yaml in tests/stelae/schema/cases; merge_model.py, the model of what is
                                     right, and test_merge_random.py in tests/builder/merge
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from stelae.errors import InvalidRequest
from stelae.schema import types as t

FunctionKind = Literal["commutes", "picks", "accumulates"]

Refusal = str | None
"""What a function takes instead of a type that it does not take; None: it takes the type."""


@dataclass(frozen=True, slots=True)
class Function:
    """One aggregate function."""

    name: str
    kind: FunctionKind
    refusal: Callable[[t.DataType], Refusal]
    can_retract: bool = False
    """Whether it can take a value back: -U, and -D where that does not remove the row."""
    parameters: tuple[str, ...] = ()
    """Attributes of `ColumnOptions` that it looks at, besides `ignore_retract`."""
    aliases: tuple[str, ...] = ()


def _one_of(sentence: str, *kinds: type[t.DataType]) -> Callable[[t.DataType], Refusal]:
    return lambda data_type: None if isinstance(data_type, kinds) else sentence


def _unlimited(kind: type[t.String] | type[t.Binary]) -> Callable[[t.DataType], Refusal]:
    def refusal(data_type: t.DataType) -> Refusal:
        # A result grows with every record: with a limit a build would fail one day.
        if isinstance(data_type, kind) and data_type.length is None:
            return None
        return f"{kind.name}, without a limit of its length"

    return refusal


def _any_type(data_type: t.DataType) -> Refusal:  # noqa: ARG001
    return None


def _comparable_elements(data_type: t.DataType) -> Refusal:
    if isinstance(data_type, t.Array) and not t.holds_map(data_type.element):
        return None
    return "ARRAY of elements that can be compared: no MAP in them"


def _rows(data_type: t.DataType) -> Refusal:
    if isinstance(data_type, t.Array) and isinstance(data_type.element, t.Row) and not t.holds_map(data_type.element):
        return None
    return "ARRAY of ROWs that can be compared: no MAP in them"


def _keytime(data_type: t.DataType) -> Refusal:
    if isinstance(data_type, t.Map) and isinstance(data_type.value, t.Row):
        return None
    return "MAP with ROWs as values, one field of which is a time as text"


_NUMBERS = (*t.INTEGERS, t.Float, t.Double, t.Decimal)
_numeric = _one_of("a number", *_NUMBERS)
_ordered = _one_of(
    "a type with an order: no ARRAY, MAP or ROW",
    *_NUMBERS, t.Boolean, t.String, t.Binary, t.Date, t.Time, t.Timestamp, t.TimestampLtz,
)  # fmt: skip
_boolean = _one_of("BOOLEAN", t.Boolean)
_NESTED = ("nested_key", "nested_key_null_strategy", "nested_sequence_field", "count_limit")

FUNCTIONS: tuple[Function, ...] = (
    Function("sum", "commutes", _numeric, can_retract=True),
    # Rounding and dividing are no matter of order alone, but of every single step.
    Function("product", "accumulates", _numeric, can_retract=True),
    Function("count", "commutes", _one_of("TINYINT, SMALLINT, INT or BIGINT", *t.INTEGERS), can_retract=True),
    Function("max", "commutes", _ordered),
    Function("min", "commutes", _ordered),
    Function("first_value", "picks", _any_type),
    Function("last_value", "picks", _any_type, can_retract=True),
    Function("first_non_null_value", "picks", _any_type, aliases=("first_not_null_value", "first_value_ignore_nulls")),
    Function(
        "last_non_null_value",
        "picks",
        _any_type,
        can_retract=True,
        aliases=("last_not_null_value", "last_value_ignore_nulls"),
    ),
    Function(
        "listagg", "accumulates", _unlimited(t.String), parameters=("delimiter", "distinct"), aliases=("string_agg",)
    ),
    Function("bool_and", "commutes", _boolean),
    Function("bool_or", "commutes", _boolean),
    Function("collect", "accumulates", _comparable_elements, can_retract=True, parameters=("distinct",)),
    Function("merge_map", "accumulates", _one_of("MAP", t.Map), can_retract=True),
    Function("merge_map_with_keytime", "accumulates", _keytime, parameters=("ts_field",)),
    Function("nested_update", "accumulates", _rows, can_retract=True, parameters=_NESTED),
    Function("nested_partial_update", "accumulates", _rows, parameters=("nested_key", "nested_key_null_strategy")),
    Function("rbm32", "commutes", _unlimited(t.Binary)),
    Function("rbm64", "commutes", _unlimited(t.Binary)),
    Function("hll_sketch", "commutes", _unlimited(t.Binary)),
    Function("theta_sketch", "commutes", _unlimited(t.Binary)),
)

BITMAPS: Mapping[str, int] = {"rbm32": 2**32 - 1, "rbm64": 2**63 - 1}
"""Functions that unite Roaring bitmaps, with the greatest id that a build collects into one."""

BY_NAME: Mapping[str, Function] = {name: f for f in FUNCTIONS for name in (f.name, *f.aliases)}


def find_function(name: str, place: str) -> Function:
    """The function of that name or alias, in any case and with - for _. An unknown one is InvalidRequest."""
    plain = name.strip().lower().replace("-", "_")
    function = BY_NAME.get(plain)
    if function is None:
        near = difflib.get_close_matches(plain, BY_NAME, n=1)
        raise InvalidRequest(
            f"unknown aggregate function {name!r}",
            place=place,
            hint=f"did you mean {near[0]!r}?" if near else f"functions: {', '.join(f.name for f in FUNCTIONS)}",
        )
    return function
