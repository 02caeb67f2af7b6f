"""Goal: what was acknowledged is read again, in order, whatever crashed; what is damaged is told, and never skipped.

Method: records and logs of random owners, paused ones that write on included, against a dict; golden bytes, written
once (changing one is a decision about the format); a small log cut off and changed at every byte; files that fail on
purpose; a writer process that is killed again and again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.errors import Conflict, CorruptData, InvalidRequest, StelaeError, TooLarge, Unavailable
from stelae.log import records as log_records
from stelae.log import writer as log
from stelae.log.group_commit import GroupCommit
from stelae.log.outline import outline, removable
from stelae.log.reader import Entry, LogState, log_parts, read_log, read_part, recover
from stelae.log.records import Granted, Inserted, Payload, Record, Skipped, decode_record, encode_record
from stelae.log.segments import (
    FRAME_BYTES,
    MAGIC,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_header,
    encode_flush,
    encode_header,
    read_frames,
)
from stelae.log.writer import LocalLogFile, LogWriter, remove_covered
from stelae.storage.paths import segment_name
from tests.waiting import WAIT_S

ROOT = Path(__file__).parents[3]
LOG_ID = bytes(range(16))
GIVEN = Granted(12, 1, 100_000)
BATCH = Inserted(3, ("2026-11-20", 7), 5, [b"ab", b"", b"c"], [b"\1", b"\2\2", b""], 4)
SINGLE = Inserted(0, (), 0, [b"key"], [b"row"], 1)

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small logs, none of which has to outlast a power cut."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(log, "_fdatasync", lambda handle: None)


def key(text: str | int) -> Inserted:
    return replace(SINGLE, keys=[str(text).encode()])


def opened(folder: Path, epoch: int = 1, **options: Any) -> LogWriter:
    """The writer of the next owner."""
    state = recover(folder)
    return LogWriter(folder, epoch, state.end, state, **options)


def write(writer: LogWriter, *flushes: list[Record]) -> None:
    for records in flushes:
        writer.append(records)
        writer.flush()


def keys_of(folder: Path, from_offset: int | None = None) -> list[str]:
    records = (entry.record for entry in read_log(folder, from_offset))
    return [record.keys[0].decode() for record in records if isinstance(record, Inserted)]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Records


@given(RECORDS)
def test_a_record_is_read_back(record: Record) -> None:
    assert decode_record(encode_record(record), "here") == record


@given(st.lists(RECORDS, max_size=5), st.integers(0, 2**62), st.integers(0, 2**64 - 1))
def test_a_flush_is_read_back(records: list[Record], first: int, salt: int) -> None:
    header = SegmentHeader(LOG_ID, 1, first, 0, 0, salt)
    data = encode_header(header) + encode_flush([encode_record(record) for record in records], first, salt)
    assert decode_header(data, "here") == header
    frames, tail = drained(read_frames(data, header, None, "here"))
    assert [decode_record(frame.payload, "here") for frame in frames] == records
    assert [(frame.offset, frame.place) for frame in frames] == [(first + i, i) for i in range(len(records))]
    assert (tail.offset, tail.position, tail.torn_bytes) == (first + len(records), len(data), 0)


def drained(frames: Any) -> tuple[list[Any], Any]:
    found = []
    while True:
        try:
            found.append(next(frames))
        except StopIteration as stop:
            return found, stop.value


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


# Bytes


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


# Logs


def test_no_log_yet(folder: Path) -> None:
    assert recover(folder) == LogState()
    assert list(read_log(folder)) == list(read_log(folder, 5)) == []
    assert remove_covered(folder, 5) == ()


def test_records_are_read_in_order_over_segments_and_epochs(folder: Path) -> None:
    writer = opened(folder, segment_bytes=200)
    assert writer.append([GIVEN, key("a")]) == range(2)
    assert writer.append([key("b")]) == range(2, 3)
    assert (writer.end, writer.durable_end) == (3, 0)
    assert list(read_log(folder)) == []
    writer.flush()
    assert (writer.end, writer.durable_end) == (3, 3)
    write(writer, [key("c")], [key("d")])
    writer.close()
    writer = opened(folder, 7)
    write(writer, [key("e"), BATCH])

    entries = list(read_log(folder))
    assert [entry.offset for entry in entries] == list(range(7))
    assert [entry.epoch for entry in entries] == [1] * 4 + [7] * 3
    assert [entry.record for entry in entries] == [GIVEN, *map(key, "abcde"), BATCH]
    assert entries[0].bytes == FRAME_BYTES + 24
    for offset in range(9):
        assert [entry.offset for entry in read_log(folder, offset)] == list(range(offset, 7))

    state = recover(folder)
    assert (state.epoch, state.start, state.end, state.claim) == (7, 0, 7, GIVEN)
    assert [(s.epoch, s.base, s.end, s.torn_bytes) for s in state.segments] == [
        (1, 0, 3, 0),
        (1, 3, 4, 0),
        (7, 4, 7, 0),
    ]
    assert [s.bytes for s in state.segments] == [(folder / s.name).stat().st_size for s in state.segments]
    assert [s.name for s in state.segments] == names_in(folder)


def test_the_last_claim_is_found(folder: Path) -> None:
    writer = opened(folder)
    write(writer, [GIVEN, key("a"), Granted(14, 5, 9)], [key("b")])
    state = recover(folder)
    assert (state.claim, state.claim_offset) == (Granted(14, 5, 9), 2)


def test_a_writer_without_records_leaves_a_segment_that_counts(folder: Path) -> None:
    write(opened(folder, 1), [key("a")])
    opened(folder, 2).close()
    state = recover(folder)
    assert (state.epoch, state.end) == (2, 1)
    write(opened(folder, 4), [key("b")])
    assert keys_of(folder) == ["a", "b"]


def test_offsets_may_be_left_out_between_epochs(folder: Path) -> None:
    """A snapshot may cover records whose flush got lost; their offsets are not given again."""
    write(opened(folder), [key("a")], [key("b")])
    LogWriter(folder, 2, 10, recover(folder)).close()
    assert [entry.record for entry in read_log(folder)] == [key("a"), key("b"), Skipped(10)]
    assert recover(folder).end == 10
    opened(folder, 3).close()
    assert [entry.record for entry in read_log(folder)] == [key("a"), key("b"), Skipped(10)]
    write(LogWriter(folder, 4, 20, recover(folder)), [key("c")], [key("d")])
    assert [(entry.offset, entry.record) for entry in read_log(folder)] == [
        (0, key("a")), (1, key("b")), (2, Skipped(20)), (20, key("c")), (21, key("d")),
    ]  # fmt: skip
    assert [entry.offset for entry in read_log(folder, 5)] == [20, 21]
    write(opened(folder, 5), [key("e")])
    assert [entry.offset for entry in read_log(folder, 20)] == [20, 21, 22]


def test_offsets_are_not_skipped_backwards(folder: Path) -> None:
    write(opened(folder), [key("a"), key("b"), Skipped(2)])
    with pytest.raises(CorruptData, match="record 2 skips backwards"):
        recover(folder)


def test_reading_beside_a_running_writer(folder: Path) -> None:
    writer = opened(folder, segment_bytes=300)
    reading = read_log(folder)
    write(writer, [key("a")])
    assert [entry.offset for entry in reading] == [0]
    for i in range(20):
        write(writer, [key(i)])
        assert keys_of(folder) == ["a", *map(str, range(i + 1))]


def test_other_files_are_nobodys(folder: Path) -> None:
    write(opened(folder), [key("a")])
    (folder / "notes.txt").write_text("x")
    (folder / f".{'0' * 32}.tmp").write_bytes(b"half of a header")
    assert keys_of(folder) == ["a"]


# Epochs


def test_what_a_replaced_owner_writes_on_does_not_count(folder: Path) -> None:
    former = opened(folder, 1, segment_bytes=300)
    write(former, [key("a")], [key("b")])
    owner = opened(folder, 2)
    write(former, [key("x")], [key("y")], [key("z")])
    assert len(former.path.parent.joinpath(former.path.name).read_bytes()) > SEGMENT_HEADER_BYTES
    assert keys_of(folder) == ["a", "b"]
    write(owner, [key("c")])
    write(former, [key("x")])
    assert keys_of(folder) == ["a", "b", "c"]
    state = recover(folder)
    assert state.end == 3
    assert state.ignored
    assert set(names_in(folder)) == {s.name for s in state.segments} | set(state.ignored)


def test_an_owner_who_wrote_nothing_and_comes_back_is_ignored(folder: Path) -> None:
    """It took its epoch and read the log, then slept until its successor had a segment."""
    write(opened(folder, 1), [key("a")])
    seen = recover(folder)
    write(opened(folder, 3), [key("b")])
    write(LogWriter(folder, 2, seen.end, seen), [key("x")])
    assert keys_of(folder) == ["a", "b"]
    assert segment_name(2, 0) in recover(folder).ignored


def test_so_is_the_first_of_all_owners(folder: Path) -> None:
    write(opened(folder, 2), [key("b")])
    write(LogWriter(folder, 1, 0, LogState()), [key("x")])
    assert keys_of(folder) == ["b"]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 2)),
        st.tuples(st.just("write"), st.integers(1, 3)),
        st.tuples(st.just("wake"), st.integers(0, 5)),
        st.tuples(st.just("tear"), st.integers(1, 60)),
        st.tuples(st.just("trim"), st.integers(0, 40)),
    ),
    max_size=25,
)


@pytest.mark.usefixtures("unsynced")
@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS)
def test_random_owners(tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]) -> None:
    """Owners take over, write, sleep, wake up and write on, are killed in the middle of a write, remove segments."""
    folder = tmp_path_factory.mktemp("owners") / "log"
    model: dict[int, str] = {}
    epoch, names = 0, iter(range(10**6))
    writers: list[Callable[[], LogWriter]] = []
    current: LogWriter | None = None
    trimmed = 0
    for what, number in operations:
        if what == "take":
            epoch += 1
            state = recover(folder)
            made: list[LogWriter] = []

            def writer(epoch: int = epoch, state: LogState = state, made: list[LogWriter] = made) -> LogWriter:
                made[:] = made or [LogWriter(folder, epoch, state.end, state, segment_bytes=250)]
                return made[0]

            writers.append(writer)
            current = writer() if number else None
        elif what == "write" and current:
            names_now = [f"n{next(names)}" for _ in range(number)]
            offsets = current.append([key(name) for name in names_now])
            current.flush()
            model.update(zip(offsets, names_now, strict=True))
        elif what == "wake" and number < len(writers) - 1:
            write(writers[number](), [key("stale")])
        elif what == "tear" and current:
            with current.path.open("ab") as file:
                file.write(encode_flush([encode_record(key("torn"))], current.end, 1)[:number])
            current = None
        elif what == "trim" and current:
            trimmed = max(trimmed, min(number, current.end))
            remove_covered(folder, trimmed)
    entries = [entry for entry in read_log(folder, trimmed) if isinstance(entry.record, Inserted)]
    found = {entry.offset: entry.record.keys[0].decode() for entry in entries}
    assert {offset: found.get(offset) for offset in model if offset >= trimmed} == {
        offset: name for offset, name in model.items() if offset >= trimmed
    }
    assert [entry.offset for entry in entries] == sorted(found)


# Crashes and damage


def small_log(folder: Path) -> tuple[bytes, list[int]]:
    """A log of one segment of three flushes, of four records; its bytes, and where each record starts."""
    write(opened(folder), [GIVEN], [key("a"), key("b")], [key("c")])
    data = (folder / segment_name(1, 0)).read_bytes()
    frames, _ = drained(read_frames(data, decode_header(data, ""), None, ""))
    return data, [frame.position for frame in frames]


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("rest", [b"", bytes(100), b"\xff" * 100], ids=["cut", "zeros", "ones"])
def test_a_torn_tail_is_cut_at_every_byte(folder: Path, rest: bytes) -> None:
    data, starts = small_log(folder)
    path = folder / segment_name(1, 0)
    ends = [*starts[1:], len(data)]
    for size in range(SEGMENT_HEADER_BYTES, len(data) + 1):
        path.write_bytes(data[:size] + rest)
        whole = sum((data[:size] + rest)[:end] == data[:end] for end in ends)
        state = recover(folder)
        assert state.end == whole, size
        assert state.segments[0].torn_bytes == size + len(rest) - (ends[whole - 1] if whole else SEGMENT_HEADER_BYTES)
        assert [entry.offset for entry in read_log(folder)] == list(range(whole))
    for size in range(SEGMENT_HEADER_BYTES):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptData):
            recover(folder)


@pytest.mark.usefixtures("unsynced")
def test_the_next_owner_goes_on_behind_a_torn_tail(folder: Path) -> None:
    data, _ = small_log(folder)
    path = folder / segment_name(1, 0)
    path.write_bytes(data[:-5])
    write(opened(folder, 2), [key("d")])
    assert keys_of(folder) == ["a", "b", "d"]
    assert path.read_bytes() == data[:-5]


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_changed_bit_before_the_last_flush_is_found(folder: Path, bit: int) -> None:
    data, starts = small_log(folder)
    path = folder / segment_name(1, 0)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << bit
        path.write_bytes(changed)
        if position >= starts[3]:
            assert recover(folder).end == 3  # Like a flush that was not finished: nothing tells them apart.
            continue
        with pytest.raises(CorruptData) as error:
            recover(folder)
        assert str(path) in str(error.value.place)
        assert error.value.hint
        if position >= SEGMENT_HEADER_BYTES:
            broken = max(start for start in starts if start <= position)
            assert error.value.place == f"{path}, byte {broken}"
        with pytest.raises(CorruptData):
            list(read_log(folder))


@pytest.mark.usefixtures("unsynced")
def test_a_changed_bit_in_a_former_segment_or_epoch_is_found(folder: Path) -> None:
    for epoch, segment_bytes in ((1, 1), (2, 1 << 20)):
        write(opened(folder, epoch, segment_bytes=segment_bytes), [key("a"), key("b")], [key("c")])
    opened(folder, 3)
    counted = {segment.name: segment.end for segment in recover(folder).segments}
    assert list(counted) == [segment_name(1, 0), segment_name(2, 2), segment_name(3, 5)]
    assert names_in(folder) == sorted([*counted, segment_name(1, 2)])
    for name in names_in(folder):
        data = (folder / name).read_bytes()
        frames, _ = drained(read_frames(data, decode_header(data, ""), None, ""))
        counts = max(
            (frame.end for frame in frames if frame.offset < counted.get(name, 0)), default=SEGMENT_HEADER_BYTES
        )
        changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
        for position, damaged in [*enumerate(changed), *((size, data[:size]) for size in range(len(data)))]:
            (folder / name).write_bytes(damaged)
            if position >= counts:
                assert recover(folder).end == 6
                continue
            with pytest.raises(CorruptData, match=name):
                recover(folder)
        (folder / name).write_bytes(data)


def test_within_the_last_flush_records_may_get_lost_in_any_order(folder: Path) -> None:
    """A power cut may leave the second record of a flush whole, and the first one not."""
    write(opened(folder), [key("a")], [key("b"), key("c"), key("d")])
    path = folder / segment_name(1, 0)
    data = path.read_bytes()
    frames, _ = drained(read_frames(data, decode_header(data, ""), None, ""))
    for broken in (1, 2, 3):
        path.write_bytes(data[: frames[broken].position] + bytes(40) + data[frames[broken].position + 40 :])
        assert keys_of(folder) == ["a", "b", "c", "d"][:broken]


@pytest.mark.usefixtures("unsynced")
def test_bytes_of_a_client_are_no_record(folder: Path) -> None:
    """A torn record holds, as its key, what would be a record of a later flush in another segment."""
    write(opened(folder), [key("a")])
    path = folder / segment_name(1, 0)
    forged = encode_flush([encode_record(key("x"))], 9, 7)
    state = recover(folder)
    salt = decode_header(path.read_bytes(), "").salt
    torn = encode_flush([encode_record(replace(SINGLE, keys=[forged]))], state.end, salt)
    with path.open("ab") as file:
        file.write(torn[:-1])
    assert recover(folder).end == 1
    own = encode_flush(
        [encode_record(replace(SINGLE, keys=[encode_flush([encode_record(key("x"))], 9, salt)]))], 1, salt
    )
    path.write_bytes(path.read_bytes()[: -len(torn) + 1] + own[:-1])
    with pytest.raises(CorruptData, match="record 9 behind it"):
        recover(folder)


def test_a_gap_in_the_offsets(folder: Path) -> None:
    write(opened(folder), [key("a")])
    path = folder / segment_name(1, 0)
    salt = decode_header(path.read_bytes(), "").salt
    with path.open("ab") as file:
        file.write(encode_flush([encode_record(key("c"))], 2, salt))
    with pytest.raises(CorruptData, match="record 2 stands where record 1 belongs"):
        recover(folder)


def chain_of_segments(folder: Path) -> list[str]:
    """Segments of one flush each: records 0 to 2 of epoch 1, where 2 does not count, and 2 to 5 of epoch 2."""
    for epoch in (1, 2):
        write(opened(folder, epoch, segment_bytes=1), [key("a")], [key("b")], [key("c")])
    return names_in(folder)


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ((1,), f"record 1: not there.*{segment_name(1, 0)}"),
        ((3,), f"records 2 to 2 of epoch 2 are not there, but older ones are.*{segment_name(2, 2)}"),
        ((3, 4), f"records 2 to 3 of epoch 2 are not there, but older ones are.*{segment_name(2, 2)}"),
        ((4,), f"record 3: not there.*{segment_name(2, 2)}"),
        ((4, 5), f"records 3 to 4: not there.*{segment_name(2, 2)}"),
    ],
)
def test_a_missing_segment(folder: Path, lacking: tuple[int, ...], told: str) -> None:
    names = chain_of_segments(folder)
    for index in lacking:
        (folder / names[index]).unlink()
    with pytest.raises(CorruptData, match=told):
        recover(folder)


@pytest.mark.usefixtures("unsynced")
def test_missing_first_segments_are_told_to_those_who_need_them(folder: Path) -> None:
    names = chain_of_segments(folder)
    for name, start in zip(names[:-1], [1, 2, 2, 3, 4, 5], strict=True):
        (folder / name).unlink()
        assert recover(folder).start == start
        assert [entry.offset for entry in read_log(folder)] == list(range(start, 6))
        assert [entry.offset for entry in read_log(folder, start)] == list(range(start, 6))
        with pytest.raises(CorruptData, match=f"records {start - 1} to {start - 1} are not there"):
            read_log(folder, start - 1)


@pytest.mark.usefixtures("unsynced")
def test_a_segment_of_another_table(folder: Path, tmp_path: Path) -> None:
    names = chain_of_segments(folder)
    other = tmp_path / "other"
    chain_of_segments(other)
    for name in names:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes((other / name).read_bytes())
        with pytest.raises(CorruptData, match="another table's log"):
            recover(folder)
        (folder / name).write_bytes(data)
    state = LogState(epoch=8, end=3, last_flush=3)
    write(LogWriter(other, 9, 3, state), [key("x")])
    (folder / segment_name(9, 3)).write_bytes((other / segment_name(9, 3)).read_bytes())
    assert recover(folder).start == 3  # Epoch 8 is nowhere: that is not what a snapshot needs.
    with pytest.raises(CorruptData):
        read_log(folder, 0)


@pytest.mark.usefixtures("unsynced")
def test_segments_that_contradict_each_other(folder: Path) -> None:
    write(opened(folder), [key("a")])
    own = decode_header((folder / segment_name(1, 0)).read_bytes(), "")
    lying = encode_header(replace(own, epoch=3, base=1, previous_epoch=1, previous_end=1))
    (folder / segment_name(3, 1)).write_bytes(lying)
    also = encode_header(replace(own, epoch=3, base=2, previous_epoch=1, previous_end=0))
    (folder / segment_name(3, 2)).write_bytes(also)
    with pytest.raises(CorruptData, match="different things"):
        recover(folder)
    (folder / segment_name(3, 2)).write_bytes(lying)
    with pytest.raises(CorruptData, match=f"the file holds {segment_name(3, 1)}"):
        recover(folder)


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


# Writing


class Faults:
    """Makes files that fail on purpose, and keeps what was done with them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.write_error: OSError | None = None
        self.written_before_error = 0
        self.sync_error: OSError | None = None
        self.before_sync: Callable[[], None] = lambda: None

    def open(self, path: Path) -> LocalLogFile:
        faults = self

        class File(LocalLogFile):
            def write(self, data: bytes) -> None:
                faults.events.append("write")
                if faults.write_error:
                    super().write(data[: faults.written_before_error])
                    raise faults.write_error
                super().write(data)

            def sync(self) -> None:
                faults.before_sync()
                faults.events.append("sync")
                if faults.sync_error:
                    raise faults.sync_error
                super().sync()

        return File(path)

    @property
    def syncs(self) -> int:
        return self.events.count("sync")


