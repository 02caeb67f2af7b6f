"""Options of the tablet server, each declared once: default, unit, consequence.

    ServerOptions        the values; checked when they are made
    SERVER_OPTIONS       the declarations, in order: `stelae serve --help` and docs/serving.md are printed from them

What builder and server must agree on (bucket counts, merge rules, formats) is no option of the server: it is written
in the table.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stelae.errors import InvalidRequest
from stelae.units import MIB


@dataclass(frozen=True, slots=True)
class ServerOption:
    """One declaration."""

    name: str
    default: str
    unit: str
    does: str

    @property
    def flag(self) -> str:
        """How it is spelled on the command line."""
        return FLAGS.get(self.name, "--" + self.name.replace("_", "-"))


FLAGS = {
    "tables": "--table",
    "poll_interval_s": "--poll-interval",
    "pin_idle_s": "--pin-idle",
    "drain_s": "--drain",
    "separate_loads": "--separate-loads/--no-separate-loads",
    "online_writes": "--online-writes/--no-online-writes",
    "shutdown_grace_s": "--shutdown-grace",
}
"""Flags that are not the field's own name."""


def _option(default: Any, does: str, *, unit: str = "", shown: str | None = None) -> Any:
    return field(
        default=default, metadata={"does": does, "unit": unit, "shown": str(default) if shown is None else shown}
    )


