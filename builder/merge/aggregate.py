"""Records of a key, folded column by column: the engines partial-update and aggregation, as Spark aggregation.

    records: stored rows and changes of one task
      → position and lateness, where the order of records matters     window functions, on one sort
      → one aggregate expression a column, the stored row among the records as what came first
      → one row a key: key columns, stored columns, hidden, records, forgotten

docs/merging.md says what comes out; `stelae/schema/merge_rules.py` has the rules. Everything here is Spark expressions,
evaluated in the JVM; what Spark has no exact function for leaves as a list of inputs, which
`builder/merge/functions.py` folds.

Two orders rule a table. *Arrival* is the order in which records came in: builds, files, rows. *Position* is the merge
order: (sequence, arrival). A record is *late* if one that arrived before it has a greater sequence. All results are
the same however the records are cut into builds:

- functions that commute need no order;
- functions that pick a record take the first or last position; a stored row says in `__stelae_positions` which of its
  values come from another record than its newest one, and enters as one record for each of them;
- functions that accumulate fold in order of arrival, late records underneath; so do sequence groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from stelae.builder.input.change_records import id_column, order_columns
from stelae.builder.merge.functions import fold, is_folded_in_arrow
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.plan.columns import (
    ACTION_COLUMN,
    ALIVE_COLUMN,
    EFFECTIVE_COLUMN,
    ENTRY_COLUMN,
    ENTRY_INDEX_COLUMN,
    FORGOTTEN_COLUMN,
    HIDDEN_COLUMN,
    INSERTS_COLUMN,
    LATE_COLUMN,
    LIFE_COLUMN,
    MINTED_COLUMN,
    NUMBER_COLUMN,
    OF_LAST_LIFE_COLUMN,
    ORDER_COLUMN,
    ORDINAL_COLUMN,
    POSITION_COLUMN,
    RECORDS_COLUMN,
    REMOVE,
    REMOVED_COLUMN,
    RETRACT,
    STORED_COLUMN,
    TOP_COLUMN,
)
from stelae.builder.plan.row_errors import raise_for_row
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, POSITIONS, REMOVAL, ColumnRule, MergeRules, merge_rules
from stelae.schema.table_schema import Column as TableColumn
from stelae.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec


Placing = Callable[["DataFrame"], "DataFrame"]
"""Sends each row to the task of its slot."""


def _late_in(group: int | None) -> str:
    return LATE_COLUMN if group is None else f"{LATE_COLUMN}_{group}"


def exploded(base: DataFrame, schema: TableSchema) -> DataFrame:
    """Stored rows with the column `__stelae_entry`: null for the row itself; and one record more, its entry in it, for
    each value, or piece of a text, that does not come from the row's newest record.
    """
    from pyspark.sql import functions as f

    if not merge_rules(schema).keeps_positions:
        return base
    entry_type = base.schema[POSITIONS].dataType
    entries = f.concat(f.array(f.lit(None)).cast(entry_type), f.coalesce(f.col(POSITIONS), f.array().cast(entry_type)))
    exploded = base.select("*", f.posexplode(entries).alias(ENTRY_INDEX_COLUMN, ENTRY_COLUMN))
    is_entry, is_removal = (
        f.col(ENTRY_COLUMN).isNotNull(),
        f.coalesce(f.col(f"{ENTRY_COLUMN}.id") == REMOVAL, f.lit(False)),
    )
    # What there is came after the last removal, in the order of its entries, the row itself last.
    order = (
        f.when(is_removal, f.lit(-(2**62)))
        .when(is_entry, f.col(ENTRY_INDEX_COLUMN) - f.lit(2**40))
        .otherwise(f.col(ORDER_COLUMN))
    )
    action = f.when(is_removal, f.lit(REMOVE)).otherwise(f.col(ACTION_COLUMN)).cast("tinyint")
    return exploded.withColumn(ORDER_COLUMN, order).withColumn(ACTION_COLUMN, action).drop(ENTRY_INDEX_COLUMN)


def without_entries(changes: DataFrame, base: DataFrame | None) -> DataFrame:
    """Changes with the columns that `exploded` adds to stored rows."""
    from pyspark.sql import functions as f

    if base is None or ENTRY_COLUMN not in base.columns:
        return changes
    return changes.withColumn(ENTRY_COLUMN, f.lit(None).cast(base.schema[ENTRY_COLUMN].dataType))


def merged(records: DataFrame, plan: BuildPlan, placed: Placing, *, retracts: bool) -> DataFrame:
    """One row a key, on the task of its slot. `retracts`: there may be -U and -D among the records."""
    return _Merge(records, plan, retracts).rows(placed)


def patched(records: DataFrame, plan: BuildPlan) -> DataFrame:
    """One row a key of a partial update with the engine deduplicate, as `merged` gives them.

    The columns that records set are those of the last record, null after a delete; the others are the stored row's. A
    delete removes a row that has nothing else.
    """
    from pyspark.sql import functions as f

    merge = _Merge(records, plan, retracts=True)
    schema, rules = plan.schema, plan.rules
    targets = plan.targets or frozenset(schema.column_names)
    names = {column.name: t.quote_name(column.name) for column in schema.value_columns}
    sequence = {column.name for column in rules.sequence}
    fields = []
    for column in schema.value_columns:
        if column.name in targets:
            kept = column.name in sequence
            value = f.col(names[column.name])
            fields.append((value if kept else f.when(f.col(ACTION_COLUMN) == 0, value)).alias(f"v{column.id}"))
    fields += [
        merge.is_base.alias("base"),
        (f.col(ACTION_COLUMN) == 0).alias("insert"),
        f.col(HIDDEN_COLUMN).alias("hidden"),
    ]
    if rules.sequence:
        records = records.withColumn(POSITION_COLUMN, f.row_number().over(merge.window(*merge.merge_order())))
    order = f.col(POSITION_COLUMN) if rules.sequence else merge.arrival_value()
    others = [f.col(names[c.name]).alias(f"v{c.id}") for c in schema.value_columns if c.name not in targets]
    stored = f.max_by(
        f.struct(*others, f.lit(True).alias("shown")), f.when(merge.is_base & ~f.col(HIDDEN_COLUMN), order)
    )
    rows = records.groupBy(*merge.keys, *merge.tasks).agg(
        f.max_by(f.struct(*fields), order).alias(TOP_COLUMN),
        stored.alias(STORED_COLUMN),
        f.count(f.lit(1)).alias(RECORDS_COLUMN),
        *([f.max(HIDDEN_SINCE).alias(HIDDEN_SINCE)] if HIDDEN_SINCE in records.columns else []),
    )
    # Its id alone keeps no row.
    rest = [
        f.col(f"{STORED_COLUMN}.v{c.id}").isNotNull()
        for c in schema.value_columns
        if c.name not in targets and c != schema.auto_increment
    ]
    top = f.col(TOP_COLUMN)
    by_record = top.getField("insert") | (f.col(STORED_COLUMN).isNotNull() & reduce(or_, rest, f.lit(False)))
    shown = f.when(top.getField("base"), ~top.getField("hidden")).otherwise(by_record)
    values = [
        f.when(
            shown | f.lit(c.name in sequence), f.col(f"{TOP_COLUMN if c.name in targets else STORED_COLUMN}.v{c.id}")
        )
        for c in schema.value_columns
    ]
    if HIDDEN_SINCE in records.columns:
        values.append(f.when(~shown, f.when(top.getField("base"), f.col(HIDDEN_SINCE)).otherwise(f.lit(plan.now_ms))))
    forgotten = f.lit(False) if rules.sequence else ~shown
    return rows.select(
        ORDINAL_COLUMN, *(column.alias(f"_{i}") for i, column in enumerate([*merge.keys, *values])),
        (~shown).alias(HIDDEN_COLUMN), f.col(RECORDS_COLUMN), forgotten.alias(FORGOTTEN_COLUMN),
    )  # fmt: skip


@dataclass
class _Merge:
    """One merge being planned. Runs on the driver, and only makes expressions."""

    records: DataFrame
    plan: BuildPlan
    retracts: bool

    def __post_init__(self) -> None:
        from pyspark.sql import functions as f

        self.schema = self.plan.schema
        self.rules: MergeRules = merge_rules(self.schema)
        self.order = order_columns(self.records)
        self.to_fold: set[int] = set()
        """Ids of columns whose aggregate is the list of their inputs."""
        self.entries = ENTRY_COLUMN in self.records.columns
        self.keys = [f.col(t.quote_name(column.name)) for column in self.schema.key_columns]
        self.partition = [f.col(t.quote_name(column.name)) for column in self.schema.partition_columns]
        self.tasks = [f.col(name) for name in self.plan.task_columns]
        self.is_base = f.col(self.order[0]) < 0
        self.removes = self.retracts and "remove" in (self.rules.on_delete, self.rules.on_update_before)
        keeps_hidden = self.rules.keeps_tombstones or self.removes
        self.may_be_hidden = keeps_hidden and (self.retracts or self.plan.base_hidden_rows > 0)
        self.removed_before = self.entries and "remove" in (self.rules.on_delete, self.rules.on_update_before)
        self.whole = f.col(ENTRY_COLUMN).isNull() if self.entries else f.lit(True)

    # --- the plan

    def rows(self, placed: Placing) -> DataFrame:
        if self.needs_neighbours or self.gathers:
            return self.finished(self.aggregated(self.with_order(placed(self.records)), self.tasks))
        # Spark aggregates on the tasks that read, then moves what is left; that few rows move once more is cheap.
        return self.finished(placed(self.aggregated(self.records, [])))

    @property
    def needs_neighbours(self) -> bool:
        """Whether a record means something else if others of its key came before it or will come."""
        of_sequence = bool(self.rules.sequence) and (self.rules.descending or self.accumulates(None))
        of_groups = any(self.accumulates(index) for index in range(len(self.rules.groups)))
        return of_sequence or of_groups or self.removes or self.removed_before

    @property
    def gathers(self) -> bool:
        """Whether inputs are kept as lists, which do not get smaller by being put together early."""
        return any(rule.function.kind == "accumulates" or is_folded_in_arrow(rule) for rule in self.rules.columns)

    def with_order(self, records: DataFrame) -> DataFrame:
        """Numbers, lateness and removals, as far as anything depends on them."""
        from pyspark.sql import functions as f

        named = self.rules.removal_group
        if self.rules.sequence and self.needs_neighbours:
            records = records.withColumn(POSITION_COLUMN, f.row_number().over(self.window(*self.merge_order())))
            if self.accumulates(None) or self.removes:
                records = self.with_lateness(records, None, f.col(POSITION_COLUMN), f.lit(True))
        if self.removes and named is not None:
            records = self.with_lateness(records, named, self.group_sequence(named), self.takes_part(named))
        records = self.with_removals(records)
        for index in range(len(self.rules.groups)):
            if self.accumulates(index) and _late_in(index) not in records.columns:
                records = self.with_lateness(records, index, self.group_sequence(index), self.takes_part(index))
        return records

    def accumulates(self, group: int | None) -> bool:
        """Whether some column, ordered by this group or by the table's sequence, depends on which records are late."""
        picking = group is not None
        return any(
            rule.group == group and (rule.function.kind == "accumulates" or (picking and not self.is_plain(rule)))
            for rule in self.rules.columns
            if rule.function.kind != "commutes" and not self.rules.keeps_pieces(rule)
        )

    def is_plain(self, rule: ColumnRule) -> bool:
        """A column of a group that is what the newest record of the group has."""
        return rule.function.name == "last_value" and (rule.takes_back or not self.retracts)

    def with_lateness(self, records: DataFrame, group: int | None, sequence: Column, takes_part: Column) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        arrival = self.window(*self.arrival())
        lives = [f.col(LIFE_COLUMN)] if LIFE_COLUMN in records.columns else []
        before = self.window(*self.arrival(), lives=lives).rowsBetween(Window.unboundedPreceding, -1)
        newest = f.max(f.when(takes_part, sequence)).over(before)
        if NUMBER_COLUMN not in records.columns:
            records = records.withColumn(NUMBER_COLUMN, f.row_number().over(arrival))
        late = takes_part & f.coalesce(sequence < newest, f.lit(False))
        return records.withColumn(_late_in(group), late)

    def with_removals(self, records: DataFrame) -> DataFrame:
        """The column `__stelae_alive`: false for records that were there before the key's last removal."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        removes = f.col(ACTION_COLUMN) == REMOVE
        if not self.removes and not self.removed_before:
            return records
        if self.rules.removal_group is not None:
            group = self.rules.removal_group
            effective = removes & self.takes_part(group) & ~f.col(_late_in(group))
            # Groups start anew with each removal, from the sequences of the record that removes.
            so_far = self.window(*self.arrival()).rowsBetween(Window.unboundedPreceding, Window.currentRow)
            records = records.withColumn(EFFECTIVE_COLUMN, effective)
            records = records.withColumn(LIFE_COLUMN, f.sum(f.col(EFFECTIVE_COLUMN).cast("int")).over(so_far))
            last = f.max(LIFE_COLUMN).over(self.window())
            records = records.withColumn(OF_LAST_LIFE_COLUMN, f.col(LIFE_COLUMN) == last)
            return records.withColumn(ALIVE_COLUMN, f.col(OF_LAST_LIFE_COLUMN) & ~f.col(EFFECTIVE_COLUMN))
        if self.rules.sequence:
            late = f.col(LATE_COLUMN) if LATE_COLUMN in records.columns else f.lit(False)
            effective = removes & (~late | ~self.whole)
            when = f.col(POSITION_COLUMN)
        else:
            effective = removes
            when = self.arrival_value()
        records = records.withColumn(EFFECTIVE_COLUMN, effective)
        last = f.max(f.when(f.col(EFFECTIVE_COLUMN), when)).over(self.window())
        return records.withColumn(ALIVE_COLUMN, f.coalesce(when > last, f.lit(True)))

    def aggregated(self, records: DataFrame, tasks: Sequence[Column]) -> DataFrame:
        """One row a key; `tasks` are the columns of the task that records are on, if they have been sent there."""
        from pyspark.sql import functions as f

        counted = f.lit(1)
        for text, hint, refused in self.refusals(records):
            counted = f.when(refused, raise_for_row(text, f.lit(""), self.schema, hint=hint).cast("int")).otherwise(
                counted
            )
        totals = [f.sum(f.when(self.whole, counted).otherwise(f.lit(0))).alias(RECORDS_COLUMN)]
        if self.may_be_hidden:
            # A removal by a partial update leaves what it does not set, if there is any of it.
            rest = [f.col(t.quote_name(r.column.name)).isNotNull() for r in self.rules.columns if not self.is_set(r)]
            stays = self.is_base & ~f.col(HIDDEN_COLUMN) & reduce(or_, rest) if rest else f.lit(False)
            totals.append(f.coalesce(f.max(self.shows(records) | stays), f.lit(False)).alias(INSERTS_COLUMN))
            totals.append(f.max(f.when(self.alive(records) & self.whole, 1)).isNull().alias(FORGOTTEN_COLUMN))
        if self.schema.auto_increment is not None:
            totals.append(f.max(t.quote_name(self.schema.auto_increment.name)).alias(MINTED_COLUMN))
        if self.rules.sequence:
            totals.append(f.max(f.when(self.whole, self.position(records))).alias(TOP_COLUMN))
        if self.keeps_removal(records):
            totals.append(f.max(f.when(f.col(EFFECTIVE_COLUMN), self.position(records))).alias(REMOVED_COLUMN))
        if HIDDEN_SINCE in records.columns:
            since = f.when(self.is_base & f.col(HIDDEN_COLUMN) & self.whole, f.col(HIDDEN_SINCE))
            totals.append(f.when(f.max(~self.is_base), f.lit(None)).otherwise(f.max(since)).alias(HIDDEN_SINCE))
        totals += [self.group_winner(records, i).alias(f"{TOP_COLUMN}_{i}") for i in range(len(self.rules.groups))]
        values = [
            self.aggregate(records, rule).alias(_result(number))
            for number, rule in enumerate(self.rules.columns)
            if not (rule.group is not None and self.is_plain(rule))
        ]
        # Keys first: Spark sorts by the first column, and looks at others only where it is equal.
        return records.groupBy(*self.keys, *self.partition, *tasks).agg(*totals, *values)

    def finished(self, rows: DataFrame) -> DataFrame:
        """Columns in the writer's order, results in the types of their columns."""
        from pyspark.sql import functions as f

        hidden = ~f.col(INSERTS_COLUMN) if self.may_be_hidden else f.lit(False)
        forgets = self.may_be_hidden and not self.rules.sequence and self.rules.removal_group is None
        forgotten = hidden & f.col(FORGOTTEN_COLUMN) if forgets else f.lit(False)
        values: dict[str, Column] = {}
        minted = self.schema.auto_increment
        if minted is not None:
            values[minted.name] = f.when(~hidden, f.col(MINTED_COLUMN))
        for i, column in enumerate(self.rules.sequence):
            values[column.name] = f.col(f"{TOP_COLUMN}.s{i}")
        for index, group in enumerate(self.rules.groups):
            for i, column in enumerate(group.sequence):
                values[column.name] = f.col(f"{TOP_COLUMN}_{index}.s{i}")
        for number, rule in enumerate(self.rules.columns):
            if rule.group is not None and self.is_plain(rule):
                values[rule.column.name] = f.col(f"{TOP_COLUMN}_{rule.group}.v{number}")
            else:
                values[rule.column.name] = self.result(f.col(_result(number)), rule)
        state = []
        if self.rules.keeps_positions:
            state.append(self.positions(rows))
        if self.schema.options.tombstone_time_retained_ms is not None:
            since = f.coalesce(f.col(HIDDEN_SINCE), f.lit(self.plan.now_ms)) if HIDDEN_SINCE in rows.columns else f.lit(
                self.plan.now_ms)  # fmt: skip
            state.append(f.when(hidden, since).cast("bigint"))
        for column in self.schema.value_columns:
            if not column.type.nullable and column != minted and not is_folded_later(column, self.rules):
                text = f"the merge leaves null in NOT NULL column {column.name}"
                error = raise_for_row(text, f.lit(""), self.schema, hint="declare it without NOT NULL")
                value = values[column.name]
                values[column.name] = f.when(value.isNull() & ~hidden, error.cast(column.type.spark())).otherwise(value)
        columns = [*self.keys, *(values[column.name] for column in self.schema.value_columns), *state]
        return rows.select(
            ORDINAL_COLUMN, *(column.alias(f"_{i}") for i, column in enumerate(columns)), hidden.alias(HIDDEN_COLUMN),
            f.col(RECORDS_COLUMN).cast("bigint").alias(RECORDS_COLUMN), forgotten.alias(FORGOTTEN_COLUMN),
        )  # fmt: skip

    # --- order

    def window(self, *order: Column, lives: Sequence[Column] = ()) -> WindowSpec:
        from pyspark.sql import Window

        spec = Window.partitionBy(*self.keys, *self.tasks, *lives)
        return spec.orderBy(*order) if order else spec

    def arrival(self) -> list[Column]:
        from pyspark.sql import functions as f

        # A stored row comes after the entries that it is exploded into.
        last = [f.col(ENTRY_COLUMN).isNull()] if self.entries else []
        return [*(f.col(name) for name in self.order), *last]

    def arrival_value(self) -> Column:
        """Arrival as one value that can be compared."""
        from pyspark.sql import functions as f

        return f.col(self.order[0]) if len(self.order) == 1 else f.struct(*(f.col(name) for name in self.order))

    def merge_order(self) -> list[Column]:
        from pyspark.sql import functions as f

        order = [c.desc_nulls_first() if self.rules.descending else c.asc_nulls_first() for c in self.sequence()]
        if self.rules.retracts_first:
            order.append((f.col(ACTION_COLUMN) == 0).asc())
        return [*order, *self.arrival()]

    def position(self, records: DataFrame) -> Column:
        """Position as a struct that compares as such. It has the sequence of the record in it."""
        from pyspark.sql import functions as f

        if POSITION_COLUMN in records.columns:
            return f.struct(f.col(POSITION_COLUMN).alias("number"), *self.sequence_fields())
        retracts = [(f.col(ACTION_COLUMN) == 0).alias("inserts")] if self.rules.retracts_first else []
        arrival = [column.alias(f"a{i}") for i, column in enumerate(self.arrival())]
        return f.struct(*self.sequence_fields(), *retracts, *arrival)

    def sequence_fields(self) -> list[Column]:
        """The sequence of a record, as fields of a struct."""
        return [column.alias(f"s{i}") for i, column in enumerate(self.sequence())]

    def sequence(self) -> list[Column]:
        """The sequence of a record: that of its entry, if it has one."""
        from pyspark.sql import functions as f

        columns = []
        for i, column in enumerate(self.rules.sequence):
            own = f.col(t.quote_name(column.name))
            if self.entries:
                own = f.when(f.col(ENTRY_COLUMN).isNotNull(), f.col(f"{ENTRY_COLUMN}.s{i}")).otherwise(own)
            columns.append(own)
        return columns

    def group_sequence(self, index: int) -> Column:
        from pyspark.sql import functions as f

        group = self.rules.groups[index]
        return f.struct(*(f.col(t.quote_name(c.name)).alias(f"s{i}") for i, c in enumerate(group.sequence)))

    def takes_part(self, index: int | None) -> Column:
        """Whether a record says anything about a group: its sequence is not null altogether."""
        from pyspark.sql import functions as f

        if index is None:
            return f.lit(True)
        return reduce(or_, (f.col(t.quote_name(c.name)).isNotNull() for c in self.rules.groups[index].sequence))

    def effective_order(self, rule: ColumnRule) -> Column:
        """Order of arrival, late records before all others: where a record lands in a fold."""
        from pyspark.sql import functions as f

        late = _late_in(rule.group)
        if rule.group is None and not self.rules.sequence:
            return self.arrival_value()
        return f.when(f.col(late), -f.col(NUMBER_COLUMN)).otherwise(f.col(NUMBER_COLUMN))

    # --- which records count

    def alive(self, records: DataFrame) -> Column:
        from pyspark.sql import functions as f

        return f.col(ALIVE_COLUMN) if ALIVE_COLUMN in records.columns else f.lit(True)

    def shows(self, records: DataFrame) -> Column:
        """Whether a record makes the row visible."""
        from pyspark.sql import functions as f

        shows = (
            self.alive(records)
            & self.whole
            & f.when(self.is_base, ~f.col(HIDDEN_COLUMN)).otherwise(f.col(ACTION_COLUMN) == 0)
        )
        group = self.rules.removal_group
        if group is not None and _late_in(group) in records.columns:
            shows &= self.is_base | ~f.col(_late_in(group))
        return shows

    def keeps_removal(self, records: DataFrame) -> bool:
        return self.rules.keeps_positions and EFFECTIVE_COLUMN in records.columns

    def is_retract(self, records: DataFrame) -> Column:
        """Whether a record takes values back; so does a -D that came too late to remove its row."""
        from pyspark.sql import functions as f

        retract = f.col(ACTION_COLUMN) == RETRACT
        if self.rules.removal_group is not None and EFFECTIVE_COLUMN in records.columns:
            retract |= (f.col(ACTION_COLUMN) == REMOVE) & ~f.col(EFFECTIVE_COLUMN)
        return retract

    def taking_part(self, records: DataFrame, rule: ColumnRule) -> Column:
        """Whether a record counts for a column at all."""
        from pyspark.sql import functions as f

        conditions = [self.takes_part(rule.group)]
        if not self.is_set(rule):
            conditions.append(self.is_base)
        elif ALIVE_COLUMN in records.columns:
            conditions.append(f.col(ALIVE_COLUMN))
        if self.retracts or self.removed_before:
            retract = self.is_retract(records)
            insert = f.col(ACTION_COLUMN) == 0
            conditions.append(insert | retract if rule.explicit and rule.takes_back else insert)
        if self.entries:
            of_row = ~f.coalesce(f.array_contains(f.col(f"{POSITIONS}.id"), rule.column.id), f.lit(False))
            of_entry = f.col(f"{ENTRY_COLUMN}.id") == rule.column.id
            exact = rule.function.kind == "picks" or self.rules.keeps_pieces(rule)
            conditions.append(f.when(self.whole, of_row).otherwise(of_entry) if exact else self.whole)
        return reduce(and_, conditions)

    def is_set(self, rule: ColumnRule) -> bool:
        """Whether the records of this build set the column. To partial-update a column that is not set is null."""
        targets = self.plan.targets
        return targets is None or rule.column.name in targets or self.rules.engine == "partial-update"

    def refusals(self, records: DataFrame) -> list[tuple[str, str, Column]]:
        """Text, hint and condition of records that a column can't take."""
        takes_back = "retract" in (self.rules.on_delete, self.rules.on_update_before)
        if not self.retracts or not (takes_back or self.rules.removal_group is not None):
            return []
        found = []
        for rule in self.rules.columns:
            if rule.explicit and rule.takes_back and not rule.function.can_retract and self.is_set(rule):
                name = rule.column.name
                found.append((
                    f"a -U or -D for column {name}, whose function {rule.function.name} can't take a value back,",
                    f"'fields.{name}.ignore-retract' = 'true' lets the column be; 'ignore-delete' drops -U and -D",
                    ~self.is_base & self.is_retract(records) & self.takes_part(rule.group),
                ))  # fmt: skip
        return found

    # --- one expression a column

    def group_winner(self, records: DataFrame, index: int) -> Column:
        """Sequence and plain columns of the newest record of a group."""
        from pyspark.sql import functions as f

        order = [f.col(t.quote_name(c.name)).alias(f"s{i}") for i, c in enumerate(self.rules.groups[index].sequence)]
        order += [column.alias(f"a{i}") for i, column in enumerate(self.arrival())]
        values, comparable = [], True
        for number, rule in enumerate(self.rules.columns):
            if rule.group == index and self.is_plain(rule):
                value = f.col(t.quote_name(rule.column.name))
                if self.retracts:
                    value = f.when(self.alive(records) & (f.col(ACTION_COLUMN) == 0), value)
                values.append(value.alias(f"v{number}"))
                comparable &= _is_comparable(rule.column.type)
        part = self.takes_part(index)
        if OF_LAST_LIFE_COLUMN in records.columns:
            part &= f.col(OF_LAST_LIFE_COLUMN)
        return _extreme(f.max, order, values, part, comparable=comparable)

    def aggregate(self, records: DataFrame, rule: ColumnRule) -> Column:
        """The aggregate expression of one column; `result` finishes it."""
        match rule.function.kind:
            case "commutes":
                return self.commuting(records, rule)
            case "picks":
                return self.picked(records, rule)
            case _:
                return self.accumulated(records, rule)

    def commuting(self, records: DataFrame, rule: ColumnRule) -> Column:
        from pyspark.sql import functions as f

        value = f.col(t.quote_name(rule.column.name))
        part = self.taking_part(records, rule)
        retract = self.is_retract(records) if self.retracts else f.lit(False)
        counted = f.when(part, value)
        match rule.function.name:
            case "sum":
                return _sum(counted, retract if self.retracts else None, rule.column.type)
            case "count":
                one = f.when(retract, f.lit(-1)).otherwise(f.lit(1)) if self.retracts else f.lit(1)
                change = f.when(part & value.isNotNull(), one).otherwise(f.lit(0))
                return f.sum(f.when(self.is_base, f.coalesce(counted, f.lit(0))).otherwise(change).cast("bigint"))
            case "max":
                return f.max(counted)
            case "min":
                return f.min(counted)
            case "bool_and":
                return f.bool_and(counted)
            case "bool_or":
                return f.bool_or(counted)
            case "hll_sketch":
                return f.when(f.max(counted.isNotNull()), f.hll_union_agg(counted, True))
            case "theta_sketch":
                return f.when(f.max(counted.isNotNull()), f.theta_union_agg(counted))
            case _:  # rbm32, rbm64
                number = id_column(rule.column)
                ids = f.when(part, f.col(number)) if number in records.columns else f.lit(None).cast("bigint")
                return f.struct(f.collect_list(counted).alias("bitmaps"), f.collect_list(ids).alias("ids"))

    def picked(self, records: DataFrame, rule: ColumnRule) -> Column:
        from pyspark.sql import functions as f

        name = rule.function.name
        value = f.col(t.quote_name(rule.column.name))
        part = self.taking_part(records, rule)
        if rule.group is not None:
            if name == "last_value":  # With ignore-retract: the others are what the newest record has.
                return f.max_by(value, f.when(part & ~f.col(_late_in(rule.group)), f.col(NUMBER_COLUMN)))
            if name == "last_non_null_value" and self.retracts and rule.takes_back:
                return self.folded(records, rule)
            order = self.effective_order(rule)
        else:
            order = self.arrival_value()
        if name.endswith("non_null_value"):
            is_entry = ~self.whole if self.entries else f.lit(False)
            part &= value.isNotNull() | is_entry
        elif self.may_be_hidden and (name == "first_value" or not rule.takes_back):
            # What was never set is null in a hidden row, too.
            part &= ~(self.is_base & f.col(HIDDEN_COLUMN))
        if self.retracts and rule.takes_back and name.startswith("last"):
            value = f.when(self.is_retract(records), f.lit(None)).otherwise(value)
        first = name.startswith("first")
        if rule.group is None and self.rules.sequence:
            position = self.position(records).alias("position")
            by, comparable = f.min if first else f.max, _is_comparable(rule.column.type)
            return _extreme(by, [position], [value.alias("v")], part, comparable=comparable)
        return (f.min_by if first else f.max_by)(value, f.when(part, order))

    def accumulated(self, records: DataFrame, rule: ColumnRule) -> Column:
        from pyspark.sql import functions as f

        value = f.col(t.quote_name(rule.column.name))
        if self.rules.keeps_pieces(rule):
            return self.pieces(records, rule)
        part = self.taking_part(records, rule) & value.isNotNull()
        order = self.effective_order(rule)
        match rule.function.name:
            case "listagg":
                item = f.struct(order.alias("o"), value.alias("v"))
                return _joined(f.array_sort(f.collect_list(f.when(part & _is_text(value), item))), rule)
            case "collect" if not self.retracts:
                arrays = _sorted(f.collect_list(f.when(part, f.struct(order.alias("o"), value.alias("v")))), rule)
                flat = f.flatten(f.transform(arrays, lambda x: x.getField("v")))
                elements = f.array_distinct(flat) if rule.options.distinct else flat
                return f.when(f.size(arrays) > 0, elements)
            case _:
                return self.folded(records, rule)

    def pieces(self, records: DataFrame, rule: ColumnRule) -> Column:
        """Pieces of text with their sequences, in merge order."""
        from pyspark.sql import functions as f

        value = f.col(t.quote_name(rule.column.name))
        if self.entries:
            value = f.when(self.whole, value).otherwise(f.col(f"{ENTRY_COLUMN}.text"))
        item = f.struct(self.position(records).alias("o"), value.alias("v"))
        return f.array_sort(f.collect_list(f.when(self.taking_part(records, rule) & _is_text(value), item)))

    def folded(self, records: DataFrame, rule: ColumnRule) -> Column:
        """Inputs as a list in order of arrival, to be folded one by one."""
        from pyspark.sql import functions as f

        value = f.col(t.quote_name(rule.column.name))
        part = self.taking_part(records, rule) & value.isNotNull()
        number = f.col(NUMBER_COLUMN) if _late_in(rule.group) in records.columns else self.arrival_value()
        late = f.col(_late_in(rule.group)) if _late_in(rule.group) in records.columns else f.lit(False)
        retract = self.is_retract(records) & ~self.is_base if self.retracts else f.lit(False)
        item = f.struct(number.alias("o"), late.alias("late"), retract.alias("retract"), value.alias("v"))
        items = _sorted(f.collect_list(f.when(part, item)), rule)
        if is_folded_in_arrow(rule):
            return f.transform(
                items, lambda x: f.struct(x.getField("retract").alias("retract"), x.getField("v").alias("v"))
            )
        self.to_fold.add(rule.column.id)
        return items

    def result(self, value: Column, rule: ColumnRule) -> Column:
        """The aggregate in its column's type; what does not fit stops the build."""
        from pyspark.sql import functions as f

        if rule.column.id in self.to_fold:
            return fold(value, rule, self.schema)
        if self.rules.keeps_pieces(rule):
            return _joined(value, rule)
        if rule.function.kind == "picks" and rule.group is None and self.rules.sequence:
            return value.getField("v")
        if rule.function.name in ("sum", "count"):
            wide = _sum_total(value, rule.column.type) if rule.function.name == "sum" else value
            text = f"{rule.function.name} does not fit column {rule.column.name} {rule.column.type.sql_name()}: "
            target = rule.column.type.spark()
            narrow = wide.try_cast(target)
            shown = f.coalesce(wide.cast("string"), f.lit("more than 38 digits"))
            error = raise_for_row(text, shown, self.schema, hint="a wider type has room for it").cast(target)
            any_value = value.getField("any") if isinstance(rule.column.type, t.Decimal) else wide.isNotNull()
            checked = f.when(any_value & narrow.isNull(), error).otherwise(narrow)
            if rule.function.name == "sum" and isinstance(rule.column.type, t.BigInt):
                high, low = value.getField("high"), value.getField("low")
                small = (f.abs(high) < 2**30) & (f.abs(low) < 2**62)
                return f.when(small, f.shiftleft(high, 32) + low).otherwise(checked)
            return checked
        return value

    def positions(self, rows: DataFrame) -> Column:
        """The state that orders values of other records than the newest: their sequences, and pieces of text."""
        from pyspark.sql import functions as f

        entries, pieces = [], []
        top = f.col(TOP_COLUMN)
        for number, rule in enumerate(self.rules.columns):
            if self.rules.keeps_pieces(rule):
                pieces.append(self.entries_of_pieces(f.col(_result(number)), rule, top))
            if rule.function.kind != "picks":
                continue
            picked = f.col(_result(number))
            position = picked.getField("position")
            elsewhere = position != top
            if rule.function.name.endswith("non_null_value"):
                elsewhere |= picked.getField("v").isNull()
            entries.append(f.when(picked.isNotNull() & elsewhere, self.entry(rule.column.id, position)))
        if REMOVED_COLUMN in rows.columns:
            entries.append(f.when(f.col(REMOVED_COLUMN).isNotNull(), self.entry(REMOVAL, f.col(REMOVED_COLUMN))))
        kept = f.filter(f.array(*entries), lambda entry: entry.isNotNull()) if entries else None
        arrays = [*pieces, *([] if kept is None else [kept])]
        if not arrays:
            return f.lit(None)
        state = f.concat(*arrays)
        return f.when(f.size(state) > 0, state)

    def entries_of_pieces(self, pieces: Column, rule: ColumnRule, top: Column) -> Column:
        """None for one piece alone that is the newest record's: its text and sequence are the row's."""
        from pyspark.sql import functions as f

        of_row = (f.size(pieces) == 1) & (f.try_element_at(pieces, f.lit(1)).getField("o") == top)
        entries = f.transform(pieces, lambda item: self.entry(rule.column.id, item.getField("o"), item.getField("v")))
        return f.when(of_row, f.slice(entries, f.lit(1), f.lit(0))).otherwise(entries)

    def entry(self, column_id: int, sequence: Column, text: Column | None = None) -> Column:
        """One entry of the state; `sequence` is a struct with the sequence of a record."""
        from pyspark.sql import functions as f

        fields = [sequence.getField(f"s{i}").alias(f"s{i}") for i in range(len(self.rules.sequence))]
        fields.append((f.lit(None).cast("string") if text is None else text).alias("text"))
        return f.struct(f.lit(column_id).alias("id"), *fields)