@pytest.fixture
def faults() -> Faults:
    return Faults()


def test_a_flush_is_one_write_and_one_sync(folder: Path, faults: Faults) -> None:
    writer = opened(folder, open_file=faults.open)
    writer.flush()
    assert faults.events == []
    writer.append([GIVEN, key("a")])
    writer.append([key("b")])
    writer.flush()
    writer.flush()
    assert faults.events == ["write", "sync"]
    assert writer.flushes == 1


NO_SPACE, IO_ERROR = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("kept", [0, 20, 60])
@pytest.mark.parametrize(
    ("write_error", "sync_error", "told", "hint"),
    [
        (NO_SPACE, None, "no space left", "free space"),
        (IO_ERROR, None, "Input/output error", "look after the disk"),
        (None, NO_SPACE, "no space left", "free space"),
        (None, IO_ERROR, "Input/output error", "look after the disk"),
    ],
)
def test_after_an_error_nothing_is_tried_again(
    folder: Path, faults: Faults, write_error: OSError, sync_error: OSError, told: str, hint: str, kept: int
) -> None:
    writer = opened(folder, open_file=faults.open)
    write(writer, [key("a")])
    faults.write_error, faults.sync_error, faults.written_before_error = write_error, sync_error, kept
    writer.append([key("b")])
    with pytest.raises(Unavailable, match=told) as error:
        writer.flush()
    assert error.value.hint is not None
    assert hint in error.value.hint
    assert error.value.place == str(writer.path)
    assert writer.durable_end == 1

    faults.write_error = faults.sync_error = None
    events = list(faults.events)
    for attempt in (lambda: writer.append([key("c")]), writer.flush):
        with pytest.raises(Unavailable, match=told):
            attempt()
    writer.close()
    assert faults.events == events

    write(opened(folder, 2), [key("d")])
    assert keys_of(folder) in (["a", "d"], ["a", "b", "d"])  # Nobody was told that b is there, or that it is not.


