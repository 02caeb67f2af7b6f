"""Goal: docs/merging.md shows what happens: every example on it ends in the rows under it, and its tables say what the
rules of a table say.

Method: the examples are read from the page and built for real, each as it is written and once more with all its records
in one build (but for partial updates). A build of a few rows costs as much as one of thousands, so that examples share
tables: columns get the number of their example, the first column of the key tells the examples apart, and all of one
table are built together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyroaring
import pytest

from stelae.builder import build
from stelae.encoding.values import value_codec
from stelae.errors import StelaeError
from stelae.read.open_snapshot import open_snapshot
from stelae.schema.aggregate_functions import FUNCTIONS
from stelae.schema.merge_rules import ColumnRule, merge_rules
from stelae.schema.sql import parse_create_table
from stelae.schema.table_schema import TableSchema
from stelae.schema.types import quote_name
from stelae.snapshot.warehouse import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "merging.md").read_text()
BITMAPS: dict[str, Any] = {"rbm32": pyroaring.BitMap, "rbm64": pyroaring.BitMap64}
SKETCHES = {
    "hll_sketch": ("hll_sketch_agg", "hll_sketch_estimate"),
    "theta_sketch": ("theta_sketch_agg", "theta_sketch_estimate"),
}
EXAMPLE, KIND = "example", "record_kind"

Json = Any


# --- the page


@dataclass(frozen=True)
class Build:
    """A paragraph of an example."""

    targets: list[str] | None
    """The columns that a partial update sets."""
    records: list[tuple[str, list[Json]]]
    """Row kind and values."""
    rows: list[list[Json]]
    """The table afterwards."""
    error: str | None
    """What the error of a refused build says."""


@dataclass(frozen=True)
class Example:
    """A fenced block of the page."""

    name: str
    columns: str
    options: dict[str, str]
    builds: list[Build]

    @property
    def schema(self) -> TableSchema:
        return parse_create_table(create_table(self.columns, "k", self.options))[1]

    @property
    def is_refused(self) -> bool:
        return self.builds[-1].error is not None

    @property
    def is_partial(self) -> bool:
        return any(each.targets is not None for each in self.builds)

    @property
    def retracts(self) -> bool:
        return any(kind in ("-U", "-D") for each in self.builds for kind, _ in each.records)


def examples(page: str) -> Iterator[Example]:
    """The blocks of the page; a name is the heading above and a number."""
    heading, count = "", 0
    for match in re.finditer(r"^#+ ([^\n]*)$|^```merge\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if match.group(1) is not None:
            heading, count = match.group(1).replace("`", ""), 0
            continue
        count += 1
        head, *builds = re.sub(r"\s+# .*$", "", match.group(2), flags=re.MULTILINE).strip().split("\n\n")
        columns, *options = head.splitlines()
        pairs = [option.partition(" = ")[::2] for option in options]
        yield Example(f"{heading} {count}", columns, dict(pairs), [build_of(text) for text in builds])


def build_of(paragraph: str) -> Build:
    lines = [re.split(r"\s+", line, maxsplit=1) for line in paragraph.splitlines()]
    said = {sign: [text for mark, text in lines if mark == sign] for sign in ("set", "=", "!")}
    assert bool(said["="]) != bool(said["!"]), f"rows or an error: {paragraph}"
    return Build(
        targets=said["set"][0].split(", ") if said["set"] else None,
        records=[(kind, values(text)) for kind, text in lines if kind not in said],
        rows=[] if said["="] == ["no row"] else [values(text) for text in said["="]],
        error=" ".join(said["!"]) or None,
    )


def values(text: str) -> list[Json]:
    return list(orjson.loads(f"[{text}]"))


def create_table(columns: str, key: str, options: Mapping[str, str]) -> str:
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED)" + (f" WITH ({given})" if given else "")


EXAMPLES = list(examples(PAGE))
BUILT = [example for example in EXAMPLES if not example.is_refused]


# --- examples that share a table


class Group:
    """Examples in one table."""

    def __init__(self, members: Sequence[Example]) -> None:
        self.members = list(members)
        options = {"bucket": "1"}
        columns = {EXAMPLE: "STRING", "k": "INT"}
        for example in members:
            columns.update({self.renamed(example, c.name): c.type.sql_name() for c in example.schema.value_columns})
            options.update(self.renamed_options(example))
        listed = ", ".join(f"{name} {of}" for name, of in columns.items())
        self.sql = create_table(listed, f"{EXAMPLE}, k", options)

    def renamed(self, example: Example, column: str) -> str:
        """The name of a column in the table. Those that options of the table name are shared."""
        shared = column == "k" or column in names_in(shared_options(example).values())
        return column if shared else f"x{self.members.index(example)}_{column}"

    def renamed_options(self, example: Example) -> dict[str, str]:
        options = shared_options(example)
        for name, value in example.options.items():
            if name in options:
                continue
            _, columns, rest = name.split(".", 2)
            members = self.renamed_all(example, value) if rest == "sequence-group" else value
            options[f"fields.{self.renamed_all(example, columns)}.{rest}"] = members
        return options

    def renamed_all(self, example: Example, columns: str) -> str:
        return ",".join(self.renamed(example, name) for name in columns.split(","))

    def targets(self, index: int) -> list[str] | None:
        """What a build sets. Partial updates are in a group alone."""
        first = self.members[0]
        targets = first.builds[index].targets if first.is_partial else None
        return targets and [self.renamed(first, name) for name in targets]

    def records(self, index: int) -> Iterator[dict[str, Json]]:
        """Records of a build: column to value, among them the example, its form and the row kind."""
        for example in self.members:
            whole = [record for each in example.builds for record in each.records] if index == 0 else []
            parts = example.builds[index].records if index < len(example.builds) else []
            for form, records in (("whole", whole), ("parts", parts)):
                for kind, cells in records:
                    names = [self.renamed(example, column.name) for column in example.schema.columns]
                    cell_of = dict(zip(names, cells, strict=True))
                    yield {**cell_of, KIND: kind, EXAMPLE: f"{form} {self.members.index(example)}"}

    def rows_of(self, example: Example, form: str, rows: Sequence[Mapping[str, Json]]) -> list[list[Json]]:
        mine = [row for row in rows if row[EXAMPLE] == f"{form} {self.members.index(example)}"]
        return [[row[self.renamed(example, column.name)] for column in example.schema.columns] for row in mine]


def groups_of(members: Sequence[Example]) -> list[Group]:
    groups: dict[str, list[Example]] = {}
    for example in members:
        shared = shared_options(example)
        named = {c.name: c.type.sql_name() for c in example.schema.columns if c.name in names_in(shared.values())}
        # A column that can't take values back stops a build in which others have them.
        alone = example.name if example.is_partial else None
        groups.setdefault(repr((sorted(shared.items()), named, example.retracts, alone)), []).append(example)
    return [Group(each) for each in groups.values()]


def shared_options(example: Example) -> dict[str, str]:
    """Options that are not of single columns; groups that one of them names are not, either."""
    options = {name: value for name, value in example.options.items() if name.count(".") < 2 or name[:7] != "fields."}
    named = names_in([options.get("partial-update.remove-record-on-sequence-group", "")])
    return options | {
        name: value
        for name, value in example.options.items()
        if name.endswith(".sequence-group") and named & names_in([name.split(".")[1]])
    }


def names_in(texts: Any) -> set[str]:
    return {name for text in texts for name in text.split(",")}


# --- builds


Outcome = list[list[dict[str, Json]]]
"""The rows of a group's table after each build."""


