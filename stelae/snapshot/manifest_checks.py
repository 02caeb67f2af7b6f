"""What every snapshot keeps: one function an invariant. All run before a manifest is written, and after it is read."""

from __future__ import annotations

from typing import get_args

from stelae.errors import CorruptData, InvalidRequest
from stelae.snapshot.manifest import MANIFEST_FORMAT, Snapshot, SnapshotKind, Totals
from stelae.storage.checksum import is_checksum
from stelae.storage.paths import parse_partition_folder, parse_sst_path, partition_text
from stelae.storage.sealed_json import MAX_COUNT


def check_snapshot(snapshot: Snapshot, place: str) -> None:
    """All invariants that a snapshot keeps by itself."""
    check_format(snapshot, place)
    check_snapshot_ids(snapshot, place)
    check_partitions_are_distinct(snapshot, place)
    check_partition_folders(snapshot, place)
    check_every_bucket_is_there(snapshot, place)
    check_counts(snapshot, place)
    check_keys(snapshot, place)
    check_paths(snapshot, place)
    check_checksums(snapshot, place)


def check_format(snapshot: Snapshot, place: str) -> None:
    """The format is this version's, and the texts that name things name something."""
    if snapshot.format != MANIFEST_FORMAT:
        raise CorruptData(f"manifest format {snapshot.format} is not known", place=place)
    if snapshot.kind not in get_args(SnapshotKind):
        raise CorruptData(f"unknown kind of snapshot {snapshot.kind!r}", place=place)
    if not snapshot.table or not snapshot.build_id:
        raise CorruptData("the name of the table or of the build is empty", place=place)


def check_snapshot_ids(snapshot: Snapshot, place: str) -> None:
    """Ids count from 1 without gaps; only the first snapshot has no parent, and it goes back to nothing."""
    if snapshot.id < 1 or snapshot.id > MAX_COUNT:
        raise CorruptData(f"snapshot id {snapshot.id}; ids start at 1", place=place)
    expected = snapshot.id - 1 or None
    if snapshot.parent != expected:
        raise CorruptData(f"snapshot {snapshot.id} names parent {snapshot.parent}, expected {expected}", place=place)
    if snapshot.kind == "rollback" and snapshot.parent is None:
        raise CorruptData("the first snapshot says that it is a rollback", place=place)


def check_partitions_are_distinct(snapshot: Snapshot, place: str) -> None:
    """No partition twice; one without values stands alone."""
    seen: set[str] = set()
    for partition in snapshot.partitions:
        if partition.folder in seen:
            raise CorruptData(f"partition {partition.folder or '()'} is there twice", place=place)
        seen.add(partition.folder)
    if "" in seen and len(seen) > 1:
        raise CorruptData("a partition without values beside others", place=place)


def check_partition_folders(snapshot: Snapshot, place: str) -> None:
    """Folders say the values of their partitions, and all partitions have the same columns."""
    columns: set[tuple[str, ...]] = set()
    for partition in snapshot.partitions:
        parts = parse_partition_folder(partition.folder)
        if parts is None:
            raise CorruptData(f"{partition.folder!r} is not the folder of a partition", place=place)
        try:
            texts = tuple(map(partition_text, partition.values))
        except InvalidRequest as exc:
            raise CorruptData(f"partition {partition.folder}: {exc.message}", place=place) from exc
        if texts != tuple(text for _, text in parts):
            raise CorruptData(f"folder {partition.folder!r} does not say the values {partition.values!r}", place=place)
        columns.add(tuple(column for column, _ in parts))
    if len(columns) > 1:
        raise CorruptData(f"partitions differ in their columns: {sorted(columns)}", place=place)


def check_every_bucket_is_there(snapshot: Snapshot, place: str) -> None:
    """Every partition has at least one bucket, and all of them, in order."""
    for partition in snapshot.partitions:
        found = [bucket.bucket for bucket in partition.buckets]
        if partition.bucket_count < 1 or found != list(range(partition.bucket_count)):
            raise CorruptData(
                f"partition {partition.folder or '()'} of {partition.bucket_count} buckets lists buckets {found}",
                place=place,
            )


def check_counts(snapshot: Snapshot, place: str) -> None:
    """Counts are not negative, files not empty, and no more rows are hidden than there are."""
    if snapshot.schema_id < 0 or snapshot.created_ms < 0:
        raise CorruptData("the schema id or the time is negative", place=place)
    for partition in snapshot.partitions:
        for bucket in partition.buckets:
            if not 0 <= bucket.log_offset <= MAX_COUNT:
                raise CorruptData(f"log offset {bucket.log_offset} of bucket {bucket.bucket}", place=place)
    for file in snapshot.files:
        if file.bytes < 1 or file.rows < 1:
            raise CorruptData(f"{file.path} has {file.bytes} bytes and {file.rows} rows", place=place)
        if not 0 <= file.hidden_rows <= file.rows:
            raise CorruptData(f"{file.path} hides {file.hidden_rows} of {file.rows} rows", place=place)


def check_keys(snapshot: Snapshot, place: str) -> None:
    """The first key is not above the last; they are equal exactly in a file of one row."""
    for file in snapshot.files:
        in_order = file.first_key < file.last_key if file.rows > 1 else file.first_key == file.last_key
        if not in_order:
            raise CorruptData(
                f"{file.path}: keys {file.first_key.hex()} to {file.last_key.hex()} in {file.rows} rows", place=place
            )


def check_paths(snapshot: Snapshot, place: str) -> None:
    """Every file lies in the folder of its own partition and bucket, and no file is named twice."""
    seen: set[str] = set()
    for partition in snapshot.partitions:
        for bucket in partition.buckets:
            for file in bucket.files:
                parts = parse_sst_path(file.path)
                if parts is None or (parts.partition_folder, parts.bucket) != (partition.folder, bucket.bucket):
                    raise CorruptData(
                        f"{file.path!r} is not in bucket {bucket.bucket} of partition {partition.folder or '()'}",
                        place=place,
                    )
                if file.path in seen:
                    raise CorruptData(f"{file.path} is named twice", place=place)
                seen.add(file.path)


def check_checksums(snapshot: Snapshot, place: str) -> None:
    """Every file has a checksum of a kind that readers can verify."""
    for file in snapshot.files:
        if not is_checksum(file.checksum):
            raise CorruptData(f"{file.path} has checksum {file.checksum!r}", place=place)


def check_totals(snapshot: Snapshot, stored: Totals, place: str) -> None:
    """The stored totals are the sums over the files."""
    if stored != snapshot.totals:
        raise CorruptData(f"totals say {stored}, the files add up to {snapshot.totals}", place=place)
