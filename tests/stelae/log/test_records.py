"""Goal: a record is read back as it was written, and what can't be one is refused.

Method: random records; every cut of a payload.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.errors import CorruptData, InvalidRequest, TooLarge
from stelae.log import records as log_records
from stelae.log.records import Granted, Inserted, Payload, Record, Skipped, decode_record, encode_record
from tests.stelae.log.logs import BATCH, GIVEN, SINGLE

COUNTS = st.integers(0, 2**32 - 1)


IDS = st.integers(0, 2**63 - 1)


PIECES = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=12)


PARTITIONS = st.lists(
    st.text(max_size=5)
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
).map(tuple)


@st.composite
def inserted(draw: st.DrawFn) -> Inserted:
    pieces = draw(PIECES)
    keys, rows = [key for key, _ in pieces], [row for _, row in pieces]
    return Inserted(draw(COUNTS), draw(PARTITIONS), draw(COUNTS), keys, rows, len(keys) + draw(st.integers(0, 5)))


@st.composite
def granted(draw: st.DrawFn) -> Granted:
    first, last = sorted((draw(IDS), draw(IDS)))
    return Granted(draw(IDS), first, last)


RECORDS = st.one_of(inserted(), granted())


SKIP = Skipped(50)


@given(RECORDS)
def test_a_record_is_read_back(record: Record) -> None:
    assert decode_record(encode_record(record), "here") == record


@pytest.mark.parametrize(
    "record",
    [
        Granted(0, 5, 4),
        Granted(-1, 1, 2),
        Granted(0, 1, 2**64),
        replace(BATCH, rows=[b""]),
        replace(BATCH, asked=2),
        replace(BATCH, bucket=-1),
        replace(BATCH, schema_id=2**32),
    ],
)
def test_what_cannot_be_a_record(record: Record) -> None:
    with pytest.raises(InvalidRequest):
        encode_record(record)


def test_a_batch_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "MAX_PAYLOAD_BYTES", 8)
    encode_record(BATCH)
    for keys in ([b"12345"], [b"123", b"45"]):
        with pytest.raises(TooLarge, match="5 bytes"):
            encode_record(replace(BATCH, keys=keys, rows=[b""] * len(keys)))


def test_every_cut_of_a_payload_is_told() -> None:
    for record in (BATCH, GIVEN, SINGLE, SKIP):
        kind, data = encode_record(record)
        for size in range(len(data)):
            with pytest.raises(CorruptData):
                decode_record(Payload(kind, data[:size]), "here")
        with pytest.raises(CorruptData):
            decode_record(Payload(kind, data + b"\0"), "here")
    with pytest.raises(CorruptData, match="kind 9 is not known"):
        decode_record(Payload(9, b""), "here")
