"""All commands in one app, and what becomes of their errors: printed, with an exit code for each kind.

    run ─▶ make_app ─▶ commands, ours and those of plug-ins ─▶ StelaeError ─▶ exit code

A plug-in is an entry point of the group `stelae.commands`; one that can't be loaded stops no other command.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, NoReturn

import typer
from typer.core import TyperGroup

from stelae.cli import definitions, insert, log, lookup, screen, tables
from stelae.cli import snapshot_commands as upkeep
from stelae.cli.missing_packages import extra_of, not_installed
from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.version import __version__

COMMANDS = "stelae.commands"
"""Group of entry points; each is a function that takes the typer app and adds commands to it."""

# A contract with scripts. Never renumber.
EXIT_CODES: Mapping[type[StelaeError], int] = {
    InvalidRequest: 2,
    NotFound: 3,
    Conflict: 4,
    Unavailable: 5,
    CorruptData: 6,
}
"""Exit code of each kind of error; 0 is success, 1 the answer no: `lookup` no such row, `insert` no such partition."""
UNEXPECTED = 70
"""Exit code of an error that nobody raised on purpose."""
INTERRUPTED = 130

COMMAND_ORDER = (
    *("create", "alter", "build", "serve", "lookup", "insert"),
    *("tables", "describe", "snapshots", "log", "verify"),
    *("rollback", "expire", "clean", "demo"),
)
"""Commands in the order in which `--help` lists them; those of others follow."""

OWN_PLUGINS = {"builder": ("build", "demo"), "service": ("serve",)}
"""Our own plug-ins, each named like the extra that brings what it needs, with the commands that it adds: when it can't
be loaded, something stands in for them that says why."""


@dataclass
class CliSettings:
    """Options of `stelae` itself."""

    debug: bool = False


def main() -> NoReturn:
    """The entry point of `stelae` and `python -m stelae`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code. Everything that it says is printed."""
    settings = CliSettings()
    try:
        make_app()(list(arguments), prog_name="stelae", obj=settings)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except StelaeError as exc:
        if settings.debug:
            traceback.print_exc()
        screen.show_error(exc)
        return exit_code(exc)
    except ModuleNotFoundError as exc:
        if settings.debug or extra_of(exc) is None:
            traceback.print_exc()
        screen.show_error(not_installed(exc))
        return EXIT_CODES[Unavailable]
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as exc:
        traceback.print_exc()
        screen.show_error(
            StelaeError(f"unexpected: {type(exc).__name__}: {exc}", hint="this is a bug; please report it")
        )
        return UNEXPECTED
    return 0


def make_app() -> typer.Typer:
    """All commands, those of the plug-ins included."""
    app = typer.Typer(
        name="stelae",
        help="Primary-key tables that Spark builds and an HTTP service serves.",
        cls=_Commands,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_stelae)
    for part in (definitions, tables, upkeep, lookup, insert, log):
        part.register(app)
    for plugin in sorted(entry_points(group=COMMANDS), key=lambda plugin: plugin.name):
        add_plugin(app, plugin)
    return app


def add_plugin(app: typer.Typer, plugin: EntryPoint) -> None:
    """Add the commands of a plug-in. One that can't be loaded says so when it is called; the others work."""
    try:
        register: Callable[[typer.Typer], None] = plugin.load()
    except ImportError as exc:
        error = not_installed(exc, extra=plugin.name)
        error.__cause__ = exc
        for name in OWN_PLUGINS.get(plugin.name, ()):
            app.command(name, help=f"Not installed: {error.hint}", context_settings=_ANY)(_stand_in(error))
        return
    register(app)


def exit_code(error: StelaeError) -> int:
    """The exit code of an error: that of its kind, or of the kind that it is a special case of."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), UNEXPECTED)


class _Commands(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        names = super().list_commands(ctx)
        return sorted(
            names, key=lambda name: COMMAND_ORDER.index(name) if name in COMMAND_ORDER else len(COMMAND_ORDER)
        )


_ANY = {"allow_extra_args": True, "ignore_unknown_options": True}


def _stand_in(error: StelaeError) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stelae {__version__}")
        raise typer.Exit


def _stelae(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Print Python tracebacks, and Spark's log.")] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj.debug = debug
