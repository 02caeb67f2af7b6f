"""The command `stelae serve`. Added to `stelae` through the entry point `stelae.commands`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from stelae.cli.arguments import WarehouseOption, open_warehouse
from stelae.cli.option_flags import takes_declared_options
from stelae.cli.screen import count_text
from stelae.service.options import ServerOptions

if TYPE_CHECKING:
    from stelae.service.server import Ready


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)


@takes_declared_options
def serve(warehouse: WarehouseOption, options: ServerOptions) -> None:
    """Serve tables over HTTP until Ctrl-C or SIGTERM.

    Loads what the warehouse has, prints a line when it is ready, and follows new snapshots.
    """
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
