"""Goal: every option of Paimon's and Fluss's primary-key tables is known by every spelling; what works is typed, what
does not is refused by name, and the reference page says the same as the code.

Method: invariants over all declarations, tables of values, and the page on disk against the one that is printed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stelae import options
from stelae.errors import InvalidRequest
from stelae.options import BY_SPELLING, DEFINITION, NOT_YET, OPTIONS, PATTERNS, WORKING, TableOptions, find_option

ROOT = Path(__file__).parent.parent.parent


def refusal(raw: dict[str, str]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        TableOptions.parse(raw)
    return refused.value


# --- the declarations


def test_no_spelling_is_declared_twice() -> None:
    spellings = Counter(spelling for option in OPTIONS for spelling in option.spellings)
    assert [spelling for spelling, times in spellings.items() if times > 1] == []
    assert len(BY_SPELLING) == len(spellings)


def test_every_field_but_given_is_a_declaration() -> None:
    attributes = [part.name for part in dataclasses.fields(TableOptions)]
    assert [option.attribute for option in WORKING] == attributes[:-1]
    assert attributes[-1] == "given"


@pytest.mark.parametrize("option", WORKING, ids=lambda option: option.name)
def test_every_default_is_the_value_of_its_text(option: options.Option) -> None:
    assert option.kind is not None
    assert option.consequence.endswith(".")
    default = getattr(TableOptions(), option.attribute)
    shown = option.kind.show(default)
    if shown != "none" or option.name == "file.compression":
        assert option.parse(shown, option.name) == default
    assert shown.split(":")[0] in (option.default, option.default.split(":")[0]) or option.default.startswith("the ")


@pytest.mark.parametrize("option", NOT_YET, ids=lambda option: option.name)
def test_an_option_that_is_not_applied_is_refused_by_name(option: options.Option) -> None:
    for spelling in option.spellings:
        error = refusal({spelling: "something else"})
        assert repr(spelling) in error.message
        assert "this version does not apply it" in error.message
        assert error.place == f"option {spelling}"
    for value in option.accepted:
        parsed = TableOptions.parse({option.name: value.upper()})
        assert parsed.given == {option.name: value.upper()}
        assert dataclasses.replace(parsed, given={}) == TableOptions()


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.template)
def test_a_pattern_is_refused_by_name(pattern: options.Pattern) -> None:
    name = pattern.template.replace("<columns>", "a,b").replace("<", "").replace(">", "")
    assert repr(name) in refusal({name: "sum"}).message


@pytest.mark.parametrize(
    "name",
    [
        # one of each family, as documentation shows them
        "fields.price.aggregate-function",
        "fields.g_1,g_2.sequence-group",
        "fields.tags.distinct",
        "fields.default-aggregate-function",
        "fields.v.agg",
        "table.merge-engine.versioned.ver-column",
        "table.auto-increment.fields",
        "table.auto-increment.cache-size",
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
        "sequence.auto-padding",
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
    ],
)
def test_a_value_is_typed(raw: dict[str, str], attribute: str, value: Any) -> None:
    parsed = getattr(TableOptions.parse(raw), attribute)
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
        ("merge-engine", "first-row", "this version does not apply it yet"),
        ("merge-engine", "first_row", "this version does not apply it yet"),
        ("merge-engine", "partial-update", "this version does not apply it yet"),
        ("merge-engine", "aggregation", "this version does not apply it yet"),
        ("table.merge-engine", "versioned", "this version does not apply it yet"),
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
        ("changelog-producer", "lookup", "no changelog is written yet"),
        ("snapshot.num-retained.max", "5", "use 'snapshot.num-retained'"),
        ("table.delete.behavior", "ignore", "'ignore-delete'"),
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


@pytest.mark.parametrize("other", ["4", "5"])
def test_two_spellings_of_one_option_are_refused(other: str) -> None:
    error = refusal({"bucket": "4", "bucket.num": other})
    assert error.message == "option 'bucket' is given twice: as 'bucket' and as 'bucket.num'"


def test_what_was_given_is_kept_by_canonical_name() -> None:
    raw = {"bucket.num": " 4 ", "table.merge-engine": "Deduplicate", "type": "TABLE"}
    parsed = TableOptions.parse(raw)
    assert parsed.given == {"bucket": " 4 ", "merge-engine": "Deduplicate", "type": "TABLE"}
    assert TableOptions.parse(parsed.given) == parsed
    assert hash(parsed) == hash(TableOptions.parse(parsed.given))


def test_a_value_that_is_not_text_is_refused() -> None:
    assert "is not text" in refusal({"bucket": 4}).message  # type: ignore[dict-item]


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
        ("fields.price.agregate-function", "fields.price.aggregate-function"),
        ("fields.a.b.ignore-retracts", "fields.a.b.ignore-retract"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    error = refusal({name: "1"})
    assert error.message == f"unknown option {name!r}"
    assert error.hint == f"did you mean {near!r}?"


@pytest.mark.parametrize("name", ["", "xyz", "zzzzzzzzzz", "my.own.property"])
def test_a_name_like_nothing_suggests_the_page(name: str) -> None:
    assert refusal({name: "1"}).hint == "docs/options.md lists the options"


# --- the reference page


def test_the_page_on_disk_is_the_one_that_is_printed() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options.reference_page(), "print it again: python -m stelae.options > docs/options.md"


def test_the_page_names_every_option() -> None:
    page = options.reference_page()
    for name in (*BY_SPELLING, *(option.name for option in DEFINITION), *(pattern.template for pattern in PATTERNS)):
        assert f"`{name}`" in page