@pytest.fixture(scope="module")
def outcome(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Example], tuple[Group, Outcome]]:
    groups = groups_of(BUILT)
    done: dict[int, Outcome] = {}

    def of(example: Example) -> tuple[Group, Outcome]:
        index = next(i for i, group in enumerate(groups) if example in group.members)
        if index not in done:
            done[index] = built(spark, tmp_path_factory.mktemp("group"), groups[index])
        return groups[index], done[index]

    return of


def built(spark: SparkSession, folder: Path, group: Group) -> Outcome:
    warehouse = Warehouse(folder / "warehouse")
    table = warehouse.create_table(group.sql)
    tables = []
    for index in range(max(len(example.builds) for example in group.members)):
        build_records(spark, warehouse, table, list(group.records(index)), group.targets(index))
        tables.append(rows_of(spark, table, folder / f"serving-{index}"))
    return tables


def build_records(
    spark: SparkSession,
    warehouse: Warehouse,
    table: Table,
    records: list[dict[str, Json]],
    targets: list[str] | None = None,
) -> None:
    """One build. An id in a bitmap column makes the input column BIGINT."""
    kinds = functions_of(table.schema)
    ids = {name for name in kinds if any(isinstance(record.get(name), int) for record in records)}
    rows = [
        (
            *(input_value(spark, table.schema, kinds, c.name, record.get(c.name)) for c in table.schema.columns),
            record[KIND],
        )
        for record in records
    ]
    columns = [(c.name, "BIGINT" if c.name in ids else c.type.spark()) for c in table.schema.columns]
    ddl = ", ".join(f"{quote_name(name)} {of}" for name, of in [*columns, (KIND, "STRING")])
    frame = spark.createDataFrame(rows, ddl).coalesce(1)
    build(spark, warehouse, "t", frame, row_kind=KIND, target_columns=targets)


def functions_of(schema: TableSchema) -> dict[str, str]:
    """Columns that hold bitmaps and sketches, and which."""
    rules = merge_rules(schema).columns
    names = {rule.column.name: rule.function.name for rule in rules}
    return {name: function for name, function in names.items() if function in BITMAPS or function in SKETCHES}


