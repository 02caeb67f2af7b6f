"""Snapshot manifest, format 1: which files make up a table at one moment.

    Snapshot                     one commit: snapshot/snapshot-<id>.json
    └── PartitionFiles           a partition and its bucket count (a table without partitions has exactly one, without
    values)
        └── BucketFiles          every bucket, in order, also those without rows
            └── DataFile         a sorted file; a bucket's files are sorted runs, oldest first: of a key in two files
            the last wins

Values in, bytes out; `stelae/snapshot/snapshots.py` stores them. docs/format.md#snapshot-manifest is the contract. The
format is closed: a reader refuses fields that it does not know, and every change of the format is a new format number.
The file is sealed (`stelae/storage/sealed_json.py`), then read strictly, then checked: the functions `check_*` hold the
invariants, one each, and run before a manifest is written and after it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, cast, get_args

from stelae.encoding import KeyBytes
from stelae.errors import CorruptData, InvalidRequest
from stelae.storage.checksum import is_checksum
from stelae.storage.paths import PartitionValue, parse_partition_folder, parse_sst_path, partition_text
from stelae.storage.sealed_json import MAX_COUNT, JsonObject, open_sealed_object, seal_json

MANIFEST_FORMAT = 1  # On disk. Never renumber.

SnapshotKind = Literal["merge", "overwrite", "rollback", "fence"]  # On disk. Never rename.


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over files. Derived from the files; stored for people, and checked against them."""

    rows: int
    """Stored rows. A key that is in several sorted runs counts once for each."""
    hidden_rows: int
    """Those of them that are tombstones."""
    files: int
    bytes: int

    @property
    def visible_rows(self) -> int:
        """Rows without the tombstones: exact where each bucket is one sorted run, else too many."""
        return self.rows - self.hidden_rows


@dataclass(frozen=True, slots=True)
class DataFile:
    """A sorted file. Written once by one builder task, never changed, named by any number of snapshots."""

    path: str
    """`[<partition folder>/]bucket-<bucket>/sst-<uuid>.sst` of its own bucket, relative to the table's folder."""
    bytes: int
    """Size of the file, at least 1."""
    checksum: str
    """Of the whole file, `xxh3-128:` and 32 hexadecimal digits. Readers verify it while they copy the file."""
    rows: int
    """Rows in the file, hidden ones included; at least 1: a bucket without rows has no file."""
    hidden_rows: int
    """Tombstones among them: kept for later merges, never shown."""
    first_key: KeyBytes
    """Smallest key. In JSON hexadecimal. A reader may use both keys to skip the file, or ignore them."""
    last_key: KeyBytes
    """Largest key. In JSON hexadecimal."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The files of one bucket."""

    bucket: int
    """From 0; the position in `PartitionFiles.buckets`."""
    files: tuple[DataFile, ...]
    """Sorted runs, oldest first; each file is a run of its own. Empty when the bucket has no rows."""
    log_offset: int = 0
    """Records of the table's log below this offset are in the files, as far as they are of this bucket. 0 as long as a
    table takes no online writes.
    """

    @property
    def totals(self) -> Totals:
        return totals_of(self.files)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition."""

    values: tuple[PartitionValue, ...]
    """Values of the partition columns, in their order, as `stelae/encoding/values.py` prints them for JSON."""
    bucket_count: int
    """What the bucket hash is taken modulo of, in this partition. Readers take it from here, never from an option."""
    buckets: tuple[BucketFiles, ...]
    """All of them: `bucket_count` entries, number 0 first."""
    folder: str = ""
    """`paths.partition_folder` of columns and values; '' without partitions."""

    @property
    def files(self) -> Iterator[DataFile]:
        return (file for bucket in self.buckets for file in bucket.files)

    @property
    def totals(self) -> Totals:
        return totals_of(self.files)


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table. Written by the builder's driver (or by `rollback`), read by everybody."""

    table: str
    """`database.table` at the time of writing. For people; a reader goes by the folder."""
    id: int
    """From 1, one more than the parent's. The number in the file's name."""
    parent: int | None
    """The snapshot before this one; null for the first."""
    schema_id: int
    """The schema that this snapshot was built with. Rows of older files may name older ones."""
    build_id: str
    """Names the attempt that wrote it. A writer that lost the answer to its commit knows its own manifest by it."""
    kind: SnapshotKind
    """merge: on top of the parent's rows; overwrite: instead of them; rollback: the files of an older snapshot; fence:
    those of the parent, put by a new owner of the table to take the number from a build that may still come.
    """
    created_ms: int
    """When it was made, by the writer's clock: milliseconds since 1970-01-01 UTC. For people; orders nothing."""
    partitions: tuple[PartitionFiles, ...]
    """In any order, each once. A partition that is not here has no rows."""
    versions: Mapping[str, str]
    """Software that wrote the files, `{"stelae": "0.1.0", "spark": "4.3.0"}`. For people; a reader may ignore it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Free text by name. A reader may ignore it. `rollback.to`: the snapshot that a rollback went back to."""
    format: int = MANIFEST_FORMAT

    @cached_property
    def totals(self) -> Totals:
        return totals_of(self.files)

    @property
    def files(self) -> Iterator[DataFile]:
        """All files, partition by partition, bucket by bucket."""
        return (file for partition in self.partitions for file in partition.files)

    @property
    def log_offset(self) -> int:
        """Records of the table's log below this offset are in the files: of all buckets, the least that one says."""
        return min((b.log_offset for partition in self.partitions for b in partition.buckets), default=0)

    @cached_property
    def by_values(self) -> Mapping[tuple[PartitionValue, ...], PartitionFiles]:
        """Partitions by the values of the partition columns."""
        return {partition.values: partition for partition in self.partitions}


