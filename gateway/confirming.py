"""Asking before something is done that can't be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.output import printable
from runtime.errors import UsageError

__all__ = ["YesOption", "confirm"]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask first.")]


def confirm(what: str, *, yes: bool) -> None:
    """Go on if the user has said or now says yes.

    Raises:
        UsageError: the user says no, or there is no terminal to ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}: say --yes to do it without a question")
    if not typer.confirm(printable(f"{what}. Go on?"), err=True):
        raise UsageError("nothing was done")
