"""The command `stelae serve`. Added to `stelae` through the entry point `stelae.commands`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.arguments import WarehouseOption, open_warehouse
from stelae.cli.screen import count_text
from stelae.service.options import DEFAULTS, ServerOptions, describe

if TYPE_CHECKING:
    from stelae.service.server import Ready


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)


def serve(
    warehouse: WarehouseOption,
    host: Annotated[str, typer.Option("--host", help=describe("host"))] = DEFAULTS.host,
    port: Annotated[int, typer.Option("--port", help=describe("port"))] = DEFAULTS.port,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help=describe("workers"))] = DEFAULTS.workers,
    table: Annotated[list[str] | None, typer.Option("--table", metavar="TABLE", help=describe("tables"))] = None,
    poll_interval: Annotated[
        float, typer.Option("--poll-interval", metavar="SECONDS", help=describe("poll_interval_s"))
    ] = DEFAULTS.poll_interval_s,
    block_cache_bytes: Annotated[
        int, typer.Option("--block-cache-bytes", metavar="BYTES", help=describe("block_cache_bytes"))
    ] = DEFAULTS.block_cache_bytes,
    hash_index_bytes: Annotated[
        int, typer.Option("--hash-index-bytes", metavar="BYTES", help=describe("hash_index_bytes"))
    ] = DEFAULTS.hash_index_bytes,
    data_folder: Annotated[
        Path | None, typer.Option("--data-folder", metavar="FOLDER", help=describe("data_folder"))
    ] = None,
    max_body_bytes: Annotated[
        int, typer.Option("--max-body-bytes", metavar="BYTES", help=describe("max_body_bytes"))
    ] = DEFAULTS.max_body_bytes,
    max_batch_keys: Annotated[
        int, typer.Option("--max-batch-keys", metavar="N", help=describe("max_batch_keys"))
    ] = DEFAULTS.max_batch_keys,
    max_page_rows: Annotated[
        int, typer.Option("--max-page-rows", metavar="N", help=describe("max_page_rows"))
    ] = DEFAULTS.max_page_rows,
    max_parallel_loads: Annotated[
        int, typer.Option("--max-parallel-loads", metavar="N", help=describe("max_parallel_loads"))
    ] = DEFAULTS.max_parallel_loads,
    load_threads: Annotated[
        int, typer.Option("--load-threads", metavar="N", help=describe("load_threads"))
    ] = DEFAULTS.load_threads,
    separate_loads: Annotated[
        bool, typer.Option("--separate-loads/--no-separate-loads", help=describe("separate_loads"))
    ] = DEFAULTS.separate_loads,
    kept_snapshots: Annotated[
        int, typer.Option("--kept-snapshots", metavar="N", help=describe("kept_snapshots"))
    ] = DEFAULTS.kept_snapshots,
    pinned_snapshots: Annotated[
        int, typer.Option("--pinned-snapshots", metavar="N", help=describe("pinned_snapshots"))
    ] = DEFAULTS.pinned_snapshots,
    pin_idle: Annotated[
        float, typer.Option("--pin-idle", metavar="SECONDS", help=describe("pin_idle_s"))
    ] = DEFAULTS.pin_idle_s,
    online_writes: Annotated[
        bool, typer.Option("--online-writes/--no-online-writes", help=describe("online_writes"))
    ] = DEFAULTS.online_writes,
    take_over: Annotated[bool, typer.Option("--take-over", help=describe("take_over"))] = DEFAULTS.take_over,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help=describe("name"))] = DEFAULTS.name,
    advertise_url: Annotated[
        str, typer.Option("--advertise-url", metavar="URL", help=describe("advertise_url"))
    ] = DEFAULTS.advertise_url,
    hot_rows: Annotated[int, typer.Option("--hot-rows", metavar="N", help=describe("hot_rows"))] = DEFAULTS.hot_rows,
    drain: Annotated[float, typer.Option("--drain", metavar="SECONDS", help=describe("drain_s"))] = DEFAULTS.drain_s,
    shutdown_grace: Annotated[
        float, typer.Option("--shutdown-grace", metavar="SECONDS", help=describe("shutdown_grace_s"))
    ] = DEFAULTS.shutdown_grace_s,
) -> None:
    """Serve tables over HTTP until Ctrl-C or SIGTERM.

    Loads what the warehouse has, prints a line when it is ready, and follows new snapshots.
    """
    options = ServerOptions(
        host=host,
        port=port,
        workers=workers,
        tables=tuple(table or ()),
        poll_interval_s=poll_interval,
        block_cache_bytes=block_cache_bytes,
        hash_index_bytes=hash_index_bytes,
        data_folder=data_folder,
        max_body_bytes=max_body_bytes,
        max_batch_keys=max_batch_keys,
        max_page_rows=max_page_rows,
        max_parallel_loads=max_parallel_loads,
        load_threads=load_threads,
        separate_loads=separate_loads,
        kept_snapshots=kept_snapshots,
        pinned_snapshots=pinned_snapshots,
        pin_idle_s=pin_idle,
        online_writes=online_writes,
        take_over=take_over,
        name=name,
        advertise_url=advertise_url,
        hot_rows=hot_rows,
        drain_s=drain,
        shutdown_grace_s=shutdown_grace,
    )
    opened = open_warehouse(warehouse)
    for name in options.tables:
        opened.table(name)

    from stelae.service.server import run_server

    run_server(options, opened, lambda ready: _say_ready(ready, options.workers))


def _say_ready(ready: Ready, workers: int) -> None:
    """The one line on standard output."""
    text = f"serving {count_text(ready.tables, 'table')}, {count_text(ready.rows, 'row')}"
    for names, what in ((ready.never_built, "never built"), (ready.not_loadable, "not loadable, see the log")):
        if names:
            text += f" ({what}: {', '.join(names)})"
    if workers > 1:
        text += f", with {workers} workers"
    sys.stdout.write(f"{text}, at {ready.url}, ready in {ready.seconds:.1f} s\n")
    sys.stdout.flush()
