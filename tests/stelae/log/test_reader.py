"""Goal: what was acknowledged is read again, in order, whatever crashed; what is damaged is told, and never skipped.

Method: logs of random owners, paused ones that write on included, against a dict; a small log cut off and changed at
every byte; segments that are lacking, or of another log.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.errors import CorruptData, Unavailable
from stelae.log.reader import LogState, log_parts, read_log, read_part, recover
from stelae.log.records import Granted, Inserted, Skipped, encode_record
from stelae.log.segments import (
    RECORD_OVERHEAD_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_header,
    encode_flush,
    encode_header,
    read_records,
)
from stelae.log.writer import LogWriter, remove_covered
from stelae.storage.paths import segment_name
from tests.stelae.log.logs import BATCH, GIVEN, SINGLE, drained, key, keys_of, names_in, opened, small_log, write


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
    assert entries[0].bytes == RECORD_OVERHEAD_BYTES + 24
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
        records, _ = drained(read_records(data, decode_header(data, ""), None, ""))
        counts = max(
            (record.end for record in records if record.offset < counted.get(name, 0)), default=SEGMENT_HEADER_BYTES
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
    records, _ = drained(read_records(data, decode_header(data, ""), None, ""))
    for broken in (1, 2, 3):
        path.write_bytes(data[: records[broken].position] + bytes(40) + data[records[broken].position + 40 :])
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
