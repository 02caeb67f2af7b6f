"""Ids from the server that owns the table: a build mints none for keys that this server could be asked for.

    rows without an id, in batches       of partitions that the parent has
      → insert-if-not-exists             found there or inserted, the answer has the id      executors
      → the same rows, with ids

The server has the last word on a key as soon as it serves a snapshot with the key's partition. So it has to serve the
parent, or a newer one, before it is asked (`wait_until_served`): then what it does not find is nowhere. A partition
that is new in this build is another matter. No server can serve it before the build is committed; if somebody else
commits it first, the build gets Conflict. So the ids of its keys are the build's to claim, as without a server.

To ask again for the same keys gives the same ids: tasks and requests can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stelae.client.client import Client
from stelae.errors import Conflict, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.ownership.epochs import Epoch
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.manifest import Snapshot
from stelae.waiting import while_unavailable

if TYPE_CHECKING:
    import pyarrow as pa

SERVER_WAIT_S = 60.0
"""How long a server may take to serve the parent, or to come back."""
SERVER_PAUSE_S = 0.5
REQUEST_TIMEOUT_S = 60.0


def wait_until_served(server: Epoch, table: str, parent: Snapshot | None) -> None:
    """Return when the server serves the parent or a newer snapshot. Unavailable when it does not in time."""
    if parent is None:
        return
    with Client(_url(server), timeout_s=REQUEST_TIMEOUT_S) as client:

        def check_served() -> None:
            served = client.describe(table).snapshot or 0
            if served < parent.id:
                raise Unavailable(
                    f"{server} owns the table and serves snapshot {served}; the newest is {parent.id}",
                    place=table,
                    hint="it has to load that before ids can be asked for: its log says what keeps it; or stop it, and "
                    "the build mints the ids",
                )

        while_unavailable(check_served, wait_s=SERVER_WAIT_S, max_pause_s=SERVER_PAUSE_S)


def acknowledged(server: Epoch, table: str) -> int:
    """Records of the log below this offset are durable, the server says: it has told its clients. 0 if it can't be
    asked, or does not own the table any more.
    """
    try:
        with Client(_url(server), timeout_s=REQUEST_TIMEOUT_S) as client:
            writes = client.describe(table).details.get("writes") or {}
    except StelaeError:
        return 0
    return int(writes.get("log_offset") or 0) if writes.get("epoch") == server.number else 0


def _url(server: Epoch) -> str:
    if server.url is None:
        raise ValueError(f"{server} has no URL")
    return server.url


@dataclass(frozen=True)
class AskOwner:
    """Fills in ids. Runs on executors, in front of the writer, on its rows; pickled with the task."""

    schema: TableSchema
    table: str
    server: Epoch
    partitions: Mapping[int, tuple[Any, ...]]
    """Ordinals of the buckets whose rows are asked for, with the values of their partition columns as JSON."""
    at_id: int
    """Position of the auto-increment column in the rows; that of the hidden column is `at_hidden`."""
    at_hidden: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Client(_url(self.server), timeout_s=REQUEST_TIMEOUT_S) as client:
            for batch in batches:
                yield self._filled(batch, client)

    def _filled(self, batch: pa.RecordBatch, client: Client) -> pa.RecordBatch:
        import pyarrow as pa

        column = batch.column(self.at_id)
        hidden = batch.column(self.at_hidden).to_numpy(zero_copy_only=False)
        ordinals = batch.column(0).to_numpy()
        lacking = column.is_null().to_numpy(zero_copy_only=False) & ~hidden
        lacking &= np.isin(ordinals, np.fromiter(self.partitions, np.int64, len(self.partitions)))
        rows = np.flatnonzero(lacking)
        if not len(rows):
            return batch
        ids = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        ids[rows] = self._ask(self._keys(batch, rows), client)
        columns = batch.columns
        columns[self.at_id] = pa.array(ids, column.type, mask=ids == 0)
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _keys(self, batch: pa.RecordBatch, rows: np.ndarray) -> list[dict[str, Any]]:
        """The keys of some rows as mappings of Python values."""
        import pyarrow as pa

        from stelae.encoding.partitions import partition_to_python

        schema = self.schema
        ordinals = batch.column(0).to_numpy()[rows].tolist()
        partitions = {
            ordinal: partition_to_python(schema.partition_columns, self.partitions[ordinal])
            for ordinal in set(ordinals)
        }
        names = [column.name for column in schema.key_columns]
        chosen = batch.take(pa.array(rows))
        try:
            values = [chosen.column(1 + index).to_pylist() for index in range(len(names))]
        except (ValueError, OverflowError) as exc:
            raise InvalidRequest(
                f"a key can't be sent to {self.server}: {exc}",
                place=", ".join(names),
                hint="stop the server: then the build mints the ids",
            ) from exc
        whole = (*schema.partition_keys, *names)
        keys = zip(*values, strict=True)
        return [
            dict(zip(whole, partitions[ordinal] + key, strict=True))
            for ordinal, key in zip(ordinals, keys, strict=True)
        ]

    def _ask(self, keys: list[dict[str, Any]], client: Client) -> list[int]:
        """The ids of keys. A server that is away for a moment is waited for; one that lost the table is not."""
        name = self.schema.options.auto_increment_fields[0]
        try:
            rows = while_unavailable(
                lambda: client.insert_if_not_exists(self.table, keys, columns=[name]),
                wait_s=SERVER_WAIT_S,
                max_pause_s=SERVER_PAUSE_S,
            )
        except (Conflict, NotFound) as exc:
            raise Conflict(
                f"{self.server} owned the table when the build began, and does not now: {exc.message}",
                place=self.table,
                hint="nothing was committed; build again",
            ) from exc
        ids = [None if row is None else row[name] for row in rows]
        missing = next((key for key, number in zip(keys, ids, strict=True) if number is None), None)
        if missing is not None:
            raise Unavailable(
                f"{self.server} has no id for the key {missing}: it does not serve the key's partition",
                place=self.table,
                hint="nothing was committed; build again, or stop the server: then the build mints the ids",
            )
        return [int(number) for number in ids if number is not None]