def totals_of(files: Iterable[DataFile]) -> Totals:
    """The sums over some files."""
    rows = hidden_rows = count = size = 0
    for file in files:
        rows += file.rows
        hidden_rows += file.hidden_rows
        count += 1
        size += file.bytes
    return Totals(rows, hidden_rows, count, size)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the manifest. CorruptData for a snapshot that `decode_snapshot` would not give back as it is."""
    place = f"snapshot {snapshot.id} of {snapshot.table}, before it is written"
    check_snapshot(snapshot, place)
    data = seal_json(
        {
            "format": snapshot.format,
            "table": snapshot.table,
            "id": snapshot.id,
            "parent": snapshot.parent,
            "schema_id": snapshot.schema_id,
            "build_id": snapshot.build_id,
            "kind": snapshot.kind,
            "created_ms": snapshot.created_ms,
            "versions": dict(snapshot.versions),
            "properties": dict(snapshot.properties),
            "totals": _encode_totals(snapshot.totals),
            "partitions": [_encode_partition(partition) for partition in snapshot.partitions],
        }
    )
    if decode_snapshot(data, place) != snapshot:
        raise CorruptData(
            "the manifest would not read back as it is: a value has another type than declared", place=place
        )
    return data


def decode_snapshot(data: bytes, place: str) -> Snapshot:
    """The snapshot in the bytes of a manifest. `place` names the file in errors; anything off is CorruptData."""
    root = open_sealed_object(data, _SNAPSHOT_FIELDS, MANIFEST_FORMAT, place)
    stored_totals = _decode_totals(root.child("totals", _TOTALS_FIELDS))
    snapshot = Snapshot(
        format=root.count("format"),
        table=root.text("table"),
        id=root.count("id"),
        parent=root.count_or_null("parent"),
        schema_id=root.count("schema_id"),
        build_id=root.text("build_id"),
        kind=cast("SnapshotKind", root.text("kind")),
        created_ms=root.count("created_ms"),
        versions=root.texts("versions"),
        properties=root.texts("properties"),
        partitions=tuple(_decode_partition(part) for part in root.children("partitions", _PARTITION_FIELDS)),
    )
    check_snapshot(snapshot, place)
    check_totals(snapshot, stored_totals, place)
    return snapshot


# Invariants


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
    """Folders say the values that stand beside them, and all partitions have the same columns."""
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


# JSON


def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(part.name for part in fields(kind))


_SNAPSHOT_FIELDS = _names(Snapshot) | {"totals"}
_TOTALS_FIELDS = _names(Totals)
_PARTITION_FIELDS = _names(PartitionFiles)
_BUCKET_FIELDS = _names(BucketFiles)
_FILE_FIELDS = _names(DataFile)


def _encode_totals(totals: Totals) -> dict[str, object]:
    return {
        "rows": totals.rows,
        "hidden_rows": totals.hidden_rows,
        "files": totals.files,
        "bytes": totals.bytes,
    }


def _decode_totals(reader: JsonObject) -> Totals:
    return Totals(
        rows=reader.count("rows"),
        hidden_rows=reader.count("hidden_rows"),
        files=reader.count("files"),
        bytes=reader.count("bytes"),
    )


def _encode_partition(partition: PartitionFiles) -> dict[str, object]:
    return {
        "values": list(partition.values),
        "folder": partition.folder,
        "bucket_count": partition.bucket_count,
        "buckets": [
            {
                "bucket": bucket.bucket,
                "log_offset": bucket.log_offset,
                "files": [_encode_file(file) for file in bucket.files],
            }
            for bucket in partition.buckets
        ],
    }


def _decode_partition(reader: JsonObject) -> PartitionFiles:
    return PartitionFiles(
        values=reader.scalars("values"),
        folder=reader.text("folder"),
        bucket_count=reader.count("bucket_count"),
        buckets=tuple(
            BucketFiles(
                bucket=bucket.count("bucket"),
                log_offset=bucket.count("log_offset"),
                files=tuple(_decode_file(file) for file in bucket.children("files", _FILE_FIELDS)),
            )
            for bucket in reader.children("buckets", _BUCKET_FIELDS)
        ),
    )


def _encode_file(file: DataFile) -> dict[str, object]:
    return {
        "path": file.path,
        "bytes": file.bytes,
        "checksum": file.checksum,
        "rows": file.rows,
        "hidden_rows": file.hidden_rows,
        "first_key": file.first_key.hex(),
        "last_key": file.last_key.hex(),
    }


def _decode_file(reader: JsonObject) -> DataFile:
    return DataFile(
        path=reader.text("path"),
        bytes=reader.count("bytes"),
        checksum=reader.text("checksum"),
        rows=reader.count("rows"),
        hidden_rows=reader.count("hidden_rows"),
        first_key=reader.hex("first_key"),
        last_key=reader.hex("last_key"),
    )
