"""Row codec. Goal: rows are what docs/format.md#rows says, one row and a batch agree byte for byte, and bytes that are
no row are told as such.

Method: random schemas of all types, nested ones too, through every path; golden bytes, written once (changing one is a
decision about the format); every truncation and every changed byte of rows.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stelae.encoding.row_header import HIDDEN_FLAG, hidden_mask
from stelae.encoding.rows import RowCodec
from stelae.encoding.values import value_codec
from stelae.errors import CorruptData, InvalidRequest
from stelae.schema.types import (
    NESTED,
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
from tests.stelae.encoding.nested import TYPES, arrow_array, physical, same, schema_of, values_of

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

NAMES_AND_COUNTS = Row(fields=(Field("names", Array(element=String())), Field("count", Int())))
EVERYTHING = [
    Boolean(),
    TinyInt(),
    SmallInt(),
    Int(),
    BigInt(),
    Float(),
    Double(),
    Decimal(precision=9, scale=2),
    Decimal(precision=38, scale=4),
    String(),
    Binary(),
    Date(),
    Time(precision=6),
    Timestamp(),
    TimestampLtz(),
    Array(element=Int()),
    Map(key=String(nullable=False), value=Array(element=Double())),
    NAMES_AND_COUNTS,
]
EVERY_VALUE = (
    True,
    -1,
    -2,
    -3,
    -4,
    0.5,
    -0.0,
    -1234,
    10**33,
    "Ångström",
    b"\x00\xff",
    -1,
    1_000,
    -1,
    1,
    [1, None, -1],
    [("a", [1.5, None]), ("", None), ("c", [])],
    (["x", None, "yz"], None),
)


# --- every path agrees


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[DataType], list[tuple[Any, ...]], list[bool]]:
    types = draw(st.lists(TYPES, max_size=5) | st.lists(TYPES, min_size=8, max_size=10))
    rows = draw(st.lists(st.tuples(*map(values_of, types)), max_size=4))
    hidden = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return types, rows, hidden


def columns_of(types: list[DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    """The columns, each a slice out of the middle of a longer array."""
    padded = [*rows[-1:], *rows, *rows[:1]]
    return [
        arrow_array([row[i] for row in padded], data_type).slice(min(len(rows), 1), len(rows))
        for i, data_type in enumerate(types)
    ]


@settings(RELAXED, max_examples=150)
@given(tables())
def test_every_path_agrees(table: tuple[list[DataType], list[tuple[Any, ...]], list[bool]]) -> None:
    types, rows, hidden = table
    codec = RowCodec(schema_of(*types))
    encoded = [codec.encode(row, hides) for row, hides in zip(rows, hidden, strict=True)]
    columns, mask = columns_of(types, rows), np.array(hidden, np.bool_)

    batch = codec.encode_batch(columns, mask)
    assert batch.type == pa.binary()
    assert batch.to_pylist() == encoded
    assert codec.encode_list(columns, mask) == encoded
    assert hidden_mask(batch).tolist() == hidden

    for row, stored, hides in zip(rows, encoded, hidden, strict=True):
        assert codec.decode(stored) is None if hides else same(codec.decode(stored), row)
    for data_type, decoded, i in zip(types, codec.decode_batch(batch), range(len(types)), strict=True):
        decoded.validate(full=True)
        assert same(physical(decoded, data_type), [row[i] for row in rows])


@settings(RELAXED, max_examples=60)
@given(tables(), st.data())
def test_projections_give_the_columns_asked_for(
    table: tuple[list[DataType], list[tuple[Any, ...]], list[bool]], data: st.DataObject
) -> None:
    types, rows, _ = table
    schema = schema_of(*types)
    codec = RowCodec(schema)
    stored = pa.array([codec.encode(row) for row in rows], pa.binary())
    wanted = data.draw(st.lists(st.sampled_from(range(len(types))), unique=True)) if types else []
    names = [f"v{i}" for i in wanted]

    decode, to_json = codec.decoder(names), codec.json_decoder(names)
    for row, bytes_ in zip(rows, stored.to_pylist(), strict=True):
        assert same(decode(bytes_), tuple(row[i] for i in wanted))
        expected = {
            name: value_codec(schema.by_name[name]).to_json(row[i]) for name, i in zip(names, wanted, strict=True)
        }
        assert to_json(bytes_) == expected
        assert list(to_json(bytes_) or ()) == names
    for i, decoded in zip(wanted, codec.decode_batch(stored, names), strict=True):
        assert same(physical(decoded, types[i]), [row[i] for row in rows])


def test_rows_that_are_null_decode_to_nulls() -> None:
    codec = RowCodec(schema_of(Int(), String(), Array(element=Int())))
    rows = pa.array([None, codec.encode((1, "a", [1])), None, codec.encode((2, None, None), hidden=True)], pa.binary())
    for array in (rows, rows.cast(pa.large_binary()), pa.concat_arrays([rows, rows])[4:]):
        assert [column.to_pylist() for column in codec.decode_batch(array)] == [
            [None, 1, None, 2],
            [None, "a", None, None],
            [None, [1], None, None],
        ]
        assert hidden_mask(array).tolist() == [False, False, False, True]


def test_what_is_under_a_null_row_does_not_matter() -> None:
    """Wherever the nulls are, however long the bytes under them, with and without columns that are null in a row."""
    codec = RowCodec(schema_of(Int(), String(), Binary(), Array(element=String())))
    full: list[Any] = [(i, f"text {i}" * (i % 3), b"\xff" * i, [f"{i}", None]) for i in range(5)]
    for values in (full, [*full, (None, None, b"", None)]):
        rows = [codec.encode(row) for row in values]
        for pattern in range(1 << len(rows)):
            cells = [b"\x01\x02" * i if pattern >> i & 1 else row for i, row in enumerate(rows)]
            bitmap = pa.py_buffer(bytes([~pattern & 0xFF]))
            offsets = pa.py_buffer(np.cumsum([0, *map(len, cells)]).astype(np.int32))
            batch = pa.Array.from_buffers(pa.binary(), len(cells), [bitmap, offsets, pa.py_buffer(b"".join(cells))])
            expected = [(None,) * 4 if pattern >> i & 1 else row for i, row in enumerate(values)]
            for part in (batch, batch[1:], batch[2:4]):
                decoded = list(zip(*(array.to_pylist() for array in codec.decode_batch(part)), strict=True))
                assert decoded == expected[part.offset : part.offset + len(part)]


def test_a_batch_without_rows() -> None:
    codec = RowCodec(schema_of(*EVERYTHING))
    empty = codec.encode_batch([arrow_array([], data_type) for data_type in EVERYTHING])
    assert empty.to_pylist() == []
    assert [len(column) for column in codec.decode_batch(empty)] == [0] * len(EVERYTHING)


def test_a_table_without_value_columns() -> None:
    codec = RowCodec(schema_of())
    assert codec.encode(()) == bytes.fromhex("0300 00")
    assert codec.encode_list([], rows=2) == [codec.encode(())] * 2
    assert codec.encode_list([], np.array([True, False])) == [codec.encode((), hidden=True), codec.encode(())]
    assert codec.decode(codec.encode(())) == ()
    assert codec.json_decoder([])(codec.encode(())) == {}
    assert codec.decode_batch(codec.encode_batch([], rows=2)) == []
    with pytest.raises(InvalidRequest):
        codec.encode_batch([])


# --- golden bytes. Changing one is a decision about the format.

GOLDEN_CELLS: list[tuple[DataType, Any, str]] = [
    (Boolean(), True, "01"),
    (Boolean(), False, "00"),
    (TinyInt(), -2, "fe"),
    (SmallInt(), -2, "feff"),
    (Int(), 1_000_000, "40420f00"),
    (BigInt(), -2, "feffffffffffffff"),
    (Float(), 1.5, "0000c03f"),
    (Float(), float("nan"), "0000c07f"),
    (Double(), -1.5, "000000000000f8bf"),
    (Double(), -0.0, "0000000000000080"),
    (Double(), struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0], "000000000000f87f"),
    (Decimal(precision=18, scale=2), -12345, "c7cfffffffffffff"),
    (Decimal(precision=19, scale=2), -12345, "c7cfffffffffffffffffffffffffffff"),
    (Decimal(precision=38), 10**38 - 1, "ffffffff3f228a097ac4865aa84c3b4b"),
    (Date(), 20_777, "29510000"),
    (Time(precision=6), 86_399_999_999_000, "18fc4e91944e0000"),
    (Timestamp(), -1, "ffffffffffffffff"),
    (TimestampLtz(), 1, "0100000000000000"),
    (String(), "", "00000000"),
    (String(), "aé", "03000000 61c3a9"),
    (Binary(), b"\x00\x01", "02000000 0001"),
    (Array(element=Int()), [], "04000000 00000000"),
    (Array(element=SmallInt()), [1, None, 3], "0d000000 03000000 010001 010000000300"),
    (Array(element=String()), ["ab", None, ""], "15000000 03000000 010001 020000000000000000000000 6162"),
    (Map(key=TinyInt(nullable=False), value=String()), [(1, "a"), (2, None)],
     "11000000 02000000 0102 0100 01000000 00000000 61"),
    (Row(fields=(Field("a", String()), Field("b", Int()), Field("c", Int()))), ("x", 7, None),
     "10000000 010100 07000000 00000000 01000000 78"),
    (Array(element=Row(fields=(Field("a", Int()),))), [(1,), None, (None,)],
     "1d000000 03000000 010001 050000000000000005000000 0101000000 0000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "value", "cell"), GOLDEN_CELLS, ids=lambda case: str(case)[:40])
def test_golden_cells(data_type: DataType, value: Any, cell: str) -> None:
    row = bytes.fromhex("0300 00 00" + cell)
    codec = RowCodec(schema_of(data_type))
    assert codec.encode((value,)).hex() == row.hex()
    assert codec.encode_list([arrow_array([value], data_type)]) == [row]
    assert same(codec.decode(row), (value,))


GOLDEN_ROW = (
    "0300 00 000000"  # schema id, flags, nulls
    " 01 ff feff fdffffff fcffffffffffffff 0000003f 0000000000000080"  # BOOLEAN to DOUBLE
    " 2efbffffffffffff 000000000a5bc138938d44c64d310000"  # DECIMALs
    " ffffffff e803000000000000 ffffffffffffffff 0100000000000000"  # DATE to TIMESTAMP_LTZ
    " 0a000000 02000000 13000000 3b000000 20000000"  # lengths
    " c3856e67737472c3b66d 00ff"  # STRING, BYTES
    " 03000000 010001 01000000 00000000 ffffffff"  # ARRAY
    " 03000000 010000000000000001000000 6163 010001"  # MAP: keys, valid
    " 160000000000000004000000 02000000 0100 000000000000f83f 0000000000000000 00000000"  # its values
    " 0100 00000000 16000000 03000000 010001 010000000000000002000000 78797a"  # ROW
)


def test_golden_rows() -> None:
    codec = RowCodec(schema_of(*EVERYTHING))
    nothing = tuple([None] * len(EVERYTHING))
    widths = 1 + 1 + 2 + 4 + 8 + 4 + 8 + 8 + 16 + 4 + 8 + 8 + 8 + 5 * 4
    assert codec.encode(nothing).hex() == "0300" + "00" + "ffff03" + "00" * widths
    assert codec.encode(nothing, hidden=True).hex() == "0300" + "01" + "ffff03" + "00" * widths
    assert codec.encode(EVERY_VALUE).hex() == GOLDEN_ROW.replace(" ", "")
    assert codec.encode_list([arrow_array([value], t) for value, t in zip(EVERY_VALUE, EVERYTHING, strict=True)]) == [
        bytes.fromhex(GOLDEN_ROW)
    ]
    assert same(codec.decode(codec.encode(EVERY_VALUE)), EVERY_VALUE)


def test_the_worked_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
    example = text.split("\n## Rows\n")[1].split("### Worked example")[1].split("\n## ")[0]
    lines = re.findall(r"^((?:[0-9a-f]{2} )+) ", example, re.MULTILINE)
    schema = schema_of(BigInt(), Double(), String(), Array(element=String()), schema_id=1)
    row = RowCodec(schema).encode((42, None, "Zoë", ["a", None]))
    assert bytes.fromhex("".join(lines)) == row

    cells = re.findall(r"^\| `(.+)` \| `(.+)` \| `([0-9a-f ]+)` \|$", example, re.MULTILINE)
    assert len(cells) == 8
    for name, value, cell in cells:
        found = [
            (data_type, expected, golden)
            for data_type, expected, golden in GOLDEN_CELLS
            if spelled(data_type) == name and as_lists(expected) == json.loads(value)
        ]
        [(data_type, _, golden)] = found
        assert bytes.fromhex(golden)[4 if isinstance(data_type, (String, Binary, *NESTED)) else 0 :] == bytes.fromhex(
            cell
        )


def spelled(data_type: DataType) -> str:
    return data_type.sql().replace(" NOT NULL", "").replace("`", "")


def as_lists(value: Any) -> Any:
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


# --- what goes in


def test_bytes_under_nulls_never_show() -> None:
    garbage = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<2i", 99, 7))])
    text = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<3i", 0, 3, 5)), pa.py_buffer(b"xyzab")]
    )
    lists = pa.Array.from_buffers(
        pa.list_(pa.int32()), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<3i", 0, 2, 3))],
        children=[pa.array([1, 2, 3], pa.int32())],
    )  # fmt: skip
    maps = pa.Array.from_buffers(
        pa.map_(pa.string(), pa.int32()), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<3i", 0, 2, 3))],
        children=[
            pa.StructArray.from_arrays(
                [pa.array(["a", "b", "c"]), pa.array([1, 2, 3], pa.int32())],
                fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int32())],
            )
        ],
    )  # fmt: skip
    rows = pa.StructArray.from_arrays([text, garbage], names=["a", "b"], mask=pa.array([True, False]))
    types = [Int(), String(), Array(element=Int()), Map(key=String(nullable=False), value=Int()),
             Row(fields=(Field("a", String()), Field("b", Int())))]  # fmt: skip
    codec = RowCodec(schema_of(*types))
    assert codec.encode_list([garbage, text, lists, maps, rows]) == [
        codec.encode((None, None, None, None, None)),
        codec.encode((7, "ab", [3], [("c", 3)], ("ab", 7))),
    ]


def test_other_arrow_types_that_mean_the_same() -> None:
    codec = RowCodec(schema_of(BigInt(), String(), Binary(), Array(element=String()), TimestampLtz()))
    expected = [codec.encode((1, "a", b"b", ["c"], 5_000)), codec.encode((None, None, None, None, None))]
    arrays = [
        pa.array([1, None], pa.int8()),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([b"b", None], pa.large_binary()),
        pa.array([["c"], None], pa.large_list(pa.large_string())),
        pa.array([5, None], pa.timestamp("ms", "Europe/Berlin")),
    ]
    assert codec.encode_list(arrays) == expected
    arrays[1] = pa.array(["a", None], pa.large_string())
    assert codec.encode_list(arrays) == expected


REFUSED: list[tuple[DataType, Any, str]] = [
    (Int(nullable=False), None, "v0 is null"),
    (Int(), 2**31, "no value of column v0 INT"),
    (Int(), 1.0, "no value of column v0 INT"),
    (Int(), "1", "no value of column v0 INT"),
    (Boolean(), 1, "no value of column v0 BOOLEAN"),
    (Float(), 1e39, "no value of column v0 FLOAT"),
    (Decimal(precision=38), 2**127, "no value of column v0 DECIMAL"),
    (String(), b"a", "no value of column v0 STRING"),
    (String(), "\ud800", "no value of column v0 STRING"),
    (Binary(), "a", "no value of column v0 BYTES"),
    (Binary(), 3, "no value of column v0 BYTES"),
    (Array(element=Int()), [1, "2"], "no value of column v0 ARRAY<INT>"),
    (Array(element=Int(nullable=False)), [None], "no value of column v0"),
    (Array(element=Int()), 5, "no value of column v0"),
    (Map(key=Int(), value=Int()), [(None, 1)], "no value of column v0"),
    (Map(key=Int(), value=Int()), [(1,)], "no value of column v0"),
    (Row(fields=(Field("a", Int()),)), (1, 2), "no value of column v0"),
    (Row(fields=(Field("a", Int(nullable=False)),)), (None,), "no value of column v0"),
]


@pytest.mark.parametrize(("data_type", "value", "message"), REFUSED)
def test_values_that_a_column_cannot_hold(data_type: DataType, value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)) as refused:
        RowCodec(schema_of(data_type, Int())).encode((value, 1))
    assert refused.value.place == "v0"


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")])
REFUSED_ARRAYS: list[tuple[DataType, pa.Array, str]] = [
    (Int(nullable=False), pa.array([1, None], pa.int32()), "null"),
    (Int(), pa.array([2**31]), "do not fit"),
    (String(), pa.array([1]), "Arrow type"),
    (String(), NOT_UTF8, "UTF-8"),
    (Array(element=String()), pa.ListArray.from_arrays([0, 1], NOT_UTF8), "UTF-8"),
    (Timestamp(), pa.array([1], pa.timestamp("us", "UTC")), "Arrow type"),
    (Array(element=Int(nullable=False)), pa.array([[1, None]], pa.list_(pa.int32())), "null"),
    (Row(fields=(Field("a", Int(nullable=False)),)), pa.array([{"a": None}], pa.struct({"a": pa.int32()})), "null"),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "array", "message"), REFUSED_ARRAYS, ids=lambda case: str(case)[:30])
def test_arrays_that_a_column_cannot_hold(data_type: DataType, array: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        RowCodec(schema_of(data_type)).encode_batch([array])
    assert refused.value.place == "v0"


def test_tombstones_may_lack_what_is_not_null() -> None:
    codec = RowCodec(schema_of(Int(nullable=False), NAMES_AND_COUNTS))
    row = codec.encode((None, None), hidden=True)
    arrays = [pa.array([None, 1], pa.int32()), arrow_array([None, None], NAMES_AND_COUNTS)]
    assert codec.encode_list(arrays, np.array([True, False])) == [row, codec.encode((1, None))]
    assert codec.decode(row) is None
    with pytest.raises(InvalidRequest):
        codec.encode_list(arrays, np.array([False, True]))


def test_columns_that_do_not_match() -> None:
    codec = RowCodec(schema_of(Int(), Int()))
    one, two = pa.array([1], pa.int32()), pa.array([1, 2], pa.int32())
    for columns, hidden in (([one], None), ([one, two], None), ([one, one], np.array([True, False]))):
        with pytest.raises(InvalidRequest):
            codec.encode_batch(columns, hidden)
    for values in ((1,), (1, 2, 3), (), (None,) * 20):
        with pytest.raises(InvalidRequest, match="2 value columns"):
            codec.encode(values)
    with pytest.raises(InvalidRequest, match="unknown column 'x'"):
        codec.decoder(["x"])
    with pytest.raises(InvalidRequest, match="primary key"):
        codec.decode_batch(pa.array([], pa.binary()), ["id"])
    with pytest.raises(InvalidRequest, match="twice"):
        codec.json_decoder(["v0", "v0"])


# --- what comes out of damaged bytes


def outcome(codec: RowCodec, row: bytes) -> Any:
    """What a row decodes to by every path, which have to agree: the values, or CorruptData and nothing else."""
    names = [column.name for column in codec.columns]
    try:
        values = codec.decode(row)
        codec.json_decoder(names)(row)
    except CorruptData:
        with pytest.raises(CorruptData):
            codec.decode_batch(pa.array([row], pa.binary()))
        return CorruptData
    arrays = codec.decode_batch(pa.array([row], pa.binary()))
    for array in arrays:
        array.validate()
    if values is not None:
        decoded = tuple(physical(array, column.type)[0] for array, column in zip(arrays, codec.columns, strict=True))
        assert same(decoded, values)
    return values


@pytest.mark.parametrize("hidden", [False, True])
def test_every_truncation_is_corrupt(hidden: bool) -> None:
    codec = RowCodec(schema_of(*EVERYTHING))
    row = codec.encode(EVERY_VALUE, hidden)
    for end in range(len(row)):
        assert outcome(codec, row[:end]) is CorruptData
    assert outcome(codec, row + b"\0") is CorruptData


def test_every_truncation_of_nested_bytes_is_corrupt() -> None:
    for data_type, value in zip(EVERYTHING, EVERY_VALUE, strict=True):
        if not isinstance(data_type, Array | Map | Row):
            continue
        codec = RowCodec(schema_of(data_type))
        row = codec.encode((value,))
        cell = row[8:]
        for part in [cell[:end] for end in range(len(cell))] + [cell + b"\0"]:
            assert outcome(codec, row[:4] + struct.pack("<I", len(part)) + part) is CorruptData


def test_one_bad_row_among_good_ones_and_nulls_is_corrupt() -> None:
    codec = RowCodec(schema_of(Int(), String(), Binary()))
    row = codec.encode((1, "text", b"bytes"))
    longer = row[:12] + struct.pack("<I", len(b"bytes") + 1) + row[16:]  # takes a byte of the row that follows
    wrapping = row[:8] + struct.pack("<2I", 2**32 - 1, len("text") + len(b"bytes") + 1) + row[16:]
    other_id = b"\x09" + row[1:]
    for bad in (row[:-1], row + b"\0", row[:3], b"", longer, wrapping, other_id, row[:2] + b"\x02" + row[3:]):
        for batch in ([row, bad, row], [None, bad, row], [row, None, bad], [bad, row, None]):
            with pytest.raises(CorruptData):
                codec.decode_batch(pa.array(batch, pa.binary()))


def test_text_that_is_cut_within_a_character_is_corrupt() -> None:
    """Joined, the bytes of these values are UTF-8."""
    codec = RowCodec(schema_of(Binary(), Binary()))
    reader = RowCodec(schema_of(String(), String()))
    first, second = "é".encode()[:1], "é".encode()[1:]
    for rows in ([(first, b""), (second, b"")], [(b"a", first), (b"b", second)], [(first, second)]):
        with pytest.raises(CorruptData, match="UTF-8"):
            reader.decode_batch(
                codec.encode_batch([pa.array(column, pa.binary()) for column in zip(*rows, strict=True)])
            )
    whole = codec.encode_batch([pa.array(["é".encode(), b"a"], pa.binary())] * 2)
    assert [array.to_pylist() for array in reader.decode_batch(whole)] == [["é", "a"]] * 2


def test_every_changed_byte_is_told_or_decodes() -> None:
    types = EVERYTHING[9:10] + EVERYTHING[15:]
    codec = RowCodec(schema_of(*types))
    row = codec.encode(EVERY_VALUE[9:10] + EVERY_VALUE[15:])
    told = 0
    for at in range(len(row)):
        for bit in (0x01, 0x02, 0x80):
            damaged = bytearray(row)
            damaged[at] ^= bit
            told += outcome(codec, bytes(damaged)) is CorruptData
    assert told > len(row)  # most of them: lengths, counts, valid bytes, UTF-8


@settings(RELAXED, max_examples=200)
@given(st.data())
def test_any_bytes_are_told_or_decode(data: st.DataObject) -> None:
    data_type = data.draw(TYPES)
    codec = RowCodec(schema_of(data_type))
    cell = data.draw(st.binary(max_size=40) | st.lists(st.sampled_from([0, 0, 0, 1, 2]), max_size=40).map(bytes))
    outcome(codec, bytes.fromhex("0300 00 00") + struct.pack("<I", len(cell)) + cell)
    outcome(codec, bytes.fromhex("0300 00 00") + cell)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "within its header"),
        ("0300", "within its header"),
        ("0300 00", "head"),
        ("0400 00 00 00000000", "schema id is 4"),
        ("0300 02 00 00000000", "flag"),
        ("0300 00 02 00000000", "nulls"),
        ("0300 00 01 00000000 00", "9 bytes"),
        ("0300 01 00 00000000 00", "9 bytes"),
    ],
)
def test_headers_that_no_row_has(row: str, message: str) -> None:
    codec = RowCodec(schema_of(Int()))
    with pytest.raises(CorruptData, match=message):
        codec.decode(bytes.fromhex(row))
    with pytest.raises(CorruptData):
        codec.decode_batch(pa.array([bytes.fromhex(row)], pa.binary()))
    if len(bytes.fromhex(row)) < 3:
        with pytest.raises(CorruptData):
            hidden_mask(pa.array([bytes.fromhex(row)], pa.binary()))


# --- the rest


def test_schema_ids_end_at_16_bits() -> None:
    row = RowCodec(schema_of(Int(), schema_id=0xFFFF)).encode((1,))
    assert row[:3] == b"\xff\xff\x00"
    with pytest.raises(InvalidRequest):
        RowCodec(schema_of(Int(), schema_id=0x10000))


def test_the_hidden_flag() -> None:
    assert HIDDEN_FLAG == 1
