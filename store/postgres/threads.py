"""Long computations in the middle of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import asyncpg

__all__ = ["in_thread", "result_of"]

P = ParamSpec("P")
T = TypeVar("T")

_SIGN_OF_LIFE_S = 1.0


async def in_thread(
    connection: asyncpg.Connection, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run ``work`` in a thread, and send the server a statement every second until it is done.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    return await result_of(connection, task)


async def result_of(connection: asyncpg.Connection, task: asyncio.Task[T]) -> T:
    """Wait for work in a thread, and send the server a statement every second until it is done.

    The server ends transactions that are silent for long (``store.postgres.pool``). The work for a
    large document, which takes longer, would then start again and again.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    try:
        while not (await asyncio.wait([task], timeout=_SIGN_OF_LIFE_S))[0]:
            await connection.execute("select 1")
        return task.result()
    finally:
        task.cancel()
