"""``headrace``: the command line, and its table of contents.

Only the module of the command that was asked for is imported, so that `headrace --help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import typer
import typer.main

from gateway.failures import report

__all__ = ["COMMANDS", "run"]

COMMANDS = {
    "demo": "Index documents and ask a few questions about them.",
    "up": "Run servers and workers, until Ctrl-C.",
    "migrate": "Bring the database to this version's schema.",
    "deployment": "Say which deployment the servers are of; make them one.",
    "access": "Make Redis users and Postgres roles, with the least rights of each.",
    "worker": "Index documents and answer queries.",
    "sync": "Publish what changed in a directory or repository.",
    "publish": "Publish events from standard input.",
    "ask": "Ask a question.",
    "status": "Show what waits, what is stored, how fresh it is.",
    "doctor": "Check the environment, reconcile the index with the log, mend it.",
    "replay": "Build the index anew from the log, and switch to it.",
    "document": "List, show, delete and purge documents.",
    "project": "List, delete and purge projects.",
    "source": "List and delete sources.",
    "keys": "Say who may change a project: keys that changes are signed with.",
    "dead": "See to events that could not be processed.",
    "eval": "Score retrieval on questions with known answers.",
    "bench": "Measure; print figures and ratios.",
}
_MODULES = {"eval": "evaluate"}


def run() -> None:
    """Run the command line and exit: 0 on success, 1 on failure, 2 on wrong usage."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(_app(arguments))
    try:
        command(list(arguments), prog_name="headrace")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:  # noqa: BLE001  # the last place that can say it in one line
        return report(error)
    return 0


def _app(arguments: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="headrace",
        help="Ask a knowledge index that is never stale, because it is a fold over an event log.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, line in COMMANDS.items():
        _add(app, name, line, load=name == wanted)
    return app


def _add(app: typer.Typer, name: str, line: str, *, load: bool) -> None:
    if not load:
        app.command(name, help=line)(_never_called)
        return
    command = import_module(f"gateway.commands.{_MODULES.get(name, name)}").command
    if isinstance(command, typer.Typer):
        # one with a callback of its own does something by itself, too
        alone = command.registered_callback is not None
        app.add_typer(command, name=name, help=line, no_args_is_help=not alone)
    else:
        app.command(name)(command)


def _never_called() -> None:
    """Holds the place of a command that was not asked for."""


if __name__ == "__main__":
    run()
