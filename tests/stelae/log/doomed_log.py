"""A writer of a log that is going to be killed: `python -m tests.stelae.log.doomed_log FOLDER EPOCH`.

Several tasks share its flushes. Prints, for every record that may be acknowledged, its offset and its key; a line is
written by one system call, so that what was printed was printed whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from stelae.log.group_commit import GroupCommit
from stelae.log.reader import recover
from stelae.log.records import Inserted
from stelae.log.writer import LogWriter

TASKS = 4


async def write(folder: Path, epoch: int) -> None:
    state = recover(folder)
    group = GroupCommit(LogWriter(folder, epoch, state.end, state, segment_bytes=4096), lambda: True)

    async def insert(task: int) -> None:
        for number in count():
            key = b"%d-%d-%d" % (epoch, task, number)
            record = Inserted(0, (), task, [key] * (1 + number % 3), [b"r" * (number % 50)] * (1 + number % 3), 3)
            [offset] = await group.submit([record])
            os.write(1, b"%d %s\n" % (offset, key))

    await asyncio.gather(*(insert(task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
