"""A reference model of merging: records folded one by one, in plain Python.

It says the same as docs/merging.md, in code that is easy to read and slow, and shares nothing with
`builder/merge/aggregate.py`: it reads the options of a table as text, keeps a dict a key, and knows no Spark. Values
are Python values: DECIMAL is `Decimal`, ROW a tuple, MAP a dict, ARRAY a list, and a bitmap or sketch the frozenset of
its numbers.

    model = Model(columns, primary_key, options)
    model.build([("+I", {"k": 1, "v": 5}), ("-U", {"k": 1, "v": 3})])
    model.rows()                                                        # visible rows, as tuples in column order
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from operator import itemgetter
from typing import Any

from stelae.schema import types as t

Record = tuple[str, dict[str, Any]]
"""Row kind and values by column name."""

Rank = tuple[Any, ...]
"""Where a record stands among those of its key; later arrival wins between equals. Without order columns: ()."""

EXACT = Context(prec=200)
BITMAPS = ("rbm32", "rbm64", "hll_sketch", "theta_sketch")
ALIASES = {
    "first_not_null_value": "first_non_null_value",
    "first_value_ignore_nulls": "first_non_null_value",
    "last_value_ignore_nulls": "last_non_null_value",
    "last_not_null_value": "last_non_null_value",
    "string_agg": "listagg",
}
RETRACTABLE = (
    *("sum", "product", "count", "collect", "merge_map", "nested_update"),
    *("last_value", "last_non_null_value"),
)
PICKS = ("first_value", "first_non_null_value", "last_value", "last_non_null_value")
COMMUTES = ("sum", "count", "max", "min", "bool_and", "bool_or", *BITMAPS)


class RefusedError(Exception):
    """The build must fail. The message has what an error of the build has to name."""


# --- the table


@dataclass(frozen=True)
class Rule:
    """How one column is computed."""

    name: str
    type: t.DataType
    function: str
    group: int | None = None
    ignore_retract: bool = False
    distinct: bool = False
    delimiter: str = ","
    nested_key: tuple[str, ...] = ()
    null_strategy: str = "merge"
    nested_sequence: tuple[str, ...] = ()
    count_limit: int | None = None
    time_field: str | None = None


@dataclass
class State:
    """What is known of one key. A key that no record has reached yet has the state that a new one has."""

    row: dict[str, Any] = field(default_factory=dict)
    visible: bool = False
    newest: Rank | None = None
    """The greatest rank of any record so far."""
    removal: Rank | None = None
    """The rank of the last removal. What is older is dropped."""
    picked: dict[str, Rank] = field(default_factory=dict)
    """The rank of the record that a picked value comes from."""
    pieces: dict[str, list[tuple[Rank, str]]] = field(default_factory=dict)
    """Texts of listagg columns, in merge order."""


class Model:
    """A table, by its rules."""

    def __init__(
        self, columns: Sequence[tuple[str, t.DataType]], primary_key: Sequence[str], options: Mapping[str, str]
    ) -> None:
        self.names = [name for name, _ in columns]
        self.types = dict(columns)
        self.primary_key = list(primary_key)
        self.options = Options(options)
        self.engine = self.options.word("merge-engine", "table.merge-engine", default="deduplicate")
        self.kind_column = self.options.text("rowkind.field")
        self.descending = self.options.word("sequence.field.sort-order", default="ascending") == "descending"
        self.retracts_first = "row-kind-flag" in self.options.names("sequence.auto-padding")
        self.sequence = self.options.names("sequence.field")
        if self.engine == "versioned":
            self.sequence = self.options.names("table.merge-engine.versioned.ver-column", "versioned.ver-column")
        self.groups = self.options.groups()
        named = set(self.options.names("partial-update.remove-record-on-sequence-group"))
        self.removal_groups = [i for i, (sequence, _) in enumerate(self.groups) if named & set(sequence)]
        self.rules = self._rules() if self.engine in ("partial-update", "aggregation") else []
        self.on_delete, self.on_update_before = self._actions()
        self.states: dict[tuple[Any, ...], State] = {}

    def build(self, records: Iterable[Record], targets: Collection[str] | None = None) -> None:
        """Fold the records of one build, which set the columns `targets` (None: all). RefusedError when the build has
        to fail; the model is of no use afterwards.
        """
        for kind, record in records:
            self.fold(kind, record, set(self.names if targets is None else targets))
        for key, state in self.states.items():
            for rule in self.rules:
                check_fits(rule, state.row[rule.name], self.shown(key))
                if state.visible and not rule.type.nullable and state.row[rule.name] is None:
                    raise RefusedError(f"null in NOT NULL column {rule.name} {self.shown(key)}")

    def rows(self) -> list[tuple[Any, ...]]:
        """Visible rows in column order."""
        return [
            tuple(dict(zip(self.primary_key, key, strict=True), **state.row)[name] for name in self.names)
            for key, state in self.states.items()
            if state.visible
        ]

    def fold(self, kind: str, record: dict[str, Any], targets: set[str]) -> None:
        if self.kind_column is not None:
            kind = record[self.kind_column].upper()
        key = tuple(record[name] for name in self.primary_key)
        action = self._action(kind)
        if action == "ignore":
            return
        if action == "refuse":
            raise RefusedError(f"{kind} {self.shown(key)}")
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = self._empty()
        match self.engine:
            case "deduplicate" if not targets.issuperset(self.names):
                self._fold_targets(state, action, record, targets)
            case "deduplicate" | "versioned":
                self._fold_row(state, action, record)
            case "first-row":
                if not state.visible:
                    state.row, state.visible = self._values(record), True
            case "aggregation" if action == "remove" and not targets.issuperset(self.names):
                self._fold_targets(state, action, record, targets)
            case _ if self.groups:
                self._fold_groups(key, state, action, record)
            case _:
                self._fold_columns(key, state, action, record, targets)

    def shown(self, key: tuple[Any, ...]) -> str:
        return str(dict(zip(self.primary_key, key, strict=True)))

    # --- engines

    def _fold_row(self, state: State, action: str, record: dict[str, Any]) -> None:
        """The record with the greatest rank is the row; a removal with the greatest rank is none."""
        rank = self._rank(record, action)
        if state.newest is not None and rank < state.newest:
            return
        state.newest, state.visible = rank, action == "insert"
        state.row = self._values(record) if state.visible else self._empty().row

    def _fold_targets(self, state: State, action: str, record: dict[str, Any], targets: set[str]) -> None:
        """A record that sets some columns of a whole row, or empties them. The row goes when nothing is left in it."""
        assert not self.sequence, "the model knows no late partial updates"
        for name in targets.difference(self.primary_key):
            state.row[name] = record[name] if action == "insert" else None
            state.picked.pop(name, None)
            state.pieces.pop(name, None)
        if action == "insert":
            state.visible = True
        elif all(value is None for value in state.row.values()):
            state.visible = False

    def _fold_columns(
        self, key: tuple[Any, ...], state: State, action: str, record: dict[str, Any], targets: set[str]
    ) -> None:
        """aggregation, and partial-update without groups: each column by its function, in one order of records."""
        rules = [rule for rule in self.rules if rule.name in targets]
        for rule in rules:
            if not rule.ignore_retract:
                self._check_retract(rule, action, key)
        rank = self._rank(record, action)
        if state.removal is not None and rank < state.removal:
            return
        older = state.newest is not None and rank < state.newest
        if action == "remove":
            if not older:
                self.states[key] = self._empty(newest=rank, removal=rank)
            return
        if not older:
            state.newest = rank
            state.row.update({name: record[name] for name in self.sequence})
        for rule in rules:
            value = record[rule.name]
            if action == "retract" and rule.ignore_retract:
                continue
            if rule.function in PICKS:
                pick(state, rule, action, value, rank)
            elif rule.function == "listagg":
                pieces = state.pieces.setdefault(rule.name, [])
                bisect.insort_right(pieces, (rank, value), key=itemgetter(0))
                texts = (text for _, text in pieces)
                state.row[rule.name] = functools.reduce(lambda text, more: add(rule, text, more, ""), texts, None)
            else:
                state.row[rule.name] = aggregate(rule, state.row[rule.name], value, action, older, self.shown(key))
        if action == "insert":
            state.visible = True
            # What the record did not set is null, and so is its first value.
            for rule in self.rules:
                if rule.function == "first_value":
                    state.picked.setdefault(rule.name, rank)

    def _fold_groups(self, key: tuple[Any, ...], state: State, action: str, record: dict[str, Any]) -> None:
        """partial-update with sequence groups: each group in its own order, everything else by arrival."""
        older: list[bool | None] = []
        for sequence, _ in self.groups:
            given = [record[name] for name in sequence]
            stored = [state.row[name] for name in sequence]
            older.append(None if all(value is None for value in given) else rank_of(given) < rank_of(stored))
        if action == "remove" and any(older[group] is False for group in self.removal_groups):
            removed = self.states[key] = self._empty()
            removed.row.update({name: record[name] for sequence, _ in self.groups for name in sequence})
            return
        action = "insert" if action == "insert" else "retract"
        for rule in self.rules:
            value = record[rule.name]
            if rule.group is None:
                if action == "insert" and value is not None:
                    state.row[rule.name] = value
                continue
            late = older[rule.group]
            if late is None or (action == "retract" and rule.ignore_retract):
                continue
            self._check_retract(rule, action, key)
            if rule.function in PICKS:
                pick_in_group(state, rule, action, value, late)
            else:
                state.row[rule.name] = aggregate(rule, state.row[rule.name], value, action, late, self.shown(key))
        for (sequence, _), late in zip(self.groups, older, strict=True):
            if late is False:
                state.row.update({name: record[name] for name in sequence})
        if action == "insert" and not any(older[group] for group in self.removal_groups):
            state.visible = True

    # --- parts

    def _empty(self, **known: Any) -> State:
        state = State(**known)
        state.row = dict.fromkeys(name for name in self.names if name not in self.primary_key)
        state.row.update({rule.name: 0 for rule in self.rules if rule.function == "count"})
        return state

    def _values(self, record: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in record.items() if name not in self.primary_key}

    def _rank(self, record: dict[str, Any], action: str) -> Rank:
        values = [record[name] for name in self.sequence]
        if self.engine == "versioned":
            values = [
                least(self.types[name]) if v is None else v for name, v in zip(self.sequence, values, strict=True)
            ]
        flag = (action == "insert",) if self.retracts_first else ()
        return (*rank_of(values, descending=self.descending), *flag)

    def _action(self, kind: str) -> str:
        return {"-D": self.on_delete, "-U": self.on_update_before}.get(kind, "insert")

    def _check_retract(self, rule: Rule, action: str, key: tuple[Any, ...]) -> None:
        if action == "retract" and rule.function not in RETRACTABLE:
            raise RefusedError(f"{rule.function} of column {rule.name} cannot retract {self.shown(key)}")

    def _actions(self) -> tuple[str, str]:
        options = self.options
        behavior = options.word("delete.behavior", "table.delete.behavior")
        if behavior is None and "table.merge-engine" in options.given and self.engine != "deduplicate":
            behavior = "ignore"
        match self.engine:
            case "deduplicate":
                actions = ("remove", "remove")
            case "first-row":
                actions = ("refuse", "refuse")
            case "versioned":
                actions = ("ignore", "ignore")
            case "aggregation":
                removes = options.flag("aggregation.remove-record-on-delete") or behavior == "allow"
                actions = ("remove" if removes else "retract", "retract")
            case _ if options.flag("partial-update.remove-record-on-delete"):
                actions = ("remove", "ignore")
            case _ if self.groups:
                actions = ("remove" if self.removal_groups else "retract", "retract")
            case _:
                actions = ("refuse", "refuse")
        spellings = ("deduplicate.ignore-delete", "first-row.ignore-delete", "partial-update.ignore-delete")
        if options.flag("ignore-delete", *spellings) or behavior == "ignore":
            actions = ("ignore", "ignore")
        elif behavior == "disable":
            actions = ("refuse", "ignore")
        if options.flag("ignore-update-before"):
            actions = (actions[0], "ignore")
        return actions

    def _rules(self) -> list[Rule]:
        options = self.options
        group_of = {name: i for i, (_, members) in enumerate(self.groups) for name in members}
        ordering = {*self.sequence, *(name for sequence, _ in self.groups for name in sequence)}
        default = options.word("fields.default-aggregate-function")
        rules = []
        for name in self.names:
            if name in self.primary_key or name in ordering:
                continue
            group = group_of.get(name)
            plain = "last_value" if group is not None else "last_non_null_value"
            given = options.word(f"fields.{name}.aggregate-function", f"fields.{name}.agg") or default or plain
            function = given.replace("-", "_")
            of = functools.partial(options.parameter, name, function)
            rules.append(
                Rule(
                    name,
                    self.types[name],
                    ALIASES.get(function, function),
                    group,
                    ignore_retract=of("ignore-retract") == "true",
                    distinct=of("distinct") == "true",
                    delimiter=of("list-agg-delimiter", "delimiter") or ",",
                    nested_key=split(of("nested-key")),
                    null_strategy=(of("nested-key-null-strategy") or "merge").lower(),
                    nested_sequence=split(of("nested-sequence-field")),
                    count_limit=int(of("count-limit") or "0") or None,
                    time_field=of("ts-field"),
                )
            )
        return rules


@dataclass(frozen=True)
class Options:
    """The options of a table as they were given."""

    given: Mapping[str, str]

    def text(self, *spellings: str) -> str | None:
        return next((self.given[spelling] for spelling in spellings if spelling in self.given), None)

    def word(self, *spellings: str, default: str | None = None) -> str | None:
        """A value of an enumeration: lower case, with - for _."""
        text = self.text(*spellings)
        return default if text is None else text.strip().lower().replace("_", "-")

    def flag(self, *spellings: str) -> bool:
        return self.word(*spellings) == "true"

    def names(self, *spellings: str) -> tuple[str, ...]:
        return split(self.text(*spellings))

    def groups(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Sequence columns and members of each sequence group."""
        found = ((re.fullmatch(r"fields\.(.+)\.sequence-group", name), value) for name, value in self.given.items())
        return [(split(match.group(1)), split(value)) for match, value in found if match]

    def parameter(self, column: str, function: str, *names: str) -> str | None:
        """`fields.<column>.<name>` of Paimon, or `fields.<column>.<function>.<name>` of Fluss."""
        paimon = [f"fields.{column}.{name}" for name in names]
        return self.text(*paimon, *(f"fields.{column}.{function}.{name}" for name in names))


