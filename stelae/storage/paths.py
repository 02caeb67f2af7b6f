"""Names of files: every path on storage is made and parsed here.

    <database>.db/<table>/                                            table_folder
        schema/schema-0.json                                          schema_path
        snapshot/snapshot-17.json                                     snapshot_path
        snapshot/floor-12.json                                        floor_path
        auto-increment/claim-000000000012.json                        claim_path
        owner/epoch-000007.json                                       epoch_path
        owner/epoch-000007.lock                                       epoch_lock_path
        [dt=2026-11-20/country=de/]bucket-3/sst-<uuid>.sst            sst_path, in a partition_folder
        log/segment-<epoch>-<base offset>.log                         segment_name, in LOG_FOLDER

All but the first are relative to the table's folder. Paths use `/`, whatever the machine. Each `parse_*` is the exact
inverse of its maker and returns None for any other text, so that foreign files in a folder are simply not ours.
docs/format.md#layout is the contract.

Databases and tables have plain names (`stelae/names.py`). Partition columns and values can be any text and are
percent-encoded as UTF-8: letters, digits, `_`, `-`, `~` and `.` stay, all else becomes `%2F`, and so does a leading
dot. So no folder is ever `.`, `..` or hidden, and only a partition folder holds a bare `=`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from stelae.errors import InvalidRequest
from stelae.names import TableName

SCHEMA_FOLDER = "schema"
SNAPSHOT_FOLDER = "snapshot"
LOG_FOLDER = "log"
CLAIM_FOLDER = "auto-increment"
EPOCH_FOLDER = "owner"
DATABASE_SUFFIX = ".db"
MAX_COMPONENT_BYTES = 255
"""Longest name of one folder: the limit of the usual local file systems."""

PartitionValue = str | int | float | bool
"""A partition value as `stelae/encoding/values.py` prints it for JSON. Never null: it is part of the primary key."""

_NUMBER = r"(0|[1-9][0-9]{0,18})"
_SCHEMA = re.compile(rf"schema/schema-{_NUMBER}\.json")
_SNAPSHOT = re.compile(rf"snapshot/snapshot-{_NUMBER}\.json")
_FLOOR = re.compile(rf"snapshot/floor-{_NUMBER}\.json")
_CLAIM = re.compile(r"auto-increment/claim-([0-9]{12}|[1-9][0-9]{12,18})\.json")
_EPOCH = re.compile(r"owner/epoch-([0-9]{6}|[1-9][0-9]{6,18})\.json")
_EPOCH_LOCK = re.compile(r"owner/epoch-([0-9]{6}|[1-9][0-9]{6,18})\.lock")
_UUID = r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SST = re.compile(rf"(?:(.+)/)?bucket-{_NUMBER}/sst-({_UUID})\.sst")
_UUID_ONLY = re.compile(_UUID)
_SEGMENT = re.compile(r"segment-([0-9]{12})-([0-9]{20})\.log")


class SstPath(NamedTuple):
    """The parts of a sorted file's path."""

    partition_folder: str
    bucket: int
    uuid: str


class SegmentName(NamedTuple):
    """The parts of the name of a log segment."""

    epoch: int
    base: int
    """Offset of its first record."""


def table_folder(name: TableName) -> str:
    """The folder of a table, relative to the warehouse: `shop.db/users`."""
    return f"{name.database}{DATABASE_SUFFIX}/{name.table}"


def parse_table_folder(folder: str) -> TableName | None:
    """The table whose folder this is."""
    database, suffix, table = folder.partition(f"{DATABASE_SUFFIX}/")
    if not suffix:
        return None
    try:
        return TableName(database, table)
    except InvalidRequest:
        return None


def schema_path(schema_id: int) -> str:
    """One version of the table's definition."""
    return f"{SCHEMA_FOLDER}/schema-{_checked_number(schema_id)}.json"


def parse_schema_path(path: str) -> int | None:
    """The schema id in a schema's path."""
    return _number(_SCHEMA, path)


def snapshot_path(snapshot_id: int) -> str:
    """The manifest of a snapshot: the commit."""
    return f"{SNAPSHOT_FOLDER}/snapshot-{_checked_number(snapshot_id)}.json"


def parse_snapshot_path(path: str) -> int | None:
    """The snapshot id in a manifest's path."""
    return _number(_SNAPSHOT, path)


def floor_path(snapshot_id: int) -> str:
    """The mark that snapshots below this id are expired."""
    return f"{SNAPSHOT_FOLDER}/floor-{_checked_number(snapshot_id)}.json"


def parse_floor_path(path: str) -> int | None:
    """The snapshot id in a floor's path."""
    return _number(_FLOOR, path)


