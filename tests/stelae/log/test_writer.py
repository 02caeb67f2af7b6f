"""Goal: a flush is durable as a whole or the writer stops; the next owner finds and keeps what was acknowledged.

Method: files that fail on purpose; removals broken off anywhere; a writer process that is killed again and again.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.errors import Conflict, CorruptData, InvalidRequest, Unavailable
from stelae.log.counted_segments import outline, removable
from stelae.log.reader import Entry, read_log, recover
from stelae.log.records import Inserted
from stelae.log.segments import SEGMENT_HEADER_BYTES, decode_header, read_records
from stelae.log.writer import LogWriter, remove_covered
from tests.stelae.log.logs import GIVEN, IO_ERROR, NO_SPACE, Faults, drained, key, keys_of, names_in, opened, write
from tests.waiting import WAIT_S

ROOT = Path(__file__).parents[3]


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
    records, _ = drained(read_records(former.path.read_bytes(), decode_header(former.path.read_bytes(), ""), None, ""))
    assert records[-1].end == size
    os.truncate(former.path, records[1].position)
    assert [entry.record for entry in read_log(folder)] == [key("a"), GIVEN, *map(key, "bcd")]
    assert [(entry.offset, entry.epoch) for entry in read_log(folder)] == [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2)]
    assert recover(folder).claim == GIVEN
    os.truncate(former.path, records[1].position - 1)
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
