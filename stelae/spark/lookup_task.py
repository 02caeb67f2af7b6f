"""What a lookup does in a Python worker, once a task: batches of keys in, batches of rows out, in the same order.

    batches ──► entries in the cache ──► window ────────────────────────► rows taken, handed on
                    │ new keys                                               ▲
                    ▼                                                        │ answered up to the batch's last entry
                pending ──► requests of batch_size keys, some in flight ──► cache

Reading, asking and handing on overlap: a batch whose keys are not all answered waits in the window while others are
read behind it. How much waits is bounded, in rows: `HELD_ROWS`. So new keys of many small batches make one request, and
a batch that knows all of its keys costs no request at all.

A request is repeated until its deadline while the server is away or says that it is not ready: a job outlives a restart
of the server. All requests of a job name the same snapshot. Runs on executors; `LookupTask` is pickled with the tasks.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stelae.encoding.arrow import arrow_type
from stelae.errors import NotFound, StelaeError, Unavailable
from stelae.spark.answer_cache import NO_KEY, CachedKeys, Generation, keep, take_kept
from stelae.spark.append_column import bools
from stelae.spark.errors import raise_marked
from stelae.spark.servers import Servers, retries_of_clients
from stelae.spark.stats import Counts
from stelae.waiting import while_unavailable
from stelae.wire import http_api as wire
from stelae.wire.arrow_stream import one_array

if TYPE_CHECKING:
    from stelae.client.client import Client
    from stelae.schema.table_schema import Column

HELD_ROWS = 262_144
"""Rows of a task that may wait for answers; they wait in the memory of the JVM, only their keys are here."""

FOUND_COLUMN = "__stelae_found"
PREFIX_INDEX_COLUMN = "__stelae_prefix"


@dataclass(frozen=True)
class LookupTask:
    """One lookup of a job."""

    servers: Servers
    table: str
    snapshot: int | None
    """All rows come from this one; None where rows are inserted."""
    on: tuple[Column, ...]
    """Key columns, in the order of the arguments."""
    columns: tuple[Column, ...]
    """What is looked up."""
    batch_size: int
    max_in_flight: int
    cache_bytes: int
    single: bool = False
    """The column itself, not a struct of one."""
    prefix: bool = False
    """All rows whose key starts with the values: an array of structs."""
    insert: bool = False
    job: str = ""
    """Tells lookups apart that look the same: an answer is remembered within one."""
    counts: Any = field(default=None, compare=False)
    """Spark's accumulator of Counts, where there is one."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[pa.Array]:
        retries = -retries_of_clients()
        run = _Run(self)
        try:
            yield from run(batches)
        except StelaeError as error:
            raise_marked(error)
        finally:
            run.close()
            run.counts.retries += retries + retries_of_clients()
            if self.counts is not None:
                self.counts.add(run.counts)

    @cached_property
    def output_types(self) -> tuple[list[pa.DataType], list[pa.Field]]:
        """Types of the columns that are remembered, and the fields of a row."""
        fields = [pa.field(column.name, arrow_type(column.type)) for column in self.columns]
        types = [pa.list_(pa.struct(fields))] if self.prefix else [each.type for each in fields]
        return types, fields

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "output_types"}

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.job, self.servers.urls, self.table, self.snapshot, self.on, self.columns)


@dataclass
class _Waiting:
    """A batch in the window."""

    generation: Generation
    entries: npt.NDArray[np.int32]
    needs: int
    """The batch can be handed on when so many entries are answered."""


