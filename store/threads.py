"""Long work on the processor, in the middle of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import asyncpg

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_SIGN_OF_LIFE_S = 1.0


async def in_thread(
    connection: asyncpg.Connection, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run ``work`` in a thread, while the server hears of us every second.

    It ends transactions that are silent for long (``store.database``), and the same work would then
    be begun again and again: the larger a document is, the longer it takes.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    try:
        while not (await asyncio.wait([task], timeout=_SIGN_OF_LIFE_S))[0]:
            await connection.execute("select 1")
        return task.result()
    finally:
        task.cancel()