def claim_path(number: int) -> str:
    """A claim of a range of ids. Padded, so that a listing is in order."""
    return f"{CLAIM_FOLDER}/claim-{_checked_number(number):012d}.json"


def parse_claim_path(path: str) -> int | None:
    """The number in a claim's path."""
    return _number(_CLAIM, path)


def epoch_path(number: int) -> str:
    """An epoch of ownership. Padded, so that a listing is in order."""
    return f"{EPOCH_FOLDER}/epoch-{_checked_number(number):06d}.json"


def epoch_lock_path(number: int) -> str:
    """Locked as long as the owner by that epoch lives; on local folders."""
    return f"{EPOCH_FOLDER}/epoch-{_checked_number(number):06d}.lock"


def parse_epoch_path(path: str) -> int | None:
    """The number in an epoch's path."""
    return _number(_EPOCH, path)


def parse_epoch_lock_path(path: str) -> int | None:
    """The number in the path of an epoch's lock."""
    return _number(_EPOCH_LOCK, path)


def partition_folder(columns: Sequence[str], values: Sequence[PartitionValue]) -> str:
    """The folder of a partition, Hive style: `dt=2026-11-20/country=de`. Empty for a table without partitions."""
    return "/".join(
        _component(f"{_encode(column)}={quote(partition_text(value), safe='')}", column)
        for column, value in zip(columns, values, strict=True)
    )


def parse_partition_folder(folder: str) -> tuple[tuple[str, str], ...] | None:
    """Column and text of each partition value, in the order of the folders."""
    if not folder:
        return ()
    parts = []
    for component in folder.split("/"):
        name, equals, text = component.partition("=")
        column, value = _decode(name), _unquoted(text)
        if not equals or column is None or value is None or quote(value, safe="") != text:
            return None
        parts.append((column, value))
    return tuple(parts)


def partition_text(value: PartitionValue) -> str:
    """A partition value as text. The values of one column are of one type, so two values never share a text."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            _check_encodable(value)
            return value
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)  # numpy's own repr says np.float64(...)


def bucket_folder(partition: str, bucket: int) -> str:
    """The folder of a bucket; `partition` is a `partition_folder`."""
    return f"{partition}/bucket-{_checked_number(bucket)}" if partition else f"bucket-{_checked_number(bucket)}"


def sst_path(partition: str, bucket: int, uuid: str) -> str:
    """A sorted file. A new uuid a file, also for a retried task, so no name is ever written twice."""
    if not _UUID_ONLY.fullmatch(uuid):
        raise InvalidRequest(f"expected a uuid in lower-case hexadecimal digits, found {uuid!r}")
    return f"{bucket_folder(partition, bucket)}/sst-{uuid}.sst"


def parse_sst_path(path: str) -> SstPath | None:
    """The parts of a sorted file's path."""
    match = _SST.fullmatch(path)
    if match is None:
        return None
    partition = match[1] or ""
    return None if parse_partition_folder(partition) is None else SstPath(partition, int(match[2]), match[3])


def segment_name(epoch: int, base: int) -> str:
    """A segment of the log: names sort by epoch, then by the offset of the first record."""
    if not (0 < epoch < 10**12 and 0 <= base < 1 << 63):
        raise InvalidRequest(f"epoch {epoch} and offset {base} do not fit the name of a segment")
    return f"segment-{epoch:012d}-{base:020d}.log"


def parse_segment_name(name: str) -> SegmentName | None:
    """Epoch and base offset of a segment."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    epoch, base = int(match[1]), int(match[2])
    return SegmentName(epoch, base) if epoch > 0 and base < 1 << 63 else None


def _encode(name: str) -> str:
    """A name as one path component. `quote` keeps letters, digits and `_.-~`."""
    _check_encodable(name)
    if not name:
        raise InvalidRequest("a name is empty")
    text = quote(name, safe="")
    return "%2E" + text[1:] if text.startswith(".") else text


def _decode(component: str) -> str | None:
    name = _unquoted(component)
    return name if name and _encode(name) == component else None


def _unquoted(text: str) -> str | None:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequest(f"not valid Unicode: {text!r} ({exc.reason})") from exc


def _component(component: str, place: str) -> str:
    if len(component) > MAX_COMPONENT_BYTES:
        raise InvalidRequest(
            f"a folder name of {len(component)} bytes is too long: {component[:40]}...",
            place=place,
            hint=f"the limit is {MAX_COMPONENT_BYTES} bytes; each byte outside A-Z a-z 0-9 _ - ~ . counts three",
        )
    return component


def _checked_number(number: int) -> int:
    if not 0 <= number < 10**19:
        raise InvalidRequest(f"expected a number from 0 in a file name, found {number}")
    return number


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return None if match is None else int(match[1])
