"""How the records of a key become one row: the rules of a table, resolved from its options. docs/merging.md.

`merge_rules` says per row kind what happens and per column which function computes it; `builder/merge/aggregate.py`
makes Spark expressions of that. `stored_columns` adds to the value columns what later merges need and nobody is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stelae.schema import types as t
from stelae.schema.aggregate_functions import BY_NAME, Function, find_function
from stelae.schema.options import ColumnOptions
from stelae.schema.table_schema import Column, TableSchema

Engine = Literal["deduplicate", "first-row", "versioned", "partial-update", "aggregation"]

Action = Literal["remove", "retract", "ignore", "refuse"]
"""What a -D or -U does: the row goes; its values are taken back column by column; nothing; the build fails."""

POSITIONS = "__stelae_positions"
"""State: sequences of values that do not come from the newest record of their row, and pieces of text with theirs."""
HIDDEN_SINCE = "__stelae_hidden_since"
"""State: when a hidden row became one, in milliseconds since 1970; null in visible rows."""
POSITIONS_ID, HIDDEN_SINCE_ID = 1_000_001, 1_000_002  # In memory alone; never among the ids of a table's columns.

REMOVAL = -1  # On disk. Never renumber.
"""In place of a column id in POSITIONS: the sequence of the record that removed the row last."""

VERSION_TYPES = (t.Int, t.BigInt, t.Timestamp, t.TimestampLtz)


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """How one value column is computed.

    Sequence columns have no rule: they are those of the newest record. Nor has the auto-increment column: a key keeps
    its id, whatever is merged.
    """

    column: Column
    function: Function
    options: ColumnOptions
    group: int | None = None
    """Index of its sequence group."""
    explicit: bool = True
    """False for a plain column of partial-update, which a retract outside of any group leaves alone."""

    @property
    def takes_back(self) -> bool:
        """Whether a retract reaches the column."""
        return not self.options.ignore_retract


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns of a partial-update table that are ordered by sequence columns of their own."""

    sequence: tuple[Column, ...]
    members: tuple[str, ...]


@dataclass(frozen=True)
class MergeRules:
    """All that decides about a row."""

    engine: Engine
    on_delete: Action
    on_update_before: Action
    sequence: tuple[Column, ...] = ()
    """What orders all records of a key; of `versioned` the version column. Null is the smallest value."""
    descending: bool = False
    retracts_first: bool = False
    """Among records of equal sequence, -U and -D come before +I and +U."""
    columns: tuple[ColumnRule, ...] = ()
    """Of partial-update and aggregation."""
    groups: tuple[SequenceGroup, ...] = ()
    removal_group: int | None = None
    """-D removes the row if it is not older in this group; otherwise it is a retract."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Hints for refused row kinds, by row kind."""

    @property
    def aggregates(self) -> bool:
        """Whether rows are computed column by column; the other engines choose one record."""
        return self.engine in ("partial-update", "aggregation")

    @property
    def keeps_positions(self) -> bool:
        """Whether values may come from other records than the newest, so that rows keep where from."""
        return self.aggregates and bool(self.sequence)

    def keeps_pieces(self, rule: ColumnRule) -> bool:
        """Whether a column's text is kept in pieces, each with its sequence, so that a late one finds its place."""
        return self.keeps_positions and rule.function.name == "listagg"

    @property
    def keeps_tombstones(self) -> bool:
        """Whether something of a row that was removed, or was never there, has to be known later."""
        removes = "remove" in (self.on_delete, self.on_update_before)
        retracts = "retract" in (self.on_delete, self.on_update_before)
        return (removes and bool(self.sequence)) or retracts


def merge_rules(schema: TableSchema) -> MergeRules:
    """The rules of a table. The schema has passed `check_table`."""
    options = schema.options
    engine: Engine = options.merge_engine  # type: ignore[assignment]
    on_delete, on_update_before, why = _actions(schema)
    by_name = schema.by_name
    orders = (options.version_column,) if options.version_column else options.sequence_field
    sequence = tuple(by_name[name] for name in orders)
    groups = tuple(
        SequenceGroup(tuple(by_name[name] for name in group.sequence), group.members)
        for group in options.sequence_groups
    )
    named = options.remove_record_on_sequence_group
    removal_group = next(
        (i for i, group in enumerate(groups) if {column.name for column in group.sequence} & set(named)), None
    )
    return MergeRules(
        engine=engine,
        on_delete=on_delete,
        on_update_before=on_update_before,
        sequence=sequence,
        descending=options.sequence_descending,
        retracts_first="row-kind-flag" in options.sequence_auto_padding,
        columns=_column_rules(schema, groups) if engine in ("partial-update", "aggregation") else (),
        groups=groups,
        removal_group=removal_group,
        why=why,
    )


