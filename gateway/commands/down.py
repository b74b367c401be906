"""``headrace down``: stop a running ``up``."""

from __future__ import annotations

from gateway.output import stderr
from gateway.processes.background import bring_down
from gateway.session import run_client

__all__ = ["command"]


def command() -> None:
    """Stop `headrace up` with its servers and workers; published data is kept."""
    ended = run_client(bring_down)
    stderr().print("headrace is down" if ended else "`headrace up` does not run")