def split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


# --- order


@functools.total_ordering
class Reversed:
    """A value that compares the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Reversed) -> bool:
        return bool(self.value > other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def rank_of(values: Sequence[Any], *, descending: bool = False) -> Rank:
    """Compares as sequences do: from left to right, null below everything whatever the direction."""
    ranks = []
    for value in values:
        of = ordered(value)
        ranks.append((0,) if value is None else (1, Reversed(of) if descending else of))
    return tuple(ranks)


def ordered(value: Any) -> Any:
    """The value, comparable as SQL compares it: NaN is the greatest number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def least(data_type: t.DataType) -> Any:
    """What a null version counts as. Below every instant there is nothing to compare it with: null itself does."""
    return -(2 ** (data_type.bits - 1)) if isinstance(data_type, t.Int | t.BigInt) else None


# --- functions that pick the value of one record


def pick(state: State, rule: Rule, action: str, value: Any, rank: Rank) -> None:
    """The value of the record with the least or the greatest rank, among all records ever."""
    if rule.function.endswith("non_null_value") and value is None:
        return
    at = state.picked.get(rule.name)
    better = at is None or (rank < at if rule.function.startswith("first") else rank >= at)
    if better:
        state.picked[rule.name] = rank
        state.row[rule.name] = value if action == "insert" else None