def test_a_segment_that_cannot_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(folder, segment_bytes=1)
    write(writer, [key("a")])
    full = OSError(errno.ENOSPC, "No space left on device")

    def link(source: Path, target: Path) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        writer.append([key("b")])
        with pytest.raises(Unavailable, match="no space left"):
            writer.flush()
        with pytest.raises(Unavailable, match="no space left"):
            opened(folder, 2)
    with pytest.raises(Unavailable, match="no space left"):
        writer.append([key("b")])
    write(opened(folder, 2), [key("c")])
    assert keys_of(folder) == ["a", "c"]


def test_one_writer_an_epoch(folder: Path) -> None:
    state = recover(folder)
    write(LogWriter(folder, 1, 0, state), [key("a")])
    with pytest.raises(Conflict):
        LogWriter(folder, 1, 0, state)
    for epoch, base in ((1, 1), (2, 0)):
        with pytest.raises(InvalidRequest, match="does not come after"):
            LogWriter(folder, epoch, base, recover(folder))
    assert keys_of(folder) == ["a"]


def test_a_closed_log_takes_nothing(folder: Path) -> None:
    writer = opened(folder)
    writer.close()
    writer.close()
    with pytest.raises(Unavailable, match="closed"):
        writer.append([GIVEN])


def test_the_next_owner_writes_the_last_flush_again(folder: Path) -> None:
    """It was read, but maybe from memory only: the machine may forget it, or its writer cut it off."""
    former = opened(folder)
    write(former, [key("a")], [GIVEN, key("b"), key("c")])
    size = former.path.stat().st_size
    state = recover(folder)
    assert (state.end, state.last_flush) == (4, 1)
    write(opened(folder, 2), [key("d")])
    frames, _ = drained(read_frames(former.path.read_bytes(), decode_header(former.path.read_bytes(), ""), None, ""))
    assert frames[-1].end == size
    os.truncate(former.path, frames[1].position)
    assert [entry.record for entry in read_log(folder)] == [key("a"), GIVEN, *map(key, "bcd")]
    assert [(entry.offset, entry.epoch) for entry in read_log(folder)] == [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2)]
    assert recover(folder).claim == GIVEN
    os.truncate(former.path, frames[1].position - 1)
    with pytest.raises(CorruptData, match="record 0: damaged"):
        recover(folder)