class _Run:
    """One task."""

    def __init__(self, lookup: LookupTask) -> None:
        self.lookup = lookup
        self.counts = Counts(tasks=1)
        self._keys = CachedKeys(lookup.on, refuse_too_wide=lookup.insert)
        self._types, self._fields = lookup.output_types
        self._generation = take_kept(lookup.identity) or self._new_generation()
        self._pending: list[list[pa.Array]] = []
        self._pending_rows = 0
        self._window: deque[_Waiting] = deque()
        self._held_rows = 0
        self._in_flight: deque[tuple[Future[Any], Generation]] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._server = os.getpid()
        self._asked_s = 0.0

    def __call__(self, batches: Iterator[Any]) -> Iterator[pa.Array]:
        started = time.perf_counter()
        for batch in batches:
            self._read(batch if isinstance(batch, tuple) else (batch,))
            yield from self._ready(most_held=HELD_ROWS)
        yield from self._ready(most_held=0)
        if self.lookup.cache_bytes:
            keep(self.lookup.identity, self._generation, self.lookup.cache_bytes)
        self.counts.seconds += time.perf_counter() - started

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # Keys

    def _new_generation(self) -> Generation:
        return Generation(self._keys.new_index(), self._types)

    def _read(self, arrays: Sequence[pa.Array]) -> None:
        """A batch goes into the window, its new keys to those that are asked for."""
        rows = len(arrays[0])
        conformed, valid = self._keys.of(arrays)
        generation = self._generation
        entries, added = self._keys.find_or_add(generation.index, conformed)
        if valid is not None:
            every = np.full(rows, NO_KEY, np.int32)
            every[valid] = entries
            self.counts.null_keys += rows - len(entries)
            entries = every
        self.counts.rows += rows
        if len(added):
            chosen = pa.array(added)
            self._pending.append([array.take(chosen) for array in conformed])
            self._pending_rows += len(added)
            self.counts.keys_asked += len(added)
        self._window.append(_Waiting(generation, entries, generation.index.count))
        self._held_rows += rows
        limit = self.lookup.cache_bytes
        if not limit:
            if self._pending_rows >= self.lookup.batch_size:
                self._start_again()
            return
        while self._pending_rows >= self.lookup.batch_size:
            self._send(self.lookup.batch_size)
        if generation.nbytes > limit or generation.full:
            self._start_again()
            self.counts.evictions += 1

    def _start_again(self) -> None:
        """An empty generation for the batches to come."""
        while self._pending_rows:
            self._send(self.lookup.batch_size)
        self._generation = self._new_generation()

    # Requests

    def _send(self, most: int) -> None:
        """One request, of at most so many of the keys that are pending."""
        while len(self._in_flight) >= self.lookup.max_in_flight:
            self._collect()
        columns = [pa.concat_arrays(arrays) for arrays in zip(*self._pending, strict=True)]
        left = self._pending_rows - most
        self._pending = [[column.slice(most) for column in columns]] if left > 0 else []
        self._pending_rows = max(left, 0)
        request = pa.table([column.slice(0, most) for column in columns], names=self._keys.names)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.lookup.max_in_flight, "stelae-lookup")
        self._in_flight.append((self._pool.submit(self._ask, request), self._generation))

    def _collect(self) -> None:
        """Wait for the oldest request."""
        future, generation = self._in_flight.popleft()
        waited = time.perf_counter()
        columns, found, retries, seconds = future.result()
        self.counts.waited_s += time.perf_counter() - waited
        self.counts.asked_s += seconds
        self.counts.requests += 1
        self.counts.retries += retries
        generation.add(columns, found)

    def _ask(self, keys: pa.Table) -> tuple[list[pa.Array], npt.NDArray[np.bool_], int, float]:
        """The answer of a request, as columns to remember. Runs in a thread."""
        started = time.perf_counter()
        lookup, servers = self.lookup, self.lookup.servers
        retries = -1

        def ask_next() -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
            nonlocal retries
            retries += 1
            server = self._server
            try:
                return self._ask_once(servers.client(server), keys)
            except Unavailable:
                self._server = server + 1  # Another thread may have moved on meanwhile.
                raise

        try:
            columns, found = while_unavailable(ask_next, wait_s=servers.deadline_s)
        except Unavailable as exc:
            raise Unavailable(
                f"no answer for {servers.deadline_s:g} s: {exc.message}",
                place=exc.place,
                hint=f"{exc.hint}; deadline_s says how long to wait",
            ) from exc
        except NotFound as exc:
            if lookup.snapshot is None or exc.place != wire.SNAPSHOT_HEADER:
                raise
            raise NotFound(
                f"snapshot {lookup.snapshot} of {lookup.table} is gone while the job reads it: {exc.message}",
                place=lookup.table,
                hint="start the job again: it takes the newest snapshot; 'snapshot.num-retained' keeps old ones",
            ) from exc
        return columns, found, retries, time.perf_counter() - started

    def _ask_once(self, client: Client, keys: pa.Table) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        lookup = self.lookup
        names = [column.name for column in lookup.columns]
        if lookup.prefix:
            return self._prefixes(
                client.prefix_lookup_many(
                    lookup.table, keys, columns=names, snapshot=lookup.snapshot, prefix_index=PREFIX_INDEX_COLUMN
                ),
                keys.num_rows,
            )
        if lookup.insert:
            answer = client.insert_if_not_exists(lookup.table, keys, columns=names, found=FOUND_COLUMN)
        else:
            answer = client.lookup_many(lookup.table, keys, columns=names, snapshot=lookup.snapshot, found=FOUND_COLUMN)
        return [one_array(answer[name]) for name in names], bools(one_array(answer[FOUND_COLUMN]))

    def _prefixes(self, rows: pa.Table, count: int) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        """Rows that say which prefix they are of, as a list a prefix; null where there is none."""
        counts = np.bincount(one_array(rows[PREFIX_INDEX_COLUMN]).to_numpy(), minlength=count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        structs = pa.StructArray.from_arrays(
            [one_array(rows[field.name]) for field in self._fields], fields=self._fields
        )
        return [pa.ListArray.from_arrays(pa.array(offsets), structs)], counts > 0

    # Rows

    def _ready(self, most_held: int) -> Iterator[pa.Array]:
        """Hand on what is answered; wait only while more than so many rows are held."""
        while self._window:
            head = self._window[0]
            if head.needs > head.generation.answered:
                if self._in_flight and (self._in_flight[0][0].done() or self._held_rows > most_held):
                    self._collect()
                elif self._held_rows > most_held:
                    self._send(self.lookup.batch_size)
                    if not self.lookup.cache_bytes:
                        self._start_again()
                else:
                    return
                continue
            self._window.popleft()
            self._held_rows -= len(head.entries)
            yield self._output(head)

    def _output(self, batch: _Waiting) -> pa.Array:
        columns, found = batch.generation.rows(batch.entries)
        self.counts.found += int(found.sum())
        if self.lookup.single or self.lookup.prefix:
            return columns[0]
        mask = None if found.all() else pa.array(~found)
        return pa.StructArray.from_arrays(columns, fields=self._fields, mask=mask)
