"""Rows by prefix, page by page and step by step, so that a caller can do other things in between.

    prefix ──► partitions that it allows ──► buckets that it allows ──► one sorted scan ──► pages

    PrefixScan      the rows of one prefix, projected                      answers in JSON
    PrefixesScan    the rows of many prefixes, one after the other         answers in Arrow
    page token      after which row a page goes on: partition, key bytes and, of many prefixes, which one

Rows come partition by partition, in the order of the partitions' folders, and in key order within one. A prefix with
all bucket-key columns asks one bucket, another one merges all buckets of the partition.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, cast

import orjson
import pyarrow as pa

from stelae.encoding.key_batch import KeyValues
from stelae.encoding.keys import prefix_end
from stelae.errors import InvalidRequest
from stelae.read.overlay import FLAGS, HIDDEN_FLAGS, AnyPartition, OverlaidTablet
from stelae.read.projection import JsonRow, Projection
from stelae.read.table_reader import TableReader
from stelae.rocksdb.tablet import Tablet

Partitions: TypeAlias = Mapping[KeyValues, AnyPartition]
"""By partition values."""
StoredRow: TypeAlias = tuple[AnyPartition, bytes, bytes]
"""Partition, key bytes, row bytes."""
PrefixRow: TypeAlias = tuple[int, AnyPartition, bytes, bytes]
"""Number of the prefix, partition, key bytes, row bytes."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of a prefix lookup."""

    rows: list[JsonRow]
    next_page_token: str | None
    """Asks for the rows after these; None when there are no more."""


class PrefixScan:
    """One page of the rows of a prefix, step by step."""

    def __init__(
        self,
        table: TableReader,
        partitions: Partitions,
        prefix: Mapping[str, Any],
        projection: Projection,
        limit: int,
        page_token: str | None = None,
    ) -> None:
        """`prefix` comes from `TableReader.prefix_from_json`; `limit`: rows of the page, at most. InvalidRequest for a
        token of another prefix.
        """
        check_limit(limit)
        folder, key, _ = decode_token(page_token)
        self.done = False
        self.next_page_token: str | None = None
        """Set when the page is done and more rows follow."""
        self._stored = scan_prefix(table, partitions, prefix, folder, key)
        self._table = table
        self._projection = projection
        self._left = limit
        self._last: tuple[str, bytes] = ("", b"")

    def step(self, budget: int) -> list[JsonRow]:
        """The next rows of the page, after a look at `budget` stored rows at most (hidden ones count)."""
        table, row_of, decode = self._table, self._projection.row, self._table.keys.decode
        rows: list[JsonRow] = []
        for partition, key_bytes, row in islice(self._stored, budget):
            answer = row_of(table.whole_key(partition.values, decode(key_bytes)), row)
            if answer is None:
                budget -= 1
                continue
            if not self._left:
                self.done = True
                self.next_page_token = encode_token(*self._last)
                return rows
            rows.append(answer)
            self._left -= 1
            self._last = partition.folder, key_bytes
        self.done = len(rows) < budget
        return rows


class PrefixesScan:
    """One page of the rows of many prefixes, one prefix after the other, step by step."""

    def __init__(
        self,
        table: TableReader,
        partitions: Partitions,
        prefixes: Sequence[Mapping[str, Any]],
        limit: int,
        page_token: str | None = None,
    ) -> None:
        check_limit(limit)
        folder, key, number = decode_token(page_token)
        if number >= len(prefixes) and key is not None:
            raise InvalidRequest(
                "the page token is of other prefixes", place="page_token", hint="send the same body with it"
            )
        self.done = False
        self.next_page_token: str | None = None
        """Set when the page is done and more rows follow."""
        self._stored = _rows_of_prefixes(table, partitions, prefixes, folder, key, number)
        self._left = limit
        self._last: PrefixRow | None = None

    def step(self, budget: int) -> list[PrefixRow]:
        """The next rows of the page, after a look at `budget` stored rows at most (hidden ones count)."""
        looked_at = list(islice(self._stored, budget))
        self.done = len(looked_at) < budget
        rows = [found for found in looked_at if found[3][FLAGS] != HIDDEN_FLAGS]
        if len(rows) > self._left:
            rows = rows[: self._left]
            number, partition, key, _ = rows[-1] if rows else cast("PrefixRow", self._last)
            self.done = True
            self.next_page_token = encode_token(partition.folder, key, number)
        self._left -= len(rows)
        self._last = rows[-1] if rows else self._last
        return rows