def is_folded_later(column: TableColumn, rules: MergeRules) -> bool:
    """Whether the writer makes the column's values: then it finds the nulls as well."""
    return any(rule.column.id == column.id and is_folded_in_arrow(rule) for rule in rules.columns)


def _extreme(
    function: Callable[[Column], Column],
    order: Sequence[Column],
    values: Sequence[Column],
    part: Column,
    *,
    comparable: bool,
) -> Column:
    """Order and values of the record with the greatest or the least order, as one struct, by `max` or `min`.

    No two records have the same order, so that Spark may as well compare values, which saves a copy of the order.
    """
    from pyspark.sql import functions as f

    if comparable:
        return function(f.when(part, f.struct(*order, *values)))
    by = f.max_by if function is f.max else f.min_by
    return by(f.struct(*order, *values), f.when(part, f.struct(*order)))


def _is_comparable(data_type: t.DataType) -> bool:
    """Whether Spark can compare values of the type: not if there is a MAP in it."""
    match data_type:
        case t.Map():
            return False
        case t.Array(element=element):
            return _is_comparable(element)
        case t.Row(fields=fields):
            return all(_is_comparable(each.type) for each in fields)
    return True


def _result(number: int) -> str:
    return f"__stelae_result_{number}"


def _sorted(items: Column, rule: ColumnRule) -> Column:
    """Items in the order of their field o. The natural order of structs is quicker, but MAPs have none."""
    from pyspark.sql import functions as f

    if not isinstance(rule.column.type, t.Map):
        return f.array_sort(items)
    return f.array_sort(
        items,
        lambda a, b: (
            f.when(a.getField("o") < b.getField("o"), -1).when(a.getField("o") > b.getField("o"), 1).otherwise(0)
        ),
    )


