"""Values at the doors. Goal: what goes out comes back the same, what a type cannot hold is refused with its place and a
reason, and nothing is bent on the way.

Method: round trips of random values of all types, nested ones too; tables of what is taken and what is refused; numpy
as the judge of dates outside of Python's years.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stelae.encoding import temporal
from stelae.encoding.value_codec import as_is
from stelae.encoding.values import type_codec, value_codec
from stelae.errors import InvalidRequest
from stelae.schema.table_schema import Column
from stelae.schema.types import (
    INTEGERS,
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
    SmallInt,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
)
from tests.stelae.encoding.nested import PLAIN_TYPES, TYPES, same, values_of

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
TYPES_AND_VALUES = TYPES.flatmap(lambda data_type: st.tuples(st.just(data_type), values_of(data_type)))

ADDRESS = Row(fields=(Field("city", String(length=10)), Field("zip", Int(nullable=False))))
TAGS = Map(key=String(nullable=False), value=Int())
BY_DAY = Map(key=Date(nullable=False), value=Int())
CENTS = Decimal(precision=5, scale=2)


# --- round trips


@settings(RELAXED, max_examples=300)
@given(TYPES_AND_VALUES)
def test_json_round_trip(case: tuple[DataType, Any]) -> None:
    data_type, value = case
    codec = type_codec(data_type)
    body = orjson.dumps(codec.to_json(value))
    assert same(codec.from_json(orjson.loads(body), "x"), value)
    if value is not None:
        assert orjson.dumps(codec.present_to_json(value)) == body


@settings(RELAXED, max_examples=200)
@given(TYPES_AND_VALUES)
def test_text_round_trip(case: tuple[DataType, Any]) -> None:
    data_type, value = case
    if value is None:
        return
    codec = type_codec(data_type)
    json = codec.to_json(value)
    text = json if isinstance(json, str) else orjson.dumps(json).decode()
    assert same(codec.from_text(text, "x"), value)


@settings(RELAXED, max_examples=200)
@given(TYPES_AND_VALUES)
def test_python_round_trip(case: tuple[DataType, Any]) -> None:
    data_type, value = case
    if has_float_keys(data_type):
        return  # a dict has one key for 0.0 and -0.0
    codec = type_codec(data_type)
    assert same(codec.from_python(codec.to_python(value), "x"), value)


def has_float_keys(data_type: DataType) -> bool:
    match data_type:
        case Array(element=element):
            return has_float_keys(element)
        case Map(key=key, value=value):
            return isinstance(key, Float | Double) or has_float_keys(key) or has_float_keys(value)
        case Row(fields=fields):
            return any(has_float_keys(field.type) for field in fields)
    return False


@settings(RELAXED, max_examples=100)
@given(PLAIN_TYPES, st.data())
def test_null_goes_both_ways_if_the_type_is_nullable(data_type: DataType, data: st.DataObject) -> None:
    codec = type_codec(data_type)
    assert codec.to_json(None) is None
    assert codec.to_python(None) is None
    for read in (codec.from_json, codec.from_python):
        if data_type.nullable:
            assert read(None, "x") is None
        else:
            with pytest.raises(InvalidRequest, match="x is null"):
                read(None, "x")


def test_a_codec_is_made_once() -> None:
    column = Column(1, "a", Array(element=Int()))
    assert value_codec(column) is value_codec(Column(2, "b", Array(element=Int())))
    assert value_codec(Column(1, "a", BigInt())).present_to_json is as_is


# --- what JSON and text look like

JSON: list[tuple[DataType, Any, Any]] = [
    (Boolean(), True, True),
    (BigInt(), -(2**63), -(2**63)),
    (Float(), struct.unpack("<f", struct.pack("<f", 0.1))[0], 0.1),
    (Float(), struct.unpack("<f", bytes.fromhex("ffff7f7f"))[0], 3.4028235e38),
    (Double(), 0.1, 0.1),
    (Double(), math.nan, "NaN"),
    (Float(), math.inf, "Infinity"),
    (Double(), -math.inf, "-Infinity"),
    (CENTS, 0, "0.00"),
    (CENTS, -5, "-0.05"),
    (CENTS, 12345, "123.45"),
    (Decimal(precision=38, scale=38), -1, "-0." + "0" * 37 + "1"),
    (Decimal(precision=38), 10**37, "1" + "0" * 37),
    (String(), "é", "é"),
    (Binary(), b"\xfb\xff", "+/8="),
    (Date(), 0, "1970-01-01"),
    (Date(), -719_528, "0000-01-01"),
    (Date(), -719_529, "-0001-12-31"),
    (Date(), 2_932_897, "+10000-01-01"),
    (Date(), 2**31 - 1, "+5881580-07-11"),
    (Date(), -(2**31), "-5877641-06-23"),
    (Time(), 0, "00:00:00"),
    (Time(precision=6), 86_399_999_999_000, "23:59:59.999999"),
    (Time(precision=3), 1_500_000_000, "00:00:01.500"),
    (Time(precision=3), 1_500_100_000, "00:00:01.500100"),
    (Time(precision=6), 1_500_000_000, "00:00:01.500000"),
    (Time(precision=6), 1, "00:00:00.000000001"),
    (Timestamp(), 1_763_642_096_123_456, "2025-11-20T12:34:56.123456"),
    (Timestamp(), 1_763_642_096_000_000, "2025-11-20T12:34:56"),
    (Timestamp(), 1_763_642_096_500_000, "2025-11-20T12:34:56.500000"),
    (Timestamp(precision=3), 1_763_642_096_500_000, "2025-11-20T12:34:56.500"),
    (Timestamp(precision=3), 1_763_642_096_500_001, "2025-11-20T12:34:56.500001"),
    (Timestamp(precision=0), 1_763_642_096_500_000, "2025-11-20T12:34:56.500000"),
    (TimestampLtz(), -1, "1969-12-31T23:59:59.999999Z"),
    (TimestampLtz(precision=0), 0, "1970-01-01T00:00:00Z"),
    (Timestamp(), 2**63 - 1, "+294247-01-10T04:00:54.775807"),
    (TimestampLtz(), -(2**63), "-290308-12-21T19:59:05.224192Z"),
    (TAGS, [("a", 1), ("b", None)], {"a": 1, "b": None}),
    (TAGS, [], {}),
    (TAGS, [("a", 1), ("a", 2)], [["a", 1], ["a", 2]]),
    (BY_DAY, [(0, 1)], [["1970-01-01", 1]]),
    (ADDRESS, (None, 1), {"city": None, "zip": 1}),
    (Array(element=Array(element=CENTS)), [[1], None], [["0.01"], None]),
]


@pytest.mark.parametrize(("data_type", "value", "json"), JSON, ids=lambda case: str(case)[:40])
def test_json_of_values(data_type: DataType, value: Any, json: Any) -> None:
    shown = type_codec(data_type).to_json(value)
    assert same(shown, json) or shown == json
    orjson.dumps(shown)


TAKEN_JSON: list[tuple[DataType, Any, Any]] = [
    (BigInt(), "9223372036854775807", 2**63 - 1),
    (BigInt(), "-0", 0),
    (BigInt(), "007", 7),
    (Float(), 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    (Float(), 16_777_217, 16_777_216.0),
    (Float(), 1e-60, 0.0),
    (Double(), 1, 1.0),
    (Double(), "NaN", math.nan),
    (CENTS, "1", 100),
    (CENTS, "-1.5", -150),
    (CENTS, "1.500", 150),
    (CENTS, 7, 700),
    (Decimal(precision=2, scale=2), "0.25", 25),
    (String(length=2), "éé", "éé"),
    (String(length=2, fixed=True), "a", "a"),
    (Binary(length=2), "AAE=", b"\x00\x01"),
    (Date(), "0001-01-01", -719_162),
    (Date(), "+2024-02-29", 19_782),
    (Time(precision=3), "12:34:56.789000000", 45_296_789_000_000),
    (Timestamp(), "2025-11-20 12:34:56", 1_763_642_096_000_000),
    (Timestamp(precision=0), "2025-11-20T12:34:56.000", 1_763_642_096_000_000),
    (TimestampLtz(), "2025-11-20T12:34:56.5+01:00", 1_763_638_496_500_000),
    (TimestampLtz(), "1969-12-31T18:30:00-05:30", 0),
    (TAGS, [["a", 1]], [("a", 1)]),
    (ADDRESS, {"zip": 1}, (None, 1)),
]


@pytest.mark.parametrize(("data_type", "json", "value"), TAKEN_JSON, ids=lambda case: str(case)[:40])
def test_other_json_that_is_taken(data_type: DataType, json: Any, value: Any) -> None:
    assert same(type_codec(data_type).from_json(json, "x"), value)


REFUSED_JSON: list[tuple[DataType, Any, str, str]] = [
    (Boolean(), 1, "x", "number 1 is no BOOLEAN: expected true or false"),
    (Boolean(), "true", "x", "string 'true' is no BOOLEAN"),
    (TinyInt(), 128, "x", "number 128 is no TINYINT: it is out of range"),
    (SmallInt(), -32_769, "x", "out of range"),
    (Int(), 2**31, "x", "out of range"),
    (BigInt(), 2**63, "x", "out of range"),
    (BigInt(), 10**400, "x", "a number of many digits is no BIGINT: it is out of range"),
    (BigInt(), 1e19, "x", "expected a whole number"),
    (BigInt(), 1.0, "x", "number 1.0 is no BIGINT: expected a whole number"),
    (BigInt(), True, "x", "boolean true is no BIGINT"),
    (BigInt(), "9223372036854775808", "x", "out of range"),
    (BigInt(), " 1", "x", "expected a whole number"),
    (BigInt(), "1_000", "x", "expected a whole number"),
    (BigInt(), "+1", "x", "expected a whole number"),
    (BigInt(), "١", "x", "expected a whole number"),
    (BigInt(), "²", "x", "expected a whole number"),
    (BigInt(), "", "x", "expected a whole number"),
    (BigInt(), "-", "x", "expected a whole number"),
    (BigInt(), "--1", "x", "expected a whole number"),
    (BigInt(), "1" * 5000, "x", "expected a whole number"),
    (Int(), "1", "x", "string '1' is no INT"),
    (Int(), [], "x", "an array of 0 is no INT"),
    (Int(), {"a": 1}, "x", "an object of 1 is no INT"),
    (Float(), 1e39, "x", "number 1e+39 is no FLOAT: it is out of range"),
    (Float(), "1", "x", "expected a number"),
    (Double(), True, "x", "expected a number"),
    (Double(), 10**400, "x", "out of range"),
    (Double(), math.inf, "x", "out of range"),
    (Double(), "nan", "x", "expected a number"),
    (CENTS, 1.5, "x", 'number 1.5 is no DECIMAL(5, 2): expected a string of digits, such as "0.01"'),
    (CENTS, "1000", "x", "more than 3 digits before the point"),
    (CENTS, 1000, "x", "more than 3 digits before the point"),
    (CENTS, "1.234", "x", "more than 2 digits after the point"),
    (CENTS, "1e2", "x", "expected a string of digits"),
    (CENTS, ".5", "x", "expected a string of digits"),
    (CENTS, "NaN", "x", "expected a string of digits"),
    (CENTS, True, "x", "boolean true is no DECIMAL"),
    (String(length=2), "abc", "x", "string 'abc' is no VARCHAR(2): it has 3 characters"),
    (String(length=2, fixed=True), "abc", "x", "is no CHAR(2)"),
    (String(), 1, "x", "number 1 is no STRING"),
    (String(), "\ud800", "x", "surrogate"),
    (Binary(length=1), "AAE=", "x", "it has 2 bytes"),
    (Binary(), "AAE", "x", "base64"),
    (Binary(), "A A=", "x", "base64"),
    (Binary(), "-_8=", "x", "base64"),
    (Binary(), "é", "x", "base64"),
    (Binary(), "AAE=AAE=", "x", "base64"),
    (Date(), "2025-02-29", "x", "no such day"),
    (Date(), "20251120", "x", "expected yyyy-mm-dd"),
    (Date(), "2025-11-20T00:00:00", "x", "expected yyyy-mm-dd"),
    (Date(), "2025-1-2", "x", "expected yyyy-mm-dd"),
    (Date(), "٢٠٢٥-11-20", "x", "expected yyyy-mm-dd"),
    (Date(), "12025-11-20", "x", "expected yyyy-mm-dd"),
    (Date(), "+9999999-01-01", "x", "out of range"),
    (Date(), 20000, "x", "number 20000 is no DATE: expected a string in ISO 8601"),
    (Time(), "24:00:00", "x", "no such time of day"),
    (Time(), "12:60:00", "x", "no such time of day"),
    (Time(), "23:59:60", "x", "no such time of day"),
    (Time(), "12:34", "x", "expected hh:mm:ss"),
    (Time(), "12:34:56.5", "x", "more than the precision 0"),
    (Timestamp(), "2025-11-20", "x", "expected yyyy-mm-ddThh:mm:ss"),
    (Timestamp(), "2025-11-20T12:34:56Z", "x", "without time zone"),
    (Timestamp(precision=3), "2025-11-20T12:34:56.1234", "x", "more than the precision 3"),
    (Timestamp(), "2025-11-20T12:34:56.1234567", "x", "more than the precision 6"),
    (Timestamp(), "2025-11-20T12:34:56.", "x", "expected yyyy-mm-dd"),
    (Timestamp(), "2025-11-20t12:34:56", "x", "expected yyyy-mm-dd"),
    (Timestamp(), "2025-11-20T12:34:56\n", "x", "expected yyyy-mm-dd"),
    (Timestamp(), "+294247-01-10T04:00:54.775808", "x", "out of range"),
    (TimestampLtz(), "2025-11-20T12:34:56", "x", "no time zone"),
    (TimestampLtz(), "2025-11-20T12:34:56+0100", "x", "expected yyyy-mm-dd"),
    (TimestampLtz(), "2025-11-20T12:34:56+19:00", "x", "no time zone has the offset"),
    (Array(element=Int()), {"a": 1}, "x", "is no ARRAY<INT>: expected an array"),
    (Array(element=Int()), [1, "2"], "x[1]", "string '2' is no INT"),
    (Array(element=Int(nullable=False)), [None], "x[0]", "x[0] is null"),
    (Array(element=Array(element=Int())), [[], [1, True]], "x[1][1]", "boolean true is no INT"),
    (TAGS, {"a": "b"}, "x['a']", "string 'b' is no INT"),
    (TAGS, [["a", 1], ["a", 2]], "x", "twice"),
    (TAGS, [["a"]], "x[0]", "expected a key and a value"),
    (TAGS, [None], "x[0]", "expected a key and a value"),
    (TAGS, [[None, 1]], "x[0]", "a map key is null"),
    (TAGS, [[1, 1]], "x[0] key", "number 1 is no STRING"),
    (TAGS, 1, "x", "expected an object or an array of [key, value]"),
    (BY_DAY, {"1970-01-01": 1}, "x", "expected an array of [key, value]"),
    (BY_DAY, "a", "x", "expected an array of [key, value]"),
    (ADDRESS, {"city": "Ulm"}, "x.zip", "x.zip is null"),
    (ADDRESS, {"city": "Ulm", "zip": 1, "street": "a"}, "x", "unknown field 'street'"),
    (ADDRESS, {"city": "a" * 11, "zip": 1}, "x.city", "it has 11 characters"),
    (ADDRESS, ["Ulm", 1], "x", "expected an object"),
]


@pytest.mark.parametrize(("data_type", "json", "place", "message"), REFUSED_JSON, ids=lambda case: str(case)[:40])
def test_json_that_is_refused(data_type: DataType, json: Any, place: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)) as refused:
        type_codec(data_type).from_json(json, "x")
    assert refused.value.place == place
    assert len(refused.value.message) < 300


TAKEN_TEXT: list[tuple[DataType, str, Any]] = [
    (Boolean(), "true", True),
    (Boolean(), "false", False),
    (TinyInt(), "-128", -128),
    (BigInt(), "0042", 42),
    (Double(), "1", 1.0),
    (Double(), "-1.5e3", -1500.0),
    (Double(), "-Infinity", -math.inf),
    (CENTS, "1.5", 150),
    (String(), "null", "null"),
    (String(), "", ""),
    (Binary(), "-_8=", b"\xfb\xff"),
    (Binary(), "+/8=", b"\xfb\xff"),
    (Date(), "2025-11-20", 20_412),
    (Array(element=Int()), "[1, null]", [1, None]),
    (Array(element=Int()), "null", None),
    (TAGS, '{"a": 1}', [("a", 1)]),
    (ADDRESS, '{"zip": 1}', (None, 1)),
]


@pytest.mark.parametrize(("data_type", "text", "value"), TAKEN_TEXT, ids=lambda case: str(case)[:40])
def test_text_that_is_taken(data_type: DataType, text: str, value: Any) -> None:
    assert same(type_codec(data_type).from_text(text, "x"), value)


REFUSED_TEXT: list[tuple[DataType, str, str]] = [
    (Boolean(), "True", "expected true or false"),
    (Boolean(), "1", "expected true or false"),
    (TinyInt(), "128", "string '128' is no TINYINT: it is out of range"),
    (Int(), " 1", "expected a whole number"),
    (Int(), "1_000", "expected a whole number"),
    (Int(), "+1", "expected a whole number"),
    (Int(), "1.0", "expected a whole number"),
    (Int(), "0x10", "expected a whole number"),
    (Int(), "", "expected a whole number"),
    (Double(), "1e999", "out of range"),
    (Double(), "1_0.0", "expected a number"),
    (Double(), "inf", "expected a number"),
    (Double(), "0x1p3", "expected a number"),
    (Float(), "1e39", "out of range"),
    (CENTS, "1" * 100, "expected a string of digits"),
    (Binary(), "a", "base64"),
    (Array(element=Int()), "[1", "expected JSON"),
    (Array(element=Int()), "1", "expected an array"),
    (ADDRESS, "null x", "expected JSON"),
]


@pytest.mark.parametrize(("data_type", "text", "message"), REFUSED_TEXT, ids=lambda case: str(case)[:40])
def test_text_that_is_refused(data_type: DataType, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        type_codec(data_type).from_text(text, "x")


# --- Python

BERLIN = dt.timezone(dt.timedelta(hours=1))
PYTHON: list[tuple[DataType, Any, Any]] = [
    (BigInt(), np.int32(5), 5),
    (Boolean(), np.bool_(True), True),
    (Double(), 1, 1.0),
    (Double(), np.float32(0.5), 0.5),
    (Float(), math.inf, math.inf),
    (CENTS, decimal.Decimal("1.50"), 150),
    (CENTS, decimal.Decimal("1.500"), 150),
    (CENTS, decimal.Decimal("-1E+2"), -10000),
    (CENTS, decimal.Decimal("0E+999999"), 0),
    (CENTS, np.int64(7), 700),
    (CENTS, "1.5", 150),
    (Decimal(precision=38), decimal.Decimal(10**38 - 1), 10**38 - 1),
    (Binary(), bytearray(b"a"), b"a"),
    (Date(), dt.date(1970, 1, 2), 1),
    (Date(), "1970-01-02", 1),
    (Time(precision=6), dt.time(0, 0, 1, 5), 1_000_005_000),
    (Timestamp(), dt.datetime(1970, 1, 1, 0, 0, 1, 5), 1_000_005),  # noqa: DTZ001
    (TimestampLtz(), dt.datetime(1970, 1, 1, 1, 0, 0, 5, BERLIN), 5),
    (Array(element=Int()), (1, None), [1, None]),
    (TAGS, {"a": 1}, [("a", 1)]),
    (TAGS, [("a", 1)], [("a", 1)]),
    (ADDRESS, {"zip": 1}, (None, 1)),
    (ADDRESS, ("Ulm", 1), ("Ulm", 1)),
]


@pytest.mark.parametrize(("data_type", "python", "value"), PYTHON, ids=lambda case: str(case)[:40])
def test_python_that_is_taken(data_type: DataType, python: Any, value: Any) -> None:
    assert same(type_codec(data_type).from_python(python, "x"), value)


REFUSED_PYTHON: list[tuple[DataType, Any, str]] = [
    (Int(), True, "expected a whole number"),
    (Int(), np.bool_(True), "expected a whole number"),
    (Int(), 1.0, "expected a whole number"),
    (Int(), "1", "expected a whole number"),
    (Int(), np.int64(2**31), "out of range"),
    (Double(), True, "expected a number"),
    (Double(), decimal.Decimal(1), "decimal.Decimal"),
    (Float(), 1e39, "out of range"),
    (CENTS, 1.5, "expected a string of digits"),
    (CENTS, decimal.Decimal("NaN"), "not finite"),
    (CENTS, decimal.Decimal("1000"), "before the point"),
    (CENTS, decimal.Decimal("1E+999999"), "before the point"),
    (CENTS, decimal.Decimal("1.234"), "after the point"),
    (CENTS, decimal.Decimal("1E-999999"), "after the point"),
    (Decimal(precision=38), decimal.Decimal(10**38), "before the point"),
    (String(), b"a", "expected a string"),
    (Binary(), "a", "expected bytes"),
    (Date(), dt.datetime(2025, 1, 1), "expected a datetime.date"),  # noqa: DTZ001
    (Time(precision=6), dt.time(1, tzinfo=dt.UTC), "without time zone"),
    (Time(precision=3), dt.time(0, 0, 0, 1), "more digits of a second"),
    (Timestamp(), dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "without time zone"),
    (Timestamp(precision=0), dt.datetime(2025, 1, 1, 0, 0, 0, 1), "more digits of a second"),  # noqa: DTZ001
    (TimestampLtz(), dt.datetime(2025, 1, 1), "with a time zone"),  # noqa: DTZ001
    (TimestampLtz(), dt.date(2025, 1, 1), "with a time zone"),
    (Array(element=Int()), "12", "expected a list"),
    (TAGS, 1, "expected a dict"),
    (ADDRESS, ("Ulm",), "expected a dict or a tuple of all fields"),
    (ADDRESS, object(), "expected a dict"),
]


@pytest.mark.parametrize(("data_type", "python", "message"), REFUSED_PYTHON, ids=lambda case: str(case)[:40])
def test_python_that_is_refused(data_type: DataType, python: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        type_codec(data_type).from_python(python, "x")


def test_values_in_python() -> None:
    moment = 1_763_642_096_123_456
    assert type_codec(CENTS).to_python(-5) == decimal.Decimal("-0.05")
    assert str(type_codec(Decimal(precision=38, scale=2)).to_python(10**38 - 1)) == "9" * 36 + ".99"
    assert type_codec(Timestamp()).to_python(moment) == dt.datetime(2025, 11, 20, 12, 34, 56, 123456)  # noqa: DTZ001
    assert type_codec(TimestampLtz()).to_python(moment) == dt.datetime(2025, 11, 20, 12, 34, 56, 123456, dt.UTC)
    assert type_codec(TimestampLtz()).to_python(moment).tzinfo is dt.UTC
    assert type_codec(Date()).to_python(0) == dt.date(1970, 1, 1)
    assert type_codec(Map(key=Array(element=Int()), value=Int())).to_python([([1], 2)]) == [([1], 2)]
    assert type_codec(ADDRESS).to_python(("Ulm", 1)) == {"city": "Ulm", "zip": 1}


@pytest.mark.parametrize(
    ("data_type", "physical"),
    [(Date(), -719_163), (Date(), 2**31 - 1), (Timestamp(), 2**63 - 1), (TimestampLtz(), -(2**63))],
)
def test_python_has_no_other_years(data_type: DataType, physical: int) -> None:
    with pytest.raises(InvalidRequest, match="outside of Python's years"):
        type_codec(data_type).to_python(physical)


# --- extremes


@settings(RELAXED, max_examples=300)
@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_timestamps_of_all_years(us: int) -> None:
    text = type_codec(Timestamp()).to_json(us)
    year = np.datetime64(us, "us").astype("datetime64[Y]").astype(int) + 1970
    assert text.lstrip("+-").endswith(str(np.datetime64(us, "us"))[-21:].removesuffix(".000000"))
    assert int(text[: text.index("-", 1)]) == year
    assert type_codec(Timestamp()).from_json(text, "x") == us


@settings(RELAXED, max_examples=300)
@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_of_all_years(days: int) -> None:
    text = type_codec(Date()).to_json(days)
    assert text.lstrip("+-").lstrip("0") == str(np.datetime64(days, "D")).lstrip("-").lstrip("0")
    assert type_codec(Date()).from_json(text, "x") == days


def test_the_texts_of_days_do_not_pile_up() -> None:
    for days in range(3 * temporal.CACHED_DAYS):
        temporal.date_text(days)
    assert len(temporal._DAYS) <= temporal.CACHED_DAYS


@settings(RELAXED, max_examples=500)
@given(st.integers(0, 2**32 - 1))
def test_floats_are_short_and_the_same(bits: int) -> None:
    [value] = struct.unpack("<f", struct.pack("<I", bits))
    codec = type_codec(Float())
    json = orjson.loads(orjson.dumps(codec.to_json(value)))
    assert same(codec.from_json(json, "x"), value)
    if math.isfinite(value):
        digits = decimal.Decimal(repr(json)).normalize().as_tuple().digits
        assert len(digits) <= 9


@pytest.mark.parametrize("data_type", [kind() for kind in INTEGERS], ids=str)
def test_integers_have_their_ranges(data_type: DataType) -> None:
    codec = type_codec(data_type)
    low, high = -(1 << data_type.bits - 1), (1 << data_type.bits - 1) - 1  # type: ignore[attr-defined]
    for read in (codec.from_json, codec.from_python, lambda value, place: codec.from_text(str(value), place)):
        assert [read(low, "x"), read(high, "x")] == [low, high]
        for value in (low - 1, high + 1):
            with pytest.raises(InvalidRequest, match="out of range") as refused:
                read(value, "x")
            assert refused.value.hint == f"{data_type.name} holds {low} to {high}"
