"""Arrow types and numpy views.

Goal: a batch of any producer gives the physical values that its column declares, or an error that names the column.
Method: a table of conversions, round trips of random values of every type (sliced, with nulls), and Spark's own types.
"""

from __future__ import annotations

import decimal
import random

import numpy as np
import pyarrow as pa
import pytest

from stelae.encoding.arrow import (
    arrow_schema,
    arrow_type,
    conform,
    first_null,
    fixed_values,
    from_fixed,
    from_variable,
    variable_values,
)
from stelae.errors import InvalidRequest, TooLarge
from stelae.schema.table_schema import Column
from stelae.schema.types import (
    Array,
    BigInt,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Double,
    Field,
    Float,
    Int,
    Map,
    Row,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
)
from tests.stelae.encoding.physical import KEY_TYPES, arrow_array, physical_values, random_values, same

NESTED = Row(fields=(Field("a", Array(element=Int(nullable=False))), Field("m", Map(key=String(), value=Double()))))


def test_schema_is_the_one_that_spark_asks_for() -> None:
    columns = [Column(0, "id", BigInt(nullable=False)), Column(1, "at", TimestampLtz()), Column(2, "nested", NESTED)]
    assert arrow_schema(columns) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field(
                "nested",
                pa.struct(
                    [
                        ("a", pa.list_(pa.field("element", pa.int32(), nullable=False))),
                        ("m", pa.map_(pa.string(), pa.float64())),
                    ]
                ),
            ),
        ]
    )


@pytest.mark.parametrize("data_type", KEY_TYPES.values(), ids=KEY_TYPES)
def test_views_round_trip(data_type: DataType) -> None:
    rng = random.Random(1)
    for rows in (0, 1, 7, 100):
        values = random_values(rng, data_type, rows)
        array = arrow_array(values, data_type)
        assert array.type == arrow_type(data_type)
        for part, expected in ((array, values), (array[3:], values[3:]), (array[3:-9], values[3:-9])):
            if isinstance(data_type, String | Binary):
                again = from_variable(part.type, *variable_values(part))
            else:
                again = from_fixed(data_type, fixed_values(part, data_type))
            again.validate(full=True)
            assert all(map(same, physical_values(again, data_type), expected))
            assert len(again) == len(expected)


@pytest.mark.parametrize("data_type", KEY_TYPES.values(), ids=KEY_TYPES)
def test_nulls_are_kept_apart(data_type: DataType) -> None:
    values = random_values(random.Random(2), data_type, 20)
    array = arrow_array([None if i in (4, 11) else v for i, v in enumerate(values)], data_type)
    assert first_null(array) == 4
    assert first_null(array[5:]) == 6
    assert first_null(array[12:]) is None
    valid = np.array([i not in (4, 11) for i in range(20)])
    if isinstance(data_type, String | Binary):
        again = from_variable(array.type, *variable_values(array), valid)
    else:
        again = from_fixed(data_type, fixed_values(array, data_type), valid)
    assert again.is_valid().to_pylist() == valid.tolist()
    assert again.null_count == 2