def _sum(value: Column, retract: Column | None, data_type: t.DataType) -> Column:
    """A sum that can't overflow on the way: of BIGINT in two halves, of DECIMAL in the widest one."""
    from pyspark.sql import functions as f

    def signed(part: Column) -> Column:
        return part if retract is None else f.when(retract, -part).otherwise(part)

    match data_type:
        case t.BigInt():
            low = value.bitwiseAND(f.lit(0xFFFFFFFF))
            high = f.shiftright(value, 32)
            return f.struct(f.sum(signed(high)).alias("high"), f.sum(signed(low)).alias("low"))
        case t.TinyInt() | t.SmallInt() | t.Int():
            return f.sum(signed(value.cast("bigint")))
        case t.Float() | t.Double():
            return f.sum(signed(value.cast("double")))
        case _:
            # Null where DECIMAL(38) overflows: then there are values, and no sum of them.
            return f.struct(f.try_sum(signed(value)).alias("sum"), f.max(value.isNotNull()).alias("any"))


def _sum_total(total: Column, data_type: t.DataType) -> Column:
    from pyspark.sql import functions as f

    if isinstance(data_type, t.BigInt):
        high, low = total.getField("high").cast("decimal(20,0)"), total.getField("low").cast("decimal(20,0)")
        return high * f.lit(4294967296).cast("decimal(11,0)") + low
    if isinstance(data_type, t.Decimal):
        return total.getField("sum")
    return total


def _is_text(value: Column) -> Column:
    """Whether a text has more than white space."""
    return value.rlike(r"(?U)\S")


def _joined(items: Column, rule: ColumnRule) -> Column:
    """Texts of items, in their order, with delimiters between them; null if there are none."""
    from pyspark.sql import functions as f

    delimiter = rule.options.delimiter if rule.options.delimiter is not None else ","
    texts = f.transform(items, lambda item: item.getField("v"))
    if not rule.options.distinct:
        return f.when(f.size(texts) > 0, f.array_join(texts, delimiter))
    quoted = "\\Q" + delimiter.replace("\\E", "\\E\\\\E\\Q") + "\\E"

    def tokens(text: Column) -> Column:
        return f.filter(f.split(text, quoted), _is_text)

    first = f.try_element_at(texts, f.lit(1))
    rest = f.flatten(f.transform(f.slice(texts, f.lit(2), f.size(texts)), tokens))
    added = f.array_except(rest, tokens(first))
    return f.when(f.size(texts) > 0, f.array_join(f.concat(f.array(first), added), delimiter))
