"""Reading a snapshot: which rows a key, many keys or a prefix have. All table semantics of reading are here.

    TableReader       one schema: keys from JSON or text, shapes of answers       (no snapshot, no files)
    SnapshotReader    one snapshot of it, with its tablets open                   lookup, lookup_many, prefix_lookup
    OverlaidTablet    a bucket with the online rows above it: reads like its tablet
    PrefixScan        a page of a prefix lookup in the making

Answers are JSON-ready (`stelae/encoding/values.py` says how each type looks). The path of a single key is
`key values → partition → bucket → key bytes → get → row bytes → JSON`, about four microseconds; what can be prepared
per table or per selection of columns is prepared once.

Online rows are those that were written since the snapshot. Of one key counts, in this order: the snapshot's row if it
is visible, the online row, the hidden row. They are kept by place:

    place    | slot u32, big-endian | key bytes |        slot: the number of a bucket within the reader

A reader without online rows knows nothing of all that: what it asks are the tablets themselves.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import add
from typing import Any, TypeAlias, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from stelae.encoding.arrow import arrow_type
from stelae.encoding.buckets import BucketFunction
from stelae.encoding.byte_cursor import Mask
from stelae.encoding.key_batch import Indexes, Key, KeyColumns, KeyLayout, grouped
from stelae.encoding.keys import KeyCodec, prefix_end
from stelae.encoding.rows import FLAGS_AT, HIDDEN, RowReader
from stelae.encoding.values import ValueCodec, as_is, value_codec
from stelae.errors import CorruptData, InvalidRequest, StelaeError, TooLarge
from stelae.read.hash_index import HashIndex
from stelae.rocksdb.online_rows import OnlineRows
from stelae.rocksdb.tablet import Tablet
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import Snapshot
from stelae.storage.paths import PartitionValue

JsonRow = dict[str, Any]

INDEXED_KEYS = 64
"""So many keys at a time are faster through a hash index than through RocksDB."""
MAX_SHAPES = 256
"""Selections of columns that a table keeps prepared. Callers choose them, so they are bounded."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a prefix lookup."""

    rows: list[JsonRow]
    next_page_token: str | None
    """Asks for the rows after these; None when there are no more."""


class Shape:
    """A selection of columns: makes an answer from key values and row bytes."""

    row: Callable[[Key, bytes], JsonRow | None]
    """The selected columns of one row, in order; None for a hidden row."""

    def __init__(self, schema: TableSchema, rows: RowReader, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._rows = rows
        self._values = [name for name in columns if name not in schema.primary_key]
        self._key_at = {name: index for index, name in enumerate(schema.primary_key)}
        positions = self._key_at
        decode = rows.json_decoder([name for name in columns if name not in positions], columns)
        keys = [
            (name, positions[name], value_codec(schema.by_name[name]).to_json) for name in columns if name in positions
        ]
        self.row = _row_maker(decode, keys)
        self.type = pa.struct([pa.field(name, arrow_type(schema.by_name[name].type)) for name in columns])
        """Of the structs of `structs`."""

    def structs(self, keys: Sequence[pa.Array], rows: pa.Array) -> pa.StructArray:
        """The selected columns of many rows. `keys`: an array for each primary-key column; `rows`: row bytes of visible
        rows, aligned with them; null becomes null.
        """
        values = dict(zip(self._values, self._rows.decode_batch(rows, self._values), strict=True))
        children = [values[name] if name in values else keys[self._key_at[name]] for name in self.columns]
        mask = rows.is_null() if rows.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=mask)


def _row_maker(
    decode: Callable[[bytes], JsonRow | None], keys: list[tuple[str, int, Callable[[Any], Any]]]
) -> Callable[[Key, bytes], JsonRow | None]:
    """Fills the key columns into what `decode` gives."""

    def row_of(key: Key, row: bytes) -> JsonRow | None:
        answer = decode(row)
        if answer is not None:
            for name, position, to_json in keys:
                answer[name] = to_json(key[position])
        return answer

    if len(keys) != 1 or keys[0][2] is not as_is:
        return row_of
    [(name, position, _)] = keys

    def row_of_plain_key(key: Key, row: bytes) -> JsonRow | None:
        answer = decode(row)
        if answer is not None:
            answer[name] = key[position]
        return answer

    return row_of_plain_key