def pick_in_group(state: State, rule: Rule, action: str, value: Any, late: bool) -> None:
    """The value as of this record, which is the newest of its group so far, or goes below all others."""
    known = state.row[rule.name]
    match rule.function:
        case "last_value":
            takes = not late
        case "last_non_null_value":
            # Late or not, a retract takes back.
            takes = value is not None and (not late or known is None or action == "retract")
        case "first_value":
            takes = late or rule.name not in state.picked
        case _:
            takes = value is not None and (late or known is None)
    if takes:
        state.picked[rule.name] = ()
        state.row[rule.name] = value if action == "insert" else None


# --- functions that aggregate


def aggregate(rule: Rule, known: Any, value: Any, action: str, late: bool, key: str) -> Any:
    """The accumulator after one more record, which goes below what there is if it is late."""
    if action == "retract":
        return retract(rule, known, value, key)
    if late and rule.function not in COMMUTES:
        return add(rule, add(rule, None, value, key), known, key)
    return add(rule, known, value, key)


def add(rule: Rule, known: Any, value: Any, key: str) -> Any:
    if rule.function == "count":
        return known + (value is not None)
    if value is None:
        return known
    return ADD[rule.function](rule, known, value, key)


def retract(rule: Rule, known: Any, value: Any, key: str) -> Any:
    if value is None:
        return known
    match rule.function:
        case "sum":
            return ADD["sum"](rule, 0 if known is None else known, negated(value), key)
        case "count":
            return known - 1
        case _ if known is None:
            return None
        case "product":
            return divide(rule, known, value, key)
        case "collect":
            return without_once(known, value)
        case "merge_map":
            return {k: v for k, v in known.items() if k not in value}
        case "nested_update":
            return nested_retract(rule, known, value)
    raise AssertionError(rule.function)


