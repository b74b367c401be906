"""Commands that the fork server's processes run, with all that they import."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import gateway.commands
from gateway.main import run
from processors.embedders.remote import provider
from tests.chaos.armed import arm_with
from tests.support.databases import data_is_copied
from tests.support.forked_parsers import parsers_are_forked
from tests.support.forked_services import services_are_forked
from tests.support.orders import HEADRACE, Order

__all__ = ["load", "run_order"]

_LATE_IMPORTS = (
    "alembic.command",
    "anyio._backends._asyncio",
    "faust.app.router",
    "faust.assignor",
    "faust.events",
    "faust.tables.objects",
    "faust.tables.sets",
    "faust.worker",
    "gateway.line_view",
    "gateway.mcp.opener",
    "httpcore2",
    "migrations",
    "numpy.ma",
    "processors.embedders.local.embedder",
    "rich._emoji_codes",
    "typer._adapters",
)
"""Modules that commands import when they need them."""


def load(providers: bool) -> None:
    """Load every command, and with ``providers`` the library for model providers."""
    commands = pkgutil.iter_modules(gateway.commands.__path__, "gateway.commands.")
    for name in (*_LATE_IMPORTS, *(command.name for command in commands)):
        import_module(name)
    if providers:
        provider._load_litellm()


def run_order(order: Order, server: Path) -> None:
    """Run a module as the order says: its parsers are forked, the data of servers is copied."""
    if order.strike:
        point, *numbers = order.strike
        arm_with(point, *map(int, numbers))
    sys.argv[1:] = order.arguments
    chunkers = {"chunkers": order.chunkers} if order.chunkers else {}
    with (
        parsers_are_forked(server, **chunkers),
        services_are_forked(server),
        data_is_copied(server.parent),
    ):
        if order.program == HEADRACE:
            run()
        else:
            import_module(order.program).main(order.arguments)
