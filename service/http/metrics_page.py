"""The page that Prometheus reads: what was counted, and how tables are, as families with names and labels.

    TableCounts, ServerCounts, WorkerCounts ─┐
    ServedTable, TableWriter ────────────────┴─► Metrics.collect ─► `/metrics`, at each scrape

The metrics are listed in docs/serving.md#metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stelae.rocksdb.block_cache import BlockCache
from stelae.service.tables.counts import BOUNDS_S, OK, OPERATIONS, ServerCounts, TableCounts, WorkerCounts
from stelae.service.tables.served_table import ServedTable
from stelae.service.writes.table_writer import TableWriter


class Metrics(Collector):
    """Turns the counts into Prometheus' families, at each scrape."""

    def __init__(
        self,
        tables: Mapping[str, ServedTable],
        writers: Mapping[str, TableWriter],
        counts: ServerCounts,
        cache: BlockCache,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._tables = tables
        self._writers = writers
        self._counts = counts
        self._cache = cache
        self._wall_clock = wall_clock
        self._workers: Mapping[int, WorkerCounts] = {}
        self._restarts = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def page(self, workers: Mapping[int, WorkerCounts] | None = None, restarts: int = 0) -> bytes:
        """The text that `/metrics` answers. `workers` are the followers by number, `restarts` how often one of them was
        started again.
        """
        self._workers, self._restarts = workers or {}, restarts
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._loads()
        yield from self._snapshots()
        yield from self._writes()
        yield from self._server()
        if self._workers:
            yield from self._each_worker()

    def _of_all(self) -> dict[str, TableCounts]:
        """What all processes have counted, by table."""
        if not self._workers:
            return {name: table.counts for name, table in self._tables.items()}
        totals = {}
        for name, table in self._tables.items():
            total = totals[name] = TableCounts()
            total.add(table.counts)
            for worker in self._workers.values():
                if name in worker.tables:
                    total.add(worker.tables[name])
        return totals

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "stelae_requests", "Requests, by what became of them.", labels=["table", "operation", "outcome"]
        )
        keys = CounterMetricFamily("stelae_keys", "Keys that lookups asked for.", labels=["table", "result"])
        inserts = CounterMetricFamily(
            "stelae_insert_keys", "Keys that were to be inserted, by whether they were.", labels=["table", "result"]
        )
        of_all = self._of_all()
        for name, table in of_all.items():
            for operation, counts in table.operations.items():
                requests.add_metric([name, operation, OK], counts.ok)
                for outcome, number in counts.failed.items():
                    requests.add_metric([name, operation, outcome], number)
            keys.add_metric([name, "found"], table.found)
            keys.add_metric([name, "missing"], table.missing)
            inserts.add_metric([name, "inserted"], table.inserted)
            inserts.add_metric([name, "found"], table.insert_found)
        # Names of tables that are not served come from outside: as labels they would be without bound.
        requests.add_metric(["", "", "not-found"], self._counts.unknown_tables)
        yield requests
        yield keys
        yield inserts
        durations = HistogramMetricFamily(
            "stelae_request_duration_seconds",
            "From the request's head to its last byte, of answers.",
            labels=["operation"],
        )
        for operation in OPERATIONS:
            each = [table.operations[operation] for table in of_all.values()]
            numbers = [sum(column) for column in zip(*(counts.durations for counts in each), strict=True)] or [0]
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            durations.add_metric(
                [operation],
                buckets=[(bound, total) for bound, total in zip(bounds, accumulate(numbers), strict=False)],
                sum_value=sum(counts.seconds for counts in each),
            )
        yield durations

    def _loads(self) -> Iterator[Metric]:
        loads = CounterMetricFamily("stelae_loads", "Snapshots loaded and served.", labels=["table"])
        failures = CounterMetricFamily(
            "stelae_load_failures", "Attempts to load a snapshot that failed.", labels=["table"]
        )
        seconds = CounterMetricFamily("stelae_load_seconds", "Time of all loads.", labels=["table"])
        last = GaugeMetricFamily("stelae_last_load_seconds", "Time of the last load that succeeded.", labels=["table"])
        for name, table in self._tables.items():
            counts = table.counts
            loads.add_metric([name], counts.loads)
            failures.add_metric([name], counts.load_failures)
            seconds.add_metric([name], counts.load_seconds)
            last.add_metric([name], counts.last_load_seconds)
        yield from (loads, failures, seconds, last)

    def _snapshots(self) -> Iterator[Metric]:
        def gauge(name: str, text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(name, text, labels=["table"])

        states = GaugeMetricFamily(
            "stelae_table_state", "1 at the state that the table is in.", labels=["table", "state"]
        )
        failing = gauge("stelae_table_failing", "1 while the newest snapshot can't be loaded, served or not.")
        served = gauge("stelae_snapshot_id", "The snapshot that is served.")
        newest = gauge("stelae_newest_snapshot_id", "The newest snapshot on storage, as far as known.")
        age = gauge("stelae_snapshot_age_seconds", "Since the served snapshot was built.")
        rows = gauge("stelae_snapshot_rows", "Rows of the served snapshot, without hidden ones.")
        size = gauge("stelae_snapshot_bytes", "Size of the served snapshot's files.")
        indexed = gauge("stelae_hash_index_bytes", "Size of the served snapshot's hash indexes.")
        buckets = gauge("stelae_snapshot_buckets", "Buckets of the served snapshot, in all partitions.")
        kept = gauge("stelae_kept_snapshots", "Snapshots besides the current one that are open for pinned requests.")
        now = self._wall_clock()
        for name, table in self._tables.items():
            for state in type(table.state):
                states.add_metric([name, state], state is table.state)
            failing.add_metric([name], table.error is not None)
            if table.newest_id is not None:
                newest.add_metric([name], table.newest_id)
            serving = table.serving
            if serving is not None:
                snapshot = serving.reader.snapshot
                served.add_metric([name], snapshot.id)
                age.add_metric([name], max(0.0, now - snapshot.created_ms / 1000))
                rows.add_metric([name], snapshot.totals.visible_rows)
                size.add_metric([name], snapshot.totals.bytes)
                indexed.add_metric([name], serving.reader.hash_index_bytes)
                buckets.add_metric([name], sum(partition.bucket_count for partition in snapshot.partitions))
                kept.add_metric([name], len(serving.kept))
        yield from (states, failing, served, newest, age, rows, size, indexed, buckets, kept)

    def _writes(self) -> Iterator[Metric]:
        def gauge(name: str, text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(name, text, labels=["table"])

        owned = gauge("stelae_owned", "1 while this server owns the table: online writes are taken.")
        rows = gauge("stelae_online_rows", "Rows that were inserted online and are not in the served snapshot.")
        end = gauge("stelae_log_end", "Offset behind the last record of the log that counts.")
        covered = gauge("stelae_log_covered", "Records below it are in the served snapshot.")
        flushes = CounterMetricFamily("stelae_log_flushes", "Flushes of the log.", labels=["table"])
        for name, writer in self._writers.items():
            owner = writer.owner
            owned.add_metric([name], owner is not None)
            if owner is not None:
                rows.add_metric([name], 0 if owner.reader.online is None else len(owner.reader.online))
                end.add_metric([name], owner.applied)
                covered.add_metric([name], owner.reader.log_offset)
                flushes.add_metric([name], owner.group_commit.writer.flushes)
        yield from (owned, rows, end, covered, flushes)

    def _server(self) -> Iterator[Metric]:
        def gauge(name: str, text: str, value: float) -> Metric:
            return GaugeMetricFamily(name, text, value=value)

        workers = self._workers.values()
        in_flight = self._counts.in_flight + sum(worker.server.in_flight for worker in workers)
        cached = self._cache.usage_bytes() + sum(worker.cache_bytes for worker in workers)
        capacity = self._cache.capacity_bytes * (1 + len(workers))
        yield gauge("stelae_requests_in_flight", "Requests that are being answered.", in_flight)
        yield gauge("stelae_block_cache_bytes", "Blocks in RocksDB's block cache.", cached)
        yield gauge("stelae_block_cache_capacity_bytes", "Size of the block cache.", capacity)
        yield CounterMetricFamily(
            "stelae_poll_failures", "Looks at the warehouse that failed.", value=self._counts.poll_failures
        )
        yield gauge("stelae_last_poll_timestamp_seconds", "When the warehouse last answered.", self._counts.polled_at)

    def _each_worker(self) -> Iterator[Metric]:
        labels = ["worker"]
        requests = CounterMetricFamily("stelae_worker_requests", "Requests that this worker answered.", labels=labels)
        forwarded = CounterMetricFamily(
            "stelae_worker_forwarded", "Requests that this worker had worker 0 answer.", labels=labels
        )
        cpu = CounterMetricFamily("stelae_worker_cpu_seconds", "Time of processors that it took.", labels=labels)
        resident = GaugeMetricFamily("stelae_worker_resident_bytes", "Its memory.", labels=labels)
        connections = GaugeMetricFamily("stelae_worker_connections", "Its connections.", labels=labels)
        own = WorkerCounts({name: table.counts for name, table in self._tables.items()})
        requests.add_metric(["0"], own.requests)
        for number, worker in self._workers.items():
            requests.add_metric([str(number)], worker.requests)
            forwarded.add_metric([str(number)], worker.forwarded)
            cpu.add_metric([str(number)], worker.cpu_seconds)
            resident.add_metric([str(number)], worker.resident_bytes)
            connections.add_metric([str(number)], worker.connections)
        yield from (requests, forwarded, cpu, resident, connections)
        yield CounterMetricFamily("stelae_worker_restarts", "Workers that were started again.", value=self._restarts)
