"""Where the log of a table is, whether it has one, and which part of it can go."""

from __future__ import annotations

from pathlib import Path

from stelae.errors import InvalidRequest
from stelae.log.reader import newest_epoch
from stelae.log.writer import remove_covered
from stelae.snapshot.warehouse import Table
from stelae.storage.paths import LOG_FOLDER, parse_segment_name
from stelae.storage.storage import Storage


def check_has_folder(table: Table) -> None:
    """InvalidRequest for a table that can't have a log, and so no online writes."""
    if log_folder(table.storage) is None:
        raise InvalidRequest(
            f"the log of table {table.name} needs a local folder",
            place=table.url,
            hint="online writes are for warehouses on a local folder; add rows here with a build: stelae build",
        )


def has_log(table: Table) -> bool:
    """Whether the table ever took online writes."""
    folder = log_folder(table.storage)
    return folder is not None and newest_epoch(folder) > 0


def has_segments(table: Table) -> bool:
    """Whether there is a segment in the folder of the log, by names alone: whether it counts is not looked at."""
    folder = log_folder(table.storage)
    return folder is not None and any(parse_segment_name(file.name) for file in folder.glob("*"))


def log_folder(storage: Storage) -> Path | None:
    """Where the table's log is; None on storage without local folders."""
    return storage.local_path(LOG_FOLDER)


def trim_log(table: Table) -> tuple[str, ...]:
    """Remove the segments of the log that every retained snapshot covers. For the owner. Returns their names."""
    folder = log_folder(table.storage)
    if folder is None:
        return ()
    return remove_covered(folder, min((s.log_offset for s in table.snapshots.retained()), default=0))