def stored_columns(schema: TableSchema) -> tuple[Column, ...]:
    """The columns of the row bytes: value columns, then the state that later merges need."""
    return (*schema.value_columns, *state_columns(schema))


def state_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Hidden columns, all nullable."""
    rules = merge_rules(schema)
    columns = []
    if rules.keeps_positions:
        sequence = [t.Field(f"s{i}", replace(column.type, nullable=True)) for i, column in enumerate(rules.sequence)]
        # Always with room for text: a column that is added later may need it, and the type must stay.
        fields = (t.Field("id", t.Int()), *sequence, t.Field("text", t.String()))
        columns.append(Column(POSITIONS_ID, POSITIONS, t.Array(element=t.Row(fields=fields))))
    if schema.options.tombstone_time_retained_ms is not None:
        columns.append(Column(HIDDEN_SINCE_ID, HIDDEN_SINCE, t.BigInt()))
    return tuple(columns)


def _column_rules(schema: TableSchema, groups: tuple[SequenceGroup, ...]) -> tuple[ColumnRule, ...]:
    options = schema.options
    sequences = {*options.sequence_field, *(column.name for group in groups for column in group.sequence)}
    group_of = {name: i for i, group in enumerate(groups) for name in group.members}
    rules = []
    for column in schema.value_columns:
        if column.name in sequences or column == schema.auto_increment:
            continue
        given = options.column_options.get(column.name, ColumnOptions())
        name = given.aggregate_function or options.default_aggregate_function
        group = group_of.get(column.name)
        if name is not None:
            function = find_function(name, f"fields.{column.name}.aggregate-function")
        else:
            # A plain column of a group takes what the newest record has, nulls too.
            function = BY_NAME["last_value" if group is not None else "last_non_null_value"]
        explicit = options.merge_engine == "aggregation" or group is not None
        rules.append(ColumnRule(column, function, given, group, explicit))
    return tuple(rules)


def _actions(schema: TableSchema) -> tuple[Action, Action, dict[str, str]]:
    """What -D and -U do, and hints where they are refused."""
    options = schema.options
    on_delete: Action
    on_update_before: Action
    why: dict[str, str] = {}
    match options.merge_engine:
        case "first-row":
            on_delete = on_update_before = "refuse"
            hint = "first-row keeps the first record for ever: 'ignore-delete' = 'true' drops -U and -D"
            why = {"-D": hint, "-U": hint}
        case "versioned":
            on_delete = on_update_before = "ignore"
        case "partial-update" if options.partial_update_remove_record_on_delete:
            on_delete, on_update_before = "remove", "ignore"
        case "partial-update" if options.sequence_groups:
            on_delete = "remove" if options.remove_record_on_sequence_group else "retract"
            on_update_before = "retract"
        case "partial-update":
            on_delete = on_update_before = "refuse"
            why = {
                "-D": "choose 'ignore-delete', 'partial-update.remove-record-on-delete' or sequence groups",
                "-U": "choose 'ignore-update-before', 'ignore-delete' or sequence groups",
            }
        case "aggregation":
            removes = options.aggregation_remove_record_on_delete or options.delete_behavior == "allow"
            on_delete, on_update_before = "remove" if removes else "retract", "retract"
        case _:
            on_delete = on_update_before = "remove"
    if options.ignore_delete or options.delete_behavior == "ignore":
        on_delete = on_update_before = "ignore"
    elif options.delete_behavior == "disable":
        on_delete, on_update_before = "refuse", "ignore"
        why = {"-D": "the table has 'delete.behavior' = 'disable'"}
    if options.ignore_update_before:
        on_update_before = "ignore"
    return on_delete, on_update_before, why
