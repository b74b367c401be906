"""``headrace mcp``: MCP over stdio, and its entries in the files of hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.mcp import stdio
from gateway.mcp.hosts import Entry, Host, Scope, apply, as_json, command_line, plan
from gateway.mcp.stdio import IDLE, Options
from runtime.errors import UsageError

__all__ = ["command"]

command = typer.Typer(invoke_without_command=True)

ScopeOption = Annotated[
    Scope,
    typer.Option(help="For you in all directories, or for everyone in this directory."),
]
HostArgument = Annotated[
    Host | None, typer.Argument(metavar="HOST", help="Program that uses Headrace.")
]
HostOption = Annotated[
    Host | None, typer.Option("--host", metavar="HOST", help="HOST, given as an option.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the change; write nothing.")]


@command.callback()
def serve(
    context: typer.Context,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="The only project of the tools.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out `remember` and `forget`.")
    ] = False,
    idle: Annotated[
        str, typer.Option(help="An `up` that this command starts ends after this idle time.")
    ] = IDLE,
) -> None:
    """Serve the tools over stdin and stdout; hosts start this command.

    It uses the gateway named by HEADRACE_URL and HEADRACE_API_KEY, or the configured servers, or
    those of a running `up`. If there are none, the first call starts an `up` that ends when idle.
    With HEADRACE_MCP_RESULTS=text, results have no structured part.
    """
    if context.invoked_subcommand is None:
        stdio.serve(Options(project, read_only, idle))


@command.command()
def install(
    host: HostArgument = None,
    scope: ScopeOption = Scope.USER,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="The only project of the tools.")
    ] = None,
    url: Annotated[
        str, typer.Option(help="Gateway to reach over HTTP, with the key in HEADRACE_API_KEY.")
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out `remember` and `forget`.")
    ] = False,
    dry_run: DryRunOption = False,
    host_option: HostOption = None,
) -> None:
    """Write the entry for Headrace into the file of a host; `json` prints it, `skill` is a file.

    The file keeps everything else, and is copied first.
    """
    entry = _entry(project, url, read_only=read_only)
    chosen = _chosen(host, host_option)
    if chosen is Host.JSON:
        typer.echo(as_json(chosen, entry))
    else:
        _edit(chosen, scope, entry, dry_run=dry_run)


@command.command()
def uninstall(
    host: HostArgument = None,
    scope: ScopeOption = Scope.USER,
    dry_run: DryRunOption = False,
    host_option: HostOption = None,
) -> None:
    """Take the entry for Headrace out of the file of a host."""
    _edit(_chosen(host, host_option), scope, None, dry_run=dry_run)


def _chosen(argument: Host | None, option: Host | None) -> Host:
    """Return the host that is named once, before or behind ``--host``.

    Raises:
        UsageError: no host is named, or two are.
    """
    if argument is not None and option is not None:
        raise UsageError("two hosts are named", "name one")
    host = argument or option
    if host is None:
        raise UsageError("no host is named", f"name one of {', '.join(Host)}")
    return host


def _entry(project: str | None, url: str, *, read_only: bool) -> Entry:
    if url:
        address, mark, query = url.partition("?")
        base = address.rstrip("/").removesuffix("/mcp")
        return Entry(url=f"{base}/mcp{mark}{query}")
    options = [
        *(["--project", project] if project else []),
        *(["--read-only"] if read_only else []),
    ]
    return Entry((*command_line(), "mcp", *options))


def _edit(host: Host, scope: Scope, entry: Entry | None, *, dry_run: bool) -> None:
    edit = plan(host, scope, entry, home=Path.home(), directory=Path.cwd())
    if not edit.changes:
        typer.echo(f"{edit.path} stays as it is")
        return
    typer.echo(edit.difference())
    if dry_run:
        return
    copy = apply(edit)
    if copy is not None:
        typer.echo(f"the former file is {copy}")