@pytest.mark.parametrize(
    ("given", "data_type"),
    [
        (pa.array([1, 2], pa.int8()), BigInt()),
        (pa.array([1, 2], pa.int64()), TinyInt()),
        (pa.array([1, 2], pa.uint64()), Int()),
        (pa.array([0.5], pa.float64()), Float()),
        (pa.array([0.5, None, float("inf")], pa.float32()), Double()),
        (pa.array(["é", "b"], pa.large_string()), String()),
        (pa.array(["é", "b"], pa.string_view()), String()),
        (pa.array(["é", "b", "é"]).dictionary_encode(), String()),
        (pa.array(["é".encode()], pa.binary()), String()),
        (pa.array([b"\xff"], pa.large_binary()), Binary()),
        (pa.array([b"\xff"], pa.binary_view()), Binary()),
        (pa.array([b"ab"], pa.binary(2)), Binary()),
        (pa.array([86_400_000], pa.date64()), Date()),
        (pa.array([1], pa.time32("s")), Time()),
        (pa.array([1], pa.time64("us")), Time()),
        (pa.array([1], pa.timestamp("s")), Timestamp()),
        (pa.array([1000], pa.timestamp("ns")), Timestamp()),
        (pa.array([1], pa.timestamp("us", tz="Asia/Tokyo")), TimestampLtz()),
        (pa.array([1], pa.timestamp("ms", tz="+01:00")), TimestampLtz()),
        (pa.nulls(3), Decimal(precision=20, scale=2)),
        (pa.array([decimal.Decimal("1.5")]), Decimal(precision=10, scale=2)),
        (pa.array([[1]]), Array(element=Int())),
    ],
    ids=str,
)
def test_same_meaning_is_taken(given: pa.Array, data_type: DataType) -> None:
    array = conform(given, data_type, "c")
    assert array.type == arrow_type(data_type)
    assert [str(v) for v in array.to_pylist()] == [str(v) for v in given.cast(array.type).to_pylist()]


def test_zone_is_only_a_label() -> None:
    tokyo = pa.array([-62_135_596_800_000_000, 0], pa.timestamp("us", tz="Asia/Tokyo"))
    assert fixed_values(conform(tokyo, TimestampLtz(), "c"), TimestampLtz()).tolist() == [-62_135_596_800_000_000, 0]


@pytest.mark.parametrize(
    ("given", "data_type", "message"),
    [
        (pa.array([300]), TinyInt(), "300 not in range"),
        (pa.array([2**63], pa.uint64()), BigInt(), "not in range"),
        (pa.array([1.0]), BigInt(), "column c is BIGINT, but its values are of Arrow type double"),
        (pa.array([1]), Double(), "Arrow type int64"),
        (pa.array([1]), Boolean(), "Arrow type int64"),
        (pa.array([1]), Decimal(precision=5), "Arrow type int64"),
        (pa.array(["1"]), BigInt(), "Arrow type string"),
        (pa.array(["a"]), Binary(), "Arrow type string"),
        (pa.array([b"\xff"]), String(), "UTF8"),
        (pa.array([1e300]), Float(), "out of the range of FLOAT"),
        (pa.array([1001], pa.timestamp("ns")), Timestamp(), "lose data"),
        (pa.array([1], pa.timestamp("us")), TimestampLtz(), "Arrow type timestamp"),
        (pa.array([1], pa.timestamp("us", tz="UTC")), Timestamp(), "tz=UTC"),
        (pa.array([decimal.Decimal("123.45")]), Decimal(precision=4, scale=1), "do not fit"),
        (pa.array([[1.5]]), Array(element=Int()), "do not fit"),
    ],
    ids=str,
)
def test_other_meaning_is_refused(given: pa.Array, data_type: DataType, message: str) -> None:
    with pytest.raises(InvalidRequest, match="c") as caught:
        conform(given, data_type, "c")
    assert message in caught.value.message
    assert caught.value.place == "c"


def test_too_many_bytes_for_32_bit_offsets() -> None:
    with pytest.raises(TooLarge):
        from_variable(pa.binary(), np.array([0, 2**31]), np.zeros(0, np.uint8))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([{"a": 1}]), Row(fields=(Field("b", Int()),))),
        (pa.array([[{"a": 1}]]), Array(element=Row(fields=(Field("b", Int()),)))),
        (
            pa.array([{"a": {"x": 1}, "b": 2}]),
            Row(fields=(Field("a", Row(fields=(Field("y", Int()),))), Field("b", Int()))),
        ),
    ],
)
def test_rows_without_their_fields_are_refused(values: pa.Array, wanted: DataType) -> None:
    """Arrow's own cast would fill the missing field with null."""
    with pytest.raises(InvalidRequest, match="column c is"):
        conform(values, wanted, "c")
