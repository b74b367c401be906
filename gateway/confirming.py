"""Confirmation of actions that can't be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.output import printable
from runtime.errors import UsageError

__all__ = ["YesOption", "confirm"]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


def confirm(what: str, *, yes: bool) -> None:
    """Return if the user has confirmed by ``yes`` or confirms on the terminal.

    Raises:
        UsageError: the user declines, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}, but there is no terminal for confirmation; repeat with --yes")
    if not typer.confirm(printable(f"{what}. Continue?"), err=True):
        raise UsageError("not confirmed; nothing was done")