class TableReader:
    """What reading needs of a table's definition."""

    def __init__(self, schema: TableSchema, schemas: Mapping[int, TableSchema]) -> None:
        self.schema = schema
        self.schemas = schemas
        self.rows = RowReader(schemas, schema)
        self.keys = KeyCodec(schema.key_columns)
        self.buckets = BucketFunction(schema.bucket_columns)
        self.layout = KeyLayout(schema, self.keys, self.buckets)
        self.key_codecs: tuple[tuple[str, ValueCodec], ...] = tuple(
            (c.name, value_codec(c)) for c in schema.primary_key_columns
        )
        """Name and codec of every primary-key column, as declared."""
        self.key_texts: tuple[tuple[str, Callable[[str, str], Any]], ...] = tuple(
            (name, _from_text(codec)) for name, codec in self.key_codecs
        )
        """The same for text: name and what reads it, which takes the text and the name."""
        self._by_name = dict(self.key_codecs)
        self._shapes: dict[tuple[str, ...], Shape] = {}
        position = {name: index for index, name in enumerate(schema.primary_key)}
        self.partition_of = _picker([position[c.name] for c in schema.partition_columns], len(position))
        self.key_of = _picker([position[c.name] for c in schema.key_columns], len(position))
        self.bucketed_of = _picker([position[c.name] for c in schema.bucket_columns], len(position))
        self.all_columns = self.shape(None)

    def shape(self, columns: Sequence[str] | None) -> Shape:
        """The prepared selection of these columns; all of the table's by default."""
        wanted = self.schema.column_names if columns is None else tuple(columns)
        found = self._shapes.get(wanted)
        if found is None:
            if not wanted:
                raise InvalidRequest("an empty list of columns selects nothing", place="columns")
            for name in wanted:
                self.schema.column(name)
            if len(set(wanted)) != len(wanted):
                raise InvalidRequest("a column is selected twice", place="columns")
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.pop(next(iter(self._shapes)))
            found = self._shapes[wanted] = Shape(self.schema, self.rows, wanted)
        return found

    def key_from_json(self, key: object) -> Key:
        """A key from JSON: an object with every primary-key column, or the bare value where the key is one column. A
        nullable column may be null, but not left out.
        """
        if type(key) is dict:
            try:
                values = [codec.from_json(key[name], name) for name, codec in self.key_codecs]
            except KeyError:
                raise self._wrong_columns(key) from None
            if len(key) != len(values):
                raise self._wrong_columns(key)
            return tuple(values)
        if len(self.key_codecs) == 1 and type(key) is not list:
            name, codec = self.key_codecs[0]
            return (codec.from_json(key, name),)
        raise InvalidRequest(
            f"a key must be an object, this one is {_json_type(key)}",
            place="keys",
            hint="such as " + orjson.dumps(dict.fromkeys(self.schema.primary_key, "...")).decode(),
        )

    def key_from_text(self, pairs: Mapping[str, str]) -> Key:
        """A key from `column=value` texts, as in a URL. They can't say null."""
        try:
            values = [read(pairs[name], name) for name, read in self.key_texts]
        except KeyError:
            raise self._wrong_columns(pairs, of_text=True) from None
        if len(pairs) != len(values):
            raise self._wrong_columns(pairs)
        return tuple(values)

    def prefix_from_json(self, prefix: object) -> dict[str, Any]:
        """Physical values of a prefix: any of the partition columns, then the first so many key columns."""
        if type(prefix) is not dict:
            raise InvalidRequest(f"a prefix must be an object, this one is {_json_type(prefix)}", place="prefix")
        self.check_prefix(prefix)
        return {name: self._by_name[name].from_json(value, name) for name, value in prefix.items()}

    def check_prefix(self, prefix: Mapping[str, object]) -> None:
        """Whether columns are those of a prefix."""
        unknown = [name for name in prefix if name not in self._by_name]
        if unknown:
            raise self._not_in_key(unknown)
        names = [column.name for column in self.schema.key_columns]
        given = [name in prefix for name in names]
        if True in given[given.index(False) :] if False in given else False:
            missing, last = names[given.index(False)], names[len(given) - 1 - given[::-1].index(True)]
            raise InvalidRequest(
                f"not a prefix of the key: {missing!r} is missing before {last!r}",
                place="prefix",
                hint=f"the key is {', '.join(names)}; give its first columns",
            )

    def whole_key(self, partition: Key, key: Key) -> Key:
        """The whole primary key of partition values and key columns: the inverse of `partition_of` and `key_of`."""
        schema = self.schema
        if not schema.partition_keys:
            return key
        values = dict(zip(schema.partition_keys, partition, strict=True))
        values.update(zip((c.name for c in schema.key_columns), key, strict=True))
        return tuple(values[name] for name in schema.primary_key)

    def _wrong_columns(self, given: Mapping[str, object], *, of_text: bool = False) -> InvalidRequest:
        unknown = [name for name in given if name not in self._by_name]
        if unknown:
            return self._not_in_key(unknown)
        missing = [name for name in self.schema.primary_key if name not in given]
        hint = f"the primary key is {', '.join(self.schema.primary_key)}; its first columns alone: prefix-lookup"
        if of_text and any(self._by_name[name].type.nullable for name in missing):
            hint += f"; {_NULL_HINT}"
        return InvalidRequest(f"the key lacks {', '.join(missing)}", place=", ".join(missing), hint=hint)

    def _not_in_key(self, unknown: Sequence[str]) -> InvalidRequest:
        word = "unknown column" if unknown[0] not in self.schema.by_name else "not a primary-key column:"
        return InvalidRequest(
            f"{word} {unknown[0]!r}",
            place=unknown[0],
            hint=f"the primary key is {', '.join(self.schema.primary_key)}",
        )


