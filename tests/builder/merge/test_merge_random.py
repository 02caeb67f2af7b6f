"""Goal: whatever the table, the records and the cuts into builds, a build leaves the rows that the model has.

Method: each seed makes a table (engine, functions on fitting types, sequence fields or groups, options), a stream of
change records with few keys and many collisions, and cuts. After each build `read` must give what the model has, and so
must a reader as a server has it after the last one. The seed is in the name of the test:

    STELAE_SEEDS=500 pytest tests/builder/merge/test_merge_random.py      500 examples
    STELAE_SEEDS=500:1000 pytest ...                                those seeds
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stelae.builder import build
from stelae.schema.sql import parse_create_table
from stelae.schema.table_schema import Column
from stelae.snapshot.warehouse import Warehouse
from tests.builder.merge import bitmaps
from tests.builder.merge.case_tables import KIND, read_rows, served_rows
from tests.builder.merge.merge_model import RETRACTABLE, Model, Record
from tests.cases import Case, comparable
from tests.length import length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_SEEDS = length(short=4, long=40)
KEYS = 25
RECORDS = 220


def seeds() -> range:
    first, _, last = os.environ.get("STELAE_SEEDS", str(DEFAULT_SEEDS)).rpartition(":")
    return range(int(first or 0), int(last))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds())
def test_builds_agree_with_the_model(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    example = make_example(random.Random(seed))
    case = example.case
    print(case.sql("t"))
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(case.sql("t"))
    columns = table.schema.columns
    model = Model([(c.name, c.type) for c in columns], case.primary_key, case.options)
    for number, batch in enumerate(example.batches):
        targets = case.targets.get(number)
        model.build(batch, targets)
        frame = frame_of(spark, example, batch)
        build(spark, warehouse, "t", frame, row_kind=example.kind_column, target_columns=targets)
        expected = {
            key_of(case, row): row
            for row in (
                [comparable(case, c.name, c.type, v) for c, v in zip(columns, row, strict=True)] for row in model.rows()
            )
        }
        found = {
            key_of(case, row): row
            for row in ([first, *rest] for first, rest in read_rows(spark, warehouse, table, case))
        }
        explain(example, number, expected, found)
    served = [[first, *rest] for first, rest in served_rows(spark, table, tmp_path / "serving", case)]
    assert {key_of(case, row): row for row in served} == expected


def explain(
    example: Example, number: int, expected: dict[tuple[Any, ...], list[Any]], found: dict[tuple[Any, ...], list[Any]]
) -> None:
    """Fail with all that happened to the first key that differs."""
    different = [key for key in sorted({*expected, *found}, key=repr) if expected.get(key) != found.get(key)]
    if not different:
        return
    key = different[0]
    names = [column["name"] for column in example.case.columns]
    lines = [f"{len(different)} keys differ after build {number}, among them {key}"]
    for index, batch in enumerate(example.batches[: number + 1]):
        if index in example.case.targets:
            lines.append(f"  build {index} sets {example.case.targets[index]}")
        for kind, record in batch:
            if tuple(record[name] for name in example.case.primary_key) == key:
                lines.append(f"  build {index}: {kind} {record}")
    shown = [dict(zip(names, rows[key], strict=True)) if key in rows else {} for rows in (expected, found)]
    lines += [
        f"  {name}: expected {shown[0].get(name, '-')!r}, found {shown[1].get(name, '-')!r}"
        for name in names
        if shown[0].get(name) != shown[1].get(name) or not all(shown)
    ]
    pytest.fail("\n".join(lines), pytrace=False)


def key_of(case: Case, row: list[Any]) -> tuple[Any, ...]:
    names = [column["name"] for column in case.columns]
    return tuple(row[names.index(name)] for name in case.primary_key)


def frame_of(spark: SparkSession, example: Example, batch: list[Record]) -> DataFrame:
    """The records as a frame, in their order; often in more partitions than one."""
    case = example.case
    rows: list[tuple[Any, ...]] = []
    for kind, record in batch:
        row = dict(record)
        for name, bitmap in case.encode.items():
            row[name] = None if row[name] is None else bitmaps.encode(spark, bitmap, row[name])
        rows.append((*row.values(), *([kind] if example.kind_column else [])))
    ddl = ", ".join(f"{column.name} {column.type.spark()}" for column in example.columns)
    frame = spark.createDataFrame(rows, ddl + (f", {KIND} STRING" if example.kind_column else ""))
    return frame.coalesce(1) if len(batch) % 2 else frame


# --- examples


@dataclass
class Example:
    case: Case
    columns: tuple[Column, ...]
    batches: list[list[Record]]

    @property
    def kind_column(self) -> str | None:
        return None if "rowkind.field" in self.case.options else KIND


Values = Callable[[random.Random], Any]


@dataclass
class Draft:
    """A table in the making."""

    rng: random.Random
    columns: list[dict[str, str]] = field(default_factory=list)
    values: dict[str, Values] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    encode: dict[str, str] = field(default_factory=dict)
    unordered: list[str] = field(default_factory=list)
    kinds: tuple[str, ...] = ("+I", "+U")
    retracts: bool = False
    """Whether a -U or -D may reach columns."""
    ordered: bool = False
    """Whether records may be late."""

    def add(self, prefix: str, sql: str, values: Values) -> str:
        name = f"{prefix}{len(self.columns)}"
        self.columns.append({"name": name, "type": sql})
        self.values[name] = values
        return name


def nested(values: Values, low: int = 0, high: int = 3) -> Values:
    return lambda rng: [values(rng) for _ in range(rng.randint(low, high))]


def maybe(values: Values, nulls: float = 0.25) -> Values:
    return lambda rng: None if rng.random() < nulls else values(rng)


def one_of(*values: Any) -> Values:
    return lambda rng: rng.choice(values)


def day(rng: random.Random) -> dt.date:
    return dt.date(2026, 1, 1) + dt.timedelta(days=rng.randint(-2, 4))


def wall_clock(rng: random.Random) -> dt.datetime:
    return dt.datetime(2026, 1, 1) + dt.timedelta(milliseconds=rng.randint(-3, 4))  # noqa: DTZ001


def instant(rng: random.Random) -> dt.datetime:
    return dt.datetime(1969, 12, 31, 23, 59, 59, 999_998, tzinfo=dt.UTC) + dt.timedelta(microseconds=rng.randint(0, 5))


LETTERS = one_of("a", "b", "é", "z", "", "B", "ab")
SMALL = one_of(*range(-4, 5))
CENTS = one_of(*(Decimal(cents).scaleb(-2) for cents in (-250, -75, -50, 0, 25, 50, 100, 333)))
HALVES = one_of(-2.5, -0.5, 0.0, 0.5, 1.25, 3.0)
ELEMENTS = maybe(one_of(1, 2, 3), 0.1)

PLAIN: dict[str, Values] = {
    "BOOLEAN": one_of(True, False),
    "TINYINT": SMALL,
    "SMALLINT": SMALL,
    "INT": SMALL,
    "BIGINT": SMALL,
    "FLOAT": HALVES,
    "DOUBLE": HALVES,
    "DECIMAL(10, 2)": CENTS,
    "DECIMAL(30, 2)": CENTS,
    "STRING": LETTERS,
    "VARCHAR(5)": LETTERS,
    "BYTES": one_of(b"", b"\x00", b"\x00\x01", b"\x7f", b"\x80"),
    "DATE": day,
    "TIME(3)": one_of(dt.time(0), dt.time(12, 0, 0, 5000), dt.time(23, 59, 59, 999000)),
    "TIMESTAMP(3)": wall_clock,
    "TIMESTAMP_LTZ(6)": instant,
}
NESTED: dict[str, Values] = {
    "ARRAY<INT>": nested(ELEMENTS),
    "MAP<STRING, INT>": lambda rng: {key: ELEMENTS(rng) for key in rng.sample("abc", rng.randint(0, 2))},
    "ROW<x INT, y STRING>": lambda rng: (ELEMENTS(rng), LETTERS(rng)),
}
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(30, 2)")
INTEGERS = NUMBERS[:4]
SEQUENCES = ("INT", "BIGINT", "STRING", "DATE", "TIMESTAMP(3)", "DECIMAL(10, 2)", "TIMESTAMP_LTZ(6)", "DOUBLE")
POWERS = one_of(1.0, -1.0, 2.0, 0.5)
ROWS = "ARRAY<ROW<id INT, sub STRING, v INT, seq INT>>"


def nested_row(rng: random.Random) -> tuple[Any, ...] | None:
    id_, sub, value, sequence = one_of(1, 2, None), one_of("x", None), ELEMENTS, maybe(one_of(1, 2, 3))
    return None if rng.random() < 0.1 else (id_(rng), sub(rng), value(rng), sequence(rng))


def timed_entries(rng: random.Random) -> dict[str, Any]:
    time = maybe(one_of("1", "2", "10", "3"), 0.15)
    return {
        key: None if rng.random() < 0.15 else (SMALL(rng), time(rng)) for key in rng.sample("abc", rng.randint(0, 3))
    }


def numbers(high: int) -> Values:
    return lambda rng: frozenset(rng.choice((0, 1, 5, 65535, 65536, high)) for _ in range(rng.randint(0, 3)))


def add_column(draft: Draft, function: str | None) -> str:
    """A column on which the function works, with options. None: a plain column."""
    rng = draft.rng
    options: dict[str, str] = {}
    match function:
        case "sum":
            sql = rng.choice(NUMBERS)
            values = PLAIN[sql]
        case "product":
            sql = rng.choice(("INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(30, 2)"))
            values = {
                "INT": one_of(1, -1, 2), "BIGINT": one_of(1, -2, 3), "DOUBLE": POWERS, "FLOAT": POWERS,
                "DECIMAL(30, 2)": one_of(*(Decimal(text) for text in ("0.50", "1.50", "-2.25", "3.33", "1.00"))),
            }[sql]  # fmt: skip
        case "count":
            sql = rng.choice(INTEGERS)
            values = SMALL
        case "max" | "min":
            sql = rng.choice(tuple(PLAIN))
            values = PLAIN[sql]
        case "bool_and" | "bool_or":
            sql, values = "BOOLEAN", PLAIN["BOOLEAN"]
        case "listagg":
            sql, values = "STRING", one_of("a", "b", "a,b", "c", "  ", "")
            if rng.random() < 0.5:
                options["distinct"] = "true"
                values = one_of("a", "b", "a|b", "c|a", " ")
            if rng.random() < 0.5 or options:
                options["list-agg-delimiter"] = "|"
        case "collect":
            sql, values = rng.choice(
                (
                    ("ARRAY<INT>", NESTED["ARRAY<INT>"]),
                    ("ARRAY<STRING>", nested(maybe(LETTERS, 0.1))),
                    ("ARRAY<ROW<x INT, y STRING>>", nested(maybe(NESTED["ROW<x INT, y STRING>"], 0.1))),
                )
            )
            if rng.random() < 0.5:
                options["distinct"] = "true"
        case "merge_map":
            sql, values = rng.choice(
                (
                    ("MAP<STRING, INT>", NESTED["MAP<STRING, INT>"]),
                    ("MAP<INT, ARRAY<INT>>", lambda r: {k: NESTED["ARRAY<INT>"](r) for k in r.sample((1, 2, 3), 2)}),
                )
            )
        case "merge_map_with_keytime":
            sql, values = "MAP<STRING, ROW<v INT, t STRING>>", timed_entries
            if rng.random() < 0.5:
                options["ts-field"] = "t"
        case "nested_update" | "nested_partial_update":
            sql, values = ROWS, nested(nested_row)
            if function == "nested_partial_update" or rng.random() < 0.8:
                options["nested-key"] = rng.choice(("id", "id,sub"))
                options["nested-key-null-strategy"] = rng.choice(("merge", "ignore"))
                if function == "nested_update" and rng.random() < 0.5:
                    options["nested-sequence-field"] = rng.choice(("seq", "seq,v"))
            if function == "nested_update" and not draft.ordered and rng.random() < 0.3:
                options["count-limit"] = "3"
        case "rbm32" | "rbm64":
            sql, values = "BYTES", numbers(2**32 - 1 if function == "rbm32" else 2**63 - 1)
        case _:
            sql = rng.choice((*PLAIN, *NESTED))
            values = {**PLAIN, **NESTED}[sql]
    name = draft.add("c", sql, maybe(values, 0.0 if rng.random() < 0.2 else 0.3))
    if function is not None:
        spelling = rng.choice((function, function, function.upper(), function.replace("_", "-")))
        draft.options[f"fields.{name}.{rng.choice(('aggregate-function', 'agg'))}"] = spelling
        if draft.retracts and (function not in RETRACTABLE or rng.random() < 0.15):
            draft.options[f"fields.{name}.ignore-retract"] = "true"
    draft.options.update({f"fields.{name}.{option}": value for option, value in options.items()})
    if function in ("rbm32", "rbm64"):
        draft.encode[name] = function
    if function in ("collect", "nested_update", "nested_partial_update"):
        draft.unordered.append(name)
    return name


FUNCTIONS = (
    *("sum", "product", "count", "max", "min", "first_value", "last_value", "first_non_null_value"),
    *("last_non_null_value", "listagg", "bool_and", "bool_or", "collect", "merge_map", "merge_map_with_keytime"),
    *("nested_update", "nested_partial_update", "rbm32", "rbm64"),
)


def add_sequence(draft: Draft, prefix: str, count: int) -> list[str]:
    """Sequence columns with few values, so that there are ties, and with nulls."""
    rng = draft.rng
    names = []
    for _ in range(count):
        sql = rng.choice(SEQUENCES)
        names.append(draft.add(prefix, sql, maybe(PLAIN[sql], 0.15)))
    return names


def maybe_sequence_field(draft: Draft, chance: float) -> bool:
    rng = draft.rng
    if rng.random() >= chance:
        return False
    draft.ordered = True
    draft.options["sequence.field"] = ",".join(add_sequence(draft, "s", rng.choice((1, 1, 2))))
    if rng.random() < 0.3:
        draft.options["sequence.field.sort-order"] = "descending"
    if rng.random() < 0.25:
        draft.options["sequence.auto-padding"] = "row-kind-flag"
    return True


def aggregation(draft: Draft) -> None:
    rng = draft.rng
    draft.options[rng.choice(("merge-engine", "merge-engine", "table.merge-engine"))] = "aggregation"
    maybe_sequence_field(draft, 0.6)
    deletes = rng.choice(("none", "retract", "retract", "remove", "remove", "allow", "ignore", "disable"))
    if "table.merge-engine" in draft.options and deletes in ("retract", "remove"):
        deletes = "allow"
    if deletes != "none":
        draft.kinds = ("+I", "+I", "+I", "+U", "-U", "-D")
    match deletes:
        case "retract":
            draft.retracts = True
        case "remove":
            draft.options["aggregation.remove-record-on-delete"] = "true"
        case "allow":
            draft.options["delete.behavior"] = "allow"
            draft.retracts = True
        case "ignore":
            draft.options["ignore-delete"] = "true"
        case "disable":
            draft.options["delete.behavior"] = "disable"
            draft.kinds = ("+I", "+U", "-U")
    functions = [*rng.sample(FUNCTIONS, rng.randint(6, 10)), *rng.choices(FUNCTIONS, k=3), None]
    if deletes == "remove" and rng.random() < 0.4:
        draft.options["ignore-update-before"] = "true"
    elif deletes == "remove" or (draft.retracts and rng.random() < 0.5):
        functions = [*rng.choices(RETRACTABLE, k=8), None]
    for function in functions:
        add_column(draft, function)


def partial_update(draft: Draft) -> None:
    rng = draft.rng
    draft.options["merge-engine"] = rng.choice(("partial-update", "PARTIAL_UPDATE"))
    if rng.random() < 0.6:
        groups(draft)
        return
    maybe_sequence_field(draft, 0.7)
    deletes = rng.choice(("none", "remove", "remove", "ignore"))
    if deletes == "remove":
        draft.options["partial-update.remove-record-on-delete"] = "true"
    elif deletes == "ignore":
        draft.options["ignore-delete"] = "true"
    if deletes != "none":
        draft.kinds = ("+I", "+I", "+U", "-U", "-D")
    for _ in range(rng.randint(3, 7)):
        add_column(draft, None)


def groups(draft: Draft) -> None:
    rng = draft.rng
    if rng.random() < 0.75:
        draft.kinds, draft.retracts = ("+I", "+I", "+I", "+U", "-U", "-D"), True
    sequences = []
    draft.ordered = True
    for _ in range(rng.randint(1, 3)):
        sequence = add_sequence(draft, "g", rng.choice((1, 1, 2)))
        sequences.append(sequence)
        members = [add_column(draft, rng.choice((None, *FUNCTIONS))) for _ in range(rng.randint(1, 5))]
        draft.options[f"fields.{','.join(sequence)}.sequence-group"] = ",".join(members)
    for _ in range(rng.randint(0, 2)):
        add_column(draft, None)
    if draft.retracts and rng.random() < 0.4:
        draft.options["partial-update.remove-record-on-sequence-group"] = rng.choice(sequences)[0]


def one_record(draft: Draft) -> None:
    """Engines that choose one record of a key."""
    rng = draft.rng
    engine = rng.choice(("deduplicate", "deduplicate", "first-row", "versioned"))
    draft.options["merge-engine"] = engine
    if engine == "versioned":
        sql = rng.choice(("INT", "BIGINT", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)"))
        draft.options["table.merge-engine.versioned.ver-column"] = draft.add("v", sql, maybe(PLAIN[sql]))
    elif engine == "first-row":
        draft.options["ignore-delete"] = "true"
    else:
        maybe_sequence_field(draft, 0.8)
    draft.kinds = ("+I", "+U", "-U", "-D")
    for _ in range(3):
        add_column(draft, None)


def make_example(rng: random.Random) -> Example:
    draft = Draft(rng)
    key = [draft.add("k", "INT", lambda rng: rng.randrange(KEYS))]
    if rng.random() < 0.1:
        draft.options["primary-key.nullable"] = "true"
        draft.values[key[0]] = maybe(draft.values[key[0]], 0.05)
    partitions: list[str] = []
    if rng.random() < 0.2:
        key.append(draft.add("p", "STRING NOT NULL", one_of("x", "y")))
        partitions = key[1:]
    rng.choices((aggregation, partial_update, one_record), (12, 9, 3))[0](draft)
    if rng.random() < 0.1:
        draft.options["rowkind.field"] = draft.add("kind", "STRING", one_of(""))
    draft.options["bucket"] = rng.choice(("1", "1", "2"))
    records = make_records(draft, key)
    cuts = sorted(rng.sample(range(1, len(records)), rng.randint(1, 4)))
    batches = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    case = Case(
        "random", draft.columns, key, partitions, draft.options, [], encode=draft.encode,
        unordered_columns=tuple(draft.unordered), targets=make_targets(draft, key, len(batches)),
    )  # fmt: skip
    return Example(case, parse_create_table(case.sql("t"))[1].columns, batches)


def make_targets(draft: Draft, key: list[str], builds: int) -> dict[int, list[str]]:
    """Columns that some builds set. The model knows no late partial updates, and no counts that were emptied."""
    rng = draft.rng
    engine = draft.options.get("merge-engine", "aggregation").lower().replace("_", "-")
    counts = any("count" in value.lower() for name, value in draft.options.items() if name.startswith("fields."))
    empties = {"aggregation.remove-record-on-delete", "delete.behavior"} & {*draft.options}
    if draft.ordered or engine in ("first-row", "versioned") or (counts and empties) or rng.random() < 0.4:
        return {}
    needed = [*key, *(draft.options[name] for name in ("rowkind.field",) if name in draft.options)]
    others = [name for name in draft.values if name not in needed]
    return {
        build: [*needed, *rng.sample(others, rng.randint(1, len(others)))]
        for build in range(builds)
        if rng.random() < 0.6
    }


def make_records(draft: Draft, key: list[str]) -> list[Record]:
    """A stream in which a -U or -D often takes back what an insert of its key brought."""
    rng = draft.rng
    inserted: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    records: list[Record] = []
    for _ in range(RECORDS):
        kind = rng.choice(draft.kinds)
        record = {name: values(rng) for name, values in draft.values.items()}
        of_key = inserted.setdefault(tuple(record[name] for name in key), [])
        if kind in ("+I", "+U"):
            of_key.append(record)
        elif of_key and rng.random() < 0.5:
            again = rng.choice(of_key)
            record = {name: again[name] if name.startswith("c") else value for name, value in record.items()}
        if (column := draft.options.get("rowkind.field")) is not None:
            record[column] = kind
        records.append((kind, record))
    return records
