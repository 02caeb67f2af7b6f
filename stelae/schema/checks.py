"""Whether a schema can be a table: what CREATE TABLE is checked for, and what every stored schema keeps to.

Each rule is a small function with the rule as its name; `check_table` calls them all, before a schema is stored. They
look at one schema alone: no SQL, no storage. Errors are InvalidRequest with the column or the option as their place.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from stelae.errors import InvalidRequest
from stelae.schema import types
from stelae.schema.aggregate_functions import FUNCTIONS
from stelae.schema.merge_rules import VERSION_TYPES, ColumnRule, MergeRules, merge_rules
from stelae.schema.option_parsing import find_option
from stelae.schema.options import ColumnOptions, Option, TableOptions
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import DataType

MAX_COLUMN_NAME_LENGTH = 255
MAX_LENGTH = 2_147_483_647
"""Of CHAR(n), VARCHAR(n), BINARY(n) and VARBINARY(n)."""

RESERVED_PREFIXES = ("__stelae_", "_key_")
RESERVED_NAMES = frozenset(
    (
        *("_bucket", "_sequence_number", "_value_kind", "_level", "_row_id"),  # builds; Paimon
        *("__offset", "__timestamp", "__bucket"),  # Fluss, beside the rows
        *("_change_type", "_log_offset", "_commit_timestamp"),  # Fluss, in changelogs
    )
)
"""Column names, in lower case, that builds, changelogs, Paimon or Fluss need for themselves."""


def check_table(schema: TableSchema) -> None:
    """All rules, in the order in which a reader of the error would fix them."""
    check_columns_are_named_apart(schema.columns)
    for column in schema.columns:
        check_name_is_free(column.name)
        check_type(column.type, column.name)
    check_primary_key(schema)
    check_partition_keys(schema)
    check_bucket_key(schema)
    check_sequence_fields(schema)
    check_rowkind_field(schema)
    check_auto_increment(schema)
    check_merging(schema)


# --- columns


def check_columns_are_named_apart(columns: Sequence[Column]) -> None:
    """At least one column; no id twice; no two names that differ only in case, which Spark takes for one."""
    if not columns:
        raise InvalidRequest("the table has no columns")
    if len({column.id for column in columns}) != len(columns):
        raise InvalidRequest("two columns have the same id")
    check_names_differ([column.name for column in columns], "column")


def check_names_differ(names: Sequence[str], kind: str, place: str | None = None) -> None:
    seen: dict[str, str] = {}
    for name in names:
        first = seen.get(name.casefold())
        if first == name:
            raise InvalidRequest(
                f"{kind} {name!r} is declared twice", place=place or name, hint="rename one of the two"
            )
        if first is not None:
            raise InvalidRequest(
                f"{kind}s {first!r} and {name!r} differ only in upper and lower case, which Spark takes for one",
                place=place or name,
                hint="rename one of the two",
            )
        seen[name.casefold()] = name


def check_name_is_free(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable() or len(name) > MAX_COLUMN_NAME_LENGTH:
        raise InvalidRequest(
            f"{name!r} cannot be a column name",
            place=name,
            hint=f"1 to {MAX_COLUMN_NAME_LENGTH} printable characters, without spaces at the ends",
        )
    lower = name.lower()
    if lower in RESERVED_NAMES or lower.startswith(RESERVED_PREFIXES):
        raise InvalidRequest(f"column name {name!r} is reserved", place=name, hint="choose another name")


# --- types


def check_type(data_type: DataType, place: str) -> None:
    """Lengths and precisions within their limits, also of the types inside."""
    match data_type:
        case types.Decimal(precision=precision, scale=scale):
            _check_between("the precision of DECIMAL", precision, 1, types.MAX_DECIMAL_PRECISION, place)
            _check_between("the scale of DECIMAL", scale, 0, precision, place)
        case types.String(length=length) | types.Binary(length=length):
            if length is not None:
                _check_between(f"the length of {data_type.sql_name()}", length, 1, MAX_LENGTH, place)
        case (
            types.Time(precision=precision)
            | types.Timestamp(precision=precision)
            | types.TimestampLtz(precision=precision)
        ):
            if precision > types.MAX_TIME_PRECISION:
                raise InvalidRequest(
                    f"{data_type.sql_name()} is finer than microseconds, which is what is kept",
                    place=place,
                    hint=f"write {data_type.name}({types.MAX_TIME_PRECISION}), or keep nanoseconds in a BIGINT",
                )
            _check_between(f"the precision of {data_type.name}", precision, 0, types.MAX_TIME_PRECISION, place)
        case types.Array(element=element):
            check_type(element, place)
        case types.Map(key=key, value=value):
            if _holds_map(key):
                raise InvalidRequest("the key of a MAP holds a MAP, which Spark refuses", place=place)
            check_type(key, place)
            check_type(value, place)
        case types.Row(fields=fields):
            if not fields:
                raise InvalidRequest("a ROW has no fields", place=place)
            check_names_differ([field.name for field in fields], "field", place)
            for field in fields:
                check_type(field.type, f"{place}.{field.name}")


def _check_between(what: str, value: int, low: int, high: int, place: str) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{what} is {value}: expected {low} to {high}", place=place)


def _holds_map(data_type: DataType) -> bool:
    match data_type:
        case types.Map():
            return True
        case types.Array(element=element):
            return _holds_map(element)
        case types.Row(fields=fields):
            return any(_holds_map(field.type) for field in fields)
    return False


# --- keys


def check_primary_key(schema: TableSchema) -> None:
    """There is one; its columns exist, once each, are not nested, and not null unless the table allows it."""
    if not schema.primary_key:
        raise InvalidRequest(
            "the table has no primary key",
            hint="add PRIMARY KEY (...) NOT ENFORCED; tables without one are not supported",
        )
    for column in columns_named(schema, schema.primary_key, "the primary key"):
        check_is_plain(column, "the primary key")
        if column.type.nullable and not schema.options.primary_key_nullable:
            raise InvalidRequest(f"column {column.name!r} of the primary key is nullable", place=column.name)


def check_partition_keys(schema: TableSchema) -> None:
    """They are in the primary key and leave something of it: no key moves between partitions, as it may in Paimon."""
    for column in columns_named(schema, schema.partition_keys, "PARTITIONED BY"):
        if column.name not in schema.primary_key:
            raise InvalidRequest(
                f"partition column {column.name!r} is not in the primary key, so a key could move between partitions",
                place=column.name,
                hint="add it to the primary key; updates across partitions are not supported",
            )
        if column.type.nullable:
            raise InvalidRequest(
                f"partition column {column.name!r} is nullable: 'primary-key.nullable' is for the other key columns",
                place=column.name,
                hint=f"declare {column.name!r} NOT NULL",
            )
    if set(schema.primary_key) == set(schema.partition_keys):
        raise InvalidRequest(
            "the primary key consists of partition columns alone",
            place="primary key",
            hint="add a column to the primary key, or partition by fewer columns",
        )


def check_bucket_key(schema: TableSchema) -> None:
    """It is within the primary key, and without partition columns: all rows of a key meet in one bucket."""
    for column in columns_named(schema, schema.options.bucket_key, "option 'bucket-key'"):
        if column.name in schema.partition_keys:
            raise InvalidRequest(
                f"bucket key column {column.name!r} is a partition column",
                place="option bucket-key",
                hint="leave it out: buckets are within a partition anyway",
            )
        if column.name not in schema.primary_key:
            raise InvalidRequest(
                f"bucket key column {column.name!r} is not in the primary key",
                place="option bucket-key",
                hint="rows of one key must meet in one bucket: choose columns of the primary key",
            )


# --- columns that options name


def check_sequence_fields(schema: TableSchema) -> None:
    for column in columns_named(schema, schema.options.sequence_field, "option 'sequence.field'"):
        check_is_plain(column, "'sequence.field'")
        if column.name in schema.primary_key:
            raise InvalidRequest(
                f"column {column.name!r} of 'sequence.field' is in the primary key, so it orders nothing",
                place="option sequence.field",
                hint="all records of a key have the same value there: choose another column",
            )


def check_rowkind_field(schema: TableSchema) -> None:
    name = schema.options.rowkind_field
    if name is None:
        return
    (column,) = columns_named(schema, (name,), "option 'rowkind.field'")
    if not isinstance(column.type, types.String):
        raise InvalidRequest(
            f"column {name!r} of 'rowkind.field' is {column.type.sql_name()}",
            place="option rowkind.field",
            hint="it must be STRING: it holds +I, -U, +U or -D",
        )
    if name in schema.primary_key:
        raise InvalidRequest(
            f"column {name!r} of 'rowkind.field' is in the primary key, so no delete would meet its row",
            place="option rowkind.field",
            hint="leave it out of the primary key",
        )


def check_auto_increment(schema: TableSchema) -> None:
    """One column, INT or BIGINT, outside of the key, with which nothing else is done."""
    names, place = schema.options.auto_increment_fields, "option auto-increment.fields"
    if len(names) > 1:
        raise InvalidRequest(
            f"option 'auto-increment.fields' names {len(names)} columns: {', '.join(names)}",
            place=place,
            hint="a table has one column of ids",
        )
    for column in columns_named(schema, names, "option 'auto-increment.fields'"):
        if not isinstance(column.type, types.Int | types.BigInt):
            raise InvalidRequest(
                f"auto-increment column {column.name!r} is {column.type.sql_name()}",
                place=place,
                hint="it must be INT (ids up to 2,147,483,647) or BIGINT",
            )
        if column.name in schema.primary_key:
            raise InvalidRequest(
                f"auto-increment column {column.name!r} is in the primary key, so nobody could look it up",
                place=place,
                hint="the key is what gets an id: leave the column out of it",
            )
        for name in _options_naming(column.name, schema.options):
            raise InvalidRequest(
                f"option {name!r} names auto-increment column {column.name!r}",
                place=f"option {name}",
                hint="an id never changes, so it orders nothing and is not merged: leave it out",
            )


def _options_naming(column: str, options: TableOptions) -> list[str]:
    """Options by which records are ordered or merged, and that name the column."""
    of_table = {
        "sequence.field": options.sequence_field,
        "rowkind.field": (options.rowkind_field,),
        "merge-engine.versioned.ver-column": (options.version_column,),
    }
    of_columns = [option.name for option in _options_of_columns(options) if column in option.columns]
    members = [f"fields.{','.join(g.sequence)}.sequence-group" for g in options.sequence_groups if column in g.members]
    return [*(name for name, columns in of_table.items() if column in columns), *of_columns, *members]


# --- merging


ENGINES_OF = {
    "version_column": ("versioned",),
    "aggregation_remove_record_on_delete": ("aggregation",),
    "partial_update_remove_record_on_delete": ("partial-update",),
    "remove_record_on_sequence_group": ("partial-update",),
    "sequence_groups": ("partial-update",),
    "default_aggregate_function": ("aggregation", "partial-update"),
    **dict.fromkeys(ColumnOptions.__dataclass_fields__, ("aggregation", "partial-update")),
}
"""The merge engines that look at an option, by its attribute; all of them look at the others."""


def check_merging(schema: TableSchema) -> None:
    """The options that say how records become rows fit the columns, the merge engine and each other."""
    check_options_name_value_columns(schema)
    check_engine_looks_at_its_options(schema)
    check_version_column(schema)
    check_engine_takes_a_sequence(schema)
    check_sequence_groups(schema)
    check_removal(schema.options)
    check_removal_group(schema.options)
    check_delete_behavior(schema.options)
    check_deletion_vectors(schema.options)
    check_sequence_columns_are_not_merged(schema)
    rules = merge_rules(schema)
    for rule in rules.columns:
        check_function(rule)
        check_parameters(schema.options, rule)
        check_nested_fields(rule)
        check_keytime_field(rule)
        check_retracts_are_met(rules, rule)
    check_hidden_rows_are_kept(schema.options, rules)


def check_options_name_value_columns(schema: TableSchema) -> None:
    """Options of columns name columns that exist, and that are merged: those of the primary key are not."""
    for option in _options_of_columns(schema.options):
        for column in columns_named(schema, option.columns, f"option {option.name!r}"):
            if column.name in schema.primary_key:
                raise InvalidRequest(
                    f"option {option.name!r} is for column {column.name!r}, which is in the primary key",
                    place=f"option {option.name}",
                    hint="all records of a key have the same value there, so nothing is merged: leave the option out",
                )


def check_engine_looks_at_its_options(schema: TableSchema) -> None:
    engine = schema.options.merge_engine
    for name in schema.options.given:
        option = find_option(name)
        engines = ENGINES_OF.get(option.attribute)
        if engines is None or engine in engines or not _is_set(schema.options, option):
            continue
        what = f", of column {option.columns[0]!r}," if option.columns else ""
        raise InvalidRequest(
            f"option {name!r}{what} has no effect with 'merge-engine' = '{engine}'",
            place=f"option {name}",
            hint=f"leave it out, or choose 'merge-engine' = {' or '.join(repr(each) for each in engines)}",
        )


def check_version_column(schema: TableSchema) -> None:
    if schema.options.merge_engine != "versioned":
        return
    place, name = "option merge-engine.versioned.ver-column", schema.options.version_column
    if name is None:
        raise InvalidRequest(
            "'merge-engine' = 'versioned' needs option 'merge-engine.versioned.ver-column'",
            place=place,
            hint="name the column with the version: INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ",
        )
    (column,) = columns_named(schema, (name,), "option 'merge-engine.versioned.ver-column'")
    if not isinstance(column.type, VERSION_TYPES):
        raise InvalidRequest(
            f"version column {name!r} is {column.type.sql_name()}",
            place=place,
            hint="it must be INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ",
        )
    if name in schema.primary_key:
        raise InvalidRequest(
            f"version column {name!r} is in the primary key, so it orders nothing",
            place=place,
            hint="all records of a key have the same value there: choose another column",
        )


def check_engine_takes_a_sequence(schema: TableSchema) -> None:
    options = schema.options
    reasons = {
        "first-row": "the first record to arrive stays, whatever its sequence",
        "versioned": "records are ordered by the version column",
    }
    reason = reasons.get(options.merge_engine)
    with_what = f"'merge-engine' = '{options.merge_engine}'"
    if options.sequence_groups:
        reason, with_what = "each group has an order of its own", "sequence groups"
    if options.sequence_field and reason:
        raise InvalidRequest(
            f"option 'sequence.field' does not go with {with_what}",
            place="option sequence.field",
            hint=f"leave it out: {reason}",
        )


def check_sequence_groups(schema: TableSchema) -> None:
    """Every column is in one group at most, either as one that orders or as one that is ordered."""
    groups = {option.name: option for option in _options_of_columns(schema.options) if not _of_one_column(option)}
    ordering: dict[str, str] = {}
    for name, option in groups.items():
        for column in columns_named(schema, option.columns, f"option {name!r}"):
            check_is_plain(column, f"option {name!r}")
            _check_is_in_one_group(column.name, name, ordering)
    ordered: dict[str, str] = {}
    for group, (name, option) in zip(schema.options.sequence_groups, groups.items(), strict=True):
        for column in columns_named(schema, group.members, f"option {name!r}"):
            if column.name in schema.primary_key:
                raise InvalidRequest(
                    f"column {column.name!r} of option {name!r} is in the primary key",
                    place=f"option {name}",
                    hint="it never changes: leave it out of the group",
                )
            if column.name in ordering:
                whose = "the same group" if column.name in option.columns else f"option {ordering[column.name]!r}"
                raise InvalidRequest(
                    f"column {column.name!r} of option {name!r} is a sequence column of {whose}",
                    place=f"option {name}",
                    hint="a group replaces its sequence columns anyway: leave it out of the value",
                )
            _check_is_in_one_group(column.name, name, ordered)


def _check_is_in_one_group(column: str, option: str, seen: dict[str, str]) -> None:
    other = seen.setdefault(column, option)
    if other != option:
        raise InvalidRequest(
            f"column {column!r} is in two sequence groups: option {other!r} and option {option!r}",
            place=f"option {option}",
            hint="leave it in one of the two",
        )


def check_removal(options: TableOptions) -> None:
    """Options that let -D remove a row are not contradicted by others."""
    for name, is_set in (
        ("aggregation.remove-record-on-delete", options.aggregation_remove_record_on_delete),
        ("partial-update.remove-record-on-delete", options.partial_update_remove_record_on_delete),
        ("partial-update.remove-record-on-sequence-group", options.remove_record_on_sequence_group),
    ):
        if not is_set:
            continue
        if options.ignore_delete:
            _refuse_both(name, "'ignore-delete' = 'true', which drops every delete")
        if options.delete_behavior in ("ignore", "disable"):
            _refuse_both(name, f"'delete.behavior' = '{options.delete_behavior}', which lets no delete through")
    if options.partial_update_remove_record_on_delete and options.sequence_groups:
        raise InvalidRequest(
            "option 'partial-update.remove-record-on-delete' does not go with sequence groups",
            place="option partial-update.remove-record-on-delete",
            hint="'partial-update.remove-record-on-sequence-group' names the group that decides",
        )
    ignoring = [name for name, column in options.column_options.items() if column.ignore_retract]
    if options.aggregation_remove_record_on_delete and ignoring:
        _refuse_both("aggregation.remove-record-on-delete", f"'fields.{ignoring[0]}.ignore-retract' = 'true'")


def _refuse_both(name: str, other: str) -> None:
    raise InvalidRequest(
        f"option {name!r} does not go with {other}", place=f"option {name}", hint="leave one of the two out"
    )


def check_removal_group(options: TableOptions) -> None:
    """The group that decides whether -D removes a row is one, and is named by its sequence columns."""
    named = options.remove_record_on_sequence_group
    group_of = {name: group.sequence for group in options.sequence_groups for name in group.sequence}
    place = "option partial-update.remove-record-on-sequence-group"
    for name in named:
        if name not in group_of:
            known = f"sequence columns: {', '.join(group_of)}" if group_of else "the table has no sequence groups"
            raise InvalidRequest(
                f"option 'partial-update.remove-record-on-sequence-group' names column {name!r}, "
                "which is no sequence column of a group",
                place=place,
                hint=known,
            )
    if len({group_of[name] for name in named}) > 1:
        raise InvalidRequest(
            "option 'partial-update.remove-record-on-sequence-group' names columns of several groups: "
            + ", ".join(repr(name) for name in named),
            place=place,
            hint="one group decides whether a row is removed: name the sequence columns of that one",
        )


def check_delete_behavior(options: TableOptions) -> None:
    engine, behavior = options.merge_engine, options.delete_behavior
    if behavior in ("allow", "disable") and options.ignore_delete:
        _refuse_both("delete.behavior", "'ignore-delete' = 'true', which drops every delete")
    if behavior != "allow":
        return
    if engine in ("first-row", "versioned"):
        raise InvalidRequest(
            f"option 'delete.behavior' = 'allow' does not go with 'merge-engine' = '{engine}', which removes no rows",
            place="option delete.behavior",
            hint="it may be 'ignore' or 'disable'",
        )
    removes = options.partial_update_remove_record_on_delete or options.remove_record_on_sequence_group
    if engine == "partial-update" and not removes:
        raise InvalidRequest(
            "option 'delete.behavior' = 'allow' does not say when a delete removes a row of 'partial-update'",
            place="option delete.behavior",
            hint="choose 'partial-update.remove-record-on-delete' or 'partial-update.remove-record-on-sequence-group'",
        )


def check_deletion_vectors(options: TableOptions) -> None:
    """As in Paimon, so that a statement that it refuses is refused here."""
    given = options.given.get("deletion-vectors.enabled", "false").strip().lower()
    if options.merge_engine == "first-row" and given == "true":
        raise InvalidRequest(
            "option 'deletion-vectors.enabled' = 'true' does not go with 'merge-engine' = 'first-row'",
            place="option deletion-vectors.enabled",
            hint="leave it out: readers see merged rows anyway",
        )


def check_sequence_columns_are_not_merged(schema: TableSchema) -> None:
    """Columns that order records hold the sequence of the newest record; no function makes something else of them."""
    options = schema.options
    ordering = {*options.sequence_field, *(name for group in options.sequence_groups for name in group.sequence)}
    for option in _options_of_columns(options):
        if _of_one_column(option) and option.columns[0] in ordering and _is_set(options, option):
            raise InvalidRequest(
                f"option {option.name!r} is for column {option.columns[0]!r}, which orders the records",
                place=f"option {option.name}",
                hint="a sequence column holds the sequence of the newest record: leave the option out",
            )


def check_function(rule: ColumnRule) -> None:
    """The function of a column takes its type, and has an order of records to work with."""
    name, of = rule.column.name, f"function {rule.function.name!r} of column {rule.column.name!r}"
    own = rule.options.aggregate_function is not None
    place = f"option fields.{name}.aggregate-function" if own else "option fields.default-aggregate-function"
    if not rule.explicit and rule.function.name != "last_non_null_value":
        raise InvalidRequest(
            f"{of}, which is in no sequence group, is not for 'partial-update'",
            place=place,
            hint=f"add {name!r} to a sequence group, or choose 'merge-engine' = 'aggregation'"
            + ("" if own else f", or set 'fields.{name}.aggregate-function' = 'last_non_null_value'"),
        )
    takes = rule.function.refusal(rule.column.type)
    if takes is not None:
        raise InvalidRequest(
            f"{of} does not take {rule.column.type.sql_name()}",
            place=place,
            hint=f"it takes {takes}" + ("" if own else f"; give {name!r} a function of its own"),
        )


def check_parameters(options: TableOptions, rule: ColumnRule) -> None:
    """Options of a column are looked at by its function."""
    for option in _options_of_columns(options):
        if not _of_one_column(option) or option.columns[0] != rule.column.name or not _is_set(options, option):
            continue
        attribute = option.attribute
        if attribute in ("aggregate_function", "ignore_retract") or attribute in rule.function.parameters:
            continue
        takers = ", ".join(each.name for each in FUNCTIONS if attribute in each.parameters)
        raise InvalidRequest(
            f"option {option.name!r} has no effect: function {rule.function.name!r} of column {rule.column.name!r} "
            "does not look at it",
            place=f"option {option.name}",
            hint=f"leave it out, or choose one of these functions: {takers}",
        )


def check_nested_fields(rule: ColumnRule) -> None:
    """The fields that say which elements of an array are the same, and which is newer, are there and can do it."""
    if rule.function.name not in ("nested_update", "nested_partial_update"):
        return
    name, key, sequence = rule.column.name, rule.options.nested_key, rule.options.nested_sequence_field
    if not key:
        needs = [
            (rule.function.name == "nested_partial_update", f"function 'nested_partial_update' of column {name!r}"),
            (bool(sequence), f"option 'fields.{name}.nested-sequence-field'"),
            (rule.options.nested_key_null_strategy != "merge", f"option 'fields.{name}.nested-key-null-strategy'"),
        ]
        for needed, by in needs:
            if needed:
                raise InvalidRequest(
                    f"{by} needs option 'fields.{name}.nested-key'",
                    place=f"option fields.{name}.nested-key",
                    hint="name the fields of the ROW that say which elements are the same",
                )
    _fields_named(rule, key, "nested-key")
    for field in _fields_named(rule, sequence, "nested-sequence-field"):
        place = f"option fields.{name}.nested-sequence-field"
        if isinstance(field.type, types.NESTED):
            raise InvalidRequest(
                f"field {field.name!r} of option 'fields.{name}.nested-sequence-field' is {field.type.sql_name()}",
                place=place,
                hint="ARRAY, MAP and ROW have no order: choose another field",
            )
        if field.name in key:
            raise InvalidRequest(
                f"field {field.name!r} of option 'fields.{name}.nested-sequence-field' is in the nested key, "
                "so it orders nothing",
                place=place,
                hint="choose another field",
            )


def check_keytime_field(rule: ColumnRule) -> None:
    """The times of the entries of a map are text."""
    if rule.function.name != "merge_map_with_keytime":
        return
    name, ts_field = rule.column.name, rule.options.ts_field
    fields = _row_fields(rule.column.type)
    (field,) = _fields_named(rule, (ts_field,), "ts-field") if ts_field is not None else fields[-1:]
    if not isinstance(field.type, types.String):
        texts = [each.name for each in fields if isinstance(each.type, types.String)]
        raise InvalidRequest(
            f"function 'merge_map_with_keytime' of column {name!r} compares the field {field.name!r}, "
            f"which is {field.type.sql_name()}",
            place=f"option fields.{name}.ts-field",
            hint=f"times are text: name a STRING field of the ROW{': ' if texts else ''}{', '.join(texts)}",
        )


def check_retracts_are_met(rules: MergeRules, rule: ColumnRule) -> None:
    """Nothing is said about -U and -D of columns that they never reach."""
    retracts = "retract" in (rules.on_delete, rules.on_update_before) and rule.explicit
    if rule.options.ignore_retract and not retracts:
        option = f"fields.{rule.column.name}.ignore-retract"
        raise InvalidRequest(
            f"option {option!r} has no effect: no -U or -D reaches column {rule.column.name!r} in this table",
            place=f"option {option}",
            hint="leave it out: they are dropped or refused, or remove the row",
        )


def check_hidden_rows_are_kept(options: TableOptions, rules: MergeRules) -> None:
    if options.tombstone_time_retained_ms is not None and not rules.keeps_tombstones:
        raise InvalidRequest(
            "option 'tombstone.time-retained' has no effect: this table keeps nothing of a row that is gone",
            place="option tombstone.time-retained",
            hint="leave it out; 'sequence.field' is what makes a table remember deletes",
        )


def _options_of_columns(options: TableOptions) -> list[Option]:
    """The options `fields.…` that were given."""
    return [option for option in map(find_option, options.given) if option.columns]


def _of_one_column(option: Option) -> bool:
    return option.attribute != "sequence_groups"


def _is_set(options: TableOptions, option: Option) -> bool:
    """Whether it was given another value than its default, which asks for what happens anyway."""
    if option.columns and _of_one_column(option):
        return bool(
            getattr(options.column_options[option.columns[0]], option.attribute)
            != getattr(ColumnOptions(), option.attribute)
        )
    return bool(getattr(options, option.attribute) != getattr(TableOptions(), option.attribute))


def _row_fields(data_type: types.DataType) -> tuple[types.Field, ...]:
    """The fields of the ROWs in an ARRAY, or in the values of a MAP."""
    inner = data_type.element if isinstance(data_type, types.Array) else data_type
    inner = inner.value if isinstance(inner, types.Map) else inner
    return inner.fields if isinstance(inner, types.Row) else ()


def _fields_named(rule: ColumnRule, names: Sequence[str], suffix: str) -> list[types.Field]:
    fields = {field.name: field for field in _row_fields(rule.column.type)}
    for name in names:
        if name not in fields:
            option = f"fields.{rule.column.name}.{suffix}"
            raise InvalidRequest(
                f"option {option!r} names field {name!r}, which the ROW of column {rule.column.name!r} does not have",
                place=f"option {option}",
                hint=_nearest(name, tuple(fields), "fields"),
            )
    return [fields[name] for name in names]


# --- shared by the rules


def columns_named(schema: TableSchema, names: Sequence[str], by: str) -> list[Column]:
    """The columns that `by` names; each of them exists, and is named once."""
    for name in names:
        if name not in schema.by_name:
            hint = _nearest(name, schema.column_names, "columns")
            raise InvalidRequest(f"{by} names column {name!r}, which is not declared", place=name, hint=hint)
        if list(names).count(name) > 1:
            raise InvalidRequest(f"{by} names column {name!r} twice", place=name)
    return [schema.by_name[name] for name in names]


def _nearest(name: str, names: Sequence[str], kind: str) -> str:
    near = {known.casefold(): known for known in names}.get(name.casefold())
    near = near or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    return f"did you mean {near!r}?" if near else f"{kind}: {', '.join(names)}"


def check_is_plain(column: Column, use: str) -> None:
    """Nested values have no order and no hash that Spark and Python agree on."""
    if isinstance(column.type, types.NESTED):
        raise InvalidRequest(
            f"column {column.name!r} of {use} is {column.type.sql_name()}",
            place=column.name,
            hint="ARRAY, MAP and ROW can be value columns only",
        )
