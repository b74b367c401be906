"""``headrace``: the command line and the list of its commands.

Only the module of the given command is imported, so that `headrace --help` is quick. Slow imports
are inside functions, where a failure or Ctrl-C during the import ends in one line.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in ``forked_command``
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import typer
    from typer.core import TyperGroup

__all__ = ["COMMANDS", "application", "prepare", "run", "run_here"]

COMMANDS = {
    "demo": "Index documents and ask a few questions about them.",
    "up": "Run servers and workers until Ctrl-C.",
    "open": "Print a link to the pages.",
    "down": "Stop a running `up`.",
    "logs": "Show the logs of the servers and workers of `up`.",
    "migrate": "Apply database migrations.",
    "deployment": "Show or set the deployment that the servers belong to.",
    "access": "Create Redis users and Postgres roles with least privilege.",
    "worker": "Index documents and answer queries.",
    "serve": "Serve HTTP, MCP and pages.",
    "mcp": "Serve MCP tools over stdio, or install them into an editor or agent.",
    "sync": "Publish the changes of a directory or repository.",
    "watch": "Publish the changes of directories or repositories as they happen.",
    "hook": "Publish each commit of a repository by its git hooks.",
    "import": "Publish the documents of a file of JSON lines.",
    "crawl": "Publish the pages of a web site.",
    "github": "Publish the issues and pull requests of a repository of GitHub.",
    "publish": "Publish events from standard input.",
    "ask": "Ask a question.",
    "grep": "Print the lines that match a pattern.",
    "status": "Show backlog, workers, stored data and freshness.",
    "costs": "Show tokens and costs of remote models.",
    "doctor": "Check servers and index; repair the index.",
    "replay": "Rebuild the index from the log, and switch to it.",
    "document": "List, show, delete and purge documents.",
    "project": "List, delete and purge projects.",
    "source": "List and delete sources.",
    "export": "Write an index as Parquet files, or into Qdrant.",
    "collection": "List collections, and choose how their documents are cut.",
    "keys": "Manage publisher signing keys.",
    "api-keys": "Manage API keys of the gateway's callers.",
    "dead": "Inspect and redrive dead letters.",
    "eval": "Score retrieval on questions with known answers.",
    "bench": "Run benchmarks and print their figures.",
}
_MODULES = {
    "eval": "evaluate",
    "api-keys": "api_keys",
    "down": "up:down",
    "grep": "ask:grep",
    "github": "crawl:github",
    "hook": "sync:hook",
    "import": "sync:import_file",
    "open": "up:open_pages",
    "watch": "sync:watch",
    "migrate": "deployment:migrate",
}
"""Modules of commands, and functions not named ``command``, if a name does not show them."""


_prepared: dict[str, TyperGroup] = {}
_INTERRUPTED = 130
_STANDARD_STREAMS = (0, 1, 2)


def run() -> None:
    """Run the command line and exit: 0 on success, 1 on failure, 2 on wrong usage."""
    try:
        _open_closed_streams()
        from gateway.processes.forked_command import run_forked  # noqa: PLC0415

        arguments = sys.argv[1:]
        code = run_forked(arguments)
        sys.exit(run_here(arguments) if code is None else code)
    except KeyboardInterrupt:  # during what `run_here` does not do
        sys.exit(_INTERRUPTED)


def _open_closed_streams() -> None:
    """Open the null device in place of each closed standard stream.

    Otherwise the next file or socket to be opened would get its file descriptor.
    """
    for number in _STANDARD_STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run_here(arguments: Sequence[str]) -> int:
    """Run a command in this process and return its exit code; an error is printed in one line."""
    try:
        if _served_by_mcp(arguments):
            return 0
        command = _prepared.get(arguments[0]) if arguments else None
        if command is None:
            command = _command_line(arguments)
        command(list(arguments), prog_name="headrace")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:  # noqa: BLE001  # the last place that can report it in one line
        from gateway.failures import report  # noqa: PLC0415

        return report(error)
    return 0


def prepare(names: Iterable[str]) -> None:
    """Build the command line of some commands, which processes that are forked later then have.

    Their arguments are parsed once, since the library builds parts of a command only then.
    """
    for name in names:
        command = _prepared[name] = _command_line([name])
        context = command.make_context("headrace", [name], resilient_parsing=True)
        part = command.get_command(context, name)
        assert part is not None
        part.make_context(name, [], parent=context, resilient_parsing=True)


def _command_line(arguments: Sequence[str]) -> TyperGroup:
    import typer.core  # noqa: PLC0415
    import typer.main  # noqa: PLC0415

    command = typer.main.get_command(application(arguments))
    assert isinstance(command, typer.core.TyperGroup)  # it has several commands
    return command


def _served_by_mcp(arguments: Sequence[str]) -> bool:
    """Run `headrace mcp` without the library of the command line, which hosts would wait for.

    Returns False at once for other commands, and for arguments that only the library understands.
    """
    if not arguments or arguments[0] != "mcp":
        return False
    from gateway.mcp import stdio  # noqa: PLC0415

    options = stdio.options_of(arguments[1:])
    if options is None:
        return False
    stdio.serve(options)
    return True


def application(arguments: Sequence[str]) -> typer.Typer:
    """Build the command line with the module of the given command.

    The others are only listed, and are left out if the first argument is a command: to build them
    takes a fifth of the processor time of a command that runs beside `up`.
    """
    import typer  # noqa: PLC0415

    app = typer.Typer(
        name="headrace",
        help="Ask a knowledge index that is never stale, because it is a fold over an event log.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    _add_version(app)
    completed = _words_to_complete(os.environ)
    wanted = next((word for word in completed or arguments if not word.startswith("-")), None)
    is_given = not completed and wanted in COMMANDS and wanted == arguments[0]
    for name, line in COMMANDS.items():
        if name == wanted or not is_given:
            _add(app, name, line, load=name == wanted)
    return app


def _words_to_complete(environment: Mapping[str, str]) -> list[str]:
    """Words typed after `headrace` if a shell requests completions; otherwise empty."""
    if "_HEADRACE_COMPLETE" not in environment:
        return []
    typed = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    return typed.split()[1:]


def _add_version(app: typer.Typer) -> None:
    import typer  # noqa: PLC0415

    def show(asked: bool) -> None:
        if asked:
            from importlib.metadata import version  # noqa: PLC0415

            typer.echo(f"headrace {version('headrace')}")
            raise typer.Exit

    option = typer.Option(
        False, "--version", help="Print the version.", callback=show, is_eager=True
    )

    @app.callback()
    def options(version: bool = option) -> None:
        """Accept options before the command."""


def _add(app: typer.Typer, name: str, line: str, *, load: bool) -> None:
    if not load:
        app.command(name, help=line)(_never_called)
        return
    from importlib import import_module  # noqa: PLC0415

    import typer  # noqa: PLC0415

    module, _, function = _MODULES.get(name, name).partition(":")
    command = getattr(import_module(f"gateway.commands.{module}"), function or "command")
    if isinstance(command, typer.Typer):
        # a group with a callback also works without a subcommand
        alone = command.registered_callback is not None
        app.add_typer(command, name=name, help=line, no_args_is_help=not alone)
    else:
        app.command(name)(command)


def _never_called() -> None:
    """Placeholder for a command that is not being run."""


if __name__ == "__main__":
    run()