@pytest.mark.usefixtures("unsynced")
def test_what_a_segment_was_made_with_is_never_torn(folder: Path) -> None:
    write(opened(folder), [key("a")], [key("b"), key("c")])
    path = opened(folder, 2).path
    data = path.read_bytes()
    for position in range(SEGMENT_HEADER_BYTES, len(data)):
        for damaged in (data[:position], data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(CorruptData, match="which the segment was made with, is damaged"):
                recover(folder)


def test_what_was_written_again_appears_with_the_segment_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(opened(folder), [key("a")], [key("b")])

    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        with pytest.raises(Unavailable):
            opened(folder, 2)
    assert keys_of(folder) == ["a", "b"]
    assert [entry.epoch for entry in read_log(folder)] == [1, 1]
    opened(folder, 3)
    assert keys_of(folder) == ["a", "b"]
    assert [entry.epoch for entry in read_log(folder)] == [1, 3]


# Removal


def headers_of(*segments: tuple[int, int, int, int]) -> list[SegmentHeader]:
    """Headers of (epoch, base, previous epoch, previous end)."""
    return [SegmentHeader(LOG_ID, *segment, 0) for segment in segments]


@pytest.mark.parametrize(
    ("covered", "gone"),
    [
        (0, []),
        (9, []),
        (10, [(1, 0)]),
        (19, [(1, 0)]),
        (20, [(1, 0), (1, 10), (1, 25), (2, 20)]),
        (29, [(1, 0), (1, 10), (1, 25), (2, 20)]),
        (30, [(1, 0), (1, 10), (3, 20), (1, 25), (2, 20)]),
        (10**9, [(1, 0), (1, 10), (3, 20), (1, 25), (2, 20)]),
    ],
)
def test_segments_that_every_snapshot_covers(covered: int, gone: list[tuple[int, int]]) -> None:
    headers = headers_of((1, 0, 0, 0), (1, 10, 0, 0), (1, 25, 0, 0), (2, 20, 1, 20), (3, 20, 1, 20), (4, 30, 3, 30))
    plan = outline(headers, "log")
    assert [(part.header.epoch, part.header.base) for part in plan.parts] == [(1, 0), (1, 10), (3, 20), (4, 30)]
    assert [(header.epoch, header.base) for header in removable(plan, covered)] == gone


@pytest.mark.usefixtures("unsynced")
def test_a_removal_may_be_broken_off_anywhere(folder: Path) -> None:
    stale = opened(folder, 1, segment_bytes=1)
    write(stale, [key(0)], [key(1)], [key(2)])
    writer = opened(folder, 2, segment_bytes=1)
    write(stale, [key("x")], [key("y")])
    write(writer, [key(3)], [key(4)])
    names = names_in(folder)
    for name in removed_names(folder, 100):
        (folder / name).unlink()
        start = recover(folder).start
        assert keys_of(folder, start) == [str(i) for i in range(start, 5)]
    assert names_in(folder) == names[-1:]
    write(writer, [key(5)])
    assert remove_covered(folder, 5) == (names[-1],)
    assert remove_covered(folder, 6) == ()
    assert keys_of(folder) == ["5"]
    assert recover(folder).end == 6


def test_segments_are_gone_for_good_before_the_next_one_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(opened(folder, segment_bytes=1), [key(0)], [key(1)], [key(2)])
    names = names_in(folder)
    left = []
    monkeypatch.setattr(os, "fsync", lambda handle: left.append(names_in(folder)))
    assert list(remove_covered(folder, 3)) == names[:2]
    assert left == [names[1:], names[2:]]


def removed_names(folder: Path, covered: int) -> list[str]:
    headers = [decode_header((folder / name).read_bytes(), name) for name in names_in(folder)]
    return [header.name for header in removable(outline(headers, "log"), covered)]


# Sharing flushes


@dataclass
class Gate:
    """Holds the flushes back until told."""

    faults: Faults
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.faults.before_sync = self.wait

    def wait(self) -> None:
        self.entered.release()
        assert self.allowed.acquire(timeout=WAIT_S)

    async def flush_began(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=WAIT_S)


def finish(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_requests_share_flushes_in_their_order(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        first = group.submit([GIVEN, key(0)])
        await gate.flush_began()
        others = [group.submit([key(i)]) for i in range(1, 50)]
        await asyncio.sleep(0.01)
        assert not first.done()
        gate.allowed.release()
        assert await first == range(2)
        await gate.flush_began()
        late = group.submit([key(50)])
        await asyncio.sleep(0.01)
        assert not any(other.done() for other in others)
        gate.allowed.release()
        assert await asyncio.gather(*others) == [range(i + 1, i + 2) for i in range(1, 50)]
        assert not late.done()
        gate.allowed.release()
        assert await late == range(51, 52)
        await group.close()

    finish(run())
    assert faults.syncs == 3
    assert keys_of(folder) == [str(i) for i in range(51)]


def test_what_is_submitted_in_one_turn_shares_one_flush(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        await asyncio.gather(*(group.submit([key(i)]) for i in range(100)))
        await group.close()

    finish(run())
    assert faults.syncs == 1


def test_the_owner_is_checked_after_the_flush_and_before_the_answer(folder: Path, faults: Faults) -> None:
    def still_holds() -> bool:
        faults.events.append("check")
        return True

    async def run() -> None:
        group = GroupCommit(opened(folder, open_file=faults.open), still_holds)
        for i in range(3):
            await group.submit([key(i)])
            faults.events.append("answer")
        await group.close()

    finish(run())
    assert faults.events == ["write", "sync", "check", "answer"] * 3


def lost() -> bool:
    return False


def unknown() -> bool:
    raise Unavailable("storage is out of reach")


def bug() -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("still_holds", "kind", "told"),
    [(lost, Conflict, "epoch 1 is over"), (unknown, Unavailable, "out of reach"), (bug, Unavailable, "ZeroDivision")],
)
def test_an_owner_who_was_replaced_acknowledges_nothing(
    folder: Path, still_holds: Callable[[], bool], kind: type[StelaeError], told: str
) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), still_holds)
        results = await asyncio.gather(*(group.submit([key(i)]) for i in range(3)), return_exceptions=True)
        for result in results:
            assert type(result) is kind
            assert told in str(result)
        with pytest.raises(kind, match=told):
            group.submit([key(9)])
        assert isinstance(group.failure, kind)
        await group.close()

    finish(run())


def test_a_failed_flush_fails_all_who_wait(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)
        gate.allowed.release()
        await group.submit([key("a")])
        await gate.flush_began()
        faults.sync_error = IO_ERROR
        cancelled = group.submit([key(0)])
        inside = [group.submit([key(i)]) for i in range(3)]
        await gate.flush_began()
        behind = [group.submit([key(i)]) for i in range(3)]
        cancelled.cancel()
        gate.allowed.release()
        results = await asyncio.gather(*inside, *behind, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 6
        assert len({id(result) for result in results}) == 6
        assert cancelled.cancelled()
        faults.sync_error = None
        with pytest.raises(Unavailable, match="Input/output error"):
            group.submit([key("b")])
        await group.close()

    finish(run())
    assert faults.syncs == 2
    assert keys_of(folder) in (["a"], ["a", "0", "0", "1", "2"])


def test_a_record_that_cannot_be_encoded_is_its_senders_alone(folder: Path) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), lambda: True)
        good = group.submit([key("a")])
        with pytest.raises(InvalidRequest):
            group.submit([key("b"), Granted(0, 2, 1)])
        assert await good == range(1)
        assert await group.submit([key("c")]) == range(1, 2)
        await group.close()

    finish(run())
    assert keys_of(folder) == ["a", "c"]


