"""Goal: rows of every version of a schema read as rows of one, or are refused where their types can't be."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from stelae.encoding.row_header import hidden_mask
from stelae.encoding.row_reader import RowReader
from stelae.encoding.rows import RowCodec
from stelae.errors import CorruptData
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import (
    Array,
    BigInt,
    DataType,
    Decimal,
    Double,
    Field,
    Int,
    Row,
    String,
)
from tests.stelae.encoding.nested import physical, schema_of


def version(schema_id: int, *columns: tuple[int, str, DataType]) -> TableSchema:
    base = schema_of(schema_id=schema_id)
    added = tuple(Column(column_id, name, data_type) for column_id, name, data_type in columns)
    return TableSchema(schema_id, (*base.columns, *added), base.primary_key, (), base.options)


OLD = version(0, (1, "a", Int()), (2, "gone", String()), (3, "n", Array(element=Int())))
MIDDLE = version(
    1, (3, "n", Array(element=Int())), (1, "renamed", BigInt()), (4, "price", Decimal(precision=10, scale=2))
)
NEW = version(
    2,
    (4, "price", Decimal(precision=20, scale=2)),
    (1, "a", BigInt()),
    (5, "gone", Double()),
    (3, "n", Array(element=BigInt())),
)


def test_rows_of_older_schemas_read_as_rows_of_the_newest() -> None:
    old, middle, new = RowCodec(OLD), RowCodec(MIDDLE), RowCodec(NEW)
    rows = [
        new.encode((150, 1, 0.5, [1])),
        old.encode((2, "left out", [2])),
        middle.encode(([3], 3, 350)),
        old.encode((None, None, None)),
        old.encode((5, "hidden", None), hidden=True),
        new.encode((None, None, None, None)),
    ]
    expected = [(150, 1, 0.5, [1]), (None, 2, None, [2]), (350, 3, None, [3]), (None,) * 4, None, (None,) * 4]
    reader = RowReader({0: OLD, 1: MIDDLE, 2: NEW}, NEW)
    assert [reader.decode(row) for row in rows] == expected
    some = reader.decoder(["n", "price"])
    assert [some(row) for row in rows] == [None if row is None else (row[3], row[0]) for row in expected]
    to_json = reader.json_decoder(["gone", "price"])
    assert [to_json(row) for row in rows] == [
        {"gone": 0.5, "price": "1.50"},
        {"gone": None, "price": None},
        {"gone": None, "price": "3.50"},
        {"gone": None, "price": None},
        None,
        {"gone": None, "price": None},
    ]

    batch = pa.array([*rows, None], pa.binary())
    arrays = reader.decode_batch(batch)
    decoded = [physical(array, column.type) for array, column in zip(arrays, NEW.value_columns, strict=True)]
    assert decoded == [
        [150, None, 350, None, None, None, None],
        [1, 2, 3, None, 5, None, None],
        [0.5, None, None, None, None, None, None],
        [[1], [2], [3], None, None, None, None],
    ]
    assert [a.to_pylist() for a in reader.decode_batch(batch, ["n"])] == [decoded[3]]
    assert hidden_mask(batch).tolist() == [False, False, False, False, True, False, False]
    assert reader.decode_batch(batch[:1], ["a"])[0].to_pylist() == [1]
    assert [a.to_pylist() for a in reader.decode_batch(batch[:0])] == [[], [], [], []]


def test_rows_that_are_of_no_known_schema() -> None:
    reader = RowReader({0: OLD}, NEW)
    stray = RowCodec(version(9, (1, "a", Int()))).encode((1,))
    for call in (
        reader.decode,
        reader.json_decoder(["a"]),
        lambda row: reader.decode_batch(pa.array([row], pa.binary())),
    ):
        with pytest.raises(CorruptData, match="schema id 9"):
            call(stray)
    row = RowCodec(OLD).encode((1, "text", [1]))
    for end in range(len(row)):
        with pytest.raises(CorruptData):
            reader.decode(row[:end])
        with pytest.raises(CorruptData):
            reader.decode_batch(pa.array([row[:end], RowCodec(NEW).encode((1, 2, 3.0, None))], pa.binary()))


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        (BigInt(), Int()),
        (Int(), String()),
        (Decimal(precision=10, scale=2), Decimal(precision=10, scale=3)),
        (Array(element=Int()), Array(element=String())),
        (Row(fields=(Field("a", Int()),)), Row(fields=(Field("b", Int()),))),
    ],
)
def test_a_type_that_cannot_be_read_as_the_new_one(was: DataType, is_: DataType) -> None:
    old, new = version(0, (1, "a", was)), version(1, (1, "a", is_))
    with pytest.raises(CorruptData, match="cannot be read"):
        RowReader({0: old}, new).decode(RowCodec(old).encode((None,)))


def test_codecs_pickle() -> None:
    codec = pickle.loads(pickle.dumps(RowCodec(OLD)))
    assert codec.decode(codec.encode((1, "a", [2]))) == (1, "a", [2])
    reader = pickle.loads(pickle.dumps(RowReader({0: OLD}, NEW)))
    assert reader.decode(codec.encode((1, "a", [2]))) == (None, 1, None, [2])
