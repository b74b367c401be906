"""``headrace open``: print a link to the pages of the gateway."""

from __future__ import annotations

import typer

from gateway.auth.local_key import login_link
from gateway.servers import announced_gateway, find_running
from gateway.session import run_client
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]


def command() -> None:
    """Print a link that opens the pages of a running `up`, once, within five minutes."""
    typer.echo(run_client(_link))


async def _link(settings: Settings) -> str:
    running, address = find_running(settings), announced_gateway(settings)
    if running is None or address is None:
        raise UsageError(
            f"no `headrace up` with a gateway runs in {settings.home_directory}",
            "start one, without --no-serve",
        )
    return await login_link(running, address)
