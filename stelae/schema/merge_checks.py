"""Whether the options that say how records become rows fit the columns, the merge engine and each other.

`check_merging` calls all rules; stelae/schema/checks.py calls it once names, types and keys are right.
"""

from __future__ import annotations

from collections.abc import Sequence

from stelae.errors import InvalidRequest
from stelae.schema import types
from stelae.schema.aggregate_functions import FUNCTIONS
from stelae.schema.column_checks import check_is_plain, columns_named, nearest_hint
from stelae.schema.merge_rules import VERSION_TYPES, ColumnRule, MergeRules, merge_rules
from stelae.schema.option_parsing import find_option, given_column_options
from stelae.schema.options import ColumnOptions, Option, TableOptions
from stelae.schema.table_schema import TableSchema

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
    for option in given_column_options(schema.options):
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
    groups = {option.name: option for option in given_column_options(schema.options) if not option.is_of_one_column}
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
    for option in given_column_options(options):
        if option.is_of_one_column and option.columns[0] in ordering and _is_set(options, option):
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
    for option in given_column_options(options):
        if not option.is_of_one_column or option.columns[0] != rule.column.name or not _is_set(options, option):
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


def _is_set(options: TableOptions, option: Option) -> bool:
    """Whether it was given another value than its default, which asks for what happens anyway."""
    if option.columns and option.is_of_one_column:
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
                hint=nearest_hint(name, tuple(fields), "fields"),
            )
    return [fields[name] for name in names]
