"""The log: what records cost beside the write and fsync that nobody gets around.

    python -m benchmarks.bench_log [--quick]

Peers: a plain file of the same bytes, written and fdatasync'ed in as many pieces, for batches piece by piece in turn
with ours (opening the first file counts for neither); and for codecs, the plain Python loop (struct, slices) that does
the same. Single keys are requests of one key each from 16 tasks that share flushes, against as many in a row.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import Ratio, in_turn, median, nanoseconds, quick_mode, row_cost, show
from stelae.log.group_commit import GroupCommit
from stelae.log.reader import LogState, read_log, recover
from stelae.log.records import Inserted, decode_record, encode_record
from stelae.log.segments import encode_flush
from stelae.log.writer import LogWriter

KEYS = 1000
"""In a batch."""
TASKS = 16


def batch(number: int, keys: int = KEYS) -> Inserted:
    """New keys of a dictionary, each with a row of an id."""
    first = number * keys
    return Inserted(
        schema_id=0,
        partition=(),
        bucket=number % 8,
        keys=[b"package-name-%08d" % (i * 7919 % 10**8) for i in range(first, first + keys)],
        rows=[b"\0\0\0\0" + i.to_bytes(8, "little") for i in range(first, first + keys)],
        asked=keys + keys // 3,
    )


def loop_encode(record: Inserted) -> bytes:
    head = struct.pack("<4I", record.schema_id, record.bucket, record.asked, len(record.keys))
    pack = struct.Struct("<II").pack
    return head + b"".join(
        pack(len(key), len(row)) + key + row for key, row in zip(record.keys, record.rows, strict=True)
    )


def loop_decode(data: bytes) -> tuple[list[bytes], list[bytes]]:
    unpack = struct.Struct("<II").unpack_from
    keys, rows, at = [], [], 16
    while at < len(data):
        key_bytes, row_bytes = unpack(data, at)
        middle = at + 8 + key_bytes
        keys.append(data[at + 8 : middle])
        rows.append(data[middle : middle + row_bytes])
        at = middle + row_bytes
    return keys, rows


def measure_codecs() -> None:
    record = batch(1)
    payload = encode_record(record)
    plain = loop_encode(record)
    assert decode_record(payload, "") == record
    assert loop_decode(plain) == (record.keys, record.rows)
    encoding = nanoseconds(KEYS, lambda: loop_encode(record), 50)
    decoding = nanoseconds(KEYS, lambda: loop_decode(plain), 50)
    print(f"a batch of {KEYS:,} keys, {len(payload.data):,} bytes; per key:")
    row_cost("encode", nanoseconds(KEYS, lambda: encode_record(record), 50), encoding, "packing loop")
    row_cost("frame", nanoseconds(KEYS, lambda: encode_flush([payload], 1, 2), 50), encoding, "packing loop")
    row_cost("decode", nanoseconds(KEYS, lambda: decode_record(payload, ""), 50), decoding, "slicing loop")


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-log-", dir="."))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def plain_seconds(pieces: list[bytes]) -> float:
    """Of a file that is written and made durable piece by piece, on the disk of the working folder."""
    with scratch() as folder, (folder / "plain").open("wb", buffering=0) as file:
        os.fsync(file.fileno())
        started = time.perf_counter()
        for piece in pieces:
            file.write(piece)
            os.fdatasync(file.fileno())
        return time.perf_counter() - started


def batch_seconds(records: list[Inserted], pieces: list[bytes]) -> tuple[float, float]:
    """Of one batch, encoded and made durable in the log, and of its bytes in a plain file: medians, in turn."""
    ours, peer = [], []
    with scratch() as folder, (folder / "plain").open("wb", buffering=0) as file:
        writer = LogWriter(folder / "log", 1, 0, LogState())

        def write_ours(i: int) -> None:
            started = time.perf_counter()
            writer.append([records[i]])
            writer.flush()
            ours.append(time.perf_counter() - started)

        def write_plain(i: int) -> None:
            started = time.perf_counter()
            file.write(pieces[i])
            os.fdatasync(file.fileno())
            peer.append(time.perf_counter() - started)

        for i in range(len(records)):
            # Who comes second finds the journal of the file system warm.
            for write in (write_ours, write_plain) if i % 2 else (write_plain, write_ours):
                write(i)
        writer.close()
    return median(ours), median(peer)


def write_log(folder: Path, records: list[Inserted]) -> None:
    writer = LogWriter(folder / "log", 1, 0, LogState())
    for record in records:
        writer.append([record])
    writer.flush()
    writer.close()


def shared_seconds(records: list[Inserted]) -> float:
    """The same records from several tasks at a time."""

    async def run(folder: Path) -> float:
        group = GroupCommit(LogWriter(folder / "log", 1, 0, LogState()), lambda: True)
        left = iter(records)

        async def client() -> None:
            for record in left:
                await group.submit([record])

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(TASKS)))
        seconds = time.perf_counter() - started
        await group.close()
        return seconds

    with scratch() as folder:
        return asyncio.run(run(folder))


def main() -> None:
    quick = quick_mode(__doc__)
    measure_codecs()
    batches = [batch(i) for i in range(30 if quick else 200)]
    singles = [batch(i, 1) for i in range(200 if quick else 2000)]
    pieces = [encode_flush([encode_record(record)], i, 1) for i, record in enumerate(batches)]
    small = [encode_flush([encode_record(record)], i, 1) for i, record in enumerate(singles)]
    rounds = 3 if quick else 5
    ours, peer = batch_seconds(batches, pieces)
    seconds = {
        name: median(values)
        for name, values in in_turn(
            rounds,
            {
                "log, shared": lambda: shared_seconds(singles),
                "plain, singles": lambda: plain_seconds(small),
            },
        ).items()
    }
    with scratch() as folder:
        write_log(folder, batches)
        recovering = nanoseconds(len(batches) * KEYS, lambda: recover(folder / "log"))
        reading = nanoseconds(len(batches) * KEYS, lambda: list(read_log(folder / "log")))
        segments = [path.read_bytes for path in (folder / "log").iterdir()]
        plain = nanoseconds(len(batches) * KEYS, lambda: [read() for read in segments])
    show(
        f"{len(batches)} batches of {KEYS:,} keys, {len(singles):,} single keys, medians of {rounds} rounds",
        [
            Ratio(
                "batches: log / write + fdatasync",
                ours * 1e3, peer * 1e3, "ms a batch", "<= 1.2",
            ),
            Ratio(
                f"single keys: {TASKS} tasks / fsyncs in a row",
                len(singles) / seconds["log, shared"], len(singles) / seconds["plain, singles"], "keys/s", ">= 5",
            ),
            Ratio("recover / read the files", recovering, plain, "ns a key", ""),
            Ratio("read all records / read the files", reading, plain, "ns a key", ""),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
