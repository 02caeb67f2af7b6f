"""Records of a key, folded column by column: the engines partial-update and aggregation, as Spark aggregation.

    records: stored rows and changes of one task
      → position and lateness, where the order of records matters     record_order.py
      → one aggregate expression a column, the stored row among the records as what came first
      → one row a key: key columns, stored columns, hidden, records, forgotten

docs/merging.md says what comes out; `stelae/schema/merge_rules.py` has the rules. Everything here is SQL expressions,
evaluated in the JVM; what Spark has no exact function for leaves as a list of inputs, which `arrow_folds.py` folds.

Two orders rule a table. *Arrival* is the order in which records came in: builds, files, rows. *Position* is the merge
order: (sequence, arrival). A record is *late* if one that arrived before it has a greater sequence. All results are
the same however the records are cut into builds:

- functions that commute need no order;
- functions that pick a record take the first or last position; a stored row says in `__stelae_positions` which of its
  values come from another record than its newest one, and enters as one record for each of them (positions.py);
- functions that accumulate fold in order of arrival, late records underneath (folds.py); so do sequence groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stelae.builder.input.change_records import id_column
from stelae.builder.merge.arrow_folds import is_folded_in_arrow
from stelae.builder.merge.expressions import (
    in_order,
    is_comparable,
    is_text,
    joined,
    newest,
    oldest,
    sum_of,
    sum_total,
)
from stelae.builder.merge.folds import fold
from stelae.builder.merge.position_state import positions_of
from stelae.builder.merge.record_order import RecordOrder, late_column
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    ALIVE_COLUMN,
    EFFECTIVE_COLUMN,
    ENTRY_COLUMN,
    FORGOTTEN_COLUMN,
    HIDDEN_COLUMN,
    INSERT,
    INSERTS_COLUMN,
    MINTED_COLUMN,
    NUMBER_COLUMN,
    OF_LAST_LIFE_COLUMN,
    ORDINAL_COLUMN,
    RECORDS_COLUMN,
    REMOVE,
    REMOVED_COLUMN,
    RESULT_COLUMN_PREFIX,
    RETRACT,
    TOP_COLUMN,
)
from stelae.builder.spark_sql.row_errors import raise_for_row
from stelae.builder.spark_sql.sql_text import Case, Operand, Query, Sql, all_of, any_of, col, fn, sql, struct, when
from stelae.schema import types as t
from stelae.schema.merge_rules import HIDDEN_SINCE, POSITIONS, ColumnRule, MergeRules
from stelae.schema.table_schema import Column

ToTasks = Callable[[Query], Query]
"""Sends each row to the task of its bucket."""


def aggregated(records: Query, order: RecordOrder, plan: BuildPlan, to_tasks: ToTasks) -> Query:
    """One row a key, on the task of its bucket."""
    if order.needs_neighbours or order.gathers:
        records = order.with_order(to_tasks(records))
        merge = _Aggregation(order, plan)
        return merge.finished(merge.rows(records, plan.task_columns))
    # Spark aggregates on the tasks that read, then moves what is left; that few rows move once more is cheap.
    merge = _Aggregation(order, plan)
    return merge.finished(to_tasks(merge.rows(records, [])))


class _Aggregation:
    """One merge being planned. Runs on the driver, and only makes expressions."""

    def __init__(self, order: RecordOrder, plan: BuildPlan) -> None:
        """`order` has all columns of order that the merge needs."""
        self.order = order
        self.plan = plan
        self.schema = plan.schema
        self.rules: MergeRules = plan.rules
        self.retracts = order.retracts
        keeps_hidden = self.rules.keeps_tombstones or order.removes
        self.may_be_hidden = keeps_hidden and (self.retracts or plan.base_hidden_rows > 0)
        self.keeps_removal = self.rules.keeps_positions and EFFECTIVE_COLUMN in order.columns
        self.knows_hidden_since = HIDDEN_SINCE in order.columns
        self.to_fold: set[int] = set()
        """Ids of columns whose aggregate is the list of their inputs."""

    # --- rows

    def rows(self, records: Query, tasks: Sequence[str]) -> Query:
        """One row a key; `tasks` are the columns of the task that records are on, if they have been sent there."""
        order = self.order
        counted: Operand = 1
        if refusals := self.refusals():
            # Branches of one CASE, not one inside of another: Spark's parser gives up at some hundreds of these.
            cases = Case("CASE END")
            for text, hint, refused in reversed(refusals):
                cases = cases.when(refused, raise_for_row(text, "", self.schema, hint=hint).cast("INT"))
            counted = cases.otherwise(1)
        totals = {RECORDS_COLUMN: fn.sum(when(order.whole, counted).otherwise(0))}
        if self.may_be_hidden:
            # A removal by a partial update leaves what it does not set, if there is any of it.
            rest = [col(rule.column.name).is_not_null() for rule in self.rules.columns if not self.is_set(rule)]
            stays = order.is_base & ~col(HIDDEN_COLUMN) & any_of(rest) if rest else sql(False)
            totals[INSERTS_COLUMN] = fn.coalesce(fn.max(self.shows() | stays), False)
            totals[FORGOTTEN_COLUMN] = fn.max(when(self.alive() & order.whole, 1)).is_null()
        if self.schema.auto_increment is not None:
            totals[MINTED_COLUMN] = fn.max(col(self.schema.auto_increment.name))
        if self.rules.sequence:
            totals[TOP_COLUMN] = fn.max(when(order.whole, order.position()))
        if self.keeps_removal:
            totals[REMOVED_COLUMN] = fn.max(when(col(EFFECTIVE_COLUMN), order.position()))
        if self.knows_hidden_since:
            since = when(order.is_base & col(HIDDEN_COLUMN) & order.whole, col(HIDDEN_SINCE))
            totals[HIDDEN_SINCE] = when(fn.max(~order.is_base), None).otherwise(fn.max(since))
        totals |= {f"{TOP_COLUMN}_{i}": self.newest_of_group(i) for i in range(len(self.rules.groups))}
        values = {
            _result(number): self.aggregate(rule)
            for number, rule in enumerate(self.rules.columns)
            if not (rule.group is not None and order.is_plain(rule))
        }
        # Keys first: Spark sorts by the first column, and looks at others only where it is equal.
        keys = [*(column.name for column in self.schema.key_columns), *self.schema.partition_keys, *tasks]
        return records.aggregate(keys, {**totals, **values})

    def finished(self, rows: Query) -> Query:
        """Columns in the writer's order, results in the types of their columns."""
        hidden = ~col(INSERTS_COLUMN) if self.may_be_hidden else sql(False)
        forgets = self.may_be_hidden and not self.rules.sequence and self.rules.removal_group is None
        forgotten = hidden & col(FORGOTTEN_COLUMN) if forgets else sql(False)
        minted = self.schema.auto_increment
        values = self.values_of_rows()
        if minted is not None:
            values[minted.name] = when(~hidden, col(MINTED_COLUMN))
        for column in self.schema.value_columns:
            if not column.type.nullable and column != minted and not _is_folded_later(column, self.rules):
                text = f"the merge leaves null in NOT NULL column {column.name}"
                error = raise_for_row(text, "", self.schema, hint="declare it without NOT NULL")
                value = values[column.name]
                null = error.cast(column.type.spark())
                values[column.name] = when(value.is_null() & ~hidden, null).otherwise(value)
        state = []
        if self.rules.keeps_positions:
            results = {number: col(_result(number)) for number in range(len(self.rules.columns))}
            state.append(positions_of(results, self.rules, keeps_removal=self.keeps_removal))
        if self.schema.options.tombstone_time_retained_ms is not None:
            known = fn.coalesce(col(HIDDEN_SINCE), self.plan.now_ms) if self.knows_hidden_since else self.plan.now_ms
            state.append(when(hidden, known).cast("BIGINT"))
        keys = [col(column.name) for column in self.schema.key_columns]
        stored = [values[column.name] for column in self.schema.value_columns]
        return rows.select(
            merged_columns([*keys, *stored, *state], hidden, col(RECORDS_COLUMN).cast("BIGINT"), forgotten)
        )

    def values_of_rows(self) -> dict[str, Sql]:
        """The value columns of merged rows, in the columns that `rows` gives, without the auto-increment column."""
        values: dict[str, Sql] = {}
        for i, column in enumerate(self.rules.sequence):
            values[column.name] = col(TOP_COLUMN).field(f"s{i}")
        for index, group in enumerate(self.rules.groups):
            for i, column in enumerate(group.sequence):
                values[column.name] = col(f"{TOP_COLUMN}_{index}").field(f"s{i}")
        for number, rule in enumerate(self.rules.columns):
            if rule.group is not None and self.order.is_plain(rule):
                values[rule.column.name] = col(f"{TOP_COLUMN}_{rule.group}").field(f"v{number}")
            else:
                values[rule.column.name] = self.result(col(_result(number)), rule)
        return values

    # --- which records count

    def alive(self) -> Sql:
        return col(ALIVE_COLUMN) if ALIVE_COLUMN in self.order.columns else sql(True)

    def shows(self) -> Sql:
        """Whether a record makes the row visible."""
        order = self.order
        visible = when(order.is_base, ~col(HIDDEN_COLUMN)).otherwise(col(ACTION_COLUMN) == INSERT)
        shows = self.alive() & order.whole & visible
        group = self.rules.removal_group
        if group is not None and late_column(group) in order.columns:
            shows &= order.is_base | ~col(late_column(group))
        return shows

    def is_retract(self) -> Sql:
        """Whether a record takes values back; so does a -D that came too late to remove its row."""
        retract = col(ACTION_COLUMN) == RETRACT
        if self.rules.removal_group is not None and EFFECTIVE_COLUMN in self.order.columns:
            retract |= (col(ACTION_COLUMN) == REMOVE) & ~col(EFFECTIVE_COLUMN)
        return retract

    def taking_part(self, rule: ColumnRule) -> Sql:
        """Whether a record counts for a column at all."""
        order = self.order
        conditions = [order.takes_part(rule.group)]
        if not self.is_set(rule):
            conditions.append(order.is_base)
        elif ALIVE_COLUMN in order.columns:
            conditions.append(col(ALIVE_COLUMN))
        if self.retracts or order.removed_before:
            insert = col(ACTION_COLUMN) == INSERT
            conditions.append(insert | self.is_retract() if rule.explicit and rule.takes_back else insert)
        if order.entries:
            of_row = ~fn.coalesce(fn.array_contains(col(POSITIONS).field("id"), rule.column.id), False)
            of_entry = col(ENTRY_COLUMN).field("id") == rule.column.id
            exact = rule.function.kind == "picks" or self.rules.keeps_pieces(rule)
            conditions.append(when(order.whole, of_row).otherwise(of_entry) if exact else order.whole)
        return all_of(conditions)

    def is_set(self, rule: ColumnRule) -> bool:
        """Whether the records of this build set the column. To partial-update a column that is not set is null."""
        targets = self.plan.targets
        return targets is None or rule.column.name in targets or self.rules.engine == "partial-update"

    def refusals(self) -> list[tuple[str, str, Sql]]:
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
                    ~self.order.is_base & self.is_retract() & self.order.takes_part(rule.group),
                ))  # fmt: skip
        return found

    # --- one expression a column

    def newest_of_group(self, index: int) -> Sql:
        """Sequence and plain columns of the newest record of a group."""
        order = {f"s{i}": col(column.name) for i, column in enumerate(self.rules.groups[index].sequence)}
        order |= {f"a{i}": value for i, value in enumerate(self.order.arrival())}
        values, comparable = {}, True
        for number, rule in enumerate(self.rules.columns):
            if rule.group == index and self.order.is_plain(rule):
                value = col(rule.column.name)
                if self.retracts:
                    value = when(self.alive() & (col(ACTION_COLUMN) == INSERT), value)
                values[f"v{number}"] = value
                comparable &= is_comparable(rule.column.type)
        part = self.order.takes_part(index)
        if OF_LAST_LIFE_COLUMN in self.order.columns:
            part &= col(OF_LAST_LIFE_COLUMN)
        return newest(order, values, part, comparable=comparable)

    def aggregate(self, rule: ColumnRule) -> Sql:
        """The aggregate expression of one column; `result` finishes it."""
        match rule.function.kind:
            case "commutes":
                return self.commuting(rule)
            case "picks":
                return self.picked(rule)
            case _:
                return self.accumulated(rule)

    def commuting(self, rule: ColumnRule) -> Sql:
        value = col(rule.column.name)
        part = self.taking_part(rule)
        counted = when(part, value)
        match rule.function.name:
            case "sum":
                return sum_of(counted, self.is_retract() if self.retracts else None, rule.column.type)
            case "count":
                one = when(self.is_retract(), -1).otherwise(1) if self.retracts else sql(1)
                change = when(part & value.is_not_null(), one).otherwise(0)
                return fn.sum(when(self.order.is_base, fn.coalesce(counted, 0)).otherwise(change).cast("BIGINT"))
            case "max":
                return fn.max(counted)
            case "min":
                return fn.min(counted)
            case "bool_and":
                return fn.bool_and(counted)
            case "bool_or":
                return fn.bool_or(counted)
            case "hll_sketch":
                return when(fn.max(counted.is_not_null()), fn.hll_union_agg(counted, True))
            case "theta_sketch":
                return when(fn.max(counted.is_not_null()), fn.theta_union_agg(counted))
            case "rbm32" | "rbm64":
                number = id_column(rule.column)
                given = number in self.order.columns
                ids = when(part, col(number)) if given else sql(None).cast("BIGINT")
                return struct({"bitmaps": fn.collect_list(counted), "ids": fn.collect_list(ids)})
        raise AssertionError(f"{rule.function.name} is not computed here: add it")

    def picked(self, rule: ColumnRule) -> Sql:
        order = self.order
        name = rule.function.name
        value = col(rule.column.name)
        part = self.taking_part(rule)
        if rule.group is not None:
            if name == "last_value":  # With ignore-retract: the others are what the newest record has.
                return fn.max_by(value, when(part & ~col(late_column(rule.group)), col(NUMBER_COLUMN)))
            if name == "last_non_null_value" and self.retracts and rule.takes_back:
                return self.folded(rule)
            by = order.effective_order(rule)
        else:
            by = order.arrival_value()
        if name.endswith("non_null_value"):
            part &= value.is_not_null() | (~order.whole if order.entries else sql(False))
        elif self.may_be_hidden and (name == "first_value" or not rule.takes_back):
            # What was never set is null in a hidden row, too.
            part &= ~(order.is_base & col(HIDDEN_COLUMN))
        if self.retracts and rule.takes_back and name.startswith("last"):
            value = when(self.is_retract(), None).otherwise(value)
        first = name.startswith("first")
        if rule.group is None and self.rules.sequence:
            found = oldest if first else newest
            return found({"position": order.position()}, {"v": value}, part, comparable=is_comparable(rule.column.type))
        return (fn.min_by if first else fn.max_by)(value, when(part, by))

    def accumulated(self, rule: ColumnRule) -> Sql:
        if self.rules.keeps_pieces(rule):
            return self.pieces(rule)
        value = col(rule.column.name)
        part = self.taking_part(rule) & value.is_not_null()
        item = struct({"o": self.order.effective_order(rule), "v": value})
        match rule.function.name:
            case "listagg":
                return joined(fn.array_sort(fn.collect_list(when(part & is_text(value), item))), rule)
            case "collect" if not self.retracts:
                arrays = in_order(fn.collect_list(when(part, item)), rule)
                flat = fn.flatten(fn.transform(arrays, lambda x: x.field("v")))
                elements = fn.array_distinct(flat) if rule.options.distinct else flat
                return when(fn.size(arrays) > 0, elements)
            case _:
                return self.folded(rule)

    def pieces(self, rule: ColumnRule) -> Sql:
        """Pieces of text with their sequences, in merge order."""
        value = col(rule.column.name)
        if self.order.entries:
            value = when(self.order.whole, value).otherwise(col(ENTRY_COLUMN).field("text"))
        item = struct({"o": self.order.position(), "v": value})
        return fn.array_sort(fn.collect_list(when(self.taking_part(rule) & is_text(value), item)))

    def folded(self, rule: ColumnRule) -> Sql:
        """Inputs as a list in order of arrival, to be folded one by one."""
        value = col(rule.column.name)
        part = self.taking_part(rule) & value.is_not_null()
        ordered = late_column(rule.group) in self.order.columns
        fields = {
            "o": col(NUMBER_COLUMN) if ordered else self.order.arrival_value(),
            "late": col(late_column(rule.group)) if ordered else sql(False),
            "retract": self.is_retract() & ~self.order.is_base if self.retracts else sql(False),
            "v": value,
        }
        items = in_order(fn.collect_list(when(part, struct(fields))), rule)
        if is_folded_in_arrow(rule):
            return fn.transform(items, lambda x: struct({"retract": x.field("retract"), "v": x.field("v")}))
        self.to_fold.add(rule.column.id)
        return items

    def result(self, value: Sql, rule: ColumnRule) -> Sql:
        """The aggregate in its column's type; what does not fit stops the build."""
        if rule.column.id in self.to_fold:
            return fold(value, rule, self.schema)
        if self.rules.keeps_pieces(rule):
            return joined(value, rule)
        if rule.function.kind == "picks" and rule.group is None and self.rules.sequence:
            return value.field("v")
        if rule.function.name in ("sum", "count"):
            return self.number(value, rule)
        return value

    def number(self, value: Sql, rule: ColumnRule) -> Sql:
        """A sum or count in its column's type."""
        wide = sum_total(value, rule.column.type) if rule.function.name == "sum" else value
        text = f"{rule.function.name} does not fit column {rule.column.name} {rule.column.type.sql_name()}: "
        target = rule.column.type.spark()
        narrow = wide.try_cast(target)
        shown = fn.coalesce(wide.cast("STRING"), "more than 38 digits")
        error = raise_for_row(text, shown, self.schema, hint="a wider type has room for it").cast(target)
        any_value = value.field("any") if isinstance(rule.column.type, t.Decimal) else wide.is_not_null()
        checked = when(any_value & narrow.is_null(), error).otherwise(narrow)
        if rule.function.name == "sum" and isinstance(rule.column.type, t.BigInt):
            high, low = value.field("high"), value.field("low")
            small = (fn.abs(high) < 2**30) & (fn.abs(low) < 2**62)
            return when(small, fn.shiftleft(high, 32) + low).otherwise(checked)
        return checked


def merged_columns(values: Sequence[Sql], hidden: Sql, records: Sql, forgotten: Operand) -> Mapping[str, Operand]:
    """The columns of merged rows as the writer takes them: those of the table go by number, as `mapInArrow` takes a dot
    or a back quote in a name for syntax.
    """
    return {
        ORDINAL_COLUMN: col(ORDINAL_COLUMN),
        **{f"_{i}": value for i, value in enumerate(values)},
        HIDDEN_COLUMN: hidden,
        RECORDS_COLUMN: records,
        FORGOTTEN_COLUMN: forgotten,
    }


def _is_folded_later(column: Column, rules: MergeRules) -> bool:
    """Whether the writer makes the column's values: then it finds the nulls as well."""
    return any(rule.column.id == column.id and is_folded_in_arrow(rule) for rule in rules.columns)


def _result(number: int) -> str:
    return f"{RESULT_COLUMN_PREFIX}{number}"
