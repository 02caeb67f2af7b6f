"""Options of the tablet server, each declared once: default, unit, consequence.

`stelae serve` has its flags from here, and docs/serving.md its table (`make docs`).

What builder and server must agree on (bucket counts, merge rules, formats) is no option of the server: it is written
in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stelae.declared_options import check_limits, option
from stelae.errors import InvalidRequest
from stelae.units import MIB


@dataclass(frozen=True)
class ServerOptions:
    """How one tablet server runs."""

    host: str = option(
        "127.0.0.1",
        "Address to listen on. `0.0.0.0` takes requests from other machines; put what authenticates before it.",
    )
    port: int = option(8000, "Port to listen on. `0`: a free one, named in the line that is printed at the start.")
    workers: int = option(
        1,
        "Processes that answer on the port: about one for each core. The first one, which does all but lookups by "
        "itself, passes connections on to the others, evenly. The block cache is divided among them.",
        unit="processes",
        least=1,
    )
    tables: tuple[str, ...] = option(
        (),
        "Tables to serve; they must exist. None named: all of the warehouse, also those that are created later.",
        shown="all",
        flag="--table",
        value="TABLE",
    )
    poll_interval_s: float = option(
        1.0,
        "How often the warehouse is asked for new tables and snapshots. Shorter: a new snapshot is served sooner; "
        "longer: fewer requests to the storage (a listing of the tables, and three small ones for each).",
        unit="seconds",
        least=0.01,
    )
    block_cache_bytes: int = option(
        256 * MIB,
        "RocksDB block cache, shared by all tables. Larger: fewer blocks are read and decompressed again; more memory.",
        unit="bytes",
        shown="256 MiB",
        least=0,
    )
    hash_index_bytes: int = option(
        2048 * MIB,
        "Room for hash indexes, below the data folder: copies of the rows of partitions that batches ask for, by which "
        "a batch takes a tenth of the time. They are mapped into memory, as much as the system has free. Made in the "
        "background; a partition that does not fit into what is left is answered by RocksDB. 0: none.",
        unit="bytes",
        shown="2 GiB",
        least=0,
    )
    data_folder: Path | None = option(
        None,
        "Where open tablets have their folders. On the file system of a local warehouse files are linked, unless they "
        "are read-only; elsewhere they are copied. Emptied at the end, and at the next start after a crash.",
        shown="`.serving` in a local warehouse that can be written, else a temporary folder",
        value="FOLDER",
    )
    max_body_bytes: int = option(
        16 * MIB,
        "Largest request body; a larger one gets 413. A body is parsed in one go, and nothing else is answered "
        "meanwhile: about 5 ms a MiB.",
        unit="bytes",
        shown="16 MiB",
        least=1,
    )
    max_batch_keys: int = option(100_000, "Most keys in one batch lookup; more get 413.", unit="keys", least=1)
    max_page_rows: int = option(
        10_000, "Highest `limit` of a prefix lookup; a higher one gets 413.", unit="rows", least=1
    )
    max_parallel_loads: int = option(
        2,
        "Tables that load at a time. More: a start with many tables is faster; reads wait longer for a core meanwhile.",
        unit="tables",
        least=1,
    )
    load_threads: int = option(
        2, "Files of one table that are fetched and verified at a time.", unit="threads", least=1
    )
    separate_loads: bool = option(
        True,
        "Snapshots that come while the server runs are prepared by another process, of low priority, so that requests "
        "do not wait for it. Off: that process's memory (some 30 MB) is saved, and lookups stall now and then "
        "while a snapshot loads: 10 to 50 ms a bucket.",
    )
    kept_snapshots: int = option(
        1,
        "Replaced snapshots that stay open for requests that pin them. Each holds its files on disk; and in memory the "
        "index and filter blocks of those that it does not share.",
        unit="snapshots a table",
        least=0,
    )
    pinned_snapshots: int = option(
        2,
        "Others that stay open as long as somebody pins them. One that is retained on storage is opened when it is "
        "pinned. While so many are in use, a pin on one more gets 503.",
        unit="snapshots a table",
        least=0,
    )
    pin_idle_s: float = option(
        600.0,
        "How long after the last request that pinned it such a snapshot stays open. Longer than the pauses between the "
        "requests of a job.",
        unit="seconds",
        least=0,
    )
    online_writes: bool = option(
        True,
        "Whether this server takes online writes: insert-if-not-exists. It then owns the tables that are written to, "
        "one server a table; others on the same warehouse serve reads of their snapshots. Off: it never owns a table.",
    )
    take_over: bool = option(
        False,
        "At the start, take the tables that have online writes from another server that owns them and lives. That one "
        "can acknowledge nothing from then on. Tables whose owner is gone are taken without being asked.",
    )
    name: str = option(
        "",
        "What this server is called as the owner of tables. After a restart under the same name it goes on with the "
        "ids it had claimed.",
        shown="host name and port",
        value="NAME",
    )
    advertise_url: str = option(
        "",
        "Where builds and clients reach this server, if not under the address that it listens on: behind a proxy, in a "
        "container.",
        shown="from --host and --port",
        value="URL",
    )
    hot_rows: int = option(
        1_000_000,
        "Rows that insert-if-not-exists keeps in memory as JSON, so that keys that are asked for again and again "
        "cost next to nothing: about 250 bytes each. For each of the two selections of columns that came last.",
        unit="rows a table",
        least=0,
    )
    drain_s: float = option(
        0.0,
        "How long requests are still taken after SIGTERM, while `/readyz` says 503 already. Behind a load balancer: "
        "as long as it needs to notice.",
        unit="seconds",
        least=0,
    )
    shutdown_grace_s: float = option(
        20.0,
        "How long requests in flight may take after that. Then they are cut off and the server exits.",
        unit="seconds",
        least=0,
    )

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidRequest(f"option port cannot be {self.port!r}: a port is 0 to 65535", place="option port")
        check_limits(self)


DEFAULTS = ServerOptions()