def input_value(spark: SparkSession, schema: TableSchema, kinds: Mapping[str, str], name: str, value: Json) -> Any:
    if isinstance(value, list) and kinds.get(name) in BITMAPS:
        return BITMAPS[kinds[name]](value).serialize()
    if isinstance(value, list) and name in kinds:
        numbers = ", ".join(f"({number}L)" for number in value)
        return bytes(spark.sql(f"SELECT {SKETCHES[kinds[name]][0]}(n) FROM VALUES {numbers} AS t(n)").collect()[0][0])
    if value is None or name in kinds:
        return value
    codec = value_codec(schema.by_name[name])
    return codec.to_python(codec.from_json(value, name))


def rows_of(spark: SparkSession, table: Table, folder: Path) -> list[dict[str, Json]]:
    """The rows of the newest snapshot as a server gives them, but with bitmaps as lists and sketches as estimates."""
    reader = open_snapshot(table, table.snapshots.read(), folder)
    page = reader.prefix_lookup({}, reader.table.all_columns, limit=10_000)
    kinds = functions_of(table.schema)
    rows = []
    for row in page.rows:
        row = dict(row)
        for name, function in kinds.items():
            codec = value_codec(table.schema.by_name[name])
            if row[name] is None:
                continue
            data = codec.to_python(codec.from_json(row[name], name))
            if function in BITMAPS:
                row[name] = list(BITMAPS[function].deserialize(data))
            else:
                estimate = spark.sql(f"SELECT {SKETCHES[function][1]}(X'{data.hex()}')").collect()[0][0]
                row[name] = round(estimate)
        rows.append(row)
    return rows


# --- examples


@pytest.mark.parametrize("example", BUILT, ids=lambda example: example.name)
def test_examples_end_in_the_rows_under_them(
    outcome: Callable[[Example], tuple[Group, Outcome]], example: Example
) -> None:
    group, tables = outcome(example)
    for each, rows in zip(example.builds, tables, strict=False):
        assert group.rows_of(example, "parts", rows) == each.rows
    if not example.is_partial:
        assert group.rows_of(example, "whole", tables[0]) == example.builds[-1].rows, "all records in one build"


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.is_refused], ids=lambda example: example.name)
def test_refused_examples_say_why(spark: SparkSession, tmp_path: Path, example: Example) -> None:
    (only,) = example.builds
    warehouse = Warehouse(tmp_path)
    table = warehouse.create_table(create_table(example.columns, "k", {"bucket": "1", **example.options}))
    names = [column.name for column in table.schema.columns]
    records = [{**dict(zip(names, cells, strict=True)), KIND: kind} for kind, cells in only.records]
    with pytest.raises(StelaeError) as caught:
        build_records(spark, warehouse, table, records)
    assert (only.error or "no error") in str(caught.value)
    assert table.snapshots.latest_id() is None


def test_every_engine_and_function_has_an_example() -> None:
    engines = {merge_rules(example.schema).engine for example in BUILT}
    assert engines == {"deduplicate", "first-row", "versioned", "partial-update", "aggregation"}
    rules: list[ColumnRule] = [rule for example in BUILT for rule in merge_rules(example.schema).columns]
    assert {rule.function.name for rule in rules} == {function.name for function in FUNCTIONS}


# --- tables


def table_under(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = PAGE.split(f"\n{heading}\n", 1)[1]
    lines = re.search(r"((?:^\|.*\n)+)", section, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.group(1).splitlines()[2:]]


ROW_KINDS = table_under("## Row kinds")


@pytest.mark.parametrize(("table", "on_delete", "on_update_before"), ROW_KINDS)
def test_table_of_row_kinds(table: str, on_delete: str, on_update_before: str) -> None:
    if not table.startswith("with "):
        assert actions_of(options_in(table)) == (on_delete.split(",")[0], on_update_before)
        return
    taken = 0
    for base, base_on_delete, _ in ROW_KINDS:
        if base.startswith("with "):
            continue
        expected = (base_on_delete.split(",")[0] if on_delete == "as above" else on_delete, on_update_before)
        try:
            assert actions_of({**options_in(base), **options_in(table)}) == expected
            taken += 1
        except StelaeError:  # Contradictions are refused: a delete can't remove rows and be ignored.
            continue
    assert taken >= 6


def options_in(text: str) -> dict[str, str]:
    return dict(re.findall(r"`([^`=]+) = ([^`]+)`", text))


def actions_of(options: Mapping[str, str]) -> tuple[str, str]:
    rules = merge_rules(parse_create_table(create_table("k INT, v INT, s INT", "k", options))[1])
    return rules.on_delete, rules.on_update_before


def test_table_of_functions() -> None:
    shown = [
        (*re.findall(r"`(\w+)`", name + others), order, back)
        for name, others, _, order, back in table_under("## Functions")
    ]
    orders = {"commutes": "none", "picks": "picks", "accumulates": "accumulates"}
    assert shown == [
        (function.name, *function.aliases, orders[function.kind], "yes" if function.can_retract else "no")
        for function in FUNCTIONS
    ]


# --- links


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_links_lead_somewhere(link: str) -> None:
    if link.startswith("https://"):
        return
    file, _, anchor = link.partition("#")
    page = (DOCS / (file or "merging.md")).read_text()
    assert not anchor or anchor in {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