def test_who_is_cancelled_takes_nothing_back(folder: Path, faults: Faults) -> None:
    async def run() -> None:
        gate = Gate(faults)
        group = GroupCommit(opened(folder, open_file=faults.open), lambda: True)

        async def request(name: str) -> range:
            return await group.submit([key(name)])

        cancelled = asyncio.create_task(request("a"))
        other = asyncio.create_task(request("b"))
        await gate.flush_began()
        cancelled.cancel()
        gate.allowed.release()
        assert await other == range(1, 2)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await group.close()

    finish(run())
    assert keys_of(folder) == ["a", "b"]


def test_closing_waits_for_what_was_submitted(folder: Path) -> None:
    async def run() -> None:
        group = GroupCommit(opened(folder), lambda: True)
        futures = [group.submit([key(i)]) for i in range(3)]
        closing = asyncio.create_task(group.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="closed"):
            group.submit([key(9)])
        await closing
        assert [future.result().start for future in futures] == [0, 1, 2]
        with pytest.raises(Unavailable, match="closed"):
            group.submit([key(9)])

    finish(run())


# A process that is killed


def test_a_writer_that_is_killed_again_and_again(folder: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    told: dict[int, str] = {}
    for epoch in range(1, 6):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.stelae.log.doomed_log", str(folder), str(epoch)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        rest, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == -signal.SIGKILL, errors.decode()
        for line in (first + rest).decode().splitlines():
            offset, name = line.split()
            assert int(offset) not in told
            told[int(offset)] = name
        entries: Iterator[Entry] = read_log(folder)
        found = {e.offset: e.record.keys[0].decode() for e in entries if isinstance(e.record, Inserted)}
        assert {offset: found.get(offset) for offset in told} == told
        assert list(found) == list(range(len(found)))
    for epoch in range(1, 6):
        for task in range(4):
            mine = [name for name in found.values() if name.startswith(f"{epoch}-{task}-")]
            assert mine == [f"{epoch}-{task}-{number}" for number in range(len(mine))]


# Parts


def test_parts_of_a_log(folder: Path) -> None:
    """A part a segment; together they are the records of the range, however segments roll and owners change."""
    for epoch in (1, 3):
        writer = opened(folder, epoch, segment_bytes=200)
        for number in range(10):
            write(writer, [key(f"{epoch}-{number}")])
        writer.close()
    everything = list(read_log(folder))
    end = everything[-1].offset + 1
    for first in range(end):
        for until in (first, first + 1, end - 1, end):
            parts = [pickle.loads(pickle.dumps(part)) for part in log_parts(folder, first, until)]
            found = [entry for part in parts for entry in read_part(part)]
            assert found == [entry for entry in everything if first <= entry.offset < until]
            assert all(part.first < part.until for part in parts)
    assert len(log_parts(folder, 0, end)) > 4


def test_parts_that_are_not_there(folder: Path) -> None:
    assert log_parts(folder, 0, 0) == ()
    with pytest.raises(CorruptData, match="are not there"):
        log_parts(folder, 0, 1)
    writer = opened(folder, segment_bytes=100)
    for number in range(6):
        write(writer, [key(number)])
    (beyond,) = log_parts(folder, 5, 7)
    with pytest.raises(CorruptData, match="record 6"):
        list(read_part(beyond))
    remove_covered(folder, 3)
    with pytest.raises(CorruptData, match="from 0 on are not there"):
        log_parts(folder, 0, 5)
    Path(beyond.place).write_bytes(b"")
    with pytest.raises(CorruptData):
        list(read_part(beyond))
    Path(beyond.place).unlink()
    with pytest.raises(Unavailable, match="was removed"):
        list(read_part(beyond))
