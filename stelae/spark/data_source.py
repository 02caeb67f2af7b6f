"""`spark.read.format("stelae")`: a snapshot of a table as a frame, read from its files, with no server.

    spark.read.format("stelae").option("warehouse", "s3://bucket/warehouse").load("shop.users")

    options     warehouse   URL or folder of the warehouse; compulsory
                table       the table, if it is not the argument of load
                snapshot    its number; by default the newest when a query is planned
    schema      .schema("user_id BIGINT, name STRING") reads these alone; Spark tells a Python source of no others

Each bucket is a task. With `spark.sql.python.filterPushdown.enabled`, conditions `=` and `IN` on key columns choose the
partitions and buckets that are read, and where they name whole keys, these are looked up and nothing is scanned.

Spark runs `schema`, `reader` and `partitions` in Python processes of its own, `read` on executors. All of them need
this package and `rocksdict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualNullSafe, EqualTo, In, InputPartition

from stelae.errors import InvalidRequest, StelaeError, Unavailable
from stelae.schema import types as t
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.spark.bucket_scan import SCAN_BATCH_ROWS, StoredRowDecoder, open_bucket
from stelae.spark.column_types import HIDDEN_COLUMN, as_arrow_has_it
from stelae.spark.errors import raise_marked, show_stelae_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from stelae.schema.table_schema import TableSchema
    from stelae.snapshot.manifest import PartitionFiles, Snapshot

READ_OPTIONS = ("warehouse", "table", "path", "snapshot")

MAX_KEYS = 10_000
"""Combinations of values of key columns; more are not looked up one by one."""


def register_source(spark: SparkSession) -> None:
    """Make `format("stelae")` known to a session that does not find it by itself (`pyspark_stelae` is on its path)."""
    show_stelae_errors()
    spark.dataSource.register(StelaeDataSource)


class StelaeDataSource(DataSource):
    """See the head of the module."""

    @classmethod
    def name(cls) -> str:
        return "stelae"

    def schema(self) -> str:
        try:
            _check_rocksdict()
            table, _ = _opened(self.options)
        except StelaeError as error:
            raise_marked(error)
        return ", ".join(f"{t.quote_name(c.name)} {as_arrow_has_it(c.type).spark()}" for c in table.schema.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        try:
            _check_rocksdict()
            table, snapshot = _opened(self.options)
            return StelaeReader(table, snapshot, schema)
        except StelaeError as error:
            raise_marked(error)


@dataclass
class BucketPartition(InputPartition):
    """One bucket to read: what a task needs."""

    values: tuple[Any, ...]
    """Of the partition columns, as JSON."""
    files: tuple[str, ...]
    """Oldest sorted run first."""
    keys: tuple[bytes, ...] | None
    """Look these up, in their order; None: read all."""


class StelaeReader(DataSourceReader):
    """One query on one snapshot."""

    def __init__(self, table: Table, snapshot: Snapshot, schema: StructType) -> None:
        self.table = table
        self.snapshot = snapshot
        self.names = _checked_names(table.schema, schema, str(table.name))
        self.spark_schema = schema
        self.wanted: dict[str, list[Any]] = {}
        """Physical values that a column may have, for columns that a filter is about."""
        self.pushFilters = _Pushing(self)  # type: ignore[method-assign]

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Remember what filters say of key columns. Spark applies all of them again: values are compared by it."""
        from stelae.encoding.values import value_codec

        keys = {column.name: column for column in self.table.schema.primary_key_columns}
        for each in filters:
            if isinstance(each, EqualTo | EqualNullSafe):
                values: Sequence[Any] = (each.value,)
            elif isinstance(each, In):
                values = tuple(value for value in each.value if value is not None)
            else:
                continue
            name = each.attribute[0]
            if len(each.attribute) > 1 or name not in keys or isinstance(keys[name].type, t.Float | t.Double):
                continue
            codec = value_codec(keys[name])
            try:
                physical = [codec.from_python(value, name) for value in values]
            except (StelaeError, TypeError, ValueError):
                continue  # Spark knows how to compare them.
            known = self.wanted.get(name)
            self.wanted[name] = physical if known is None else [value for value in physical if value in known]
        return filters

    def partitions(self) -> list[InputPartition]:
        parts: list[InputPartition] = []
        for partition in self.snapshot.partitions:
            if self._is_wanted(partition):
                parts += self._buckets(partition)
        # Of no partitions Spark makes one without a value.
        return parts or [BucketPartition((), (), ())]

    def _is_wanted(self, partition: PartitionFiles) -> bool:
        from stelae.encoding.partitions import partition_from_json

        schema = self.table.schema
        values = partition_from_json(schema.partition_columns, partition.values)
        for name, value in zip(schema.partition_keys, values, strict=True):
            wanted = self.wanted.get(name)
            if wanted is not None and value not in wanted:
                return False
        return True

    def _buckets(self, partition: PartitionFiles) -> list[BucketPartition]:
        from stelae.encoding.keys import KeyCodec

        schema = self.table.schema
        files = {b.bucket: tuple(f.path for f in b.files) for b in partition.buckets if b.files}
        by_bucket = self._by_bucket([c.name for c in schema.bucket_columns], partition)
        if by_bucket is None:
            return [BucketPartition(partition.values, each, None) for each in files.values()]
        keys = self._combinations([c.name for c in schema.key_columns])
        if keys is None:
            return [BucketPartition(partition.values, files[n], None) for n in sorted(by_bucket) if n in files]
        encode = KeyCodec(schema.key_columns).encode
        key_names = [c.name for c in schema.key_columns]
        chosen: dict[int, set[bytes]] = {}
        for key in keys:
            number = self._bucket_of(dict(zip(key_names, key, strict=True)), partition)
            if number in files:
                chosen.setdefault(number, set()).add(encode(key))
        return [BucketPartition(partition.values, files[n], tuple(sorted(chosen[n]))) for n in sorted(chosen)]

    def _by_bucket(self, names: Sequence[str], partition: PartitionFiles) -> set[int] | None:
        """The buckets that can have the rows; None for all."""
        combinations = self._combinations(names)
        if combinations is None:
            return None
        return {self._bucket_of(dict(zip(names, values, strict=True)), partition) for values in combinations}

    def _bucket_of(self, values: Mapping[str, Any], partition: PartitionFiles) -> int:
        from stelae.encoding.buckets import BucketFunction

        columns = self.table.schema.bucket_columns
        return BucketFunction(columns).bucket([values[c.name] for c in columns], partition.bucket_count)

    def _combinations(self, names: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """All values that these columns can have together; None where a filter leaves one open, or there are many."""
        count = 1
        for name in names:
            if name not in self.wanted:
                return None
            count *= len(self.wanted[name])
            if count > MAX_KEYS:
                return None
        return list(product(*(self.wanted[name] for name in names)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, BucketPartition):
            raise TypeError(partition)
        try:
            yield from self._read(partition)
        except StelaeError as error:
            raise_marked(error)

    def _read(self, partition: BucketPartition) -> Iterator[pa.RecordBatch]:
        if not partition.files:
            return
        shown = [name for name in self.names if name in self._value_names]
        decoder = StoredRowDecoder(self.table, self.table.schema, only=tuple(shown))
        with open_bucket(self.table.storage, partition.files) as tablet:
            if partition.keys is None:
                rows = tablet.scan()
            else:
                found = zip(partition.keys, tablet.multi_get(list(partition.keys)), strict=True)
                rows = iter([(key, row) for key, row in found if row is not None])
            while chunk := list(islice(rows, SCAN_BATCH_ROWS)):
                keys, values = zip(*chunk, strict=True)
                yield self._shaped(decoder.batch(partition.values, keys, values))

    @property
    def _value_names(self) -> set[str]:
        return {column.name for column in self.table.schema.value_columns}

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Visible rows, with exactly the columns and types that Spark was told of: it compares them."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark.sql.pandas.types import to_arrow_schema

        hidden = batch.column(batch.schema.get_field_index(HIDDEN_COLUMN))
        if pc.any(hidden).as_py():
            batch = batch.filter(pc.invert(hidden))
        target = to_arrow_schema(self.spark_schema, timezone="UTC")
        arrays = [batch.column(name).cast(field.type) for name, field in zip(self.names, target, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=target)


class _Pushing:
    """`pushFilters` of a reader, in a form that Spark does not take for one while its setting is off.

    With the setting off, Spark refuses to read at all through a reader that has its own `pushFilters`; it looks at the
    function of the method. With the setting on, it calls whatever is there.
    """

    def __init__(self, reader: StelaeReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


def _opened(options: Mapping[str, str]) -> tuple[Table, Snapshot]:
    """Table and snapshot that the options name; the table's schema is the snapshot's or a newer one."""
    unknown = [name for name in options if name.lower() not in READ_OPTIONS]
    if unknown:
        raise InvalidRequest(
            f"format stelae has no option {', '.join(unknown)}",
            place="option",
            hint="its options are warehouse, table, snapshot; those of object stores are read from the environment",
        )
    warehouse, name = options.get("warehouse"), options.get("path") or options.get("table")
    if not warehouse:
        raise InvalidRequest("no warehouse", place="option", hint='.option("warehouse", "s3://bucket/folder")')
    if not name:
        raise InvalidRequest("no table", place="option", hint='.load("database.table")')
    number = options.get("snapshot")
    if number is not None and not number.isdigit():
        raise InvalidRequest(f"{number!r} is no number of a snapshot", place="snapshot")
    table = Warehouse(warehouse).table(name)
    snapshot = table.snapshots.read(None if number is None else int(number))
    return table.at_least(snapshot.schema_id), snapshot


def _checked_names(table: TableSchema, schema: StructType, name: str) -> list[str]:
    """The columns that Spark wants, in its order; InvalidRequest for one that the table has not, or in another type."""
    names = []
    for field in schema.fields:
        column = table.column(field.name)
        if _plain(field.dataType.simpleString()) != _plain(as_arrow_has_it(column.type).spark()):
            raise InvalidRequest(
                f"column {field.name} of {name} is {column.type.sql_name()}, not {field.dataType.simpleString()}",
                place=field.name,
                hint=f"in .schema(...): {field.name} {as_arrow_has_it(column.type).spark()}; cast it afterwards",
            )
        names.append(column.name)
    return names


def _plain(spark_type: str) -> str:
    """A spelling of a type of Spark that types of the same values share."""
    return re.sub(r"[\s`]|not null", "", spark_type.lower())


def _check_rocksdict() -> None:
    try:
        import stelae.rocksdb.tablet  # noqa: F401
    except ImportError as exc:
        raise Unavailable(
            f"a table's files can't be read here: {exc}",
            hint="drivers and executors need: python -m pip install 'stelae[builder]'",
        ) from exc
