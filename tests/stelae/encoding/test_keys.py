"""Key bytes.

Goal: bytes compare as values do, every key decodes to what was encoded, batches and single keys agree, and the bytes
never change (docs/format.md#keys).
Method: golden bytes, Hypothesis over every type and over composites, damaged keys, and the examples of the document.
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.encoding.arrow import arrow_type
from stelae.encoding.keys import KeyCodec, prefix_end
from stelae.errors import CorruptData, InvalidRequest
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
    Float,
    Int,
    SmallInt,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
)
from tests.stelae.encoding.physical import (
    KEY_TYPES,
    arrow_array,
    key_columns,
    physical_values,
    random_values,
    same,
    spark_order,
    values_of,
)

MONEY = Decimal(precision=9, scale=2)
WIDE = Decimal(precision=38, scale=10)

# On disk: a changed line is a changed format.
GOLDEN: list[tuple[tuple[DataType, ...], tuple[Any, ...], str]] = [
    ((Boolean(),), (False,), "00"),
    ((Boolean(),), (True,), "01"),
    ((TinyInt(),), (-128,), "00"),
    ((TinyInt(),), (-1,), "7f"),
    ((TinyInt(),), (127,), "ff"),
    ((SmallInt(),), (-2,), "7ffe"),
    ((SmallInt(),), (258,), "8102"),
    ((Int(),), (-2147483648,), "00000000"),
    ((Int(),), (42,), "8000002a"),
    ((BigInt(),), (-1,), "7fffffffffffffff"),
    ((BigInt(),), (0,), "8000000000000000"),
    ((BigInt(),), (72623859790382856,), "8102030405060708"),
    ((Float(),), (-math.inf,), "007fffff"),
    ((Float(),), (-1.5,), "403fffff"),
    ((Float(),), (-0.0,), "80000000"),
    ((Float(),), (0.0,), "80000000"),
    ((Float(),), (1.5,), "bfc00000"),
    ((Float(),), (math.inf,), "ff800000"),
    ((Float(),), (math.nan,), "ffc00000"),
    ((Double(),), (-1.5,), "4007ffffffffffff"),
    ((Double(),), (-0.0,), "8000000000000000"),
    ((Double(),), (1.5,), "bff8000000000000"),
    ((Double(),), (-math.nan,), "fff8000000000000"),
    ((MONEY,), (-1,), "7fffffffffffffff"),
    ((MONEY,), (12345,), "8000000000003039"),
    ((WIDE,), (-1,), "7fffffffffffffffffffffffffffffff"),
    ((WIDE,), (10**38 - 1,), "cb3b4ca85a86c47a098a223fffffffff"),
    ((String(),), ("",), ""),
    ((String(),), ("é\0x",), "c3a90078"),
    ((Binary(),), (b"\xff\x00",), "ff00"),
    ((Date(),), (0,), "80000000"),
    ((Date(),), (-719162,), "7ff506c6"),
    ((Time(precision=6),), (45_296_000_001_000,), "800029324bfd63e8"),
    ((Timestamp(),), (1_795_176_896_000_001,), "800660b43131f001"),
    ((TimestampLtz(),), (-1,), "7fffffffffffffff"),
    ((Int(), Int()), (1, -1), "800000017fffffff"),
    ((Boolean(), Date(), WIDE), (True, 1, 1), "018000000180000000000000000000000000000001"),
    ((String(), BigInt()), ("", 1), "00018000000000000001"),
    ((String(), String()), ("a", "a"), "61000161"),
    ((String(), String()), ("a\0b", "a\0b"), "6100ff620001610062"),
    ((Binary(), Binary(), Binary()), (b"\x00\x01", b"", b"\x00\x01"), "00ff01000100010001"),
    (
        (String(), Timestamp(), String(), BigInt(), String()),
        ("EWR", 1_357_034_400_000_000, "UA", 1545, "N14228"),
        "45575200018004d237315c28005541000180000000000006094e3134323238",
    ),
    ((String(), Int()), ("東京", -2), "e69db1e4baac00017ffffffe"),
]

# On disk, as well. Every column is nullable.
GOLDEN_NULLABLE: list[tuple[tuple[DataType, ...], tuple[Any, ...], str]] = [
    ((Boolean(),), (None,), "0000"),
    ((Boolean(),), (False,), "0100"),
    ((Int(),), (None,), "0000000000"),
    ((Int(),), (-2147483648,), "0100000000"),
    ((Int(),), (42,), "018000002a"),
    ((Double(),), (None,), "000000000000000000"),
    ((Double(),), (1.5,), "01bff8000000000000"),
    ((WIDE,), (None,), "00" * 17),
    ((String(),), (None,), "00"),
    ((String(),), ("",), "01"),
    ((String(),), ("\0x",), "010078"),
    ((String(), Int()), (None, None), "0000010000000000"),
    ((String(), Int()), ("", -2), "010001017ffffffe"),
    ((String(), String()), (None, "a"), "0000010161"),
    ((String(), String()), ("a\0", None), "016100ff000100"),
    ((Date(), TimestampLtz()), (None, -1), "0000000000017fffffffffffffff"),
]


def codec(*types: DataType, nullable: Sequence[bool] = ()) -> KeyCodec:
    return KeyCodec(key_columns(*types, nullable=nullable))


def columns_of(rows: list[tuple[Any, ...]], types: tuple[DataType, ...]) -> list[pa.Array]:
    return [arrow_array([row[i] for row in rows], data_type) for i, data_type in enumerate(types)]


@pytest.mark.parametrize(("types", "values", "expected"), GOLDEN, ids=lambda case: str(case)[:40])
def test_golden_bytes(types: tuple[DataType, ...], values: tuple[Any, ...], expected: str) -> None:
    key_codec = codec(*types)
    assert key_codec.encode(values).hex() == expected
    assert key_codec.encode_list(columns_of([values], types))[0].hex() == expected
    assert all(map(same, key_codec.decode(bytes.fromhex(expected)), values))


@pytest.mark.parametrize(("types", "values", "expected"), GOLDEN_NULLABLE, ids=lambda case: str(case)[:40])
def test_golden_bytes_of_nullable_columns(types: tuple[DataType, ...], values: tuple[Any, ...], expected: str) -> None:
    key_codec = codec(*types, nullable=[True] * len(types))
    assert key_codec.encode(values).hex() == expected
    assert key_codec.encode_list(columns_of([values], types))[0].hex() == expected
    assert key_codec.decode(bytes.fromhex(expected)) == values


def test_a_column_is_nullable_for_itself_alone() -> None:
    mixed = codec(String(), Int(), String(), nullable=[False, True, False])
    assert mixed.encode(("a", None, "b")).hex() == "610001" + "0000000000" + "62"
    assert mixed.encode(("a", 1, "b")).hex() == "610001" + "0180000001" + "62"
    with pytest.raises(InvalidRequest, match="key column c2 is null"):
        mixed.encode(("a", None, None))
    with pytest.raises(InvalidRequest, match="key column c0 is null in row 1"):
        mixed.encode_batch([pa.array(["a", None]), pa.array([None, 1], pa.int32()), pa.array(["b", "b"])])


def test_every_type_has_golden_bytes() -> None:
    assert {type(data_type) for types, _, _ in GOLDEN for data_type in types} == set(map(type, KEY_TYPES.values()))


Table = tuple[tuple[DataType, ...], list[bool], list[tuple[Any, ...]]]
"""Types of the columns, which of them are nullable, rows."""


@st.composite
def tables(draw: st.DrawFn) -> Table:
    types = tuple(draw(st.lists(st.sampled_from(list(KEY_TYPES.values())), min_size=1, max_size=4)))
    marks = draw(st.just([False] * len(types)) | st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    columns = (
        st.none() | values_of(data_type) if mark else values_of(data_type)
        for data_type, mark in zip(types, marks, strict=True)
    )
    return types, marks, draw(st.lists(st.tuples(*columns), min_size=1, max_size=8))


TABLES = tables()


@given(TABLES)
def test_round_trip(table: Table) -> None:
    types, nullable, rows = table
    key_codec = codec(*types, nullable=nullable)
    for row in rows:
        assert all(map(same, key_codec.decode(key_codec.encode(row)), row))


@given(TABLES)
def test_bytes_compare_as_values(table: Table) -> None:
    types, nullable, rows = table
    key_codec = codec(*types, nullable=nullable)
    for a, b in itertools.combinations(rows, 2):
        order_a, order_b = ([spark_order(v, t) for v, t in zip(row, types, strict=True)] for row in (a, b))
        key_a, key_b = key_codec.encode(a), key_codec.encode(b)
        assert (key_a < key_b) == (order_a < order_b)
        assert (key_a == key_b) == (order_a == order_b)


@given(TABLES)
def test_prefix_is_shared_by_exactly_the_rows_that_start_so(table: Table) -> None:
    types, nullable, rows = table
    key_codec = codec(*types, nullable=nullable)
    for count in range(len(types)):
        for a, b in itertools.product(rows, rows):
            prefix = key_codec.encode_prefix(a[:count])
            end = prefix_end(prefix)
            key = key_codec.encode(b)
            inside = all(
                spark_order(x, t) == spark_order(y, t) for x, y, t in zip(a[:count], b[:count], types, strict=False)
            )
            assert key.startswith(prefix) == inside
            assert (prefix <= key and (end is None or key < end)) == inside
    assert key_codec.encode_prefix(rows[0]) == key_codec.encode(rows[0])


@given(TABLES, st.integers(0, 3), st.integers(0, 3))
def test_batches_agree_with_single_keys(table: Table, head: int, tail: int) -> None:
    types, nullable, rows = table
    key_codec = codec(*types, nullable=nullable)
    expected = [key_codec.encode(row) for row in rows]
    batch = key_codec.encode_batch(columns_of(rows, types))
    assert batch.type == pa.binary()
    assert batch.to_pylist() == expected
    assert key_codec.encode_list(columns_of(rows, types)) == expected

    part = slice(head, max(head, len(rows) - tail))
    sliced = [array[part] for array in columns_of(rows, types)]
    assert key_codec.encode_batch(sliced).to_pylist() == expected[part]
    assert key_codec.encode_list(sliced) == expected[part]
    for keys, wanted in ((batch, rows), (batch[part], rows[part])):
        arrays = key_codec.decode_batch(keys)
        assert [array.type for array in arrays] == [arrow_type(data_type) for data_type in types]
        for i, array in enumerate(arrays):
            array.validate(full=True)
            assert len(array) == len(wanted)
            assert all(map(same, physical_values(array, types[i]), [row[i] for row in wanted]))


@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
@pytest.mark.parametrize(
    "types",
    [(BigInt(),), (String(),), (String(), Timestamp(), String(), BigInt(), String()), (Binary(), WIDE, Double())],
    ids=str,
)
def test_large_batches(types: tuple[DataType, ...], nullable: bool) -> None:
    rng = random.Random(3)
    columns = [random_values(rng, data_type, 5000) for data_type in types]
    if nullable:
        columns = [[None if rng.random() < 0.2 else value for value in column] for column in columns]
    rows = list(zip(*columns, strict=True))
    key_codec = codec(*types, nullable=[nullable] * len(types))
    batch = key_codec.encode_batch(columns_of(rows, types))
    assert batch.to_pylist() == [key_codec.encode(row) for row in rows]
    again = key_codec.encode_batch(key_codec.decode_batch(batch))
    assert again.equals(batch)


@pytest.mark.parametrize("types", [(BigInt(),), (String(),), (String(), Int()), (Int(), String())], ids=str)
def test_empty_batch(types: tuple[DataType, ...]) -> None:
    for key_codec in (codec(*types), codec(*types, nullable=[True] * len(types))):
        columns = columns_of([], types)
        assert key_codec.encode_list(columns) == []
        keys = key_codec.encode_batch(columns)
        assert keys.equals(pa.array([], pa.binary()))
        assert [len(array) for array in key_codec.decode_batch(keys)] == [0] * len(types)


@pytest.mark.parametrize("data_type", KEY_TYPES.values(), ids=KEY_TYPES.keys())
def test_arrays_of_nulls_alone(data_type: DataType) -> None:
    """Whatever stands in the buffers under a null."""
    key_codec = codec(data_type, nullable=[True])
    null = key_codec.encode((None,))
    for array in (pa.nulls(3), pa.nulls(3, arrow_type(data_type)), arrow_array([None] * 3, data_type)):
        assert key_codec.encode_list([array]) == [null] * 3
    [value] = random_values(random.Random(1), data_type, 1)
    [decoded] = key_codec.decode_batch(pa.array([null, null, key_codec.encode((value,))]))
    assert decoded.is_valid().to_pylist() == [False, False, True]


def test_other_arrow_types_give_the_same_keys() -> None:
    key_codec = codec(String(), TimestampLtz(), BigInt())
    plain = [pa.array(["b\0", "é"]), pa.array([1_000_000, -1_000_000], pa.timestamp("us", tz="UTC")), pa.array([1, 2])]
    other = [
        plain[0].dictionary_encode(),
        pa.array([1, -1], pa.timestamp("s", tz="America/New_York")),
        plain[2].cast(pa.int8()),
    ]
    assert key_codec.encode_list(other) == key_codec.encode_list(plain)
    views = [plain[0].cast(pa.string_view()), plain[1], plain[2].dictionary_encode()]
    assert key_codec.encode_list(views) == key_codec.encode_list(plain)


def test_all_nans_and_both_zeros_are_one_key() -> None:
    for data_type, bits, dtype in ((Float(), "u4", "f4"), (Double(), "u8", "f8")):
        ones = np.array([-1, 0x7FF << 52 | 1, -(1 << 51)] if dtype == "f8" else [-1, 0x7F800001, -(1 << 22)], np.int64)
        nans = pa.array(ones.astype(bits).view(dtype), from_pandas=False)
        assert len(set(codec(data_type).encode_list([nans]))) == 1
        zeros = pa.array(np.array([0.0, -0.0], dtype))
        assert len(set(codec(data_type).encode_list([zeros]))) == 1


@pytest.mark.parametrize(
    ("types", "values", "message"),
    [
        ((Int(),), (None,), "key column c0 is null"),
        ((String(), Int()), ("a", None), "key column c1 is null"),
        ((String(), Int()), (None, 1), "key column c0 is null"),
        ((TinyInt(),), (128,), "128 is no value of column c0 TINYINT"),
        ((Int(),), (2**31,), "2147483648 is no value of column c0 INT"),
        ((Int(),), (-(2**31) - 1,), "c0 INT"),
        ((BigInt(),), (2**63,), "c0 BIGINT"),
        ((BigInt(), BigInt()), (1, -(2**63) - 1), "c1 BIGINT"),
        ((WIDE,), (2**127,), "c0 DECIMAL"),
        ((Int(),), ("1",), "'1' is no value"),
        ((Int(),), (1.0,), "1.0 is no value"),
        ((Boolean(),), (2,), "c0 BOOLEAN"),
        ((Boolean(),), ([],), "c0 BOOLEAN"),
        ((Float(),), (1e39,), "c0 FLOAT"),
        ((Double(),), ("x",), "c0 DOUBLE"),
        ((String(),), (b"a",), "c0 STRING"),
        ((String(),), ("\ud800",), "c0 STRING"),
        ((String(), Int()), (5, 1), "c0 STRING"),
        ((Binary(),), ("a",), "c0 BYTES"),
        ((Binary(),), (3,), "c0 BYTES"),
        ((Int(),), (), "the key has columns c0, but 0 values were given"),
        ((Int(),), (1, 2), "but 2 values were given"),
        ((Int(), Int()), (1,), "the key has columns c0, c1, but 1 values were given"),
        ((Int(), Int()), (1, 2, 3), "but 3 values were given"),
    ],
    ids=str,
)
def test_values_that_are_no_key(types: tuple[DataType, ...], values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        codec(*types).encode(values)


def test_errors_say_what_fits() -> None:
    with pytest.raises(InvalidRequest) as caught:
        codec(Int()).encode((2**40,))
    assert caught.value.place == "c0"
    assert caught.value.hint == "INT holds -2147483648 to 2147483647"
    with pytest.raises(InvalidRequest) as caught:
        codec(String(), Int(), Int()).encode_prefix(("a", None))
    assert caught.value.place == "c1"
    with pytest.raises(InvalidRequest) as caught:
        codec(Int()).encode(("x" * 1000,))
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("types", [(Int(),), (String(),), (String(), Int())], ids=str)
def test_null_in_a_batch(types: tuple[DataType, ...]) -> None:
    rows: list[tuple[Any, ...]] = [tuple("a" if isinstance(t, String) else 1 for t in types)] * 6
    rows[4] = (*rows[4][:-1], None)
    for encode in (codec(*types).encode_batch, codec(*types).encode_list):
        with pytest.raises(InvalidRequest, match=f"key column c{len(types) - 1} is null in row 4"):
            encode(columns_of(rows, types))
        with pytest.raises(InvalidRequest, match="is null in row 1"):
            encode([array[3:] for array in columns_of(rows, types)])


def test_batches_that_are_no_keys() -> None:
    two = codec(Int(), String())
    with pytest.raises(InvalidRequest, match="2 columns, but 1"):
        two.encode_batch([pa.array([1], pa.int32())])
    with pytest.raises(InvalidRequest, match="column c1 has 2 rows, column c0 1"):
        two.encode_batch([pa.array([1], pa.int32()), pa.array(["a", "b"])])
    with pytest.raises(InvalidRequest, match="column c0 INT"):
        two.encode_batch([pa.array([2**40]), pa.array(["a"])])
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    with pytest.raises(InvalidRequest, match="key column c1 holds text that is not UTF-8"):
        two.encode_batch([pa.array([1], pa.int32()), broken])


@pytest.mark.parametrize(
    ("types", "key", "reason"),
    [
        ((Int(),), "800000", "decode"),
        ((Int(),), "8000000000", "decode"),
        ((Int(), Int()), "80000000800000", "decode"),
        ((Boolean(),), "02", "neither 00 nor 01"),
        ((Boolean(),), "", "decode"),
        ((WIDE,), "80", "decode"),
        ((Double(),), "80", "decode"),
        ((String(),), "ff", "decode"),
        ((String(), Int()), "6180000000", "terminator"),
        ((String(), Int()), "61000180", "ends within a column"),
        ((String(), Int()), "6100018000000000", "bytes follow"),
        ((String(), Int()), "610002000180000000", "00 is not followed by FF"),
        ((String(), Int()), "6100000180000000", "00 is not followed by FF"),
        ((String(), String()), "61", "terminator"),
        ((String(), String()), "6100", "terminator"),
        ((String(), String()), "ff0001", "decode"),
        ((Int(), String()), "80", "ends within a column"),
        ((Binary(), Binary()), "0000ff0001", "00 is not followed by FF"),
    ],
    ids=str,
)
def test_damaged_keys(types: tuple[DataType, ...], key: str, reason: str) -> None:
    damaged = bytes.fromhex(key)
    with pytest.raises(CorruptData, match=reason):
        codec(*types).decode(damaged)
    # Among sound neighbours, whose bytes must not be taken for its own.
    sound = codec(*types).encode([{String: "a", Binary: b"\xff", Boolean: True}.get(type(t), 1) for t in types])
    with pytest.raises(CorruptData, match=reason):
        codec(*types).decode_batch(pa.array([sound, damaged, sound], pa.binary()))
    with pytest.raises(CorruptData):
        codec(*types).decode_batch(pa.array([damaged], pa.binary()))


@pytest.mark.parametrize(
    ("types", "key", "reason"),
    [
        ((Int(),), "", "decode"),
        ((Int(),), "0280000000", "presence byte"),
        ((Int(),), "0080000000", "a null is followed by a value"),
        ((Int(),), "000000", "decode"),
        ((Boolean(),), "0102", "neither 00 nor 01"),
        ((WIDE,), "00" * 16 + "01", "a null is followed by a value"),
        ((String(),), "", "ends within a column"),
        ((String(),), "0061", "decode"),
        ((String(),), "0261", "presence byte"),
        ((String(), Int()), "006100010180000000", "a null is followed by a value"),
        ((String(), Int()), "010001", "ends within a column"),
        ((String(), Int()), "000001008000000000", "decode"),
    ],
    ids=str,
)
def test_damaged_nullable_keys(types: tuple[DataType, ...], key: str, reason: str) -> None:
    key_codec = codec(*types, nullable=[True] * len(types))
    with pytest.raises(CorruptData, match=reason):
        key_codec.decode(bytes.fromhex(key))
    sound = key_codec.encode([None] * len(types))
    with pytest.raises(CorruptData, match=reason):
        key_codec.decode_batch(pa.array([sound, bytes.fromhex(key), sound], pa.binary()))


def test_batch_error_names_the_row() -> None:
    with pytest.raises(CorruptData, match="key bytes 6180000000 in row 1 do not decode: a terminator is missing"):
        codec(String(), Int()).decode_batch(pa.array([b"\x00\x01\x80\x00\x00\x00", bytes.fromhex("6180000000")]))


@pytest.mark.parametrize("types", [(Int(),), (String(),), (String(), Int()), (Binary(), Boolean(), String())], ids=str)
@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
def test_any_bytes_decode_or_are_corrupt(types: tuple[DataType, ...], nullable: bool) -> None:
    """Single and batch agree about every short key over the bytes that matter."""
    key_codec = codec(*types, nullable=[nullable] * len(types))
    for length in range(7):
        for key in map(bytes, itertools.product((0, 1, 0x61, 0xFF), repeat=length)):
            try:
                single: Any = key_codec.decode(key)
            except CorruptData:
                single = None
            if length < 5 or single is not None:
                try:
                    arrays = key_codec.decode_batch(pa.array([key]))
                    batch: Any = tuple(physical_values(a, t)[0] for a, t in zip(arrays, types, strict=True))
                except CorruptData:
                    batch = None
                assert single == batch
            if single is not None:
                assert key_codec.encode(single) == key


def test_codecs_pickle() -> None:
    key_codec = pickle.loads(pickle.dumps(codec(String(), Int(), nullable=[True])))
    for key in (("a", 1), (None, 1)):
        assert key_codec.decode(key_codec.encode(key)) == key


def test_what_cannot_be_a_key() -> None:
    with pytest.raises(InvalidRequest, match="column c0 ARRAY<INT> cannot be part of a key"):
        codec(Array(element=Int()))
    with pytest.raises(InvalidRequest, match="needs a column"):
        codec()


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"", None), (b"\xff\xff", None), (b"a", b"b"), (b"a\xff", b"b"), (b"\x00\x01", b"\x00\x02")]
)
def test_prefix_end(prefix: bytes, end: bytes | None) -> None:
    assert prefix_end(prefix) == end


DOCUMENT = Path(__file__).parents[3] / "docs" / "format.md"
EXAMPLE = re.compile(r"^\| `\((?P<types>[A-Z0-9_, ()]+)\)` \| `(?P<values>\[.*\])` \| (?P<result>.*) \|$")


def types_named(names: str) -> tuple[DataType, ...]:
    """Types by name, one after another: `STRING, DECIMAL(9, 2)`."""
    return tuple(KEY_TYPES[name] for name in re.findall(r"[A-Z_]+(?:\(\d+, \d+\))?", names))


def columns_named(names: str) -> tuple[Column, ...]:
    """Columns by their types, `INT NULL` for a nullable one."""
    nullable = [name.endswith(" NULL") for name in re.split(r", (?!\d)", names)]
    return key_columns(*types_named(names.replace(" NULL", "")), nullable=nullable)


def examples(section: str) -> list[tuple[tuple[Column, ...], list[Any], str]]:
    """The rows of the example table in a section of docs/format.md: columns, physical values, the other cells."""
    text = DOCUMENT.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    matches = filter(None, map(EXAMPLE.match, text.splitlines()))
    return [
        (columns_named(match["types"]), json.loads(match["values"]), re.sub("[`|]", "", match["result"]))
        for match in matches
    ]


def test_examples_of_the_document() -> None:
    cases = examples("Keys")
    assert len(cases) >= 10
    for columns, values, expected in cases:
        assert KeyCodec(columns).encode(values).hex() == expected.replace(" ", ""), (columns, values)
    # The last row is the worked example, which stands above it column by column.
    columns, values, expected = cases[-1]
    section = DOCUMENT.read_text().split("\n## Keys\n")[1].split("\n## ")[0]
    lines = re.findall(r"^((?:[0-9a-f]{2} )+) ", section, re.MULTILINE)
    assert "".join(lines).strip() == expected
    assert KeyCodec(columns).encode_prefix(values[:2]).hex(" ") == "".join(lines[:2]).strip()