@dataclass(frozen=True)
class ServerOptions:
    """How one tablet server runs."""

    host: str = _option(
        "127.0.0.1",
        "Address to listen on. `0.0.0.0` takes requests from other machines; put what authenticates before it.",
    )
    port: int = _option(8000, "Port to listen on. `0`: a free one, named in the line that is printed at the start.")
    workers: int = _option(
        1,
        "Processes that answer on the port: about one for each core. The first one, which does all but lookups by "
        "itself, passes connections on to the others, evenly. The block cache is divided among them.",
        unit="processes",
    )
    tables: tuple[str, ...] = _option(
        (),
        "Tables to serve; they must exist. None named: all of the warehouse, also those that are created later.",
        shown="all",
    )
    poll_interval_s: float = _option(
        1.0,
        "How often the warehouse is asked for new tables and snapshots. Shorter: a new snapshot is served sooner; "
        "longer: fewer requests to the storage (a listing of the tables, and three small ones for each).",
        unit="seconds",
    )
    block_cache_bytes: int = _option(
        256 * MIB,
        "RocksDB block cache, shared by all tables. Larger: fewer blocks are read and decompressed again; more memory.",
        unit="bytes",
        shown="256 MiB",
    )
    hash_index_bytes: int = _option(
        2048 * MIB,
        "Room for hash indexes, below the data folder: copies of the rows of partitions that batches ask for, by which "
        "a batch takes a tenth of the time. They are mapped into memory, as much as the system has free. Made in the "
        "background; a partition that does not fit into what is left is answered by RocksDB. 0: none.",
        unit="bytes",
        shown="2 GiB",
    )
    data_folder: Path | None = _option(  # noqa: RUF009
        None,
        "Where open tablets have their folders. On the file system of a local warehouse files are linked, unless they "
        "are read-only; elsewhere they are copied. Emptied at the end, and at the next start after a crash.",
        shown="`.serving` in a local warehouse that can be written, else a temporary folder",
    )
    max_body_bytes: int = _option(
        16 * MIB,
        "Largest request body; a larger one gets 413. A body is parsed in one go, and nothing else is answered "
        "meanwhile: about 5 ms a MiB.",
        unit="bytes",
        shown="16 MiB",
    )
    max_batch_keys: int = _option(100_000, "Most keys in one batch lookup; more get 413.", unit="keys")
    max_page_rows: int = _option(10_000, "Highest `limit` of a prefix lookup; a higher one gets 413.", unit="rows")
    max_parallel_loads: int = _option(
        2,
        "Tables that load at a time. More: a start with many tables is faster; reads wait longer for a core meanwhile.",
        unit="tables",
    )
    load_threads: int = _option(
        2,
        "Files of one table that are fetched and verified at a time.",
        unit="threads",
    )
    separate_loads: bool = _option(
        True,
        "Snapshots that come while the server runs are prepared by another process, of low priority, so that requests "
        "do not wait for it. Off: that process's memory (some 30 MB) is saved, and lookups stall now and then "
        "while a snapshot loads: 10 to 50 ms a bucket.",
        shown="on",
    )
    kept_snapshots: int = _option(
        1,
        "Replaced snapshots that stay open for requests that pin them. Each holds its files on disk; and in memory the "
        "index and filter blocks of those that it does not share.",
        unit="snapshots a table",
    )
    pinned_snapshots: int = _option(
        2,
        "Others that stay open as long as somebody pins them. One that is retained on storage is opened when it is "
        "pinned. While so many are in use, a pin on one more gets 503.",
        unit="snapshots a table",
    )
    pin_idle_s: float = _option(
        600.0,
        "How long after the last request that pinned it such a snapshot stays open. Longer than the pauses between the "
        "requests of a job.",
        unit="seconds",
    )
    online_writes: bool = _option(
        True,
        "Whether this server takes online writes: insert-if-not-exists. It then owns the tables that are written to, "
        "one server a table; others on the same warehouse serve reads of their snapshots. Off: it never owns a table.",
        shown="on",
    )
    take_over: bool = _option(
        False,
        "At the start, take the tables that have online writes from another server that owns them and lives. That one "
        "can acknowledge nothing from then on. Tables whose owner is gone are taken without being asked.",
        shown="off",
    )
    name: str = _option(
        "",
        "What this server is called as the owner of tables. After a restart under the same name it goes on with the "
        "ids it had claimed.",
        shown="host name and port",
    )
    advertise_url: str = _option(
        "",
        "Where builds and clients reach this server, if not under the address that it listens on: behind a proxy, in a "
        "container.",
        shown="from --host and --port",
    )
    hot_rows: int = _option(
        1_000_000,
        "Rows that insert-if-not-exists keeps in memory as JSON, so that keys that are asked for again and again "
        "cost next to nothing: about 250 bytes each. For each of the two selections of columns that came last.",
        unit="rows a table",
    )
    drain_s: float = _option(
        0.0,
        "How long requests are still taken after SIGTERM, while `/readyz` says 503 already. Behind a load balancer: "
        "as long as it needs to notice.",
        unit="seconds",
    )
    shutdown_grace_s: float = _option(
        20.0,
        "How long requests in flight may take after that. Then they are cut off and the server exits.",
        unit="seconds",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise _refused("port", self.port, "a port is 0 to 65535")
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:
                raise _refused(name, getattr(self, name), f"at least {least}")


_LEAST: dict[str, float] = {
    "workers": 1,
    "poll_interval_s": 0.01,
    "block_cache_bytes": 0,
    "hash_index_bytes": 0,
    "max_body_bytes": 1,
    "max_batch_keys": 1,
    "max_page_rows": 1,
    "max_parallel_loads": 1,
    "load_threads": 1,
    "kept_snapshots": 0,
    "pinned_snapshots": 0,
    "pin_idle_s": 0,
    "hot_rows": 0,
    "drain_s": 0,
    "shutdown_grace_s": 0,
}

SERVER_OPTIONS: Sequence[ServerOption] = tuple(
    ServerOption(part.name, part.metadata["shown"], part.metadata["unit"], part.metadata["does"])
    for part in dataclasses.fields(ServerOptions)
)
DEFAULTS = ServerOptions()


def describe(name: str) -> str:
    """What an option does, on one line, for `--help`."""
    option = next(option for option in SERVER_OPTIONS if option.name == name)
    return option.does + (f" In {option.unit}." if option.unit else "")


def options_page() -> str:
    """The table of docs/serving.md."""
    lines = ["| option | default | unit | what it does |", "| --- | --- | --- | --- |"]
    lines += [f"| `{o.flag}` | {o.default} | {o.unit} | {o.does} |" for o in SERVER_OPTIONS]
    return "\n".join(lines) + "\n"


def _refused(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"option {name} cannot be {value!r}: {expected}", place=f"option {name}")


if __name__ == "__main__":
    sys.stdout.write(options_page())