_NULL_HINT = "a null key column: POST the key as JSON, with null"


def _from_text(codec: ValueCodec) -> Callable[[str, str], Any]:
    """The conversion from text, with a hint for who wants to say null."""
    if not codec.type.nullable:
        return codec.from_text

    def from_text(text: str, place: str) -> Any:
        try:
            return codec.from_text(text, place)
        except InvalidRequest as exc:
            if text.lower() not in ("", "null", "none"):
                raise
            raise InvalidRequest(exc.message, place=exc.place, hint=_NULL_HINT) from None

    return from_text


@dataclass(frozen=True, slots=True)
class PartitionTablets:
    """The open buckets of one partition; None where a bucket is empty."""

    folder: str
    values: Key
    """Physical partition values."""
    bucket_count: int
    tablets: tuple[Tablet | None, ...]
    rows: int = 0
    """Stored rows, hidden ones too."""
    index: IndexOf = field(default_factory=lambda: IndexOf())


class IndexOf:
    """Where the hash index of a partition appears when somebody has made it. Shared by the readers of its tablets."""

    def __init__(self) -> None:
        self.made: HashIndex | None = None


Get: TypeAlias = Callable[[bytes], bytes | None]


class OverlaidTablet:
    """A bucket with online rows above it; reads like its tablet."""

    get: Get
    """The row of one key."""

    def __init__(self, tablet: Tablet | None, online: OnlineRows, prefix: bytes) -> None:
        """`prefix` is what the places of this bucket begin with."""
        self.directory = tablet.directory if tablet else online.directory
        self._tablet = tablet
        self._online = online
        self._prefix = prefix
        self.get = self._getter()

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        """The rows of many keys, aligned with them."""
        rows: list[bytes | None] = self._tablet.multi_get(keys) if self._tablet else [None] * len(keys)
        absent = [index for index, row in enumerate(rows) if row is None or row[FLAGS] == HIDDEN_FLAGS]
        if absent:
            prefix = self._prefix
            found = self._online.multi_get([prefix + keys[index] for index in absent])
            for index, row in zip(absent, found, strict=True):
                if row is not None:
                    rows[index] = row
        return rows

    def scan(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows with `lower <= key < upper` in key order."""
        prefix, cut = self._prefix, len(self._prefix)
        end = prefix_end(prefix) if upper is None else prefix + upper
        online = ((place[cut:], row) for place, row in self._online.scan(prefix + lower, end))
        above = next(online, None)
        for key, row in self._tablet.scan(lower, upper) if self._tablet else ():
            while above and above[0] < key:
                yield above
                above = next(online, None)
            if above and above[0] == key:
                yield above if row[FLAGS] == HIDDEN_FLAGS else (key, row)
                above = next(online, None)
            else:
                yield key, row
        if above:
            yield above
            yield from online

    def _getter(self) -> Get:
        # The snapshot first: it has most of the keys that are asked for.
        get, prefix = cast("Get", self._online.get), self._prefix
        if self._tablet is None:
            return lambda key: get(prefix + key)
        get_stored = cast("Get", self._tablet.get)

        def get_overlaid(key: bytes) -> bytes | None:
            row = get_stored(key)
            if row is None:
                return get(prefix + key)
            if row[FLAGS] == HIDDEN_FLAGS:
                return get(prefix + key) or row
            return row

        return get_overlaid


SLOT_BYTES = 4
FLAGS, HIDDEN_FLAGS = slice(FLAGS_AT, FLAGS_AT + 1), bytes([HIDDEN])
"""Where a stored row says that it is hidden, and how. Row bytes that are cut are left to the decoders."""


@dataclass(frozen=True, slots=True)
class OverlaidPartition:
    """PartitionTablets with online rows above them."""

    folder: str
    values: Key
    bucket_count: int
    tablets: tuple[OverlaidTablet, ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is in one slot."""

    tablet: Tablet | None
    partition: tuple[PartitionValue, ...]
    """As in the manifest."""
    bucket: int


AnyPartition = PartitionTablets | OverlaidPartition


class SnapshotReader:
    """One snapshot, open. Immutable but for the online rows: a newer snapshot is another reader."""

    find: Callable[[Key], bytes | None]
    """The stored row of one key; None when there is none. Valid as long as the reader is."""

    locate: Callable[[Key], bytes | None]
    """The place of one key, whether there is a row or not; None when there is no such partition."""

    def __init__(
        self,
        table: TableReader,
        snapshot: Snapshot,
        partitions: Sequence[PartitionTablets],
        online: OnlineRows | None = None,
    ) -> None:
        self.table = table
        self.snapshot = snapshot
        self.id = snapshot.id
        self.log_offset = snapshot.log_offset
        """Records of the table's log below this offset are in the snapshot."""
        self.partitions = {partition.values: partition for partition in partitions}
        self.online = online
        self.slots = _numbered(partitions)
        """By the values of the partition: the slots of its buckets."""
        asked: Sequence[AnyPartition] = partitions
        if online is not None:
            asked = [_overlay(partition, online, self.slots[partition.values]) for partition in partitions]
        self._buckets = _buckets(snapshot, partitions)
        self._asked = {partition.values: partition for partition in asked}
        self._by_bytes = {_partition_bytes(table.layout, partition.values): partition for partition in partitions}
        self._unpartitioned = partitions[0] if not table.schema.partition_keys and partitions else None
        self._has_hidden = snapshot.totals.hidden_rows > 0
        self._single = asked[0] if not table.schema.partition_keys and asked else None
        self.find = self._finder()
        self.locate = self._locator()

    def with_online(self, online: OnlineRows | None) -> SnapshotReader:
        """A reader of the same tablets with these online rows, or without."""
        return SnapshotReader(self.table, self.snapshot, list(self.partitions.values()), online)

    def lookup(self, key: Key, shape: Shape) -> JsonRow | None:
        """The row of one key; None when there is none."""
        row = self.find(key)
        return None if row is None else shape.row(key, row)

    def lookup_many(self, keys: Sequence[Key], shape: Shape) -> list[JsonRow | None]:
        """The rows of many keys, aligned with them: one native multi-get a bucket."""
        answers: list[JsonRow | None] = [None] * len(keys)
        make = shape.row
        hashed = self._only_index(len(keys))
        if hashed is not None:
            encode, key_of = self.table.keys.encode, self.table.key_of
            stored = self._visible(hashed, [encode(key_of(key)) for key in keys])
            stored = self._or_online(stored, lambda at: self.locate(keys[at]))
            return [None if row is None else make(key, row) for key, row in zip(keys, stored, strict=True)]
        for tablet, indexes, encoded in self._by_tablet(keys):
            try:
                rows = tablet.multi_get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc
            for index, row in zip(indexes, rows, strict=True):
                if row is not None:
                    answers[index] = make(keys[index], row)
        return answers

    def rows_of(self, keys: KeyColumns) -> pa.Array:
        """Row bytes of the visible rows of many keys, aligned with them: a BinaryArray, null where there is no row."""
        found: list[pa.Array] = []
        places: list[Indexes] = []
        key_bytes = np.array(keys.key_bytes, np.object_)
        for values, of_partition in keys.by_partition():
            partition = self._by_bytes.get(values)
            where = np.arange(len(keys)) if of_partition is None else of_partition
            if partition is None:
                found.append(pa.nulls(len(where), pa.binary()))
                places.append(where)
            elif (index := self._index_for(partition, len(where))) is not None:
                some = keys.key_bytes if of_partition is None else key_bytes[of_partition].tolist()
                found.append(index.rows_of(some))
                places.append(where)
            else:
                count = partition.bucket_count
                for bucket, indexes in grouped(np.mod(keys.hashes[where], count), count):
                    places.append(where[indexes])
                    found.append(self._multi_get(partition.tablets[bucket], key_bytes[places[-1]].tolist()))
        if len(found) == 1:
            rows = found[0]
        else:
            rows = pa.concat_arrays(found) if found else pa.array([], pa.binary())
            back = np.empty(len(rows), np.intp)
            back[np.concatenate([*places, np.empty(0, np.intp)])] = np.arange(len(rows))
            rows = rows.take(pa.array(back))
        if self._has_hidden:
            rows = self.without_hidden(rows)
        return rows if self.online is None or not rows.null_count else self._with_online(keys, rows)

    @property
    def hash_index_bytes(self) -> int:
        """Of the hash indexes that its partitions have."""
        return sum(each.index.made.bytes for each in self.partitions.values() if each.index.made is not None)

    @property
    def is_indexed(self) -> bool:
        """Whether batches of any keys go through one hash index."""
        return self._unpartitioned is not None and self._unpartitioned.index.made is not None

    def _index_for(self, partition: PartitionTablets, count: int) -> HashIndex | None:
        """The hash index of a partition, if there is one and so many keys are worth its fixed cost."""
        return partition.index.made if count >= INDEXED_KEYS else None

    def _only_index(self, count: int) -> HashIndex | None:
        """That of a table without partitions, for so many keys."""
        return None if self._unpartitioned is None else self._index_for(self._unpartitioned, count)

    def _visible(self, index: HashIndex, keys: list[bytes]) -> list[bytes | None]:
        """The visible rows that an index has of keys, aligned with them."""
        rows = index.rows_of(keys)
        visible: list[bytes | None] = (self.without_hidden(rows) if self._has_hidden else rows).to_pylist()
        return visible

    def _or_online(self, rows: list[bytes | None], place_of: Callable[[int], bytes | None]) -> list[bytes | None]:
        """Visible rows, and online ones where there is none."""
        if self.online is None:
            return rows
        wanted = {at: place for at, row in enumerate(rows) if row is None and (place := place_of(at)) is not None}
        if not wanted:
            return rows
        try:
            found = self.online.multi_get(list(wanted.values()))
        except Exception as exc:
            raise _read_error(exc, self.online) from exc
        for at, row in zip(wanted, found, strict=True):
            rows[at] = row
        return rows

    def _multi_get(self, tablet: Tablet | None, keys: list[bytes]) -> pa.Array:
        if tablet is None:
            return pa.nulls(len(keys), pa.binary())
        try:
            rows = pa.array(tablet.multi_get(keys), pa.binary())
        except Exception as exc:
            raise _read_error(exc, tablet) from exc
        if isinstance(rows, pa.ChunkedArray):
            raise TooLarge(f"the rows of {len(keys):,} keys take more than 2 GiB", hint="ask for fewer keys at a time")
        return rows

    def _with_online(self, keys: KeyColumns, rows: pa.Array) -> pa.Array:
        """Rows with those that are online in place of nulls."""
        absent = rows.is_null()
        places = self._places_of(keys.taken(np.flatnonzero(absent.to_numpy(zero_copy_only=False))))
        online = self._or_online([None] * len(places), places.__getitem__)
        return pc.replace_with_mask(rows, absent, pa.array(online, pa.binary()))

    def without_hidden(self, rows: pa.Array) -> pa.Array:
        """Row bytes with null in place of hidden rows."""
        hidden: Mask = self.table.rows.hidden_mask(rows)
        return pc.if_else(pa.array(hidden), None, rows) if hidden.any() else rows

    def prefix_lookup(self, prefix: Mapping[str, Any], shape: Shape, limit: int, page_token: str | None = None) -> Page:
        """Rows whose key starts with `prefix`, in key order, partition by partition.

        `prefix` comes from `TableReader.prefix_from_json`. A prefix with all bucket-key columns asks one bucket,
        another one all buckets of the partition.
        """
        scan = self.prefix_scan(prefix, shape, limit, page_token)
        rows: list[JsonRow] = []
        while not scan.done:
            rows += scan.step(limit)
        return Page(rows, scan.next_page_token)

    def prefix_scan(
        self, prefix: Mapping[str, Any], shape: Shape, limit: int, page_token: str | None = None
    ) -> PrefixScan:
        """The same step by step, for callers that have other things to do in between."""
        if limit < 1:
            raise InvalidRequest(f"limit must be at least 1, not {limit}", place="limit")
        folder, key, _ = _decode_token(page_token)
        return PrefixScan(self._stored_rows(prefix, folder, key), self.table, shape, limit)

    def prefixes_scan(
        self, prefixes: Sequence[Mapping[str, Any]], limit: int, page_token: str | None = None
    ) -> PrefixesScan:
        """Rows of many prefixes, one prefix after the other, step by step: for answers in Arrow."""
        if limit < 1:
            raise InvalidRequest(f"limit must be at least 1, not {limit}", place="limit")
        folder, key, number = _decode_token(page_token)
        if number >= len(prefixes) and key is not None:
            raise InvalidRequest(
                "the page token is of other prefixes", place="page_token", hint="send the same body with it"
            )
        return PrefixesScan(self._rows_of_prefixes(prefixes, folder, key, number), limit)

    def structs_of(self, found: Sequence[FoundRow], shape: Shape) -> tuple[list[int], pa.StructArray]:
        """Of found rows: the numbers of their prefixes, and the selected columns."""
        schema, layout = self.table.schema, self.table.layout
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
        structs = shape.structs([by_name[name] for name in schema.primary_key], rows)
        return [number for number, _, _, _ in found], structs

    def _rows_of_prefixes(
        self, prefixes: Sequence[Mapping[str, Any]], folder: str, after: bytes | None, first: int
    ) -> Iterator[FoundRow]:
        for number in range(first, len(prefixes)):
            resumes = number == first and after is not None
            rows = self._stored_rows(prefixes[number], folder if resumes else "", after if resumes else None)
            for partition, key, row in rows:
                yield number, partition, key, row

    def locate_many(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The places of many keys, aligned with them."""
        return self._places_of(keys) if isinstance(keys, KeyColumns) else list(map(self.locate, keys))

    def _places_of(self, keys: KeyColumns) -> list[bytes | None]:
        places: list[bytes | None] = [None] * len(keys)
        for values, of_partition in keys.by_partition():
            partition = self._by_bytes.get(values)
            if partition is None:
                continue
            slots = self.slots[partition.values]
            prefixes = np.array([slot_prefix(slot) for slot in slots], np.object_)
            hashes = keys.hashes if of_partition is None else keys.hashes[of_partition]
            starts = prefixes[np.mod(hashes, len(slots))].tolist()
            if of_partition is None:
                return list(map(add, starts, keys.key_bytes))
            for index, start in zip(of_partition.tolist(), starts, strict=True):
                places[index] = start + keys.key_bytes[index]
        return places

    def rows_at(self, places: Sequence[bytes]) -> list[bytes | None]:
        """Row bytes of the visible rows at these places, aligned with them; None where there is none.

        One native multi-get a bucket, and one of the online rows.
        """
        return self._or_online(self.snapshot_rows_at(places), places.__getitem__)

    def snapshot_rows_at(self, places: Sequence[bytes]) -> list[bytes | None]:
        """The same of the snapshot alone."""
        hashed = self._only_index(len(places))
        if hashed is not None:
            return self._visible(hashed, [place[SLOT_BYTES:] for place in places])
        rows: list[bytes | None] = [None] * len(places)
        groups: dict[bytes, list[int]] = {}
        for index, place in enumerate(places):
            groups.setdefault(place[:SLOT_BYTES], []).append(index)
        for prefix, indexes in groups.items():
            tablet = self._buckets[int.from_bytes(prefix, "big")].tablet
            if tablet is None:
                continue
            try:
                found = tablet.multi_get([places[index][SLOT_BYTES:] for index in indexes])
            except Exception as exc:
                raise _read_error(exc, tablet) from exc
            for index, row in zip(indexes, found, strict=True):
                if row is not None and row[FLAGS] != HIDDEN_FLAGS:
                    rows[index] = row
        return rows

    def visible_rows(self, most: int) -> Iterator[list[bytes]]:
        """Row bytes of all visible rows, in lists of at most `most`."""
        for partition in self._asked.values():
            for tablet in partition.tablets:
                scan = iter(()) if tablet is None else tablet.scan()
                while chunk := list(islice(scan, most)):
                    yield [row for _, row in chunk if row[FLAGS] != HIDDEN_FLAGS]

    def log_place(self, place: bytes) -> tuple[tuple[PartitionValue, ...], int, bytes]:
        """What the log says instead of a place: partition values as in the manifest, bucket, key bytes."""
        found = self._buckets[int.from_bytes(place[:SLOT_BYTES], "big")]
        return found.partition, found.bucket, place[SLOT_BYTES:]

    def _stored_rows(self, prefix: Mapping[str, Any], start_folder: str, after: bytes | None) -> Iterator[StoredRow]:
        """Stored rows of the prefix, hidden ones too, after a key of the partition with this folder."""
        table = self.table
        names = [column.name for column in table.schema.key_columns]
        given = [prefix[name] for name in names if name in prefix]
        lower = table.keys.encode_prefix(given)
        upper = lower + b"\0" if len(given) == len(names) else prefix_end(lower)
        if after is not None and not (lower <= after and (upper is None or after < upper)):
            raise InvalidRequest("the page token is of another prefix", place="page_token", hint="start without one")
        for partition in self._matching(prefix):
            if partition.folder < start_folder:
                continue
            resumes = after is not None and partition.folder == start_folder
            start = after + b"\0" if resumes and after is not None else lower
            for key, row in self._scan(partition, prefix, start, upper):
                yield partition, key, row

    def _finder(self) -> Callable[[Key], bytes | None]:
        table = self.table
        encode, hash_of = table.keys.encode, table.buckets.hash
        partition_of, key_of, bucketed_of = table.partition_of, table.key_of, table.bucketed_of
        partitions = {
            values: (tuple(tablet or _EMPTY for tablet in partition.tablets), partition.bucket_count)
            for values, partition in self._asked.items()
        }
        tablets, count = partitions.get((), ((_EMPTY,), 1))

        def find(key: Key) -> bytes | None:
            found = partitions.get(partition_of(key))
            if found is None:
                return None
            tablets, count = found
            tablet = tablets[hash_of(bucketed_of(key)) % count]
            encoded = encode(key_of(key))
            try:
                return tablet.get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc

        def find_by_whole_key(key: Key) -> bytes | None:
            tablet = tablets[hash_of(key) % count]
            encoded = encode(key)
            try:
                return tablet.get(encoded)
            except Exception as exc:
                raise _read_error(exc, tablet) from exc

        whole = not table.schema.partition_keys and key_of is _whole and bucketed_of is _whole
        return find_by_whole_key if whole else find

    def _locator(self) -> Callable[[Key], bytes | None]:
        table = self.table
        encode, hash_of = table.keys.encode, table.buckets.hash
        partition_of, key_of, bucketed_of = table.partition_of, table.key_of, table.bucketed_of
        partitions = {values: tuple(map(slot_prefix, slots)) for values, slots in self.slots.items()}
        single = partitions.get((), ()) if not table.schema.partition_keys else ()

        def locate(key: Key) -> bytes | None:
            prefixes = partitions.get(partition_of(key))
            if prefixes is None:
                return None
            return prefixes[hash_of(bucketed_of(key)) % len(prefixes)] + encode(key_of(key))

        if not single or not (key_of is _whole and bucketed_of is _whole):
            return locate
        count = len(single)
        return lambda key: single[hash_of(key) % count] + encode(key)

    def _by_tablet(self, keys: Sequence[Key]) -> Iterator[tuple[Tablet | OverlaidTablet, list[int], list[bytes]]]:
        table = self.table
        groups: dict[int, tuple[Tablet | OverlaidTablet, list[int], list[bytes]]] = {}
        encode, key_of, bucket, bucketed_of = table.keys.encode, table.key_of, table.buckets.bucket, table.bucketed_of
        for index, key in enumerate(keys):
            partition = self._single or self._asked.get(table.partition_of(key))
            if partition is None:
                continue
            tablet = partition.tablets[bucket(bucketed_of(key), partition.bucket_count)]
            if tablet is None:
                continue
            group = groups.get(id(tablet))
            if group is None:
                group = groups[id(tablet)] = (tablet, [], [])
            group[1].append(index)
            group[2].append(encode(key_of(key)))
        return iter(groups.values())

    def _matching(self, prefix: Mapping[str, Any]) -> list[AnyPartition]:
        """Partitions that the prefix allows, in the order of their folders."""
        names = self.table.schema.partition_keys
        if all(name in prefix for name in names):
            found = self._asked.get(tuple(prefix[name] for name in names))
            return [found] if found else []
        return sorted(
            (
                partition
                for partition in self._asked.values()
                # Tuples: unlike ==, they take the one NaN of the codecs for equal to itself.
                if partition.values == tuple(map(prefix.get, names, partition.values))
            ),
            key=lambda partition: partition.folder,
        )

    def _scan(
        self, partition: AnyPartition, prefix: Mapping[str, Any], lower: bytes, upper: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        columns = self.table.schema.bucket_columns
        if all(column.name in prefix for column in columns):
            bucket = self.table.buckets.bucket([prefix[c.name] for c in columns], partition.bucket_count)
            tablets: Sequence[Tablet | OverlaidTablet | None] = [partition.tablets[bucket]]
        else:
            tablets = partition.tablets
        scans = [tablet.scan(lower, upper) for tablet in tablets if tablet is not None]
        return scans[0] if len(scans) == 1 else heapq.merge(*scans)


StoredRow = tuple[AnyPartition, bytes, bytes]
"""Partition, key bytes, row bytes."""


class PrefixScan:
    """A page of a prefix lookup in the making."""

    def __init__(self, stored: Iterator[StoredRow], table: TableReader, shape: Shape, limit: int) -> None:
        self.done = False
        self.next_page_token: str | None = None
        """Set when the page is done and more rows follow."""
        self._stored = stored
        self._table = table
        self._shape = shape
        self._left = limit
        self._last: tuple[str, bytes] = ("", b"")

    def step(self, budget: int) -> list[JsonRow]:
        """The next rows of the page, after a look at `budget` stored rows at most (hidden ones count)."""
        table, row_of, decode = self._table, self._shape.row, self._table.keys.decode
        rows: list[JsonRow] = []
        for partition, key_bytes, row in islice(self._stored, budget):
            answer = row_of(table.whole_key(partition.values, decode(key_bytes)), row)
            if answer is None:
                budget -= 1
                continue
            if not self._left:
                self.done = True
                self.next_page_token = _encode_token(*self._last)
                return rows
            rows.append(answer)
            self._left -= 1
            self._last = partition.folder, key_bytes
        self.done = len(rows) < budget
        return rows


FoundRow = tuple[int, AnyPartition, bytes, bytes]
"""Number of the prefix, partition, key bytes, row bytes."""


class PrefixesScan:
    """A page of the rows of many prefixes in the making."""

    def __init__(self, stored: Iterator[FoundRow], limit: int) -> None:
        self.done = False
        self.next_page_token: str | None = None
        """Set when the page is done and more rows follow."""
        self._stored = stored
        self._left = limit
        self._last: FoundRow | None = None

    def step(self, budget: int) -> list[FoundRow]:
        """The next rows of the page, after a look at `budget` stored rows at most (hidden ones count)."""
        looked_at = list(islice(self._stored, budget))
        self.done = len(looked_at) < budget
        rows = [found for found in looked_at if found[3][FLAGS] != HIDDEN_FLAGS]
        if len(rows) > self._left:
            rows = rows[: self._left]
            number, partition, key, _ = rows[-1] if rows else cast("FoundRow", self._last)
            self.done = True
            self.next_page_token = _encode_token(partition.folder, key, number)
        self._left -= len(rows)
        self._last = rows[-1] if rows else self._last
        return rows


def check_batch_size(count: int, most: int, what: str, option: str) -> None:
    """A batch over the limit is refused whole."""
    if count > most:
        raise TooLarge(
            f"{count:,} {what}, at most {most:,} at a time",
            place=what,
            hint=f"send several requests, or raise {option}",
        )


def _partition_bytes(layout: KeyLayout, values: Key) -> bytes:
    return layout.partitions.encode(values) if layout.partitions else b""


def slot_prefix(slot: int) -> bytes:
    """What the places of a slot begin with."""
    return slot.to_bytes(SLOT_BYTES, "big")


def _numbered(partitions: Sequence[PartitionTablets]) -> dict[Key, range]:
    slots = {}
    end = 0
    for partition in partitions:
        first, end = end, end + partition.bucket_count
        slots[partition.values] = range(first, end)
    return slots


def _buckets(snapshot: Snapshot, partitions: Sequence[PartitionTablets]) -> list[Bucket]:
    """All buckets, by slot."""
    values = {partition.folder: partition.values for partition in snapshot.partitions}
    return [
        Bucket(tablet, values[partition.folder], bucket)
        for partition in partitions
        for bucket, tablet in enumerate(partition.tablets)
    ]


def _overlay(partition: PartitionTablets, online: OnlineRows, slots: Sequence[int]) -> OverlaidPartition:
    return OverlaidPartition(
        partition.folder,
        partition.values,
        partition.bucket_count,
        tuple(
            OverlaidTablet(tablet, online, slot_prefix(slot))
            for tablet, slot in zip(partition.tablets, slots, strict=True)
        ),
    )


def _picker(positions: Sequence[int], key_length: int) -> Callable[[Key], Key]:
    """A function that takes these positions out of a key; the key itself where they are all of it, in order."""
    wanted = tuple(positions)
    if wanted == tuple(range(key_length)):
        return _whole
    return lambda key: tuple([key[position] for position in wanted])


def _whole(key: Key) -> Key:
    return key


class _EmptyTablet:
    """Stands for a bucket without files."""

    directory = None

    def get(self, key: bytes) -> bytes | None:  # noqa: ARG002
        return None


_EMPTY = _EmptyTablet()


def _read_error(exc: Exception, tablet: Tablet | OverlaidTablet | OnlineRows | _EmptyTablet) -> Exception:
    """RocksDB verifies the checksum of each block that it reads: a disk may go bad long after a file was loaded."""
    if isinstance(exc, StelaeError) or not str(exc).startswith("Corruption"):
        return exc
    return CorruptData(
        f"RocksDB can't read a sorted file: {exc}",
        place=str(tablet.directory),
        hint="keep the file; restart the server, which verifies all files, or roll back: stelae rollback",
    )


def _encode_token(folder: str, key: bytes, *number: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([folder, key.hex(), *number])).decode().rstrip("=")


def _decode_token(token: str | None) -> tuple[str, bytes | None, int]:
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


def _json_type(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "an object")