def negated(value: Any) -> Any:
    return value.copy_negate() if isinstance(value, Decimal) else -value


def divide(rule: Rule, known: Any, value: Any, key: str) -> Any:
    if isinstance(rule.type, t.Float | t.Double):
        return narrowed(rule, known / value)
    if value == 0:
        raise RefusedError(f"product of column {rule.name} divides by zero {key}")
    if isinstance(rule.type, t.Decimal):
        return quantized(rule.type, EXACT.divide(known, value))
    quotient = abs(known) // abs(value)
    return quotient if (known < 0) == (value < 0) else -quotient


def without_once(known: list[Any], value: list[Any]) -> list[Any]:
    rest = list(known)
    for element in value:
        if element in rest:
            rest.remove(element)
    return rest


def of_numbers(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(rule: Rule, known: Any, value: Any, key: str) -> Any:
        if known is None:
            return value
        result = operation(known, value)
        if isinstance(rule.type, t.Decimal):
            return quantized(rule.type, result)
        return narrowed(rule, result)

    return step


def narrowed(rule: Rule, value: Any) -> Any:
    import struct

    return struct.unpack("f", struct.pack("f", value))[0] if isinstance(rule.type, t.Float) else value


def quantized(data_type: t.Decimal, value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP, EXACT)


def add_numbers(rule: Rule, known: frozenset[int] | None, value: frozenset[int], key: str) -> frozenset[int]:
    """Bitmaps and sketches, as sets."""
    limit = {"rbm32": 2**32, "rbm64": 2**63}.get(rule.function, math.inf)
    for number in value:
        if number < 0 or number >= limit:
            raise RefusedError(f"{rule.function} of column {rule.name} cannot hold {number} {key}")
    return (known or frozenset()) | value


def of_values(choose: Callable[..., Any]) -> Callable[..., Any]:
    def step(rule: Rule, known: Any, value: Any, key: str) -> Any:
        return value if known is None else choose((known, value), key=ordered)

    return step


def add_text(rule: Rule, known: str | None, value: str, key: str) -> str | None:
    if not value.strip():
        return known
    if known is None:
        return value
    if not rule.distinct:
        return known + rule.delimiter + value
    tokens = known.split(rule.delimiter)
    for token in value.split(rule.delimiter):
        if token and token not in tokens:
            tokens.append(token)
            known += rule.delimiter + token
    return known


def add_elements(rule: Rule, known: list[Any] | None, value: list[Any], key: str) -> list[Any]:
    elements = list(known or ())
    for element in value:
        if not (rule.distinct and element in elements):
            elements.append(element)
    return elements


def add_entries(rule: Rule, known: dict[Any, Any] | None, value: dict[Any, Any], key: str) -> dict[Any, Any]:
    return {**(known or {}), **value}


def add_timed_entries(rule: Rule, known: dict[Any, Any] | None, value: dict[Any, Any], key: str) -> dict[Any, Any]:
    assert isinstance(rule.type, t.Map)
    time = field_index(rule.type.value, rule.time_field) if rule.time_field else -1
    entries = dict(known or {})
    for name, row in value.items():
        if row is None:
            entries.pop(name, None)
        elif row[time] is not None and (name not in entries or row[time] > entries[name][time]):
            entries[name] = row
    return entries


def add_rows(rule: Rule, known: list[Any] | None, value: list[Any], key: str) -> list[Any]:
    """nested_update and nested_partial_update."""
    rows = list(known or ())
    room = math.inf if rule.count_limit is None else rule.count_limit
    for row in value:
        if row is None:
            continue
        of = nested_key(rule, row)
        if None in of and rule.null_strategy == "ignore":
            continue
        if None in of and rule.null_strategy == "error":
            raise RefusedError(f"{rule.function} of column {rule.name}: null in a nested key {key}")
        at = next((i for i, other in enumerate(rows) if rule.nested_key and nested_key(rule, other) == of), None)
        if at is None:
            if len(rows) < room:
                rows.append(row)
        elif rule.function == "nested_partial_update":
            rows[at] = tuple(old if new is None else new for old, new in zip(rows[at], row, strict=True))
        elif nested_rank(rule, row) >= nested_rank(rule, rows[at]):
            rows[at] = row
    return rows


def nested_retract(rule: Rule, known: list[Any], value: list[Any]) -> list[Any]:
    if not rule.nested_key:
        return [row for row in known if row not in value]
    gone = [nested_key(rule, row) for row in value if row is not None]
    if rule.null_strategy == "ignore":
        gone = [key for key in gone if None not in key]
    return [row for row in known if nested_key(rule, row) not in gone]


def nested_key(rule: Rule, row: tuple[Any, ...]) -> tuple[Any, ...]:
    assert isinstance(rule.type, t.Array)
    return tuple(row[field_index(rule.type.element, name)] for name in rule.nested_key)


def nested_rank(rule: Rule, row: tuple[Any, ...]) -> Rank:
    assert isinstance(rule.type, t.Array)
    return rank_of([row[field_index(rule.type.element, name)] for name in rule.nested_sequence])


def field_index(data_type: t.DataType, name: str | None) -> int:
    assert isinstance(data_type, t.Row)
    return [each.name for each in data_type.fields].index(name or "")


ADD: Mapping[str, Callable[..., Any]] = {
    "sum": of_numbers(lambda a, b: EXACT.add(a, b) if isinstance(b, Decimal) else a + b),
    "product": of_numbers(lambda a, b: EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b),
    "max": of_values(max),
    "min": of_values(min),
    "bool_and": lambda rule, known, value, key: value and known is not False,
    "bool_or": lambda rule, known, value, key: value or known is True,
    "listagg": add_text,
    "collect": add_elements,
    "merge_map": add_entries,
    "merge_map_with_keytime": add_timed_entries,
    "nested_update": add_rows,
    "nested_partial_update": add_rows,
    **dict.fromkeys(BITMAPS, add_numbers),
}


# --- limits


def check_fits(rule: Rule, value: Any, key: str) -> None:
    """Numbers must fit their column when the build ends."""
    match rule.type:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() if value is not None:
            fits = -(2 ** (rule.type.bits - 1)) <= value < 2 ** (rule.type.bits - 1)
        case t.Decimal(precision=precision, scale=scale) if value is not None:
            fits = value.copy_abs() < Decimal(10) ** (precision - scale)
        case _:
            fits = True
    if not fits:
        raise RefusedError(f"{rule.function} of column {rule.name} does not fit {rule.type.sql_name()} {key}")
