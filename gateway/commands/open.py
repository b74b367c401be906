"""``headrace open`` and ``headrace down``, for a running ``up``: link to its pages, and its end."""

from __future__ import annotations

import typer

from gateway.auth.local_key import login_link
from gateway.output import stderr
from gateway.processes.background import bring_down
from gateway.servers import announced_gateway, find_running
from gateway.session import run_client
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command", "down"]


def command() -> None:
    """Print a link that opens the pages of a running `up`, once, within five minutes."""
    typer.echo(run_client(_link))


def down() -> None:
    """Stop `headrace up` with its servers and workers; published data is kept."""
    ended = run_client(bring_down)
    stderr().print("headrace is down" if ended else "`headrace up` does not run")


async def _link(settings: Settings) -> str:
    running, address = find_running(settings), announced_gateway(settings)
    if running is None or address is None:
        raise UsageError(
            f"no `headrace up` with a gateway runs in {settings.home_directory}",
            "start one, without --no-serve",
        )
    return await login_link(running, address)
