"""The command line: `stelae COMMAND ...`. docs/cli.md shows every command.

    app.py                all commands, errors and their exit codes
    definitions.py        create, alter
    tables.py             tables, describe, snapshots
    snapshot_commands.py  rollback, expire, clean, verify
    lookup.py             lookup
    insert.py             insert
    log.py                log
    row_sources.py        rows for lookup and insert, from a server or from a warehouse
    arguments.py          options that commands share, such as -w and --json, and how their texts are read
    option_flags.py       flags made from declared options
    screen.py             what is printed: tables, JSON, errors
    missing_packages.py   what to install where a package is missing

Builder and service add theirs (build, serve, demo) through the entry point `stelae.commands`: the core knows neither of
them. A command raises errors of `stelae/errors.py`; app.py, and nothing else, prints them and makes exit codes of them.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """The entry point of `stelae` and `python -m stelae`."""
    from stelae.cli.app import main

    main()
