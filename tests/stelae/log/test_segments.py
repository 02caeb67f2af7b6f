"""Goal: the bytes of a segment never change, and read back as they were written.

Method: golden bytes, written once (changing one is a decision about the format), which are those of docs/format.md;
random flushes; headers that make no sense.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from stelae.errors import CorruptData
from stelae.log.records import Record, decode_record, encode_record
from stelae.log.segments import (
    MAGIC,
    SEGMENT_HEADER,
    SegmentHeader,
    decode_header,
    encode_flush,
    encode_header,
    read_records,
)
from tests.stelae.log.logs import BATCH, GIVEN, LOG_ID, drained
from tests.stelae.log.test_records import RECORDS, SKIP

ROOT = Path(__file__).parents[3]


@given(st.lists(RECORDS, max_size=5), st.integers(0, 2**62), st.integers(0, 2**64 - 1))
def test_a_flush_is_read_back(records: list[Record], first: int, salt: int) -> None:
    header = SegmentHeader(LOG_ID, 1, first, 0, 0, salt)
    data = encode_header(header) + encode_flush([encode_record(record) for record in records], first, salt)
    assert decode_header(data, "here") == header
    stored, tail = drained(read_records(data, header, None, "here"))
    assert [decode_record(each.payload, "here") for each in stored] == records
    assert [(each.offset, each.index_in_flush) for each in stored] == [(first + i, i) for i in range(len(records))]
    assert (tail.offset, tail.position, tail.torn_bytes) == (first + len(records), len(data), 0)


GOLDEN = (
    "895354454c4f470a0100000003000000000102030405060708090a0b0c0d0e0f05000000000000002a000000000000000300000000000000"
    "2a00000000000000efcdab8967452301cd0e52c1648083fd6b16d6dbb72d1028a54c4f47180000002a000000000000000000000001000000"
    "0c000000000000000100000000000000a086010000000000d40ccc7705263882a54c4f47420000002b000000000000000100000002000000"
    "03000000050000000400000003000000100000005b22323032362d31312d3230222c375d0200000002000000030000000100000003000000"
    "03000000616263010202adf5b2b60bb59c23a54c4f47080000002c0000000000000002000000030000003200000000000000"
)


def test_bytes_never_change() -> None:
    assert golden_segment().hex() == GOLDEN


def test_the_worked_example_of_the_documentation() -> None:
    text = (ROOT / "docs" / "format.md").read_text()
    example = text.split("\n## Log\n")[1].split("Worked example")[1].split("\n## ")[0]
    lines = re.findall(r"^((?:[0-9a-f]{2} ?)+)(?:  .*)?$", example, re.MULTILINE)
    assert "".join(lines).replace(" ", "") == GOLDEN


def golden_segment() -> bytes:
    header = SegmentHeader(LOG_ID, 5, 42, 3, 42, 0x0123456789ABCDEF, carried=3)
    payloads = [encode_record(record) for record in (GIVEN, BATCH, SKIP)]
    return encode_header(header) + encode_flush(payloads, 42, header.salt)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "version 2 of the log is not known"),
        ({"magic": b"\x89PNG\r\n\x1a\n"}, "no segment of a log"),
        ({"previous_epoch": 5}, "epoch 5 comes after epoch 5"),
        ({"epoch": 0, "previous_epoch": 0}, "epoch 0 comes after epoch 0"),
        ({"previous_end": 43}, "record 42 comes before"),
        ({"base": 41}, "record 41 comes before the end of the previous epoch, 42"),
    ],
)
def test_headers_that_make_no_sense(change: dict[str, Any], told: str) -> None:
    values = {
        "magic": MAGIC, "version": 1, "carried": 0, "log_id": LOG_ID, "epoch": 5, "base": 42,
        "previous_epoch": 3, "previous_end": 42, "salt": 1,
    }  # fmt: skip
    head = SEGMENT_HEADER.pack(*{**values, **change}.values())
    with pytest.raises(CorruptData, match=told):
        decode_header(head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little"), "here")