def structs_of(
    table: TableReader, found: Sequence[PrefixRow], projection: Projection
) -> tuple[list[int], pa.StructArray]:
    """Of the rows of a PrefixesScan: the numbers of their prefixes, and the selected columns."""
    schema, layout = table.schema, table.layout
    names = [column.name for column in schema.key_columns]
    arrays = layout.keys.decode_batch(pa.array([key for _, _, key, _ in found], pa.binary()))
    if layout.partitions:
        encode = layout.partitions.encode
        known = {partition.folder: encode(partition.values) for _, partition, _, _ in found}
        values = pa.array([known[partition.folder] for _, partition, _, _ in found], pa.binary())
        arrays += layout.partitions.decode_batch(values)
        names += schema.partition_keys
    by_name = dict(zip(names, arrays, strict=True))
    rows = pa.array([row for _, _, _, row in found], pa.binary())
    structs = projection.structs([by_name[name] for name in schema.primary_key], rows)
    return [number for number, _, _, _ in found], structs


def check_limit(limit: int) -> None:
    """A page has at least one row."""
    if limit < 1:
        raise InvalidRequest(f"limit must be at least 1, not {limit}", place="limit")


def scan_prefix(
    table: TableReader, partitions: Partitions, prefix: Mapping[str, Any], first_folder: str, after: bytes | None
) -> Iterator[StoredRow]:
    """Stored rows of the prefix, hidden ones too, from the partition with the folder `first_folder` on; of that one,
    those behind the key `after`.
    """
    names = [column.name for column in table.schema.key_columns]
    given = [prefix[name] for name in names if name in prefix]
    lower = table.keys.encode_prefix(given)
    upper = lower + b"\0" if len(given) == len(names) else prefix_end(lower)
    if after is not None and not (lower <= after and (upper is None or after < upper)):
        raise InvalidRequest("the page token is of another prefix", place="page_token", hint="start without one")
    for partition in _matching(table, partitions, prefix):
        if partition.folder < first_folder:
            continue
        resumes = after is not None and partition.folder == first_folder
        start = after + b"\0" if resumes and after is not None else lower
        for key, row in _scan(table, partition, prefix, start, upper):
            yield partition, key, row


def _rows_of_prefixes(
    table: TableReader,
    partitions: Partitions,
    prefixes: Sequence[Mapping[str, Any]],
    folder: str,
    after: bytes | None,
    first: int,
) -> Iterator[PrefixRow]:
    for number in range(first, len(prefixes)):
        resumes = number == first and after is not None
        rows = scan_prefix(table, partitions, prefixes[number], folder if resumes else "", after if resumes else None)
        for partition, key, row in rows:
            yield number, partition, key, row


def _matching(table: TableReader, partitions: Partitions, prefix: Mapping[str, Any]) -> list[AnyPartition]:
    """Partitions that the prefix allows, in the order of their folders."""
    names = table.schema.partition_keys
    if all(name in prefix for name in names):
        found = partitions.get(tuple(prefix[name] for name in names))
        return [found] if found else []
    return sorted(
        (
            partition
            for partition in partitions.values()
            # Tuples: unlike ==, they take the one NaN of the codecs for equal to itself.
            if partition.values == tuple(map(prefix.get, names, partition.values))
        ),
        key=lambda partition: partition.folder,
    )


def _scan(
    table: TableReader, partition: AnyPartition, prefix: Mapping[str, Any], lower: bytes, upper: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and rows of the buckets that the prefix allows, in key order."""
    columns = table.schema.bucket_columns
    tablets: Sequence[Tablet | OverlaidTablet | None] = partition.tablets
    if all(column.name in prefix for column in columns):
        tablets = [tablets[table.buckets.bucket([prefix[c.name] for c in columns], partition.bucket_count)]]
    scans = [tablet.scan(lower, upper) for tablet in tablets if tablet is not None]
    return scans[0] if len(scans) == 1 else heapq.merge(*scans)


def encode_token(folder: str, key: bytes, *number: int) -> str:
    """The page token of a page whose last row is this: partition folder, key bytes, of many prefixes its number."""
    return base64.urlsafe_b64encode(orjson.dumps([folder, key.hex(), *number])).decode().rstrip("=")


def decode_token(token: str | None) -> tuple[str, bytes | None, int]:
    """Folder and key of the last row of the page before, and the number of its prefix."""
    if token is None:
        return "", None, 0
    try:
        folder, key, *number = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if len(number) > 1 or (number and not (type(number[0]) is int and number[0] >= 0)):
            raise ValueError(number)
        return str(folder), bytes.fromhex(key), number[0] if number else 0
    except (ValueError, TypeError, binascii.Error) as exc:
        raise InvalidRequest(
            "not a page token", place="page_token", hint="send back next_page_token of the page before, unchanged"
        ) from exc
