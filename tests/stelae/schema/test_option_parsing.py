"""Goal: what works is typed, what does not is refused by name, and an unknown name suggests the nearest.

Method: tables of values; every option that is not applied, by every spelling.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from stelae.errors import InvalidRequest
from stelae.schema.option_parsing import find_option, parse_options
from stelae.schema.options import (
    NOT_YET,
    PATTERNS,
    ColumnOptions,
    FileOptions,
    GroupOption,
    Option,
    Pattern,
    TableOptions,
)


def refusal(raw: dict[str, str]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        parse_options(raw)
    return refused.value


# --- not applied


@pytest.mark.parametrize("option", NOT_YET, ids=lambda option: option.name)
def test_an_option_that_is_not_applied_is_refused_by_name(option: Option) -> None:
    for spelling in option.spellings:
        error = refusal({spelling: "something else"})
        assert repr(spelling) in error.message
        assert "this version does not apply it" in error.message
        assert error.place == f"option {spelling}"
    for value in option.accepted:
        parsed = parse_options({option.name: value.upper()})
        assert parsed.given == {option.name: value.upper()}
        assert dataclasses.replace(parsed, given={}) == TableOptions()


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.template)
def test_a_pattern_is_refused_by_name(pattern: Pattern) -> None:
    name = pattern.template.replace("<columns>", "a,b").replace("<", "").replace(">", "")
    assert repr(name) in refusal({name: "sum"}).message


@pytest.mark.parametrize(
    "name",
    [
        # one of each family, as documentation shows them
        "fields.price.default-value",
        "fields.price.stats-mode",
        "table.datalake.paimon.warehouse",
        "changelog-producer.row-deduplicate",
        "partition.expiration-time",
        "record-level.expire-time",
        "tag.automatic-creation",
        "consumer-id",
        "lookup.partial-cache.max-rows",
        "client.writer.batch-size",
        "client.security.sasl.jaas.config",
        "file-index.bloom-filter.columns",
        "num-sorted-run.compaction-trigger",
        "snapshot.num-retained.min",
        "sequence.snapshot-ordering",
        "postpone.target-row-num-per-bucket",
        "upsert-key",
        "parquet.compression.codec.zstd.level",
        "metadata.iceberg.storage",
    ],
)
def test_options_of_both_systems_are_known(name: str) -> None:
    assert find_option(name).status == "not yet"


# --- values


@pytest.mark.parametrize(
    ("raw", "attribute", "value"),
    [
        ({}, "bucket", None),
        ({"bucket": "8"}, "bucket", 8),
        ({"bucket.num": " 8 "}, "bucket", 8),
        ({"bucket": "-1"}, "bucket", None),
        ({"bucket": "65536"}, "bucket", 65536),
        ({"bucket-key": "a"}, "bucket_key", ("a",)),
        ({"bucket.key": "a, b ,c"}, "bucket_key", ("a", "b", "c")),
        ({}, "bucket_key", ()),
        ({}, "merge_engine", "deduplicate"),
        ({"table.merge-engine": "DEDUPLICATE"}, "merge_engine", "deduplicate"),
        ({"merge-engine": "first-row"}, "merge_engine", "first-row"),
        ({"table.merge-engine": "FIRST_ROW"}, "merge_engine", "first-row"),
        ({"merge-engine": "partial_update"}, "merge_engine", "partial-update"),
        ({"merge-engine": "Aggregation"}, "merge_engine", "aggregation"),
        ({"merge-engine": "versioned"}, "merge_engine", "versioned"),
        ({"merge-engine.versioned.ver-column": "ver"}, "version_column", "ver"),
        ({"table.merge-engine.versioned.ver-column": "ver"}, "version_column", "ver"),
        ({}, "version_column", None),
        ({}, "delete_behavior", None),
        ({"delete.behavior": "allow"}, "delete_behavior", "allow"),
        ({"table.delete.behavior": "IGNORE"}, "delete_behavior", "ignore"),
        ({"table.delete.behavior": "disable"}, "delete_behavior", "disable"),
        ({"aggregation.remove-record-on-delete": "true"}, "aggregation_remove_record_on_delete", True),
        ({"partial-update.remove-record-on-delete": "true"}, "partial_update_remove_record_on_delete", True),
        ({"partial-update.remove-record-on-sequence-group": "g"}, "remove_record_on_sequence_group", ("g",)),
        ({}, "remove_record_on_sequence_group", ()),
        ({"fields.default-aggregate-function": "SUM"}, "default_aggregate_function", "sum"),
        (
            {"fields.default-aggregate-function": "last-value-ignore-nulls"},
            "default_aggregate_function",
            "last_non_null_value",
        ),
        ({}, "default_aggregate_function", None),
        (
            {"sequence.field": "s", "sequence.auto-padding": "row-kind-flag"},
            "sequence_auto_padding",
            ("row-kind-flag",),
        ),
        (
            {"sequence.field": "s", "sequence.auto-padding": "SECOND_TO_MICRO, row-kind-flag,row-kind-flag"},
            "sequence_auto_padding",
            ("second-to-micro", "row-kind-flag"),
        ),
        ({}, "tombstone_time_retained_ms", None),
        ({"tombstone.time-retained": "30 d"}, "tombstone_time_retained_ms", 2_592_000_000),
        ({"tombstone.time-retained": "1day"}, "tombstone_time_retained_ms", 86_400_000),
        ({"tombstone.time-retained": "12 H"}, "tombstone_time_retained_ms", 43_200_000),
        ({"tombstone.time-retained": "90 min"}, "tombstone_time_retained_ms", 5_400_000),
        ({"tombstone.time-retained": " 5s "}, "tombstone_time_retained_ms", 5_000),
        ({"tombstone.time-retained": "500 ms"}, "tombstone_time_retained_ms", 500),
        ({}, "sequence_groups", ()),
        ({"fields.g.sequence-group": "a, b"}, "sequence_groups", (GroupOption(("g",), ("a", "b")),)),
        (
            {"fields.g_2, g_3.sequence-group": "c", "fields.x.y.sequence-group": "d"},
            "sequence_groups",
            (GroupOption(("g_2", "g_3"), ("c",)), GroupOption(("x.y",), ("d",))),
        ),
        ({}, "column_options", {}),
        ({"sequence.field": "ts,seq"}, "sequence_field", ("ts", "seq")),
        ({"sequence.field": "ts", "sequence.field.sort-order": "Descending"}, "sequence_descending", True),
        ({"sequence.field.sort-order": "ascending"}, "sequence_descending", False),
        ({"rowkind.field": "op"}, "rowkind_field", "op"),
        ({}, "rowkind_field", None),
        ({"ignore-delete": "true"}, "ignore_delete", True),
        ({"deduplicate.ignore-delete": "TRUE"}, "ignore_delete", True),
        ({"first-row.ignore-delete": "true"}, "ignore_delete", True),
        ({"partial-update.ignore-delete": "false"}, "ignore_delete", False),
        ({"ignore-update-before": "true"}, "ignore_update_before", True),
        ({}, "dynamic_bucket_target_row_num", 2_000_000),
        ({"dynamic-bucket.target-row-num": "5"}, "dynamic_bucket_target_row_num", 5),
        ({"dynamic-bucket.max-buckets": "3"}, "dynamic_bucket_max_buckets", 3),
        ({"dynamic-bucket.max-buckets": "-1"}, "dynamic_bucket_max_buckets", None),
        ({"dynamic-bucket.max-buckets": "-1", "bucket": "2"}, "bucket", 2),
        ({}, "snapshot_num_retained", 10),
        ({"snapshot.num-retained": "1"}, "snapshot_num_retained", 1),
        ({}, "snapshot_max_count_change", None),
        ({"snapshot.max-count-change": "0.2"}, "snapshot_max_count_change", 0.2),
        ({"snapshot.max-count-change": "20%"}, "snapshot_max_count_change", 0.2),
        ({"snapshot.max-count-change": "250 %"}, "snapshot_max_count_change", 2.5),
        ({"snapshot.max-count-change": "0"}, "snapshot_max_count_change", 0.0),
        ({}, "file_compression", "lz4"),
        ({"file.compression": "zstd"}, "file_compression", "zstd"),
        ({"file.compression": "None"}, "file_compression", "none"),
        ({}, "files", FileOptions("lz4", None, None)),
        ({"file.compression": "zstd", "file.compression.zstd-level": "9"}, "files", FileOptions("zstd", 9, None)),
        ({"file.block-size": "8 kb"}, "file_block_size", 8192),
        ({"file.block-size": "1KiB"}, "file_block_size", 1024),
        ({"file.block-size": "600"}, "files", FileOptions("lz4", None, 600)),
    ],
)
def test_a_value_is_typed(raw: dict[str, str], attribute: str, value: Any) -> None:
    parsed = getattr(parse_options(raw), attribute)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("bucket", "0", "expected 1 to 65536, or -1"),
        ("bucket", "-3", "expected 1 to 65536, or -1"),
        ("bucket", "65537", "expected 1 to 65536, or -1"),
        ("bucket", "-2", "postponed buckets"),
        ("bucket", "four", "expected a whole number"),
        ("bucket", "4.0", "expected a whole number"),
        ("bucket", "1_0", "expected a whole number"),
        ("bucket", "٤", "expected a whole number"),
        ("bucket", "", "expected a whole number"),
        ("bucket", "9" * 5000, "expected a whole number"),
        ("bucket-key", "", "expected column names"),
        ("bucket-key", "a,", "expected column names"),
        ("bucket-key", "a,a", "names column 'a' twice"),
        ("merge-engine", "aggregate", "did you mean aggregation?"),
        ("merge-engine", "none", "expected deduplicate or first-row"),
        ("delete.behavior", "deny", "expected allow or ignore or disable"),
        ("delete.behavior", "", "expected allow or ignore or disable"),
        ("merge-engine.versioned.ver-column", "a,b", "expected one column name"),
        ("aggregation.remove-record-on-delete", "yes", "expected true or false"),
        ("partial-update.remove-record-on-sequence-group", "g,,h", "expected column names"),
        ("fields.default-aggregate-function", "summ", "did you mean 'sum'?"),
        ("sequence.auto-padding", "row-kind-flag", "has no effect without 'sequence.field'"),
        ("sequence.auto-padding", "row-kind", "did you mean row-kind-flag?"),
        ("sequence.auto-padding", "", "expected row-kind-flag or"),
        ("tombstone.time-retained", "30", "expected a number and a unit"),
        ("tombstone.time-retained", "d", "expected a number and a unit"),
        ("tombstone.time-retained", "2 weeks", "expected a number and a unit"),
        ("tombstone.time-retained", "-1 d", "expected a number and a unit"),
        ("tombstone.time-retained", "1.5 d", "expected a number and a unit"),
        ("tombstone.time-retained", "0 d", "expected more than nothing"),
        ("fields.v.aggregate-function", "colect", "did you mean 'collect'?"),
        ("fields.v.agg", "avg", "unknown aggregate function 'avg'"),
        ("fields.v.agg", "", "unknown aggregate function ''"),
        ("fields.v.ignore-retract", "1", "expected true or false"),
        ("fields.v.list-agg-delimiter", "", "expected at least one character"),
        ("fields.v.nested-key", "a,a", "names field 'a' twice"),
        ("fields.v.nested-key-null-strategy", "skip", "expected merge or ignore or error"),
        ("fields.v.nested-sequence-field", ",", "expected field names"),
        ("fields.v.count-limit", "0", "expected 1 to 2147483647"),
        ("fields.v.ts-field", "a,b", "expected one field name"),
        ("fields.g.sequence-group", "", "expected column names"),
        ("fields.g.sequence-group", "a,a", "names column 'a' twice"),
        ("fields.v.default-value", "7", "no default values"),
        ("full-compaction.delta-commits", "5", "nothing compacts in the background"),
        ("merge-engine", "deduplicates", "did you mean deduplicate?"),
        ("merge-engine", "magic", "expected deduplicate"),
        ("sequence.field.sort-order", "down", "expected ascending or descending"),
        ("sequence.field.sort-order", "descending", "has no effect without 'sequence.field'"),
        ("rowkind.field", "a,b", "expected one column name"),
        ("ignore-delete", "yes", "expected true or false"),
        ("dynamic-bucket.target-row-num", "0", "expected at least 1"),
        ("snapshot.num-retained", "0", "expected at least 1"),
        ("snapshot.max-count-change", "-0.1", "expected a fraction"),
        ("snapshot.max-count-change", "nan", "expected a fraction"),
        ("snapshot.max-count-change", "1e3", "expected a fraction"),
        ("file.compression", "gzip", "expected lz4 or zstd or none"),
        ("file.compression.zstd-level", "20", "expected 1 to 19"),
        ("file.block-size", "64 mb", "expected 512 b to 64 kb"),
        ("file.block-size", "511", "expected 512 b to 64 kb"),
        ("file.block-size", "4 gb", "expected a size, such as '4 kb'"),
        ("changelog-producer", "lookup", "no changelog is written yet"),
        ("snapshot.num-retained.max", "5", "use 'snapshot.num-retained'"),
        ("sink.ignore-delete", "true", "'ignore-delete'"),
        ("connector", "kafka", "one of Stelae's own"),
        ("primary-key", "a", "a part of the table's definition"),
    ],
)
def test_a_wrong_value_says_what_is_right(name: str, value: str, says: str) -> None:
    error = refusal({name: value})
    assert says in error.message
    assert name in str(error.place)
    assert error.hint


def test_an_option_without_effect_is_refused() -> None:
    for name in ("dynamic-bucket.target-row-num", "dynamic-bucket.max-buckets"):
        error = refusal({"bucket": "4", name: "7"})
        assert error.message == f"option {name!r} has no effect with 'bucket' = '4'"
    for compression in ({}, {"file.compression": "lz4"}, {"file.compression": "none"}):
        error = refusal({**compression, "file.compression.zstd-level": "3"})
        assert "has no effect with 'file.compression' = " in error.message


@pytest.mark.parametrize("other", ["4", "5"])
def test_two_spellings_of_one_option_are_refused(other: str) -> None:
    error = refusal({"bucket": "4", "bucket.num": other})
    assert error.message == "option 'bucket' is given twice: as 'bucket' and as 'bucket.num'"


def test_what_was_given_is_kept_by_canonical_name() -> None:
    raw = {"bucket.num": " 4 ", "table.merge-engine": "Deduplicate", "type": "TABLE"}
    parsed = parse_options(raw)
    assert parsed.given == {"bucket": " 4 ", "merge-engine": "Deduplicate", "type": "TABLE"}
    assert parse_options(parsed.given) == parsed
    assert hash(parsed) == hash(parse_options(parsed.given))


def test_a_value_that_is_not_text_is_refused() -> None:
    assert "is not text" in refusal({"bucket": 4}).message  # type: ignore[dict-item]


# --- options of columns


@pytest.mark.parametrize(
    ("raw", "columns"),
    [
        ({"fields.v.aggregate-function": "sum"}, {"v": {"aggregate_function": "sum"}}),
        ({"fields.v.agg": "STRING-AGG"}, {"v": {"aggregate_function": "listagg"}}),
        ({"fields.v.agg": "first_not_null_value"}, {"v": {"aggregate_function": "first_non_null_value"}}),
        ({"fields.v.ignore-retract": "true"}, {"v": {"ignore_retract": True}}),
        ({"fields.v.distinct": "TRUE"}, {"v": {"distinct": True}}),
        ({"fields.v.list-agg-delimiter": " ; "}, {"v": {"delimiter": " ; "}}),
        ({"fields.v.listagg.delimiter": "|"}, {"v": {"delimiter": "|"}}),
        ({"fields.v.string_agg.delimiter": " "}, {"v": {"delimiter": " "}}),
        ({"fields.v.nested-key": "a, b"}, {"v": {"nested_key": ("a", "b")}}),
        ({"fields.v.nested-key-null-strategy": "Ignore"}, {"v": {"nested_key_null_strategy": "ignore"}}),
        ({"fields.v.nested-sequence-field": "s"}, {"v": {"nested_sequence_field": ("s",)}}),
        ({"fields.v.count-limit": "3"}, {"v": {"count_limit": 3}}),
        ({"fields.v.ts-field": "ts"}, {"v": {"ts_field": "ts"}}),
        ({"fields.v.distinct": "false"}, {"v": {}}),
        # names of columns may be anything
        (
            {"fields.a.b.agg": "max", "fields.a.agg": "min"},
            {"a.b": {"aggregate_function": "max"}, "a": {"aggregate_function": "min"}},
        ),
        ({"fields.agg.agg": "max"}, {"agg": {"aggregate_function": "max"}}),
        ({"fields.x.listagg.agg": "max"}, {"x.listagg": {"aggregate_function": "max"}}),
        ({"fields.a,b.agg": "max"}, {"a,b": {"aggregate_function": "max"}}),
        (
            {"fields.default-aggregate-function.agg": "max"},
            {"default-aggregate-function": {"aggregate_function": "max"}},
        ),
        ({"fields.größe in m².agg": "max"}, {"größe in m²": {"aggregate_function": "max"}}),
    ],
)
def test_an_option_of_a_column_is_typed(raw: dict[str, str], columns: dict[str, dict[str, Any]]) -> None:
    parsed = parse_options(raw)
    assert parsed.column_options == {name: ColumnOptions(**each) for name, each in columns.items()}
    assert parse_options(parsed.given) == parsed
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_two_spellings_of_one_option_of_a_column_are_refused() -> None:
    error = refusal({"fields.v.listagg.delimiter": ";", "fields.v.string_agg.delimiter": ";"})
    assert "option 'fields.v.list-agg-delimiter' is given twice" in error.message
    assert "given twice" in refusal({"fields.v.agg": "sum", "fields.v.aggregate-function": "sum"}).message
    assert "given twice" in refusal({"fields.a,b.sequence-group": "c", "fields.a, b.sequence-group": "d"}).message


def test_a_sequence_group_names_a_column_once() -> None:
    error = refusal({"fields.g,g.sequence-group": "a"})
    assert "names column 'g' twice" in error.message
    assert error.place == "option fields.g,g.sequence-group"


# --- deletes, as Fluss and Paimon take them by default


@pytest.mark.parametrize(
    ("raw", "behavior"),
    [
        ({"table.merge-engine": "first_row"}, "ignore"),
        ({"table.merge-engine": "versioned"}, "ignore"),
        ({"table.merge-engine": "aggregation"}, "ignore"),
        ({"table.merge-engine": "deduplicate"}, None),
        ({"table.merge-engine": "partial_update"}, None),
        ({"merge-engine": "first_row"}, None),
        ({"merge-engine": "versioned"}, None),
        ({"merge-engine": "aggregation"}, None),
        ({"table.merge-engine": "aggregation", "table.delete.behavior": "allow"}, "allow"),
        ({"table.merge-engine": "first_row", "delete.behavior": "disable"}, "disable"),
        ({"table.merge-engine": "first_row", "ignore-delete": "true"}, None),
        ({"table.merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}, None),
        ({"table.merge-engine": "aggregation", "fields.v.ignore-retract": "true"}, None),
        ({"table.merge-engine": "aggregation", "fields.v.ignore-retract": "false"}, "ignore"),
    ],
)
def test_what_deletes_do_by_default_depends_on_the_spelling(raw: dict[str, str], behavior: str | None) -> None:
    parsed = parse_options(raw)
    assert parsed.delete_behavior == behavior
    assert parsed.given.get("delete.behavior", "").lower() == (behavior or "")
    assert parse_options(parsed.given) == parsed


# --- unknown names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("buckets", "bucket"),
        ("bucket_key", "bucket-key"),
        ("Bucket", "bucket"),
        ("mergeengine", "merge-engine"),
        ("merge.engine", "merge-engine"),
        ("sequence-field", "sequence.field"),
        ("snapshot.num-retain", "snapshot.num-retained"),
        ("file-compression", "file.compression"),
        ("changelog-produser", "changelog-producer"),
        ("fields.a.b.ignore-retracts", "fields.a.b.ignore-retract"),
        ("fields.price.agregate-function", "fields.price.aggregate-function"),
        ("fields.a.listagg.delimeter", "fields.a.listagg.delimiter"),
        ("fields.a,b.sequence-groups", "fields.a,b.sequence-group"),
        ("fields.default-agregate-function", "fields.default-aggregate-function"),
        ("table.merge-engine.versioned.column", "table.merge-engine.versioned.ver-column"),
        ("tombstone.retained", "tombstone.time-retained"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    error = refusal({name: "1"})
    assert error.message == f"unknown option {name!r}"
    assert error.hint == f"did you mean {near!r}?"


@pytest.mark.parametrize("name", ["", "xyz", "zzzzzzzzzz", "my.own.property", "fields..zz"])
def test_a_name_like_nothing_suggests_the_page(name: str) -> None:
    assert refusal({name: "1"}).hint == "docs/options.md lists the options"
