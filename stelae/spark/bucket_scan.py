"""Rows of a snapshot read from its files, for Spark: what builds start from, and what `format("stelae")` gives.

    bucket's sorted files ──open_bucket──► tablet ──scan──► keys and rows ──StoredRowDecoder──► Arrow batches

No server is asked. Runs on executors, which open the files of a bucket in a folder of their own; no Spark in here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stelae.schema import types as t
from stelae.schema.table_schema import Column, TableSchema
from stelae.snapshot.warehouse import Table
from stelae.spark.column_types import HIDDEN_COLUMN, as_arrow_has_it

if TYPE_CHECKING:
    import pyarrow as pa

    from stelae.encoding.keys import KeyCodec
    from stelae.encoding.row_reader import RowReader
    from stelae.rocksdb.tablet import Tablet
    from stelae.storage.storage import Storage

SCAN_BATCH_ROWS = 16_384
"""Rows that are decoded at a time."""


@dataclass(frozen=True)
class StoredRowDecoder:
    """Keys and rows as they are stored, made columns. Pickled with the tasks that read."""

    table: Table
    schema: TableSchema
    state: tuple[Column, ...] = ()
    only: tuple[str, ...] | None = None
    """Value columns to decode; None: all."""

    @property
    def columns(self) -> list[Column]:
        return [*self.schema.partition_columns, *self.schema.key_columns, *self._values, *self.state]

    @property
    def _values(self) -> list[Column]:
        return [c for c in self.schema.value_columns if self.only is None or c.name in self.only]

    @property
    def ddl(self) -> str:
        """The columns as Spark sees them, and `__stelae_hidden`."""
        columns = [f"{t.quote_name(c.name)} {as_arrow_has_it(c.type).spark()}" for c in self.columns]
        return ", ".join([*columns, f"{HIDDEN_COLUMN} BOOLEAN"])

    @cached_property
    def _codecs(self) -> tuple[KeyCodec, RowReader, pa.Schema]:
        import pyarrow as pa

        from stelae.encoding.arrow import arrow_schema
        from stelae.encoding.keys import KeyCodec
        from stelae.encoding.row_reader import RowReader

        arrow = arrow_schema(self.columns)
        out = pa.schema([*(pa.field(field.name, field.type) for field in arrow), pa.field(HIDDEN_COLUMN, pa.bool_())])
        return KeyCodec(self.schema.key_columns), RowReader(self.table.schemas, self.schema), out

    def batch(self, partition: Sequence[object], keys: Sequence[bytes], rows: Sequence[bytes]) -> pa.RecordBatch:
        """Rows of one partition; its values are those of the manifest."""
        import pyarrow as pa

        from stelae.encoding.arrow import arrow_type
        from stelae.encoding.partitions import partition_to_python
        from stelae.encoding.row_header import hidden_mask

        key_codec, row_reader, schema = self._codecs
        values = [column.name for column in (*self._values, *self.state)]
        key_bytes, row_bytes = pa.array(keys, pa.binary()), pa.array(rows, pa.binary())
        columns = self.schema.partition_columns
        constants = [
            pa.repeat(pa.scalar(value, arrow_type(column.type)), len(keys))
            for column, value in zip(columns, partition_to_python(columns, partition), strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [
                *constants,
                *key_codec.decode_batch(key_bytes),
                *row_reader.decode_batch(row_bytes, values),
                pa.array(hidden_mask(row_bytes)),
            ],
            schema=schema,
        )


@contextmanager
def open_bucket(storage: Storage, files: Sequence[str]) -> Iterator[Tablet]:
    """The tablet of a bucket, in a folder of its own on this machine, as long as the block runs."""
    from stelae.rocksdb.block_cache import BlockCache
    from stelae.rocksdb.tablet import Tablet
    from stelae.units import MIB

    folder = Path(tempfile.mkdtemp(prefix="stelae-read-"))
    try:
        tablet = Tablet.open(folder / "db", _local_files(storage, files, folder), BlockCache(8 * MIB))
        try:
            yield tablet
        finally:
            tablet.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local_files(storage: Storage, paths: Sequence[str], folder: Path) -> list[Path]:
    files = []
    for index, path in enumerate(paths):
        local = storage.local_path(path)
        if local is None:
            local = folder / f"{index:06d}.sst"
            storage.download(path, local)
        files.append(local)
    return files
