"""The switch of a project from one generation to another, and how writers keep clear of it."""

from __future__ import annotations

import asyncpg

from runtime.errors import Unavailable
from store.named_queries import named

__all__ = ["SWITCH", "GenerationMoved", "switch_lock_shared"]

SWITCH = 0x48445357
"""Space of the advisory locks that a switch takes, by project."""

_QUERIES = named("switching")


class GenerationMoved(Unavailable):
    """Changes were prepared for a generation that isn't live any more: prepare them again."""


async def switch_lock_shared(connection: asyncpg.Connection, project_id: int) -> None:
    """Keep the project from being switched until the transaction ends.

    Waits for a switch that is going on; the statements after this one see what it did. Writers
    don't wait for each other.
    """
    await connection.execute(_QUERIES["lock_shared"], SWITCH, project_id)
