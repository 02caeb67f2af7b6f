"""The order of a key's records: arrival, position, lateness, and which of them a removal has made void.

    records of one task
      → number, by arrival; position, in merge order              where anything depends on them
      → late: a record that arrived earlier has a greater sequence
      → alive: nothing removed the row since

All are window functions over one sort. `aggregate.py` says what the order is for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stelae.builder.input.arrival import arrival_columns
from stelae.builder.merge.arrow_folds import is_folded_in_arrow
from stelae.builder.plan.build_plan import BuildPlan
from stelae.builder.spark_sql.added_columns import (
    ACTION_COLUMN,
    ALIVE_COLUMN,
    EFFECTIVE_COLUMN,
    ENTRY_COLUMN,
    INSERT,
    LATE_COLUMN,
    LIFE_COLUMN,
    NUMBER_COLUMN,
    OF_LAST_LIFE_COLUMN,
    POSITION_COLUMN,
    REMOVE,
)
from stelae.builder.spark_sql.sql_text import Query, Sql, any_of, col, fn, sql, struct, when, window
from stelae.schema.merge_rules import ColumnRule, MergeRules

_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def late_column(group: int | None) -> str:
    return LATE_COLUMN if group is None else f"{LATE_COLUMN}_{group}"


class RecordOrder:
    """What can be said of a record among those of its key. Runs on the driver, and only makes expressions."""

    def __init__(self, columns: Collection[str], plan: BuildPlan, *, retracts: bool) -> None:
        """`columns`: those of the records. `retracts`: there may be -U and -D among them."""
        self.columns = set(columns)
        """Those that `with_order` adds come in as it does."""
        self.rules: MergeRules = plan.rules
        self.retracts = retracts
        self.arrival_columns = arrival_columns(self.columns)
        self.entries = ENTRY_COLUMN in self.columns
        """Whether there are records that stand for entries of stored rows (builder/merge/position_state.py)."""
        self.keys = [col(column.name) for column in plan.schema.key_columns]
        self.tasks = [col(name) for name in plan.task_columns]
        self.is_base = col(self.arrival_columns[0]) < 0
        on_record = (self.rules.on_delete, self.rules.on_update_before)
        self.removes = retracts and "remove" in on_record
        self.removed_before = self.entries and "remove" in on_record
        self.whole = col(ENTRY_COLUMN).is_null() if self.entries else sql(True)
        """Whether a record is more than an entry."""

    # --- what depends on order

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

    # --- columns of order

    def with_order(self, records: Query) -> Query:
        """Numbers, lateness and removals, as far as anything depends on them."""
        named = self.rules.removal_group
        if self.rules.sequence and self.needs_neighbours:
            records = self.with_position(records)
            if self.accumulates(None) or self.removes:
                records = self._added(records, self._lateness(None, col(POSITION_COLUMN)))
        if self.removes and named is not None:
            records = self._added(records, self._lateness(named, self.group_sequence(named)))
        records = self._with_removals(records)
        groups = [index for index in range(len(self.rules.groups)) if self.accumulates(index)]
        late: dict[str, Sql] = {}
        for index in groups:
            if late_column(index) not in self.columns:
                late |= self._lateness(index, self.group_sequence(index))
        return self._added(records, late) if late else records

    def with_position(self, records: Query) -> Query:
        return self._added(records, {POSITION_COLUMN: fn.row_number().over(self._window(self.merge_order()))})

    def _lateness(self, group: int | None, sequence: Sql) -> dict[str, Sql]:
        """Whether records are late in a group, or by the table's sequence; and their number, if they have none yet."""
        lives = [col(LIFE_COLUMN)] if LIFE_COLUMN in self.columns else []
        takes_part = self.takes_part(group)
        newest = fn.max(when(takes_part, sequence)).over(self._window(self.arrival_order(), _BEFORE, lives))
        late = {late_column(group): takes_part & fn.coalesce(sequence < newest, False)}
        if NUMBER_COLUMN in self.columns:
            return late
        return {NUMBER_COLUMN: fn.row_number().over(self._window(self.arrival_order())), **late}

    def _with_removals(self, records: Query) -> Query:
        """The column `__stelae_alive`: false for records that were there before the key's last removal."""
        removes = col(ACTION_COLUMN) == REMOVE
        if not self.removes and not self.removed_before:
            return records
        if self.rules.removal_group is not None:
            group = self.rules.removal_group
            effective = removes & self.takes_part(group) & ~col(late_column(group))
            # Groups start anew with each removal, from the sequences of the record that removes.
            removals = fn.sum(effective.cast("INT")).over(self._window(self.arrival_order(), _SO_FAR))
            records = self._added(records, {EFFECTIVE_COLUMN: effective, LIFE_COLUMN: removals})
            of_last_life = col(LIFE_COLUMN) == fn.max(col(LIFE_COLUMN)).over(self._window())
            records = self._added(records, {OF_LAST_LIFE_COLUMN: of_last_life})
            return self._added(records, {ALIVE_COLUMN: col(OF_LAST_LIFE_COLUMN) & ~col(EFFECTIVE_COLUMN)})
        effective, time = removes, self.arrival_value()
        if self.rules.sequence:
            late = col(LATE_COLUMN) if LATE_COLUMN in self.columns else sql(False)
            effective, time = removes & (~late | ~self.whole), col(POSITION_COLUMN)
        last = fn.max(when(effective, time)).over(self._window())
        return self._added(records, {EFFECTIVE_COLUMN: effective, ALIVE_COLUMN: fn.coalesce(time > last, True)})

    def _added(self, records: Query, columns: Mapping[str, Sql]) -> Query:
        self.columns.update(columns)
        return records.with_columns(columns)

    def _window(self, order: Sequence[str] = (), rows: str = "", lives: Sequence[Sql] = ()) -> str:
        return window([*self.keys, *self.tasks, *lives], order, rows)

    # --- order as expressions

    def arrival(self) -> list[Sql]:
        # A stored row comes after the entries that it is exploded into.
        last = [col(ENTRY_COLUMN).is_null()] if self.entries else []
        return [*(col(name) for name in self.arrival_columns), *last]

    def arrival_order(self) -> list[str]:
        """Terms of ORDER BY."""
        return [value.ascending() for value in self.arrival()]

    def arrival_value(self) -> Sql:
        """Arrival as one value that can be compared."""
        if len(self.arrival_columns) == 1:
            return col(self.arrival_columns[0])
        return struct({name: col(name) for name in self.arrival_columns})

    def merge_order(self) -> list[str]:
        """Terms of ORDER BY."""
        order = [c.descending() if self.rules.descending else c.ascending() for c in self.sequence()]
        if self.rules.retracts_first:
            order.append((col(ACTION_COLUMN) == INSERT).ascending())
        return [*order, *self.arrival_order()]

    def position(self) -> Sql:
        """Position as a struct that compares as such. It has the sequence of the record in it."""
        sequence = {f"s{i}": value for i, value in enumerate(self.sequence())}
        if POSITION_COLUMN in self.columns:
            return struct({"number": col(POSITION_COLUMN), **sequence})
        retracts = {"inserts": col(ACTION_COLUMN) == INSERT} if self.rules.retracts_first else {}
        return struct({**sequence, **retracts, **{f"a{i}": value for i, value in enumerate(self.arrival())}})

    def sequence(self) -> list[Sql]:
        """The sequence of a record: that of its entry, if it has one."""
        columns = []
        for i, column in enumerate(self.rules.sequence):
            own = col(column.name)
            if self.entries:
                own = when(col(ENTRY_COLUMN).is_not_null(), col(ENTRY_COLUMN).field(f"s{i}")).otherwise(own)
            columns.append(own)
        return columns

    def group_sequence(self, index: int) -> Sql:
        return struct({f"s{i}": col(column.name) for i, column in enumerate(self.rules.groups[index].sequence)})

    def takes_part(self, index: int | None) -> Sql:
        """Whether a record says anything about a group: its sequence is not null altogether."""
        if index is None:
            return sql(True)
        return any_of(col(column.name).is_not_null() for column in self.rules.groups[index].sequence)

    def effective_order(self, rule: ColumnRule) -> Sql:
        """Order of arrival, late records before all others: where a record lands in a fold."""
        if rule.group is None and not self.rules.sequence:
            return self.arrival_value()
        return when(col(late_column(rule.group)), -col(NUMBER_COLUMN)).otherwise(col(NUMBER_COLUMN))
