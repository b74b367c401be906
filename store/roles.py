"""Postgres roles, each with the rights that its processes need; the migrations grant them."""

from __future__ import annotations

import asyncpg

from store.named_queries import named

__all__ = ["ANSWERER", "OPERATOR", "PUBLISHER", "WORKER", "take_role"]

PUBLISHER = "headrace_publisher"
ANSWERER = "headrace_answerer"
WORKER = "headrace_worker"
OPERATOR = "headrace_operator"

_QUERIES = named("roles")


async def take_role(connection: asyncpg.Connection, role: str) -> None:
    """Go on as ``role``, where the user who is connected is a member of it.

    Another user stays what it is: whoever connects as an answerer doesn't become a worker.

    Raises:
        asyncpg.UndefinedObjectError: there is no such role.
    """
    await connection.execute(_QUERIES["take_role"], role)
